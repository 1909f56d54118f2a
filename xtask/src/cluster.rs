//! A cluster on this machine, with the engines that it stands on, to be played with.
//!
//! A node is a folder below `target/cluster` with its data, what it says (`output`), and its `pid`. Beside them stand the addresses of the
//! engines (`planes`) and the command that nodes are started with (`command`), for those that are added later.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Subcommand, ValueEnum};

use crate::planes;
use crate::server::{given, is_ready};
use crate::services;
use crate::step::{self, Failure, command, root};

const NAME: &str = "local";
const SECRET: &str = "known to all who can read this file";
/// Node 1 listens on the next ports.
const RESP_PORT: u16 = 7400;
const HTTP_PORT: u16 = 7500;
/// Partitions of the log, for few nodes.
pub(crate) const PARTITIONS: u32 = 64;
const READY: Duration = Duration::from_secs(120);
/// Files of the cluster's folder.
const PLANES: &str = "planes";
const COMMAND: &str = "command";

#[derive(Subcommand)]
pub(crate) enum What {
    /// Starts engines and nodes, and says how to talk to them
    Up {
        /// How many nodes
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=50))]
        nodes: u16,
        /// What they stand on
        #[arg(long, value_enum, default_value_t = Engines::Redis)]
        engines: Engines,
        /// The command, if not one that is built for it, without optimisations
        #[arg(long, value_name = "PATH")]
        umbel: Option<PathBuf>,
    },
    /// Starts one more node, or one that was killed
    Add {
        /// Its number
        number: u16,
    },
    /// Kills a node, without a word to the others
    Kill {
        /// Its number
        number: u16,
    },
    /// Says which nodes run
    Status,
    /// Ends everything, and throws its data away
    Down,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Engines {
    /// One Redis for log, blobs and registry
    Redis,
    /// The log in Kafka, blobs in S3, the registry in etcd
    Kafka,
    /// The registry in ZooKeeper, log and blobs in one Redis
    Zookeeper,
}

/// What a cluster is made of.
pub(crate) struct Setup<'a> {
    pub(crate) nodes: u16,
    pub(crate) engines: Engines,
    /// Of the log: what nodes host is divided no further.
    pub(crate) partitions: u32,
    /// The command, if it need not be built.
    pub(crate) umbel: Option<&'a Path>,
}

/// A cluster that goes down with this value, whatever happens.
pub(crate) struct Up;

impl Up {
    pub(crate) fn new(setup: &Setup) -> Result<Self, Failure> {
        let up = Self;
        start(setup)?;
        Ok(up)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Err(error) = down() {
            eprintln!("the cluster is not down: {error}; cargo xtask cluster down");
        }
    }
}

impl Engines {
    /// The engine of each plane.
    fn planes(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::Redis => [("--log", "redis"), ("--blobs", "redis"), ("--registry", "redis")],
            Self::Kafka => [("--log", "kafka"), ("--blobs", "s3"), ("--registry", "etcd")],
            Self::Zookeeper => [("--log", "redis"), ("--blobs", "redis"), ("--registry", "zookeeper")],
        }
    }

    /// As it is chosen.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Kafka => "kafka",
            Self::Zookeeper => "zookeeper",
        }
    }

    pub(crate) fn services(self) -> Vec<String> {
        let mut names: Vec<String> = self.planes().iter().map(|(_, name)| (*name).to_owned()).collect();
        names.dedup();
        names
    }
}

pub(crate) fn run(what: &What) -> Result<(), Failure> {
    match what {
        What::Up { nodes, engines, umbel } => up(*nodes, *engines, umbel.as_deref()),
        What::Add { number } => add(*number),
        What::Kill { number } => kill(*number),
        What::Status => status(),
        What::Down => down(),
    }
}

fn folder() -> PathBuf {
    root().join("target/cluster")
}

fn up(nodes: u16, engines: Engines, umbel: Option<&Path>) -> Result<(), Failure> {
    start(&Setup { nodes, engines, partitions: PARTITIONS, umbel })?;
    println!("\nA cluster of {nodes} nodes. Any of them answers for all:");
    for number in 1..=nodes {
        println!("  redis-cli -p {} bf.add urls https://example.org/{number}", port(number));
    }
    println!("  {} status --server {}", umbel_command()?.display(), http(1));
    println!("  cargo xtask cluster kill 1; cargo xtask cluster add {}; cargo xtask cluster down", nodes + 1);
    Ok(())
}

/// Starts engines and nodes, and waits until all nodes serve. What was there before is gone.
fn start(setup: &Setup) -> Result<(), Failure> {
    let umbel = match setup.umbel {
        Some(path) => given(path)?,
        None => {
            planes::prepare()?;
            // As the tests build it: with other packages or features, it would be built again.
            step::run("build", &mut command("cargo build --workspace --features umbel/full"))?;
            root().join("target/debug/umbel")
        }
    };
    down()?;
    // Before engines start: where it is, there is something to take down.
    std::fs::create_dir_all(folder())?;
    services::start(&setup.engines.services())?;
    let mut arguments = Vec::new();
    for (flag, service) in setup.engines.planes() {
        arguments.extend([flag.to_owned(), address(service, flag, setup.partitions)?]);
    }
    std::fs::write(folder().join(PLANES), arguments.join("\n"))?;
    std::fs::write(folder().join(COMMAND), umbel.as_os_str().as_encoded_bytes())?;
    (1..=setup.nodes).try_for_each(launch)?;
    (1..=setup.nodes).try_for_each(wait)
}

/// The port at which a node speaks RESP.
pub(crate) fn port(number: u16) -> u16 {
    RESP_PORT + number
}

/// The port at which a node speaks HTTP.
pub(crate) fn http_port(number: u16) -> u16 {
    HTTP_PORT + number
}

/// Where that is, for commands of ours.
pub(crate) fn http(number: u16) -> String {
    format!("http://127.0.0.1:{}", http_port(number))
}

/// What the cluster calls a node: as `umbel plan --nodes` does, so that its ring is this cluster's.
pub(crate) fn name(number: u16) -> String {
    format!("node-{number}")
}

/// The command that nodes were started with.
pub(crate) fn umbel_command() -> Result<PathBuf, Failure> {
    Ok(recorded(COMMAND)?.into())
}

/// Where the cluster's registry is.
pub(crate) fn registry() -> Result<String, Failure> {
    let arguments = recorded(PLANES)?;
    let mut words = arguments.lines().skip_while(|word| *word != "--registry");
    Ok(words.nth(1).ok_or("the cluster has no registry")?.to_owned())
}

fn recorded(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(folder().join(file))
        .map_err(|_| "there is no cluster: cargo xtask cluster up".into())
}

/// The address of a plane on a service.
fn address(service: &str, flag: &str, partitions: u32) -> Result<String, Failure> {
    let at = services::address(service)?;
    let partitions = if flag == "--log" { format!("?partitions={partitions}") } else { String::new() };
    if service != "s3" {
        return Ok(format!("{service}://{at}/{NAME}{partitions}"));
    }
    let mut bucket = TcpStream::connect(&at)?;
    write!(bucket, "PUT /{NAME} HTTP/1.1\r\nhost: {at}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    bucket.read_to_end(&mut Vec::new())?;
    Ok(format!("s3://{NAME}/umbel?endpoint=http://{at}&region=us-east-1"))
}

/// Starts one more node, or one that was killed, and waits until it serves.
pub(crate) fn add(number: u16) -> Result<(), Failure> {
    launch(number)?;
    wait(number)?;
    println!("node {number} serves: redis-cli -p {}", port(number));
    Ok(())
}

fn place(number: u16) -> PathBuf {
    folder().join(name(number))
}

fn launch(number: u16) -> Result<(), Failure> {
    let planes = recorded(PLANES)?;
    if let Some(pid) = process(number) {
        return Err(format!("node {number} runs already, as process {pid}").into());
    }
    let place = place(number);
    std::fs::create_dir_all(&place)?;
    let output = std::fs::File::create(place.join("output"))?;
    // In a session of its own: it outlives this chore.
    let process = Command::new("setsid")
        .arg(umbel_command()?)
        .args(["serve", "--cluster", NAME, "--node", &name(number), "--threads", "1"])
        .args(["--port", &port(number).to_string(), "--http-port", &http_port(number).to_string()])
        .args(planes.lines())
        .arg("--data")
        .arg(place.join("data"))
        .env("UMBEL_CLUSTER_SECRET", SECRET)
        .env("AWS_ACCESS_KEY_ID", "umbel")
        .env("AWS_SECRET_ACCESS_KEY", "umbel")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    std::fs::write(place.join("pid"), process.id().to_string())?;
    Ok(())
}

/// The process of a node, if it runs.
pub(crate) fn process(number: u16) -> Option<u32> {
    pid(&place(number))
}

fn pid(place: &Path) -> Option<u32> {
    let pid: u32 = std::fs::read_to_string(place.join("pid")).ok()?.trim().parse().ok()?;
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // One that was killed by this chore is there until the chore ends.
    let is_dead = state.rsplit(')').next()?.trim_start().starts_with('Z');
    (!is_dead).then_some(pid)
}

/// Waits until a node has everything that it should.
fn wait(number: u16) -> Result<(), Failure> {
    let end = Instant::now() + READY;
    while !is_ready(http_port(number)) {
        if process(number).is_none() || Instant::now() > end {
            let said = std::fs::read_to_string(place(number).join("output")).unwrap_or_default();
            return Err(format!("node {number} does not serve: {said}").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Kills a node, without a word to the others.
pub(crate) fn kill(number: u16) -> Result<(), Failure> {
    let pid = process(number).ok_or_else(|| format!("node {number} does not run"))?;
    step::run(&format!("kill node {number}"), &mut command(&format!("kill -KILL {pid}")))
}

/// The folders of all nodes.
fn places() -> Result<Vec<PathBuf>, Failure> {
    if !folder().exists() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder())?.collect::<Result<Vec<_>, _>>()?;
    let mut places: Vec<_> =
        entries.iter().map(std::fs::DirEntry::path).filter(|path| path.is_dir()).collect();
    places.sort();
    Ok(places)
}

fn status() -> Result<(), Failure> {
    for place in places()? {
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match pid(&place) {
            Some(pid) => println!("{name} runs as process {pid}"),
            None => println!("{name} does not run"),
        }
    }
    Ok(())
}

fn down() -> Result<(), Failure> {
    for place in places()? {
        if let Some(pid) = pid(&place) {
            command(&format!("kill -KILL {pid}")).status()?;
        }
    }
    if folder().exists() {
        let engines = [Engines::Redis, Engines::Kafka, Engines::Zookeeper];
        engines.into_iter().try_for_each(|engines| services::stop(&engines.services()))?;
        std::fs::remove_dir_all(folder())?;
    }
    Ok(())
}
