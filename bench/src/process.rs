//! Processes of the `umbel` that is named: servers, and commands that are watched until they end.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start.
const READY: Duration = Duration::from_secs(120);
/// How often a process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A server, which ends with this.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    pub(crate) http_port: u16,
    output: PathBuf,
}

impl Server {
    /// Starts a server with a folder of its own below this one. [`wait`](Self::wait) says when it is there.
    pub(crate) fn start(
        umbel: &Path,
        folder: &Path,
        arguments: &[(&'static str, String)],
        secret: Option<(&str, &str)>,
    ) -> Result<Self, Box<dyn Error>> {
        let (port, http_port) = (free_port()?, free_port()?);
        let place = folder.join(port.to_string());
        std::fs::create_dir_all(&place)?;
        let output = place.join("output");
        let process = Command::new(umbel)
            .args(["serve", "--port", &port.to_string(), "--http-port", &http_port.to_string()])
            .args(arguments.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]))
            .arg("--data")
            .arg(place.join("data"))
            .envs(secret)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&output)?)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", umbel.display()))?;
        Ok(Self { process, port, http_port, output })
    }

    /// Waits until it has everything that it should.
    pub(crate) fn wait(&mut self) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + READY;
        while !self.answers("/readyz") {
            if self.process.try_wait()?.is_some() || Instant::now() > end {
                return Err(std::fs::read_to_string(&self.output)?.trim().to_owned().into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Whether there is something at a path of its HTTP door.
    pub(crate) fn answers(&self, path: &str) -> bool {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.http_port)) else { return false };
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        let asked = socket.write_all(request.as_bytes());
        asked.is_ok() && socket.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    /// What processor time it has taken.
    pub(crate) fn processor_time(&self) -> Duration {
        processor_time(self.process.id()).unwrap_or_default()
    }

    /// The most memory that it had so far.
    pub(crate) fn peak_bytes(&self) -> u64 {
        peak_of(self.process.id()).unwrap_or(0)
    }

    /// Kills it without a word to others.
    pub(crate) fn kill(mut self) -> std::io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a command came to that ended well.
pub(crate) struct Ran {
    pub(crate) took: Duration,
    pub(crate) processor_time: Duration,
    /// The most memory that it had at a time.
    pub(crate) peak_bytes: u64,
    pub(crate) output: String,
}

/// Runs a command to its end. What it says goes into a file meanwhile.
pub(crate) fn watched(command: &mut Command, output: &Path) -> Result<Ran, Box<dyn Error>> {
    let said = File::create(output)?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    let begin = Instant::now();
    let mut process =
        command.spawn().map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
    let (id, mut peak_bytes) = (process.id(), 0);
    // One that has ended keeps its times until somebody asks how it ended, but not its memory.
    while is_running(id) {
        peak_bytes = peak_bytes.max(peak_of(id).unwrap_or(0));
        std::thread::sleep(LOOK_EVERY);
    }
    let processor_time = processor_time(id).unwrap_or_default();
    let status = process.wait()?;
    let took = begin.elapsed();
    let output = std::fs::read_to_string(output)?;
    if !status.success() {
        return Err(format!("{:?} ended with {status}: {}", command.get_program(), output.trim()).into());
    }
    Ok(Ran { took, processor_time, peak_bytes, output })
}

/// What `/proc/.../stat` says behind the program's name.
fn stat(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.to_owned())
}

fn is_running(process: u32) -> bool {
    stat(process).is_some_and(|stat| !stat.trim_start().starts_with('Z'))
}

/// Time in user and kernel code.
fn processor_time(process: u32) -> Option<Duration> {
    let stat = stat(process)?;
    // `utime` and `stime` are the 12th and 13th field there.
    let fields = stat.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn peak_of(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    kilobytes?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
