//! A real server in this process, and clients that speak bytes.

// Each test uses what it needs of it.
#![allow(dead_code, unreachable_pub, reason = "shared by several test programs")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{Engine, Settings};
use umbel_core::log;
use umbel_server::config::Config;
use umbel_server::node::Node;
use umbel_server::server::Server;

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing has to come before there is nothing.
const SILENCE: Duration = Duration::from_millis(100);

/// A server on a free port and a folder of its own. It ends when it is dropped.
pub struct Running {
    pub node: Arc<Node>,
    server: Option<Server>,
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

/// Starts a server with other settings than the defaults.
pub fn start_with(folder: PathBuf, set: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    set(&mut config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let engine = runtime.block_on(async {
        let builder = Engine::builder(Settings::default());
        builder.in_folder(&disk, &folder, &log::Settings::new(&folder)).expect("a folder").open().await
    });
    let engine = engine.expect("an engine");
    engine.start().expect("threads");
    let node = Arc::new(Node::new(engine, config, 2).expect("settings"));
    let server = Server::start(&node, &[([127, 0, 0, 1], 0).into()], 2).expect("a server");
    Running { node, server: Some(server), folder }
}

pub fn new_folder() -> PathBuf {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("umbel-server-{}-{number}", std::process::id()))
}

impl Running {
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
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
        self.node.engine.stop();
        if self.folder != Path::new("") {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A client that sends bytes and gets bytes.
pub struct Client {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Client {
    /// A client of any server.
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Self { stream, rest: Vec::new() }
    }

    /// Sends bytes and waits for nothing.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("bytes are sent");
    }

    /// Sends a line, and gives the one reply to it.
    pub fn ask(&mut self, line: &str) -> String {
        self.write(format!("{line}\r\n").as_bytes());
        self.reply()
    }

    /// Sends words, and gives the one reply to them.
    pub fn send(&mut self, words: &[&[u8]]) -> String {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.write(&bytes);
        self.reply()
    }

    /// The next reply, whole.
    pub fn reply(&mut self) -> String {
        String::from_utf8_lossy(&self.reply_bytes()).into_owned()
    }

    /// The bytes of the next reply, which may be no text.
    pub fn reply_bytes(&mut self) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(end) = end_of(&self.rest, 0) {
                return self.rest.drain(..end).collect();
            }
            let got = self.read(until.saturating_duration_since(Instant::now()));
            assert!(got, "no whole reply: {:?}", String::from_utf8_lossy(&self.rest));
        }
    }

    /// Whether nothing comes for a while.
    pub fn is_silent(&mut self) -> bool {
        self.rest.is_empty() && !self.read(SILENCE) && self.rest.is_empty()
    }

    /// Whether the server has ended the connection and sent nothing more.
    pub fn is_closed(&mut self) -> bool {
        self.stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        let mut byte = [0];
        self.rest.is_empty() && matches!(self.stream.read(&mut byte), Ok(0) | Err(_))
    }

    /// Reads something; not, if nothing comes.
    fn read(&mut self, patience: Duration) -> bool {
        let patience = patience.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(patience)).expect("an option");
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(bytes) => {
                self.rest.extend_from_slice(&buffer[..bytes]);
                bytes > 0
            }
            Err(_) => false,
        }
    }
}

/// Where the reply at a place ends, if all of it is there.
fn end_of(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
    let after = at + line + 2;
    let number = || std::str::from_utf8(&bytes[at + 1..at + line]).ok()?.parse::<i64>().ok();
    let children = match bytes[at] {
        b'$' | b'=' => {
            let Ok(length) = usize::try_from(number()?) else { return Some(after) };
            return (bytes.len() >= after + length + 2).then_some(after + length + 2);
        }
        b'*' | b'~' | b'>' => number()?,
        b'%' => 2 * number()?,
        _ => 0,
    };
    let mut end = after;
    for _ in 0..children {
        end = end_of(bytes, end)?;
    }
    Some(end)
}

/// The value of a field in what INFO gives.
pub fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no field {name} in {info}"))
}
