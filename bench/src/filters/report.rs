//! Results for people and for programs.

use std::io::{IsTerminal, Write};

use serde_json::json;

use super::contest::{Outcome, Score};
use super::peers::Mode;

/// One comparison. The peer of limits and formulas is no filter, and their ratio says by how much Umbel is over them;
/// every other ratio says how many times faster Umbel is.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: &'static str,
    pub(super) n: u64,
    pub(super) error: f64,
    pub(super) keys: &'static str,
    pub(super) mode: &'static str,
    pub(super) op: &'static str,
    pub(super) ours_ns: f64,
    pub(super) peer: &'static str,
    pub(super) peer_ns: Option<f64>,
    pub(super) ratio: f64,
    /// Umbel's measured error.
    pub(super) fpr: f64,
    /// Umbel's memory.
    pub(super) bits_per_key: f64,
}

/// The peer that cannot be told an error rate.
pub(super) const FUSE: &str = "xorf";
/// The peer that is the speed of memory.
pub(super) const LIMIT: &str = "limit";

impl Outcome {
    /// Umbel in each mode against each peer; against the peer's single calls where it has no batches.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for ours in self.scores.iter().filter(|score| score.ours) {
            for op in ["insert", "hit", "miss"] {
                let Some(ours_ns) = ours.time(op) else { continue };
                let row = |peer, peer_ns, ratio| Row {
                    case: self.contest.case.name(),
                    n: self.contest.n,
                    error: self.contest.error,
                    keys: self.contest.kind.name(),
                    mode: ours.mode.name(),
                    op,
                    ours_ns,
                    peer,
                    peer_ns: Some(peer_ns),
                    ratio,
                    fpr: ours.fpr,
                    bits_per_key: ours.bits_per_key,
                };
                for peer in self.scores.iter().filter(|score| !score.ours && self.is_pair(ours, score)) {
                    if let Some(peer_ns) = peer.time(op) {
                        rows.push(row(peer.name, peer_ns, peer_ns / ours_ns));
                    }
                }
                if let (Some(limit), Mode::Batch) = (&self.limit, ours.mode) {
                    match op {
                        "hit" => rows.push(row(LIMIT, limit.hit, ours_ns / limit.hit)),
                        "miss" => rows.push(row(LIMIT, limit.miss, ours_ns / limit.miss)),
                        _ => (),
                    }
                }
            }
        }
        rows
    }

    fn is_pair(&self, ours: &Score, peer: &Score) -> bool {
        let batches = self.scores.iter().any(|score| score.name == peer.name && score.mode == Mode::Batch);
        if batches { peer.mode == ours.mode } else { peer.mode == Mode::Single }
    }
}

impl Score {
    fn time(&self, op: &str) -> Option<f64> {
        match op {
            "insert" => self.insert,
            "hit" => Some(self.hit),
            _ => Some(self.miss),
        }
    }
}

/// Where results go: lines of JSON, or a table that grows while the run goes on.
pub(super) struct Report {
    json: bool,
    colours: bool,
    headed: bool,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { json, colours: colours && !json, headed: false }
    }

    pub(super) fn rows(&mut self, rows: &[Row]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            return rows.iter().try_for_each(|row| writeln!(out, "{}", object(row)));
        }
        if !self.headed {
            let head = format!(
                "{:<10} {:>6} {:>5} {:<4} {:<6} {:<6} {:>8} {:<16} {:>8} {:>7} {:>9} {:>8}",
                "case",
                "n",
                "error",
                "keys",
                "mode",
                "op",
                "ours ns",
                "peer",
                "peer ns",
                "ratio",
                "fpr",
                "bits/key"
            );
            writeln!(out, "{}", self.paint("1", &head))?;
            self.headed = true;
        }
        for row in rows {
            let peer_ns = row.peer_ns.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
            writeln!(
                out,
                "{:<10} {:>6} {:>5} {:<4} {:<6} {:<6} {:>8.2} {:<16} {:>8} {} {:>9.2e} {:>8.2}",
                row.case,
                count(row.n),
                power(row.error),
                row.keys,
                row.mode,
                row.op,
                row.ours_ns,
                if row.peer == FUSE { "xorf (fixed err)" } else { row.peer },
                peer_ns,
                self.paint("36", &format!("{:>7.2}", row.ratio)),
                row.fpr,
                row.bits_per_key,
            )?;
        }
        writeln!(out)
    }

    /// What is said to people only; next to lines of JSON it goes to standard error.
    pub(super) fn say(&self, line: &str) -> std::io::Result<()> {
        if self.json { writeln!(std::io::stderr(), "{line}") } else { writeln!(std::io::stdout(), "{line}") }
    }

    /// Error and memory of every filter that took part, so that it can be seen who had what to work with.
    pub(super) fn sizes(&self, outcomes: &[Outcome]) -> std::io::Result<()> {
        self.say(&self.paint("1", "Sizes: measured error and bits a key of each filter"))?;
        for Outcome { contest, scores, .. } in outcomes {
            let sizes: Vec<_> = scores
                .iter()
                .enumerate()
                // Both modes of a filter have the same bits.
                .filter(|(index, score)| scores[..*index].iter().all(|earlier| earlier.name != score.name))
                .map(|(_, score)| format!("{} {:.2e} {:.2}", score.name, score.fpr, score.bits_per_key))
                .collect();
            self.say(&format!(
                "{:<10} {:>6} {:>5} {:<4} {}",
                contest.case.name(),
                count(contest.n),
                power(contest.error),
                contest.kind.name(),
                sizes.join(", "),
            ))?;
        }
        self.say("")
    }

    pub(super) fn paint(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn object(row: &Row) -> serde_json::Value {
    json!({
        "case": row.case,
        "n": row.n,
        "error": row.error,
        "keys": row.keys,
        "mode": row.mode,
        "op": row.op,
        "ours_ns": rounded(row.ours_ns),
        "peer": row.peer,
        "peer_ns": row.peer_ns.map(rounded),
        "ratio": rounded(row.ratio),
        "fpr": row.fpr,
        "bits_per_key": rounded(row.bits_per_key),
    })
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A number of keys, short: `200 M`.
pub(super) fn count(n: u64) -> String {
    for (unit, name) in [(1_000_000, "M"), (1_000, "k")] {
        if n >= unit && n.is_multiple_of(unit) {
            return format!("{} {name}", n / unit);
        }
    }
    n.to_string()
}

/// An error rate, short: `1e-3`.
pub(super) fn power(error: f64) -> String {
    format!("{error:e}")
}
