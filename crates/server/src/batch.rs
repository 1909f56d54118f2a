//! What clients of one event loop ask in one turn of it, put together.
//!
//! Many clients add to the same filter at once, or look up in it what other nodes or the disk have to be asked for. What they send in one turn
//! of the loop goes to the engine as one batch, with one append to the log or one question to each node, as if one client had sent all of
//! it. Nobody waits for others: the batch is closed as soon as every connection that was ready has been read.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use tokio::sync::Notify;
use umbel_core::engine::{Answer, Handle, Written};
use umbel_core::{Error, Result};
use umbel_filter::Fingerprint;

/// Keys after which a batch takes no more.
const KEYS_MAX: usize = 1 << 16;

/// Batches that are being collected, of which something comes.
#[derive(Debug)]
pub struct Batches<T> {
    open: RefCell<Vec<Rc<Batch<T>>>>,
    opened: Notify,
}

#[derive(Debug)]
struct Batch<T> {
    filter: Arc<Handle>,
    keys: RefCell<Vec<Fingerprint>>,
    /// How many keys it has, also when they are taken.
    count: Cell<usize>,
    outcome: OnceCell<Result<T>>,
    waiting: RefCell<Vec<Waker>>,
}

/// What came of one client's keys in a batch.
#[derive(Debug)]
pub struct Part<T> {
    batch: Rc<Batch<T>>,
    keys: Range<usize>,
}

impl<T> Default for Batches<T> {
    fn default() -> Self {
        Self { open: RefCell::default(), opened: Notify::default() }
    }
}

impl<T> Part<T> {
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

    /// Whether there are keys of others in the batch, to whom it may owe its trouble.
    pub fn is_shared(&self) -> bool {
        self.keys != (0..self.batch.count.get())
    }

    fn of<'a, A>(&'a self, answers: impl Fn(&'a T) -> &'a [A]) -> Result<&'a [A]> {
        match self.batch.outcome.get() {
            Some(Ok(outcome)) => Ok(answers(outcome).get(self.keys.clone()).unwrap_or_default()),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(&[]),
        }
    }
}

impl<T> Part<T> {
    /// Whether it came to nothing because the filter was dropped.
    pub fn is_gone(&self) -> bool {
        matches!(self.batch.outcome.get(), Some(Err(Error::Gone(_))))
    }
}

impl Part<Written> {
    /// For each key, whether it was new; nothing if the filter was too full to take it.
    pub fn answers(&self) -> Result<&[Option<bool>]> {
        self.of(|written| &written.answers)
    }

    /// Why some keys were not taken.
    pub fn refused(&self) -> Option<&str> {
        self.batch.outcome.get()?.as_ref().ok()?.refused.as_deref()
    }
}

impl Part<Vec<Answer>> {
    /// For each key, whether it is there.
    pub fn answers(&self) -> Result<&[Answer]> {
        self.of(Vec::as_slice)
    }
}

impl<T: 'static> Batches<T> {
    /// Puts keys to those of others. It is seen to at the end of the turn.
    pub fn put(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Part<T> {
        let batch = self.batch(filter);
        let keys = {
            let mut all = batch.keys.borrow_mut();
            let start = all.len();
            all.extend_from_slice(keys);
            batch.count.set(all.len());
            start..all.len()
        };
        Part { batch, keys }
    }

    fn batch(&self, filter: &Arc<Handle>) -> Rc<Batch<T>> {
        let mut open = self.open.borrow_mut();
        let found = open
            .iter()
            .find(|batch| Arc::ptr_eq(&batch.filter, filter) && batch.keys.borrow().len() < KEYS_MAX);
        if let Some(found) = found {
            return Rc::clone(found);
        }
        let batch = Rc::new(Batch {
            filter: Arc::clone(filter),
            keys: RefCell::default(),
            count: Cell::default(),
            outcome: OnceCell::new(),
            waiting: RefCell::default(),
        });
        open.push(Rc::clone(&batch));
        // Whoever waits for this is behind all connections that are ready now.
        self.opened.notify_one();
        batch
    }

    /// Lets batches be done, for as long as the loop runs. They do not wait for one another.
    pub async fn drive<F>(self: Rc<Self>, work: impl Fn(Arc<Handle>, Vec<Fingerprint>) -> F)
    where
        F: Future<Output = Result<T>> + 'static,
    {
        loop {
            self.opened.notified().await;
            for batch in self.open.take() {
                let done = work(Arc::clone(&batch.filter), batch.keys.take());
                tokio::task::spawn_local(async move {
                    // Nobody else sets it.
                    let _ = batch.outcome.set(done.await);
                    batch.waiting.take().into_iter().for_each(Waker::wake);
                });
            }
        }
    }
}
