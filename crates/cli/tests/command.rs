//! The command as a user runs it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn umbel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_umbel")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = umbel(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// As behind a pipe.
fn umbel_with_input(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Whoever refuses the pipe may have ended before.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn complaint(arguments: &[&str]) -> String {
    let output = umbel(arguments);
    assert!(!output.status.success() && output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn thirty_billion_keys_are_planned() {
    let plan = json(&["plan", "--capacity", "30e9", "--error", "0.001", "--json"]);
    assert_eq!((plan["shards"].as_u64(), plan["capacity"].as_u64()), (Some(256), Some(30_000_000_000)));
    assert!(plan["expected_error"].as_f64().unwrap() <= 0.001);
    let (bits, bytes) = (plan["bits"].as_u64().unwrap(), plan["bytes"].as_u64().unwrap());
    assert!(bits == bytes * 8 && bits as f64 <= 1.1 * 431.3e9, "{plan}");
    assert_eq!(plan["nodes"].as_u64(), Some(2), "55 GiB do not fit into 80 % of 64 GiB");
    let one = json(&["plan", "--capacity", "30e9", "--error", "0.001", "--node-share", "0.9", "--json"]);
    assert_eq!(one["nodes"].as_u64(), Some(1));
    let none = json(&["plan", "--capacity", "1e12", "--node-memory", "1MiB", "--json"]);
    assert!(none["nodes"].is_null());

    let eight =
        json(&["plan", "--capacity", "30e9", "--error", "0.001", "--copies", "2", "--nodes", "8", "--json"]);
    let most = eight["ring_node_bytes_max"].as_f64().unwrap();
    assert!((most / (2.0 * bytes as f64 / 8.0) - 1.0).abs() <= 0.12 && eight["ring_fits"] == true, "{eight}");

    let text = String::from_utf8(umbel(&["plan", "--capacity", "30e9", "--error", "0.001"]).stdout).unwrap();
    for word in ["30,000,000,000", "GiB", "256", "nodes"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_ring_is_shown_and_drawn() {
    let folder = std::env::temp_dir().join(format!("umbel-ring-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("ring.svg");
    let ring =
        json(&["ring", "--nodes", "3", "--node", "big:200@west", "--svg", file.to_str().unwrap(), "--json"]);
    assert_eq!(ring["slots"].as_array().unwrap().len(), 256);
    let hosted = ring["members"].as_array().unwrap().iter().map(|member| member["slots"].as_u64().unwrap());
    assert_eq!(hosted.sum::<u64>(), 512);
    assert!(std::fs::read_to_string(&file).unwrap().contains("big"));
    std::fs::remove_dir_all(&folder).unwrap();
    let changed = json(&["ring", "--nodes", "4", "--join", "new", "--leave", "node-1", "--json"]);
    assert!((100..300).contains(&changed["moved"].as_u64().unwrap()), "{changed}");
}

/// As with `| head`.
#[test]
fn output_may_end_early() {
    let mut shown = Command::new(env!("CARGO_BIN_EXE_umbel"))
        .args(["ring", "--nodes", "3", "--slots", "4096", "--table"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(shown.stdout.take());
    let ended = shown.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn nonsense_is_answered_with_its_value() {
    for (arguments, word) in [
        (&["plan", "--capacity", "0"][..], "capacity"),
        (&["plan", "--capacity", "ten"], "whole number"),
        (&["plan", "--capacity", "10", "--error", "NaN"], "NaN"),
        (&["plan", "--capacity", "10", "--shards", "0"], "shards"),
        (&["plan", "--capacity", "10", "--node-share", "2"], "node share"),
        (&["plan", "--capacity", "10", "--layout", "guava", "--family", "xxh3"], "murmur3"),
        (&["plan", "--capacity", "10", "--family", "md5"], "md5"),
        (&["ring"], "--nodes"),
        (&["ring", "--nodes", "3", "--leave", "node-4"], "node-4"),
        (&["ring", "--node", "a:heavy"], "heavy"),
        (&["ring", "--node", "a", "--node", "a"], "two members"),
        (&["ring", "--nodes", "3", "--copies", "0"], "copies"),
        (&["ring", "--nodes", "1000000"], "members"),
        (&["bench", "--url", "rediss://127.0.0.1"], "TLS"),
        (&["bench", "--url", "127.0.0.1:6380"], "redis://"),
        (&["bench", "--url", "redis://127.0.0.1:1"], "refused"),
        (&["bench", "--url", "redis://127.0.0.1:1", "--fill", "1.5"], "1.5"),
        (&["bench", "--url", "redis://127.0.0.1:1", "--error", "0"], "error rate"),
        (&["bench", "--url", "redis://127.0.0.1:1", "--capacity", "10M,5e9"], "5000000000"),
        (&["bench", "--url", "redis://127.0.0.1:1", "--pipeline", "0"], "depth"),
        (&["bench", "--url", "redis://127.0.0.1:1", "--seconds", "0"], "seconds"),
        (&["bench", "--url", "redis://127.0.0.1:1", "--threads", "60"], "threads"),
        (&["inspect", "no such file"], "no such file"),
        (&["inspect", env!("CARGO_MANIFEST_DIR")], "directory"),
    ] {
        let said = complaint(arguments);
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

/// A pipe that has a path is opened several times, and what one of them has read the next does not get.
#[test]
fn pipes_are_standard_input_or_refused() {
    let (six, bloom) = ("one\ntwo\nthree\nfour\nfive\nsix\n", fixture("native/v1/bloom.umbel"));
    let load = |place: &str| umbel_with_input(&["load", "f", place, "--count", "--json"], six);
    let verify = |place: &str| umbel_with_input(&["verify", &bloom, &bloom, "--keys", place, "--json"], six);
    for output in [load("-"), verify("-")] {
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["keys"], 6, "{told}");
    }
    for output in [load("/dev/stdin"), verify("/dev/stdin")] {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert!(said.contains("/dev/stdin") && said.contains("into - (standard input)"), "{said}");
    }
    let said = complaint(&["load", "f", env!("CARGO_MANIFEST_DIR"), "--count"]);
    assert!(said.contains("is a folder") && said.contains("/*'"), "{said}");
}

/// A password with a / or ? in it ends where the host should begin; it is not shown all the same.
#[test]
fn no_complaint_has_a_password_in_it() {
    let keys = fixture("native/v1/bloom.umbel");
    for arguments in [
        &["verify", "redis://:hunt2@127.0.0.1:1", &keys, "--keys", &keys][..],
        &["verify", "redis://:hunt/x2@127.0.0.1:1", &keys, "f", "--keys", &keys],
        &["verify", "redis://me:hunt?x2@127.0.0.1:1", &keys, "f", "--keys", &keys],
        &["import", "redisbloom", "redis://:1/hunt2@h", "f"],
        &["ping", "--url", "redis://:hunt/er2@h"],
        &["ping", "--url", "redis://:hunt?er2@h"],
        &["ping", "redis://:hunter2@h"],
        &["doctor", "--registry", "redis://:hunt/er2@h"],
        &["doctor", "--log", "kafka://me:hunt?er2@h"],
        &["doctor", "--log", "kafka://me:1?hunt2@h"],
        &["doctor", "--blobs", "s3://me:hu/nt/er2@bucket/umbel"],
        &["load", "f", "redis://:hunt/er2@h"],
        &["load", "f", "postgres://app:hunt/er2@127.0.0.1:1/shop", "--table", "t", "--column", "c"],
        &["load", "f", "postgres://app:1/hunt2@127.0.0.1:1/shop", "--table", "t", "--column", "c"],
        &["load", "f", "postgres://app:hunt?er2@127.0.0.1:1/shop", "--table", "t", "--column", "c"],
        &["load", "f", "mysql://app:hunt/er2@127.0.0.1:1/shop", "--table", "t", "--column", "c"],
        &["load", "f", "mysql://app:1/hunt2@127.0.0.1:1/shop", "--table", "t", "--column", "c"],
    ] {
        let output = umbel(arguments);
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(!output.status.success() && !said.is_empty(), "{arguments:?}: {said}");
        let secrets = ["hunt", "er2@", "x2@", "2@h", "2@127"];
        assert!(!secrets.iter().any(|secret| said.contains(secret)), "{arguments:?}: {said}");
    }
}

#[test]
fn a_lookup_that_nobody_answers_says_nothing_about_the_key() {
    let output = umbel(&["lookup", "records", "1984-0017", "--server", "http://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(3), "1 means that it is surely nowhere");
    assert!(output.stdout.is_empty() && !output.stderr.is_empty());
}

#[test]
fn files_of_every_format_are_opened() {
    for (file, format, kind) in [
        ("native/v1/bloom.umbel", "native", "bloom"),
        ("native/v1/counting_zstd.umbel", "native", "counting"),
        ("native/v1/chain.umbel", "native", "bloom"),
        ("guava/string_1pct.bin", "Guava", "bloom"),
        ("guava/mitz32.bin", "Guava", "bloom"),
        ("redisbloom/rb_default.scandump", "RedisBloom chunks", "bloom"),
    ] {
        let report = json(&["inspect", &fixture(file), "--json"]);
        assert_eq!(
            (report["format"].as_str(), report["kind"].as_str()),
            (Some(format), Some(kind)),
            "{file}"
        );
        assert!(report["fill"].as_f64().unwrap() > 0.0);
    }
    // The same filter in two formats is the same filter.
    let digest = |file| json(&["inspect", &fixture(file), "--json"])["digest"].clone();
    assert_eq!(digest("native/v1/chain.umbel"), digest("redisbloom/rb_default.scandump"));
}

#[test]
fn damaged_files_are_refused_by_name_and_place() {
    let file = fixture("corrupt/native_block_sum.bin");
    let said = complaint(&["inspect", &file]);
    assert!(said.contains(&file) && said.contains("at byte") && said.contains("checksum"), "{said}");
    let said = complaint(&["inspect", &fixture("native/v1/bloom.umbel"), "--memory", "1KiB"]);
    assert!(said.contains("limit of 1024"), "{said}");
}

#[test]
fn the_engines_files_are_opened() {
    use std::sync::Arc;

    use umbel_core::clock::SystemClock;
    use umbel_core::disk::{Disk, RealDisk};
    use umbel_core::entry::{Entry, Operation, Request};
    use umbel_core::log::{FileLog, Log, Settings};
    use umbel_core::registry::{EmbeddedRegistry, Expected, Registry};
    use umbel_filter::Fingerprint;

    let folder = std::env::temp_dir().join(format!("umbel-inspect-{}", std::process::id()));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let log = FileLog::open(&disk, &Settings { partitions: 1, ..Settings::new(folder.join("log")) }).unwrap();
    let operation = Operation::Add(vec![Fingerprint::default(); 7]);
    let entry = Entry { filter: 1, slot: 0, request: Request::default(), operation };
    runtime.block_on(log.append(0, vec![entry.encode().unwrap(); 3])).unwrap();
    log.close().unwrap();
    let registry = EmbeddedRegistry::open(disk, &folder, Arc::new(SystemClock::default())).unwrap();
    let put = registry.put("slots", bytes::Bytes::from_static(b"256"), Expected::Absent, None);
    runtime.block_on(put).unwrap();

    let path = folder.join("log/0/00000000000000000000.log");
    let report = json(&["inspect", path.to_str().unwrap(), "--json"]);
    assert_eq!((report["entries"].as_u64(), report["added"].as_u64()), (Some(3), Some(21)), "{report}");
    assert_eq!(
        (report["damaged"].as_bool(), report["unreadable"].as_u64()),
        (Some(false), Some(0)),
        "{report}"
    );
    assert!(report["state"].as_str().unwrap().contains("good order"), "{report}");
    let report = json(&["inspect", folder.join("registry").to_str().unwrap(), "--json"]);
    assert_eq!(report["names"][0]["name"].as_str(), Some("slots"), "{report}");

    let mut bytes = std::fs::read(&path).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let report = json(&["inspect", path.to_str().unwrap(), "--json"]);
    assert!(
        report["damaged"].as_bool().unwrap() && report["state"].as_str().unwrap().contains("at byte"),
        "{report}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_engines_blobs_are_opened() {
    use std::sync::Arc;

    use umbel_core::disk::{Disk, RealDisk};
    use umbel_core::engine::{Engine, NewFilter, Settings};
    use umbel_core::log;
    use umbel_filter::{Fingerprint, Spec};

    let folder = std::env::temp_dir().join(format!("umbel-inspect-blobs-{}", std::process::id()));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let version = runtime.block_on(async {
        let settings = Settings { slots: 1, ..Settings::default() };
        let log = log::Settings { partitions: 1, segment_bytes: 2 << 20, ..log::Settings::new("") };
        let engine = Engine::builder(settings).in_folder(&disk, &folder, &log).unwrap().open().await.unwrap();
        let filter = engine.create(NewFilter::new("urls", Spec::counting(1_000, 0.01))).await.unwrap();
        for round in 0..4 {
            let keys: Vec<_> = (0..50_000).map(|second| Fingerprint { first: round, second }).collect();
            engine.add(&filter, &keys).await.unwrap();
            engine.checkpoint().await.unwrap();
        }
        let version = engine.publish(&filter).await.unwrap();
        folder.join(format!("blobs/versions/{:016x}/000000000001.version", version.filter))
    });
    let slot = folder.join("blobs/slots/0000");
    let mut formats: Vec<String> = Vec::new();
    let slots = std::fs::read_dir(&slot).unwrap().map(|entry| entry.unwrap().path());
    let others = [
        folder.join("blobs/deployment"),
        folder.join("blobs/deployment-id"),
        folder.join("blobs/partitions/0000/000000000003.trimmed"),
    ];
    for path in slots.chain(others).chain([version]) {
        let report = json(&["inspect", path.to_str().unwrap(), "--json"]);
        let format = report["format"].as_str().unwrap().to_owned();
        match &*format {
            "manifest" => assert_eq!(report["filters"][0]["name"].as_str(), Some("urls"), "{report}"),
            "archive run" => assert!(report["fingerprints"].as_u64().unwrap() >= 50_000, "{report}"),
            "arrays" => assert!(report["blocks"].as_u64().unwrap() > 0, "{report}"),
            "deployment id" => assert_eq!(report["id"].as_str().map(str::len), Some(41), "{report}"),
            "deployment" => assert_eq!(report["slots"].as_u64(), Some(1), "{report}"),
            "version" => assert_eq!(report["name"].as_str(), Some("urls"), "{report}"),
            _ => assert_eq!(format, "trimmed"),
        }
        assert!(umbel(&["inspect", path.to_str().unwrap()]).status.success());
        // The last byte is under a checksum everywhere.
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let damaged = folder.join("damaged");
        std::fs::write(&damaged, bytes).unwrap();
        let said = complaint(&["inspect", damaged.to_str().unwrap()]);
        assert!(said.contains("byte"), "{said}");
        formats.push(format);
    }
    formats.sort();
    formats.dedup();
    assert_eq!(
        formats,
        ["archive run", "arrays", "deployment", "deployment id", "manifest", "trimmed", "version"]
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn settings_are_shown_with_their_source() {
    let folder = std::env::temp_dir().join(format!("umbel-command-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("some.toml");
    std::fs::write(&file, "port = 7000\nslots = 16\nmemory = \"1GB\"\n").unwrap();
    let file = file.to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_umbel"))
        .args(["config", "--json", "--config", file, "--slowlog-threshold-us", "-1", "--port", "7001"])
        .args(["--requirepass", "hunter2", "--enable-debug-command"])
        .env("UMBEL_MEMORY", "2GB")
        .env("UMBEL_MEMROY", "3GB")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let shown: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| {
        let row = shown.iter().find(|row| row["name"] == name).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["source"].as_str().unwrap().to_owned())
    };
    for (name, value, source) in [
        ("port", "7001", "flag --port"),
        ("slots", "16", &*format!("file {file}")),
        ("memory", "2GiB", "environment UMBEL_MEMORY"),
        ("password", "(hidden)", "flag --password"),
        ("slowlog_threshold_us", "-1", "flag --slowlog-threshold-us"),
        ("enable_debug_command", "yes", "flag --enable-debug-command"),
        ("data", "./umbel-data", "default"),
    ] {
        assert_eq!(of(name), (value.to_owned(), source.to_owned()));
    }
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(warning.contains("UMBEL_MEMROY") && warning.contains("\"memory\""), "{warning}");
    assert!(complaint(&["config", "--port", "x"]).contains("65535"));
    assert!(complaint(&["config", "--config", "/no/such/file"]).contains("/no/such/file"));
    let table = String::from_utf8(umbel(&["config", "--markdown"]).stdout).unwrap();
    let documented = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let documented = std::fs::read_to_string(documented).unwrap();
    assert!(documented.ends_with(&table), "docs/settings.md is not what `umbel config --markdown` prints");
    std::fs::remove_dir_all(folder).unwrap();
}
