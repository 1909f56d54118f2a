//! Every engine under a server that is not restarted: the engine sleeps, is killed, moves to another address; afterwards all clients of the
//! server get answers again, soon after the engine itself answers, and nothing that was acknowledged is lost.

#[path = "../../adapters/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::proxy::Proxy;
use common::{Service, fresh, passed, service};
use umbel_adapters::{Url, open_blobs, open_log, open_registry};

/// Longest time from the first answer of the engine to a new client until every client of the server has one. The aim is 2 s; the rest is
/// for a machine that runs the tests of all engines at once.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long a server is watched after it is back: until then, no answer may be an error.
const STEADY: Duration = Duration::from_secs(3);
/// Most clients of the server that ask all the time.
const CLIENTS: usize = 4;
/// Set to also have engines sleep for a minute.
const LARGE: &str = "UMBEL_LARGE";

/// What a server has on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plane {
    Log,
    Blobs,
    Registry,
}

impl Plane {
    fn flag(self) -> &'static str {
        match self {
            Plane::Log => "--log",
            Plane::Blobs => "--blobs",
            Plane::Registry => "--registry",
        }
    }

    fn name(self) -> &'static str {
        &self.flag()[2..]
    }

    /// How many clients ask: only one checkpoint is made at a time, so a second client is refused.
    fn clients(self) -> usize {
        if self == Plane::Log { CLIENTS } else { 1 }
    }

    /// A command whose success needs the plane.
    fn command(self, key: u64) -> String {
        match self {
            Plane::Log => format!("bf.add seen key:{key}"),
            // A checkpoint, which is only made while the registry says that no other server may make any.
            Plane::Blobs | Plane::Registry => "save".into(),
        }
    }

    fn is_good(self, reply: &str) -> bool {
        match self {
            Plane::Log => matches!(reply, ":0" | ":1"),
            Plane::Blobs | Plane::Registry => reply == "+OK",
        }
    }
}

/// What happens to an engine.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Asleep(u64),
    Killed,
    /// It ends, and starts with its data at another address; a proxy has the one that clients know.
    Moved,
}

impl Fault {
    fn name(self) -> String {
        match self {
            Fault::Asleep(seconds) => format!("asleep for {seconds} s"),
            Fault::Killed => "killed and started again".into(),
            Fault::Moved => "started at another address".into(),
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A server process with a folder of its own.
struct Umbel {
    process: Child,
    folder: PathBuf,
    port: u16,
    arguments: Vec<String>,
}

impl Umbel {
    fn start(arguments: Vec<String>) -> Self {
        let folder = std::env::temp_dir().join(fresh("umbel-recovery"));
        std::fs::create_dir_all(&folder).unwrap();
        let port = free_port();
        let process = Self::spawn(&folder, port, &arguments);
        let mut umbel = Self { process, folder, port, arguments };
        umbel.wait();
        umbel
    }

    fn spawn(folder: &std::path::Path, port: u16, arguments: &[String]) -> Child {
        let log = std::fs::File::create(folder.join("log.txt")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_umbel"))
            .args(["serve", "--port", &port.to_string(), "--http-port", "0", "--slots", "16"])
            .args(arguments)
            .arg("--data")
            .arg(folder.join("data"))
            .env("AWS_ACCESS_KEY_ID", "umbel")
            .env("AWS_SECRET_ACCESS_KEY", "umbel")
            .env_remove("UMBEL_SERVICES")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default()
    }

    fn wait(&mut self) {
        let end = Instant::now() + Duration::from_secs(120);
        while !self.said().contains("is ready") {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < end, "the server does not start: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it without a word and starts it without the folder that it had.
    fn lose_and_start(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let _ = std::fs::remove_dir_all(self.folder.join("data"));
        self.process = Self::spawn(&self.folder, self.port, &self.arguments);
        self.wait();
    }
}

impl Drop for Umbel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A connection to the server, which is made again when it is gone.
struct Connection {
    port: u16,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    fn ask(&mut self, command: &str) -> std::io::Result<String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                BufReader::new(stream)
            }
        };
        stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        self.stream = Some(stream);
        Ok(line.trim_end().to_owned())
    }
}

/// What clients of the server saw.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    next: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
    /// For each client: its last good answer, and its last bad one with its text.
    last_good: Mutex<[Option<Instant>; CLIENTS]>,
    first_good: Mutex<[Option<Instant>; CLIENTS]>,
    last_bad: Mutex<Option<(Instant, String)>>,
}

impl Seen {
    /// Forgets when answers were good first, so that those from now on count.
    fn begin(&self) {
        *self.first_good.lock().unwrap() = [None; CLIENTS];
    }

    /// When the last of so many clients got its first good answer since the beginning, or the last bad answer came, whichever is later.
    fn is_back(&self, clients: usize) -> Option<Instant> {
        let first = *self.first_good.lock().unwrap();
        let last_good = *self.last_good.lock().unwrap();
        let bad = self.last_bad.lock().unwrap().as_ref().map(|(at, _)| *at);
        let mut back = None;
        for (first, last) in first.iter().zip(last_good).take(clients) {
            let (first, last) = ((*first)?, last?);
            if bad.is_some_and(|bad| last < bad) {
                return None;
            }
            back = back.max(Some(first)).max(bad.filter(|bad| *bad > first));
        }
        back
    }
}

fn client(number: usize, port: u16, plane: Plane, seen: &Seen) {
    let mut connection = Connection { port, stream: None };
    while !seen.stop.load(Ordering::Relaxed) {
        let key = seen.next.fetch_add(1, Ordering::Relaxed);
        let reply = connection.ask(&plane.command(key)).unwrap_or_else(|error| error.to_string());
        let now = Instant::now();
        if plane.is_good(&reply) {
            seen.acknowledged.lock().unwrap().push(key);
            seen.first_good.lock().unwrap()[number].get_or_insert(now);
            seen.last_good.lock().unwrap()[number] = Some(now);
        } else {
            *seen.last_bad.lock().unwrap() = Some((now, reply));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a client that knows nothing of what was before gets an answer of the engine, and says when.
fn engine_answers(runtime: &tokio::runtime::Runtime, plane: Plane, url: &str) -> Instant {
    let url =
        Url::parse(&format!("{url}{}timeout_ms=1000", if url.contains('?') { '&' } else { '?' })).unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let answered = runtime.block_on(async {
            let asking = async {
                match plane {
                    Plane::Log => {
                        let log = open_log(&url).await?.plane;
                        log.append(0, vec![bytes::Bytes::from_static(b"x")]).await.map(drop)
                    }
                    Plane::Registry => open_registry(&url).await?.plane.get("x").await.map(drop),
                    Plane::Blobs => open_blobs(&url).await.map(drop),
                }
            };
            tokio::time::timeout(Duration::from_secs(3), asking).await
        });
        match answered {
            Ok(Ok(())) => return Instant::now(),
            outcome => assert!(Instant::now() < end, "the engine does not come back: {outcome:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where clients go: the proxy in front of the engine, and the engine's own port that it goes to.
fn proxied(runtime: &tokio::runtime::Runtime, service: &Service) -> Proxy {
    // Kafka's clients go to the address that the broker names. It has one that names a proxy in front of it.
    let (address, server) = match service.name {
        "kafka" => (service.address_behind(3), service.address_behind(2)),
        _ => ("127.0.0.1:0".into(), service.address()),
    };
    runtime.block_on(Proxy::at(&address, server))
}

fn url(service: &Service, plane: Plane, address: &str, name: &str) -> String {
    if plane == Plane::Blobs {
        return service.bucket().replace(&service.address(), address);
    }
    let more = if plane == Plane::Log { "?partitions=4" } else { "" };
    format!("{}://{}{address}/{name}{more}", service.name, service.login())
}

/// What a fault came to.
struct Recovery {
    /// From the end of the fault until a new client of the engine has an answer.
    engine: Duration,
    /// From then on until all clients of the server have good answers only.
    server: Duration,
}

fn suffer(
    runtime: &tokio::runtime::Runtime,
    service: &Service,
    proxy: &Proxy,
    plane: Plane,
    fault: Fault,
    seen: &Seen,
    probe: &str,
) -> Recovery {
    let ended = match fault {
        Fault::Asleep(seconds) => {
            service.pause();
            std::thread::sleep(Duration::from_secs(seconds));
            seen.begin();
            let ended = Instant::now();
            service.resume();
            ended
        }
        Fault::Killed | Fault::Moved => {
            service.kill();
            if matches!(fault, Fault::Moved) {
                let free = free_port();
                // The port that clients come to, behind the proxy.
                let port =
                    if service.name == "kafka" { service.address_behind(2) } else { service.address() };
                service.change_port(port.rsplit_once(':').unwrap().1.parse().unwrap(), free);
                proxy.retarget(format!("127.0.0.1:{free}"));
            }
            seen.begin();
            let ended = Instant::now();
            service.start();
            ended
        }
    };
    let answers = engine_answers(runtime, plane, probe);
    let end = answers + PATIENCE;
    let back = loop {
        let now = Instant::now();
        let back = seen.is_back(plane.clients());
        match back {
            Some(back) if now > back + STEADY => break Some(back),
            _ if now > end + STEADY => break None,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let bad = seen.last_bad.lock().unwrap().as_ref().map(|(at, text)| (at.elapsed(), text.clone()));
    let Some(back) = back.filter(|back| *back <= end) else {
        panic!(
            "{} {}: the server does not come back within {PATIENCE:?} of the engine; its last error: {bad:?}",
            service.name,
            fault.name()
        );
    };
    Recovery { engine: answers - ended, server: back.saturating_duration_since(answers) }
}

fn recovers(name: &'static str, plane: Plane) {
    let Some(service) = service(name) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let proxy = proxied(&runtime, &service);
    let url_of_server = url(&service, plane, &proxy.address, &fresh("recovery"));
    let probe = url(&service, plane, &proxy.address, &fresh("probe"));
    let before = if name == "kafka" { service.address_behind(2) } else { service.address() };
    engine_answers(&runtime, plane, &probe);
    let mut umbel = Umbel::start(vec![plane.flag().into(), url_of_server]);
    let mut control = Connection { port: umbel.port, stream: None };
    assert_eq!(control.ask("bf.reserve seen 0.0001 1000000").unwrap(), "+OK");
    let seen = Arc::new(Seen::default());
    let clients: Vec<_> = (0..plane.clients())
        .map(|number| {
            let (seen, port) = (Arc::clone(&seen), umbel.port);
            std::thread::spawn(move || client(number, port, plane, &seen))
        })
        .collect();
    let mut faults = vec![Fault::Asleep(3), Fault::Asleep(12)];
    if std::env::var_os(LARGE).is_some() {
        faults.push(Fault::Asleep(60));
    }
    // The server that stands for S3 has everything in memory: nothing of it would be left.
    if name != "s3" {
        faults.extend([Fault::Killed, Fault::Moved]);
    }
    for fault in faults {
        let recovery = suffer(&runtime, &service, &proxy, plane, fault, &seen, &probe);
        let text = format!(
            "good answers for all {} clients {:.1?} after the engine's first, which came after {:.1?}",
            plane.clients(),
            recovery.server,
            recovery.engine
        );
        println!("{name} {} {}: {text}", plane.name(), fault.name());
        passed(&service, plane.name(), &fault.name(), text);
    }
    seen.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    if plane == Plane::Log {
        umbel.lose_and_start();
        let keys = std::mem::take(&mut *seen.acknowledged.lock().unwrap());
        let mut control = Connection { port: umbel.port, stream: None };
        for key in &keys {
            assert_eq!(control.ask(&format!("bf.exists seen key:{key}")).unwrap(), ":1", "key {key} is lost");
        }
        passed(&service, plane.name(), "acknowledged", format!("{} keys are there afterwards", keys.len()));
    }
    drop(umbel);
    let now = proxy.server();
    if now != before {
        let port = |address: &str| address.rsplit_once(':').unwrap().1.parse().unwrap();
        service.kill();
        service.change_port(port(&now), port(&before));
        service.start();
    }
}

macro_rules! recoveries {
    ($($name:ident: $($plane:ident)+),*) => {$(
        mod $name {
            use super::*;

            #[test]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            fn comes_back_under_a_server_that_goes_on() {
                $(recovers(stringify!($name), Plane::$plane);)+
            }
        }
    )*};
}

recoveries!(kafka: Log, nats: Log, rabbitmq: Log, redis: Log Registry, s3: Blobs, etcd: Registry, zookeeper: Registry);
