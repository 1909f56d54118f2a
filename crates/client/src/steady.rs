//! A clock that goes on where another one goes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use umbel_core::clock::Clock;

use crate::shared::lock;

/// How finely it is noted how late it is: lookups of many threads read the note, and seldom write it.
const NOTED_EVERY_NS: u64 = 1_000_000;

/// What ages and leases are counted with. They hold only if time never goes back: an hour back would be an hour in which a copy that
/// is cut off says "absent". So when the clock under this one goes back, this one goes on from the latest time that was seen.
#[derive(Debug)]
pub(crate) struct Steady {
    clock: Arc<dyn Clock>,
    /// The latest time of that clock that was noted.
    latest: AtomicU64,
    /// What is added to it, because it went back.
    ahead: AtomicU64,
    /// When that was noted, by the clock of timers: it says how much time passed until the other one was found to have gone back.
    noted: Mutex<Instant>,
}

impl Steady {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let noted = Mutex::new(Instant::now());
        Self { clock, latest: AtomicU64::new(0), ahead: AtomicU64::new(0), noted }
    }

    fn read(&self) -> u64 {
        nanoseconds(self.clock.now())
    }

    fn note(&self, now: u64) {
        // In any case: whoever is at it already may have read the clock long ago, and been held up since.
        self.latest.fetch_max(now, Ordering::SeqCst);
        if let Ok(mut noted) = self.noted.try_lock() {
            *noted = Instant::now();
            self.latest.fetch_max(self.read(), Ordering::SeqCst);
        }
    }

    /// Whoever reads a time and is held up finds a later one noted; so the clock is read again before it is believed to have gone back.
    fn mend(&self) {
        let mut noted = lock(&self.noted);
        let (now, mut latest) = (self.read(), self.latest.load(Ordering::SeqCst));
        if now < latest {
            self.ahead.fetch_add(latest - now + nanoseconds(noted.elapsed()), Ordering::SeqCst);
            // A later time may have been noted meanwhile, and somebody was told it.
            while let Err(later) =
                self.latest.compare_exchange(latest, now, Ordering::SeqCst, Ordering::SeqCst)
            {
                self.ahead.fetch_add(later.saturating_sub(latest), Ordering::SeqCst);
                latest = later;
            }
            *noted = Instant::now();
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Clock for Steady {
    fn now(&self) -> Duration {
        loop {
            let (ahead, now) = (self.ahead.load(Ordering::SeqCst), self.read());
            let latest = self.latest.load(Ordering::SeqCst);
            if now < latest {
                self.mend();
                continue;
            }
            if now - latest >= NOTED_EVERY_NS {
                self.note(now);
            }
            // The two belong together only if nobody mended in between.
            if self.ahead.load(Ordering::SeqCst) == ahead {
                return Duration::from_nanos(now.saturating_add(ahead));
            }
        }
    }

    fn unix_millis(&self) -> u64 {
        self.clock.unix_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that shows what it is told.
    #[derive(Clone, Debug, Default)]
    struct Told(Arc<AtomicU64>);

    impl Told {
        fn set(&self, time: Duration) {
            self.0.store(time.as_nanos() as u64, Ordering::SeqCst);
        }
    }

    impl Clock for Told {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::SeqCst))
        }

        fn unix_millis(&self) -> u64 {
            0
        }
    }

    #[test]
    fn time_goes_on_when_the_clock_goes_back() {
        let (told, second) = (Told::default(), Duration::from_secs(1));
        let steady = Steady::new(Arc::new(told.clone()));
        // What passes in the test itself is counted, too.
        let shows = |time: Duration| {
            let now = steady.now();
            assert!((time..time + 10 * second).contains(&now), "{now:?} where {time:?} is right");
        };
        told.set(100 * second);
        shows(100 * second);
        told.set(10 * second);
        shows(100 * second);
        told.set(50 * second);
        shows(140 * second);
        told.set(Duration::ZERO);
        shows(140 * second);
        told.set(3_600 * second);
        shows(3_740 * second);
        // An hour back, and time goes on before anybody looks.
        told.set(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(20));
        let now = steady.now();
        assert!(now >= 3_740 * second + Duration::from_millis(20), "{now:?}");
    }

    #[test]
    fn no_thread_sees_time_go_back() {
        let told = Told::default();
        let steady = Steady::new(Arc::new(told.clone()));
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut before = Duration::ZERO;
                    while !ended.load(Ordering::Relaxed) {
                        let now = steady.now();
                        // What is noted is a millisecond behind.
                        assert!(now + Duration::from_millis(1) >= before, "{now:?} after {before:?}");
                        before = now;
                    }
                });
            }
            for step in 1..=20_000_u64 {
                // Forward by two milliseconds, and every hundred steps back by a hundred.
                told.set(Duration::from_millis(step * 2 - step / 100 * 100));
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}
