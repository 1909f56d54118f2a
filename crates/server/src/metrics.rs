//! What the server counts: commands with their latencies, connections, bytes and errors.
//!
//! Each event loop has counters of its own, so that loops do not take cache lines from each other; they are summed when
//! somebody reads them. Counting takes no lock and no memory but that of a command's first call.

mod histogram;
mod prometheus;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use histogram::{Counts, Histogram};
pub use prometheus::{CONTENT_TYPE, Collect, Family, Kind, Page, Registry, Value};

/// Codes of error replies that are counted apart; `INFO errorstats` has them.
pub const ERROR_CODES: [&str; 17] = [
    "ERR",
    "WRONGTYPE",
    "NOPERM",
    "NOAUTH",
    "WRONGPASS",
    "NOPROTO",
    "OOM",
    "LOADING",
    "READONLY",
    "MISCONF",
    "BUSY",
    "EXECABORT",
    "NOSCRIPT",
    "DENIED",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "OTHER",
];

#[derive(Debug, Default)]
struct Command {
    latency: Histogram,
    rejected: AtomicU64,
    failed: AtomicU64,
}

/// The counters of one event loop. Any thread may count in it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Loop {
    commands: Box<[Command]>,
    errors: [AtomicU64; ERROR_CODES.len()],
    opened: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Loop {
    fn new(commands: usize) -> Self {
        Self {
            commands: (0..commands).map(|_| Command::default()).collect(),
            errors: Default::default(),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// A command was run so many times, and took this long each time.
    #[inline]
    pub fn called(&self, command: u16, times: u64, took: Duration) {
        if let Some(command) = self.commands.get(usize::from(command)) {
            command.latency.record(times, took);
        }
    }

    /// A command was run and answered with an error; count the call as well.
    pub fn failed(&self, command: u16) {
        if let Some(command) = self.commands.get(usize::from(command)) {
            command.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A command was not run: wrong arguments, no permission.
    pub fn rejected(&self, command: u16) {
        if let Some(command) = self.commands.get(usize::from(command)) {
            command.rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An error reply was sent; its first word is its code.
    pub fn error(&self, reply: &str) {
        let code = reply.split(' ').next().unwrap_or_default();
        let place = ERROR_CODES.iter().position(|known| *known == code).unwrap_or(ERROR_CODES.len() - 1);
        self.errors[place].fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was accepted.
    pub fn opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection that was accepted has ended.
    pub fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was refused: too many, or protected mode.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes came.
    #[inline]
    pub fn received(&self, bytes: usize) {
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes went.
    #[inline]
    pub fn sent(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A filter was asked for by so many commands that change nothing, and was there or not.
    #[inline]
    pub fn sought(&self, commands: u64, is_there: bool) {
        let counter = if is_there { &self.hits } else { &self.misses };
        counter.fetch_add(commands, Ordering::Relaxed);
    }

    fn reset(&self) {
        for command in &self.commands {
            command.latency.reset();
            command.rejected.store(0, Ordering::Relaxed);
            command.failed.store(0, Ordering::Relaxed);
        }
        // Open connections are the difference of two counters, which therefore stay.
        let counters = self.errors.iter().chain([
            &self.refused,
            &self.bytes_in,
            &self.bytes_out,
            &self.hits,
            &self.misses,
        ]);
        counters.for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

/// A command's counts, summed.
#[derive(Clone, Debug)]
pub struct CommandCounts {
    /// Its name, `config|get`.
    pub name: String,
    /// Calls and how long they took.
    pub latency: Counts,
    /// Calls that were not run.
    pub rejected: u64,
    /// Calls that answered with an error.
    pub failed: u64,
}

/// All counts, summed.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Commands that were ever called or rejected, in the order of the table.
    pub commands: Vec<CommandCounts>,
    /// Error replies by code, where there were any.
    pub errors: Vec<(&'static str, u64)>,
    /// Connections accepted.
    pub opened: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections refused.
    pub refused: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Lookups in filters that were there.
    pub hits: u64,
    /// Lookups in filters that were not there.
    pub misses: u64,
}

impl Totals {
    /// Commands that were run.
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.latency.calls()).sum()
    }
}

/// The counters of all event loops.
#[derive(Debug)]
pub struct Metrics {
    names: Vec<String>,
    loops: Vec<Loop>,
}

impl Metrics {
    /// For these commands, in the order of their indexes, and so many event loops.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>, loops: usize) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let loops = (0..loops.max(1)).map(|_| Loop::new(names.len())).collect();
        Self { names, loops }
    }

    /// The counters of an event loop; numbers past the last begin again.
    pub fn of_loop(&self, number: usize) -> &Loop {
        // There is always one.
        &self.loops[number % self.loops.len()]
    }

    fn sum(&self, count: impl Fn(&Loop) -> &AtomicU64) -> u64 {
        self.loops.iter().map(|one| count(one).load(Ordering::Relaxed)).sum()
    }

    /// One command's latency, for `LATENCY HISTOGRAM`.
    pub fn latency(&self, command: u16) -> Counts {
        let mut counts = Counts::default();
        for command in self.loops.iter().filter_map(|one| one.commands.get(usize::from(command))) {
            counts.add(&command.latency);
        }
        counts
    }

    /// Everything.
    pub fn read(&self) -> Totals {
        let mut commands = Vec::new();
        for (index, name) in self.names.iter().enumerate() {
            let latency = self.latency(index as u16);
            let rejected = self.sum(|one| &one.commands[index].rejected);
            let failed = self.sum(|one| &one.commands[index].failed);
            if latency.calls() + rejected + failed > 0 {
                commands.push(CommandCounts { name: name.clone(), latency, rejected, failed });
            }
        }
        let errors =
            ERROR_CODES.iter().enumerate().map(|(index, code)| (*code, self.sum(|one| &one.errors[index])));
        // Closed before opened: a connection between the two reads must not make the difference negative.
        let closed = self.sum(|one| &one.closed);
        let opened = self.sum(|one| &one.opened);
        Totals {
            commands,
            errors: errors.filter(|(_, count)| *count > 0).collect(),
            opened,
            open: opened.saturating_sub(closed),
            refused: self.sum(|one| &one.refused),
            bytes_in: self.sum(|one| &one.bytes_in),
            bytes_out: self.sum(|one| &one.bytes_out),
            hits: self.sum(|one| &one.hits),
            misses: self.sum(|one| &one.misses),
        }
    }

    /// `CONFIG RESETSTAT`.
    pub fn reset(&self) {
        self.loops.iter().for_each(Loop::reset);
    }
}

impl Collect for Metrics {
    fn collect(&self, page: &mut Page) {
        let totals = self.read();
        let mut family = page.family("umbel_commands_total", Kind::Counter, "Commands run.");
        for command in &totals.commands {
            family.sample(&[("command", &command.name)], command.latency.calls());
        }
        let mut family =
            page.family("umbel_commands_failed_total", Kind::Counter, "Commands answered with an error.");
        for command in &totals.commands {
            family.sample(&[("command", &command.name)], command.failed);
        }
        let mut family =
            page.family("umbel_commands_rejected_total", Kind::Counter, "Commands that were not run.");
        for command in &totals.commands {
            family.sample(&[("command", &command.name)], command.rejected);
        }
        let help = "How long commands took.";
        let mut family = page.family("umbel_command_duration_seconds", Kind::Histogram, help);
        for command in &totals.commands {
            family.histogram(&[("command", &command.name)], &command.latency);
        }
        let mut family = page.family("umbel_errors_total", Kind::Counter, "Error replies.");
        for (code, count) in &totals.errors {
            family.sample(&[("code", code)], *count);
        }
        for (name, kind, help, value) in [
            ("umbel_connections_open", Kind::Gauge, "Open connections.", totals.open),
            ("umbel_connections_opened_total", Kind::Counter, "Connections accepted.", totals.opened),
            ("umbel_connections_refused_total", Kind::Counter, "Connections refused.", totals.refused),
            ("umbel_received_bytes_total", Kind::Counter, "Bytes received.", totals.bytes_in),
            ("umbel_sent_bytes_total", Kind::Counter, "Bytes sent.", totals.bytes_out),
            (
                "umbel_filter_hits_total",
                Kind::Counter,
                "Filters that were asked for and were there.",
                totals.hits,
            ),
            (
                "umbel_filter_misses_total",
                Kind::Counter,
                "Filters that were asked for and were not there.",
                totals.misses,
            ),
        ] {
            page.family(name, kind, help).sample(&[], value);
        }
    }
}
