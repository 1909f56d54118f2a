//! A lane: one partition of the log and the slots that are folded from it.
//!
//! Requests queue up. Whoever has the turn takes all that wait, appends them together, folds them in the order of the log and
//! tells each what came of it. So there is one append under way for each partition, and while it waits for the disk the next
//! batch gathers. Requests do not line up for the turn: they wait for their answer, and whoever leaves the turn wakes those that
//! have none. A turn that was handed to a sleeper would keep everybody waiting until it is awake.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::poll_immediate;
use tokio::sync::watch;

use super::Shared;
use super::checkpoint::Kept;
use super::part::{Applied, Part, Split};
use super::stored::Stored;
use crate::archive::Run;
use crate::entry::{Entry, Operation};
use crate::fold::{Archived, Outcome, Shard, State, Work};
use crate::{Error, Position, Result};
pub(super) use effects::Effect;
use effects::Effects;
use turns::{Ticket, Turns, Waiting};

mod effects;
mod turns;

/// Batches that one who has the turn does for others after its own.
const ROUNDS_FOR_OTHERS: usize = 16;
/// Keys whose lines are asked for ahead of time; they fit into the nearer caches.
const KEYS_AHEAD: usize = 1024;
/// Bytes that are read from the log at once.
const READ_BYTES: usize = 4 << 20;

// Lanes stand side by side and are used by different threads.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) partition: u32,
    pub(super) turn: Turns,
    applied: watch::Sender<Position>,
    /// Which entries did not do all that they say.
    effects: Effects,
    /// Rounds of checkpoints, with the trim in the end, come one after another.
    pub(super) checkpoints: tokio::sync::Mutex<()>,
    /// Entries that were folded since it was made.
    pub(super) entries: AtomicU64,
    /// Bytes of entries that were folded, for whoever decides when to make a checkpoint.
    pub(super) folded_bytes: AtomicU64,
    /// The term in which it was read to its end; 0 for none.
    pub(super) term: AtomicU64,
    /// The same for the term in which changes of the catalog wait for this node; only the catalog has one.
    pub(super) names_term: AtomicU64,
    /// How often somebody began to read it to its end, and which of them was the last to succeed.
    barriers_begun: AtomicU64,
    barriers_done: AtomicU64,
    /// When the last read to its end began that succeeded, in nanoseconds of the clock.
    read_at: AtomicU64,
    /// How many times in a row nothing new was found in the log.
    pub(super) quiet: AtomicU32,
    /// Whether another node has made checkpoints that this one does not know.
    pub(super) is_outdated: AtomicBool,
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
    /// Checkpoints that are kept, oldest first. None has more of the log than those after it.
    pub(super) kept: Vec<Kept>,
    /// The newest checkpoint that counts, from which the next one is made; 0 if there is none. It is not among those that are kept if it is
    /// damaged.
    pub(super) counted: u64,
    /// How many checkpoints were made since it was looked for blobs that none needs; 0 if nobody looked.
    pub(super) unswept: u32,
    /// Whether readers see it. A slot that is still being folded is not shown.
    pub(super) is_shown: bool,
}

impl Slot {
    /// The slot with the number of each filter that readers see in it.
    pub(super) fn shown(&self) -> impl Iterator<Item = (u16, u64)> {
        let shards = self.state.shards().filter(|_| self.is_shown);
        shards.map(|(id, _)| (self.state.slot(), id))
    }

    /// The runs that may hold keys of a filter.
    pub(super) fn runs_of(&self, filter: u64) -> Vec<Run> {
        let first = self.state.shard(filter).map_or(u64::MAX, Shard::first_run);
        self.runs.iter().filter(|run| run.high() >= first).cloned().collect()
    }
}

impl Lane {
    pub(super) fn new(partition: u32, slots: Vec<Slot>, applied: Position) -> Self {
        // What a checkpoint has is not folded again, so nobody knows what it came to.
        let known_after = slots.iter().map(|slot| slot.state.applied()).max().unwrap_or_default();
        Self {
            partition,
            turn: Turns::new(Turn { slots, applied, uncertain: true }),
            applied: watch::Sender::new(applied),
            effects: Effects::after(known_after.max(applied)),
            checkpoints: tokio::sync::Mutex::default(),
            entries: AtomicU64::new(0),
            folded_bytes: AtomicU64::new(0),
            term: AtomicU64::new(0),
            names_term: AtomicU64::new(0),
            barriers_begun: AtomicU64::new(0),
            barriers_done: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            quiet: AtomicU32::new(0),
            is_outdated: AtomicBool::new(false),
        }
    }

    /// Appends entries and folds them; gives what came of each.
    pub(super) async fn submit(&self, shared: &Shared, entries: Vec<Entry>) -> Result<Vec<Applied>> {
        let tickets =
            entries.into_iter().map(|entry| Ok(Ticket::new(entry.encode()?, self.split(shared, entry))));
        let own = self.turn.queue(tickets.collect::<Result<Vec<_>>>()?);
        for ticket in own.iter() {
            while let Some(mut turn) = self.turn.unless_answered(ticket).await {
                self.work(shared, &mut turn, &own).await;
            }
        }
        own.into_answers()
    }

    /// Appends an entry and folds it, for one who has the turn.
    pub(super) async fn submit_in_turn(
        &self,
        shared: &Shared,
        turn: &mut Turn,
        entry: Entry,
    ) -> Result<Applied> {
        let bytes = entry.encode()?;
        let ticket = Ticket::new(bytes, self.split(shared, entry));
        self.append(shared, turn, std::slice::from_ref(&ticket)).await?;
        ticket.into_answer()
    }

    /// Does everything that waits, its own requests and those that others need not do themselves.
    async fn work(&self, shared: &Shared, turn: &mut Turn, own: &[Arc<Ticket>]) {
        for _ in 0..=ROUNDS_FOR_OTHERS {
            let waiting = Waiting::take(&self.turn, own);
            let mut waited = waiting.is_empty();
            // What an entry needs is looked up before it is appended, so changes of what there is stand alone.
            for batch in waiting.chunk_by(|one, next| !one.split.is_change() && !next.split.is_change()) {
                match self.append(shared, turn, batch).await {
                    Ok(log_waited) => waited |= log_waited,
                    // Those that were folded before it failed have their answer.
                    Err(error) => batch.iter().for_each(|ticket| ticket.answer(Err(error.clone()))),
                }
            }
            // Whoever waited for the disk should not wait for it again, for others.
            if waited {
                return;
            }
        }
    }

    /// Appends and folds; says whether the log let it wait.
    async fn append(&self, shared: &Shared, turn: &mut Turn, batch: &[Arc<Ticket>]) -> Result<bool> {
        if turn.slots.is_empty() {
            return Err(self.moved_away());
        }
        if turn.uncertain {
            self.catch_up(shared, turn).await?;
        }
        let mut archived = Archived::none();
        let mut ready = Vec::with_capacity(batch.len());
        for ticket in batch {
            match self.prepare(shared, turn, &ticket.split, &mut archived).await {
                Ok(()) => ready.push(ticket),
                // That is its own trouble, not that of the others.
                Err(error) => ticket.answer(Err(self.unless_outdated(shared, error))),
            }
        }
        if ready.is_empty() {
            return Ok(false);
        }
        turn.uncertain = true;
        let entries = ready.iter().map(|ticket| ticket.bytes.clone()).collect();
        let mut append = shared.log.append_after(self.partition, entries, turn.applied);
        let (waited, appended) = match poll_immediate(&mut append).await {
            Some(appended) => (false, appended?),
            None => (true, append.await?),
        };
        // What others appended in between is folded first.
        if !shared.log.is_exclusive() && !appended.is_next {
            self.find(shared, turn, &ready, &appended.positions).await?;
            return Ok(true);
        }
        for (ticket, position) in ready.iter().zip(appended.positions) {
            let applied = self.fold(shared, turn, position, &ticket.split, ticket.bytes.len(), &archived)?;
            ticket.answer(Ok(applied));
        }
        turn.uncertain = false;
        self.publish(turn.applied);
        Ok(waited)
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
                    ticket.answer(Ok(applied));
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

    /// What is said of a partition that is not hosted here.
    pub(super) fn moved_away(&self) -> Error {
        Error::Moved(format!("partition {} is not hosted here", self.partition))
    }

    /// Folds everything that is in the log.
    pub(super) async fn catch_up(&self, shared: &Shared, turn: &mut Turn) -> Result<()> {
        if turn.slots.is_empty() {
            return Err(self.moved_away());
        }
        while self.fold_next(shared, turn, |_| {}).await? {}
        turn.uncertain = false;
        self.publish(turn.applied);
        Ok(())
    }

    /// What an error means. In a cluster, other nodes may have gone on, made checkpoints, and let go of blobs or of a part of the log that
    /// this one still needed: then it takes in what they made, and the call may succeed after that.
    pub(super) fn unless_outdated(&self, shared: &Shared, error: Error) -> Error {
        if shared.cluster.is_none() || !matches!(error, Error::Trimmed { .. } | Error::Corrupt(_)) {
            return error;
        }
        self.is_outdated.store(true, Ordering::Relaxed);
        shared.work.ring_for_followers();
        let partition = self.partition;
        Error::Retry(format!("partition {partition} is taken in anew from its newest checkpoints: {error}"))
    }

    /// Folds everything that was in the log when it was called. Who waits for the same is served with one read (rule B2).
    pub(super) async fn barrier(&self, shared: &Shared) -> Result<()> {
        let begun = self.barriers_begun.load(Ordering::Acquire);
        let mut turn = self.turn.lock().await;
        if self.barriers_done.load(Ordering::Acquire) > begun {
            // Somebody's began after this one came.
            return Ok(());
        }
        let number = self.barriers_begun.fetch_add(1, Ordering::AcqRel) + 1;
        let (before, now) = (turn.applied, shared.clock.now());
        self.catch_up(shared, &mut turn).await?;
        self.is_read_since(now);
        self.barriers_done.store(number, Ordering::Release);
        let quiet =
            if turn.applied > before { 0 } else { self.quiet.load(Ordering::Relaxed).saturating_add(1) };
        self.quiet.store(quiet, Ordering::Relaxed);
        Ok(())
    }

    /// Folds the next part of the log; false if there is none.
    async fn fold_next(
        &self,
        shared: &Shared,
        turn: &mut Turn,
        mut folded: impl FnMut(Applied),
    ) -> Result<bool> {
        let records = shared.log.read(self.partition, turn.applied, READ_BYTES).await;
        let records = records.map_err(|error| self.unless_outdated(shared, error))?;
        let any = !records.is_empty();
        for record in records {
            let mut split = self.split(shared, Entry::decode(&record.entry)?);
            // What a checkpoint holds already is passed over.
            split.retain(|slot| {
                turn.slot(shared, slot).is_none_or(|slot| record.position > slot.state.applied())
            });
            let mut archived = Archived::none();
            let prepared = self.prepare(shared, turn, &split, &mut archived).await;
            prepared.map_err(|error| self.unless_outdated(shared, error))?;
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
        let fetches = split.is_spread() && split.keys() <= KEYS_AHEAD;
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
                | Operation::Redescribe { .. }
                | Operation::Adopt { .. },
            ) = part.work
            {
                continue;
            }
            let Some(shard) = slot.state.shard(filter) else { continue };
            if shard.projection().is_none() {
                shared.load_into(slot, filter).await?;
            } else if fetches {
                // They arrive while the entry is appended.
                prefetch(shard, &part);
            }
            for related in slot.state.related(filter) {
                shared.load_into(slot, related).await?;
            }
            match part.work {
                Work::Add(keys) | Work::Remove(keys) | Work::AddAbsent(keys) => {
                    for asked in slot.state.asks_archive_of(filter, part.work) {
                        shared.ask_archive(slot, asked, keys, archived).await?;
                    }
                }
                Work::Other(Operation::Switch) => shared.build_in_turn(slot, filter).await?,
                Work::DefineInAll(_) | Work::Other(_) => {}
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
        // Smaller ones were asked for before they were appended.
        let fetches = split.is_spread() && split.keys() > KEYS_AHEAD;
        let mut coming = fetches.then(|| split.parts()).into_iter().flatten();
        let mut fetched = 0;
        let mut new = vec![false; split.keys()];
        let mut effect = Effect::of(split);
        let mut followed: BTreeMap<u64, u64> = BTreeMap::new();
        for part in split.parts() {
            while fetched < part.keys.end + KEYS_AHEAD {
                let Some(next) = coming.next() else { break };
                fetched = next.keys.end;
                let slot = turn.slot(shared, next.slot);
                if let Some(shard) = slot.and_then(|slot| slot.state.shard(filter)) {
                    prefetch(shard, &next);
                }
            }
            let Some(slot) = turn.slot(shared, part.slot) else { continue };
            let new = &mut new[part.keys.clone()];
            if request.session == 0
                && let Work::Add(keys) = part.work
                && let Some(fresh) = slot.state.add_simply(position, filter, keys, new)
            {
                slot.last_entry = position;
                new_keys += fresh;
                applied.put(split, &part, new);
                continue;
            }
            // If an entry could not be folded as a whole, some slots have it already.
            let fresh = position > slot.state.applied();
            // A request that comes again gets its answer again, and changes nothing that could be counted.
            let repeated = slot.state.is_repeated(request);
            let before: Vec<_> = slot.state.followers(filter).map(|id| (id, slot.counts(id).items)).collect();
            let items = slot.counts(filter).items;
            let outcome = slot.state.apply_work(position, filter, request, part.work, archived)?;
            let told = if repeated { &Outcome::Passed } else { &outcome };
            effect.take(split, &part, fresh.then_some(told));
            if fresh {
                slot.last_entry = position;
            }
            if fresh && !repeated {
                shared.folded(slot, &split.entry, &outcome)?;
                new_keys += match part.work {
                    // What was absent may have been new to the array or not.
                    Work::AddAbsent(_) => slot.counts(filter).items.saturating_sub(items),
                    _ => outcome.new_keys(),
                };
                for (follower, before) in before {
                    let more = slot.counts(follower).items.saturating_sub(before);
                    *followed.entry(follower).or_default() += more;
                }
            }
            applied.take(split, &part, outcome);
        }
        self.effects.put(position, effect, split);
        if turn.slots.first().is_some_and(|slot| slot.is_shown) {
            shared.count(filter, &split.entry.operation, new_keys);
            for (follower, new_keys) in followed {
                shared.count(follower, &split.entry.operation, new_keys);
            }
        }
        turn.applied = turn.applied.max(position);
        self.folded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        Ok(applied)
    }

    /// Gives a lane what was folded beside it, up to the same place or further; none takes all it has. The caller publishes the place when
    /// readers see what is folded there.
    pub(super) fn install(&self, turn: &mut Turn, next: Option<Lane>) {
        *turn = match next {
            Some(beside) => {
                self.effects.go_on(turn.applied, beside.effects);
                beside.turn.into_inner()
            }
            None => Turn { slots: Vec::new(), applied: turn.applied, uncertain: true },
        };
        self.folded_bytes.store(0, Ordering::Relaxed);
        // Rule R3.
        self.term.store(0, Ordering::Release);
        self.names_term.store(0, Ordering::Release);
        self.is_outdated.store(false, Ordering::Relaxed);
    }

    /// Everything that was in the log at this time is folded.
    pub(super) fn is_read_since(&self, time: Duration) {
        self.read_at.fetch_max(time.as_nanos() as u64, Ordering::Release);
    }

    /// A time at which everything that was in the log then is folded.
    pub(super) fn read_at(&self) -> Duration {
        Duration::from_nanos(self.read_at.load(Ordering::Acquire))
    }

    /// How far the lane is.
    pub(super) fn applied(&self) -> Position {
        *self.applied.borrow()
    }

    /// Waits until the lane is behind a position.
    pub(super) async fn moved(&self, position: Position) {
        // It cannot fail: the sender is here.
        let _ = self.applied.subscribe().wait_for(|applied| *applied > position).await;
    }

    /// What an entry that was folded came to; an error if that is not known any more.
    pub(super) fn effect(&self, position: Position) -> Result<Effect> {
        self.effects.get(position)
    }

    pub(super) fn publish(&self, applied: Position) {
        self.applied.send_replace(applied);
    }
}

impl Turn {
    /// A slot of this lane.
    pub(super) fn slot(&mut self, shared: &Shared, slot: u16) -> Option<&mut Slot> {
        let found = self.slots.get_mut(usize::from(slot) / shared.lanes.len())?;
        (found.state.slot() == slot).then_some(found)
    }
}

/// What came of entries that were sent together. That they have moved says that nothing was done, and that all of them may be sent to another
/// node: it is not said if some were.
pub(super) fn all_or_none<T>(outcomes: Vec<Result<T>>) -> Result<Vec<T>> {
    let are_moved = outcomes.iter().all(|outcome| matches!(outcome, Err(Error::Moved(_))));
    outcomes
        .into_iter()
        .map(|outcome| if are_moved { outcome } else { outcome.map_err(not_all_moved) })
        .collect()
}

/// An error of entries of which some are done.
pub(super) fn not_all_moved(error: Error) -> Error {
    match error {
        Error::Moved(why) => Error::Retry(format!("{why}: it may have been done, or not")),
        error => error,
    }
}

/// Asks for the lines of a part's keys, so that they are there when it is their turn. A filter in one slot does it by itself.
fn prefetch(shard: &Shard, part: &Part<'_>) {
    let keys = part.work.keys();
    if let Some(newest) = shard.projection().and_then(|projection| projection.filters().next_back()) {
        keys.iter().for_each(|key| newest.prefetch(*key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_in_part_has_not_moved() {
        let moved = || Err(Error::Moved("to another node".into()));
        assert_eq!(all_or_none(vec![Ok(1), Ok(2)]).unwrap(), [1, 2]);
        assert!(matches!(all_or_none::<u8>(vec![moved(), moved()]), Err(Error::Moved(_))));
        assert!(matches!(all_or_none(vec![Ok(1), moved()]), Err(Error::Retry(_))));
        assert!(matches!(all_or_none(vec![moved(), Ok(1)]), Err(Error::Retry(_))));
        let refused = || Err(Error::Invalid("no".into()));
        assert!(matches!(all_or_none::<u8>(vec![refused(), moved()]), Err(Error::Invalid(_))));
        assert!(matches!(all_or_none::<u8>(vec![moved(), refused()]), Err(Error::Retry(_))));
    }
}
