//! Which partitions are hosted here: how one is taken in, followed and let go of.
//!
//! ```text
//!  checkpoints that count --> beside the lane, up to the end of the log --> takes the lane's place --> followed --> released
//! ```
//!
//! A partition is taken in beside what answers, so that one which is hosted already answers meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;

use super::lane::{Lane, Slot};
use super::part::slots_of;
use super::recover::{Counted, recover_slot, start_of_replay};
use super::{Engine, Shared, checkpoint};
use crate::fold::State;
use crate::{Error, Result};

/// Lanes that are read at the same time: a log on an engine is mostly waited for.
const LANES_AT_ONCE: usize = 16;
/// A lane in which nothing happens is read at least once in two to the power of this many rounds.
const QUIET_MAX: u32 = 3;
/// Rounds after which newer checkpoints are looked for.
const ROUNDS_BETWEEN_CHECKPOINTS: u64 = 10;

/// What can be told of a partition that is hosted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// Its number.
    pub partition: u32,
    /// Whether this node is its first host.
    pub is_first: bool,
    /// How long ago all that was in its log was folded here, at most.
    pub age: Duration,
    /// Entries that were folded here since this node was started.
    pub entries: u64,
    /// Bytes of entries that its checkpoints do not have yet.
    pub bytes_since_checkpoint: u64,
}

/// Which partitions are hosted here.
impl Engine {
    /// Takes a partition in: its checkpoints, then its log up to the end. It answers from then on.
    pub async fn host(&self, partition: u32) -> Result<()> {
        self.shared.host(partition).await
    }

    /// Lets go of a partition.
    pub async fn release(&self, partition: u32) -> Result<()> {
        self.shared.release(partition).await
    }

    /// Whether a partition is hosted here.
    pub fn hosts(&self, partition: u32) -> bool {
        self.shared.hosting(partition).is_ok()
    }

    /// What can be told of the partitions that are hosted here, by number.
    pub fn hosted(&self) -> Vec<Hosted> {
        let shared = &self.shared;
        let hosted = shared.lanes.iter().filter(|lane| shared.hosting(lane.partition).is_ok());
        let told = hosted.map(|lane| Hosted {
            partition: lane.partition,
            is_first: shared.is_first(lane.partition),
            age: shared.age_of(lane),
            entries: lane.entries.load(Ordering::Relaxed),
            bytes_since_checkpoint: lane.folded_bytes.load(Ordering::Relaxed),
        });
        told.collect()
    }

    /// The partition that every node hosts: it says what filters there are.
    pub fn catalog(&self) -> u32 {
        self.shared.catalog()
    }

    /// Reads what others appended to partitions that are hosted here, and takes over checkpoints that others made. A thread does it too
    /// ([`start`](Self::start)).
    pub async fn follow(&self) -> Result<()> {
        self.shared.follow().await
    }
}

impl Shared {
    /// The slots of a partition.
    pub(super) fn slots_of(&self, partition: u32) -> impl Iterator<Item = u16> + use<> {
        slots_of(partition, self.lanes.len() as u32, self.settings.slots)
    }

    /// The lane of a partition, whether it is hosted here or not.
    pub(super) fn lane_of(&self, partition: u32) -> Result<&Lane> {
        let lane = self.lanes.get(partition as usize);
        lane.ok_or_else(|| Error::Invalid(format!("partition {partition}; there are {}", self.lanes.len())))
    }

    /// The lane of a partition that is hosted here.
    pub(super) fn hosting(&self, partition: u32) -> Result<&Lane> {
        let lane = self.lane_of(partition)?;
        if self.directory.is_hosted(partition as u16) { Ok(lane) } else { Err(lane.moved_away()) }
    }

    /// Takes a partition in, or takes it in anew from the newest checkpoints.
    pub(super) async fn host(&self, partition: u32) -> Result<()> {
        let lane = self.lane_of(partition)?;
        let _one_at_a_time = lane.checkpoints.lock().await;
        let mut busy = Vec::new();
        for slot in self.slots_of(partition) {
            busy.push(self.maintenance(slot).lock().await);
        }
        let beside = self.warm_up(partition).await?;
        // What came meanwhile is little, and nothing comes while the lane's turn is taken.
        let mut turn = lane.turn.lock().await;
        let now = self.clock.now();
        beside.catch_up(self, &mut *beside.turn.lock().await).await?;
        let folded = beside.folded_bytes.load(Ordering::Relaxed);
        lane.entries.fetch_add(beside.entries.load(Ordering::Relaxed), Ordering::Relaxed);
        if beside.applied() < turn.applied {
            return Err(Error::Retry(format!(
                "partition {partition} of the log ends before what was read of it"
            )));
        }
        let shown: Vec<(u16, u64)> = turn.slots.iter().flat_map(Slot::shown).collect();
        lane.install(&mut turn, Some(beside));
        lane.is_read_since(now);
        lane.folded_bytes.store(folded, Ordering::Relaxed);
        self.show_all(&mut turn)?;
        // The entries that dropped a filter or renamed one may be in the checkpoints, so that nothing folded them here.
        for (number, filter) in shown {
            let Some(slot) = turn.slot(self, number) else { continue };
            if slot.state.shard(filter).is_none() {
                self.show(slot, filter)?;
            }
        }
        if partition == self.catalog() {
            self.directory.settle_names();
        }
        lane.publish(turn.applied);
        drop(turn);
        self.directory.unsorted().iter().for_each(|handle| handle.recount());
        Ok(())
    }

    /// The slots of a partition as the log has them now, beside those that answer.
    async fn warm_up(&self, partition: u32) -> Result<Lane> {
        let mut slots = Vec::new();
        for slot in self.slots_of(partition) {
            let state = State::new(slot, self.settings.slots, self.means.clone());
            let counted = match &self.ledger {
                None => Counted::All,
                // A registry that was lost does not take checkpoints with it.
                Some(ledger) => Counted::UpTo(ledger.newest(slot).await?.unwrap_or(u64::MAX)),
            };
            let listed = self.blobs.list(Some(&Path::from(checkpoint::folder(slot))));
            let names: Vec<String> = listed
                .map_ok(|blob| blob.location.to_string())
                .try_collect()
                .await
                .map_err(|error| Error::blob("cannot list blobs", &error))?;
            slots.push(recover_slot(&self.blobs, state, &names, counted).await?);
        }
        let start = start_of_replay(self, partition, &mut slots).await?;
        let lane = Lane::new(partition, slots, start);
        let mut turn = lane.turn.lock().await;
        for slot in &mut turn.slots {
            self.load_cold(slot).await?;
        }
        lane.catch_up(self, &mut turn).await?;
        drop(turn);
        Ok(lane)
    }

    async fn release(&self, partition: u32) -> Result<()> {
        if partition == self.catalog() {
            return Err(Error::Invalid("every node hosts the catalog".into()));
        }
        let lane = self.hosting(partition)?;
        let _one_at_a_time = lane.checkpoints.lock().await;
        let mut busy = Vec::new();
        for slot in self.slots_of(partition) {
            busy.push(self.maintenance(slot).lock().await);
        }
        let mut turn = lane.turn.lock().await;
        self.directory.set_hosted(self.slots_of(partition), false);
        for slot in &turn.slots {
            let number = slot.state.slot();
            slot.state.shards().for_each(|(id, _)| self.directory.give_away(number, id));
        }
        lane.install(&mut turn, None);
        lane.publish(turn.applied);
        Ok(())
    }

    /// Makes a checkpoint the newest of its slot, where other nodes could have made another.
    pub(super) async fn commit(&self, slot: u16, before: u64, next: u64) -> Result<()> {
        match &self.ledger {
            Some(ledger) => ledger.commit(slot, before, next).await,
            None => Ok(()),
        }
    }

    /// Reads what others appended, and takes over checkpoints that others made.
    pub(super) async fn follow(&self) -> Result<()> {
        let round = self.work.next_follow();
        let hosted = self.lanes.iter().filter(|lane| self.directory.is_hosted(lane.partition as u16));
        let hosted: Vec<&Lane> = hosted.collect();
        let mut failure = None;
        let read = hosted.iter().map(|lane| async move {
            // Where nothing happens, nobody has to look so often.
            let pause = 1_u64 << lane.quiet.load(Ordering::Relaxed).min(QUIET_MAX);
            let is_due = lane.partition == self.catalog() || round.is_multiple_of(pause);
            if self.is_first(lane.partition) {
                self.prove(lane.partition).await
            } else if is_due {
                self.read_to_end(lane.partition).await
            } else {
                Ok(())
            }
        });
        let read: Vec<_> = read.collect();
        let mut read = stream::iter(read).buffer_unordered(LANES_AT_ONCE);
        while let Some(read) = read.next().await {
            if let Err(error) = read {
                failure.get_or_insert(error);
            }
        }
        if round.is_multiple_of(ROUNDS_BETWEEN_CHECKPOINTS)
            && let Err(error) = self.look_for_checkpoints(&hosted).await
        {
            failure.get_or_insert(error);
        }
        for lane in hosted.iter().filter(|lane| lane.is_outdated.load(Ordering::Relaxed)) {
            if let Err(error) = self.host(lane.partition).await {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Finds lanes with much in memory that is in checkpoints of others.
    async fn look_for_checkpoints(&self, lanes: &[&Lane]) -> Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let newest = ledger.all().await?;
        for lane in lanes {
            if lane.folded_bytes.load(Ordering::Relaxed) < self.settings.checkpoint_bytes / 2 {
                continue;
            }
            let turn = lane.turn.lock().await;
            let is_newer =
                |slot: &Slot| newest.get(&slot.state.slot()).is_some_and(|number| *number > slot.counted);
            if turn.slots.iter().any(is_newer) {
                lane.is_outdated.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
