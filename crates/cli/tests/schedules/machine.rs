//! A machine with one process, which can be killed, sleep, write slowly and be wrong about the time.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::network::Network;
use crate::relay::Relay;

/// Calls that wait for a disk, and none that is about a connection.
const DISK_CALLS: &str = "fsync,fdatasync,sync_file_range,msync,pwrite64,pwritev,ftruncate,rename,renameat,renameat2,unlink,unlinkat";

/// Where what all machines of this test have is kept.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("umbel-schedule-{}-{name}", std::process::id()))
}

/// What makes the clocks of machines, as a library to be loaded before others. The compiler is the one that Rust links with.
pub(crate) struct Clocks(PathBuf);

impl Clocks {
    pub(crate) fn new() -> Self {
        let (library, source) =
            (folder("clock.so"), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schedules/clock.c"));
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(built.unwrap().success(), "{source} cannot be built");
        Self(library)
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A process on a machine, which can be killed and started again with the files that it has.
pub(crate) struct Machine {
    pub(crate) number: u8,
    pub(crate) address: String,
    pub(crate) folder: PathBuf,
    clock: PathBuf,
    process: Option<Child>,
    /// Through which a node reaches its registry.
    pub(crate) relay: Option<Relay>,
    /// What holds up its calls to the disk.
    brake: Option<Child>,
}

impl Machine {
    pub(crate) fn new(network: &Network, number: u8) -> Self {
        let folder = folder(&number.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let clock = folder.join("clock");
        let address = network.address(number);
        let machine = Self { number, address, folder, clock, process: None, relay: None, brake: None };
        machine.set_clock(0);
        machine
    }

    pub(crate) fn spawn(&mut self, clocks: &Clocks, command: &mut Command) {
        let log = std::fs::File::options().append(true).create(true).open(self.folder.join("log.txt"));
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
        let command = command.env("LD_PRELOAD", &clocks.0).env("TEST_CLOCK_FILE", &self.clock);
        self.process = Some(command.spawn().unwrap());
    }

    pub(crate) fn said(&self) -> String {
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

    /// One that was killed meanwhile, or ended, is not told.
    pub(crate) fn signal(&mut self, signal: &str) {
        if self.is_running() {
            let process = self.process.as_ref().unwrap().id();
            send(signal, process);
        }
    }

    /// Delays what passes between it and the registry, each way.
    pub(crate) fn delay_registry(&mut self, delay: Duration) {
        if let Some(relay) = &mut self.relay {
            relay.delay(delay);
        }
    }

    /// Sets its time of day ahead of this machine's, or behind it.
    pub(crate) fn set_clock(&self, seconds_ahead: i64) {
        // In place: it is mapped by the process.
        let file =
            std::fs::File::options().write(true).create(true).truncate(false).open(&self.clock).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &seconds_ahead.to_ne_bytes(), 0).unwrap();
    }

    /// From now on, each call that waits for the disk takes this much longer.
    pub(crate) fn brake(&mut self, delay: Duration) {
        if !self.is_running() || self.brake.is_some() {
            return;
        }
        let process = self.process.as_ref().unwrap().id().to_string();
        let inject = format!("inject={DISK_CALLS}:delay_enter={}", delay.as_micros());
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-p", &process, "-e", &format!("trace={DISK_CALLS}"), "-e", &inject, "-o"]);
        self.brake = Some(strace.arg(held_up(&self.folder)).stderr(Stdio::null()).spawn().unwrap());
    }

    /// Lets go of the disk; says how many calls were held up, and that it was held at all.
    pub(crate) fn release(&mut self) -> Option<usize> {
        let mut brake = self.brake.take()?;
        send("-INT", brake.id());
        brake.wait().unwrap();
        let calls = std::fs::read_to_string(held_up(&self.folder)).unwrap_or_default();
        Some(calls.lines().filter(|line| line.contains("(DELAYED)")).count())
    }
}

fn held_up(folder: &Path) -> PathBuf {
    folder.join("held-up.txt")
}

/// It may have ended just now.
fn send(signal: &str, process: u32) {
    let _ = Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status().unwrap();
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("UMBEL_SCHEDULE_HOLD").is_some() {
            // For whoever wants to look at it: all goes on until this process is ended.
            eprintln!("machine {} is at {}", self.number, self.address);
            std::thread::sleep(Duration::from_secs(3600));
        }
        self.release();
        self.kill();
        if std::thread::panicking() {
            let said = self.said();
            let lines: Vec<_> = said.lines().collect();
            eprintln!("== machine {}\n{}", self.number, lines[lines.len().saturating_sub(60)..].join("\n"));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
