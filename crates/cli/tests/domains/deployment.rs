//! A deployment: a server process, its file of settings and its records in SQLite.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use umbel_client::Server;

/// How long something may take on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Deployment {
    pub(crate) name: &'static str,
    pub(crate) folder: PathBuf,
    port: u16,
    pub(crate) http_port: u16,
    process: Option<Child>,
    runtime: Runtime,
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Deployment {
    /// It is there, and not started yet.
    pub(crate) fn new(name: &'static str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("umbel-domain-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let deployment =
            Self { name, folder, port: free_port(), http_port: free_port(), process: None, runtime };
        let rows = deployment.rows();
        rows.execute_batch("CREATE TABLE records (number TEXT PRIMARY KEY, title TEXT, pages INTEGER)")
            .unwrap();
        deployment
    }

    pub(crate) fn rows(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.join("records.db")).unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http_port)
    }

    /// The settings that all of them have.
    pub(crate) fn usual(&self) -> String {
        format!(
            "domain = \"{}\"\n\n[catalogs.records]\nstale_after = \"3s\"\ndeadline = \"1s\"\nkept_for = \"30s\"\n\
             source = {{ sql = \"sqlite:{}\", table = \"records\", key = \"number\" }}\n",
            self.name,
            self.folder.join("records.db").display()
        )
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default()
    }

    pub(crate) fn serve(&self, settings: &str) -> Command {
        let file = self.folder.join("umbel.toml");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
        command
            .args(["serve", "--port", &self.port.to_string(), "--http-port", &self.http_port.to_string()])
            .args(["--durability", "always", "--config"])
            .arg(file)
            .arg("--data")
            .arg(self.folder.join("data"))
            .stdout(Stdio::null())
            .env_remove("UMBEL_SERVICES");
        command
    }

    pub(crate) fn start(&mut self, settings: &str) {
        let log =
            std::fs::File::options().append(true).create(true).open(self.folder.join("log.txt")).unwrap();
        self.process = Some(self.serve(settings).stderr(log).spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        while !self.is_ready() {
            assert!(Instant::now() < end, "{} does not answer: {}", self.name, self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.http_port)) else { return false };
        let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
        // Threads go on for a moment after the signal was sent.
        let is_stopped = || {
            let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
            let stats =
                threads.map(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
            stats.into_iter().all(|stat| stat.contains(") T "))
        };
        while signal == "-STOP" && !is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(&mut self) {
        self.signal("-TERM");
        assert!(self.process.take().unwrap().wait().unwrap().success(), "{}", self.said());
    }

    fn api(&self) -> Server {
        Server::new(&self.url(), None).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.runtime
            .block_on(self.api().post(path, body, PATIENCE))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, String> {
        self.runtime.block_on(self.api().get(path)).map_err(|error| error.to_string())
    }

    /// Makes the filter of the catalog.
    pub(crate) fn make_filter(&self, capacity: u32) {
        let new = json!({ "name": "records", "capacity": capacity, "error": 0.001, "kind": "counting" });
        self.post("/v1/filters", &new);
    }

    /// Adds a record, and its key to the filter.
    pub(crate) fn add(&self, number: &str, title: &str) {
        self.rows().execute("INSERT INTO records VALUES (?1, ?2, 100)", (number, title)).unwrap();
        self.post("/v1/filters/records/add", &json!({ "keys": [number] }));
    }

    pub(crate) fn erase(&self, number: &str) {
        assert_eq!(self.rows().execute("DELETE FROM records WHERE number = ?1", [number]).unwrap(), 1);
        self.post("/v1/filters/records/remove", &json!({ "keys": [number] }));
    }

    pub(crate) fn lookup(&self, key: &str, more: &str) -> Value {
        self.get(&format!("/v1/lookup/records/{key}{more}")).unwrap()
    }

    /// What is said of a key: each domain and its answer, the likeliest first.
    pub(crate) fn answers(&self, key: &str, more: &str) -> Vec<(String, String)> {
        words(&self.lookup(key, more))
    }

    /// Looks a key up until the answers are these.
    pub(crate) fn comes_to(&self, key: &str, more: &str, expected: &[(&str, &str)]) {
        let end = Instant::now() + PATIENCE;
        loop {
            let told = self.lookup(key, more);
            let mut is = words(&told);
            is.sort();
            if is.iter().map(|(domain, answer)| (&**domain, &**answer)).eq(expected.iter().copied()) {
                return;
            }
            assert!(Instant::now() < end, "{} says of {key}: {told:#}, not {expected:?}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all others are known from memory.
    pub(crate) fn has_copies(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let told = self.lookup("nothing", "");
            if told["domains"]
                .as_array()
                .unwrap()
                .iter()
                .all(|domain| domain["from"] == "filter" && domain["answer"] == "absent")
            {
                return;
            }
            assert!(Instant::now() < end, "{} has no copies: {told:#}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a Redis client gets.
    pub(crate) fn resp(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        stream.write_all(format!("{request}*1\r\n$4\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.strip_suffix("+OK\r\n").unwrap().to_owned()
    }

    /// The command, as people type it.
    pub(crate) fn umbel(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
        command.args(arguments).args(["--server", &self.url()]).output().unwrap()
    }
}

fn words(told: &Value) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let domains = told["domains"].as_array().unwrap();
    domains.iter().map(|domain| (word(&domain["domain"]), word(&domain["answer"]))).collect()
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} said: {}", self.name, self.said());
        }
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
