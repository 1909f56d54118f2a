//! The processes: the nodes of a cluster, and a server that is alone.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Options;

/// How long a node may take to start.
const READY: Duration = Duration::from_secs(120);
const PARTITIONS: u32 = 64;
/// How long the others wait for a node that says nothing.
const LEASE: &str = "3s";
const SECRET: &str = "UMBEL_CLUSTER_SECRET";

pub(super) struct Nodes {
    folder: PathBuf,
    /// The server that is alone comes last.
    servers: Vec<Server>,
}

struct Server {
    process: Child,
    port: u16,
    http_port: u16,
    output: PathBuf,
}

impl Nodes {
    pub(super) fn start(options: &Options) -> Result<Self, Box<dyn Error>> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let name = format!("umbel-bench-{time}");
        let folder = std::env::temp_dir().join(&name);
        let mut nodes = Self { folder, servers: Vec::new() };
        let log = named(&options.log, &name, &format!("partitions={PARTITIONS}"));
        let planes = [
            ("--cluster", name.clone()),
            ("--cluster-lease", LEASE.to_owned()),
            ("--log", log),
            ("--blobs", named(&options.blobs, &name, "")),
            ("--registry", named(&options.registry, &name, "")),
        ];
        for number in 1..=options.nodes {
            let node = ("--node", format!("node{number}"));
            let arguments: Vec<_> = planes.iter().cloned().chain([node]).collect();
            let server = Server::start(&options.umbel, &nodes.folder, &arguments)?;
            nodes.servers.push(server);
        }
        let single = Server::start(&options.umbel, &nodes.folder, &[])?;
        nodes.servers.push(single);
        nodes.servers.iter_mut().try_for_each(Server::wait)?;
        Ok(nodes)
    }

    /// The ports of the nodes that live.
    pub(super) fn ring(&self) -> Vec<u16> {
        self.servers[..self.servers.len() - 1].iter().map(|server| server.port).collect()
    }

    /// The port of the server that is alone.
    pub(super) fn single(&self) -> u16 {
        self.servers[self.servers.len() - 1].port
    }

    /// What processor time the nodes have taken together, and what the server that is alone has.
    pub(super) fn processor_times(&self) -> (Duration, Duration) {
        let (single, ring) = self.servers.split_last().map_or((None, &[][..]), |(one, all)| (Some(one), all));
        let of = |server: &Server| processor_time(server.process.id()).unwrap_or_default();
        (ring.iter().map(of).sum(), single.map(of).unwrap_or_default())
    }

    /// Kills the last node without a word to the others.
    pub(super) fn kill_one(&mut self) -> std::io::Result<()> {
        let mut server = self.servers.remove(self.servers.len() - 2);
        server.process.kill()?;
        server.process.wait().map(drop)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.process.kill();
            let _ = server.process.wait();
        }
        // What cannot be removed is in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An address with a name behind it, and a parameter if there is one.
pub(super) fn named(url: &str, name: &str, parameter: &str) -> String {
    let (host, parameters) = url.split_once('?').unwrap_or((url, ""));
    let parameters: Vec<_> = [parameters, parameter].into_iter().filter(|text| !text.is_empty()).collect();
    let mark = if parameters.is_empty() { "" } else { "?" };
    format!("{}/{name}{mark}{}", host.trim_end_matches('/'), parameters.join("&"))
}

/// Time in user and kernel code.
fn processor_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the program's name, `utime` and `stime` are the 12th and 13th field.
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

impl Server {
    fn start(
        umbel: &Path,
        folder: &Path,
        arguments: &[(&'static str, String)],
    ) -> Result<Self, Box<dyn Error>> {
        let (port, http_port) = (free_port()?, free_port()?);
        let place = folder.join(port.to_string());
        std::fs::create_dir_all(&place)?;
        let output = place.join("output");
        // One that is alone has no secret.
        let secret = arguments.first().map(|_| (SECRET, "known to the nodes of a benchmark"));
        let process = Command::new(umbel)
            .args(["serve", "--threads", "1", "--port", &port.to_string()])
            .args(["--http-port", &http_port.to_string()])
            .args(arguments.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]))
            .arg("--data")
            .arg(place.join("data"))
            .envs(secret)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&output)?)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", umbel.display()))?;
        Ok(Self { process, port, http_port, output })
    }

    /// Waits until it has everything that it should.
    fn wait(&mut self) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + READY;
        while !self.is_ready() {
            if self.process.try_wait()?.is_some() || Instant::now() > end {
                return Err(std::fs::read_to_string(&self.output)?.trim().to_owned().into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.http_port)) else { return false };
        let asked = socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok() && socket.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }
}
