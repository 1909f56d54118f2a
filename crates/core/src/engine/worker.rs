//! Background work, and the thread that does it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::sync::Notify;

use super::{Engine, Handle, Shared};
use crate::clock::Clock;
use crate::{Error, Result};

/// How often the thread looks for work when nothing wakes it.
const PAUSE: Duration = Duration::from_millis(200);
/// How many times the bytes that call for a checkpoint may wait for one before writers wait too.
const BEHIND_MAX: u64 = 8;
/// The next size of a filter is at most so many times its size, however fast keys come.
const RATE_GROWTH_MAX: u64 = 8;

/// Slots that get their checkpoints at the same time.
const AT_ONCE: usize = 8;

/// What background work knows and is told.
#[derive(Debug)]
pub(super) struct Work {
    woken: Mutex<bool>,
    wake: Condvar,
    /// Whether a thread does the work.
    attended: AtomicBool,
    unfinished: AtomicBool,
    /// Told after every round.
    round: Notify,
    /// The last failure of the thread.
    failure: Mutex<Option<Error>>,
    /// Of each lane: when its slots last got checkpoints.
    checkpointed: Vec<AtomicU64>,
    /// Of each filter: keys and when they were counted.
    counted: Mutex<HashMap<u64, (u64, Duration)>>,
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
            woken: Mutex::default(),
            wake: Condvar::new(),
            attended: AtomicBool::new(false),
            unfinished: AtomicBool::new(false),
            round: Notify::new(),
            failure: Mutex::default(),
            checkpointed: (0..lanes).map(|_| AtomicU64::new(now)).collect(),
            counted: Mutex::default(),
        }
    }

    /// There is something to do.
    pub(super) fn wake(&self) {
        if self.attended.load(Ordering::Relaxed) {
            *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.wake.notify_one();
        }
    }

    /// Something has to be done in more slots than it could be.
    pub(super) fn is_unfinished(&self) {
        self.unfinished.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether something has to be done in more slots; whoever asks has to do it.
    pub(super) fn take_unfinished(&self) -> bool {
        self.unfinished.swap(false, Ordering::Relaxed)
    }

    /// Lets writers wait while checkpoints are far behind, so that memory stays bounded.
    pub(super) async fn keep_up(&self, shared: &Shared) {
        while self.attended.load(Ordering::Relaxed)
            && shared.most_folded() > shared.settings.checkpoint_bytes.saturating_mul(BEHIND_MAX)
        {
            let round = self.round.notified();
            self.wake();
            round.await;
            if self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                // Checkpoints cannot be made: the log still takes what comes.
                return;
            }
        }
    }
}

impl Work {
    /// Waits until a filter has room for so many more; without a thread, whoever waits does the work.
    pub(super) async fn grown(&self, shared: &Shared, filter: &Arc<Handle>, more: u64) -> Result<()> {
        while !filter.has_room_for(more) {
            if !self.attended.load(Ordering::Relaxed) {
                return shared.grow(filter, more).await;
            }
            let round = self.round.notified();
            filter.wanted.fetch_max(more, Ordering::Relaxed);
            self.wake();
            round.await;
            let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(failure) = failure.filter(|_| !filter.has_room_for(more)) {
                return Err(failure);
            }
        }
        Ok(())
    }
}

/// The thread that does background work.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Engine {
    /// Lets a thread do background work from here on.
    pub fn start(&self) -> Result<()> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        if worker.is_some() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime =
            runtime.map_err(|error| Error::io("cannot make a runtime for background work", &error))?;
        let (shared, stop) = (Arc::clone(&self.shared), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let life = move || {
            while !stopped.load(Ordering::SeqCst) {
                let outcome = runtime.block_on(shared.maintain(false));
                *shared.work.failure.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
                shared.work.round.notify_waiters();
                let woken = shared.work.woken.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = shared.work.wake.wait_timeout_while(woken, PAUSE, |woken| !*woken);
                *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
            }
        };
        self.shared.work.attended.store(true, Ordering::SeqCst);
        let thread = std::thread::Builder::new().name("umbel-engine".into()).spawn(life);
        let thread =
            thread.map_err(|error| Error::io("cannot start the thread for background work", &error))?;
        *worker = Some(Worker { stop, thread });
        Ok(())
    }

    /// Does what background work there is: growth, checkpoints that are due, merges, trimming.
    pub async fn maintain(&self) -> Result<Done> {
        self.shared.maintain(false).await
    }

    /// Makes a checkpoint of every slot with something new, and trims the log.
    pub async fn checkpoint(&self) -> Result<Done> {
        self.shared.maintain(true).await
    }

    /// The last failure of background work, if the last round failed.
    pub fn failure(&self) -> Option<Error> {
        self.shared.work.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends background work. What was acknowledged is in the log.
    pub fn stop(&self) {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Worker { stop, thread }) = worker else { return };
        stop.store(true, Ordering::SeqCst);
        self.shared.work.wake();
        self.shared.work.attended.store(false, Ordering::SeqCst);
        // It has nothing to tell: its failures are kept.
        let _ = thread.join();
        self.shared.work.round.notify_waiters();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// The most bytes that were folded in a lane since its checkpoints.
    fn most_folded(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.folded_bytes.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// One round. A failure in one place does not keep the others from their turn; the first one is told.
    async fn maintain(&self, all: bool) -> Result<Done> {
        let (mut done, mut failure) = (Done::default(), None);
        if let Err(error) = self.finish().await {
            failure.get_or_insert(error);
        }
        for handle in self.directory.all() {
            let more = self.coming(&handle);
            let wanted = handle.wanted.load(Ordering::Relaxed) > 0;
            if self.is_due(&handle) || handle.is_behind() || wanted {
                match self.grow(&handle, more).await {
                    Ok(()) => done.grown += 1,
                    Err(error) => _ = failure.get_or_insert(error),
                }
            }
        }
        for partition in 0..self.lanes.len() as u32 {
            if (all || self.is_checkpoint_due(partition))
                && let Err(error) = self.checkpoint_lane(partition, &mut done).await
            {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(done), Err)
    }

    fn is_checkpoint_due(&self, partition: u32) -> bool {
        let folded = self.lanes[partition as usize].folded_bytes.load(Ordering::Relaxed);
        let last = Duration::from_millis(self.work.checkpointed[partition as usize].load(Ordering::Relaxed));
        folded >= self.settings.checkpoint_bytes
            || self.clock.now().saturating_sub(last) >= self.settings.checkpoint_every
    }

    async fn checkpoint_lane(&self, partition: u32, done: &mut Done) -> Result<()> {
        let lane = &self.lanes[partition as usize];
        let folded = lane.folded_bytes.load(Ordering::Relaxed);
        let slots = (partition as u16..self.settings.slots as u16).step_by(self.lanes.len());
        let worked = stream::iter(slots).map(|slot| async move {
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
            return Err(failure);
        }
        lane.folded_bytes.fetch_sub(folded, Ordering::Relaxed);
        self.work.checkpointed[partition as usize]
            .store(self.clock.now().as_millis() as u64, Ordering::Relaxed);
        self.trim(partition).await
    }

    /// How many keys are likely to come while the next size of a filter should do.
    fn coming(&self, handle: &Handle) -> u64 {
        let (items, now) = (handle.items(), self.clock.now());
        let mut counted = self.work.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, then) = counted.insert(handle.id(), (items, now)).unwrap_or((items, now));
        let seconds = now.saturating_sub(then).as_secs_f64();
        if seconds <= 0.0 {
            return 0;
        }
        let rate = items.saturating_sub(before) as f64 / seconds;
        let coming = (rate * self.settings.grow_for.as_secs_f64()) as u64;
        coming.min(handle.definition().spec.capacity.saturating_mul(RATE_GROWTH_MAX - 1))
    }
}
