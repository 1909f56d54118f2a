//! `umbel import`, `export` and `verify` as people type them: filters that others recorded, filters of other servers, and a real Redis.

#[path = "faults/server.rs"]
#[allow(dead_code, reason = "the tests of faults use all of it")]
mod server;

#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/redis.rs"]
mod redis;
#[path = "common/wire.rs"]
mod wire;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use redis::Redis;
use serde_json::Value;
use server::Server;
use wire::{ask, told};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("umbel-migration-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file of keys `item:N`: those that a fixture has, and those that were looked for in it besides.
    fn keys(&self, items: u64) -> String {
        let keys: Vec<_> =
            (0..items).chain(100_000..120_000).map(|number| format!("item:{number}")).collect();
        let file = self.file(&format!("keys-{items}.txt"));
        std::fs::write(&file, keys.join("\n")).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    folder.join(name).to_str().unwrap().to_owned()
}

fn manifest(folder: &str) -> Vec<Value> {
    let text = std::fs::read(fixture(&format!("{folder}/manifest.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(arguments).stdin(Stdio::null()).env_remove("REDISCLI_AUTH");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The last line of what it prints, if it succeeds.
fn done(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn complaint(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How many keys both have, if all answers are the same.
fn same(a: &str, b: &str, names: &[&str], keys: &str) -> u64 {
    let told = done(&[&["verify", a, b], names, &["--keys", keys]].concat());
    assert_eq!((&told["different"], &told["keys"]), (&0.into(), &told["same"]), "{told}");
    told["maybe"].as_u64().unwrap()
}

#[test]
fn files_of_guava_come_and_go() {
    let (server, folder) = (Server::new(), Folder::new("guava"));
    let url = server.redis_url();
    for entry in manifest("guava").iter().filter(|entry| entry["funnel"] != "longFunnel") {
        let name = entry["file"].as_str().unwrap();
        let file = fixture(&format!("guava/{name}"));
        let stem = name.trim_end_matches(".bin");
        let told_of_it = done(&["import", "guava", &file, "--to", &url]);
        assert_eq!((&told_of_it["from"], &told_of_it["changed"]), (&stem.into(), &false.into()));
        let items = entry["items"].as_u64().unwrap();
        let mistaken = entry["false_positives"].as_array().unwrap().len() as u64;
        assert_eq!(same(&file, &url, &[stem], &folder.keys(items)), items + mistaken, "{name}");
        assert_eq!(told(&url, &format!("BF.ADD {stem} another")), ":1", "it takes more keys");
    }
    // One that is not full has one array, as these formats do.
    let (file, back, own) =
        (fixture("guava/half_full.bin"), folder.file("back.bin"), folder.file("own.umbel"));
    done(&["import", "guava", &file, "--as", "again", "--to", &url]);
    done(&["export", "guava", "again", &back, "--from", &url]);
    assert_eq!(std::fs::read(&back).unwrap(), std::fs::read(&file).unwrap());
    assert_eq!(told(&url, "BF.ADD again another"), ":1");
    done(&["export", "native", "again", &own, "--from", &url]);
    done(&["import", "native", &own, "--to", &url]);
    assert_eq!(told(&url, "BF.EXISTS own another"), ":1");
    let file = fixture("guava/string_1pct.bin");
    let output = run(&["verify", &file, &url, "string_1permille", "--keys", &folder.keys(5_000)]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("different  4,") && text.contains("item:1000\n"), "{text}");
}

#[test]
fn filters_of_redisbloom_come_and_go() {
    let (one, two, folder) = (Server::new(), Server::new(), Folder::new("redisbloom"));
    let (one, two) = (one.redis_url(), two.redis_url());
    for (name, items) in [("rb_default", 250), ("rb_nonscaling", 9_000)] {
        let file = fixture(&format!("redisbloom/{name}.scandump"));
        done(&["import", "redisbloom", &file, "--to", &one]);
        let entry = manifest("redisbloom").into_iter().find(|entry| entry["name"] == name).unwrap();
        let mistaken = entry["fp_in_item_100000_119999"].as_array().unwrap().len() as u64;
        let keys = folder.keys(items);
        assert_eq!(same(&file, &one, &[name], &keys), items + mistaken, "{name}");
        let back = folder.file(name);
        done(&["export", "redisbloom", name, &back, "--from", &one]);
        assert_eq!(std::fs::read(&back).unwrap(), std::fs::read(&file).unwrap(), "{name}");
    }
    assert_eq!(told(&one, "PEXPIRE rb_nonscaling 900000"), ":1");
    // From one server to the other, all that fit and one under another name.
    let output = run(&["import", "redisbloom", &one, "--match", "rb_*", "--to", &two]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("rb_default is rb_default at") && text.lines().count() == 2,
        "{text}"
    );
    assert_eq!(same(&one, &two, &["rb_nonscaling"], &folder.keys(9_000)), 9_005);
    let left: i64 = told(&two, "PTTL rb_nonscaling")[1..].parse().unwrap();
    assert!((1..=900_000).contains(&left) && told(&two, "PTTL rb_default") == ":-1", "{left}");
    assert_eq!(told(&two, "BF.ADD rb_default another"), ":1");
    let again = complaint(&["import", "redisbloom", &one, "rb_default", "--to", &two]);
    assert!(again.contains("rb_default is there already") && again.contains("--replace"), "{again}");
    done(&["import", "redisbloom", &one, "rb_default", "--replace", "--to", &two]);
    assert_eq!(told(&two, "BF.EXISTS rb_default another"), ":0", "the new one has taken its place");
    done(&["export", "redisbloom", "rb_default", &two, "--as", "third", "--from", &one]);
    assert_eq!(same(&one, &two, &["rb_default", "--as", "third"], &folder.keys(250)), 250 + 100);
    assert_eq!(told(&two, "DBSIZE"), ":3", "nothing is left beside them");
    let mixed = run(&["import", "redisbloom", &one, "rb_default", "nothing", "--replace", "--to", &two]);
    let said = String::from_utf8_lossy(&mixed.stderr).into_owned();
    assert!(said.contains("nothing: there is no such key") && said.contains("1 of 2"), "{said}");
    assert!(String::from_utf8_lossy(&mixed.stdout).contains("rb_default is"), "the other came");
}

#[test]
fn filters_of_another_server_come_with_all_but_their_keys() {
    let (one, two, folder) = (Server::new(), Server::new(), Folder::new("umbel"));
    let (one, two) = (one.redis_url(), two.redis_url());
    for make in ["UMBEL.CREATE seen 2000 0.01", "UMBEL.CREATE counted 9000 0.001 KIND counting"] {
        assert_eq!(told(&one, make), "+OK");
    }
    let items: Vec<String> = (0..9_000).map(|number| format!("item:{number}")).collect();
    for (command, name) in [("BF.MADD", "seen"), ("CF.INSERT", "counted")] {
        for items in items.chunks(1_000) {
            let between: &[&str] = if command == "CF.INSERT" { &["ITEMS"] } else { &[] };
            let words =
                [&[command, name], between].concat().into_iter().chain(items.iter().map(String::as_str));
            ask(&one, &words.map(str::as_bytes).collect::<Vec<_>>());
        }
    }
    done(&["import", "umbel", &one, "seen", "counted", "--to", &two]);
    let keys = folder.keys(9_000);
    assert!(same(&one, &two, &["seen"], &keys) >= 9_000);
    assert!(same(&one, &two, &["counted"], &keys) >= 9_000);
    assert_eq!(told(&two, "CF.DEL counted item:3"), ":1");
    // Chunks of ours are for us alone.
    let said = complaint(&["export", "redisbloom", "seen", &folder.file("seen"), "--from", &one]);
    assert!(said.contains("made by Umbel"), "{said}");
    assert!(std::fs::read_dir(&folder.0).unwrap().count() == 1, "no half of a file is left");
    done(&["export", "umbel", "seen", &two, "--as", "again", "--from", &one]);
    assert!(same(&one, &two, &["seen", "--as", "again"], &keys) >= 9_000);
}

#[test]
fn what_is_wrong_is_said() {
    let (server, folder) = (Server::new(), Folder::new("wrong"));
    let url = server.redis_url();
    let (keys, cut) = (folder.keys(1), folder.file("cut.bin"));
    let guava = std::fs::read(fixture("guava/string_1pct.bin")).unwrap();
    std::fs::write(&cut, &guava[..guava.len() - 8]).unwrap();
    std::fs::write(folder.file("empty.txt"), "\n\n").unwrap();
    let (cuckoo, chunks) =
        (fixture("redisbloom/cf_default.scandump"), fixture("redisbloom/rb_default.scandump"));
    assert_eq!(told(&url, "BF.ADD there item:0"), ":1");
    let (empty, secure) = (folder.file("empty.txt"), url.replace("redis://", "rediss://"));
    for (arguments, words) in [
        (&["import", "guava", "/nowhere/x.bin", "--to", &url][..], &["/nowhere/x.bin"][..]),
        (&["import", "guava", &cut, "--to", &url], &["truncated Guava", "8 bytes early"]),
        (&["import", "guava", &keys, "--to", &url], &["Guava", "strategy"]),
        (&["import", "native", &cut, "--to", &url], &["UMBEL.IMPORT"]),
        (&["import", "redisbloom", &cuckoo, "--to", &url], &["no Bloom filter of RedisBloom"]),
        (&["import", "redisbloom", &chunks, "urls", "--to", &url], &["--as"]),
        (&["import", "redisbloom", &url, "--to", &url], &["--match"]),
        (&["import", "redisbloom", &url, "--match", "x*", "--to", &url], &["no filter fits \"x*\""]),
        (&["import", "redisbloom", &url, "there", "--to", &url], &["there already", "--replace"]),
        (&["import", "redisbloom", &url, "a", "b", "--as", "c", "--to", &url], &["--as", "one filter"]),
        (&["import", "redisbloom", &secure, "a", "--to", &url], &["no TLS"]),
        (&["import", "redisbloom", "redis://127.0.0.1:1", "a", "--to", &url], &["127.0.0.1:1", "refused"]),
        (&["import", "redisson", &url, "other", "--to", &url], &["HGETALL"]),
        (&["export", "guava", "nothing", &keys, "--from", &url], &["no filter nothing"]),
        (&["export", "guava", "there", &keys, "--from", &url], &["is there already", "--replace"]),
        (&["export", "redisson", "there", &url, "--as", "x", "--from", &url], &["family"]),
        (&["verify", &url, &url, "--keys", &keys], &["which filter"]),
        (&["verify", &url, &url, "nothing", "--keys", &keys], &["no filter nothing"]),
        (&["verify", &url, &url, "there", "--keys", &empty], &["no keys"]),
        (&["verify", &url, &keys, "there", "--keys", &keys], &["none of the formats"]),
    ] {
        let said = complaint(arguments);
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    }
    assert_eq!(told(&url, "DBSIZE"), ":1", "nothing half of which came is there");
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn filters_of_redisson_come_and_go() {
    let (server, folder) = (Server::new(), Folder::new("redisson"));
    let (redis, url) = (Redis::start(&[]), server.redis_url());
    let old = redis.url();
    for entry in manifest("redisson") {
        let name = entry["file"].as_str().unwrap().trim_end_matches(".bitmap");
        let bitmap = std::fs::read(fixture(&format!("redisson/{name}.bitmap"))).unwrap();
        assert_eq!(ask(&old, &[b"SET", name.as_bytes(), &bitmap]), b"+OK\r\n");
        let config = format!("{{{name}}}:config");
        for (field, value) in entry["config"].as_object().unwrap() {
            told(&old, &format!("HSET {config} {field} {}", value.as_str().unwrap()));
        }
        let moved = done(&["import", "redisson", &old, name, "--to", &url]);
        assert_eq!((&moved["bytes"], &moved["changed"]), (&bitmap.len().into(), &false.into()));
        let items = entry["items"].as_u64().unwrap();
        let mistaken = entry["false_positives"].as_array().unwrap().len() as u64;
        assert_eq!(same(&old, &url, &[name], &folder.keys(items)), items + mistaken, "{name}");
        assert_eq!(told(&url, &format!("BF.ADD {name} another")), ":1", "it takes more keys");
    }
    // What was made here, for Redisson, is there and back again what it was.
    assert_eq!(told(&url, "UMBEL.CREATE made 4000 0.01 LAYOUT redisson FAMILY redisson"), "+OK");
    let words: Vec<_> = (0..2_000).map(|number| format!("item:{number}")).collect();
    let words = ["BF.MADD", "made"].into_iter().chain(words.iter().map(String::as_str));
    ask(&url, &words.map(str::as_bytes).collect::<Vec<_>>());
    done(&["export", "redisson", "made", &old, "--from", &url]);
    let (keys, written) = (folder.keys(2_000), ask(&old, &[b"GET", b"made"]));
    assert!(same(&url, &old, &["made"], &keys) >= 2_000);
    assert_eq!(told(&old, "HGET {made}:config falseProbability"), "$4\r\n0.01");
    assert_eq!(told(&old, "HGET {made}:config expectedInsertions"), "$4\r\n4000");
    done(&["import", "redisson", &old, "made", "--as", "back", "--to", &url]);
    assert!(same(&url, &old, &["back", "--as", "made"], &keys) >= 2_000);
    let again = complaint(&["export", "redisson", "back", &old, "--as", "made", "--from", &url]);
    assert!(again.contains("already") && again.contains("--replace"), "{again}");
    done(&["export", "redisson", "back", &old, "--as", "made", "--replace", "--from", &url]);
    assert_eq!(ask(&old, &[b"GET", b"made"]), written);
    assert_eq!(told(&old, "DBSIZE"), ":6", "nothing is left beside them");
    let known = complaint(&["import", "redisbloom", &old, "string_1pct", "--replace", "--to", &url]);
    assert!(known.contains("Redisson"), "{known}");
    told(&old, "HDEL {string_1pct}:config size");
    let lacks = complaint(&["import", "redisson", &old, "string_1pct", "--replace", "--to", &url]);
    assert!(lacks.contains("size"), "{lacks}");
    let none = complaint(&["import", "redisson", &old, "nothing", "--to", &url]);
    assert!(none.contains("{nothing}:config"), "{none}");
    assert_eq!(told(&old, "CONFIG SET requirepass secret"), "+OK");
    let name = "string_half_permille";
    let denied = complaint(&["import", "redisson", &old, name, "--replace", "--to", &url]);
    assert!(denied.contains("NOAUTH"), "{denied}");
    let mut allowed = command(&["import", "redisson", &old, name, "--replace", "--to", &url]);
    assert!(allowed.env("REDISCLI_AUTH", "secret").status().unwrap().success());
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn certificates_are_checked_and_shown() {
    let (server, folder) = (Server::new(), Folder::new("tls"));
    let url = server.redis_url();
    for (name, text) in certificates::certificates() {
        std::fs::write(folder.file(name), text).unwrap();
    }
    let files = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.file(name));
    let [cert, key, ca] = files.each_ref().map(String::as_str);
    let options = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca];
    let redis = Redis::start(&options);
    let place = redis.url().replace("redis://127.0.0.1", "rediss://localhost");
    let identity = format!("cert={}&key={}", folder.file("client.pem"), folder.file("client.key"));
    let old = format!("{place}?ca={ca}&{identity}");
    assert_eq!(told(&url, "UMBEL.CREATE made 4000 0.01 LAYOUT redisson FAMILY redisson"), "+OK");
    let words: Vec<_> = (0..2_000).map(|number| format!("item:{number}")).collect();
    let words = ["BF.MADD", "made"].into_iter().chain(words.iter().map(String::as_str));
    ask(&url, &words.map(str::as_bytes).collect::<Vec<_>>());
    done(&["export", "redisson", "made", &old, "--from", &url]);
    done(&["import", "redisson", &old, "made", "--as", "back", "--to", &url]);
    assert!(same(&url, &old, &["back", "--as", "made"], &folder.keys(2_000)) >= 2_000);
    // None of it without an authority that is trusted, without our certificate, by another name, or without TLS.
    for (address, why) in [
        (format!("{place}?{identity}"), "UnknownIssuer"),
        (format!("{place}?ca={ca}"), "rediss://localhost"),
        (format!("{}?ca={ca}&{identity}", place.replace("localhost", "127.0.0.2")), "rediss://127.0.0.2"),
        (place.replace("rediss", "redis"), "redis://localhost"),
        (format!("{place}?ca={}", folder.file("nowhere.pem")), "nowhere.pem"),
    ] {
        let said = complaint(&["import", "redisson", &address, "made", "--as", "again", "--to", &url]);
        assert!(said.contains(why), "{address}: {said}");
    }
}
