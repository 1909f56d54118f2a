//! What changed a filter after a place in the log, as the log has it, less what had no effect.

use std::sync::Arc;

use futures_util::future::select_all;
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

/// What changed a filter.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Entries, each with its partition. Those of a partition are in order.
    pub records: Vec<(u32, Record)>,
    /// Nothing else happened to the filter up to here.
    pub token: Token,
}

impl Engine {
    /// What changed a filter after a token, or the first part of it. A token that lacks a partition is at its beginning.
    ///
    /// [`Error::Trimmed`] says that this is not known any more: take a version and go on from there.
    pub async fn changes(&self, filter: &Arc<Handle>, after: &Token) -> Result<Changes> {
        check_has_array(&filter.definition())?;
        let mut changes = Changes::default();
        for lane in self.shared.lanes_of(filter) {
            self.shared.read_changes(filter, lane, after.position(lane.partition), &mut changes).await?;
        }
        Ok(changes)
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
        let records = self.log.read(lane.partition, after, READ_BYTES).await?;
        let whole = records.is_empty();
        for record in records {
            if record.position > applied {
                break;
            }
            let changed = Entry::filter_of(&record.entry);
            if changed.is_some() && changed == followed {
                // What became of it here, the log does not say.
                return Err(Error::Trimmed { oldest: record.position });
            }
            changes.token.see(lane.partition, record.position);
            if changed != Some(filter.id()) {
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
}

/// An entry with what it had an effect on; none if that is nothing.
fn effective(filter: &Handle, lane: &Lane, record: Record) -> Result<Option<Record>> {
    let effect = lane.effect(record.position);
    if let Ok(Effect::Whole) = effect {
        return Ok(Some(record));
    }
    let entry = Entry::decode(&record.entry)?;
    let keys = match effect {
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
        Operation::Add(_) => Operation::Add(keys),
        Operation::Remove(_) => Operation::Remove(keys),
        _ => return Ok(None),
    };
    let entry = Entry { operation, ..entry }.encode()?;
    Ok(Some(Record { position: record.position, entry }))
}
