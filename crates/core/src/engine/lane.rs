//! A lane: one partition of the log and the slots that are folded from it.
//!
//! Requests queue up. Whoever has the turn takes all that wait, appends them together, folds them in the order of the log and
//! tells each what came of it; those who waited find their answer when it is their turn. So there is one append under way
//! for each partition, and while it waits for the disk the next batch gathers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::Shared;
use super::checkpoint::Kept;
use super::part::{Applied, Split};
use super::stored::Stored;
use crate::archive::Run;
use crate::entry::{Entry, Operation};
use crate::fold::{Archived, Shard, State, Work};
use crate::{Error, Position, Result};

/// Bytes that are read from the log at once.
const READ_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) partition: u32,
    queue: Mutex<Vec<Arc<Ticket>>>,
    pub(super) turn: tokio::sync::Mutex<Turn>,
    applied: Mutex<Position>,
    /// Rounds of checkpoints, with the trim in the end, come one after another.
    pub(super) checkpoints: tokio::sync::Mutex<()>,
    /// Bytes of entries that were folded, for whoever decides when to make a checkpoint.
    pub(super) folded_bytes: AtomicU64,
}

/// What only one at a time may touch.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) slots: Vec<Slot>,
    pub(super) applied: Position,
    /// There may be entries in the log after `applied` that were not folded: an append failed or was given up.
    pub(super) uncertain: bool,
}

/// A slot, and what is stored of it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    /// The last entry that was for this slot.
    pub(super) last_entry: Position,
    /// Archive runs, oldest first.
    pub(super) runs: Vec<Run>,
    /// Where the arrays are on disk, by filter.
    pub(super) stored: HashMap<u64, Stored>,
    /// Checkpoints that are kept, oldest first.
    pub(super) kept: Vec<Kept>,
}

impl Slot {
    /// The runs that may hold keys of a filter.
    pub(super) fn runs_of(&self, filter: u64) -> Vec<Run> {
        let first = self.state.shard(filter).map_or(u64::MAX, Shard::first_run);
        self.runs.iter().filter(|run| run.high() >= first).cloned().collect()
    }
}

/// A request and, when it is there, its answer.
#[derive(Debug)]
struct Ticket {
    split: Split,
    bytes: Bytes,
    answer: OnceLock<Result<Applied>>,
}

impl Lane {
    pub(super) fn new(partition: u32, slots: Vec<Slot>, applied: Position) -> Self {
        Self {
            partition,
            queue: Mutex::default(),
            turn: tokio::sync::Mutex::new(Turn { slots, applied, uncertain: true }),
            applied: Mutex::new(applied),
            checkpoints: tokio::sync::Mutex::default(),
            folded_bytes: AtomicU64::new(0),
        }
    }

    /// Appends entries and folds them; gives what came of each.
    pub(super) async fn submit(&self, shared: &Shared, entries: Vec<Entry>) -> Result<Vec<Applied>> {
        let tickets = entries.into_iter().map(|entry| {
            let bytes = entry.encode()?;
            Ok(Arc::new(Ticket { split: self.split(shared, entry), bytes, answer: OnceLock::new() }))
        });
        let tickets = tickets.collect::<Result<Vec<_>>>()?;
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).extend(tickets.iter().cloned());
        let mut turn = self.turn.lock().await;
        if tickets.iter().any(|ticket| ticket.answer.get().is_none()) {
            self.work(shared, &mut turn).await;
        }
        drop(turn);
        let given_up = || Err(Error::Retry("whoever appended this gave up: it may be done or not".into()));
        tickets.iter().map(|ticket| ticket.answer.get().cloned().unwrap_or_else(given_up)).collect()
    }

    /// Appends an entry and folds it, for one who has the turn.
    pub(super) async fn submit_in_turn(
        &self,
        shared: &Shared,
        turn: &mut Turn,
        entry: Entry,
    ) -> Result<Applied> {
        let bytes = entry.encode()?;
        let ticket = Arc::new(Ticket { split: self.split(shared, entry), bytes, answer: OnceLock::new() });
        self.append(shared, turn, std::slice::from_ref(&ticket)).await?;
        ticket.answer.get().cloned().unwrap_or_else(|| Err(Error::Retry("it was given up".into())))
    }

    /// Does everything that waits.
    async fn work(&self, shared: &Shared, turn: &mut Turn) {
        let waiting = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        // What an entry needs is looked up before it is appended, so changes of what there is stand alone.
        for batch in waiting.chunk_by(|one, next| !one.split.is_change() && !next.split.is_change()) {
            if let Err(error) = self.append(shared, turn, batch).await {
                for ticket in batch {
                    // Those that were folded before it failed have their answer.
                    let _ = ticket.answer.set(Err(error.clone()));
                }
            }
        }
    }

    async fn append(&self, shared: &Shared, turn: &mut Turn, batch: &[Arc<Ticket>]) -> Result<()> {
        if turn.uncertain {
            self.catch_up(shared, turn).await?;
        }
        let mut archived = Archived::none();
        let mut ready = Vec::with_capacity(batch.len());
        for ticket in batch {
            match self.prepare(shared, turn, &ticket.split, &mut archived).await {
                Ok(()) => ready.push(ticket),
                // That is its own trouble, not that of the others.
                Err(error) => _ = ticket.answer.set(Err(error)),
            }
        }
        if ready.is_empty() {
            return Ok(());
        }
        turn.uncertain = true;
        let entries = ready.iter().map(|ticket| ticket.bytes.clone()).collect();
        let positions = shared.log.append(self.partition, entries).await?;
        if !shared.log.is_exclusive() {
            return self.find(shared, turn, &ready, &positions).await;
        }
        for (ticket, position) in ready.iter().zip(positions) {
            let applied = self.fold(shared, turn, position, &ticket.split, ticket.bytes.len(), &archived)?;
            let _ = ticket.answer.set(Ok(applied));
        }
        turn.uncertain = false;
        self.publish(turn.applied);
        Ok(())
    }

    fn split(&self, shared: &Shared, entry: Entry) -> Split {
        Split::new(entry, self.partition, shared.lanes.len() as u32, shared.settings.slots)
    }

    /// Folds what others appended, until our own entries come by.
    async fn find(
        &self,
        shared: &Shared,
        turn: &mut Turn,
        batch: &[&Arc<Ticket>],
        positions: &[Position],
    ) -> Result<()> {
        let ours: HashMap<Position, &&Arc<Ticket>> = positions.iter().copied().zip(batch).collect();
        let Some(last) = positions.last() else { return Ok(()) };
        while turn.applied < *last {
            let folded = self.fold_next(shared, turn, |applied| {
                if let Some(ticket) = ours.get(&applied.position) {
                    let _ = ticket.answer.set(Ok(applied));
                }
            });
            if !folded.await? {
                return Err(Error::Retry(format!("the log does not give back the entry at {last} yet")));
            }
        }
        turn.uncertain = false;
        self.publish(turn.applied);
        Ok(())
    }

    /// Folds everything that is in the log.
    pub(super) async fn catch_up(&self, shared: &Shared, turn: &mut Turn) -> Result<()> {
        while self.fold_next(shared, turn, |_| {}).await? {}
        turn.uncertain = false;
        self.publish(turn.applied);
        Ok(())
    }

    /// Folds the next part of the log; false if there is none.
    async fn fold_next(
        &self,
        shared: &Shared,
        turn: &mut Turn,
        mut folded: impl FnMut(Applied),
    ) -> Result<bool> {
        let records = shared.log.read(self.partition, turn.applied, READ_BYTES).await?;
        let any = !records.is_empty();
        for record in records {
            let mut split = self.split(shared, Entry::decode(&record.entry)?);
            // What a checkpoint holds already is passed over.
            split.retain(|slot| {
                turn.slot(shared, slot).is_none_or(|slot| record.position > slot.state.applied())
            });
            let mut archived = Archived::none();
            self.prepare(shared, turn, &split, &mut archived).await?;
            folded(self.fold(shared, turn, record.position, &split, record.entry.len(), &archived)?);
        }
        Ok(any)
    }

    /// Makes sure that an entry can be folded: its filter is in memory, and what the archive says of its keys is known.
    async fn prepare(
        &self,
        shared: &Shared,
        turn: &mut Turn,
        split: &Split,
        archived: &mut Archived,
    ) -> Result<()> {
        let filter = split.entry.filter;
        for part in split.parts() {
            let Some(slot) = turn.slot(shared, part.slot) else {
                let slots = shared.settings.slots;
                return Err(Error::Invalid(format!("slot {} of a deployment of {slots}", part.slot)));
            };
            if let Work::Other(
                Operation::Drop
                | Operation::Clear
                | Operation::Barrier
                | Operation::Describe(_)
                | Operation::Adopt { .. },
            ) = part.work
            {
                continue;
            }
            let Some(shard) = slot.state.shard(filter) else { continue };
            if shard.projection().is_none() {
                shared.load_into(slot, filter).await?;
            }
            match part.work {
                Work::Remove(keys) => shared.ask_archive(slot, filter, keys, archived).await?,
                Work::Other(Operation::Switch) => shared.build_in_turn(slot, filter).await?,
                _ => {}
            }
        }
        Ok(())
    }

    fn fold(
        &self,
        shared: &Shared,
        turn: &mut Turn,
        position: Position,
        split: &Split,
        bytes: usize,
        archived: &Archived,
    ) -> Result<Applied> {
        let mut applied = Applied::at(position, split);
        let mut new_keys = 0;
        let (filter, request) = (split.entry.filter, split.entry.request);
        turn.prefetch(shared, split);
        for part in split.parts() {
            let Some(slot) = turn.slot(shared, part.slot) else { continue };
            // If an entry could not be folded as a whole, some slots have it already.
            let fresh = position > slot.state.applied();
            // A request that comes again gets its answer again, and changes nothing that could be counted.
            let repeated = slot.state.is_repeated(request);
            let outcome = slot.state.apply_work(position, filter, request, part.work, archived)?;
            if fresh {
                slot.last_entry = position;
            }
            if fresh && !repeated {
                shared.folded(slot, &split.entry, &outcome)?;
                new_keys += outcome.new_keys();
            }
            applied.take(split, &part, outcome);
        }
        shared.count(filter, &split.entry.operation, new_keys);
        turn.applied = turn.applied.max(position);
        self.folded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(applied)
    }

    /// How far the lane is.
    pub(super) fn applied(&self) -> Position {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, applied: Position) {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = applied;
    }
}

impl Turn {
    /// Asks for the lines of keys in several slots, so that they are there when it is their turn. One slot does it by itself.
    fn prefetch(&mut self, shared: &Shared, split: &Split) {
        if !split.is_spread() {
            return;
        }
        for part in split.parts() {
            let (Work::Add(keys) | Work::Remove(keys)) = part.work else { return };
            let shard = self.slot(shared, part.slot).and_then(|slot| slot.state.shard(split.entry.filter));
            let projection = shard.and_then(Shard::projection);
            if let Some(newest) = projection.and_then(|projection| projection.filters().next_back()) {
                keys.iter().for_each(|key| newest.prefetch(*key));
            }
        }
    }

    /// A slot of this lane.
    pub(super) fn slot(&mut self, shared: &Shared, slot: u16) -> Option<&mut Slot> {
        let found = self.slots.get_mut(usize::from(slot) / shared.lanes.len())?;
        (found.state.slot() == slot).then_some(found)
    }
}
