use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::{Appended, Bounds, Log, Record};
use crate::{Error, Position, Result};

/// A log that is gone with the process; for tests, and the plainest reading of the contract.
#[derive(Debug)]
pub struct MemoryLog {
    partitions: Vec<Mutex<Partition>>,
}

#[derive(Debug, Default)]
struct Partition {
    trimmed: usize,
    entries: Vec<Bytes>,
}

impl MemoryLog {
    /// An empty log.
    pub fn new(partitions: u32) -> Self {
        Self { partitions: (0..partitions).map(|_| Mutex::default()).collect() }
    }

    fn partition(&self, number: u32) -> Result<MutexGuard<'_, Partition>> {
        let partition = self.partitions.get(number as usize).ok_or_else(|| {
            Error::Invalid(format!("partition {number} of a log of {}", self.partitions.len()))
        })?;
        Ok(partition.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn position(count: usize) -> Position {
    Position::from_number(count as u128)
}

#[async_trait]
impl Log for MemoryLog {
    fn partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        super::check_entries(&entries)?;
        let mut partition = self.partition(partition)?;
        let first = partition.entries.len();
        partition.entries.extend(entries);
        let positions = (first + 1..=partition.entries.len()).map(position).collect();
        Ok(Appended { positions, is_next: read == position(first) })
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        let partition = self.partition(partition)?;
        let Some(first) =
            usize::try_from(after.number()).ok().filter(|first| *first <= partition.entries.len())
        else {
            return Err(Error::Invalid(format!("position {after} is behind the end of the log")));
        };
        if first < partition.trimmed {
            return Err(Error::Trimmed { oldest: position(partition.trimmed) });
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        for (index, entry) in partition.entries.iter().enumerate().skip(first) {
            bytes += entry.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            records.push(Record { position: position(index + 1), entry: entry.clone() });
        }
        Ok(records)
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        let partition = self.partition(partition)?;
        Ok(Bounds { oldest: position(partition.trimmed), tail: position(partition.entries.len()) })
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        let mut partition = self.partition(partition)?;
        let upto = usize::try_from(upto.number()).unwrap_or(usize::MAX).min(partition.entries.len());
        partition.trimmed = partition.trimmed.max(upto);
        let trimmed = partition.trimmed;
        partition.entries[..trimmed].fill(Bytes::new());
        Ok(())
    }
}
