//! A server process that can be killed and started again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Server {
    process: Option<Child>,
    folder: PathBuf,
    port: u16,
    http_port: u16,
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Server {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("umbel-faulty-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut server = Self { process: None, folder, port: free_port(), http_port: free_port() };
        server.start();
        server
    }

    pub(crate) fn http_port(&self) -> u16 {
        self.http_port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http_port)
    }

    pub(crate) fn redis_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn start(&mut self) {
        let log =
            std::fs::File::options().append(true).create(true).open(self.folder.join("log.txt")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_umbel"))
            .args(["serve", "--port", &self.port.to_string(), "--http-port", &self.http_port.to_string()])
            .args(["--publish-interval", "100ms", "--checkpoint-every", "1s"])
            .arg("--data")
            .arg(self.folder.join("data"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let end = Instant::now() + Duration::from_secs(30);
        while !self.is_ready() {
            let said = || std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default();
            assert!(Instant::now() < end, "the server does not answer: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it serves: its ports are open before that.
    fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.http_port)) else { return false };
        let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
