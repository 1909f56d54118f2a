//! Filters in process.
//!
//! All filters of a contest take the same keys in turns, chunk by chunk and round by round, so that what disturbs
//! the machine disturbs them alike. Keys are made outside the timed sections. Times are medians of rounds; fills are
//! whole, from an empty filter to its capacity. Everybody's large blocks lie on huge pages.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `keys` | keys made from their numbers |
//! | `peers`, `loops` | the filters, behind one trait; the loops that are timed |
//! | `limit` | the speed of memory |
//! | `contest` | one size, one error, one kind of keys: fill, lookups |
//! | `bits` | memory and measured error at strict rates |
//! | `report`, `targets` | rows for people and programs; what was to be reached |

mod bits;
mod contest;
pub(crate) mod keys;
mod limit;
mod loops;
mod peers;
mod report;
mod targets;
#[cfg(test)]
mod tests;

use std::error::Error;

use clap::Args;

use crate::How;
use crate::measure::Progress;
use contest::{Case, Contest, Effort, FUSE_KEYS_MAX, THOROUGH_KEYS_MAX};
use keys::Kind;
use report::{Report, count};

/// What `filters` is to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of keys [default: 1000000,200000000; quick: 1000000,10000000].
    #[arg(long, value_delimiter = ',')]
    n: Vec<u64>,
    /// Error rates.
    #[arg(long, value_delimiter = ',', default_values_t = [1e-2, 1e-3])]
    error: Vec<f64>,
}

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    let effort =
        if how.quick { Effort { rounds: 3, probes: 3 << 19 } } else { Effort { rounds: 7, probes: 3 << 19 } };
    let sizes = match (options.n.as_slice(), how.quick) {
        ([], false) => &[1_000_000, 200_000_000],
        ([], true) => &[1_000_000, 10_000_000],
        (given, _) => given,
    };

    let mut progress = Progress::start();
    let mut report = Report::new(how.json);
    let (mut rows, mut outcomes) = (Vec::new(), Vec::new());
    for contest in contests(sizes, &options.error) {
        let outcome = contest.run(effort, &mut progress)?;
        progress.pause();
        let new = outcome.rows();
        report.rows(&new)?;
        rows.extend(new);
        outcomes.push(outcome);
    }
    let new = bits::run(&mut progress)?;
    progress.pause();
    report.rows(&new)?;
    rows.extend(new);

    report.sizes(&outcomes)?;
    for note in notes() {
        report.say(&note)?;
    }
    targets::report(&report, &rows)?;
    progress.step("done".to_owned());
    Ok(())
}

/// Every size at every error; counters at the strictest error only, because they take their time.
fn contests(sizes: &[u64], errors: &[f64]) -> Vec<Contest> {
    let strictest = errors.iter().copied().fold(f64::INFINITY, f64::min);
    let mut contests = Vec::new();
    for &n in sizes {
        for &error in errors {
            for case in [Case::Concurrent, Case::Counting] {
                if case == Case::Counting && error > strictest {
                    continue;
                }
                contests.extend(Kind::ALL.map(|kind| Contest { case, n, error, kind }));
            }
        }
    }
    contests
}

fn notes() -> [String; 7] {
    [
        "ratio: how many times faster Umbel is than a peer; over limit and formula: how many times Umbel is above it."
            .to_owned(),
        "fpr, bits/key: Umbel's own. Keys: str are texts of 16 to 25 bytes, fp are hashes made beforehand.".to_owned(),
        "Hashes of str: umbel and classic murmur3 x64 128, fastbloom SipHash-1-3 (its default), sbbf-rs and xorf XXH3."
            .to_owned(),
        "Peers have no batches: their single calls are compared with both modes. classic is the layout of Guava."
            .to_owned(),
        format!(
            "xorf's BinaryFuse8 is static, its error is fixed at 1/256, and it needs too much memory to be built for \
             more than {} keys.",
            count(FUSE_KEYS_MAX)
        ),
        format!(
            "Above {} keys, to keep a run short: no single calls of counting filters, no classic filter at 1e-2.",
            count(THOROUGH_KEYS_MAX)
        ),
        "limit: random cache lines of an array of Umbel's size, prefetched; the best of three distances.\n".to_owned(),
    ]
}
