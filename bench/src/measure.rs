//! Clocks, medians and progress.

use std::hint::black_box;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Nanoseconds for each of `items` items of `work`, and its result.
pub(crate) fn per_item<R>(items: usize, work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = black_box(work());
    (start.elapsed().as_nanos() as f64 / items as f64, result)
}

/// The middle one of some samples; not a number if there are none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// The mean of samples in order of time, after each run of five was replaced by its median: what drifts slowly is
/// kept, what disturbs one or two samples is not.
pub(crate) fn smoothed_mean(samples: &[f64]) -> f64 {
    let runs = samples.chunks(5).map(|run| median(run) * run.len() as f64);
    runs.sum::<f64>() / samples.len() as f64
}

/// The value that a share of the samples does not pass.
pub(crate) fn at(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    samples.get((last as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// Does something so many times a second, as long as it is wanted; what is late follows at once. How many microseconds after it was
/// due each was done.
pub(crate) fn steadily<E>(
    rate: u64,
    is_wanted: impl Fn(u64) -> bool,
    mut work: impl FnMut(u64) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let (begin, mut latencies, mut number) = (Instant::now(), Vec::new(), 0);
    while is_wanted(number) {
        let due = begin + Duration::from_nanos(number * 1_000_000_000 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        work(number)?;
        latencies.push(due.elapsed().as_secs_f64() * 1e6);
        number += 1;
    }
    Ok(latencies)
}

/// Says on standard error what is being measured.
pub(crate) struct Progress {
    start: Instant,
    terminal: bool,
    step: String,
}

impl Progress {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), terminal: std::io::stderr().is_terminal(), step: String::new() }
    }

    /// Begins a step.
    pub(crate) fn step(&mut self, step: String) {
        self.step = step;
        let elapsed = self.start.elapsed().as_secs_f64();
        if self.terminal {
            self.rewrite(&format!("[{elapsed:6.1} s] {}", self.step));
        } else {
            eprintln!("[{elapsed:6.1} s] {}", self.step);
        }
    }

    /// Part `done` of `all` of the step is over; shown where it can be overwritten.
    pub(crate) fn part(&self, done: u64, all: u64) {
        if self.terminal {
            let elapsed = self.start.elapsed().as_secs_f64();
            self.rewrite(&format!("[{elapsed:6.1} s] {} {} %", self.step, 100 * done / all.max(1)));
        }
    }

    /// Clears the line, so that results can be printed.
    pub(crate) fn pause(&self) {
        if self.terminal {
            self.rewrite("");
        }
    }

    fn rewrite(&self, line: &str) {
        // Nobody is served by a benchmark that ends because its progress cannot be shown.
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
    }
}
