//! Adds a second, through log and fold.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use umbel_core::definition::Definition;
use umbel_core::engine::{Engine, Handle, NewFilter, Settings, Sharding};
use umbel_core::log::Durability;
use umbel_filter::{Filter, Fingerprint, Limits, Spec};

use super::place::{Place, block_on, keys};
use crate::measure::{Progress, median};
use crate::report::Figure;

const CAPACITY: u64 = 10_000_000;
const ERROR: f64 = 0.001;
/// Keys of each thread. Two threads together stay below the fill at which a filter begins to grow.
const KEYS: u64 = 3_900_000;
const BATCHES: [usize; 4] = [1, 16, 100, 1000];
/// Partitions of a log with default settings.
const PARTITIONS: u16 = 4;

#[derive(Clone, Copy, Debug)]
struct Case {
    durability: (&'static str, Durability),
    sharded: bool,
    threads: usize,
    batch: usize,
}

pub(super) fn run(
    place: &Place,
    quick: bool,
    progress: &mut Progress,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let (turns, time) =
        if quick { (3, Duration::from_millis(200)) } else { (5, Duration::from_millis(1000)) };
    let all: Vec<Vec<Fingerprint>> = vec![keys(0..KEYS), keys(KEYS..2 * KEYS)];
    let cases = cases();
    let mut ours = vec![Vec::new(); cases.len()];
    let mut bare = vec![Vec::new(); BATCHES.len()];
    for turn in 0..turns {
        progress.step(format!("adds, turn {} of {turns}", turn + 1));
        for (samples, batch) in bare.iter_mut().zip(BATCHES) {
            samples.push(bare_rate(&all[0], batch, time)?);
        }
        for (index, (case, samples)) in cases.iter().zip(&mut ours).enumerate() {
            samples.push(case.rate(place, &all, time)?);
            progress.part(index as u64, cases.len() as u64);
        }
    }
    let mut figures = Vec::new();
    for (batch, samples) in BATCHES.iter().zip(&bare) {
        let what = format!("bare filter, 1 thread, batches of {batch}");
        figures.push(Figure::new("adds", what, median(samples) / 1e6, "M keys/s"));
    }
    for (case, samples) in cases.iter().zip(&ours) {
        let Case { durability: (durability, _), sharded, threads, batch } = case;
        let filters = match (sharded, threads) {
            (true, _) => "sharded filter",
            (false, 1) => "whole filter",
            _ => "whole filters",
        };
        let what = format!("{durability}, {threads} on {filters}, batches of {batch}");
        let place = BATCHES.iter().position(|size| size == batch).unwrap_or(0);
        let rate = median(samples);
        let figure = Figure::new("adds", what, rate / 1e6, "M keys/s");
        figures.push(figure.against(rate / median(&bare[place]), "bare"));
    }
    Ok(figures)
}

fn cases() -> Vec<Case> {
    let durabilities =
        [("always", Durability::Always), ("interval", Durability::default()), ("os", Durability::Os)];
    let mut cases = Vec::new();
    for durability in durabilities {
        for sharded in [true, false] {
            for threads in [1, 2] {
                cases.extend(BATCHES.map(|batch| Case { durability, sharded, threads, batch }));
            }
        }
    }
    cases
}

/// Keys a second into a filter alone.
fn bare_rate(keys: &[Fingerprint], batch: usize, time: Duration) -> Result<f64, Box<dyn Error>> {
    let filter = Filter::new(&Spec::bloom(CAPACITY, ERROR), &Limits::default())?;
    let (start, mut done, mut new) = (Instant::now(), 0, Vec::new());
    for batch in keys.chunks(batch) {
        filter.insert_fingerprints(batch, &mut new)?;
        done += batch.len();
        if start.elapsed() >= time {
            break;
        }
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

impl Case {
    /// Keys a second of all threads together, into an engine that was just made.
    fn rate(self, place: &Place, keys: &[Vec<Fingerprint>], time: Duration) -> umbel_core::Result<f64> {
        let home = place.home();
        let engine = home.open(self.durability.1)?;
        engine.start()?;
        let filters = self.filters(&engine)?;
        let together = Barrier::new(self.threads + 1);
        let (done, elapsed) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (filter, keys) = (&filters[thread], &keys[thread]);
                    let (engine, together) = (&engine, &together);
                    scope.spawn(move || {
                        together.wait();
                        block_on(add_for(engine, filter, keys, self.batch, time))
                    })
                })
                .collect();
            together.wait();
            let start = Instant::now();
            let mut done = 0;
            for thread in threads {
                done += thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<_, umbel_core::Error>((done, start.elapsed()))
        })?;
        Ok(done as f64 / elapsed.as_secs_f64())
    }

    /// A filter for each thread: all the same one, or one in a partition of its own.
    fn filters(self, engine: &Engine) -> umbel_core::Result<Vec<Arc<Handle>>> {
        let spec = Spec::bloom(CAPACITY, ERROR);
        if self.sharded {
            let new = NewFilter { sharding: Sharding::Everywhere, ..NewFilter::new("sharded", spec) };
            return Ok(vec![block_on(engine.create(new))?; self.threads]);
        }
        let partition = |name: &str| Definition::new(name, spec).home(Settings::default().slots) % PARTITIONS;
        let in_partition = |wanted: usize| {
            let mut names = (0..).map(|number| format!("whole-{number}"));
            names.find(|name| usize::from(partition(name)) == wanted).unwrap_or_default()
        };
        let create = |thread| {
            let name = in_partition(thread);
            let new = NewFilter { sharding: Sharding::Whole, ..NewFilter::new(name, spec) };
            block_on(engine.create(new))
        };
        (0..self.threads).map(create).collect()
    }
}

/// Adds keys until the time is over or there are no more, and says how many it were.
async fn add_for(
    engine: &Engine,
    filter: &Arc<Handle>,
    keys: &[Fingerprint],
    batch: usize,
    time: Duration,
) -> umbel_core::Result<usize> {
    let (start, mut done) = (Instant::now(), 0);
    for batch in keys.chunks(batch) {
        engine.add(filter, batch).await?;
        done += batch.len();
        if start.elapsed() >= time {
            break;
        }
    }
    Ok(done)
}
