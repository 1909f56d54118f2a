//! A node is killed while somebody reads and writes at the others.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{BATCH, Nodes, PART, command};
use crate::link::Link;
use crate::measure::{Progress, at};
use crate::report::{Figure, Report, Target};

/// Keys of a request: few, so that there are many requests, and enough that every partition is asked.
const KEYS: u64 = 256;
/// Keys that nothing else adds.
const FIRST: u64 = 1 << 50;
/// Pause before what was refused is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// What somebody saw who asked again and again.
#[derive(Default)]
struct Seen {
    /// When each request began, and how long it took; nothing if it was refused.
    requests: Vec<(Instant, Option<Duration>)>,
    /// Keys from [`FIRST`] on that were acknowledged.
    acknowledged: u64,
}

pub(super) fn run(
    nodes: &mut Nodes,
    quick: bool,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), Box<dyn Error>> {
    let (before, after) = if quick { (1, 10) } else { (5, 30) };
    progress.step("a node is killed under load".to_owned());
    let others: Vec<u16> = nodes.ring()[..nodes.ring().len() - 1].to_vec();
    let is_over = AtomicBool::new(false);
    let (killed, reads, writes) = std::thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let (over, port) = (&is_over, others[0]);
        let reader = scope.spawn(move || again_and_again(port, b"BF.MEXISTS", over));
        let writer = scope.spawn(move || again_and_again(port, b"BF.MADD", over));
        std::thread::sleep(Duration::from_secs(before));
        let killed = Instant::now();
        let outcome = nodes.kill_one();
        std::thread::sleep(Duration::from_secs(after));
        is_over.store(true, Ordering::Relaxed);
        let reads = reader.join().map_err(|_| "the reader is gone")?;
        let writes = writer.join().map_err(|_| "the writer is gone")?;
        outcome?;
        Ok((killed, reads, writes))
    })?;
    let mut lost = 0;
    for port in others {
        let mut link = Link::open(port)?;
        for first in (FIRST..FIRST + writes.acknowledged).step_by(BATCH) {
            let end = (first + BATCH as u64).min(FIRST + writes.acknowledged);
            let answer = link.ask(&command(b"BF.MEXISTS", first..end))?;
            lost = lost.max(answer.all - answer.hits);
        }
    }
    progress.pause();
    for (name, seen) in [("lookups", &reads), ("adds", &writes)] {
        let refused: Vec<_> = seen.requests.iter().filter(|(_, took)| took.is_none()).collect();
        let whole = refused.last().map_or(0.0, |(begin, _)| (*begin + RETRY - killed).as_secs_f64());
        let slowest = seen.requests.iter().filter(|(begin, _)| *begin >= killed);
        let mut slowest: Vec<f64> =
            slowest.filter_map(|(_, took)| Some(took.as_ref()?.as_secs_f64() * 1e3)).collect();
        let usual = seen.requests.iter().filter(|(begin, _)| *begin < killed);
        let mut usual: Vec<f64> =
            usual.filter_map(|(_, took)| Some(took.as_ref()?.as_secs_f64() * 1e3)).collect();
        let what = |what: &str| format!("a node is killed, {name}: {what}");
        report.figure(Figure::new(PART, what("all answer again after"), whole, "s"))?;
        report.figure(Figure::new(PART, what("requests refused"), refused.len() as f64, ""))?;
        let (p99, longest) = (at(&mut slowest, 0.99), at(&mut slowest, 1.0));
        let ratio = p99 / at(&mut usual, 0.99);
        let figure = Figure::new(PART, what("p99 of the rest"), p99, "ms");
        report.figure(figure.against(ratio, "p99 before"))?;
        report.figure(Figure::new(PART, what("the longest of them"), longest, "ms"))?;
    }
    let figure = Figure::new(PART, "keys acknowledged meanwhile".into(), writes.acknowledged as f64, "keys");
    report.figure(figure)?;
    let figure = Figure::new(PART, "of them lost".into(), lost as f64, "keys");
    report.figure(figure.target(Target::AtMost(0.0)))?;
    Ok(())
}

/// Asks a node until it is over. What is refused is asked again, at a new connection.
fn again_and_again(port: u16, name: &[u8], is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut link = None;
    while !is_over.load(Ordering::Relaxed) {
        let first = FIRST + seen.acknowledged;
        let begin = Instant::now();
        let asked = match link.take() {
            Some(link) => Ok(link),
            None => Link::open(port),
        };
        let asked = asked.and_then(|mut link| {
            link.ask(&command(name, first..first + KEYS))?;
            Ok(link)
        });
        match asked {
            Ok(open) => {
                seen.requests.push((begin, Some(begin.elapsed())));
                seen.acknowledged += KEYS;
                link = Some(open);
            }
            Err(_) => {
                seen.requests.push((begin, None));
                std::thread::sleep(RETRY);
            }
        }
    }
    seen
}
