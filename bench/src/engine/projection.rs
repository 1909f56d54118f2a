//! How fast the next generation of a filter is built from its archive.

use std::error::Error;
use std::time::Instant;

use umbel_core::engine::{NewFilter, Sharding};
use umbel_core::log::Durability;
use umbel_filter::{Filter, Fingerprint, Kind, Limits, Spec};

use super::place::{Place, block_on, fill, keys};
use crate::measure::{Progress, median};
use crate::report::{Figure, Target};

const TURNS: usize = 3;
const ERROR: f64 = 0.001;
/// Fingerprints a second, in millions.
const TARGET: Target = Target::AtLeast(20.0);

pub(super) fn run(
    place: &Place,
    quick: bool,
    progress: &mut Progress,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let count: u64 = if quick { 2_000_000 } else { 20_000_000 };
    let mut sorted = keys(0..count);
    sorted.sort_unstable();
    let mut figures = Vec::new();
    for (spec, name) in [(Spec::bloom(count, ERROR), "bloom"), (Spec::counting(count, ERROR), "counting")] {
        progress.step(format!("projection, {count} keys, {name}"));
        let home = place.home();
        let engine = home.open(Durability::Os)?;
        let filter =
            block_on(engine.create(NewFilter { sharding: Sharding::Whole, ..NewFilter::new(name, spec) }))?;
        fill(&engine, &filter, 0..count)?;
        block_on(engine.checkpoint())?;
        let next = Spec { capacity: 2 * count, ..spec };
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            bare.push(bare_rate(&next, &sorted)?);
            let start = Instant::now();
            block_on(engine.resize(&filter, next.capacity, ERROR))?;
            ours.push(count as f64 / start.elapsed().as_secs_f64());
        }
        let (ours, bare) = (median(&ours), median(&bare));
        let what = format!("{name}, {} M keys from a sorted archive", count / 1_000_000);
        let figure = Figure::new("projection", what, ours / 1e6, "M keys/s");
        figures.push(figure.against(ours / bare, "a bare fill").target(TARGET));
    }
    Ok(figures)
}

/// Fingerprints a second into a filter that nobody else holds.
fn bare_rate(spec: &Spec, sorted: &[Fingerprint]) -> Result<f64, Box<dyn Error>> {
    let counts: Vec<_> = match spec.kind {
        Kind::Bloom => Vec::new(),
        _ => sorted.iter().map(|key| (*key, 1)).collect(),
    };
    let start = Instant::now();
    let mut filter = Filter::new(spec, &Limits::default())?;
    match spec.kind {
        Kind::Bloom => filter.fill_fingerprints(sorted)?,
        _ => filter.fill_counts(&counts)?,
    }
    Ok(sorted.len() as f64 / start.elapsed().as_secs_f64())
}
