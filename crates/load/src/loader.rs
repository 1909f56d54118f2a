//! From a source to a sink.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use umbel_core::random::{Random, SystemRandom};

use crate::checkpoint::Checkpoint;
use crate::limits::{CHECKPOINT_EVERY, LANES_MAX, PARTS_MAX};
use crate::pause::Tries;
use crate::plan::{Counts, State};
use crate::sink::Sink;
use crate::throttle::Throttle;
use crate::{Bookmark, Error, Part, Progress, Result, Source, journal, lane, plan};

/// A checkpoint takes at most this share of the time: one of many parts is written less often.
const CHECKPOINT_SHARE: u32 = 20;

/// How a load is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Parts that are read at the same time.
    pub lanes: usize,
    /// Most keys a second.
    pub rate: Option<u64>,
    /// How long source and sink may be away before the load gives up.
    pub patience: Duration,
    /// Where it is written down how far the load has come.
    pub checkpoint: Option<PathBuf>,
    /// Begins anew, whatever the checkpoint says.
    pub restart: bool,
    /// Whether a key that is sent again after a kill would count twice: then everything is written down before it is sent.
    pub exactly_once: bool,
    /// What the keys go into, so that a checkpoint is not taken for that of another load.
    pub target: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lanes: 4,
            rate: None,
            patience: Duration::from_secs(60),
            checkpoint: None,
            restart: false,
            exactly_once: false,
            target: String::new(),
        }
    }
}

/// What came of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What is at the sink, that of earlier runs included.
    pub counts: Counts,
    /// What of it was there from earlier runs.
    pub before: Counts,
    /// In how many parts the source was read.
    pub parts: usize,
}

/// A load that is about to begin.
pub struct Loader<'a> {
    source: &'a dyn Source,
    sink: &'a dyn Sink,
    options: Options,
    checkpoint: Option<Checkpoint>,
    states: Vec<State>,
    is_resumed: bool,
}

impl<'a> Loader<'a> {
    /// Finds the parts to read, or where an earlier run was.
    pub fn new(source: &'a dyn Source, sink: &'a dyn Sink, options: Options) -> Result<Self> {
        if !(1..=LANES_MAX).contains(&options.lanes) {
            return Err(Error::Invalid(format!("{} lanes; there are 1 to {LANES_MAX}", options.lanes)));
        }
        let what = format!("{} into {}", source.identity(), options.target);
        let path = options.checkpoint.as_ref().filter(|_| source.is_resumable());
        let checkpoint = path.map(|path| Checkpoint::take(path, &what)).transpose()?;
        if let Some(checkpoint) = checkpoint.as_ref().filter(|_| options.restart) {
            checkpoint.remove()?;
        }
        let found = checkpoint.as_ref().map(Checkpoint::read).transpose()?.flatten();
        let is_resumed = found.is_some();
        let states = match found {
            Some(states) => states,
            None => {
                let parts = source.parts(options.lanes)?;
                if parts.len() > PARTS_MAX {
                    return Err(Error::Invalid(format!("{} parts; the most is {PARTS_MAX}", parts.len())));
                }
                parts.into_iter().map(State::new).collect()
            }
        };
        Ok(Self { source, sink, options, checkpoint, states, is_resumed })
    }

    /// What is already at the sink, if an earlier run did not come to its end.
    pub fn resumed(&self) -> Option<Counts> {
        self.is_resumed.then(|| sum(&self.states))
    }

    /// The parts that are read.
    pub fn parts(&self) -> Vec<Part> {
        self.states.iter().map(|state| state.part.clone()).collect()
    }

    /// Reads and sends until all is at the sink. What fails leaves the checkpoint, and the next run goes on from there.
    pub fn run(self, progress: &Progress) -> Result<Outcome> {
        let Self { source, sink, options, checkpoint, states, .. } = self;
        let before = sum(&states);
        progress.add(before);
        let open = plan::to_read(&states);
        (open.len()..states.len()).for_each(|_| progress.finished_part());
        let lanes = options.lanes.min(open.len()).max(1);
        let throttle = options.rate.map(|rate| Mutex::new(Throttle::new(rate)));
        let session = SystemRandom::default().next();
        let work = Work {
            source,
            sink,
            options,
            progress,
            checkpoint,
            session,
            states: Mutex::new(states),
            open: Mutex::new(open.into()),
            throttle,
            begun: Instant::now(),
            writing: Mutex::new(Instant::now()),
            taken: AtomicU64::new(0),
            written: AtomicU64::new(0),
        };
        let outcome = work.settle().and_then(|()| work.read(0..lanes)).and_then(|()| work.read_tail(lanes));
        let states = locked(&work.states);
        if let Some(checkpoint) = &work.checkpoint {
            match &outcome {
                Ok(()) => checkpoint.remove()?,
                Err(_) => checkpoint.write(&states)?,
            }
        }
        outcome.map(|()| Outcome { counts: sum(&states), before, parts: states.len() })
    }
}

fn sum(states: &[State]) -> Counts {
    states.iter().fold(Counts::default(), |sum, state| sum.plus(state.counts))
}

/// What is behind a lock is whole even if somebody died while having it: every change is one assignment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all lanes share.
pub(crate) struct Work<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) options: Options,
    pub(crate) progress: &'a Progress,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Sessions of the lanes are numbered from here: no other process has them.
    session: u64,
    states: Mutex<Vec<State>>,
    /// Parts that nobody reads yet.
    open: Mutex<VecDeque<usize>>,
    throttle: Option<Mutex<Throttle>>,
    begun: Instant,
    /// When the checkpoint is to be written again; whoever writes it has the lock.
    writing: Mutex<Instant>,
    /// Batches that have arrived, and how many of them are in the checkpoint.
    taken: AtomicU64,
    written: AtomicU64,
}

impl Work<'_> {
    /// Sends again what may or may not have arrived before a kill.
    fn settle(&self) -> Result<()> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        let journals = journal::read_all(checkpoint.path())?;
        let mut states = locked(&self.states);
        for entry in plan::unsettled(&states, &journals, &self.sink.form())? {
            let mut tries = Tries::new(self.options.patience);
            let added = loop {
                match self.sink.send(entry.who, &entry.packed) {
                    Ok(added) => break added,
                    Err(error) => tries.wait(error, self.progress)?,
                }
            };
            let known = states[entry.part].counts;
            states[entry.part].settled(entry, added);
            let now = states[entry.part].counts;
            self.progress.add(Counts {
                keys: now.keys - known.keys,
                added: now.added.saturating_sub(known.added),
                nulls: now.nulls - known.nulls,
                bytes: now.bytes - known.bytes,
            });
        }
        checkpoint.write(&states)?;
        journal::remove_all(checkpoint.path());
        Ok(())
    }

    fn read(&self, lanes: Range<usize>) -> Result<()> {
        thread::scope(|scope| {
            let lanes: Vec<_> = lanes
                .map(|number| {
                    scope.spawn(move || {
                        let outcome = lane::run(self, number);
                        if outcome.is_err() {
                            // The others would only come further in what is not to be finished.
                            locked(&self.open).clear();
                            self.progress.stop();
                        }
                        outcome
                    })
                })
                .collect();
            let died = || Err(Error::Invalid("a thread of the load has died".into()));
            let outcomes: Vec<_> =
                lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| died())).collect();
            // The first reason is worth more than those that stopped because of it.
            let (stopped, failed): (Vec<_>, Vec<_>) = outcomes
                .into_iter()
                .filter_map(Result::err)
                .partition(|error| matches!(error, Error::Stopped));
            failed.into_iter().chain(stopped).next().map_or(Ok(()), Err)
        })
    }

    /// Reads once more what came behind the last bookmark while everything was read. The lane has another number than those before,
    /// and so another session.
    fn read_tail(&self, lane: usize) -> Result<()> {
        let tail = {
            let parts: Vec<Part> = locked(&self.states).iter().map(|state| state.part.clone()).collect();
            let tail = self.source.tail(&parts);
            tail.and_then(|tail| parts.iter().position(|part| part == tail))
        };
        let Some(tail) = tail else { return Ok(()) };
        locked(&self.open).push_back(tail);
        self.read(lane..lane + 1)
    }

    pub(crate) fn next_part(&self) -> Option<usize> {
        locked(&self.open).pop_front()
    }

    pub(crate) fn session_of(&self, lane: usize) -> u64 {
        // Zero stands for none.
        self.session.wrapping_add(lane as u64).max(1)
    }

    pub(crate) fn place_of(&self, part: usize) -> (Part, Option<Bookmark>) {
        let states = locked(&self.states);
        (states[part].part.clone(), states[part].after.clone())
    }

    /// Batches of a part that are at the sink, and what they come to.
    pub(crate) fn counted(&self, part: usize) -> (u64, Counts) {
        let states = locked(&self.states);
        (states[part].batches, states[part].counts)
    }

    pub(crate) fn throttle(&self, keys: u64) -> Result<()> {
        let Some(throttle) = &self.throttle else { return Ok(()) };
        let pause = locked(throttle).pause(keys, self.begun.elapsed());
        if pause.is_zero() { Ok(()) } else { self.progress.sleep(pause) }
    }

    /// A batch is at the sink.
    pub(crate) fn took(&self, part: usize, after: Bookmark, counts: Counts) -> Result<()> {
        locked(&self.states)[part].took(after, counts);
        self.taken.fetch_add(1, Ordering::AcqRel);
        self.progress.add(counts);
        self.write_if_due()
    }

    /// A part was read to its end.
    pub(crate) fn ended(&self, part: usize) -> Result<()> {
        let was_done = std::mem::replace(&mut locked(&self.states)[part].is_done, true);
        if !was_done {
            self.progress.finished_part();
        }
        self.write_if_due()
    }

    fn write_if_due(&self) -> Result<()> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        // If somebody writes it just now, that is enough.
        let Ok(mut due) = self.writing.try_lock() else { return Ok(()) };
        let now = Instant::now();
        if now < *due {
            return Ok(());
        }
        self.write(checkpoint, &mut due)
    }

    /// Writes down all that has arrived by now, whenever that was done last.
    pub(crate) fn write_now(&self) -> Result<()> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        let asked = self.taken.load(Ordering::Acquire);
        let mut due = locked(&self.writing);
        // Whoever wrote it while this waited may have done so with all of it.
        if self.written.load(Ordering::Acquire) >= asked {
            return Ok(());
        }
        self.write(checkpoint, &mut due)
    }

    fn write(&self, checkpoint: &Checkpoint, due: &mut Instant) -> Result<()> {
        let (now, taken) = (Instant::now(), self.taken.load(Ordering::Acquire));
        let states = locked(&self.states).clone();
        checkpoint.write(&states)?;
        self.written.store(taken, Ordering::Release);
        *due = now + CHECKPOINT_EVERY.max(now.elapsed() * CHECKPOINT_SHARE);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
