//! A real server of Redis.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of Redis in a folder of its own; both end with the test.
pub(crate) struct Redis {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Redis {
    /// With these options besides.
    pub(crate) fn start(options: &[&str]) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("umbel-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // One that speaks TLS speaks nothing else.
        let flag = if options.contains(&"--tls-cert-file") { "--tls-port" } else { "--port" };
        let process = Command::new("redis-server")
            .args(["--port", "0", flag, &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&folder)
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { process, folder, port };
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        redis
    }

    /// Stops it, and lets it go on.
    #[allow(dead_code, reason = "not every test does")]
    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
