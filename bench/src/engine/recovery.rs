//! How long it takes to open what another engine left.

use std::error::Error;
use std::time::Instant;

use umbel_core::engine::{NewFilter, Sharding};
use umbel_core::log::Durability;
use umbel_filter::Spec;

use super::place::{Home, Place, block_on, fill, keys};
use crate::filters::keys::fingerprint;
use crate::measure::{Progress, median};
use crate::report::Figure;

const TURNS: usize = 3;
/// Enough that no block of an array is empty: empty ones are not stored.
const KEYS: u64 = 1_000_000;

pub(super) fn run(
    place: &Place,
    quick: bool,
    progress: &mut Progress,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let mut figures = Vec::new();
    let capacity = if quick { 125_000_000 } else { 1_000_000_000 };
    for (sharding, name) in [(Sharding::Everywhere, "sharded"), (Sharding::Whole, "whole")] {
        progress.step(format!("recovery, checkpoint of a {name} filter"));
        let home = place.home();
        let bytes = {
            let engine = home.open(Durability::Os)?;
            let new = NewFilter { sharding, ..NewFilter::new("large", Spec::bloom(capacity, 0.001)) };
            let filter = block_on(engine.create(new))?;
            fill(&engine, &filter, 0..KEYS)?;
            block_on(engine.checkpoint())?;
            filter.bytes()
        };
        let seconds = reopened(&home)?;
        let what = format!("checkpoint of {} MB of arrays, {name}", bytes / 1_000_000);
        figures.push(Figure::new("recovery", what, seconds / (bytes as f64 / 1e9), "s/GB"));
    }
    for (batch, entries) in [(100, 20_000), (1, 200_000)] {
        let entries: u64 = if quick { entries } else { entries * 10 };
        progress.step(format!("recovery, {entries} entries of {batch}"));
        let home = place.home();
        {
            let engine = home.open(Durability::Os)?;
            let new = NewFilter::new("filter", Spec::bloom(entries * batch, 0.001));
            let filter = block_on(engine.create(NewFilter { sharding: Sharding::Whole, ..new }))?;
            block_on(async {
                for entry in 0..entries {
                    let first = entry * batch;
                    match batch {
                        1 => engine.add(&filter, &[fingerprint(first)]).await?,
                        _ => engine.add(&filter, &keys(first..first + batch)).await?,
                    };
                }
                Ok::<_, umbel_core::Error>(())
            })?;
        }
        let seconds = reopened(&home)?;
        let what = format!("replay of {entries} entries of {batch}");
        figures.push(Figure::new("recovery", what, seconds * 1e7 / entries as f64, "s/10 M"));
    }
    Ok(figures)
}

/// Seconds to open an engine.
fn reopened(home: &Home) -> umbel_core::Result<f64> {
    let mut samples = Vec::new();
    for _ in 0..TURNS {
        let start = Instant::now();
        let engine = home.open(Durability::Os)?;
        samples.push(start.elapsed().as_secs_f64());
        drop(engine);
    }
    Ok(median(&samples))
}
