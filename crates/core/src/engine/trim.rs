//! Letting go of the log: up to where every slot has two checkpoints, and with a record of which.
//!
//! A slot for which nothing was written lately keeps an old checkpoint while the log before it goes. At the next start its
//! position lies before the beginning of the log. That it lacks nothing is known from the record alone; without one that names its
//! checkpoint the start is refused.

use futures_util::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::Shared;
use super::checkpoint::{put_new, read};
use super::lane::Slot;
use crate::fields::{Fields, seal};
use crate::{Error, Position, Result};

/// The first bytes of a record of trimming.
pub const MAGIC: [u8; 8] = *b"\x89UMBTRM\n";
pub(crate) const VERSION: u16 = 1;

/// How far a partition was trimmed, and which checkpoint of each slot made that possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trimmed {
    pub(super) partition: u32,
    pub(super) number: u64,
    pub(super) upto: Position,
    /// Slots and the oldest of their checkpoints that are kept; 0 for slots that never had anything.
    pub(super) slots: Vec<(u16, u64)>,
}

fn folder(partition: u32) -> String {
    format!("partitions/{partition:04}")
}

fn name(partition: u32, number: u64) -> String {
    format!("{}/{number:012}.trimmed", folder(partition))
}

impl Trimmed {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.slots.len() * 10);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.partition.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.upto.to_bytes());
        out.extend((self.slots.len() as u32).to_le_bytes());
        for (slot, checkpoint) in &self.slots {
            out.extend(slot.to_le_bytes());
            out.extend(checkpoint.to_le_bytes());
        }
        seal(&mut out);
        out
    }

    pub(super) fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let mut fields = Fields::checked(bytes, name, MAGIC, VERSION)?;
        fields.u16()?;
        let (partition, number) = (fields.u32()?, fields.u64()?);
        let upto = Position::from_bytes(fields.take()?);
        let slots = (0..fields.u32()?).map(|_| Ok((fields.u16()?, fields.u64()?))).collect::<Result<_>>()?;
        fields.end()?;
        Ok(Self { partition, number, upto, slots })
    }
}

impl Shared {
    /// Trims a partition as far as its slots allow.
    pub(super) async fn trim(&self, partition: u32) -> Result<()> {
        let lane = &self.lanes[partition as usize];
        let (upto, slots) = {
            let turn = lane.turn.lock().await;
            let needed = turn.slots.iter().filter_map(Slot::needs_log_after);
            let upto = needed.min().unwrap_or(turn.applied);
            let oldest = |slot: &Slot| slot.kept.first().map_or(0, |kept| kept.number);
            (upto, turn.slots.iter().map(|slot| (slot.state.slot(), oldest(slot))).collect())
        };
        if upto <= self.log.bounds(partition).await?.oldest {
            return Ok(());
        }
        // One that is there may not be durable, if putting it failed: nothing is trimmed without a record that was put now.
        let last = self.last_trimmed(partition).await?;
        if last.as_ref().is_some_and(|last| last.upto > upto) {
            // Another node went further since: a newer record that says less would hide what it let go of.
            return Ok(());
        }
        let number = last.map_or(1, |last| last.number + 1);
        let record = Trimmed { partition, number, upto, slots };
        put_new(&*self.blobs, &name(partition, number), record.encode()).await?;
        self.claimed()?;
        self.log.trim(partition, upto).await?;
        if number > 1 {
            // One that is left over says less than the newest and does no harm.
            let _ = self.blobs.delete(&Path::from(name(partition, number - 1))).await;
        }
        Ok(())
    }

    /// The newest record of a partition's trimming.
    pub(super) async fn last_trimmed(&self, partition: u32) -> Result<Option<Trimmed>> {
        let inside = Path::from(folder(partition));
        let listed: Vec<_> = self
            .blobs
            .list(Some(&inside))
            .try_collect()
            .await
            .map_err(|error| Error::blob("cannot list blobs", &error))?;
        let Some(newest) = listed.into_iter().map(|blob| blob.location.to_string()).max() else {
            return Ok(None);
        };
        Trimmed::decode(&read(&*self.blobs, &newest).await?, &newest).map(Some)
    }
}
