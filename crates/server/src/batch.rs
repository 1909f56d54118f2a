//! Adds of one turn of an event loop, put together.
//!
//! Many clients add to the same filter at once. What they send in one turn of the loop goes to the engine as one batch, with one append to the log,
//! as if one client had sent all of it. Nobody waits for others: the batch is closed as soon as every connection that was
//! ready has been read.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use tokio::sync::Notify;
use umbel_core::Result;
use umbel_core::engine::{Engine, Handle, Written};
use umbel_filter::Fingerprint;

/// Keys after which a batch takes no more.
const KEYS_MAX: usize = 1 << 16;

/// Batches that are being collected.
#[derive(Debug, Default)]
pub struct Adds {
    open: RefCell<Vec<Rc<Batch>>>,
    opened: Notify,
}

#[derive(Debug)]
struct Batch {
    filter: Arc<Handle>,
    keys: RefCell<Vec<Fingerprint>>,
    is_closed: Cell<bool>,
    outcome: OnceCell<Result<Written>>,
    waiting: RefCell<Vec<Waker>>,
}

/// What came of one client's keys in a batch.
#[derive(Debug)]
pub struct Part {
    batch: Rc<Batch>,
    keys: Range<usize>,
}

impl Part {
    /// Waits until it is known.
    pub async fn known(&self) {
        poll_fn(|context| {
            if self.batch.outcome.get().is_some() {
                return Poll::Ready(());
            }
            self.batch.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// For each key, whether it was new; nothing if the filter was too full to take it.
    pub fn answers(&self) -> Result<&[Option<bool>]> {
        match self.batch.outcome.get() {
            Some(Ok(written)) => Ok(&written.answers[self.keys.clone()]),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(&[]),
        }
    }

    /// Why some keys were not taken.
    pub fn refused(&self) -> Option<&str> {
        self.batch.outcome.get()?.as_ref().ok()?.refused.as_deref()
    }
}

impl Adds {
    /// Puts keys to those of others. They are added at the end of the turn.
    pub fn add(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Part {
        let batch = self.batch(filter);
        let keys = {
            let mut all = batch.keys.borrow_mut();
            let start = all.len();
            all.extend_from_slice(keys);
            start..all.len()
        };
        Part { batch, keys }
    }

    fn batch(&self, filter: &Arc<Handle>) -> Rc<Batch> {
        let mut open = self.open.borrow_mut();
        let found = open.iter().find(|batch| {
            Arc::ptr_eq(&batch.filter, filter)
                && batch.keys.borrow().len() < KEYS_MAX
                && !batch.is_closed.get()
        });
        if let Some(found) = found {
            return Rc::clone(found);
        }
        let batch = Rc::new(Batch {
            filter: Arc::clone(filter),
            keys: RefCell::default(),
            is_closed: Cell::new(false),
            outcome: OnceCell::new(),
            waiting: RefCell::default(),
        });
        open.push(Rc::clone(&batch));
        // Whoever waits for this is behind all connections that are ready now.
        self.opened.notify_one();
        batch
    }

    /// Hands batches to the engine, for as long as the loop runs. They do not wait for one another.
    pub async fn drive(self: Rc<Self>, engine: Arc<Engine>) {
        loop {
            self.opened.notified().await;
            for batch in self.open.take() {
                tokio::task::spawn_local(batch.run(Arc::clone(&engine)));
            }
        }
    }
}

impl Batch {
    async fn run(self: Rc<Self>, engine: Arc<Engine>) {
        self.is_closed.set(true);
        let keys = self.keys.take();
        let outcome = engine.add(&self.filter, &keys).await;
        // Nobody else sets it.
        let _ = self.outcome.set(outcome);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}
