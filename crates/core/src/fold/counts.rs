//! How many keys a shard has.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many keys a shard has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys that were new when they were added, less those that went. Sizes follow it: a key takes its cells once.
    pub items: u64,
    /// Adds less removals: a key counts as often as it was added.
    pub held: u64,
    /// Removals that took a key out, since the filter was made, cleared or built anew in its own size.
    pub removed: u64,
}

impl Counts {
    /// Of two parts of a filter together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            items: self.items.saturating_add(other.items),
            held: self.held.saturating_add(other.held),
            removed: self.removed.saturating_add(other.removed),
        }
    }

    /// Of keys that were not added one by one: nobody knows how often each was, so it counts once.
    pub fn of_items(items: u64) -> Self {
        Self { items, held: items, removed: 0 }
    }
}

/// Counts that one changes and many read. They change one after another, so whoever reads meanwhile may see one before the other.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    items: AtomicU64,
    held: AtomicU64,
    removed: AtomicU64,
}

impl From<Counts> for Counters {
    fn from(counts: Counts) -> Self {
        let counters = Self::default();
        counters.set(counts);
        counters
    }
}

impl Counters {
    pub(crate) fn get(&self) -> Counts {
        Counts {
            items: self.items.load(Ordering::Relaxed),
            held: self.held.load(Ordering::Relaxed),
            removed: self.removed.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set(&self, counts: Counts) {
        self.items.store(counts.items, Ordering::Relaxed);
        self.held.store(counts.held, Ordering::Relaxed);
        self.removed.store(counts.removed, Ordering::Relaxed);
    }

    /// So many keys came, and so many of them were new.
    #[inline]
    pub(super) fn add(&self, keys: u64, new: u64) {
        // Whoever folds the slot is alone.
        let more = |counter: &AtomicU64, by: u64| {
            counter.store(counter.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
        };
        more(&self.items, new);
        more(&self.held, keys);
    }

    /// A key was taken out, and perhaps it is not there any more.
    pub(super) fn remove(&self, gone: bool) {
        let Counts { items, held, removed } = self.get();
        self.set(Counts {
            items: items.saturating_sub(u64::from(gone)),
            held: held.saturating_sub(1),
            removed: removed.saturating_add(1),
        });
    }
}
