//! What can be told of a load while it goes on.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::plan::Counts;
use crate::{Error, Result};

/// How often somebody who sleeps looks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Numbers that grow while a load goes on, and the word to stop it. Share it with whoever wants to look.
#[derive(Debug, Default)]
pub struct Progress {
    keys: AtomicU64,
    added: AtomicU64,
    nulls: AtomicU64,
    bytes: AtomicU64,
    retries: AtomicU64,
    parts_done: AtomicU64,
    is_stopped: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Progress {
    /// What is at the sink, that of earlier runs included.
    pub fn counts(&self) -> Counts {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            keys: load(&self.keys),
            added: load(&self.added),
            nulls: load(&self.nulls),
            bytes: load(&self.bytes),
        }
    }

    /// Parts that were read to their end.
    pub fn parts_done(&self) -> u64 {
        self.parts_done.load(Ordering::Relaxed)
    }

    /// How often something was tried again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Why something was last tried again; told once.
    pub fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets the load end as soon as what is on its way has arrived.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, counts: Counts) {
        self.keys.fetch_add(counts.keys, Ordering::Relaxed);
        self.added.fetch_add(counts.added, Ordering::Relaxed);
        self.nulls.fetch_add(counts.nulls, Ordering::Relaxed);
        self.bytes.fetch_add(counts.bytes, Ordering::Relaxed);
    }

    pub(crate) fn finished_part(&self) {
        self.parts_done.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn tried_again(&self, why: String) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Sleeps, unless it is told to stop.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}
