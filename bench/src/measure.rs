//! Clocks, medians and progress.

use std::hint::black_box;
use std::io::{IsTerminal, Write};
use std::time::Instant;

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
