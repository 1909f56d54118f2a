//! Checkpoints that clients ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use tokio::sync::oneshot;
use umbel_core::{Error, Result};

use crate::latency::Event;
use crate::node::{Node, unix_time};

/// The one that is being made, and what became of the last.
#[derive(Debug)]
pub(crate) struct Saves {
    runs: AtomicBool,
    good: AtomicBool,
    count: AtomicU64,
    last_seconds: AtomicI64,
    begun_unix_s: AtomicU64,
}

impl Default for Saves {
    fn default() -> Self {
        Self {
            runs: AtomicBool::new(false),
            good: AtomicBool::new(true),
            count: AtomicU64::new(0),
            last_seconds: AtomicI64::new(-1),
            begun_unix_s: AtomicU64::new(0),
        }
    }
}

impl Saves {
    /// Whether one is being made.
    pub(crate) fn is_running(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    /// How long the one that is being made has taken so far; -1 if there is none.
    pub(crate) fn current_seconds(&self) -> i64 {
        let begun = self.begun_unix_s.load(Ordering::Relaxed);
        if self.is_running() { unix_time().as_secs().saturating_sub(begun) as i64 } else { -1 }
    }

    /// Whether the last one was made.
    pub(crate) fn was_good(&self) -> bool {
        self.good.load(Ordering::Relaxed)
    }

    /// How many were made.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How long the last one took; -1 if there was none.
    pub(crate) fn last_seconds(&self) -> i64 {
        self.last_seconds.load(Ordering::Relaxed)
    }
}

/// Begins a checkpoint in a thread of its own, so that no event loop waits for disks. Nothing if one is being made.
pub(crate) fn begin(node: &Arc<Node>) -> Result<Option<oneshot::Receiver<Result<()>>>> {
    if node.saves.runs.swap(true, Ordering::AcqRel) {
        return Ok(None);
    }
    node.saves.begun_unix_s.store(unix_time().as_secs(), Ordering::Relaxed);
    let (done, outcome) = oneshot::channel();
    let saving = Arc::clone(node);
    let spawned = std::thread::Builder::new().name("umbel-save".into()).spawn(move || {
        let outcome = save(&saving);
        if let Err(error) = &outcome {
            tracing::warn!(%error, "a checkpoint that a client asked for was not made");
        }
        saving.saves.good.store(outcome.is_ok(), Ordering::Relaxed);
        saving.saves.runs.store(false, Ordering::Release);
        // Whoever hears of it may end the server and open its folder again.
        drop(saving);
        // Nobody need wait for it.
        let _ = done.send(outcome);
    });
    match spawned {
        Ok(_) => Ok(Some(outcome)),
        Err(error) => {
            node.saves.runs.store(false, Ordering::Release);
            Err(Error::Retry(format!("cannot start a thread: {error}")))
        }
    }
}

fn save(node: &Node) -> Result<()> {
    let started = node.now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Retry(format!("cannot start a runtime: {error}")))?;
    runtime.block_on(node.engine.checkpoint())?;
    let took = node.now().saturating_duration_since(started);
    node.latency.record(Event::Checkpoint, took);
    let took = took.as_secs();
    node.saves.count.fetch_add(1, Ordering::Relaxed);
    node.saves.last_seconds.store(i64::try_from(took).unwrap_or(i64::MAX), Ordering::Relaxed);
    node.counts.last_save.store(unix_time().as_secs(), Ordering::Relaxed);
    Ok(())
}
