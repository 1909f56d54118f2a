//! The archive: the compacted past of a slot's log, from which any generation of a filter is rebuilt.
//!
//! It consists of runs. A run is an immutable blob that covers some checkpoints of one slot and holds, for
//! each of some filters, their fingerprints in order, each with its net count: adds less removals. Small runs
//! are merged into larger ones. `docs/formats.md` draws the bytes.
//!
//! ```text
//! older                                             newer
//! [ checkpoints 1 to 64       ][ 65 to 80 ][ 81 ][ 82 ]      four runs of a slot
//!   key: +2                      key: -1     -     -         its net over all of them is 1
//! ```
//!
//! A net may be negative in a run whose older neighbour holds the adds.

mod footer;
mod inspect;
mod lookup;
mod merge;
mod page;
mod run;
mod scan;
mod writer;

pub use footer::MAGIC;
pub(crate) use footer::VERSION;
pub use inspect::{RunReport, SectionReport, describe, inspect};
pub use merge::{NetScan, merge, merged, merged_after};
pub use run::Run;
pub use scan::Scan;
pub use writer::RunWriter;

use umbel_filter::Fingerprint;

/// What a run stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The first checkpoint that it covers.
    pub low: u64,
    /// The last checkpoint that it covers.
    pub high: u64,
    /// The slot that it belongs to.
    pub slot: u16,
}

/// A fingerprint and how often it was added, less how often it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The fingerprint.
    pub key: Fingerprint,
    /// Adds less removals; never 0 in a run, and always 1 in a section without counts.
    pub net: i32,
}

/// Sorts fingerprints and leaves each once: what a section without counts takes.
///
/// The sort is the plain one: spreading by the high bits first was slower for up to 20 million keys.
pub fn tally(fingerprints: &mut Vec<Fingerprint>) {
    fingerprints.sort_unstable_by_key(|key| order(*key));
    fingerprints.dedup();
}

/// Orders as the fingerprint itself does, in one comparison without a branch.
#[inline]
fn order(key: Fingerprint) -> u128 {
    u128::from(key.first) << 64 | u128::from(key.second)
}
