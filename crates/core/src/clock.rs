//! Time, behind a seam, so that tests and simulations can make it pass.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock that never goes back, and goes on while the machine sleeps. Its beginning means nothing.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time since the clock's beginning.
    fn now(&self) -> Duration;

    /// Milliseconds since 1970, as people and other machines count them. Unlike [`now`](Self::now), it may go back.
    fn unix_millis(&self) -> u64;
}

/// The system's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    beginning: Moment,
}

#[cfg(target_os = "linux")]
type Moment = Duration;
#[cfg(not(target_os = "linux"))]
type Moment = std::time::Instant;

/// The time since the machine was started, with the time that it slept: [`Instant`](std::time::Instant) stands still meanwhile, so that
/// whoever counts with it finds a copy fresh that is as old as the sleep was long.
#[cfg(target_os = "linux")]
fn moment() -> Moment {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::disallowed_methods, reason = "the one place where time comes from")]
fn moment() -> Moment {
    std::time::Instant::now()
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { beginning: moment() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        moment() - self.beginning
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the time of day comes from")]
    fn unix_millis(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that moves when it is told to. It begins with 1970.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    passed: Arc<AtomicU64>,
    /// Milliseconds by which the time of day was set otherwise.
    set: Arc<AtomicI64>,
}

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.passed.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Sets the time of day forward by so many milliseconds, or back; no time passes.
    pub fn step(&self, millis: i64) {
        self.set.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.passed.load(Ordering::SeqCst))
    }

    fn unix_millis(&self) -> u64 {
        (self.now().as_millis() as u64).saturating_add_signed(self.set.load(Ordering::SeqCst))
    }
}
