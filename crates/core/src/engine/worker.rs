//! Background work, and the threads that do it: one for growth, one for checkpoints, so that neither waits for the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::sync::Notify;

use super::steps::Why;
use super::{Engine, Handle, Shared};
use crate::clock::Clock;
use crate::{Error, Result};

/// How often a thread looks for work when nothing wakes it, and how long it rests after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// How many times the bytes that call for a checkpoint may wait for one before writers wait too.
const BEHIND_MAX: u64 = 3;
/// How many times more than `checkpoint_bytes` large arrays let come before a checkpoint.
const CHECKPOINT_GROWTH_MAX: u64 = 4;
/// How long an add waits for what other nodes have to build of the next size.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(10);
/// Slots that get their checkpoints at the same time.
const AT_ONCE: usize = 8;

/// What background work knows and is told.
#[derive(Debug)]
pub(super) struct Work {
    growth: Bell,
    checkpoints: Bell,
    followers: Bell,
    /// Rounds of reading what others appended.
    follows: AtomicU64,
    /// The start read the log for so long that everything is to get a checkpoint.
    pub(super) has_replayed_long: AtomicBool,
    /// Something could not be written into all slots.
    unfinished: AtomicBool,
    /// Of each lane: when its slots last got checkpoints.
    checkpointed: Vec<AtomicU64>,
}

/// What a thread is woken with, and what it tells.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    /// Whether a thread listens.
    attended: AtomicBool,
    stop: AtomicBool,
    /// Told after every round.
    round: Notify,
    /// Why the last round failed, if it did.
    failure: Mutex<Option<Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bell {
    fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }

    fn ring(&self) {
        if self.is_attended() {
            *lock(&self.rung) = true;
            self.heard.notify_one();
        }
    }

    fn failure(&self) -> Option<Error> {
        lock(&self.failure).clone()
    }

    /// Waits for the end of a round that begins now or is under way.
    async fn next_round(&self) {
        let round = self.round.notified();
        self.ring();
        round.await;
    }

    /// Waits for the end of the round that is under way, or of the next that begins by itself.
    async fn end_of_round(&self) {
        self.round.notified().await;
    }

    /// The life of a thread: round after round, until it is stopped.
    fn attend(&self, mut round: impl FnMut() -> Result<()>) {
        while !self.stop.load(Ordering::SeqCst) {
            let failure = round().err();
            let failed = failure.is_some();
            *lock(&self.failure) = failure;
            self.round.notify_waiters();
            let rung = lock(&self.rung);
            // What failed will hardly succeed a moment later, however many ask for it.
            let rest = |rung: &mut bool| !self.stop.load(Ordering::SeqCst) && (failed || !*rung);
            let waited = self.heard.wait_timeout_while(rung, PAUSE, rest);
            *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
        }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.ring();
        self.attended.store(false, Ordering::SeqCst);
    }
}

/// What a round of background work did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Slots that got a checkpoint.
    pub checkpoints: u64,
    /// Slots whose archive runs were merged.
    pub merges: u64,
    /// Filters that were given their next size.
    pub grown: u64,
}

impl Work {
    pub(super) fn new(clock: &dyn Clock, lanes: u32) -> Self {
        let now = clock.now().as_millis() as u64;
        Self {
            growth: Bell::default(),
            checkpoints: Bell::default(),
            followers: Bell::default(),
            follows: AtomicU64::new(0),
            has_replayed_long: AtomicBool::new(false),
            unfinished: AtomicBool::new(false),
            checkpointed: (0..lanes).map(|_| AtomicU64::new(now)).collect(),
        }
    }

    /// A filter is due for its next size.
    pub(super) fn ring_for_growth(&self) {
        self.growth.ring();
    }

    /// The number of the next round of reading what others appended.
    pub(super) fn next_follow(&self) -> u64 {
        self.follows.fetch_add(1, Ordering::Relaxed)
    }

    /// A lane has to be taken in anew.
    pub(super) fn ring_for_followers(&self) {
        self.followers.ring();
    }

    /// Something has to be done in more slots than it could be.
    pub(super) fn is_unfinished(&self) {
        self.unfinished.store(true, Ordering::Relaxed);
        self.growth.ring();
    }

    /// Whether something is unfinished; whoever asks finishes it.
    pub(super) fn take_unfinished(&self) -> bool {
        self.unfinished.swap(false, Ordering::Relaxed)
    }

    /// Lets writers wait while checkpoints are far behind, so that memory stays bounded.
    pub(super) async fn keep_up(&self, shared: &Shared) {
        let most = shared.checkpoint_bytes().saturating_mul(BEHIND_MAX);
        while self.checkpoints.is_attended() && shared.most_folded() > most {
            self.checkpoints.next_round().await;
            if self.checkpoints.failure().is_some() {
                // Checkpoints cannot be made: the log still takes what comes.
                return;
            }
        }
    }

    /// Waits until a filter has room for so many more; without a thread, whoever waits does the work. In a cluster the node that decides
    /// about growth does not know of keys that come through another one, so that one decides for them.
    pub(super) async fn grown(&self, shared: &Shared, filter: &Arc<Handle>, more: u64) -> Result<()> {
        let begun = shared.clock.now();
        let mut is_waiting = false;
        while !filter.has_room_for(more) {
            if !self.growth.is_attended() {
                return shared.grow(filter, more).await;
            }
            filter.wanted.fetch_max(more, Ordering::Relaxed);
            if !shared.is_steward() {
                shared.grow(filter, more).await?;
                is_waiting = true;
            }
            if !is_waiting {
                self.growth.next_round().await;
            } else if !filter.has_room_for(more) {
                // The rest is built by other nodes, in rounds of their own.
                self.growth.end_of_round().await;
            }
            is_waiting = shared.cluster.is_some();
            if let Some(failure) = self.growth.failure().filter(|_| !filter.has_room_for(more)) {
                return Err(failure);
            }
            if is_waiting && shared.clock.now().saturating_sub(begun) > WAIT_FOR_OTHERS {
                return Err(Error::Retry(format!(
                    "the filter {} is full and has not grown yet",
                    filter.definition().name
                )));
            }
        }
        Ok(())
    }
}

/// The threads that do background work.
pub(super) type Workers = Vec<JoinHandle<()>>;

impl Engine {
    /// Lets threads do background work from here on.
    pub fn start(&self) -> Result<()> {
        let mut workers = lock(&self.workers);
        if !workers.is_empty() {
            return Ok(());
        }
        workers.push(spawn("umbel-growth", &self.shared, |shared, runtime| {
            shared.work.growth.attend(|| runtime.block_on(shared.grow_all()).map(drop));
        })?);
        self.shared.work.growth.attended.store(true, Ordering::SeqCst);
        workers.push(spawn("umbel-checkpoints", &self.shared, |shared, runtime| {
            shared.work.checkpoints.attend(|| runtime.block_on(shared.checkpoint_due(false)).map(drop));
        })?);
        self.shared.work.checkpoints.attended.store(true, Ordering::SeqCst);
        if self.shared.cluster.is_some() {
            workers.push(spawn("umbel-follower", &self.shared, |shared, runtime| {
                shared.work.followers.attend(|| runtime.block_on(shared.follow()));
            })?);
            self.shared.work.followers.attended.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Does what background work there is: growth, checkpoints that are due, merges, trimming.
    pub async fn maintain(&self) -> Result<Done> {
        let grown = self.shared.grow_all().await;
        let done = self.shared.checkpoint_due(false).await?;
        Ok(Done { grown: grown?, ..done })
    }

    /// Makes a checkpoint of every slot with something new, and trims the log.
    pub async fn checkpoint(&self) -> Result<Done> {
        self.shared.checkpoint_due(true).await
    }

    /// Why background work failed, if its last round did.
    pub fn failure(&self) -> Option<Error> {
        let work = &self.shared.work;
        work.growth.failure().or_else(|| work.checkpoints.failure()).or_else(|| work.followers.failure())
    }

    /// Ends in good order: with a checkpoint of everything, so that the next start has nothing to fold, and a log that is closed.
    pub async fn close(&self) -> Result<()> {
        self.stop();
        let checkpoint = self.checkpoint().await;
        self.shared.log.close().await?;
        checkpoint.map(drop)
    }

    /// Ends background work. What was acknowledged is in the log.
    pub fn stop(&self) {
        let workers = std::mem::take(&mut *lock(&self.workers));
        let work = &self.shared.work;
        let bells = [&work.growth, &work.checkpoints, &work.followers];
        bells.iter().for_each(|bell| bell.stop());
        for worker in workers {
            // It has nothing to tell: its failures are kept.
            let _ = worker.join();
        }
        bells.iter().for_each(|bell| {
            bell.round.notify_waiters();
            bell.stop.store(false, Ordering::SeqCst);
        });
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A thread with a runtime of its own.
fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    life: impl FnOnce(&Shared, &tokio::runtime::Runtime) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let failed = |error: std::io::Error| Error::io(format!("cannot start the thread {name}"), &error);
    let runtime = tokio::runtime::Builder::new_current_thread().on_thread_start(yield_to_others).build();
    let runtime = runtime.map_err(failed)?;
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name(name.into());
    let life = move || {
        yield_to_others();
        life(&shared, &runtime);
    };
    thread.spawn(life).map_err(failed)
}

/// Gives the calling thread less of the processor than those that answer requests, where the system allows it.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 10);
}

impl Shared {
    /// The most bytes that were folded since its checkpoints in a lane whose checkpoints are made here.
    fn most_folded(&self) -> u64 {
        let own = self.lanes.iter().filter(|lane| self.is_first(lane.partition));
        own.map(|lane| lane.folded_bytes.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Gives all filters that are due their next size, and says how many that were. A failure of one does not keep the others from
    /// theirs; the first one is told.
    async fn grow_all(&self) -> Result<u64> {
        self.pace.observe(&*self.clock);
        let (mut grown, mut failure) = (0, self.finish().await.err());
        // In a cluster, one node decides for all, and each builds what it is the first host of.
        let decides = self.is_steward();
        if decides {
            // Windows let go of old buckets before these are dropped.
            for step in
                [self.turn_windows().await, self.drop_expired().await, self.drop_lost_rebuilds().await]
            {
                if let Err(error) = step {
                    failure.get_or_insert(error);
                }
            }
        }
        for filter in &self.directory.unsorted() {
            let wanted = filter.wanted.load(Ordering::Relaxed) > 0;
            if !decides {
                if filter.is_behind()
                    && let Err(error) = self.build(filter).await
                {
                    failure.get_or_insert(self.in_names_of_users(filter, error));
                }
            } else if self.is_due(filter) || filter.is_behind() || wanted {
                match self.grow(filter, 0).await {
                    Ok(()) => grown += 1,
                    // One that was dropped meanwhile is nobody's trouble: whoever waits for growth waits for another.
                    Err(_) if !self.directory.exists(filter.id()) => {}
                    Err(error) => _ = failure.get_or_insert(self.in_names_of_users(filter, error)),
                }
            } else if self.is_worn(filter) {
                let spec = filter.definition().spec;
                if let Err(error) = self.resize(filter, spec.capacity, spec.error, Why::Worn).await {
                    failure.get_or_insert(self.in_names_of_users(filter, error));
                }
            }
        }
        failure.map_or(Ok(grown), Err)
    }

    /// Makes checkpoints where they are due, or everywhere.
    async fn checkpoint_due(&self, all: bool) -> Result<Done> {
        let all = all || self.work.has_replayed_long.load(Ordering::Relaxed);
        let (mut done, mut failure) = (Done::default(), None);
        for partition in 0..self.lanes.len() as u32 {
            if self.is_first(partition)
                && (all || self.is_checkpoint_due(partition))
                && let Err(error) = self.checkpoint_lane(partition, &mut done).await
            {
                failure.get_or_insert(error);
            }
        }
        if all && failure.is_none() {
            self.work.has_replayed_long.store(false, Ordering::Relaxed);
        }
        failure.map_or(Ok(done), Err)
    }

    /// Bytes of entries in a partition after which its slots get checkpoints. Keys that are spread touch every block, so a checkpoint writes
    /// about as much as the arrays have: it waits for as much to have come, within bounds.
    fn checkpoint_bytes(&self) -> u64 {
        let least = self.settings.checkpoint_bytes;
        let arrays = self.means.budget.used() / self.lanes.len().max(1) as u64;
        arrays.clamp(least, least.saturating_mul(CHECKPOINT_GROWTH_MAX))
    }

    fn is_checkpoint_due(&self, partition: u32) -> bool {
        let folded = self.lanes[partition as usize].folded_bytes.load(Ordering::Relaxed);
        let last = Duration::from_millis(self.work.checkpointed[partition as usize].load(Ordering::Relaxed));
        folded >= self.checkpoint_bytes()
            || self.clock.now().saturating_sub(last) >= self.settings.checkpoint_every
    }

    async fn checkpoint_lane(&self, partition: u32, done: &mut Done) -> Result<()> {
        let lane = &self.lanes[partition as usize];
        let _one_at_a_time = lane.checkpoints.lock().await;
        self.claimed()?;
        let folded = lane.folded_bytes.load(Ordering::Relaxed);
        let worked = stream::iter(self.slots_of(partition)).map(|slot| async move {
            Ok::<_, Error>((self.checkpoint(slot).await?, self.merge(slot).await?))
        });
        // Disks and stores serve several at once better than one after another.
        let mut worked = worked.buffer_unordered(AT_ONCE);
        let mut failure = None;
        while let Some(outcome) = worked.next().await {
            match outcome {
                Ok((checkpoint, merged)) => {
                    done.checkpoints += u64::from(checkpoint);
                    done.merges += u64::from(merged);
                }
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        if let Some(failure) = failure {
            // Another node made checkpoints in the meantime: what it made is taken over, and the next ones are made from that.
            lane.is_outdated.fetch_or(matches!(failure, Error::Moved(_)), Ordering::Relaxed);
            return Err(failure);
        }
        lane.folded_bytes.fetch_sub(folded, Ordering::Relaxed);
        let now = self.clock.now().as_millis() as u64;
        self.work.checkpointed[partition as usize].store(now, Ordering::Relaxed);
        self.trim(partition).await
    }
}
