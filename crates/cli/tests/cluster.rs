//! Nodes as processes, on real engines: one is killed, one comes, one leaves in good order while somebody writes, and all that was
//! acknowledged is there, whichever node is asked.

#[path = "../../adapters/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Service, fresh, passed, service};

const SECRET: &str = "what all nodes of the test know";
const BATCH: usize = 50;
/// How long anything may take until it is as it should be.
const PATIENCE: Duration = Duration::from_secs(120);
const LEASE: &str = "3s";

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A node process.
struct Node {
    name: String,
    process: Child,
    folder: PathBuf,
    port: u16,
    http_port: u16,
}

impl Node {
    fn start(name: &str, planes: &[String]) -> Self {
        let folder = std::env::temp_dir().join(fresh("umbel-node"));
        std::fs::create_dir_all(&folder).unwrap();
        let (port, http_port) = (free_port(), free_port());
        let log = std::fs::File::create(folder.join("log.txt")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_umbel"))
            .args(["serve", "--cluster", "test", "--node", name, "--cluster-lease", LEASE, "--slots", "32"])
            .args(["--port", &port.to_string(), "--http-port", &http_port.to_string(), "--threads", "1"])
            .args(planes)
            .arg("--data")
            .arg(folder.join("data"))
            .env("UMBEL_CLUSTER_SECRET", SECRET)
            .env("AWS_ACCESS_KEY_ID", "umbel")
            .env("AWS_SECRET_ACCESS_KEY", "umbel")
            .env_remove("UMBEL_SERVICES")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { name: name.to_owned(), process, folder, port, http_port }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default()
    }

    /// Whether it has everything that it should.
    fn is_ready(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.http_port)) else { return false };
        let asked = socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok() && socket.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    fn wait(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !self.is_ready() {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < end, "{} is not ready: {}", self.name, self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn signal(&self, signal: &str) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("== {}\n{}", self.name, self.said());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What a node says: numbers, or why not.
fn call(port: u16, words: &[String]) -> Result<Vec<i64>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_secs(30))).map_err(failed)?;
    let words_text = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let command = format!("*{}\r\n{}", words.len(), words_text.collect::<String>());
    socket.write_all(command.as_bytes()).map_err(failed)?;
    let mut lines = BufReader::new(socket).lines();
    let mut next =
        || lines.next().unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into())).map_err(failed);
    let first = next()?;
    let number = |line: &str| line.get(1..).and_then(|number| number.parse().ok()).ok_or(line.to_owned());
    match first.as_bytes().first() {
        Some(b':') => Ok(vec![number(&first)?]),
        Some(b'+') => Ok(Vec::new()),
        Some(b'*') => (0..number(&first)?).map(|_| number(&next()?)).collect(),
        _ => Err(first),
    }
}

fn words(command: &str, filter: &str, keys: std::ops::Range<usize>) -> Vec<String> {
    [command.to_owned(), filter.to_owned()].into_iter().chain(keys.map(|key| format!("key:{key}"))).collect()
}

/// Asks until there is an answer.
fn insist(port: u16, words: &[String]) -> Vec<i64> {
    let end = Instant::now() + PATIENCE;
    loop {
        match call(port, words) {
            Ok(answer) => return answer,
            // What an error says besides that will not change.
            Err(why) => assert!(Instant::now() < end && !why.starts_with("-ERR"), "{why}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Writes to one node after another, as long as it is let. What a node does not acknowledge, the next one is told.
struct Writer {
    ports: Arc<Mutex<Vec<u16>>>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(usize, usize, Duration)>,
}

impl Writer {
    fn start(ports: Vec<u16>) -> Self {
        let (ports, stop) = (Arc::new(Mutex::new(ports)), Arc::new(AtomicBool::new(false)));
        let (known, stopped) = (Arc::clone(&ports), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (mut acknowledged, mut failures, mut longest) = (0, 0, Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let keys = words("bf.madd", "seen", acknowledged..acknowledged + BATCH);
                let begun = Instant::now();
                loop {
                    let port = {
                        let ports = known.lock().unwrap();
                        ports[failures % ports.len()]
                    };
                    match call(port, &keys) {
                        Ok(answers) if answers.len() == BATCH => break,
                        said => assert!(begun.elapsed() < PATIENCE, "no node takes keys: {said:?}"),
                    }
                    failures += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                longest = longest.max(begun.elapsed());
                acknowledged += BATCH;
            }
            (acknowledged, failures, longest)
        });
        Self { ports, stop, thread }
    }

    fn knows(&self, nodes: &[&Node]) {
        *self.ports.lock().unwrap() = nodes.iter().map(|node| node.port).collect();
    }

    /// How many keys were acknowledged, how often a node did not, and the longest time until one did.
    fn end(self) -> (usize, usize, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn url(service: &Service, more: &str) -> String {
    if matches!(service.name, "ceph" | "s3") {
        return service.bucket();
    }
    format!("{}://{}{}/{}{more}", service.name, service.login(), service.address(), fresh("umbel"))
}

/// A cluster lives on these engines.
fn lives(log: &'static str, blobs: &'static str, registry: &'static str) {
    let (Some(log_service), Some(blobs_service), Some(registry_service)) =
        (service(log), service(blobs), service(registry))
    else {
        return;
    };
    let planes = [
        "--log".to_owned(),
        url(&log_service, "?partitions=8&timeout_ms=5000"),
        "--blobs".to_owned(),
        url(&blobs_service, ""),
        "--registry".to_owned(),
        url(&registry_service, ""),
    ];
    let mut a = Node::start("a", &planes);
    a.wait();
    let (mut b, mut c) = (Node::start("b", &planes), Node::start("c", &planes));
    b.wait();
    c.wait();
    let reserve = "umbel.create seen 200000 0.0001 SHARDS all";
    insist(a.port, &reserve.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let writer = Writer::start(vec![a.port, b.port, c.port]);
    std::thread::sleep(Duration::from_secs(2));

    // One is killed, and another one comes.
    drop(c);
    let mut d = Node::start("d", &planes);
    writer.knows(&[&a, &b, &d]);
    d.wait();
    std::thread::sleep(Duration::from_secs(2));
    // One sleeps for longer than its lease, and wakes up.
    b.signal("-STOP");
    std::thread::sleep(Duration::from_secs(5));
    b.signal("-CONT");
    b.wait();
    // One leaves in good order, and comes back with what it had on its disk.
    a.signal("-TERM");
    assert!(a.process.wait().unwrap().success(), "{}", a.said());
    drop(a);
    let mut a = Node::start("a", &planes);
    writer.knows(&[&a, &b, &d]);
    a.wait();
    std::thread::sleep(Duration::from_secs(1));
    let (acknowledged, failures, longest) = writer.end();

    let mut errors = 0;
    for node in [&a, &b, &d] {
        for first in (0..acknowledged).step_by(500) {
            let keys = first..acknowledged.min(first + 500);
            let answers = insist(node.port, &words("bf.mexists", "seen", keys.clone()));
            assert!(answers.len() == keys.len(), "{} gave {} answers", node.name, answers.len());
            let gone = keys.zip(answers).find(|(_, answer)| *answer != 1);
            assert!(gone.is_none(), "acknowledged, and gone at {}: {gone:?}", node.name);
        }
        let strangers = words("bf.mexists", "seen", 10_000_000..10_010_000);
        errors = errors.max(insist(node.port, &strangers).iter().sum::<i64>());
    }
    assert!(errors < 20, "{errors} of 10,000 strangers at an error rate of 0.0001");
    let seen = format!(
        "{acknowledged} keys acknowledged, 0 lost; killed, joined, slept, left; {failures} refusals, {longest:.1?} the longest"
    );
    passed(&log_service, "all", &format!("cluster on {log}, {blobs}, {registry}"), seen);
}

#[test]
#[ignore = "needs servers: cargo xtask planes"]
fn a_cluster_on_redis() {
    lives("redis", "redis", "redis");
}

#[test]
#[ignore = "needs servers: cargo xtask planes"]
fn a_cluster_on_kafka_s3_and_etcd() {
    lives("kafka", "s3", "etcd");
}
