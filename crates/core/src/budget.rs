//! Memory, counted before it is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// How much memory filters may take, and how much they do.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), peak: AtomicU64::new(0) })
    }

    /// Reserves memory for `what`, or says why there is none. It is given back when the reservation is dropped.
    pub fn reserve(self: &Arc<Self>, bytes: u64, what: &str) -> Result<Reservation> {
        let within = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        match self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within) {
            Ok(before) => {
                self.peak.fetch_max(before + bytes, Ordering::SeqCst);
                Ok(Reservation { budget: Arc::clone(self), bytes })
            }
            Err(used) => Err(Error::Retry(format!(
                "{what} takes {bytes} bytes of memory; {used} of {} are in use",
                self.limit
            ))),
        }
    }

    /// Counts memory that was taken already, even beyond the limit: nothing else is reserved then.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Reservation {
        let before = self.used.fetch_add(bytes, Ordering::SeqCst);
        self.peak.fetch_max(before.saturating_add(bytes), Ordering::SeqCst);
        Reservation { budget: Arc::clone(self), bytes }
    }

    /// The most that may be in use.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// The most bytes that were in use at one time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }

    /// Forgets the peak: what is in use now is the most from here on.
    pub fn restart_peak(&self) {
        self.peak.store(self.used(), Ordering::SeqCst);
    }
}

/// A part of the budget, for as long as it lives.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reservation {
    /// How much.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let budget = Budget::new(100);
        let held = budget.reserve(60, "one").unwrap();
        let refused = budget.reserve(41, "another").unwrap_err().to_string();
        assert_eq!(refused, "another takes 41 bytes of memory; 60 of 100 are in use");
        assert!(budget.reserve(u64::MAX, "all").is_err());
        drop(held);
        assert_eq!((budget.used(), budget.peak()), (0, 60));
        assert!(budget.reserve(100, "all of it").is_ok());
    }
}
