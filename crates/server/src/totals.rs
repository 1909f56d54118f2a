//! What all event loops counted together, and how fast it grows.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::commands::table::{self, Id};
use crate::node::Node;

/// What all event loops counted together.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Commands that were run.
    pub commands: u64,
    /// Of those, in the last second.
    pub commands_per_second: u64,
    /// Bytes that were read.
    pub input_bytes: u64,
    /// Bytes that were sent.
    pub output_bytes: u64,
    /// Kilobytes that were read in the last second.
    pub input_kbps: f64,
    /// Kilobytes that were sent in the last second.
    pub output_kbps: f64,
    /// Errors that clients were told.
    pub errors: u64,
    /// Filters that were asked for and were there.
    pub hits: u64,
    /// Filters that were asked for and were not there.
    pub misses: u64,
    /// Filters that expired.
    pub expired: u64,
    /// Filters that will expire.
    pub expiring: u64,
    /// Each command that was ever run.
    pub by_command: Vec<CommandTotals>,
    /// How often each kind of error was told.
    pub by_error: Vec<(String, u64)>,
}

/// What was counted of one command.
#[derive(Clone, Debug)]
pub struct CommandTotals {
    /// Which command.
    pub id: Id,
    /// How often it was run.
    pub calls: u64,
    /// How long all of that took.
    pub took_us: u64,
    /// How often it was refused before it was run.
    pub rejected: u64,
    /// How often it was run and failed.
    pub failed: u64,
    /// How long the half, 99 % and 99.9 % of the calls took at most.
    pub percentiles_us: [f64; 3],
    /// For bounds in microseconds, how many calls took no longer.
    pub histogram_us: Vec<(u64, u64)>,
}

/// What happened in the last second or so.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<Sample>);

#[derive(Debug, Default)]
struct Sample {
    taken: Option<Instant>,
    commands: u64,
    bytes_in: u64,
    bytes_out: u64,
    commands_per_second: f64,
    in_per_second: f64,
    out_per_second: f64,
    /// For each filter, the items that it had and how many came in a second.
    items: HashMap<u64, (u64, f64)>,
}

impl Rates {
    fn sample(&self) -> MutexGuard<'_, Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks again; somebody does so every second.
    pub(crate) fn look(&self, node: &Node) {
        let (now, counted) = (node.now(), node.metrics.read());
        let filters = node.engine.filters();
        let mut sample = self.sample();
        let Some(before) = sample.taken.replace(now) else {
            sample.items = filters.iter().map(|filter| (filter.id(), (filter.items(), 0.0))).collect();
            return;
        };
        let seconds = now.saturating_duration_since(before).as_secs_f64().max(1e-3);
        let rate = |was: &mut u64, is: u64| {
            let more = is.saturating_sub(*was);
            *was = is;
            more as f64 / seconds
        };
        sample.commands_per_second = rate(&mut sample.commands, counted.calls());
        sample.in_per_second = rate(&mut sample.bytes_in, counted.bytes_in);
        sample.out_per_second = rate(&mut sample.bytes_out, counted.bytes_out);
        let items = filters.iter().map(|filter| {
            let mut was = sample.items.get(&filter.id()).map_or(filter.items(), |(items, _)| *items);
            let rate = rate(&mut was, filter.items());
            (filter.id(), (was, rate))
        });
        sample.items = items.collect();
    }

    /// Items that were new to a filter in the last second.
    pub(crate) fn adds_per_second(&self, filter: u64) -> f64 {
        self.sample().items.get(&filter).map_or(0.0, |(_, rate)| *rate)
    }
}

impl Node {
    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        let counted = self.metrics.read();
        let by_command = counted.commands.iter().filter_map(|command| {
            let percentiles =
                [50.0, 99.0, 99.9].map(|percent| command.latency.percentile(percent).as_secs_f64() * 1e6);
            Some(CommandTotals {
                id: table::find(command.name.as_bytes())?,
                calls: command.latency.calls(),
                took_us: command.latency.total().as_micros() as u64,
                rejected: command.rejected,
                failed: command.failed,
                percentiles_us: percentiles,
                histogram_us: command.latency.powers(),
            })
        });
        let sample = self.rates.sample();
        Totals {
            commands: counted.calls(),
            commands_per_second: sample.commands_per_second as u64,
            input_bytes: counted.bytes_in,
            output_bytes: counted.bytes_out,
            input_kbps: sample.in_per_second / 1024.0,
            output_kbps: sample.out_per_second / 1024.0,
            errors: counted.errors.iter().map(|(_, count)| count).sum(),
            hits: counted.hits,
            misses: counted.misses,
            expired: self.counts.expired.load(Ordering::Relaxed),
            expiring: self
                .engine
                .filters()
                .iter()
                .filter(|filter| filter.definition().expires.is_some())
                .count() as u64,
            by_command: by_command.collect(),
            by_error: counted.errors.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect(),
        }
    }
}
