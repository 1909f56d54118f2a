//! Versions, their chunks and whole snapshots over HTTP, as those see them who want a copy of a filter.

mod common;

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Answer, Door, start, start_with};
use serde_json::{Value, json};
use umbel_core::budget::Budget;
use umbel_core::copy::Assembly;
use umbel_core::fold::Means;
use umbel_core::version::{ChunkId, Version};
use umbel_filter::format::{guava, native, redisbloom};
use umbel_filter::{Filter, Limits};

const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// A server with a filter `f` of so many keys, from `key 0` on.
fn with_filter(keys: u64, more: &Value) -> Door {
    let door = Door::open(start());
    make(&door, "f", keys, more);
    door
}

fn make(door: &Door, name: &str, keys: u64, more: &Value) {
    let mut new = json!({ "name": name, "capacity": 200_000, "error": 0.01 });
    for (option, value) in more.as_object().expect("options") {
        new[option] = value.clone();
    }
    assert_eq!(door.post("/v1/filters", &new).0, 201);
    add(door, name, 0, keys);
}

fn add(door: &Door, name: &str, first: u64, end: u64) -> String {
    let lines: String = (first..end).map(|number| format!("key {number}\n")).collect();
    let (status, added) = door.lines(&format!("/v1/filters/{name}/add"), lines.as_bytes());
    assert_eq!(status, 200, "{added}");
    added["position"].as_str().expect("a position").to_owned()
}

/// What the server says of many keys, most of them absent.
fn answers(door: &Door, name: &str, keys: std::ops::Range<u64>) -> Vec<bool> {
    let mut all = Vec::new();
    for first in keys.clone().step_by(10_000) {
        let asked: Vec<String> =
            (first..keys.end.min(first + 10_000)).map(|number| format!("key {number}")).collect();
        let (_, checked) = door.post(&format!("/v1/filters/{name}/check"), &json!({ "keys": asked }));
        all.extend(checked["answers"].as_array().expect("answers").iter().map(|answer| answer == "maybe"));
    }
    all
}

fn answers_of(filter: &Filter, keys: std::ops::Range<u64>) -> Vec<bool> {
    keys.map(|number| filter.contains(format!("key {number}"))).collect()
}

fn publish(door: &Door) -> u64 {
    let (status, made) = door.post("/v1/filters/f/versions", &json!({}));
    assert!(status == 201, "{made}");
    made["number"].as_u64().expect("a number")
}

fn version_in(answer: &Answer) -> Version {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    Version::decode(&answer.body, "an answer").expect("a version")
}

#[test]
fn versions_are_made_listed_and_fetched() {
    let door = with_filter(1_000, &json!({}));
    let none = json!({ "versions": [], "current": null, "pinned": false, "strong": null });
    assert_eq!(door.get("/v1/filters/f/versions").1, none);
    for which in ["latest", "current", "1"] {
        let answer = door.fetch(&format!("/v1/filters/f/versions/{which}"), &[]);
        assert_eq!((answer.status, &answer.code()[..]), (404, "no_version"), "{which}");
    }
    // Without a body as with an empty one.
    let made = door.request("POST", "/v1/filters/f/versions", &[], b"");
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    assert_eq!(made.header("location"), Some("/v1/filters/f/versions/1"));
    let made = made.json();
    assert_eq!((&made["number"], &made["items"], &made["current"]), (&json!(1), &json!(1_000), &json!(true)));
    assert!(made["bytes"].as_u64().unwrap() > 200_000, "{made}");
    let again = door.request("POST", "/v1/filters/f/versions", &[], b"{}");
    assert_eq!((again.status, again.header("location")), (200, Some("/v1/filters/f/versions/1")));
    assert_eq!(again.json(), made, "nothing changed");
    assert_eq!(door.post("/v1/filters/f/versions", &json!({ "why": "so" })).0, 400);
    assert_eq!(door.request("POST", "/v1/filters/f/versions", &[], b"[]").status, 400);

    add(&door, "f", 1_000, 1_001);
    assert_eq!(publish(&door), 2);
    let (_, list) = door.get("/v1/filters/f/versions");
    assert_eq!((&list["current"], &list["pinned"]), (&json!(2), &json!(false)));
    assert_eq!(list["versions"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&list["versions"][0]["current"], &list["versions"][1]["current"]),
        (&json!(false), &json!(true))
    );

    let first = door.fetch("/v1/filters/f/versions/1", &[]);
    assert_eq!(first.header("content-type"), Some("application/vnd.umbel.version"));
    assert_eq!(first.header("cache-control"), Some(FOR_EVER));
    let digest = made["digest"].as_str().unwrap();
    let tag = format!("\"{digest}-1\"");
    assert_eq!(
        (first.header("etag"), first.header("umbel-version"), first.header("umbel-digest")),
        (Some(&tag[..]), Some("1"), Some(digest))
    );
    assert_eq!(version_in(&first).digest().to_string(), digest);
    for known in [&tag, &format!("W/{tag}"), &format!("\"x\", {tag}"), &"*".to_owned()] {
        let answer = door.fetch("/v1/filters/f/versions/1", &[&format!("if-none-match: {known}")]);
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{known}");
        assert_eq!((answer.header("etag"), answer.header("umbel-version")), (Some(&tag[..]), Some("1")));
    }
    for which in ["latest", "current"] {
        let path = format!("/v1/filters/f/versions/{which}");
        let answer = door.fetch(&path, &[&format!("if-none-match: {tag}")]);
        assert_eq!((answer.header("cache-control"), version_in(&answer).number), (Some("no-cache"), 2));
    }
    assert_eq!(door.fetch("/v1/filters/f/versions/3", &[]).code(), "no_version");
    for nonsense in ["newest", "0x1", "-1", "99999999999999999999"] {
        assert_eq!(door.fetch(&format!("/v1/filters/f/versions/{nonsense}"), &[]).status, 400, "{nonsense}");
    }
}

#[test]
fn a_version_and_its_chunks_make_a_copy_and_the_next_needs_few_of_them() {
    let door = with_filter(100_000, &json!({ "capacity": 2_000_000, "shards": "one" }));
    publish(&door);
    let means = Means { secret: None, limits: Limits::default(), budget: Budget::new(1 << 30) };
    let mut copy = None;
    let mut fetched = Vec::new();
    for round in 0..2 {
        let version = version_in(&door.fetch("/v1/filters/f/versions/latest", &[]));
        let mut assembly = Assembly::new(version, &means).unwrap();
        if let Some(copy) = &copy {
            assembly.reuse(copy);
        }
        let missing: Vec<ChunkId> = assembly.missing().collect();
        fetched.push(missing.len());
        for id in missing {
            let chunk = door.fetch(&format!("/v1/filters/f/chunks/{id}"), &[]);
            assert!(chunk.status == 200 && assembly.put(&chunk.body).unwrap());
        }
        let made = assembly.finish(&means).unwrap();
        assert!(
            (0..100_000).all(|n| made.contains(made.hasher().fingerprint(format!("key {n}").as_bytes())))
        );
        copy = Some(made);
        if round == 0 {
            add(&door, "f", 100_000, 100_001);
            publish(&door);
        }
    }
    assert!(fetched[0] >= 8 && fetched[1] == 1, "{fetched:?}");
}

/// A chunk of `f`, as a path and its bytes.
fn some_chunk(door: &Door) -> (String, Vec<u8>) {
    let version = version_in(&door.fetch("/v1/filters/f/versions/latest", &[]));
    let path = format!("/v1/filters/f/chunks/{}", version.chunks().next().expect("a chunk"));
    let bytes = door.fetch(&path, &[]).body;
    (path, bytes)
}

fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = match coding {
        "zstd" => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut plain),
        "lz4" => lz4_flex::frame::FrameDecoder::new(bytes).read_to_end(&mut plain),
        "snappy" => snap::read::FrameDecoder::new(bytes).read_to_end(&mut plain),
        _ => panic!("{coding}"),
    };
    read.expect("it can be read");
    plain
}

/// Asks for one thing in every way that caches and clients do.
fn check_ways(door: &Door, path: &str, bytes: &[u8]) {
    let whole = door.fetch(path, &[]);
    assert_eq!((whole.status, whole.body == bytes), (200, true), "{path}");
    assert_eq!(
        (whole.header("vary"), whole.header("accept-ranges")),
        (Some("Accept-Encoding"), Some("bytes"))
    );
    assert_eq!(whole.header("content-length"), Some(&bytes.len().to_string()[..]));
    let tag = whole.header("etag").expect("a tag").to_owned();
    let known = door.fetch(path, &[&format!("if-none-match: {tag}")]);
    assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(&tag[..])));
    let head = door.request("HEAD", path, &[], b"");
    assert_eq!((head.status, head.body.len(), head.header("etag")), (200, 0, Some(&tag[..])));

    let last = bytes.len() - 1;
    let (middle, end) = (bytes.len() / 2, bytes.len());
    for (range, part) in [
        ("0-0".to_owned(), 0..1),
        ("1-999".to_owned(), 1..1_000),
        (format!("{middle}-"), middle..end),
        (format!("{middle}-{last}"), middle..end),
        (format!("{last}-999999999"), last..end),
        ("-7".to_owned(), end - 7..end),
    ] {
        // A part is never compressed, whatever the client takes.
        let answer = door.fetch(path, &[&format!("range: bytes={range}"), "accept-encoding: zstd"]);
        assert_eq!((answer.status, answer.body[..] == bytes[part.clone()]), (206, true), "{path} {range}");
        let expected = format!("bytes {}-{}/{end}", part.start, part.end - 1);
        assert_eq!(answer.header("content-range"), Some(&expected[..]));
        assert_eq!(answer.header("content-encoding"), None);
        let length = part.len().to_string();
        assert_eq!(answer.header("content-length"), Some(&length[..]));
    }
    for range in [format!("{end}-"), "-0".to_owned()] {
        let answer = door.fetch(path, &[&format!("range: bytes={range}")]);
        assert_eq!((answer.status, &answer.code()[..]), (416, "range"));
        assert_eq!(answer.header("content-range"), Some(&format!("bytes */{end}")[..]));
    }
    let several = door.fetch(path, &["range: bytes=0-1,3-4"]);
    assert_eq!((several.status, several.body.len()), (200, end));
    // A part of something else would be of no use.
    let same = door.fetch(path, &["range: bytes=0-1", &format!("if-range: {tag}")]);
    assert_eq!((same.status, same.body.len()), (206, 2));
    let other = door.fetch(path, &["range: bytes=0-1", "if-range: \"another\""]);
    assert_eq!((other.status, other.body.len()), (200, end));

    for (accepted, coding) in [
        ("zstd", "zstd"),
        ("lz4", "lz4"),
        ("snappy", "snappy"),
        ("gzip, snappy;q=0.2, lz4;q=0.7, zstd;q=0.1", "lz4"),
    ] {
        let answer = door.fetch(path, &[&format!("accept-encoding: {accepted}")]);
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (200, Some(coding)),
            "{path} {accepted}"
        );
        assert!(answer.body.len() < bytes.len() && decoded(coding, &answer.body) == bytes, "{path} {coding}");
    }
    let plain = door.fetch(path, &["accept-encoding: gzip, br"]);
    assert_eq!((plain.header("content-encoding"), plain.body.len()), (None, end));
}

#[test]
fn chunks_go_in_every_way_and_stay_the_same_for_ever() {
    // With few keys, so that there is something to compress; and it does not grow, so that there is nothing when it is full.
    let door = with_filter(2_000, &json!({ "growth": 1.0 }));
    publish(&door);
    let (path, bytes) = some_chunk(&door);
    assert!(path.ends_with(&ChunkId::of(&bytes).to_string()));
    check_ways(&door, &path, &bytes);
    let whole = door.fetch(&path, &[]);
    assert_eq!(whole.header("cache-control"), Some(FOR_EVER));
    assert_eq!(whole.header("etag"), Some(&format!("\"{}\"", ChunkId::of(&bytes))[..]));
    let unknown = format!("/v1/filters/f/chunks/{}", ChunkId::of(b"unknown"));
    assert_eq!(door.fetch(&unknown, &[]).status, 404);
    assert_eq!(door.fetch("/v1/filters/f/chunks/abc", &[]).status, 400);

    // What does not become smaller goes as it is.
    add(&door, "f", 2_000, 190_000);
    publish(&door);
    let (path, bytes) = some_chunk(&door);
    let full = door.fetch(&path, &["accept-encoding: lz4"]);
    assert_eq!((full.header("content-encoding"), full.body == bytes), (None, true));
}

#[test]
fn a_version_is_as_new_as_it_is_asked_for() {
    let door = with_filter(10, &json!({}));
    let latest = |query: &str| version_in(&door.fetch(&format!("/v1/filters/f/versions/latest{query}"), &[]));
    // There is none yet, so one is made.
    assert_eq!(latest("?max_age_ms=3600000").number, 1);
    let position = add(&door, "f", 10, 20);
    assert_eq!(latest("").number, 1, "nobody asked for a newer one");
    assert_eq!(latest("?max_age_ms=3600000").number, 1, "it is new enough");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(latest("?max_age_ms=10").number, 2);
    assert_eq!(latest(&format!("?at_least={position}")).number, 2, "it has it");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(latest("?max_age_ms=10").number, 2, "nothing changed");
    let position = add(&door, "f", 20, 30);
    let third = latest(&format!("?at_least={position}"));
    assert!(third.number == 3 && third.includes(&position.parse().unwrap()));
    assert_eq!(version_in(&door.fetch("/v1/filters/f/versions/current?max_age_ms=0", &[])).number, 3);
    // The same keys again: the same content at a later place.
    let position = add(&door, "f", 20, 30);
    let fourth = latest(&format!("?at_least={position}"));
    assert_eq!((fourth.number, fourth.digest()), (4, third.digest()));

    // Nobody has written so much yet; where the filter is not, it does not matter.
    let home: u32 = position.split(':').next().unwrap().parse().unwrap();
    let far = door.fetch(&format!("/v1/filters/f/versions/latest?at_least={home}:ffffffffffff"), &[]);
    assert_eq!((far.status, far.header("retry-after")), (503, Some("1")));
    assert_eq!(latest(&format!("?at_least={}:ffffffffffff", u32::from(home == 0))).number, 4);

    // What is pinned does not become newer.
    assert_eq!(door.put("/v1/filters/f/current", &json!({ "version": 2 })).0, 200);
    let position = add(&door, "f", 30, 40);
    let current = door.fetch(&format!("/v1/filters/f/versions/current?at_least={position}"), &[]);
    assert_eq!(version_in(&current).number, 2);
    for (path, status) in [
        ("latest?max_age_ms=soon", 400),
        ("latest?max_age_ms=-1", 400),
        ("latest?at_least=yesterday", 400),
        ("latest?age=1", 400),
        ("1?max_age_ms=1", 400),
    ] {
        assert_eq!(door.fetch(&format!("/v1/filters/f/versions/{path}"), &[]).status, status, "{path}");
    }
}

#[test]
fn versions_are_pinned_and_old_ones_go() {
    let door = Door::open(start_with(common::new_folder(), |config| {
        config.versions_kept = 3;
        config.versions_kept_for = Duration::ZERO;
    }));
    make(&door, "f", 10, &json!({}));
    for number in 1..=3 {
        add(&door, "f", number * 100, number * 100 + 1);
        publish(&door);
    }
    let pin = |body: Value| door.put("/v1/filters/f/current", &body);
    let current = || version_in(&door.fetch("/v1/filters/f/versions/current", &[])).number;
    let listed = || {
        let (_, list) = door.get("/v1/filters/f/versions");
        let numbers =
            list["versions"].as_array().unwrap().iter().map(|version| version["number"].as_u64().unwrap());
        (numbers.collect::<Vec<_>>(), list["current"].clone(), list["pinned"].clone())
    };
    assert_eq!((listed(), current()), ((vec![1, 2, 3], json!(3), json!(false)), 3));
    let (status, pinned) = pin(json!({ "version": 1, "expected": null }));
    assert_eq!(
        (status, pinned),
        (200, json!({ "current": 1, "pinned": true, "previous": null, "strong": null }))
    );
    assert_eq!(current(), 1);
    // Somebody else was faster.
    let (status, conflict) = pin(json!({ "version": 2, "expected": null }));
    assert_eq!((status, &conflict["error"]["code"]), (409, &json!("conflict")));
    assert!(conflict["error"]["message"].as_str().unwrap().contains("version 1 is pinned"), "{conflict}");
    assert_eq!(pin(json!({ "version": 2, "expected": 3 })).0, 409);
    assert_eq!(current(), 1);
    assert_eq!(pin(json!({ "version": 2, "expected": 1 })).1["previous"], 1);
    assert_eq!(current(), 2);

    for number in 4..=7 {
        add(&door, "f", number * 100, number * 100 + 1);
        publish(&door);
    }
    assert_eq!(listed(), (vec![1, 2, 5, 6, 7], json!(2), json!(true)), "pinned now and before, and three");
    assert_eq!(door.fetch("/v1/filters/f/versions/3", &[]).code(), "no_version");
    let (status, unknown) = pin(json!({ "version": 3 }));
    assert_eq!((status, &unknown["error"]["code"]), (404, &json!("no_version")));
    // Every version that is kept is whole.
    let mut chunks = HashSet::new();
    for number in [1, 2, 5, 6, 7] {
        let version = version_in(&door.fetch(&format!("/v1/filters/f/versions/{number}"), &[]));
        chunks.extend(version.chunks());
    }
    for id in chunks {
        assert_eq!(door.fetch(&format!("/v1/filters/f/chunks/{id}"), &[]).status, 200);
    }
    let (_, followed) = pin(json!({ "version": null, "expected": 2 }));
    assert_eq!(followed, json!({ "current": 7, "pinned": false, "previous": 2, "strong": null }));
    assert_eq!(current(), 7);
    assert_eq!(pin(json!({ "version": 5, "expected": 2 })).0, 409, "nothing is pinned");
    for wrong in
        [json!({}), json!({ "version": "7" }), json!({ "version": 7, "expect": 1 }), json!({ "version": -1 })]
    {
        assert_eq!(pin(wrong.clone()).0, 400, "{wrong}");
    }

    // What a filter left that is gone does not become that of its successor.
    assert_eq!(pin(json!({ "version": 7 })).0, 200);
    assert_eq!(door.delete("/v1/filters/f"), 204);
    for path in ["versions", "versions/7", "snapshot"] {
        assert_eq!(door.get(&format!("/v1/filters/f/{path}")).0, 404, "{path}");
    }
    make(&door, "f", 10, &json!({}));
    assert_eq!(listed(), (vec![], Value::Null, json!(false)));
    assert_eq!(publish(&door), 1);
    assert_eq!(pin(json!({ "version": 1 })).0, 200);
    let registry = &door.running.node.registry;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pins = runtime.block_on(registry.list("current/")).unwrap().entries;
    assert_eq!(pins.len(), 1, "the one of the filter that is gone went, too");
}

#[test]
fn snapshots_are_files_that_answer_as_the_filter_does() {
    let door = with_filter(20_000, &json!({ "capacity": 100_000 }));
    make(&door, "guava", 20_000, &json!({ "capacity": 30_000, "layout": "guava" }));
    make(&door, "chain", 20_000, &json!({ "capacity": 1_000, "layout": "redisbloom" }));
    make(&door, "all", 20_000, &json!({ "capacity": 30_000, "shards": "all" }));
    make(&door, "same", 5_000, &json!({ "capacity": 10_000, "family": "redisbloom" }));
    let limits = Limits::default();
    let fetch = |path: &str| {
        let answer = door.fetch(&format!("/v1/filters/{path}"), &[]);
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer
    };
    let asked = 0..60_000;
    for name in ["f", "guava", "chain"] {
        let answer = fetch(&format!("{name}/snapshot"));
        let disposition = answer.header("content-disposition").unwrap();
        assert!(disposition.contains(&format!("filename=\"{name}.native\"")), "{disposition}");
        let read = native::read(&answer.body[..], &limits).unwrap();
        assert_eq!(answers_of(&read, asked.clone()), answers(&door, name, asked.clone()), "{name}");
    }
    let read = guava::read(&fetch("guava/snapshot?format=guava").body[..], &limits).unwrap();
    assert_eq!(answers_of(&read, asked.clone()), answers(&door, "guava", asked.clone()));
    // Another layout, or one array of many shards: what was added is there.
    for path in ["f/snapshot?format=guava", "all/snapshot?format=guava"] {
        let read = guava::read(&fetch(path).body[..], &limits).unwrap();
        assert!(answers_of(&read, 0..20_000).iter().all(|maybe| *maybe), "{path}");
        let mistaken = answers_of(&read, 20_000..60_000).iter().filter(|maybe| **maybe).count();
        assert!(mistaken < 600, "{path}: {mistaken} of 40000");
    }
    let read = native::read(&fetch("all/snapshot?format=native").body[..], &limits).unwrap();
    assert!(answers_of(&read, 0..20_000).iter().all(|maybe| *maybe));
    let loaded = chain_of(&fetch("chain/snapshot?format=redisbloom").body);
    assert_eq!(answers_of(&loaded, asked.clone()), answers(&door, "chain", asked.clone()));
    let loaded = chain_of(&fetch("same/snapshot?format=redisbloom").body);
    assert!(answers_of(&loaded, 0..5_000).iter().all(|maybe| *maybe));

    // As a version has it, whatever came since.
    let before = answers(&door, "guava", asked.clone());
    assert_eq!(door.post("/v1/filters/guava/versions", &json!({})).0, 201);
    add(&door, "guava", 20_000, 21_000);
    for format in ["native", "guava"] {
        let answer = fetch(&format!("guava/snapshot?format={format}&version=1"));
        assert_eq!(answer.header("cache-control"), Some(FOR_EVER));
        let read = match format {
            "native" => native::read(&answer.body[..], &limits).unwrap(),
            _ => guava::read(&answer.body[..], &limits).unwrap(),
        };
        assert_eq!(answers_of(&read, asked.clone()), before, "{format}");
    }
    for name in ["f", "all"] {
        assert_eq!(door.post(&format!("/v1/filters/{name}/versions"), &json!({})).0, 201);
    }
    for (path, status) in [
        ("f/snapshot?format=guava&version=1", 400),
        ("all/snapshot?version=1", 400),
        ("f/snapshot?version=9", 404),
        ("f/snapshot?format=redisbloom", 400),
        ("chain/snapshot?format=guava", 400),
        ("f/snapshot?format=redisson", 400),
        ("f/snapshot?format=", 400),
        ("f/snapshot?version=latest", 400),
        ("f/snapshot?size=1", 400),
        ("nothing/snapshot", 404),
    ] {
        let (found, fault) = door.get(&format!("/v1/filters/{path}"));
        assert_eq!(found, status, "{path}: {fault}");
        println!("{path}: {}", fault["error"]["message"]);
    }
}

/// A chain from its chunks, each behind its cursor and its length.
fn chain_of(mut file: &[u8]) -> Filter {
    let mut loader = None;
    while !file.is_empty() {
        let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        let (cursor, length) = (number(0), number(8) as usize);
        let chunk = &file[16..16 + length];
        match &mut loader {
            None => loader = Some(redisbloom::Loader::new(chunk, &Limits::default()).unwrap()),
            Some(loader) => loader.load(cursor, chunk).unwrap(),
        }
        file = &file[16 + length..];
    }
    loader.expect("a header").finish().unwrap()
}

#[test]
fn snapshots_go_in_every_way() {
    let door = with_filter(2_000, &json!({ "capacity": 1_000_000, "layout": "guava" }));
    assert_eq!(publish(&door), 1);
    for path in ["snapshot", "snapshot?format=guava", "snapshot?format=guava&version=1", "snapshot?version=1"]
    {
        let path = format!("/v1/filters/f/{path}");
        let bytes = door.fetch(&path, &[]).body;
        assert!(bytes.len() > 1_000_000);
        check_ways(&door, &path, &bytes);
    }
    let tag = |path: &str| {
        let answer = door.request("HEAD", &format!("/v1/filters/f/{path}"), &[], b"");
        answer.header("etag").expect("a tag").to_owned()
    };
    let before = tag("snapshot?format=guava");
    assert_eq!(before, tag("snapshot?format=guava"), "nothing changed");
    assert_ne!(before, tag("snapshot"));
    add(&door, "f", 2_000, 2_001);
    assert_ne!(before, tag("snapshot?format=guava"));
    // All that was taken for them is given back.
    let engine = Arc::clone(&door.running.node.engine);
    let begin = Instant::now();
    let filter = engine.filter("f").expect("a filter");
    while engine.budget().used() > filter.bytes() && begin.elapsed().as_secs() < 10 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(engine.budget().used(), filter.bytes());
}

#[test]
fn who_may_read_may_not_publish() {
    let door = Door::open(start_with(common::new_folder(), |config| {
        config.password = Some(umbel_server::digest::Digest::of(b"secret"));
    }));
    // "default:secret"
    let root = "authorization: Basic ZGVmYXVsdDpzZWNyZXQ=";
    let new = json!({ "name": "f", "capacity": 1_000, "error": 0.01 });
    assert_eq!(door.post_as("/v1/filters", &new, &[root]).0, 201);
    assert_eq!(door.post_as("/v1/filters/f/add", &json!({ "keys": ["a"] }), &[root]).0, 200);
    let token = |scope: &str, filters: &str| {
        let body = json!({ "scope": scope, "filters": filters });
        let (_, made) = door.post_as("/v1/tokens", &body, &[root]);
        format!("authorization: Bearer {}", made["token"].as_str().unwrap())
    };
    let (reader, writer, stranger) = (token("read", "f"), token("write", "f"), token("write", "g"));
    let publish = |who: &str| door.post_as("/v1/filters/f/versions", &json!({}), &[who]).0;
    let pin = |who: &str| door.json("PUT", "/v1/filters/f/current", &json!({ "version": 1 }), &[who]).0;
    assert_eq!((publish(&reader), publish(&stranger), publish(&writer)), (403, 403, 201));
    assert_eq!((pin(&reader), pin(&stranger), pin(&writer)), (403, 403, 200));
    let version = version_in(&door.fetch("/v1/filters/f/versions/1", &[&reader]));
    let chunk = format!("chunks/{}", version.chunks().next().unwrap());
    for path in ["versions", "versions/latest?max_age_ms=0", "versions/current", "snapshot", &chunk] {
        let status = |head: &[&str]| door.fetch(&format!("/v1/filters/f/{path}"), head).status;
        assert_eq!((status(&[&reader]), status(&[&stranger]), status(&[])), (200, 403, 401), "{path}");
    }
}

#[test]
fn windows_and_filters_that_are_not_there_have_no_versions() {
    let door = Door::open(start());
    let window = json!({ "name": "w", "capacity": 1_000, "error": 0.01, "window": "1h", "buckets": 4 });
    assert_eq!(door.post("/v1/filters", &window).0, 201);
    let chunk = format!("chunks/{}", ChunkId::of(b""));
    for path in ["versions", "versions/latest", "versions/1", "snapshot", &chunk] {
        let (status, fault) = door.get(&format!("/v1/filters/w/{path}"));
        assert_eq!(status, 400, "{path}");
        assert!(fault["error"]["message"].as_str().unwrap().contains("is a window"), "{fault}");
        assert_eq!(door.get(&format!("/v1/filters/nothing/{path}")).0, 404, "{path}");
    }
    assert_eq!(door.post("/v1/filters/w/versions", &json!({})).0, 400);
    assert_eq!(door.put("/v1/filters/w/current", &json!({ "version": null })).0, 400);
    assert_eq!(door.post("/v1/filters/nothing/versions", &json!({})).0, 404);
    assert_eq!(door.put("/v1/filters/nothing/current", &json!({ "version": null })).0, 404);
}

#[test]
fn a_filter_may_go_while_it_is_published() {
    let door = Door::open(start());
    for round in 0..20 {
        make(&door, "f", 2_000, &json!({ "capacity": 10_000, "shards": "all" }));
        let door = &door;
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let asked = [
                ("POST", "/v1/filters/f/versions"),
                ("GET", "/v1/filters/f/versions/latest?max_age_ms=0"),
                ("GET", "/v1/filters/f/snapshot?format=guava"),
            ]
            .map(|(method, path)| scope.spawn(move || door.request(method, path, &[], b"").status));
            std::thread::sleep(Duration::from_micros(round * 500));
            assert_eq!(door.delete("/v1/filters/f"), 204);
            asked.map(|asked| asked.join().expect("an answer")).to_vec()
        });
        assert!(statuses.iter().all(|status| [200, 201, 404].contains(status)), "{statuses:?}");
    }
}
