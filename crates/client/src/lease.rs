//! Leave to answer, for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Until when a replica may answer: nanoseconds of its clock, 0 for not at all.
#[derive(Debug, Default)]
pub(crate) struct Lease(AtomicU64);

impl Lease {
    pub(crate) fn begin(&self, until: Duration) {
        self.0.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Ends it; whether there was one.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(0, Ordering::SeqCst) != 0
    }

    pub(crate) fn holds(&self, now: Duration) -> bool {
        now.as_nanos() < u128::from(self.0.load(Ordering::SeqCst))
    }
}
