//! A real server in this process, and clients that speak bytes: no library stands between a test and what is on the wire.

// Each test uses what it needs of it.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "shared by several test programs")]

mod chance;
mod client;
mod door;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use umbel_core::clock::SystemClock;
use umbel_core::disk::{Disk, MemoryDisk, RealDisk};
use umbel_core::engine::{Engine, Settings};
use umbel_core::log;
use umbel_core::registry::EmbeddedRegistry;
use umbel_server::config::Config;
use umbel_server::node::Node;
use umbel_server::server::Server;

pub use chance::{Chance, number_or, seed};
pub use client::{Client, encode};
pub use door::{Answer, Door};
pub use value::Value;

/// How long a reply may take on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of a server that is to refuse what takes too much of it before the machine is in trouble.
const SMALL_MEMORY_BYTES: u64 = 256 << 20;
const SMALL_SEGMENT_BYTES: u64 = 4 << 20;

/// A server on a free port. It ends when it is dropped, and its folder is removed.
pub struct Running {
    pub node: Arc<Node>,
    server: Option<Server>,
    /// Empty if its files are in memory.
    folder: PathBuf,
}

/// Starts a server with two event loops.
pub fn start() -> Running {
    start_in(new_folder())
}

/// Starts a server on a folder that may hold filters already.
pub fn start_in(folder: PathBuf) -> Running {
    start_with(folder, |_| {})
}

/// Starts a server whose log is trimmed by small pieces.
#[allow(dead_code, reason = "few tests need it")]
pub fn start_with_small_log(folder: PathBuf) -> Running {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let log = log::Settings { segment_bytes: SMALL_SEGMENT_BYTES, ..log::Settings::new(&folder) };
    let mut running =
        Running::on(&disk, &folder, 2, Settings::default(), &log, Config::default(), |node| node);
    running.folder = folder;
    running
}

/// Starts a server with other settings than the defaults.
pub fn start_with(folder: PathBuf, set: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    set(&mut config);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let log = log::Settings::new(&folder);
    let mut running = Running::on(&disk, &folder, 2, Settings::default(), &log, config, |node| node);
    running.folder = folder;
    running
}

/// Starts a server whose registry is in its folder too, as `umbel serve` does.
pub fn start_with_registry(folder: PathBuf) -> Running {
    start_with_registry_and(folder, |_| {})
}

/// The same with other settings than the defaults.
pub fn start_with_registry_and(folder: PathBuf, set: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    set(&mut config);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let clock = Arc::new(SystemClock::default());
    let registry = EmbeddedRegistry::open(Arc::clone(&disk), &folder, clock).expect("a registry");
    let log = log::Settings::new(&folder);
    let mut running = Running::on(&disk, &folder, 2, Settings::default(), &log, config, |node| {
        node.with_registry(Arc::new(registry))
    });
    running.folder = folder;
    running
}

/// Starts a server with little memory.
pub fn start_small(threads: usize) -> Running {
    let folder = new_folder();
    let mut running = Running::small_on(&(Arc::new(RealDisk) as _), &folder, threads);
    running.folder = folder;
    running
}

/// Starts a server with little memory whose files are in memory too.
pub fn start_in_memory(threads: usize) -> Running {
    Running::small_on(&(Arc::new(MemoryDisk::default()) as _), Path::new("/data"), threads)
}

pub fn new_folder() -> PathBuf {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("umbel-server-{}-{number}", std::process::id()))
}

impl Running {
    fn small_on(disk: &Arc<dyn Disk>, folder: &Path, threads: usize) -> Self {
        let settings = Settings { memory_bytes: SMALL_MEMORY_BYTES, ..Settings::default() };
        let log = log::Settings { segment_bytes: SMALL_SEGMENT_BYTES, ..log::Settings::new(folder) };
        Self::on(disk, folder, threads, settings, &log, Config::default(), |node| node)
    }

    /// The one place where tests start a server.
    fn on(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        threads: usize,
        settings: Settings,
        log: &log::Settings,
        config: Config,
        made: impl FnOnce(Node) -> Node,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let engine = runtime.block_on(async {
            Engine::builder(settings).in_folder(disk, folder, log).expect("a folder").open().await
        });
        let engine = engine.expect("an engine");
        engine.start().expect("threads");
        let node = made(Node::new(engine, config, threads).expect("settings"));
        let node = Arc::new(node);
        let server = Server::start(&node, &[([127, 0, 0, 1], 0).into()], threads).expect("a server");
        Self { node, server: Some(server), folder: PathBuf::new() }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.as_ref().expect("it runs").addresses()[0]
    }

    /// A client that has just come.
    pub fn connect(&self) -> Client {
        Client::to(self.address())
    }

    /// Waits until it has ended by itself.
    pub fn join(&mut self) {
        if let Some(server) = self.server.take() {
            server.join().expect("all loops end well");
        }
    }

    /// Ends it and keeps its folder, for the next one.
    pub fn stop(mut self) -> PathBuf {
        self.node.stop.stop();
        self.join();
        self.node.engine.stop();
        // A thread that makes a checkpoint may hold the folder a little longer.
        let begin = Instant::now();
        while Arc::strong_count(&self.node) > 1 && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::take(&mut self.folder)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.node.stop.stop();
        let ended = self.server.take().map(Server::join);
        self.node.engine.stop();
        if self.folder != Path::new("") {
            // A background thread may still write; what is left is in the system's temporary folder.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
        // A test that failed has said why.
        if !std::thread::panicking() {
            ended.transpose().expect("all loops end well");
        }
    }
}

/// The value of a field in what INFO gives.
pub fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no field {name} in {info}"))
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or_default()
        << 10
}
