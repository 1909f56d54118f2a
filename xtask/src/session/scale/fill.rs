//! Filling a filter as fast as clients can: `BF.MADD` with many keys, at every node.
//!
//! A request has keys for every partition, and each is an entry in the log: the more keys, the fewer entries. `umbel load` sends 10,000 keys
//! in a request, which are few for so many partitions.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{FILTER, MIB};
use crate::cluster;
use crate::services;
use crate::session::Story;
use crate::session::link::{Link, Trouble};
use crate::step::Failure;

/// Keys of a request.
const TOGETHER: u64 = 100_000;
/// How long a request is tried again that is refused for the moment.
const PATIENCE: Duration = Duration::from_secs(300);
const RETRY: Duration = Duration::from_millis(100);
/// How often it is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What came of it.
#[derive(Default)]
pub(super) struct Filled {
    /// Keys that the filter did not take for its own before.
    pub(super) added: u64,
    /// Requests that were refused for the moment, and sent again.
    pub(super) refusals: u64,
    pub(super) time: Duration,
}

/// Adds the numbers from 1 on.
pub(super) fn run(story: &Story, nodes: u16, keys: u64) -> Result<Filled, Failure> {
    story.tell(&format!(
        "at each of {nodes} nodes, a client adds keys: BF.MADD {FILTER} 1 2 3 ... {TOGETHER}"
    ));
    let (begun, done, is_over) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
    let ended: Vec<Result<Filled, String>> = std::thread::scope(|scope| {
        let bound = |node: u16| 1 + keys * u64::from(node) / u64::from(nodes);
        let (done, is_over) = (&done, &is_over);
        let writers: Vec<_> = (1..=nodes)
            .map(|node| {
                let numbers = bound(node - 1)..bound(node);
                scope.spawn(move || write(cluster::port(node), numbers, done, is_over))
            })
            .collect();
        scope.spawn(move || tell_progress(story, done, keys, is_over));
        let ended = writers.into_iter().map(|writer| {
            let ended = writer.join().unwrap_or_else(|_| Err("a writer died".to_owned()));
            // If one cannot go on, the others need not.
            if ended.is_err() {
                is_over.store(true, Ordering::Relaxed);
            }
            ended
        });
        let ended = ended.collect();
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    let mut all = Filled { time: begun.elapsed(), ..Filled::default() };
    for one in ended {
        let one = one?;
        all.added += one.added;
        all.refusals += one.refusals;
    }
    Ok(all)
}

/// Adds numbers through one node.
fn write(port: u16, numbers: Range<u64>, done: &AtomicU64, is_over: &AtomicBool) -> Result<Filled, String> {
    let (mut filled, mut link) = (Filled::default(), None);
    for first in numbers.clone().step_by(TOGETHER as usize) {
        let keys: Vec<String> =
            (first..numbers.end.min(first + TOGETHER)).map(|number| number.to_string()).collect();
        let end = Instant::now() + PATIENCE;
        let answers = loop {
            if is_over.load(Ordering::Relaxed) {
                return Ok(filled);
            }
            match add(&mut link, port, &keys) {
                Ok(answers) => break answers,
                Err(trouble) if trouble.is_passing() && Instant::now() < end => {
                    filled.refusals += 1;
                    link = None;
                    std::thread::sleep(RETRY);
                }
                Err(trouble) => return Err(format!("port {port}: {trouble}")),
            }
        };
        filled.added += answers.iter().filter(|answer| **answer == 1).count() as u64;
        done.fetch_add(keys.len() as u64, Ordering::Relaxed);
    }
    Ok(filled)
}

fn add(link: &mut Option<Link>, port: u16, keys: &[String]) -> Result<Vec<i64>, Trouble> {
    let open = match link {
        Some(link) => link,
        None => link.insert(Link::open(port)?),
    };
    open.each(&["BF.MADD", FILTER], keys)
}

/// Says now and then how far it is.
fn tell_progress(story: &Story, done: &AtomicU64, keys: u64, is_over: &AtomicBool) {
    let (mut told, mut before) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let since = told.elapsed();
        if since < TELL_EVERY {
            continue;
        }
        let now = done.load(Ordering::Relaxed);
        story.tell(&format!(
            "{now} keys, {:.1} %; {:.0} a second; engines have {:.0} MiB on disk",
            now as f64 * 100.0 / keys as f64,
            (now - before) as f64 / since.as_secs_f64(),
            bytes_below(&services::folder()) as f64 / MIB
        ));
        (told, before) = (Instant::now(), now);
    }
}

/// Bytes that the data of engines take on the disk, as far as they can be read: engines make and remove files meanwhile.
fn bytes_below(folder: &Path) -> u64 {
    let said = Command::new("sh")
        .args(["-c", "du -s -B1 \"$0\"/*/data 2>/dev/null | cut -f1"])
        .arg(folder)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    said.unwrap_or_default().lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum()
}
