//! A log that lets its callers wait, so that others come in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use umbel_core::log::{Appended, Bounds, Log, MemoryLog, Record};
use umbel_core::{Position, Result};

/// Nobody who asks for the bounds of a partition waits.
const NONE: u32 = u32::MAX;

/// Appends let others go first. Calls for the bounds of a partition, and reads of it too, can be held up.
#[derive(Debug)]
pub(crate) struct SlowLog {
    inner: std::sync::Arc<MemoryLog>,
    held: AtomicU32,
    unread: AtomicU32,
}

impl SlowLog {
    pub(crate) fn new(inner: std::sync::Arc<MemoryLog>) -> Self {
        Self { inner, held: AtomicU32::new(NONE), unread: AtomicU32::new(NONE) }
    }

    /// Whoever asks for the bounds of this partition from here on is told what they are now, later.
    pub(crate) fn hold(&self, partition: u32) {
        self.held.store(partition, Ordering::SeqCst);
    }

    /// Nothing of this partition is read from here on.
    pub(crate) fn cut_off(&self, partition: u32) {
        self.hold(partition);
        self.unread.store(partition, Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self) {
        self.held.store(NONE, Ordering::SeqCst);
        self.unread.store(NONE, Ordering::SeqCst);
    }
}

/// Lets others go first, once.
async fn give_way() {
    let mut gave_way = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut gave_way, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[async_trait]
impl Log for SlowLog {
    fn partitions(&self) -> u32 {
        self.inner.partitions()
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        // Whoever appends looks once whether it is done already.
        give_way().await;
        give_way().await;
        self.inner.append_after(partition, entries, read).await
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        while self.unread.load(Ordering::SeqCst) == partition {
            give_way().await;
        }
        self.inner.read(partition, after, bytes_max).await
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        let bounds = self.inner.bounds(partition).await?;
        while self.held.load(Ordering::SeqCst) == partition {
            give_way().await;
        }
        Ok(bounds)
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        self.inner.trim(partition, upto).await
    }
}
