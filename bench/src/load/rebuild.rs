//! A filter is filled anew while somebody adds to it and somebody else looks keys up.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::places::{Place, Text};
use super::{FILTER, MEMORY_MAX, PART, Subject, megabytes};
use crate::link::{Link, command, key, spread};
use crate::measure::{Progress, at, steadily};
use crate::process::Server;
use crate::report::{Figure, Report, Target};

/// Lookups a second.
const LOOKUPS: u64 = 1000;
/// Adds a second, and how many come together.
const ADDS: u64 = 50_000;
const TOGETHER: u64 = 500;
/// Keys that no source has.
const FIRST: u64 = 1 << 40;
/// Keys that are looked for at once in the end.
const BATCH: usize = 1000;
/// How often it is looked whether a rebuild has begun.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Keys that are added from a first one on.
struct Adds {
    first: u64,
    /// They begin when the server has something at this path of its HTTP door.
    waits_for: Option<String>,
}

/// What was seen while something went on.
struct Seen<T> {
    outcome: T,
    /// Microseconds that lookups took.
    lookups: Vec<f64>,
    /// Keys from the first one on that were added, and how many a second.
    added: u64,
    adds_per_second: f64,
}

pub(super) fn run(
    subject: &Subject,
    keys: u64,
    quick: bool,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), Box<dyn Error>> {
    let pause = Duration::from_secs(if quick { 2 } else { 20 });
    progress.step(format!("{keys} keys for a filter that is rebuilt"));
    let place = Text::make(&subject.folder, keys)?.arguments();
    subject.make_filter(keys)?;
    subject.fill("load", &place, keys)?;
    progress.step(format!("{LOOKUPS} lookups a second"));
    let idle = meanwhile(subject, keys, None, || std::thread::sleep(pause))?;
    progress.step(format!("{LOOKUPS} lookups and {ADDS} adds a second"));
    let adds = Adds { first: FIRST, waits_for: None };
    let busy = meanwhile(subject, keys, Some(adds), || std::thread::sleep(pause))?;
    progress.step("the same while the filter is rebuilt".to_owned());
    // What was added before is in no source: it goes with the old filter, and so is not looked for.
    let first = FIRST + (1 << 32);
    let adds = Adds { first, waits_for: Some(format!("/v1/filters/{FILTER}/rebuild")) };
    let rebuilt = meanwhile(subject, keys, Some(adds), || subject.fill("rebuild", &place, keys))?;
    let ran = rebuilt.outcome?;
    progress.step("looking for what was added".to_owned());
    let lost = lost(subject, first..first + rebuilt.added)?;
    progress.pause();
    let what = |what: &str| format!("rebuild of {keys} keys: {what}");
    let rate = keys as f64 / ran.took.as_secs_f64();
    let each = ran.processor_time.as_secs_f64() * 1e9 / keys as f64;
    let adds = rebuilt.adds_per_second;
    report.figures(&[
        Figure::new(PART, what("speed"), rate, "keys/s"),
        Figure::new(PART, what("loader's CPU a key"), each, "ns"),
        Figure::new(PART, what("loader's peak memory"), megabytes(ran.peak_bytes), "MB")
            .target(Target::AtMost(MEMORY_MAX)),
        Figure::new(PART, what("server's peak memory"), megabytes(subject.server.peak_bytes()), "MB"),
        Figure::new(PART, what("adds meanwhile"), adds, "keys/s")
            .against(adds / ADDS as f64, "those sent")
            .target(Target::AtLeast((0.99 * ADDS as f64).round())),
        Figure::new(PART, what("of those added, lost"), lost as f64, "keys").target(Target::AtMost(0.0)),
    ])?;
    let (mut idle, mut figures) = (idle.lookups, Vec::new());
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let alone = at(&mut idle, share);
        figures.push(Figure::new(PART, format!("a lookup, idle: {name}"), alone, "us"));
        for (when, seen) in [("beside adds", &busy.lookups), ("beside adds and a rebuild", &rebuilt.lookups)]
        {
            let took = at(&mut seen.clone(), share);
            let figure = Figure::new(PART, format!("a lookup, {when}: {name}"), took, "us");
            figures.push(figure.against(took / alone, "idle"));
        }
    }
    report.figures(&figures)?;
    Ok(())
}

/// Looks keys up, and adds some if they are named, while something goes on.
fn meanwhile<T>(
    subject: &Subject,
    keys: u64,
    adds: Option<Adds>,
    work: impl FnOnce() -> T,
) -> Result<Seen<T>, Box<dyn Error>> {
    let (server, is_over) = (&subject.server, AtomicBool::new(false));
    let is_wanted = |_: u64| !is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || look_up(server.port, keys, is_wanted));
        let writer = adds.map(|adds| scope.spawn(move || add(server, &adds, is_wanted)));
        let outcome = work();
        is_over.store(true, Ordering::Relaxed);
        let lookups = reader.join().map_err(|_| "whoever looked keys up is gone")??;
        let (added, adds_per_second) = match writer {
            Some(writer) => writer.join().map_err(|_| "whoever added keys is gone")??,
            None => (0, 0.0),
        };
        Ok(Seen { outcome, lookups, added, adds_per_second })
    })
}

/// Looks up keys that are there and as many that are not.
fn look_up(port: u16, keys: u64, is_wanted: impl Fn(u64) -> bool) -> std::io::Result<Vec<f64>> {
    let mut link = Link::open(port)?;
    steadily(LOOKUPS, is_wanted, |request| {
        let number = spread(request) % (2 * keys);
        let answer = link.ask(&[b"BF.EXISTS", FILTER.as_bytes(), &key(number)])?;
        if number < keys && answer.hits == 0 {
            return Err(std::io::Error::other(format!("key {number} is in the filter and was not found")));
        }
        Ok(())
    })
}

/// Adds keys: how many, and how many a second.
fn add(server: &Server, adds: &Adds, is_wanted: impl Fn(u64) -> bool) -> std::io::Result<(u64, f64)> {
    while adds.waits_for.as_ref().is_some_and(|path| is_wanted(0) && !server.answers(path)) {
        std::thread::sleep(LOOK_EVERY);
    }
    let (mut link, mut added, begin) = (Link::open(server.port)?, 0, Instant::now());
    steadily(ADDS / TOGETHER, is_wanted, |request| {
        let first = adds.first + request * TOGETHER;
        link.ask(&command(b"BF.MADD", FILTER, first..first + TOGETHER))?;
        added += TOGETHER;
        Ok::<_, std::io::Error>(())
    })?;
    Ok((added, added as f64 / begin.elapsed().as_secs_f64()))
}

/// How many of these keys are not there.
fn lost(subject: &Subject, keys: std::ops::Range<u64>) -> Result<usize, Box<dyn Error>> {
    let (mut link, mut lost) = (Link::open(subject.server.port)?, 0);
    for begin in keys.clone().step_by(BATCH) {
        let end = (begin + BATCH as u64).min(keys.end);
        let answer = link.ask(&command(b"BF.MEXISTS", FILTER, begin..end))?;
        lost += answer.all - answer.hits;
    }
    Ok(lost)
}
