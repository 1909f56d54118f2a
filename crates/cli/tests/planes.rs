//! The server on real engines: what was acknowledged outlives the process and its folder.

#[path = "../../adapters/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::proxy::Proxy;
use common::{Service, fresh, passed, service};
use futures_util::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use umbel_adapters::{Url, open_blobs};

const SLOTS: &str = "16";
const BATCH: usize = 200;

/// A server process with a folder of its own.
struct Umbel {
    process: Option<Child>,
    folder: PathBuf,
    port: u16,
    arguments: Vec<String>,
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Umbel {
    fn new(arguments: Vec<String>) -> Self {
        let folder = std::env::temp_dir().join(fresh("umbel-planes"));
        std::fs::create_dir_all(&folder).unwrap();
        Self { process: None, folder, port: free_port(), arguments }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
        command
            .args(["serve", "--port", &self.port.to_string(), "--http-port", "0", "--checkpoint-every", "1s"])
            .args(&self.arguments)
            .args(more)
            .arg("--data")
            .arg(self.folder.join("data"))
            .env("AWS_ACCESS_KEY_ID", "umbel")
            .env("AWS_SECRET_ACCESS_KEY", "umbel")
            .env_remove("UMBEL_SERVICES");
        command
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default()
    }

    /// Starts it, and waits until it answers.
    fn start(&mut self, more: &[&str]) {
        let log = std::fs::File::create(self.folder.join("log.txt")).unwrap();
        let process = self.command(more).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.process = Some(process);
        let end = Instant::now() + Duration::from_secs(120);
        while !self.said().contains("is ready") {
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < end, "the server does not start: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it says if it does not start.
    fn refusal(&self, more: &[&str]) -> String {
        let output = self.command(more).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// Ends it without a word.
    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Ends it, and throws away all that it had on this machine.
    fn lose(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(self.folder.join("data"));
    }

    /// What redis-cli prints for commands, a line each.
    fn redis_cli(&self, commands: &[String]) -> Vec<String> {
        let mut cli = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = commands.join("\n") + "\n";
        let mut stdin = cli.stdin.take().unwrap();
        // From another thread: it prints while it reads.
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        let output = cli.wait_with_output().unwrap();
        writer.join().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn ask(&self, command: &str) -> String {
        self.redis_cli(&[command.to_owned()]).join("\n")
    }
}

impl Drop for Umbel {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The URL of a plane on a service; what speaks S3 gets a bucket.
fn url(service: &Service, more: &str) -> String {
    if matches!(service.name, "ceph" | "s3") {
        return service.bucket();
    }
    format!("{}://{}{}/{}{more}", service.name, service.login(), service.address(), fresh("umbel"))
}

/// Adds keys with redis-cli, and gives those that were acknowledged.
fn add(umbel: &Umbel, keys: std::ops::Range<usize>) -> BTreeSet<usize> {
    let keys: Vec<usize> = keys.collect();
    let commands: Vec<String> = keys
        .chunks(BATCH)
        .map(|batch| batch.iter().fold("bf.madd seen".to_owned(), |text, key| format!("{text} key:{key}")))
        .collect();
    let replies = umbel.redis_cli(&commands);
    assert_eq!(replies.len(), keys.len(), "{:?}", replies.first());
    let is_acknowledged = |(_, reply): &(usize, String)| reply.ends_with('1') || reply.ends_with('0');
    keys.into_iter().zip(replies).filter(is_acknowledged).map(|(key, _)| key).collect()
}

fn assert_all_there(umbel: &Umbel, keys: &BTreeSet<usize>) {
    let keys: Vec<_> = keys.iter().collect();
    for batch in keys.chunks(BATCH) {
        let command =
            batch.iter().fold("bf.mexists seen".to_owned(), |text, key| format!("{text} key:{key}"));
        let replies = umbel.redis_cli(&[command]);
        let missing = batch.iter().zip(&replies).find(|(_, reply)| !reply.ends_with('1'));
        assert!(replies.len() == batch.len() && missing.is_none(), "acknowledged, and gone: {missing:?}");
    }
}

/// Keys are added, the process is killed and its folder removed, twice: once with everything in the log, once with checkpoints.
fn survives(log: &'static str, blobs: &'static str, registry: &'static str) {
    let (Some(log), Some(blobs), Some(registry)) = (service(log), service(blobs), service(registry)) else {
        return;
    };
    let urls = [
        ("--log", url(&log, "?partitions=4&timeout_ms=5000")),
        ("--blobs", url(&blobs, "")),
        ("--registry", url(&registry, "")),
    ];
    let arguments = urls.iter().flat_map(|(flag, url)| [(*flag).to_owned(), url.clone()]).collect();
    let mut umbel = Umbel::new(arguments);
    umbel.start(&["--slots", SLOTS]);
    let said = umbel.said();
    for (flag, url) in &urls {
        let plane = flag.trim_start_matches('-');
        let scheme = url.split("://").next().unwrap();
        assert!(said.contains(&format!("  {plane}  {scheme}://")), "{said}");
    }
    assert!(!said.contains("guest:guest"), "{said}");
    assert_eq!(umbel.ask("bf.reserve seen 0.0001 100000"), "OK");
    let mut keys = add(&umbel, 0..10_000);
    assert_eq!(keys.len(), 10_000);
    assert_eq!(
        umbel.redis_cli(&["cf.add gone a".into(), "cf.add gone b".into(), "cf.del gone a".into()]).len(),
        3
    );
    umbel.lose();

    // The number of slots comes from the registry.
    let begin = Instant::now();
    umbel.start(&[]);
    let replayed = begin.elapsed();
    assert_all_there(&umbel, &keys);
    assert_eq!(umbel.redis_cli(&["cf.exists gone a".into(), "cf.exists gone b".into()]), ["0", "1"]);
    assert!(umbel.ask("info umbel").contains(&format!("slots:{SLOTS}")));

    keys.extend(add(&umbel, 10_000..15_000));
    assert_eq!(umbel.ask("save"), "OK");
    keys.extend(add(&umbel, 15_000..16_000));
    assert_eq!(keys.len(), 16_000);
    umbel.lose();
    umbel.start(&[]);
    assert_all_there(&umbel, &keys);
    let absent: Vec<_> = umbel.redis_cli(&["bf.mexists seen other:1 other:2 other:3".into()]);
    assert!(absent.iter().any(|reply| reply.ends_with('0')), "{absent:?}");

    away(&umbel, &log);
    umbel.lose();
    let refused = umbel.refusal(&["--slots", "8"]);
    assert!(refused.contains("slots 8 here and 16 there"), "{refused}");
    let row = format!("16,000 keys after 2 kills without the data folder; recovered in {replayed:.1?}");
    passed(&log, "all", &format!("serve with {} and {}", blobs.name, registry.name), row);
}

/// While the log is away, lookups go on and adds say that they have to be tried again.
fn away(umbel: &Umbel, log: &Service) {
    log.pause();
    let found = umbel.ask("bf.exists seen key:1");
    let added = umbel.ask("bf.add seen away");
    log.resume();
    assert_eq!(found, "1");
    assert!(added.contains("TRYAGAIN"), "{added}");
    let end = Instant::now() + Duration::from_secs(60);
    while !matches!(&*umbel.ask("bf.add seen back"), "0" | "1") {
        assert!(Instant::now() < end, "it does not go on");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(umbel.ask("bf.exists seen back"), "1");
}

#[test]
fn what_a_folder_was_made_with_is_taken_from_its_registry() {
    let mut umbel = Umbel::new(Vec::new());
    umbel.start(&["--slots", SLOTS, "--partitions", "4"]);
    umbel.kill();
    umbel.start(&[]);
    umbel.kill();
    let refused = umbel.refusal(&["--slots", "8", "--partitions", "2"]);
    assert!(refused.contains("slots 8 here and 16 there, partitions 2 here and 4 there"), "{refused}");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_an_engine_names_the_feature() {
    let umbel = Umbel::new(vec!["--log".to_owned(), "kafka://me:hunter2@h1/umbel".to_owned()]);
    let refused = umbel.refusal(&[]);
    assert!(refused.contains("this build lacks kafka://; rebuild with --features kafka"), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

#[test]
fn an_engine_that_nobody_knows_is_refused_without_its_password() {
    let umbel = Umbel::new(vec!["--log".to_owned(), "consul://me:hunter2@h1/umbel".to_owned()]);
    let refused = umbel.refusal(&[]);
    assert!(refused.contains("no log has the scheme consul://; known are: kafka"), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

/// Flips a bit in the middle of one of the objects, and says which it was.
fn damage(url: &str, chosen: impl Fn(&ObjectMeta) -> Option<u64>) -> String {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open_blobs(&Url::parse(url).unwrap()).await.unwrap().plane;
        let objects: Vec<ObjectMeta> = store.list(None).try_collect().await.unwrap();
        let victim =
            objects.iter().filter(|object| chosen(object).is_some()).max_by_key(|object| chosen(object));
        let victim = victim.expect("there is one").location.clone();
        let mut bytes = store.get(&victim).await.unwrap().bytes().await.unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        store.put(&victim, bytes.into()).await.unwrap();
        victim.to_string()
    })
}

/// What an object store gives is believed only if its checksum is right; what is not costs nothing, because there is more than one
/// checkpoint.
#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn damaged_objects_are_not_believed() {
    let (Some(redis), Some(ceph), Some(etcd)) = (service("redis"), service("ceph"), service("etcd")) else {
        return;
    };
    let blobs = url(&ceph, "");
    let urls =
        [("--log", url(&redis, "?partitions=2")), ("--blobs", blobs.clone()), ("--registry", url(&etcd, ""))];
    let arguments = urls.iter().flat_map(|(flag, url)| [(*flag).to_owned(), url.clone()]).collect();
    let mut umbel = Umbel::new(arguments);
    umbel.start(&["--slots", SLOTS]);
    assert_eq!(umbel.ask("bf.reserve seen 0.0001 100000"), "OK");
    let mut keys = BTreeSet::new();
    for round in 0..3 {
        keys.extend(add(&umbel, 2000 * round..2000 * (round + 1)));
        assert_eq!(umbel.ask("save"), "OK");
    }
    let newest_of = |kind: &'static str| {
        move |object: &ObjectMeta| {
            let name = object.location.filename().unwrap_or_default();
            // A name begins with the number of its checkpoint.
            name.ends_with(kind).then(|| name.split(['-', '.']).next()?.parse().ok())?
        }
    };
    let mut damaged = Vec::new();
    for kind in [".manifest", ".arrays"] {
        umbel.lose();
        damaged.push(damage(&blobs, newest_of(kind)));
        umbel.start(&[]);
        assert_all_there(&umbel, &keys);
        let absent = umbel.redis_cli(&["bf.mexists seen other:1 other:2 other:3".into()]);
        assert!(absent.iter().any(|reply| reply.ends_with('0')), "{absent:?}");
        keys.extend(add(&umbel, keys.len()..keys.len() + 1000));
        assert_eq!(umbel.ask("save"), "OK");
    }
    passed(
        &ceph,
        "blobs",
        "checksum on read",
        format!("a bit flipped in {}: {} keys there", damaged.join(", then in "), keys.len()),
    );
}

/// Two servers would remove each other's checkpoints.
#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn a_second_server_is_kept_off() {
    let (Some(redis), Some(etcd)) = (service("redis"), service("etcd")) else { return };
    let urls = [url(&redis, "?partitions=2"), url(&redis, ""), url(&etcd, "")];
    let arguments = || {
        let flags = ["--log", "--blobs", "--registry"].into_iter().zip(&urls);
        flags.flat_map(|(flag, url)| [flag.to_owned(), url.clone()]).collect()
    };
    let mut first = Umbel::new(arguments());
    first.start(&[]);
    let mut second = Umbel::new(arguments());
    let refused = second.refusal(&[]);
    assert!(refused.contains("another server serves this deployment"), "{refused}");
    first.kill();
    let begin = Instant::now();
    second.start(&[]);
    let took = begin.elapsed();
    passed(
        &etcd,
        "all",
        "a second server",
        format!("refused; after a kill of the first, served in {took:.1?}"),
    );
}

/// A server is paused for longer than its lease and comes back when another one has its place. It gives way, and what either has
/// acknowledged is there.
#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn a_paused_server_gives_way() {
    let (Some(nats), Some(redis), Some(etcd)) = (service("nats"), service("redis"), service("etcd")) else {
        return;
    };
    let urls = [url(&nats, "?partitions=2"), url(&redis, ""), url(&etcd, "")];
    let arguments = || {
        let flags = ["--log", "--blobs", "--registry"].into_iter().zip(&urls);
        flags.flat_map(|(flag, url)| [flag.to_owned(), url.clone()]).collect()
    };
    let mut first = Umbel::new(arguments());
    first.start(&["--slots", SLOTS]);
    assert_eq!(first.ask("bf.reserve seen 0.0001 100000"), "OK");
    let mut keys = add(&first, 0..2000);
    first.signal("-STOP");
    let mut second = Umbel::new(arguments());
    second.start(&[]);
    assert_all_there(&second, &keys);
    keys.extend(add(&second, 2000..3000));
    first.signal("-CONT");
    // It does not know yet, and may take some more.
    let begin = Instant::now();
    let mut late = 0;
    let ended = loop {
        if let Some(ended) = first.process.as_mut().unwrap().try_wait().unwrap() {
            break ended;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not give way: {}", first.said());
        let key = 10_000 + late;
        if matches!(&*first.ask(&format!("bf.add seen key:{key}")), "0" | "1") {
            keys.insert(key);
            late += 1;
        }
    };
    let took = begin.elapsed();
    assert_eq!(ended.code(), Some(70), "{}", first.said());
    assert!(first.said().contains("another server took this deployment"), "{}", first.said());
    keys.extend(add(&second, 3000..4000));
    second.lose();
    second.start(&[]);
    assert_all_there(&second, &keys);
    let row = format!("gave way in {took:.1?}; {late} late adds and {} others are there", keys.len() - late);
    passed(&etcd, "all", "a paused server", row);
}

/// A server that alone does not reach the registry answers, and takes adds, but makes no checkpoints when another one may have its place.
/// If none had, it goes on when the registry is back; if one had, it gives way, also when that one is gone again.
#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn a_server_without_its_registry_makes_no_checkpoints() {
    let (Some(redis), Some(etcd)) = (service("redis"), service("etcd")) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let proxy = runtime.block_on(Proxy::at("127.0.0.1:0", etcd.address()));
    let urls = [url(&redis, "?partitions=2"), url(&redis, ""), url(&etcd, "?timeout_ms=1000")];
    let arguments = |registry: &str| {
        let urls = [&urls[0], &urls[1], registry];
        let flags = ["--log", "--blobs", "--registry"].into_iter().zip(urls);
        flags.flat_map(|(flag, url)| [flag.to_owned(), url.to_owned()]).collect()
    };
    let mut first = Umbel::new(arguments(&urls[2].replace(&etcd.address(), &proxy.address)));
    first.start(&["--slots", SLOTS]);
    assert_eq!(first.ask("bf.reserve seen 0.0001 100000"), "OK");
    let mut keys = add(&first, 0..1000);
    assert_eq!(first.ask("save"), "OK");
    let saves = |umbel: &Umbel, wanted: &str| {
        let begin = Instant::now();
        while !umbel.ask("save").contains(wanted) {
            assert!(begin.elapsed() < Duration::from_secs(20), "no {wanted}: {}", umbel.said());
            std::thread::sleep(Duration::from_millis(100));
        }
        begin.elapsed()
    };

    // Nobody has the registry: all but checkpoints goes on.
    proxy.close();
    let stopped = saves(&first, "TRYAGAIN");
    keys.extend(add(&first, 1000..2000));
    assert_all_there(&first, &keys);
    proxy.open();
    let went_on = saves(&first, "OK");

    // Only it does not reach the registry, and another one comes and goes.
    proxy.close();
    let mut second = Umbel::new(arguments(&urls[2]));
    second.start(&[]);
    assert_all_there(&second, &keys);
    assert!(first.ask("save").contains("TRYAGAIN"));
    keys.extend(add(&second, 2000..3000));
    assert_eq!(second.ask("save"), "OK");
    second.signal("-TERM");
    assert!(second.process.take().unwrap().wait().unwrap().success());
    proxy.open();
    let begin = Instant::now();
    let ended = loop {
        if let Some(ended) = first.process.as_mut().unwrap().try_wait().unwrap() {
            break ended;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not give way: {}", first.said());
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(ended.code(), Some(70), "{}", first.said());
    assert!(first.said().contains("another server took this deployment"), "{}", first.said());
    assert_eq!(keys.len(), 3000);
    second.start(&[]);
    assert_all_there(&second, &keys);
    let row = format!(
        "no checkpoints after {stopped:.1?}, again {went_on:.1?} after its return; gave way to one that had come and gone"
    );
    passed(&etcd, "all", "a server without its registry", row);
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn kafka() {
    survives("kafka", "s3", "etcd");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn nats() {
    survives("nats", "ceph", "zookeeper");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn rabbitmq() {
    survives("rabbitmq", "s3", "etcd");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn redis() {
    survives("redis", "s3", "redis");
}
