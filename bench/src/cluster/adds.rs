//! Adds in batches over a cluster's log, beside bare appends to one.

use std::error::Error;
use std::time::{Duration, Instant};

use umbel_adapters::open_log;
use umbel_core::url::Url;

use super::{BATCH, Nodes, PART, command};
use crate::link::Link;
use crate::measure::{Progress, at};
use crate::planes::{self, ENTRY_KEYS};
use crate::report::{Figure, Report};

/// Connections to each node.
const WRITERS: usize = 4;
/// Keys that nothing else adds.
const FIRST: u64 = 1 << 40;

pub(super) fn run(
    nodes: &Nodes,
    log: &str,
    quick: bool,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), Box<dyn Error>> {
    let time = Duration::from_secs(if quick { 2 } else { 20 });
    progress.step(format!("adds of {BATCH} keys at {} connections", WRITERS * nodes.ring().len()));
    let (mut latencies, begin) = (Vec::new(), Instant::now());
    let ports = nodes.ring();
    let taken: Vec<std::io::Result<Vec<f64>>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS * ports.len())
            .map(|writer| {
                let port = ports[writer % ports.len()];
                scope.spawn(move || add(port, writer as u64, time))
            })
            .collect();
        writers.into_iter().filter_map(|writer| writer.join().ok()).collect()
    });
    for taken in taken {
        latencies.extend(taken?);
    }
    let rate = (latencies.len() * BATCH) as f64 / begin.elapsed().as_secs_f64();
    progress.step("bare appends".to_owned());
    let own = bare(log, if quick { 400 } else { 4000 })?;
    progress.pause();
    let figure = Figure::new(PART, "adds in batches".into(), rate, "keys/s");
    report.figure(figure.against(rate / own.per_second, "bare appends"))?;
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let took = at(&mut latencies, share) / 1e3;
        let own = at(&mut own.latencies.clone(), share) / 1e3;
        let what = format!("an add of {BATCH} keys: {name}");
        report.figure(Figure::new(PART, what, took, "ms"))?;
        let what = format!("an append of {ENTRY_KEYS} keys alone: {name}");
        report.figure(Figure::new(PART, what, own, "ms").against(own / took, "the add"))?;
    }
    Ok(())
}

/// Adds keys until the time is over; how many microseconds each request took.
fn add(port: u16, writer: u64, time: Duration) -> std::io::Result<Vec<f64>> {
    let mut link = Link::open(port)?;
    let (mut latencies, begin) = (Vec::new(), Instant::now());
    let mut next = FIRST + (writer << 32);
    while begin.elapsed() < time {
        let request = Instant::now();
        link.ask(&command(b"BF.MADD", next..next + BATCH as u64))?;
        latencies.push(request.elapsed().as_secs_f64() * 1e6);
        next += BATCH as u64;
    }
    Ok(latencies)
}

/// What the log takes by itself.
struct Bare {
    per_second: f64,
    latencies: Vec<f64>,
}

fn bare(log: &str, appends: u64) -> Result<Bare, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let url = super::nodes::named(log, &format!("umbel-bare-{}", std::process::id()), "");
    let opened = runtime.block_on(open_log(&Url::parse(&url)?.or_partitions(planes::PARTITIONS)))?;
    // Connections and segments are made by the first appends.
    runtime.block_on(planes::write(&opened.plane, u64::from(planes::WRITERS) * 4))?;
    let begin = Instant::now();
    let latencies = runtime.block_on(planes::write(&opened.plane, appends))?;
    let per_second = (latencies.len() as u64 * ENTRY_KEYS) as f64 / begin.elapsed().as_secs_f64();
    let latencies = latencies.iter().map(|took| took.as_secs_f64() * 1e6).collect();
    Ok(Bare { per_second, latencies })
}
