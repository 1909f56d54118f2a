//! Filling a filter as a user would: `umbel load` from streams, one through each node.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{FILTER, MIB};
use crate::cluster;
use crate::services;
use crate::session::Story;
use crate::step::Failure;

/// How long a load goes on trying. On a machine with more to do than it can, one that yields to others may wait for minutes.
const PATIENCE: &str = "15m";
/// How often it is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What came of it.
pub(super) struct Filled {
    pub(super) keys: u64,
    /// Those that the filter did not take for its own before.
    pub(super) added: u64,
    /// Requests that were refused for the moment, and sent again.
    pub(super) refusals: u64,
    pub(super) time: Duration,
}

/// The numbers of a stream, and who loads them.
struct Load {
    numbers: Child,
    loader: Child,
    told: Option<BufReader<ChildStdout>>,
}

impl Load {
    fn start(umbel: &Path, node: u16, first: u64, last: u64) -> Result<Self, Failure> {
        let mut numbers =
            Command::new("seq").args([first.to_string(), last.to_string()]).stdout(Stdio::piped()).spawn()?;
        let stream = numbers.stdout.take().ok_or("no output")?;
        let mut loader = Command::new(umbel)
            .args(["load", FILTER, "-", "--no-checkpoint", "--json", "--patience", PATIENCE])
            .args(["--server", &cluster::http(node)])
            .stdin(stream)
            .stdout(Stdio::piped())
            .spawn()?;
        let told = loader.stdout.take().map(BufReader::new);
        Ok(Self { numbers, loader, told })
    }

    /// Reads what it says until it ends.
    fn follow(&mut self, done: &AtomicU64, refusals: &AtomicU64) -> Result<u64, String> {
        let told = self.told.take().ok_or("no output")?;
        let mut added = None;
        for line in told.lines() {
            let line = line.map_err(|error| error.to_string())?;
            let event: Value = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
            if let Some(keys) = event["keys"].as_u64() {
                done.store(keys, Ordering::Relaxed);
            }
            match event["event"].as_str() {
                Some("done") => added = event["added"].as_u64(),
                Some("retry") => _ = refusals.fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
        }
        let ended = self.loader.wait().map_err(|error| error.to_string())?;
        added.filter(|_| ended.success()).ok_or_else(|| format!("a load ended ({ended})"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // They have ended by themselves, unless something failed.
        for process in [&mut self.loader, &mut self.numbers] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Adds the numbers from 1 on.
pub(super) fn run(story: &Story, umbel: &Path, nodes: u16, keys: u64) -> Result<Filled, Failure> {
    let begun = Instant::now();
    let mut running = Vec::new();
    for node in 1..=nodes {
        let bound = |node: u16| keys * u64::from(node) / u64::from(nodes);
        running.push(Load::start(umbel, node, bound(node - 1) + 1, bound(node))?);
    }
    story.tell(&format!(
        "at each of {nodes} nodes: $ seq FIRST LAST | umbel load {FILTER} - --no-checkpoint --server {} ...",
        cluster::http(1)
    ));
    let done: Vec<AtomicU64> = running.iter().map(|_| AtomicU64::new(0)).collect();
    let (is_over, refusals) = (AtomicBool::new(false), AtomicU64::new(0));
    let sum = || done.iter().map(|keys| keys.load(Ordering::Relaxed)).sum::<u64>();
    let (added, time) = std::thread::scope(|scope| {
        let refusals = &refusals;
        let threads: Vec<_> = running
            .iter_mut()
            .zip(&done)
            .map(|(load, done)| scope.spawn(move || load.follow(done, refusals)))
            .collect();
        scope.spawn(|| tell_progress(story, &sum, keys, &is_over));
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread died".into())));
        let added: Result<Vec<u64>, String> = ended.collect();
        is_over.store(true, Ordering::Relaxed);
        (added, begun.elapsed())
    });
    Ok(Filled { keys: sum(), added: added?.iter().sum(), refusals: refusals.into_inner(), time })
}

/// Says now and then how far it is.
fn tell_progress(story: &Story, sum: &impl Fn() -> u64, keys: u64, is_over: &AtomicBool) {
    let (mut told, mut before) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let since = told.elapsed();
        if since < TELL_EVERY {
            continue;
        }
        let now = sum();
        story.tell(&format!(
            "{now} keys, {:.1} %; {:.0} a second; engines have {:.0} MiB on disk",
            now as f64 * 100.0 / keys as f64,
            (now - before) as f64 / since.as_secs_f64(),
            bytes_below(&services::folder()) as f64 / MIB
        ));
        (told, before) = (Instant::now(), now);
    }
}

/// Bytes that files below a folder take on the disk, as far as they can be read: engines make and remove them meanwhile. What is not
/// data of an engine, jars and libraries, is left out.
fn bytes_below(folder: &Path) -> u64 {
    let said = Command::new("sh")
        .args(["-c", "du -s -B1 \"$0\"/*/data 2>/dev/null | cut -f1"])
        .arg(folder)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    said.unwrap_or_default().lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum()
}
