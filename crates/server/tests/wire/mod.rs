//! A server in this process, and a client of bytes: no library stands between a test and what is on the wire.
#![allow(dead_code, unreachable_pub, reason = "every test binary takes what it needs")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbel_core::disk::{Disk, MemoryDisk, RealDisk};
use umbel_core::engine::{Engine, Settings};
use umbel_core::log;
use umbel_server::config::Config;
use umbel_server::node::Node;
use umbel_server::server::Server;

/// Longest time that a reply may take on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that listens on a port of its own.
pub struct World {
    pub node: Arc<Node>,
    pub server: Server,
    /// Removed in the end.
    folder: Option<PathBuf>,
}

impl World {
    /// A server whose files are in memory.
    pub fn start(threads: usize) -> Self {
        Self::start_on(&(Arc::new(MemoryDisk::default()) as _), Path::new("/data"), threads)
    }

    /// A server with real files, for tests that measure memory.
    pub fn start_on_files(threads: usize) -> Self {
        let name = format!("umbel-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name);
        let world = Self::start_on(&(Arc::new(RealDisk) as _), &folder, threads);
        Self { folder: Some(folder), ..world }
    }

    /// The one place where tests start a server.
    fn start_on(disk: &Arc<dyn Disk>, folder: &Path, threads: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let engine = runtime.block_on(async {
            // A small memory, so that what takes too much of it is refused before the machine is in trouble.
            let settings = Settings { memory_bytes: 256 << 20, ..Settings::default() };
            let log = log::Settings { segment_bytes: 4 << 20, ..log::Settings::new(folder) };
            Engine::builder(settings).in_folder(disk, folder, &log)?.open().await
        });
        let engine = engine.expect("an engine");
        engine.start().expect("the engine's threads");
        let node = Arc::new(Node::new(engine, Config::default(), threads).expect("a node"));
        let server = Server::start(&node, &[([127, 0, 0, 1], 0).into()], threads).expect("a server");
        Self { node, server, folder: None }
    }

    /// Ends the server and removes its files.
    pub fn end(self) {
        self.node.stop.stop();
        self.server.join().expect("no event loop fails");
        if let Some(folder) = self.folder {
            // A background thread may still write; what is left is in the system's temporary folder.
            let _ = std::fs::remove_dir_all(folder);
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    pub fn connect(&self) -> Wire {
        Wire::connect(self.address())
    }
}

/// What a server says.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(String),
    Error(String),
    Integer(i64),
    Boolean(bool),
    Double(f64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Value>),
    /// Keys and values in turn.
    Map(Vec<Value>),
}

impl Value {
    /// Yes or no, in either version of the protocol.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Self::Boolean(truth) => Some(*truth),
            Self::Integer(0) => Some(false),
            Self::Integer(1) => Some(true),
            _ => None,
        }
    }

    pub fn error(&self) -> Option<&str> {
        if let Self::Error(text) = self { Some(text) } else { None }
    }

    /// What a map says under a name, in either version of the protocol.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let (Self::Map(pairs) | Self::Array(pairs)) = self else { return None };
        let named = |key: &Value| match key {
            Value::Simple(key) => key == name,
            Value::Bulk(key) => key == name.as_bytes(),
            _ => false,
        };
        pairs.chunks(2).find(|pair| named(&pair[0])).map(|pair| &pair[1])
    }
}

/// A connection.
pub struct Wire {
    pub stream: TcpStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Wire {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit of time");
        stream.set_write_timeout(Some(PATIENCE)).expect("a limit of time");
        Self { stream, buffer: Vec::new(), at: 0 }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("bytes are sent");
    }

    /// Sends a command and reads its reply.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Value {
        self.send(&encode(words));
        self.read()
    }

    /// As [`Wire::call`], with words that are parted by blanks.
    pub fn ask(&mut self, line: &str) -> Value {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    pub fn read(&mut self) -> Value {
        self.try_read().expect("a reply before the connection ends")
    }

    /// A reply, or nothing if the server has ended the connection.
    pub fn try_read(&mut self) -> Option<Value> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
        }
        let line = self.line()?;
        let text = || String::from_utf8_lossy(&line[1..]).into_owned();
        let count = || text().parse::<i64>().expect("a number");
        Some(match line[0] {
            b'+' => Value::Simple(text()),
            b'-' => Value::Error(text()),
            b':' => Value::Integer(count()),
            b'#' => Value::Boolean(line[1] == b't'),
            b',' => Value::Double(text().parse().expect("a number")),
            b'_' => Value::Null,
            b'$' | b'=' if count() < 0 => Value::Null,
            b'$' | b'=' => Value::Bulk(self.take(count() as usize)?),
            b'*' if count() < 0 => Value::Null,
            b'*' | b'~' | b'>' => Value::Array((0..count()).map(|_| self.try_read()).collect::<Option<_>>()?),
            b'%' => Value::Map((0..2 * count()).map(|_| self.try_read()).collect::<Option<_>>()?),
            other => panic!("a reply begins with {:?}", char::from(other)),
        })
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = rest[..end].to_vec();
                self.at += end + 2;
                return Some(line);
            }
            self.more()?;
        }
    }

    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < self.at + bytes + 2 {
            self.more()?;
        }
        let taken = self.buffer[self.at..self.at + bytes].to_vec();
        self.at += bytes + 2;
        Some(taken)
    }

    fn more(&mut self) -> Option<()> {
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => None,
            Ok(bytes) => {
                self.buffer.extend_from_slice(&chunk[..bytes]);
                Some(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => None,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// Speaks version 3 of the protocol; whether the server can.
    pub fn speak_resp3(&mut self) -> bool {
        self.ask("HELLO 3").error().is_none()
    }
}

/// A command as clients send it.
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Chance that a seed repeats.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// A seed from the environment, or a new one; printed, so that a failure can be repeated.
pub fn seed(name: &str) -> u64 {
    let seed = std::env::var(name).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
        now.as_nanos() as u64 & 0xffff_ffff
    });
    println!("{name}={seed} repeats this");
    seed
}

/// A number from the environment, or the usual one.
pub fn number_or(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |number| number.parse().expect("a number"))
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or_default()
        << 10
}
