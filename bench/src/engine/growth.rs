//! How much memory growth takes, in a process of its own: what other parts left behind does not count there.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use umbel_core::engine::{NewFilter, Sharding};
use umbel_core::log::Durability;
use umbel_filter::Spec;

use super::place::{Place, block_on, fill};
use crate::measure::Progress;
use crate::report::{Figure, Target};

const ERROR: f64 = 0.001;
/// How many times the size after growth filters may take meanwhile.
const TARGET: Target = Target::AtMost(1.15);
/// Keys between checkpoints, so that few wait in memory to be archived.
const FILL_KEYS: u64 = 4_000_000;

pub(super) fn run(
    place: &Place,
    quick: bool,
    progress: &mut Progress,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let capacity: u64 = if quick { 5_000_000 } else { 100_000_000 };
    progress.step(format!("growth of {capacity} keys"));
    let output = Command::new(std::env::current_exe()?)
        .args(["engine", "--growth-of", &capacity.to_string(), "--folder"])
        .arg(place.folder())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the process that measures growth ended with {}", output.status).into());
    }
    let measured: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| measured[name].as_f64().unwrap_or(f64::NAN);
    let what = |what: &str| format!("{} M keys to double, {what}", capacity / 1_000_000);
    let (after, peak) = (number("bytes_after"), number("budget_peak"));
    let (rss_before, rss_peak) = (number("rss_before"), number("rss_peak"));
    Ok(vec![
        Figure::new("growth", what("peak of the budget"), peak / after, "x size after").target(TARGET),
        Figure::new("growth", what("peak of the process"), rss_peak / after, "x size after"),
        Figure::new("growth", what("size after"), after / 1e6, "MB"),
        Figure::new("growth", what("process before"), rss_before / 1e6, "MB"),
        Figure::new("growth", what("process at its peak"), rss_peak / 1e6, "MB"),
        Figure::new("growth", what("time"), number("seconds"), "s"),
    ])
}

/// Fills a filter, lets it grow, and prints what it took.
pub(super) fn measure_here(place: &Place, capacity: u64) -> Result<(), Box<dyn Error>> {
    let home = place.home();
    let engine = home.open(Durability::Os)?;
    let spec = Spec::bloom(capacity, ERROR);
    let new = NewFilter { sharding: Sharding::Everywhere, ..NewFilter::new("growing", spec) };
    let filter = block_on(engine.create(new))?;
    let keys = capacity * 4 / 5;
    for first in (0..keys).step_by(FILL_KEYS as usize) {
        fill(&engine, &filter, first..keys.min(first + FILL_KEYS))?;
        block_on(engine.checkpoint())?;
    }
    engine.budget().restart_peak();
    std::fs::write("/proc/self/clear_refs", "5")?;
    let rss_before = memory("VmRSS")?;
    let start = Instant::now();
    block_on(engine.resize(&filter, 2 * capacity, ERROR))?;
    let seconds = start.elapsed().as_secs_f64();
    let measured = json!({
        "bytes_after": filter.bytes(),
        "budget_peak": engine.budget().peak(),
        "rss_before": rss_before,
        "rss_peak": memory("VmHWM")?,
        "seconds": seconds,
    });
    println!("{measured}");
    Ok(())
}

/// A line of what the system says of this process, in bytes.
fn memory(name: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| format!("/proc/self/status has no {name}"))? * 1024)
}
