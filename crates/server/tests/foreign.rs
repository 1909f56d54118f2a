//! Filters that RedisBloom saved, loaded through the door: every answer is the one that RedisBloom gave, before and after a restart.

mod common;

use std::collections::BTreeSet;

use common::{Client, start_in};
use serde_json::Value;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/redisbloom");

/// The chunks that a real server gave, with their cursors.
fn chunks(name: &str) -> Vec<(i64, Vec<u8>)> {
    let bytes = std::fs::read(format!("{FIXTURES}/{name}.scandump")).expect("a fixture");
    let (mut rest, mut chunks) = (&bytes[..], Vec::new());
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let (chunk, behind) = behind.split_at(number(8) as usize);
        chunks.push((number(0) as i64, chunk.to_vec()));
        rest = behind;
    }
    chunks
}

/// Which of these items the filter has, by its own account.
fn present(client: &mut Client, filter: &str, items: std::ops::Range<u64>) -> BTreeSet<u64> {
    let words: Vec<Vec<u8>> = [b"BF.MEXISTS".to_vec(), filter.into()]
        .into_iter()
        .chain(items.clone().map(|item| format!("item:{item}").into_bytes()))
        .collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let reply = client.send(&words);
    let answers = reply.split("\r\n").skip(1).map(|answer| answer == ":1");
    items.zip(answers).filter(|(_, maybe)| *maybe).map(|(item, _)| item).collect()
}

#[test]
fn filters_of_redisbloom_answer_as_there() {
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(format!("{FIXTURES}/manifest.json")).expect("a manifest"))
            .expect("JSON");
    let mut server = start_in(common::new_folder());
    for is_restarted in [false, true] {
        for (name, keys) in [("rb_default", 250), ("rb_nonscaling", 9000)] {
            let mut client = server.connect();
            let recorded = chunks(name);
            if !is_restarted {
                for (cursor, chunk) in recorded.iter().filter(|(cursor, _)| *cursor != 0) {
                    // Nobody sees it before it is whole.
                    assert_eq!(client.ask(&format!("EXISTS {name}")), ":0\r\n");
                    let cursor = cursor.to_string();
                    let words: [&[u8]; 4] = [b"BF.LOADCHUNK", name.as_bytes(), cursor.as_bytes(), chunk];
                    assert_eq!(client.send(&words), "+OK\r\n");
                }
            }
            assert_eq!(present(&mut client, name, 0..keys).len() as u64, keys, "{name} lost keys");
            let entries = manifest.as_array().expect("a list");
            let entry = entries.iter().find(|entry| entry["name"] == name).expect("an entry");
            let mistaken = entry["fp_in_item_100000_119999"].as_array().expect("a list");
            let mistaken: BTreeSet<u64> = mistaken.iter().filter_map(Value::as_u64).collect();
            assert!(!mistaken.is_empty());
            assert_eq!(present(&mut client, name, 100_000..120_000), mistaken, "{name} answers otherwise");
            // It goes back as it came.
            let (mut cursor, mut given) = (0, Vec::new());
            loop {
                client.write(format!("BF.SCANDUMP {name} {cursor}\r\n").as_bytes());
                let reply = client.reply_bytes();
                let text = String::from_utf8_lossy(&reply[..reply.len().min(64)]).into_owned();
                cursor = text.split("\r\n").nth(1).expect("a cursor")[1..].parse::<i64>().expect("a number");
                let length: usize =
                    text.split("\r\n").nth(2).expect("a length")[1..].parse().expect("a number");
                if cursor == 0 {
                    break;
                }
                given.push((cursor, reply[reply.len() - 2 - length..reply.len() - 2].to_vec()));
            }
            let recorded: Vec<_> = recorded.into_iter().filter(|(cursor, _)| *cursor != 0).collect();
            assert_eq!(given, recorded, "{name}");
        }
        if !is_restarted {
            let folder = server.stop();
            server = start_in(folder);
        }
    }
}
