//! How long an add or a lookup takes while something else goes on.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use umbel_core::engine::{Engine, Handle, NewFilter, Sharding};
use umbel_core::log::Durability;
use umbel_filter::{Fingerprint, Spec};

use super::place::{Place, block_on, fill, keys};
use crate::measure::Progress;
use crate::report::Figure;

const ERROR: f64 = 0.001;
const BATCH: usize = 100;

/// What goes on meanwhile, in a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    Checkpoints,
    Growth,
}

/// Nanoseconds, sorted.
struct Times(Vec<u64>);

impl Times {
    fn at(&self, quantile: f64) -> f64 {
        let index = ((self.0.len() as f64 * quantile) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(f64::NAN, |time| *time as f64 / 1e3)
    }
}

pub(super) fn run(
    place: &Place,
    quick: bool,
    progress: &mut Progress,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let (capacity, time) =
        if quick { (2_000_000, Duration::from_secs(2)) } else { (10_000_000, Duration::from_secs(10)) };
    let mut figures = Vec::new();
    for (sharding, name) in [(Sharding::Everywhere, "sharded"), (Sharding::Whole, "whole")] {
        let home = place.home();
        // No thread does background work unless it says so, so that what goes on is known.
        let mut engine = home.open(Durability::default())?;
        let spec = Spec::bloom(capacity, ERROR);
        let mut filter = block_on(engine.create(NewFilter { sharding, ..NewFilter::new(name, spec) }))?;
        // Keys come again and again: they are logged, folded and archived like others, and the filter does not fill up.
        let some = keys(0..capacity * 2 / 5);
        fill(&engine, &filter, 0..some.len() as u64)?;
        let mut alone: Option<(Times, Times)> = None;
        for meanwhile in [Meanwhile::Nothing, Meanwhile::Checkpoints, Meanwhile::Growth] {
            progress.step(format!("pauses, {name} filter, meanwhile {meanwhile:?}").to_lowercase());
            block_on(engine.checkpoint())?;
            if meanwhile != Meanwhile::Nothing {
                // The engine's own thread makes checkpoints, as fast as it can.
                let all_the_time = meanwhile == Meanwhile::Checkpoints;
                drop(engine);
                let every = if all_the_time { Duration::ZERO } else { Duration::MAX };
                engine = home.open_with(Durability::default(), every)?;
                filter = engine.filter(name).ok_or("the filter is gone")?;
                if all_the_time {
                    engine.start()?;
                }
            }
            let (adds, lookups, rounds) = measure(&engine, &filter, &some, meanwhile, capacity, time)?;
            let during = match meanwhile {
                Meanwhile::Nothing => "nothing else".to_owned(),
                Meanwhile::Checkpoints => "checkpoints".to_owned(),
                Meanwhile::Growth => format!("{rounds} growths"),
            };
            let mut figure = |op: &str, quantile: f64, times: &Times, before: Option<&Times>| {
                let shown = if quantile >= 1.0 { "max".to_owned() } else { format!("p{}", quantile * 100.0) };
                let what = format!("{name}, {during}: {op} of {BATCH}, {shown}");
                let figure = Figure::new("pauses", what, times.at(quantile), "us");
                figures.push(match before {
                    Some(before) => figure.against(times.at(quantile) / before.at(quantile), "alone"),
                    None => figure,
                });
            };
            let before = alone.as_ref();
            for quantile in [0.5, 0.99, 0.999, 1.0] {
                figure("add", quantile, &adds, before.map(|before| &before.0));
            }
            for quantile in [0.5, 0.99] {
                figure("lookup", quantile, &lookups, before.map(|before| &before.1));
            }
            if meanwhile == Meanwhile::Nothing {
                alone = Some((adds, lookups));
            }
        }
    }
    Ok(figures)
}

/// Adds and lookups in turns, for a while; and how often meanwhile the other thing was done.
fn measure(
    engine: &Engine,
    filter: &Arc<Handle>,
    keys: &[Fingerprint],
    meanwhile: Meanwhile,
    capacity: u64,
    time: Duration,
) -> umbel_core::Result<(Times, Times, u64)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| -> umbel_core::Result<u64> {
            let mut rounds = 0;
            while meanwhile == Meanwhile::Growth && !over.load(Ordering::Relaxed) {
                // To double the size and back, so that it can go on.
                block_on(engine.resize(filter, capacity * (2 - rounds % 2), ERROR))?;
                rounds += 1;
            }
            Ok(rounds)
        });
        let timed = block_on(add_and_look(engine, filter, keys, time));
        over.store(true, Ordering::Relaxed);
        let rounds = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (adds, lookups) = timed?;
        Ok((adds, lookups, rounds))
    })
}

async fn add_and_look(
    engine: &Engine,
    filter: &Arc<Handle>,
    keys: &[Fingerprint],
    time: Duration,
) -> umbel_core::Result<(Times, Times)> {
    let (mut adds, mut lookups, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    for batch in keys.chunks_exact(BATCH).cycle() {
        let before = Instant::now();
        engine.add(filter, batch).await?;
        let between = Instant::now();
        filter.contains_batch(batch, &mut answers);
        lookups.push(between.elapsed().as_nanos() as u64);
        adds.push((between - before).as_nanos() as u64);
        if start.elapsed() >= time {
            break;
        }
    }
    adds.sort_unstable();
    lookups.sort_unstable();
    Ok((Times(adds), Times(lookups)))
}
