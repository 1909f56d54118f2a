//! fred.

use std::time::Duration;

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand, RespVersion};

use crate::{check, items, port, refused, same, version};

fn text(error: impl ToString) -> String {
    error.to_string()
}

pub fn run(protocol: u8) {
    println!("client\tfred\t{}\tRESP{protocol}", version("fred"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let version = if protocol == 3 { RespVersion::RESP3 } else { RespVersion::RESP2 };
    let config =
        Config { server: ServerConfig::new_centralized("127.0.0.1", port()), version, ..Config::default() };
    let policy = ReconnectPolicy::new_constant(20, 100);
    let client = Client::new(config, None, None, Some(policy));
    let mut is_connected = false;
    check("connects", || {
        let wait = Duration::from_secs(20);
        let outcome = runtime.block_on(async { tokio::time::timeout(wait, client.init()).await });
        outcome.map_err(|_| "no connection in time".to_owned())?.map_err(text)?;
        is_connected = true;
        Ok(())
    });
    if !is_connected {
        return;
    }
    let prefix = format!("fred:{protocol}:");
    let key = |name: &str| format!("{prefix}{name}");
    let ask = |words: Vec<Value>| {
        let mut words = words.into_iter();
        let name = words.next().and_then(|name| name.into_string()).unwrap_or_default();
        let command = CustomCommand::new(name, ClusterHash::FirstKey, false);
        let words: Vec<Value> = words.collect();
        let wait = Duration::from_secs(60);
        runtime.block_on(async {
            let asked = tokio::time::timeout(wait, client.custom::<Value, Value>(command, words));
            asked.await.map_err(|_| "no answer in time".to_owned())?.map_err(text)
        })
    };
    let call = |words: &[&str]| ask(words.iter().map(|word| Value::from(*word)).collect());
    let truths = |value: Value| -> Vec<bool> {
        let all = value.into_array();
        all.iter().map(|one| one.as_bool().or(one.as_i64().map(|one| one == 1)).unwrap_or_default()).collect()
    };
    for old in call(&["KEYS", "*"]).map(Value::into_array).unwrap_or_default() {
        if old.as_bytes().is_some_and(|name| name.starts_with(prefix.as_bytes())) {
            let _ = ask(vec!["DEL".into(), old]);
        }
    }

    check("bf commands", || {
        let bf = key("bf");
        same(call(&["BF.RESERVE", &bf, "0.01", "1000", "EXPANSION", "4"])?.into_string(), Some("OK".into()))?;
        same(truths(call(&["BF.ADD", &bf, "one"])?), vec![true])?;
        same(truths(call(&["BF.MADD", &bf, "one", "two"])?), vec![false, true])?;
        same(truths(call(&["BF.INSERT", &bf, "NOCREATE", "ITEMS", "two", "three"])?), vec![false, true])?;
        same(truths(call(&["BF.MEXISTS", &bf, "one", "four"])?), vec![true, false])?;
        same(call(&["BF.CARD", &bf])?.as_i64(), Some(3))?;
        refused("item exists", call(&["BF.RESERVE", &bf, "0.01", "1000"]))?;
        refused("not found", call(&["BF.INFO", &key("missing")]))
    });
    check("bf info", || {
        let info = call(&["BF.INFO", &key("bf")])?;
        let info: std::collections::HashMap<String, Option<i64>> = info.convert().map_err(text)?;
        same(info.get("Capacity"), Some(&Some(1000)))?;
        same(info.get("Expansion rate"), Some(&Some(4)))?;
        same(info.len(), 5)
    });
    check("cf commands", || {
        let cf = key("cf");
        same(truths(call(&["CF.ADD", &cf, "one"])?), vec![true])?;
        same(truths(call(&["CF.ADDNX", &cf, "one"])?), vec![false])?;
        same(truths(call(&["CF.INSERT", &cf, "ITEMS", "one", "two"])?), vec![true, true])?;
        same(call(&["CF.COUNT", &cf, "one"])?.as_i64(), Some(2))?;
        same(truths(call(&["CF.DEL", &cf, "never added"])?), vec![false])?;
        same(truths(call(&["CF.DEL", &cf, "two"])?), vec![true])?;
        same(truths(call(&["CF.MEXISTS", &cf, "one", "two"])?), vec![true, false])
    });
    check("pipeline of 1000", || {
        let pipeline = client.pipeline();
        let answers: Result<Vec<Value>, String> = runtime.block_on(async {
            for name in ["BF.ADD", "BF.EXISTS"] {
                for item in items(500) {
                    let command = CustomCommand::new(name, ClusterHash::FirstKey, false);
                    let _: Value =
                        pipeline.custom(command, vec![key("pipeline"), item]).await.map_err(text)?;
                }
            }
            pipeline.all().await.map_err(text)
        });
        let answers = answers?;
        same(answers.len(), 1000)?;
        same(truths(Value::Array(answers[500..].to_vec())), vec![true; 500])
    });
    check("binary, empty and unicode items", || {
        let strange: Vec<Value> =
            vec![Value::Bytes(vec![0, 255, 13, 10].into()), Value::from(""), Value::from("элемент 🌼")];
        let words = |name: &str| [vec![name.into(), key("items").into()], strange.clone()].concat();
        same(truths(ask(words("BF.MADD"))?), vec![true; 3])?;
        same(truths(ask(words("BF.MEXISTS"))?), vec![true; 3])
    });
    check("wrong type", || refused("WRONGTYPE", call(&["BF.ADD", &key("cf"), "x"])));
    check("reconnects after client kill", || {
        let id = call(&["CLIENT", "ID"])?.into_string().unwrap_or_default();
        // It ends its own connection: the command itself may not be answered.
        let _ = call(&["CLIENT", "KILL", "ID", &id]);
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(300)).await });
        same(truths(call(&["BF.EXISTS", &key("bf"), "one"])?), vec![true])
    });
    check("del, exists and type", || {
        same(call(&["TYPE", &key("bf")])?.into_string(), Some("MBbloom--".into()))?;
        same(call(&["DEL", &key("bf")])?.as_i64(), Some(1))
    });
    check("rename, expire and ttl", || {
        same(call(&["RENAME", &key("cf"), &key("renamed")])?.into_string(), Some("OK".into()))?;
        same(call(&["EXPIRE", &key("renamed"), "100"])?.as_i64(), Some(1))?;
        same(call(&["TTL", &key("renamed")])?.as_i64().is_some_and(|ttl| ttl > 90), true)
    });
}
