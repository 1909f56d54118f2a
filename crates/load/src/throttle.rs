//! As fast as one is allowed to.

use std::time::Duration;

/// Lets so many keys pass in a second. It has no clock: times are counted from any beginning.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: f64,
    /// When all keys that were let through have had their time.
    free_at: Duration,
}

impl Throttle {
    /// What was not used is not saved up for longer than this.
    const BURST: Duration = Duration::from_millis(250);

    pub(crate) fn new(keys_per_second: u64) -> Self {
        Self { rate: keys_per_second.max(1) as f64, free_at: Duration::ZERO }
    }

    /// How long to wait before so many keys may go.
    pub(crate) fn pause(&mut self, keys: u64, now: Duration) -> Duration {
        let begin = self.free_at.max(now.saturating_sub(Self::BURST));
        self.free_at = begin + Duration::from_secs_f64(keys as f64 / self.rate);
        begin.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_any_length_of_time() {
        let (mut throttle, mut now, mut sent) = (Throttle::new(10_000), Duration::ZERO, 0);
        while now < Duration::from_secs(60) {
            now += throttle.pause(700, now);
            sent += 700;
        }
        assert!((599_000..=605_000).contains(&sent), "{sent}");
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut throttle = Throttle::new(1_000);
        let (day, mut waited) = (Duration::from_secs(86_400), Duration::ZERO);
        for _ in 0..10 {
            waited += throttle.pause(1_000, day + waited);
        }
        assert!(waited >= Duration::from_secs(8), "{waited:?}");
    }
}
