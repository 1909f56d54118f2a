//! What changed a filter after a place in the log, as the log has it, less what had no effect.

use std::sync::Arc;

use futures_util::future::{select_all, try_join_all};
use umbel_filter::Kind;

use super::handle::Handle;
use super::lane::{Effect, Lane};
use super::requests::{Token, check_has_array};
use super::{Engine, Shared};
use crate::definition::Growth;
use crate::entry::{Entry, Operation};
use crate::log::Record;
use crate::{Error, Position, Result};

/// Bytes that are read from the log at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes that are read from one partition where several are read for another node, and of all of these together.
const PART_BYTES_MIN: usize = 64 << 10;
const PARTS_BYTES: usize = 8 << 20;

/// What changed a filter.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Entries, each with its partition. Those of a partition are in order.
    pub records: Vec<(u32, Record)>,
    /// Nothing else happened to the filter up to here.
    pub token: Token,
}

/// What changed a filter in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartChanges {
    /// Entries, in order.
    pub records: Vec<Record>,
    /// Nothing else happened to the filter up to here.
    pub reached: Position,
}

impl Engine {
    /// What changed a filter after a token, or the first part of it. A token that lacks a partition is at its beginning.
    ///
    /// [`Error::Trimmed`] says that this is not known any more: take a version and go on from there.
    pub async fn changes(&self, filter: &Arc<Handle>, after: &Token) -> Result<Changes> {
        check_has_array(&filter.definition())?;
        let mut changes = Changes::default();
        let lanes = self.shared.lanes_of(filter);
        if let Some(cluster) = &self.shared.cluster {
            let place = |lane: &&Lane| (lane.partition, after.position(lane.partition));
            let asked: Vec<(u32, Position)> = lanes.iter().map(place).collect();
            let told = cluster.changes(filter.id(), &asked).await?;
            if told.len() != asked.len()
                || told.iter().zip(&asked).any(|(told, (_, after))| told.reached < *after)
            {
                return Err(Error::Retry(
                    "other nodes told of other changes than they were asked for".into(),
                ));
            }
            for ((partition, _), part) in asked.into_iter().zip(told) {
                changes.token.see(partition, part.reached);
                changes.records.extend(part.records.into_iter().map(|record| (partition, record)));
            }
            return Ok(changes);
        }
        for lane in lanes {
            let after = after.position(lane.partition);
            self.shared.read_changes(filter, lane, after, READ_BYTES, &mut changes).await?;
        }
        Ok(changes)
    }

    /// What changed a filter after places in partitions that are hosted here, for another node: all that was acknowledged, or the first
    /// part of it.
    pub async fn changes_for_peer(&self, filter: u64, after: &[(u32, Position)]) -> Result<Vec<PartChanges>> {
        let handle = self.shared.prove_filter(filter).await?;
        check_has_array(&handle.definition())?;
        try_join_all(after.iter().map(|(partition, _)| self.shared.prove(*partition))).await?;
        let most = (PARTS_BYTES / after.len().max(1)).clamp(PART_BYTES_MIN, READ_BYTES);
        let (mut all, mut bytes) = (Vec::with_capacity(after.len()), 0);
        for (partition, after) in after {
            let mut changes = Changes::default();
            if bytes < PARTS_BYTES {
                let lane = self.shared.hosting(*partition)?;
                self.shared.read_changes(&handle, lane, *after, most, &mut changes).await?;
            }
            let records: Vec<Record> = changes.records.into_iter().map(|(_, record)| record).collect();
            bytes += records.iter().map(|record| record.entry.len()).sum::<usize>();
            all.push(PartChanges { records, reached: changes.token.position(*partition).max(*after) });
        }
        Ok(all)
    }

    /// Waits until something may have changed a filter after a token.
    pub async fn moved(&self, filter: &Arc<Handle>, after: &Token) {
        let lanes = self.shared.lanes_of(filter);
        let moved = lanes.into_iter().map(|lane| Box::pin(lane.moved(after.position(lane.partition))));
        select_all(moved).await;
    }
}

impl Shared {
    /// The lanes in which a filter has shards.
    fn lanes_of(&self, filter: &Handle) -> Vec<&Lane> {
        let few = filter.slots().take(self.lanes.len());
        few.map(|slot| self.lane(slot)).collect()
    }

    async fn read_changes(
        &self,
        filter: &Handle,
        lane: &Lane,
        after: Position,
        bytes_max: usize,
        changes: &mut Changes,
    ) -> Result<()> {
        let applied = lane.applied();
        changes.token.see(lane.partition, after);
        if after >= applied {
            // Nobody else could have seen more than we have.
            return if after == applied || self.log.holds(lane.partition, after).await? {
                Ok(())
            } else {
                Err(Error::Trimmed { oldest: applied })
            };
        }
        if !self.log.holds(lane.partition, after).await? {
            return Err(Error::Trimmed { oldest: applied });
        }
        let followed = filter.definition().mirrors.map(|mirror| mirror.of);
        let records = self.log.read(lane.partition, after, bytes_max).await?;
        let whole = records.is_empty();
        for record in records {
            if record.position > applied {
                break;
            }
            if let Some(followed) = followed
                && changes_followers(&record, followed)?
            {
                // What became of it here, the log does not say.
                return Err(Error::Trimmed { oldest: record.position });
            }
            changes.token.see(lane.partition, record.position);
            if Entry::filter_of(&record.entry) != Some(filter.id()) {
                continue;
            }
            if let Some(record) = effective(filter, lane, record)? {
                changes.records.push((lane.partition, record));
            }
        }
        if whole {
            changes.token.see(lane.partition, applied);
        }
        Ok(())
    }

    /// Whether a filter did nothing to those that follow it between two places in the log. If it takes long to find out, the answer is no.
    pub(super) async fn leaves_followers_alone(
        &self,
        filter: u64,
        partition: u32,
        after: Position,
        upto: Position,
    ) -> Result<bool> {
        if after >= upto {
            return Ok(true);
        }
        let records = match self.log.read(partition, after, READ_BYTES).await {
            Err(Error::Trimmed { .. }) => return Ok(false),
            records => records?,
        };
        if records.last().is_some_and(|last| last.position < upto) {
            return Ok(false);
        }
        for record in &records {
            if changes_followers(record, filter)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether an entry is one of a filter by which it changes those that follow it, too.
fn changes_followers(record: &Record, filter: u64) -> Result<bool> {
    if Entry::filter_of(&record.entry) != Some(filter) {
        return Ok(false);
    }
    Ok(match Entry::decode(&record.entry)?.operation {
        Operation::Add(_)
        | Operation::Remove(_)
        | Operation::AddAbsent(_)
        | Operation::Clear
        | Operation::Adopt { .. }
        | Operation::Load { .. } => true,
        Operation::Define(_)
        | Operation::Describe(_)
        | Operation::Redescribe { .. }
        | Operation::Drop
        | Operation::Barrier
        | Operation::Switch => false,
    })
}

/// An entry with what it had an effect on; none if that is nothing.
fn effective(filter: &Handle, lane: &Lane, record: Record) -> Result<Option<Record>> {
    let effect = lane.effect(record.position);
    // What readers elsewhere cannot decide is told as it was decided here.
    if matches!(effect, Ok(Effect::Whole)) && !Entry::is_add_absent(&record.entry) {
        return Ok(Some(record));
    }
    let entry = Entry::decode(&record.entry)?;
    let keys = match effect {
        Ok(Effect::Whole) => entry.operation.keys().to_vec(),
        Ok(Effect::Keys(keys)) => keys,
        Ok(_) => return Ok(Some(record)),
        Err(error) => {
            // To add a key again to a filter that counts nothing and takes everything changes nothing.
            let definition = filter.definition();
            let simple = definition.spec.kind == Kind::Bloom && definition.growth != Growth::Fixed;
            return if simple && matches!(entry.operation, Operation::Add(_)) {
                Ok(Some(record))
            } else {
                Err(error)
            };
        }
    };
    let operation = match entry.operation {
        _ if keys.is_empty() => return Ok(None),
        Operation::Add(_) | Operation::AddAbsent(_) => Operation::Add(keys),
        Operation::Remove(_) => Operation::Remove(keys),
        _ => return Ok(None),
    };
    let entry = Entry { operation, ..entry }.encode()?;
    Ok(Some(Record { position: record.position, entry }))
}
