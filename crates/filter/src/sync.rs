//! Atomics and locks: the standard ones, or loom's when a concurrency test explores their interleavings.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};

/// Changes a word that nobody else can see, without the price of an atomic instruction.
#[inline(always)]
pub(crate) fn change_exclusive(word: &mut AtomicU64, change: impl FnOnce(u64) -> u64) {
    #[cfg(loom)]
    word.with_mut(|word| *word = change(*word));
    #[cfg(not(loom))]
    {
        let word = word.get_mut();
        *word = change(*word);
    }
}
