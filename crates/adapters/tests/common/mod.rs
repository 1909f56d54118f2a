//! Real servers, as `cargo xtask services` left them: found, stopped, paused and started again.
#![allow(dead_code, reason = "every test binary uses a part of it")]

pub(crate) mod own;
pub(crate) mod proxy;

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A server that tests may do anything to. Tests that do run one after another.
pub(crate) struct Service {
    pub(crate) name: &'static str,
    folder: PathBuf,
}

/// The service of a name, or nothing where it is known to be missing.
///
/// # Panics
/// When nobody started services, or, under CI, when just this one is missing.
pub(crate) fn service(name: &'static str) -> Option<Service> {
    let folder =
        std::env::var("UMBEL_SERVICES").expect("cargo xtask services start, and what it says to export");
    let folder = PathBuf::from(folder).join(name);
    if folder.join("address").exists() {
        return Some(Service { name, folder });
    }
    assert!(std::env::var_os("CI").is_none() || matches!(name, "kafka" | "brokers"), "{name} is missing");
    println!("{name} is NOT tested: it does not run here");
    None
}

impl Service {
    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap().trim().to_owned()
    }

    pub(crate) fn address(&self) -> String {
        self.read("address")
    }

    /// The same host and another port, so many behind.
    pub(crate) fn address_behind(&self, more: u16) -> String {
        let address = self.address();
        let (host, port) = address.rsplit_once(':').unwrap();
        format!("{host}:{}", port.parse::<u16>().unwrap() + more)
    }

    /// User and password, where the server wants some.
    pub(crate) fn login(&self) -> &'static str {
        if self.name == "rabbitmq" { "guest:guest@" } else { "" }
    }

    pub(crate) fn version(&self) -> String {
        self.read("version")
    }

    /// Makes a bucket in a server that speaks S3, and gives the URL of a place in it.
    pub(crate) fn bucket(&self) -> String {
        /// Of a body that is empty; older versions of curl do not say it themselves.
        const SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let (bucket, address) = (fresh("bucket"), self.address());
        let made = Command::new("curl")
            .args(["-sS", "-f", "-X", "PUT", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", "umbel:umbel"])
            .args(["-H", &format!("x-amz-content-sha256: {SHA256}")])
            .arg(format!("http://{address}/{bucket}"))
            .status();
        assert!(made.unwrap().success(), "{} makes no bucket", self.name);
        format!("s3://{bucket}/some/prefix?region=us-east-1&endpoint=http://{address}")
    }

    /// Tells RabbitMQ something by its own command.
    pub(crate) fn control_rabbitmq(&self, words: &[&str]) {
        let script = self.read("serve");
        let exports: Vec<_> = script.lines().filter(|line| line.starts_with("export ")).collect();
        let told = Command::new("sh")
            .args([
                "-c",
                &format!("{}\nexec /usr/lib/rabbitmq/bin/rabbitmqctl \"$@\"", exports.join("\n")),
                "sh",
            ])
            .args(words)
            .output()
            .unwrap();
        assert!(told.status.success(), "{words:?}: {}", String::from_utf8_lossy(&told.stderr));
    }

    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.read("pid"));
        Command::new("kill").args([signal, "--", &group]).status().unwrap();
    }

    /// Ends one broker of a cluster, as a crash does.
    pub(crate) fn kill_broker(&self, number: u32) {
        let pid = self.read(&format!("broker{number}.pid"));
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        while PathBuf::from(format!("/proc/{pid}/exe")).exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts that broker again. It is in the session of this test, so whoever stops the service does not reach it.
    pub(crate) fn start_broker(&self, number: u32) -> Broker {
        let output = std::fs::File::create(self.folder.join(format!("broker{number}.output"))).unwrap();
        let mut start = Command::new("sh");
        start.arg(self.folder.join("broker")).arg(number.to_string());
        Broker(start.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Stops one server of the ensemble, with all of its threads, so that it neither answers nor speaks to the others.
    pub(crate) fn pause_member(&self, number: u16) {
        let pid = self.read(&format!("server{number}.pid"));
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        self.wait_stopped(&pid);
    }

    /// Lets that server go on.
    pub(crate) fn resume_member(&self, number: u16) {
        let pid = self.read(&format!("server{number}.pid"));
        assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
    }

    pub(crate) fn pause(&self) {
        self.signal("-STOP");
        self.wait_stopped(&self.read("pid"));
    }

    /// Waits until every thread of a process is stopped: until then, one of them may still answer.
    fn wait_stopped(&self, pid: &str) {
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("State:\tT"))
        };
        let end = Instant::now() + Duration::from_secs(5);
        while !std::fs::read_dir(&tasks).unwrap().all(is_stopped) {
            assert!(Instant::now() < end, "{} does not pause", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&self) {
        self.signal("-KILL");
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(self.address()).is_ok() {
            assert!(Instant::now() < end, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has it listen on another port when it is started again.
    pub(crate) fn change_port(&self, from: u16, to: u16) {
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let file = entry.unwrap().path();
            let named =
                file.extension().is_some_and(|name| name == "cfg" || name == "conf" || name == "properties");
            if named || file.ends_with("serve") || file.ends_with("address") {
                let text = std::fs::read_to_string(&file).unwrap();
                std::fs::write(&file, text.replace(&from.to_string(), &to.to_string())).unwrap();
            }
        }
    }

    /// Starts it where it ended.
    pub(crate) fn start(&self) {
        assert!(Command::new("sh").arg(self.folder.join("start")).status().unwrap().success());
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(self.address()).is_err() {
            assert!(Instant::now() < end, "{} does not start", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A broker that a test started. It ends with it.
pub(crate) struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A name that no test had before, also in an earlier run against the same server.
pub(crate) fn fresh(what: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    format!("{what}-{time}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// What work comes to on a thread whose runtime has neither timers nor sockets, as those of the engine have.
pub(crate) fn elsewhere<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let bare = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::spawn(move || bare().block_on(work)).join().unwrap()
}

/// A row of the table that `cargo xtask planes` prints.
pub(crate) fn passed(service: &Service, plane: &str, case: &str, detail: impl std::fmt::Display) {
    println!("PASSED|{}|{}|{plane}|{case}|{detail}", service.name, service.version());
}
