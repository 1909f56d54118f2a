//! redis-rs.

use redis::bloom::{
    BloomFilterDumpIterator, BloomFilterInfoType, BloomFilterInsertOptions, BloomFilterScalingOptions,
};
use redis::{Client, Connection, FromRedisValue, TypedCommands, cmd, pipe};

use crate::{check, items, port, refused, same, version};

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn call<T: FromRedisValue>(connection: &mut Connection, line: &[&str]) -> Result<T, String> {
    let mut command = cmd(line[0]);
    line[1..].iter().for_each(|word| {
        command.arg(word);
    });
    command.query(connection).map_err(text)
}

pub fn run(protocol: u8) {
    println!("client\tredis-rs\t{}\tRESP{protocol}", version("redis"));
    let address = format!("redis://127.0.0.1:{}/?protocol=resp{protocol}", port());
    let client = Client::open(address).expect("an address");
    let connect = || client.get_connection().map_err(text);
    let mut connected = None;
    check("connects", || {
        connected = Some(connect()?);
        Ok(())
    });
    let Some(mut connection) = connected else { return };
    let connection = &mut connection;
    let key = |name: &str| format!("redis-rs:{protocol}:{name}");
    let old: Vec<Vec<u8>> = call(connection, &["KEYS", "*"]).unwrap_or_default();
    for name in old.iter().filter(|name| name.starts_with(key("").as_bytes())) {
        let _: Result<i64, _> = cmd("DEL").arg(name).query(connection);
    }

    check("bf reserve with every option", || {
        connection.bf_reserve(key("plain"), 0.01, 1000).map_err(text)?;
        let scaling = BloomFilterScalingOptions::ExpansionRate(4);
        connection.bf_reserve_options(key("expanding"), 0.001, 1000, scaling).map_err(text)?;
        let scaling = BloomFilterScalingOptions::NonScaling;
        connection.bf_reserve_options(key("fixed"), 0.001, 100, scaling).map_err(text)?;
        refused("item exists", connection.bf_reserve(key("plain"), 0.01, 1000))?;
        refused("error rate", connection.bf_reserve(key("new"), 1.5, 1000))
    });
    check("bf add and exists", || {
        same(connection.bf_add(key("add"), "one").map_err(text)?, true)?;
        same(connection.bf_add(key("add"), "one").map_err(text)?, false)?;
        same(connection.bf_exists(key("add"), "one").map_err(text)?, true)?;
        same(connection.bf_exists(key("add"), "two").map_err(text)?, false)
    });
    check("bf madd and mexists", || {
        same(connection.bf_madd(key("madd"), &["a", "b"]).map_err(text)?, vec![true, true])?;
        same(connection.bf_madd(key("madd"), &["b", "c"]).map_err(text)?, vec![false, true])?;
        same(connection.bf_mexists(key("madd"), &["a", "x"]).map_err(text)?, vec![true, false])
    });
    check("bf insert with every option", || {
        let made = BloomFilterInsertOptions::default().capacity(5000).error_rate(0.0001);
        let made = made.expansion(BloomFilterScalingOptions::ExpansionRate(3));
        same(
            connection.bf_insert_options(key("insert"), &["a", "b"], made).map_err(text)?,
            vec![true, true],
        )?;
        same(connection.bf_insert(key("insert"), &["b", "c"]).map_err(text)?, vec![false, true])?;
        let there = BloomFilterInsertOptions::default().nocreate();
        refused("not found", connection.bf_insert_options(key("missing"), &["a"], there))
    });
    check("bf info and card", || {
        connection.bf_reserve(key("info"), 0.01, 200).map_err(text)?;
        connection.bf_madd(key("info"), items(50)).map_err(text)?;
        let card = connection.bf_card(key("info")).map_err(text)?;
        let info = connection.bf_info(key("info")).map_err(text)?;
        let field = |name: &str| info.get(name).map_or(-1.0, |value| **value);
        same([field("Capacity"), field("Number of filters"), field("Expansion rate")], [200.0, 1.0, 2.0])?;
        same(field("Number of items inserted"), card as f64)?;
        same(field("Size") >= 200.0, true)?;
        let capacity = connection.bf_info_type(key("info"), BloomFilterInfoType::Capacity).map_err(text)?;
        same(*capacity, 200.0)?;
        let expansion = connection.bf_info_type(key("fixed"), BloomFilterInfoType::Capacity).map_err(text)?;
        same(*expansion, 100.0)?;
        refused("not found", connection.bf_info(key("missing")))
    });
    check("bf scandump and loadchunk", || {
        connection.bf_reserve(key("dump"), 0.01, 1000).map_err(text)?;
        connection.bf_madd(key("dump"), items(100)).map_err(text)?;
        let name = key("dump");
        let chunks: Result<Vec<_>, _> = BloomFilterDumpIterator::new(connection, &name).collect();
        for chunk in chunks.map_err(text)? {
            connection.bf_loadchunk(key("loaded"), chunk).map_err(text)?;
        }
        same(connection.bf_mexists(key("loaded"), &items(100)).map_err(text)?, vec![true; 100])
    });
    check("cf commands", || {
        let cf = key("cf");
        let reserve = ["CF.RESERVE", &cf, "1000", "BUCKETSIZE", "4", "MAXITERATIONS", "30", "EXPANSION", "2"];
        same(call::<String>(connection, &reserve)?, "OK".into())?;
        same(call(connection, &["CF.ADD", &cf, "one"])?, true)?;
        same(call(connection, &["CF.ADDNX", &cf, "one"])?, false)?;
        same(call(connection, &["CF.INSERT", &cf, "ITEMS", "one", "two"])?, vec![true, true])?;
        same(call(connection, &["CF.INSERTNX", &cf, "ITEMS", "one", "three"])?, vec![false, true])?;
        same(call(connection, &["CF.COUNT", &cf, "one"])?, 2)?;
        same(call(connection, &["CF.MEXISTS", &cf, "one", "four"])?, vec![true, false])?;
        same(call(connection, &["CF.DEL", &cf, "never added"])?, false)?;
        same(call(connection, &["CF.DEL", &cf, "three"])?, true)?;
        same(call(connection, &["CF.EXISTS", &cf, "three"])?, false)
    });
    check("pipeline of 1000", || {
        let mut pipeline = pipe();
        for item in items(500) {
            pipeline.cmd("BF.ADD").arg(key("pipeline")).arg(item).ignore();
        }
        for item in items(500) {
            pipeline.cmd("BF.EXISTS").arg(key("pipeline")).arg(item);
        }
        same(pipeline.query::<Vec<bool>>(connection).map_err(text)?, vec![true; 500])
    });
    check("multi and exec", || {
        let mut transaction = pipe();
        transaction
            .atomic()
            .cmd("BF.ADD")
            .arg(key("multi"))
            .arg("a")
            .cmd("BF.EXISTS")
            .arg(key("multi"))
            .arg("b");
        same(transaction.query::<Vec<bool>>(connection).map_err(text)?, vec![true, false])
    });
    check("binary, empty and unicode items", || {
        let strange: [&[u8]; 3] = [b"\x00\xff\r\n", b"", "элемент 🌼".as_bytes()];
        same(
            connection.bf_madd(b"redis-rs:\xff\x00", &strange).map(|answers| answers.len()).map_err(text)?,
            3,
        )?;
        same(connection.bf_mexists(b"redis-rs:\xff\x00", &strange).map_err(text)?, vec![true; 3])
    });
    check("wrong type", || {
        refused("WRONGTYPE", connection.bf_add(key("cf"), "x"))?;
        refused("WRONGTYPE", call::<bool>(connection, &["CF.ADD", &key("add"), "x"]))
    });
    check("reconnects after client kill", || {
        let mut victim = connect()?;
        let id: u64 = call(&mut victim, &["CLIENT", "ID"])?;
        same(call(connection, &["CLIENT", "KILL", "ID", &id.to_string()])?, 1)?;
        // A plain connection of redis-rs is made anew by its user.
        let _ = victim.bf_exists(key("add"), "one");
        same(connect()?.bf_exists(key("add"), "one").map_err(text)?, true)
    });
    check("del, exists and type", || {
        same(call::<String>(connection, &["TYPE", &key("add")])?, "MBbloom--".into())?;
        same(call(connection, &["EXISTS", &key("add")])?, 1)?;
        same(call(connection, &["DEL", &key("add")])?, 1)
    });
    check("scan, rename, expire and ttl", || {
        let pattern = key("cf");
        let found: Vec<String> =
            connection.scan_match(&pattern).map_err(text)?.collect::<Result<_, _>>().map_err(text)?;
        same(found, vec![pattern])?;
        same(call::<String>(connection, &["RENAME", &key("cf"), &key("renamed")])?, "OK".into())?;
        same(call(connection, &["EXPIRE", &key("renamed"), "100"])?, 1)?;
        same(call::<i64>(connection, &["TTL", &key("renamed")])? > 90, true)
    });
}
