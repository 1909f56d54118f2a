//! The log: the truth of every filter.

mod file;
mod memory;
pub mod suite;

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

pub use file::{Durability, FileLog, SEGMENT_MAGIC, SegmentReport, Settings, inspect};
pub use memory::MemoryLog;

use crate::limits::ENTRY_BYTES_MAX;
use crate::{Error, Position, Result};

/// Partitions of entries, each in an order that never changes.
///
/// ```text
///  [ trimmed | readable .......... | not written ]
///            ^ oldest              ^ tail            positions grow to the right
/// ```
///
/// - `append` returns only when the entries are as durable as the log promises. They stand next to each other, in the order
///   given, and in every partition all readers see the same order.
/// - If `append` fails, none, some or all of the entries may be in the log, or come into it later: that is what sessions and
///   sequence numbers in the entries are for.
/// - An entry's position is greater than that of every entry before it, and is never given to another one, not even after a
///   crash.
/// - `read` after a position gives the entries behind it, without a gap, or [`Error::Trimmed`] if some of
///   them are gone. It never gives bytes that differ from what was appended.
/// - A `read` that gives nothing says that nothing was there when it was asked, whoever had appended it: all that an append
///   was acknowledged for before is found by reading until nothing comes.
/// - `trim` may keep more than asked.
#[async_trait]
pub trait Log: Debug + Send + Sync + 'static {
    /// The number of partitions, fixed when the log was made.
    fn partitions(&self) -> u32;

    /// Whether nobody else appends to this log while it is open: then what was appended here is all that comes.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Appends entries durably, for one who has read up to `read`, and says where they stand.
    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended>;

    /// The same for one who does not ask what came before them.
    async fn append(&self, partition: u32, entries: Vec<Bytes>) -> Result<Appended> {
        self.append_after(partition, entries, Position::START).await
    }

    /// Makes what was appended durable, also where appends return before that.
    async fn sync(&self, _partition: u32) -> Result<()> {
        Ok(())
    }

    /// Ends in good order: everything is durable, and nothing more is taken.
    async fn close(&self) -> Result<()> {
        Ok(())
    }

    /// The entries after `after`, in order, as many as fit into about `bytes_max` bytes but at least one if there is one.
    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>>;

    /// Whether a position is one that the log still stands for. It is not if it was given out for an entry that a crash took: whoever
    /// has seen that entry has something that nobody else has.
    async fn holds(&self, _partition: u32, _position: Position) -> Result<bool> {
        Ok(true)
    }

    /// Where the partition begins and ends.
    async fn bounds(&self, partition: u32) -> Result<Bounds>;

    /// Lets go of the entries up to and with position `upto`.
    async fn trim(&self, partition: u32, upto: Position) -> Result<()>;
}

/// Where entries stand that were appended together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The position of each.
    pub positions: Vec<Position>,
    /// Whether nothing stands between what the writer had read and the first of them, nor between them: then it knows all that came
    /// before them, and need not read its own entries back. A log that cannot tell says no.
    pub is_next: bool,
}

/// An entry as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The place right after the entry.
    pub position: Position,
    /// The entry.
    pub entry: Bytes,
}

/// The readable part of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Reading after this position gives the oldest entry there is.
    pub oldest: Position,
    /// The position of the newest entry.
    pub tail: Position,
}

/// What every log checks before it takes entries.
pub fn check_entries(entries: &[Bytes]) -> Result<()> {
    match entries.iter().find(|entry| entry.is_empty() || entry.len() > ENTRY_BYTES_MAX) {
        Some(entry) => Err(Error::Invalid(format!(
            "an entry of {} bytes; it must be 1 to {ENTRY_BYTES_MAX}",
            entry.len()
        ))),
        None => Ok(()),
    }
}
