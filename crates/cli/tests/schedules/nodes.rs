//! Nodes of a cluster and the engines that they stand on, each on a machine of its own.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::engines::{Engine, Engines};
use crate::machine::{Clocks, Machine};
use crate::network::Network;
use crate::relay::Relay;

const SECRET: &str = "what all nodes of the test know";
pub(crate) const LEASE: Duration = Duration::from_secs(2);
pub(crate) const PORT: u16 = 6380;
/// The relay to the first server of the registry listens here on each node's machine, to the next one at the next port.
const RELAY_PORT: u16 = 7001;
/// How long anything may take until it is as it should be.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// A client gives up a request after this time, and asks another node.
const ANSWER: Duration = Duration::from_secs(4);

/// A node, by its place among all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node(pub(crate) usize);

impl fmt::Debug for Node {
    /// What it is called.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.0 + 1)
    }
}

/// A machine, by what is on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Node(Node),
    Engine(Engine),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Engine(engine) => engine.fmt(f),
        }
    }
}

/// A cluster, and what it stands on.
pub(crate) struct Nodes {
    // Before the network, so that processes end before their machines.
    pub(crate) nodes: Vec<Machine>,
    machines: Vec<(Engine, Machine)>,
    pub(crate) engines: Engines,
    clocks: Clocks,
    pub(crate) network: Network,
}

impl Nodes {
    pub(crate) fn start(count: u8, engines: Engines) -> Self {
        let all = engines.all();
        // One more for a node that should not be there.
        let network = Network::new(count + all.len() as u8 + 1);
        let nodes: Vec<Machine> = (1..=count).map(|number| Machine::new(&network, number)).collect();
        let machine = |(engine, number)| (engine, Machine::new(&network, number));
        let machines = all.into_iter().zip(count + 1..).map(machine).collect();
        let mut all = Self { nodes, machines, engines, clocks: Clocks::new(), network };
        for node in 0..all.nodes.len() {
            all.nodes[node].relay = Some(all.relay(&all.nodes[node]));
        }
        all.settle();
        all
    }

    /// Seconds since 1970, as a node knows them, or an engine whose clock can be set.
    pub(crate) fn time_at(&mut self, place: Place) -> Result<i64, String> {
        let port = if let Place::Engine(engine) = place { engine.port() } else { PORT };
        let reply = call_at(at(&self.machine(place).address, port), &words("TIME"))?;
        Ok(reply.list()[0].text().parse().unwrap())
    }

    pub(crate) fn machine(&mut self, place: Place) -> &mut Machine {
        match place {
            Place::Node(Node(node)) => &mut self.nodes[node],
            Place::Engine(engine) => {
                let found = self.machines.iter_mut().find(|(other, _)| *other == engine);
                &mut found.expect("an engine of this cluster").1
            }
        }
    }

    /// All machines but that of a twin.
    pub(crate) fn all_machines(&mut self) -> impl Iterator<Item = &mut Machine> {
        self.nodes.iter_mut().chain(self.machines.iter_mut().map(|(_, machine)| machine))
    }

    /// Starts what is not running, and does not wait for it.
    pub(crate) fn launch(&mut self, place: Place) {
        if self.machine(place).is_running() {
            return;
        }
        match place {
            Place::Node(node) => {
                let mut command = self.serve(&self.nodes[node.0], node);
                self.nodes[node.0].spawn(&self.clocks, &mut command);
            }
            Place::Engine(engine) => {
                let found = self.machines.iter_mut().find(|(other, _)| *other == engine);
                let machine = &mut found.expect("an engine of this cluster").1;
                machine.spawn(&self.clocks, &mut engine.command(&self.network, machine));
            }
        }
    }

    /// A node on another machine with a name that is taken.
    pub(crate) fn start_twin(&self, node: Node) -> Machine {
        let mut twin = Machine::new(&self.network, (self.nodes.len() + self.machines.len()) as u8 + 1);
        twin.relay = Some(self.relay(&twin));
        let mut command = self.serve(&twin, node);
        twin.spawn(&self.clocks, &mut command);
        twin
    }

    /// Starts what does not run, and waits until every node has all that it should.
    pub(crate) fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        // Servers of one engine wait for each other.
        self.engines.all().into_iter().for_each(|engine| self.launch(Place::Engine(engine)));
        for index in 0..self.machines.len() {
            let engine = self.machines[index].0;
            while !engine.is_there(&self.machines[index].1.address) {
                assert!(
                    Instant::now() < end,
                    "{engine:?} does not listen: {}",
                    self.machines[index].1.said()
                );
                std::thread::sleep(Duration::from_millis(20));
                self.launch(Place::Engine(engine));
            }
        }
        let nodes: Vec<Node> = (0..self.nodes.len()).map(Node).collect();
        nodes.iter().for_each(|node| self.launch(Place::Node(*node)));
        for node in nodes {
            while !is_ready(&self.nodes[node.0].address) {
                // One whose name another one had meanwhile has ended.
                self.launch(Place::Node(node));
                assert!(Instant::now() < end, "{node:?} is not ready");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn address(&self, engine: Engine) -> String {
        let found = self.machines.iter().find(|(other, _)| *other == engine);
        found.expect("an engine of this cluster").1.address.clone()
    }

    /// Where the relay of a node's machine listens for each server of the registry, and that server.
    fn routes(&self, machine: &Machine) -> Vec<(String, String)> {
        let servers = self.engines.registry.iter().map(|server| (self.address(*server), server.port()));
        let routes = servers.zip(RELAY_PORT..).map(|((server, port), listen)| {
            (format!("{}:{listen}", machine.address), format!("{server}:{port}"))
        });
        routes.collect()
    }

    fn relay(&self, machine: &Machine) -> Relay {
        Relay::start(&self.network, machine.number, &self.routes(machine))
    }

    /// The server of the registry to which a node is connected, if there is one.
    pub(crate) fn registry_server(&self, node: Node) -> Option<Engine> {
        let mut list = self.network.command(self.nodes[node.0].number, "ss");
        let sockets =
            String::from_utf8(list.args(["-Htn", "state", "established"]).output().unwrap().stdout).unwrap();
        let is_used = |server: &Engine| {
            let peer = format!("{}:{}", self.address(*server), server.port());
            sockets.lines().any(|line| line.split_whitespace().last() == Some(&*peer))
        };
        self.engines.registry.iter().copied().find(is_used)
    }

    fn serve(&self, machine: &Machine, node: Node) -> Command {
        let registry: Vec<String> = self.routes(machine).into_iter().map(|(listen, _)| listen).collect();
        let mut command = self.network.command(machine.number, env!("CARGO_BIN_EXE_umbel"));
        command
            .args([
                "serve",
                "--cluster",
                "test",
                "--node",
                &format!("{node:?}"),
                "--slots",
                "32",
                "--threads",
                "1",
            ])
            .args(["--cluster-lease", &format!("{}s", LEASE.as_secs()), "--checkpoint-every", "2s"])
            .args(["--bind", &machine.address, "--port", &PORT.to_string()])
            .args(["--allow-public-without-password", "yes", "--protected-mode", "no"])
            .args(self.engines.planes(|engine| self.address(engine), &registry))
            .arg("--data")
            .arg(machine.folder.join("data"))
            .env("UMBEL_CLUSTER_SECRET", SECRET)
            // S3's server takes anybody, but a node has to be somebody.
            .envs([("AWS_ACCESS_KEY_ID", "umbel"), ("AWS_SECRET_ACCESS_KEY", "umbel")]);
        for name in ["UMBEL_SERVICES", "UMBEL_SCHEDULES", "UMBEL_SCHEDULE_SEED", "UMBEL_SCHEDULE_ENGINES"] {
            command.env_remove(name);
        }
        command
    }
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
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
    call_at(at(address, PORT), words)
}

/// The reply of whoever speaks as Redis does.
pub(crate) fn call_at(address: SocketAddr, words: &[String]) -> Result<Value, String> {
    let mut connection = Connection::open(address, ANSWER)?;
    connection.send(words)?;
    connection.receive()
}

/// A client's connection, on which requests may follow one another before their replies.
pub(crate) struct Connection {
    socket: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Connection {
    /// Connects; waits for each reply no longer than this.
    pub(crate) fn open(address: SocketAddr, patience: Duration) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let socket = TcpStream::connect_timeout(&address, Duration::from_millis(500)).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_read_timeout(Some(patience)).map_err(failed)?;
        let replies = BufReader::new(socket.try_clone().map_err(failed)?);
        Ok(Self { socket, replies })
    }

    /// Another handle on it, to send while replies are waited for.
    pub(crate) fn sender(&self) -> TcpStream {
        self.socket.try_clone().unwrap()
    }

    pub(crate) fn send(&mut self, words: &[String]) -> Result<(), String> {
        self.socket.write_all(&request(words)).map_err(|error| error.to_string())
    }

    pub(crate) fn receive(&mut self) -> Result<Value, String> {
        read(&mut self.replies)
    }
}

/// A request as it is sent.
pub(crate) fn request(words: &[String]) -> Vec<u8> {
    let words_text = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words_text.collect::<String>()).into_bytes()
}

fn read(input: &mut impl BufRead) -> Result<Value, String> {
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
