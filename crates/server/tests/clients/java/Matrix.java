import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;
import redis.clients.jedis.*;
import redis.clients.jedis.bloom.*;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.util.SafeEncoder;

/** Jedis: its typed Bloom and cuckoo commands, in both versions of the protocol. */
public class Matrix {
  interface Body {
    void run() throws Exception;
  }

  static void check(String name, Body body) {
    try {
      body.run();
      System.out.println("ok\t" + name);
    } catch (Throwable trouble) {
      String why = trouble.toString().replaceAll("\\s+", " ");
      // A command that is still to come is no failure; the table says how many wait.
      System.out.println((why.contains("not here yet") ? "waits\t" : "failed\t") + name + "\t" + why);
    }
  }

  static void same(Object found, Object wanted) {
    if (!Objects.equals(found, wanted)) throw new AssertionError(found + " instead of " + wanted);
  }

  static void refused(String text, Body body) throws Exception {
    try {
      body.run();
    } catch (JedisDataException error) {
      if (!error.getMessage().contains(text)) throw new AssertionError("refused with " + error.getMessage() + " instead of " + text);
      return;
    }
    throw new AssertionError("no error with " + text);
  }

  static String[] items(int count) {
    return IntStream.range(0, count).mapToObj(number -> "item " + number).toArray(String[]::new);
  }

  public static void main(String[] arguments) {
    run(RedisProtocol.RESP2, 2);
    run(RedisProtocol.RESP3, 3);
    System.exit(0);
  }

  static void run(RedisProtocol protocol, int number) {
    System.out.println("client\tJedis\t" + System.getenv("UMBEL_JEDIS") + "\tRESP" + number);
    HostAndPort address = new HostAndPort("127.0.0.1", Integer.parseInt(System.getenv("UMBEL_PORT")));
    JedisClientConfig config = DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis(60000).build();
    UnifiedJedis[] connected = new UnifiedJedis[1];
    check("connects", () -> {
      connected[0] = new JedisPooled(address, config);
      connected[0].ping();
    });
    UnifiedJedis client = connected[0];
    if (client == null) return;
    String prefix = "jedis:" + number + ":";
    for (String key : client.keys("*")) if (key.startsWith(prefix)) client.del(key);

    check("bf reserve with every option", () -> {
      same(client.bfReserve(prefix + "plain", 0.01, 1000), "OK");
      same(client.bfReserve(prefix + "expanding", 0.001, 1000, BFReserveParams.reserveParams().expansion(4)), "OK");
      same(client.bfReserve(prefix + "fixed", 0.001, 100, BFReserveParams.reserveParams().nonScaling()), "OK");
      same(client.bfInfo(prefix + "expanding").get("Expansion rate"), 4L);
      refused("item exists", () -> client.bfReserve(prefix + "plain", 0.01, 1000));
      refused("error rate", () -> client.bfReserve(prefix + "new", 1.5, 1000));
    });
    check("bf add and exists", () -> {
      same(client.bfAdd(prefix + "add", "one"), true);
      same(client.bfAdd(prefix + "add", "one"), false);
      same(client.bfExists(prefix + "add", "one"), true);
      same(client.bfExists(prefix + "add", "two"), false);
    });
    check("bf madd and mexists", () -> {
      same(client.bfMAdd(prefix + "madd", "a", "b"), List.of(true, true));
      same(client.bfMAdd(prefix + "madd", "b", "c"), List.of(false, true));
      same(client.bfMExists(prefix + "madd", "a", "x"), List.of(true, false));
    });
    check("bf insert with every option", () -> {
      BFInsertParams made = BFInsertParams.insertParams().capacity(5000).error(0.0001).expansion(3);
      same(client.bfInsert(prefix + "insert", made, "a", "b"), List.of(true, true));
      BFInsertParams there = BFInsertParams.insertParams().noCreate();
      same(client.bfInsert(prefix + "insert", there, "b", "c"), List.of(false, true));
      BFInsertParams fixed = BFInsertParams.insertParams().capacity(10).nonScaling();
      same(client.bfInsert(prefix + "insert fixed", fixed, "a"), List.of(true));
      refused("not found", () -> client.bfInsert(prefix + "missing", there, "a"));
    });
    check("bf info and card", () -> {
      client.bfReserve(prefix + "info", 0.01, 200);
      client.bfMAdd(prefix + "info", items(50));
      Map<String, Object> info = client.bfInfo(prefix + "info");
      same(info.get("Capacity"), 200L);
      same(info.get("Number of filters"), 1L);
      same(info.get("Expansion rate"), 2L);
      same(info.get("Number of items inserted"), client.bfCard(prefix + "info"));
      refused("not found", () -> client.bfInfo(prefix + "missing"));
    });
    check("bf scandump and loadchunk", () -> {
      client.bfReserve(prefix + "dump", 0.01, 1000);
      client.bfMAdd(prefix + "dump", items(100));
      long iterator = 0;
      while (true) {
        Map.Entry<Long, byte[]> part = client.bfScanDump(prefix + "dump", iterator);
        iterator = part.getKey();
        if (iterator == 0) break;
        same(client.bfLoadChunk(prefix + "loaded", iterator, part.getValue()), "OK");
      }
      same(client.bfMExists(prefix + "loaded", items(100)), Collections.nCopies(100, true));
    });
    check("cf reserve with every option", () -> {
      CFReserveParams options = CFReserveParams.reserveParams().bucketSize(4).maxIterations(30).expansion(2);
      same(client.cfReserve(prefix + "cf reserve", 1000, options), "OK");
      Map<String, Object> info = client.cfInfo(prefix + "cf reserve");
      same(List.of(info.get("Bucket size"), info.get("Max iterations"), info.get("Expansion rate")), List.of(4L, 30L, 2L));
      refused("item exists", () -> client.cfReserve(prefix + "cf reserve", 1000));
    });
    check("cf add, insert, count", () -> {
      same(client.cfAdd(prefix + "cf", "one"), true);
      same(client.cfAddNx(prefix + "cf", "one"), false);
      same(client.cfInsert(prefix + "cf", CFInsertParams.insertParams().capacity(1000), "one", "two"), List.of(true, true));
      same(client.cfInsertNx(prefix + "cf", "one", "three"), List.of(false, true));
      same(client.cfCount(prefix + "cf", "one"), 2L);
      same(client.cfMExists(prefix + "cf", "one", "four"), List.of(true, false));
    });
    check("cf del and info", () -> {
      same(client.cfDel(prefix + "cf", "never added"), false);
      same(client.cfDel(prefix + "cf", "three"), true);
      same(client.cfExists(prefix + "cf", "three"), false);
      Map<String, Object> info = client.cfInfo(prefix + "cf");
      // An item that was added twice counts twice.
      same(List.of(info.get("Number of items inserted"), info.get("Number of items deleted")), List.of(3L, 1L));
      refused("Not found", () -> client.cfDel(prefix + "missing", "x"));
    });
    check("pipeline of 1000", () -> {
      List<Response<Boolean>> answers = new ArrayList<>();
      try (AbstractPipeline pipeline = client.pipelined()) {
        for (String item : items(500)) pipeline.bfAdd(prefix + "pipeline", item);
        for (String item : items(500)) answers.add(pipeline.bfExists(prefix + "pipeline", item));
        pipeline.sync();
      }
      for (Response<Boolean> answer : answers) same(answer.get(), true);
    });
    check("multi and exec", () -> {
      try (AbstractTransaction transaction = client.multi()) {
        transaction.bfAdd(prefix + "multi", "a");
        transaction.bfExists(prefix + "multi", "b");
        same(transaction.exec(), List.of(true, false));
      }
    });
    check("binary, empty and unicode items", () -> {
      byte[] key = (prefix + "binary").getBytes(StandardCharsets.UTF_8);
      byte[] item = {0, -1, 13, 10};
      Object answer = client.sendCommand(() -> SafeEncoder.encode("BF.ADD"), key, item);
      same(answer.equals(1L) || answer.equals(true), true);
      same(client.bfMAdd(prefix + "ключ 🗝", "", "элемент 🌼"), List.of(true, true));
      same(client.bfMExists(prefix + "ключ 🗝", "", "элемент 🌼", "x"), List.of(true, true, false));
    });
    check("wrong type", () -> {
      refused("WRONGTYPE", () -> client.bfAdd(prefix + "cf", "x"));
      refused("WRONGTYPE", () -> client.cfAdd(prefix + "add", "x"));
    });
    check("reconnects after client kill", () -> {
      try (JedisPooled victim = new JedisPooled(address, config); Jedis killer = new Jedis(address, config)) {
        Object id = victim.sendCommand(Protocol.Command.CLIENT, "ID");
        same(killer.clientKill(new redis.clients.jedis.params.ClientKillParams().id(id.toString())), 1L);
        try {
          victim.bfExists(prefix + "add", "one");
        } catch (JedisConnectionException expected) {
          // What was in flight may fail; the pool makes a new connection for the next command.
        }
        same(victim.bfExists(prefix + "add", "one"), true);
      }
    });
    check("del, exists and type", () -> {
      same(client.type(prefix + "add"), "MBbloom--");
      same(client.exists(prefix + "add", prefix + "missing"), 1L);
      same(client.del(prefix + "add"), 1L);
    });
    check("scan, rename, expire and ttl", () -> {
      same(client.scan("0", new ScanParams().match(prefix + "cf").count(10000)).getResult(), List.of(prefix + "cf"));
      same(client.rename(prefix + "cf", prefix + "renamed"), "OK");
      same(client.expire(prefix + "renamed", 100), 1L);
      same(client.ttl(prefix + "renamed") > 90, true);
    });
  }
}
