//! Lookups in a replica: beside the bare filter, and while one version takes the place of another.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use umbel_client::Replica;
use umbel_filter::{Filter, Limits, Spec};

use super::centre::{Centre, key};
use super::replica_options;
use crate::measure::{Progress, median, per_item};
use crate::report::{Figure, Report, Target};

/// Lookups that are timed together: a clock takes as long as one of them.
const TOGETHER: usize = 32;

pub(super) fn run(quick: bool, report: &mut Report, progress: &mut Progress) -> Result<(), Box<dyn Error>> {
    let (capacity, turns, seconds) = if quick { (1_000_000, 5, 1.0) } else { (10_000_000, 15, 5.0) };
    let (spec, keys) = (Spec::bloom(capacity, 0.001), capacity / 2);
    progress.step("lookups: filling".to_owned());
    let centre = Centre::open(spec, keys)?;
    let replica = centre.runtime.block_on(Replica::open(replica_options(&centre.url(), "pull")))?;
    let bare = Filter::new(&spec, &Limits::default())?;
    for number in 0..keys {
        bare.insert(key(number))?;
    }
    let asked: Vec<String> = (0..200_000).map(|number| key(number * 7_919 % (2 * keys))).collect();
    progress.step("lookups: beside the bare filter".to_owned());
    let (mut of_bare, mut of_reader, mut of_replica) = (Vec::new(), Vec::new(), Vec::new());
    let mut reader = replica.reader();
    for _ in 0..turns {
        let all = || asked.iter().filter(|key| bare.contains(key)).count();
        of_bare.push(per_item(asked.len(), all).0);
        let all = || asked.iter().filter(|key| reader.contains(key) == umbel_client::Answer::Maybe).count();
        of_reader.push(per_item(asked.len(), all).0);
        let all = || asked.iter().filter(|key| replica.contains(key) == umbel_client::Answer::Maybe).count();
        of_replica.push(per_item(asked.len(), all).0);
    }
    let [bare_ns, reader_ns, replica_ns] = [&of_bare, &of_reader, &of_replica].map(|times| median(times));
    report.figure(Figure::new("lookups", "bare filter".into(), bare_ns, "ns"))?;
    report.figure(Figure::new("lookups", "replica".into(), replica_ns, "ns"))?;
    report.figure(Figure::new("lookups", "a thread's reader".into(), reader_ns, "ns"))?;
    report.figure(Figure::new("lookups", "replica, throughput".into(), bare_ns / replica_ns, "of bare"))?;
    report.figure(
        Figure::new("lookups", "reader, throughput".into(), bare_ns / reader_ns, "of bare")
            .target(Target::AtLeast(0.9)),
    )?;
    progress.step("lookups: while versions are swapped".to_owned());
    // Idle and swapping take turns, because the machine has moods.
    let (mut idle, mut swapping, mut swaps) = (Vec::new(), Vec::new(), 0);
    let mut next = keys;
    for _ in 0..3 {
        idle.extend(timed(&replica, &asked, seconds / 3.0));
        let before = replica.status().versions_taken;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (over, centre, next) = (&over, &centre, &mut next);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // A handful of keys: a version with a handful of changed chunks.
                    if centre.add(*next..*next + 10).is_err() {
                        return;
                    }
                    *next += 10;
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            swapping.extend(timed(&replica, &asked, seconds / 3.0));
            over.store(true, Ordering::Relaxed);
        });
        swaps += replica.status().versions_taken - before;
    }
    let (idle, swapping) = (p99(&mut idle), p99(&mut swapping));
    report.figure(Figure::new("lookups", format!("p99 of {TOGETHER}, idle"), idle, "ns"))?;
    report.figure(
        Figure::new("lookups", format!("p99 with {swaps} versions swapped"), swapping / idle, "of idle")
            .target(Target::AtMost(1.2)),
    )?;
    centre.runtime.block_on(replica.close())?;
    Ok(())
}

/// Times of some lookups together, for so long.
fn timed(replica: &Replica, asked: &[String], seconds: f64) -> Vec<f64> {
    let mut times = Vec::new();
    let begun = Instant::now();
    for some in asked.chunks(TOGETHER).cycle() {
        let start = Instant::now();
        some.iter().for_each(|key| _ = black_box(replica.contains(key)));
        times.push(start.elapsed().as_nanos() as f64);
        if begun.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    times
}

fn p99(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * 99 / 100]
}
