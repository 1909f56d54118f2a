//! Nodes of a cluster and the Redis that they stand on, each on a machine of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::network::Network;

const SECRET: &str = "what all nodes of the test know";
pub(crate) const LEASE: Duration = Duration::from_secs(2);
const PORT: u16 = 6380;
const REDIS_PORT: u16 = 6379;
/// How long anything may take until it is as it should be.
const PATIENCE: Duration = Duration::from_secs(90);
/// A client gives up a request after this time, and asks another node.
const ANSWER: Duration = Duration::from_secs(4);

/// A process on a machine, which can be killed and started again with the files that it has.
pub(crate) struct Machine {
    pub(crate) number: u8,
    pub(crate) address: String,
    folder: PathBuf,
    process: Option<Child>,
}

impl Machine {
    fn new(network: &Network, number: u8) -> Self {
        let name = format!("umbel-schedule-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self { number, address: network.address(number), folder, process: None }
    }

    fn spawn(&mut self, command: &mut Command) {
        let log = std::fs::File::options().append(true).create(true).open(self.folder.join("log.txt"));
        let command = command.stdout(Stdio::null()).stderr(log.unwrap());
        self.process = Some(command.spawn().unwrap());
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default()
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            process.wait().unwrap();
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.try_wait().unwrap().is_none())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("UMBEL_SCHEDULE_HOLD").is_some() {
            // For whoever wants to look at it: all goes on until this process is ended.
            eprintln!("machine {} is at {}", self.number, self.address);
            std::thread::sleep(Duration::from_secs(3600));
        }
        self.kill();
        if std::thread::panicking() {
            let said = self.said();
            let lines: Vec<_> = said.lines().collect();
            eprintln!("== machine {}\n{}", self.number, lines[lines.len().saturating_sub(60)..].join("\n"));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A cluster, and what it stands on.
pub(crate) struct Nodes {
    // Before the network, so that processes end before their machines.
    pub(crate) nodes: Vec<Machine>,
    pub(crate) redis: Machine,
    pub(crate) network: Network,
}

impl Nodes {
    pub(crate) fn start(count: u8) -> Self {
        // One more for Redis, and one for a node that should not be there.
        let network = Network::new(count + 2);
        let nodes = (1..=count).map(|number| Machine::new(&network, number)).collect();
        let redis = Machine::new(&network, count + 1);
        let mut nodes = Self { nodes, redis, network };
        nodes.start_redis();
        (0..nodes.nodes.len()).for_each(|node| nodes.start_node(node));
        nodes.settle();
        nodes
    }

    pub(crate) fn start_redis(&mut self) {
        let mut command = self.network.command(self.redis.number, "redis-server");
        command.args([
            "--bind",
            &self.redis.address,
            "--port",
            &REDIS_PORT.to_string(),
            "--protected-mode",
            "no",
        ]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir"]);
        command.arg(&self.redis.folder);
        self.redis.spawn(&mut command);
        let (end, address) = (Instant::now() + PATIENCE, at(&self.redis.address, REDIS_PORT));
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
            assert!(Instant::now() < end, "Redis does not listen: {}", self.redis.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn start_node(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let (name, folder) = (format!("node{}", node.number), node.folder.join("data"));
        let mut command = serve(&self.network, node.number, &self.redis.address, &name);
        node.spawn(command.arg("--data").arg(folder));
    }

    /// A node on another machine with a name that is taken.
    pub(crate) fn start_twin(&self, node: usize) -> Machine {
        let mut twin = Machine::new(&self.network, self.redis.number + 1);
        let name = format!("node{}", self.nodes[node].number);
        let mut command = serve(&self.network, twin.number, &self.redis.address, &name);
        let folder = twin.folder.join("data");
        twin.spawn(command.arg("--data").arg(folder));
        twin
    }

    /// Starts what does not run, and waits until every node has all that it should.
    pub(crate) fn settle(&mut self) {
        if !self.redis.is_running() {
            self.start_redis();
        }
        let end = Instant::now() + PATIENCE;
        for node in 0..self.nodes.len() {
            while !is_ready(&self.nodes[node].address) {
                // One whose name another one had meanwhile has ended.
                if !self.nodes[node].is_running() {
                    self.start_node(node);
                }
                assert!(Instant::now() < end, "machine {} is not ready", self.nodes[node].number);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

fn serve(network: &Network, machine: u8, redis: &str, name: &str) -> Command {
    let plane = format!("redis://{redis}:{REDIS_PORT}/umbel");
    let mut command = network.command(machine, env!("CARGO_BIN_EXE_umbel"));
    command
        .args(["serve", "--cluster", "test", "--node", name, "--slots", "32", "--threads", "1"])
        .args(["--cluster-lease", &format!("{}s", LEASE.as_secs()), "--checkpoint-every", "2s"])
        .args(["--bind", &network.address(machine), "--port", &PORT.to_string()])
        .args(["--allow-public-without-password", "yes", "--protected-mode", "no"])
        .args(["--log", &format!("{plane}?partitions=8&timeout_ms=2000")])
        .args([
            "--blobs",
            &format!("{plane}?timeout_ms=2000"),
            "--registry",
            &format!("{plane}?timeout_ms=1000"),
        ])
        .env("UMBEL_CLUSTER_SECRET", SECRET)
        .env_remove("UMBEL_SCHEDULES")
        .env_remove("UMBEL_SCHEDULE_SEED");
    command
}

fn at(address: &str, port: u16) -> SocketAddr {
    format!("{address}:{port}").parse().unwrap()
}

fn is_ready(address: &str) -> bool {
    let Ok(mut socket) = TcpStream::connect_timeout(&at(address, PORT + 1), Duration::from_millis(300))
    else {
        return false;
    };
    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
    let asked = socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    asked.is_ok() && socket.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn list(&self) -> &[Self] {
        if let Self::List(all) = self { all } else { &[] }
    }

    pub(crate) fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    /// What stands behind a word in a map.
    pub(crate) fn field(&self, name: &str) -> &Self {
        let found = self.list().chunks(2).find(|pair| pair[0].text() == name);
        found.map_or(self, |pair| &pair[1])
    }
}

/// A node's reply, or why there is none.
pub(crate) fn call(address: &str, words: &[String]) -> Result<Value, String> {
    let failed = |error: std::io::Error| error.to_string();
    let socket =
        TcpStream::connect_timeout(&at(address, PORT), Duration::from_millis(500)).map_err(failed)?;
    socket.set_read_timeout(Some(ANSWER)).map_err(failed)?;
    let words_text = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let command = format!("*{}\r\n{}", words.len(), words_text.collect::<String>());
    (&socket).write_all(command.as_bytes()).map_err(failed)?;
    read(&mut BufReader::new(&socket))
}

fn read(input: &mut BufReader<&TcpStream>) -> Result<Value, String> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|error| error.to_string())?;
    let line = line.strip_suffix("\r\n").ok_or("the connection was closed")?;
    let number = || line[1..].parse::<i64>().map_err(|_| line.to_owned());
    match line.as_bytes().first() {
        Some(b':') => Ok(Value::Number(number()?)),
        Some(b'+') => Ok(Value::Text(line[1..].to_owned())),
        Some(b'$') => {
            let mut text = vec![0; number()? as usize + 2];
            input.read_exact(&mut text).map_err(|error| error.to_string())?;
            text.truncate(text.len() - 2);
            Ok(Value::Text(String::from_utf8_lossy(&text).into_owned()))
        }
        Some(b'*') => (0..number()?).map(|_| read(input)).collect::<Result<_, _>>().map(Value::List),
        _ => Err(line.to_owned()),
    }
}

/// Words between spaces.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}
