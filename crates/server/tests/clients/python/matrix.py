"""redis-py against a server: its typed Bloom and cuckoo commands, in both versions of the protocol."""

import os
import sys
import time

import redis
from redis.exceptions import ConnectionError, ExecAbortError, ResponseError

PORT = int(os.environ["UMBEL_PORT"])


BF_FIELDS = {
    "capacity": b"Capacity",
    "size": b"Size",
    "filterNum": b"Number of filters",
    "insertedNum": b"Number of items inserted",
    "expansionRate": b"Expansion rate",
}
CF_FIELDS = {
    "size": b"Size",
    "bucketNum": b"Number of buckets",
    "filterNum": b"Number of filters",
    "insertedNum": b"Number of items inserted",
    "deletedNum": b"Number of items deleted",
    "bucketSize": b"Bucket size",
    "expansionRate": b"Expansion rate",
    "maxIteration": b"Max iterations",
}


class Fields:
    """What INFO says: redis-py gives an object in version 2 of the protocol, and the bare map in version 3."""

    def __init__(self, info, names):
        for name, field in names.items():
            setattr(self, name, info[field] if isinstance(info, dict) else getattr(info, name))


class Matrix:
    def __init__(self, protocol):
        self.protocol = protocol
        self.prefix = f"redis-py:{protocol}:"
        self.client = redis.Redis(port=PORT, protocol=protocol, socket_timeout=60)
        for key in self.client.keys("*"):
            if key.startswith(self.prefix.encode()):
                self.client.delete(key)
        print(f"client\tredis-py\t{redis.__version__}\tRESP{protocol}")

    def key(self, name):
        return self.prefix + name

    def check(self, name, body):
        try:
            body()
        except ResponseError as error:
            # A command that is still to come is no failure; the table says how many wait.
            word = "waits" if "not here yet" in str(error) else "failed"
            print(f"{word}\t{name}\t{error!r}")
        except Exception as error:  # noqa: BLE001: a check that breaks must not hide the others
            print(f"failed\t{name}\t{type(error).__name__}: {error}".replace("\n", " "))
        else:
            print(f"ok\t{name}")

    def bf_info(self, key):
        return Fields(self.client.bf().info(key), BF_FIELDS)

    def cf_info(self, key):
        return Fields(self.client.cf().info(key), CF_FIELDS)

    def raw(self, *words):
        """A reply as it came; `execute_command` would parse a single field as if it were all of them."""
        connection = self.client.connection_pool.get_connection()
        try:
            connection.send_command(*words)
            return connection.read_response()
        finally:
            self.client.connection_pool.release(connection)

    def run(self):
        for name in dir(self):
            if name.startswith("check_"):
                self.check(name.removeprefix("check_").replace("_", " "), getattr(self, name))

    def check_bf_reserve_with_every_option(self):
        bf = self.client.bf()
        same(bf.reserve(self.key("plain"), 0.01, 1000), True)
        same(bf.create(self.key("expanding"), 0.001, 1000, expansion=4), True)
        same(bf.reserve(self.key("fixed"), 0.001, 100, noScale=True), True)
        same(self.bf_info(self.key("expanding")).expansionRate, 4)
        same(self.bf_info(self.key("fixed")).expansionRate, None)
        refused("item exists", lambda: bf.reserve(self.key("plain"), 0.01, 1000))
        refused("Nonscaling filters cannot expand", lambda: bf.reserve(self.key("new"), 0.01, 10, 2, True))
        refused("error rate", lambda: bf.reserve(self.key("new"), 1.5, 10))
        refused("capacity", lambda: bf.reserve(self.key("new"), 0.5, 0))

    def check_bf_add_and_exists(self):
        bf, key = self.client.bf(), self.key("add")
        same(bf.add(key, "one"), 1)
        same(bf.add(key, "one"), 0)
        same(bf.exists(key, "one"), 1)
        same(bf.exists(key, "two"), 0)
        same(bf.exists(self.key("missing"), "one"), 0)

    def check_bf_madd_and_mexists(self):
        bf, key = self.client.bf(), self.key("madd")
        same(bf.madd(key, "a", "b", "c"), [1, 1, 1])
        same(bf.madd(key, "c", "d"), [0, 1])
        same(bf.mexists(key, "a", "x", "d"), [1, 0, 1])
        same(bf.mexists(self.key("missing"), "a", "b"), [0, 0])

    def check_bf_insert_with_every_option(self):
        bf, key = self.client.bf(), self.key("insert")
        same(bf.insert(key, ["a", "b"], capacity=5000, error=0.0001, expansion=3), [1, 1])
        same(bf.insert(key, ["b", "c"], noCreate=True), [0, 1])
        same(self.bf_info(key).capacity, 5000)
        same(self.bf_info(key).expansionRate, 3)
        same(bf.insert(self.key("insert fixed"), ["a"], capacity=10, noScale=True), [1])
        refused("not found", lambda: bf.insert(self.key("missing"), ["a"], noCreate=True))

    def check_bf_info_and_card(self):
        bf, key = self.client.bf(), self.key("info")
        bf.reserve(key, 0.01, 200)
        same(sum(bf.madd(key, *range(50))), bf.card(key))
        info = self.bf_info(key)
        same((info.capacity, info.filterNum, info.expansionRate), (200, 1, 2))
        same(info.insertedNum, bf.card(key))
        at_least(info.size, 200)
        same(bf.card(self.key("missing")), 0)
        refused("not found", lambda: bf.info(self.key("missing")))
        for field in ("CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"):
            at_least(one(self.raw("BF.INFO", key, field)), 1)

    def check_bf_grows(self):
        bf, key = self.client.bf(), self.key("grows")
        items = [f"item {number}" for number in range(5000)]
        for start in range(0, 5000, 500):
            bf.madd(key, *items[start : start + 500])
        same(bf.mexists(key, *items), [1] * 5000)
        absent = bf.mexists(key, *(f"other {number}" for number in range(5000)))
        at_least(250, sum(absent))

    def check_bf_full(self):
        bf, key = self.client.bf(), self.key("full")
        bf.reserve(key, 0.0001, 20, noScale=True)

        def fill():
            for number in range(1000):
                bf.add(key, number)

        refused("non scaling filter is full", fill)
        same(bf.exists(key, 0), 1)

    def check_bf_scandump_and_loadchunk(self):
        bf, key, copy = self.client.bf(), self.key("dump"), self.key("loaded")
        bf.reserve(key, 0.01, 1000)
        bf.madd(key, *range(100))
        chunks, iterator = [], 0
        while True:
            iterator, data = bf.scandump(key, iterator)
            if iterator == 0:
                break
            chunks.append((iterator, data))
        for iterator, data in chunks:
            bf.loadchunk(copy, iterator, data)
        same(bf.mexists(copy, *range(100)), [1] * 100)
        same(bf.card(copy), bf.card(key))
        same(self.bf_info(copy).capacity, self.bf_info(key).capacity)

    def check_cf_reserve_with_every_option(self):
        cf, key = self.client.cf(), self.key("cf reserve")
        same(cf.create(key, 1000, expansion=2, bucket_size=4, max_iterations=30), True)
        info = self.cf_info(key)
        same((info.bucketSize, info.maxIteration, info.expansionRate), (4, 30, 2))
        refused("item exists", lambda: cf.create(key, 1000))
        refused("Capacity must be at least", lambda: cf.create(self.key("new"), 1))

    def check_cf_add_and_exists(self):
        cf, key = self.client.cf(), self.key("cf add")
        same(cf.add(key, "one"), 1)
        same(cf.add(key, "one"), 1)
        same(cf.addnx(key, "one"), 0)
        same(cf.addnx(key, "two"), 1)
        same(cf.count(key, "one"), 2)
        same(cf.exists(key, "one"), 1)
        same(cf.exists(key, "three"), 0)
        same(cf.mexists(key, "one", "two", "three"), [1, 1, 0])

    def check_cf_insert(self):
        cf, key = self.client.cf(), self.key("cf insert")
        same(cf.insert(key, ["a", "b", "a"], capacity=2000), [1, 1, 1])
        same(cf.insert(key, ["a"], nocreate=True), [1])
        same(cf.insertnx(key, ["a", "c"]), [0, 1])
        same(cf.count(key, "a"), 3)
        refused("not found", lambda: cf.insert(self.key("missing"), ["a"], nocreate=True))

    def check_cf_del(self):
        cf, key = self.client.cf(), self.key("cf del")
        cf.add(key, "one")
        same(cf.delete(key, "never added"), 0)
        same(cf.delete(key, "one"), 1)
        same(cf.delete(key, "one"), 0)
        same(cf.exists(key, "one"), 0)
        refused("Not found", lambda: cf.delete(self.key("missing"), "one"))

    def check_cf_info(self):
        cf, key = self.client.cf(), self.key("cf info")
        cf.create(key, 1000)
        cf.insert(key, ["a", "b", "c"])
        cf.delete(key, "a")
        info = self.cf_info(key)
        same((info.bucketSize, info.maxIteration, info.expansionRate), (2, 20, 1))
        same((info.insertedNum, info.deletedNum), (2, 1))
        same(info.filterNum, 1)
        at_least(info.bucketNum, 500)
        at_least(info.size, 1000)
        refused("not found", lambda: cf.info(self.key("missing")))

    def check_cf_scandump_and_loadchunk(self):
        cf, key, copy = self.client.cf(), self.key("cf dump"), self.key("cf loaded")
        cf.insert(key, list(range(100)))
        chunks, iterator = [], 0
        while True:
            iterator, data = cf.scandump(key, iterator)
            if iterator == 0:
                break
            chunks.append((iterator, data))
        for iterator, data in chunks:
            cf.loadchunk(copy, iterator, data)
        same(cf.mexists(copy, *range(100)), [1] * 100)
        same(cf.delete(copy, 5), 1)
        same(cf.exists(copy, 5), 0)

    def check_pipeline_of_1000(self):
        key = self.key("pipeline")
        with self.client.pipeline(transaction=False) as pipe:
            for number in range(500):
                pipe.bf().add(key, number)
            for number in range(500):
                pipe.bf().exists(key, number)
            answers = pipe.execute()
        same(len(answers), 1000)
        at_least(sum(answers[:500]), 480)
        same(answers[500:], [1] * 500)

    def check_multi_and_exec(self):
        key = self.key("multi")
        with self.client.pipeline(transaction=True) as pipe:
            pipe.execute_command("BF.ADD", key, "a")
            pipe.execute_command("BF.MADD", key, "a", "b")
            pipe.execute_command("BF.EXISTS", key, "c")
            same(pipe.execute(), [1, [0, 1], 0])
        with self.client.pipeline(transaction=True) as pipe:
            pipe.execute_command("BF.ADD", key)
            aborted(pipe.execute)

    def check_binary_keys_and_items(self):
        key = self.key("binary").encode() + bytes(range(256))
        items = [bytes([byte, 0, 255, 13, 10]) for byte in range(256)]
        same(self.client.bf().madd(key, *items).count(0) < 16, True)
        same(self.client.bf().mexists(key, *items), [1] * 256)
        same(key in self.client.keys("*"), True)

    def check_empty_item_and_unicode(self):
        bf, key = self.client.bf(), self.key("ключ 🗝")
        same(bf.add(key, ""), 1)
        same(bf.exists(key, ""), 1)
        same(bf.madd(key, "элемент", "要素", "🌼"), [1, 1, 1])
        same(bf.mexists(key, "элемент", "要素", "🌼", "🌻"), [1, 1, 1, 0])

    def check_wrong_type(self):
        self.client.bf().add(self.key("a bloom"), "x")
        self.client.cf().add(self.key("a cuckoo"), "x")
        for body in (
            lambda: self.client.cf().add(self.key("a bloom"), "x"),
            lambda: self.client.cf().exists(self.key("a bloom"), "x"),
            lambda: self.client.cf().info(self.key("a bloom")),
            lambda: self.client.bf().add(self.key("a cuckoo"), "x"),
            lambda: self.client.bf().reserve(self.key("a cuckoo"), 0.1, 10),
            lambda: self.client.bf().card(self.key("a cuckoo")),
        ):
            refused("WRONGTYPE", body)
        refused("unknown command", lambda: self.client.execute_command("NO.SUCH", "x"))
        refused("wrong number of arguments", lambda: self.client.execute_command("BF.ADD", "x"))

    def check_reconnects_after_client_kill(self):
        victim = redis.Redis(port=PORT, protocol=self.protocol, socket_timeout=60)
        victim.bf().add(self.key("killed"), "before")
        number = victim.client_id()
        same(self.client.client_kill_filter(_id=number), 1)
        try:
            victim.bf().add(self.key("killed"), "between")
        except ConnectionError:
            pass  # What is in flight when a connection ends may fail; the next command must not.
        same(victim.bf().exists(self.key("killed"), "before"), 1)
        same(victim.client_id() > number, True)

    def check_del_exists_and_type(self):
        bloom, cuckoo = self.key("del bloom"), self.key("del cuckoo")
        self.client.bf().add(bloom, "x")
        self.client.cf().add(cuckoo, "x")
        same(self.client.exists(bloom, cuckoo, self.key("missing")), 2)
        same(self.client.type(bloom), b"MBbloom--")
        same(self.client.type(cuckoo), b"MBbloomCF")
        same(self.client.type(self.key("missing")), b"none")
        same(self.client.delete(bloom, cuckoo, self.key("missing")), 2)
        same(self.client.exists(bloom, cuckoo), 0)
        same(self.client.bf().exists(bloom, "x"), 0)

    def check_scan(self):
        wanted = {self.key(f"scan {number}").encode() for number in range(50)}
        for key in wanted:
            self.client.bf().add(key, "x")
        found = set(self.client.scan_iter(match=self.key("scan *"), count=7))
        same(found, wanted)

    def check_rename(self):
        old, new = self.key("old name"), self.key("new name")
        self.client.bf().add(old, "x")
        same(self.client.rename(old, new), True)
        same(self.client.bf().exists(new, "x"), 1)
        same(self.client.exists(old), 0)
        refused("no such key", lambda: self.client.rename(old, new))

    def check_expire_and_ttl(self):
        key = self.key("expires")
        self.client.bf().add(key, "x")
        same(self.client.ttl(key), -1)
        same(self.client.expire(key, 100), True)
        at_least(self.client.ttl(key), 90)
        same(self.client.persist(key), True)
        same(self.client.ttl(key), -1)
        same(self.client.pexpire(key, 50), True)
        time.sleep(0.2)
        same(self.client.bf().exists(key, "x"), 0)
        same(self.client.ttl(key), -2)

    def check_hello_info_and_command(self):
        same(self.client.ping(), True)
        same(self.client.echo("hello"), b"hello")
        at_least(int(self.client.info()["connected_clients"]), 1)
        same(self.client.info("replication")["role"], "master")
        same("bf.add" in self.client.command(), True)
        self.client.client_setname("matrix")
        same(self.client.client_getname() in ("matrix", b"matrix"), True)
        same(any(client["name"] == "matrix" for client in self.client.client_list()), True)

    def check_many_connections(self):
        clients = [redis.Redis(port=PORT, protocol=self.protocol, socket_timeout=60) for _ in range(50)]
        key = self.key("many")
        for number, client in enumerate(clients):
            client.bf().add(key, number)
        same(clients[0].bf().mexists(key, *range(50)), [1] * 50)
        for client in clients:
            client.close()


def same(found, wanted):
    if isinstance(found, list):
        found = list(map(int, found)) if all(isinstance(one, int) for one in found) else found
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def one(reply):
    """The value of a list or a map of one."""
    (value,) = reply.values() if isinstance(reply, dict) else reply
    return value


def at_least(found, least):
    assert found >= least, f"{found!r} is less than {least!r}"


def refused(text, body):
    try:
        answer = body()
    except ResponseError as error:
        if "not here yet" in str(error):
            raise
        assert text in str(error), f"refused with {error!s} instead of {text}"
    else:
        raise AssertionError(f"{answer!r} instead of an error with {text}")


def aborted(body):
    try:
        body()
    except (ExecAbortError, ResponseError):
        return
    raise AssertionError("a transaction with a wrong command was run")


for version in (2, 3):
    try:
        Matrix(version).run()
    except (ResponseError, ConnectionError) as trouble:
        print(f"client\tredis-py\t{redis.__version__}\tRESP{version}")
        print(f"{'waits' if 'not here yet' in str(trouble) else 'failed'}\tconnects\t{trouble}")
    sys.stdout.flush()
