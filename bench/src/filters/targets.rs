//! What Umbel means to reach, next to what was measured.

use super::bits;
use super::contest::Case;
use super::report::{LIMIT, Report, Row, count, power};

/// The sizes and the error that targets are set for.
const LARGE: u64 = 200_000_000;
const SMALL: u64 = 1_000_000;
const ERROR: f64 = 1e-3;

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// No target, for comparison.
    None,
}

struct Target {
    what: String,
    bound: Bound,
    /// Nothing if this run did not measure it.
    value: Option<f64>,
    /// What the value is made of.
    detail: String,
    /// Whether something beside the bound stands in the way.
    broken: bool,
}

/// Picks rows by what they are about.
struct Rows<'a> {
    rows: &'a [Row],
    large: u64,
    small: u64,
}

/// A part of what a row is about: keys, mode.
type Manner = (&'static str, &'static str);

pub(super) fn report(report: &Report, rows: &[Row]) -> std::io::Result<()> {
    let targets = all(rows);
    report.say(&report.paint("1", "Targets"))?;
    let width = targets.iter().map(|target| target.what.len()).max().unwrap_or(0);
    for Target { what, bound, value, detail, broken } in targets {
        let wanted = match bound {
            Bound::AtLeast(least) => format!(">= {least}"),
            Bound::AtMost(most) => format!("<= {most}"),
            Bound::None => String::new(),
        };
        let (shown, verdict) = match value {
            None => ("-".to_owned(), report.paint("2", "not measured")),
            Some(value) => {
                let met = match bound {
                    Bound::AtLeast(least) => value >= least,
                    Bound::AtMost(most) => value <= most,
                    Bound::None => true,
                };
                let verdict = match bound {
                    Bound::None => report.paint("2", "for comparison"),
                    _ if met && !broken => report.paint("32", "ok"),
                    _ => report.paint("31", "MISSED"),
                };
                (format!("{value:.2}"), verdict)
            }
        };
        let line = format!("{what:<width$} {shown:>6} {wanted:<7} {verdict} {detail}");
        report.say(line.trim_end())?;
    }
    Ok(())
}

fn all(rows: &[Row]) -> Vec<Target> {
    let sizes = || rows.iter().filter(|row| row.case == Case::Concurrent.name()).map(|row| row.n);
    // A smaller run shows what it has, under its own size.
    let nearest = |n| if sizes().any(|size| size == n) { Some(n) } else { None };
    let large = nearest(LARGE).or(sizes().max()).unwrap_or(LARGE);
    let small = nearest(SMALL).or(sizes().min()).unwrap_or(SMALL);
    let rows = Rows { rows, large, small };
    let mut targets = Vec::new();
    targets.extend(rows.large());
    targets.extend(rows.small());
    targets.extend(rows.bits());
    targets.extend(rows.counting());
    targets
}

impl Rows<'_> {
    fn ratio(&self, case: Case, n: u64, (keys, mode): Manner, op: &str, peer: &str) -> Option<f64> {
        let found = self.rows.iter().find(|row| {
            (row.case, row.n, row.error, row.keys, row.mode, row.op, row.peer)
                == (case.name(), n, ERROR, keys, mode, op, peer)
        });
        found.map(|row| row.ratio)
    }

    fn large(&self) -> Vec<Target> {
        let target = |manner: Manner, op: &str, peer: &str, bound| {
            let (keys, mode) = manner;
            Target {
                what: format!("{} {mode} {keys} {op} against {peer}", count(self.large)),
                bound,
                value: self.ratio(Case::Concurrent, self.large, manner, op, peer),
                detail: stand_in(self.large, LARGE),
                broken: false,
            }
        };
        vec![
            target(("str", "batch"), "hit", "fastbloom-atomic", Bound::AtLeast(8.0)),
            target(("str", "batch"), "miss", "fastbloom-atomic", Bound::AtLeast(5.0)),
            target(("fp", "batch"), "hit", LIMIT, Bound::AtMost(1.3)),
            target(("fp", "batch"), "miss", LIMIT, Bound::AtMost(1.3)),
            target(("str", "batch"), "insert", "fastbloom-atomic", Bound::AtLeast(2.5)),
            target(("str", "batch"), "insert", "fastbloom", Bound::None),
            target(("str", "single"), "hit", "fastbloom", Bound::AtLeast(1.4)),
            target(("str", "single"), "hit", "fastbloom-atomic", Bound::AtLeast(1.4)),
        ]
    }

    fn small(&self) -> Vec<Target> {
        let target = |manner: Manner, least| {
            let (keys, mode) = manner;
            let ratio = |op| self.ratio(Case::Concurrent, self.small, manner, op, "fastbloom");
            let both = ratio("hit").zip(ratio("miss"));
            Target {
                what: format!("{} {mode} {keys} lookups against fastbloom", count(self.small)),
                bound: Bound::AtLeast(least),
                value: both.map(|(hit, miss)| (hit * miss).sqrt()),
                detail: both.map_or_else(String::new, |(hit, miss)| {
                    format!("hit {hit:.2}, miss {miss:.2} {}", stand_in(self.small, SMALL))
                }),
                broken: false,
            }
        };
        vec![
            target(("str", "batch"), 2.5),
            target(("fp", "batch"), 3.5),
            target(("str", "single"), 1.15),
            target(("fp", "single"), 1.8),
        ]
    }

    fn bits(&self) -> Vec<Target> {
        let target = |&(error, _): &(f64, u64)| {
            let row = self.rows.iter().find(|row| row.case == bits::CASE && row.error == error);
            Target {
                what: format!("bits a key at {} against the classic formula", power(error)),
                bound: Bound::AtMost(if error >= ERROR { 1.10 } else { 1.15 }),
                value: row.map(|row| row.ratio),
                detail: row.map_or_else(String::new, |row| {
                    format!("{:.2} bits, measured error {:.3e}", row.bits_per_key, row.fpr)
                }),
                broken: row.is_some_and(|row| row.fpr > bits::tolerated(error)),
            }
        };
        bits::RATES.iter().map(target).collect()
    }

    fn counting(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for keys in ["str", "fp"] {
            for op in ["insert", "hit", "miss"] {
                let faster = self.ratio(Case::Counting, self.large, (keys, "batch"), op, "bloom");
                targets.push(Target {
                    what: format!("{} batch {keys} {op}: counting over Bloom time", count(self.large)),
                    bound: Bound::AtMost(2.0),
                    value: faster.map(|faster| 1.0 / faster),
                    detail: stand_in(self.large, LARGE),
                    broken: false,
                });
            }
        }
        targets
    }
}

/// Said where a run of another size stands in for the one that the target is about.
fn stand_in(n: u64, meant: u64) -> String {
    if n == meant { String::new() } else { format!("(the target is for {})", count(meant)) }
}
