//! Pauses between tries.

use std::time::Duration;

use umbel_core::random::Random;

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN};

/// Pauses that double up to a bound. Chance spreads them, so that many replicas do not come back at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It went well: the next failure is the first.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The pause after one more failure.
    pub(crate) fn next(&mut self, random: &dyn Random) -> Duration {
        let whole = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        jitter(whole, random)
    }
}

/// Something between half of a time and all of it.
pub(crate) fn jitter(time: Duration, random: &dyn Random) -> Duration {
    let share = (random.next() >> 32) as f64 / f64::from(u32::MAX);
    time.mul_f64(0.5 + share / 2.0)
}

#[cfg(test)]
mod tests {
    use umbel_core::random::SeededRandom;

    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew() {
        let random = SeededRandom::new(1);
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..40).map(|_| backoff.next(&random)).collect();
        assert!(pauses[0] <= BACKOFF_MIN && pauses[0] >= BACKOFF_MIN / 2);
        assert!(pauses[20..].iter().all(|pause| *pause <= BACKOFF_MAX && *pause >= BACKOFF_MAX / 2));
        backoff.reset();
        assert!(backoff.next(&random) <= BACKOFF_MIN);
    }
}
