//! A server of ours as a process, for chores that need one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::step::{self, Failure, TESTS, command, output};

/// A server process. It ends with this value.
pub(crate) struct Server {
    process: Child,
    /// How it was started.
    command: Command,
    pub(crate) port: u16,
    pub(crate) http_port: u16,
    pub(crate) folder: PathBuf,
}

impl Server {
    /// The one place where the chores start a server; `kills.py` has its own, since it kills it.
    pub(crate) fn start(binary: &Path, more: &[&str]) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("umbel-clients-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let [port, http_port] = free_ports()?;
        let log = std::fs::File::options().append(true).create(true).open(folder.join("server.log"))?;
        let mut server = Command::new(binary);
        server
            .arg("serve")
            .args(["--port", &port.to_string(), "--http-port", &http_port.to_string()])
            .args(more)
            .arg("--data")
            .arg(folder.join("data"));
        let process = server.current_dir(&folder).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut server = Self { process, command: server, port, http_port, folder };
        server.wait()?;
        Ok(server)
    }

    /// Waits until it serves: one that recovers listens before it does.
    fn wait(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(120);
        while !self.is_ready() {
            if self.process.try_wait()?.is_some() || Instant::now() > end {
                return Err(format!("the server does not start: {}", self.said()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        is_ready(self.http_port)
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Starts it again, where it was and with what it has.
    pub(crate) fn start_again(&mut self) -> Result<(), Failure> {
        self.process = self.command.spawn()?;
        self.wait()
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; its folder goes in any case.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The command at a path that somebody gave; it is started from other folders than theirs.
pub(crate) fn given(path: &Path) -> Result<PathBuf, Failure> {
    Ok(path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?)
}

/// What a server of this machine says to a GET, head and body.
pub(crate) fn get(http_port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", http_port))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether a server has everything that it should.
pub(crate) fn is_ready(http_port: u16) -> bool {
    get(http_port, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Ports under those that the system gives to clients by itself.
fn free_ports() -> Result<[u16; 2], Failure> {
    let start = 20_000 + (std::process::id() % 12_000) as u16;
    let ports = (start..32_768).chain(20_000..start);
    let mut free = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    match (free.next(), free.next()) {
        (Some(one), Some(other)) => Ok([one, other]),
        _ => Err("no port is free".into()),
    }
}

/// The command `umbel`, as the tests of it have it built: that is no other build than theirs.
pub(crate) fn binary() -> Result<PathBuf, Failure> {
    step::run("build umbel", &mut command(&format!("{TESTS} --test command --no-run")))?;
    let metadata = output(&mut command("cargo metadata --format-version 1 --no-deps"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata)?;
    let target = metadata["target_directory"].as_str().ok_or("cargo names no target folder")?;
    Ok(Path::new(target).join("debug/umbel"))
}
