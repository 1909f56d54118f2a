//! The times that windows and expiries follow.
//!
//! The time of day may be set back and forward while a process runs, and differs between nodes. [`Clock::now`] does neither, but means
//! nothing in another process. So:
//!
//! - **Windows have a time of their own.** It begins with the newest time that a bucket carries in the log, plus what the time of day says
//!   has passed since that bucket was made, and goes on by the clock that never goes back. It does not follow steps of the time of
//!   day. A node that reads a later time in the log takes it.
//! - **After such a jump no bucket is dropped for a whole length of its window.** So no key goes early because of a clock that is ahead,
//!   and none stays longer than a second length.
//! - **Expiries follow the time of day**, but a step forward is believed only after it has lasted for [`BELIEVED_AFTER`].

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::definition::Window;

/// How long the time of day has to stay ahead before expiries follow it.
const BELIEVED_AFTER: Duration = Duration::from_secs(600);
/// What the time of day may gain on the other clock at once without being a step.
const STEP_MS: i64 = 1_000;
/// How far another node's time may be ahead without being a jump.
const JUMP_MS: u64 = 100;
/// How far the time of a new bucket of another node may be behind, because it was read late.
const LATE_MS: u64 = 2_000;
/// For how long a node of a cluster drops no bucket after its start, at most: its clock may still be put right.
const START_HOLD_MS: i64 = 3_600_000;
/// In place of a time that was not noted.
const NONE: i64 = i64::MIN;

/// The time of a window and the time of day, when a bucket was made; and what a bucket says of them in its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) window_ms: u64,
    pub(super) unix_ms: u64,
}

/// What labels of buckets begin with.
const LABELS: &[u8] = b"T1"; // persisted

impl Carried {
    pub(super) fn to_labels(self) -> bytes::Bytes {
        let numbers = [self.window_ms, self.unix_ms];
        LABELS.iter().copied().chain(numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }

    /// None if a bucket was made before buckets carried times.
    pub(super) fn of_labels(labels: &[u8]) -> Option<Self> {
        let [window_ms, unix_ms] = labels.strip_prefix(LABELS)?.as_chunks::<8>().0 else { return None };
        Some(Self { window_ms: u64::from_le_bytes(*window_ms), unix_ms: u64::from_le_bytes(*unix_ms) })
    }

    /// How far the time of windows was ahead.
    pub(super) fn ahead_ms(self) -> i64 {
        signed(self.window_ms).saturating_sub(signed(self.unix_ms))
    }
}

/// Steps of the time of day that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// How often it went back.
    pub back: u64,
    /// How often it went forward by more than passed.
    pub forward: u64,
    /// The last step, in milliseconds; below zero if it went back.
    pub last_ms: i64,
}

#[derive(Debug)]
pub(super) struct Pace {
    /// Milliseconds by which the time of windows is ahead of the clock that never goes back.
    windows: AtomicI64,
    /// When that began, and when it was last raised by another node's time, in milliseconds of that clock.
    begun: AtomicI64,
    jumped: AtomicI64,
    /// Milliseconds by which the time of day was ahead of it when it was last believed, and when it was last looked at.
    believed: AtomicI64,
    seen: AtomicI64,
    /// Since when it has been further ahead than is believed.
    doubted: AtomicI64,
    back: AtomicU64,
    forward: AtomicU64,
    last_step: AtomicI64,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn steady_ms(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.now().as_millis()).unwrap_or(i64::MAX)
}

fn unix_ms(clock: &dyn Clock) -> i64 {
    signed(clock.unix_millis())
}

impl Pace {
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let ahead = unix_ms(clock).saturating_sub(steady_ms(clock));
        Self {
            windows: AtomicI64::new(NONE),
            begun: AtomicI64::new(NONE),
            jumped: AtomicI64::new(NONE),
            believed: AtomicI64::new(ahead),
            seen: AtomicI64::new(ahead),
            doubted: AtomicI64::new(NONE),
            back: AtomicU64::new(0),
            forward: AtomicU64::new(0),
            last_step: AtomicI64::new(0),
        }
    }

    /// Notes whether the time of day went another way than the clock that never goes back.
    pub(super) fn observe(&self, clock: &dyn Clock) {
        let ahead = unix_ms(clock).saturating_sub(steady_ms(clock));
        let step = ahead.saturating_sub(self.seen.swap(ahead, Ordering::SeqCst));
        if step.saturating_abs() <= STEP_MS {
            return;
        }
        self.last_step.store(step, Ordering::SeqCst);
        let count = if step < 0 { &self.back } else { &self.forward };
        count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn steps(&self) -> ClockSteps {
        ClockSteps {
            back: self.back.load(Ordering::SeqCst),
            forward: self.forward.load(Ordering::SeqCst),
            last_ms: self.last_step.load(Ordering::SeqCst),
        }
    }

    /// The time by which expiries are over, in milliseconds since 1970.
    pub(super) fn expiry_ms(&self, clock: &dyn Clock) -> u64 {
        let (unix, steady) = (unix_ms(clock), steady_ms(clock));
        let (ahead, believed) = (unix.saturating_sub(steady), self.believed.load(Ordering::SeqCst));
        if ahead <= believed.saturating_add(STEP_MS) {
            if ahead != believed {
                self.believed.store(ahead, Ordering::SeqCst);
            }
            if self.doubted.load(Ordering::SeqCst) != NONE {
                self.doubted.store(NONE, Ordering::SeqCst);
            }
            return unsigned(unix);
        }
        let noted = self.doubted.compare_exchange(NONE, steady, Ordering::SeqCst, Ordering::SeqCst);
        let since = noted.err().unwrap_or(steady);
        if u128::from(steady.abs_diff(since)) >= BELIEVED_AFTER.as_millis() {
            self.believed.store(ahead, Ordering::SeqCst);
            self.doubted.store(NONE, Ordering::SeqCst);
            return unsigned(unix);
        }
        unsigned(steady.saturating_add(believed))
    }

    /// Whether the time of windows has begun.
    pub(super) fn is_begun(&self) -> bool {
        self.windows.load(Ordering::SeqCst) != NONE
    }

    /// Begins the time of windows, with what the buckets carry that are there, each with its length.
    pub(super) fn begin(
        &self,
        clock: &dyn Clock,
        carried: impl Iterator<Item = (Carried, u64)>,
        is_clustered: bool,
    ) {
        let (unix, steady) = (unix_ms(clock), steady_ms(clock));
        let newest = carried.max_by_key(|(carried, _)| carried.window_ms);
        let now = newest.map_or(unix, |(carried, bucket_ms)| {
            let passed = unix.saturating_sub(signed(carried.unix_ms));
            // Nothing passed if the time of day was set back. But where other nodes went on meanwhile, what is added here has to go
            // into their bucket or a later one, or it goes with an older one.
            let least = if is_clustered && passed < 0 { signed(bucket_ms) } else { 0 };
            signed(carried.window_ms).saturating_add(passed.max(least))
        });
        let ahead = now.saturating_sub(steady);
        if self.windows.compare_exchange(NONE, ahead, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.begun.store(steady, Ordering::SeqCst);
        }
    }

    /// The time of windows, in milliseconds since 1970: never less than before.
    pub(super) fn window_ms(&self, clock: &dyn Clock) -> u64 {
        unsigned(steady_ms(clock).saturating_add(self.windows.load(Ordering::SeqCst)))
    }

    /// Takes a time that another node carried into the log. If that came there after a time of this node (`not_before`), says whether the
    /// other one is behind: then it has to be told the time.
    pub(super) fn reach(&self, clock: &dyn Clock, window_ms: u64, not_before: Option<u64>) -> bool {
        let now = self.window_ms(clock);
        let is_behind = not_before.is_some_and(|since| window_ms.saturating_add(LATE_MS) < since);
        if is_behind {
            // Another node goes on behind this one: what it adds is not as old as it seems here.
            self.jumped.fetch_max(steady_ms(clock), Ordering::SeqCst);
        }
        if window_ms <= now {
            return is_behind;
        }
        if window_ms - now > JUMP_MS {
            self.jumped.fetch_max(steady_ms(clock), Ordering::SeqCst);
        }
        let ahead = signed(window_ms).saturating_sub(steady_ms(clock));
        self.windows.fetch_max(ahead, Ordering::SeqCst);
        false
    }

    /// Whether buckets of a window stay, however old they seem.
    pub(super) fn holds(&self, clock: &dyn Clock, window: Window, is_clustered: bool) -> bool {
        let steady = steady_ms(clock);
        let length = signed(window.length_ms.saturating_add(window.bucket_ms()));
        let is_within = |since: i64, length: i64| since != NONE && steady.saturating_sub(since) < length;
        is_within(self.jumped.load(Ordering::SeqCst), length)
            || is_clustered && is_within(self.begun.load(Ordering::SeqCst), length.min(START_HOLD_MS))
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    const HOUR: i64 = 3_600_000;

    fn clock() -> ManualClock {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(100_000));
        clock
    }

    fn pass(clock: &ManualClock, millis: u64) {
        clock.advance(Duration::from_millis(millis));
    }

    #[test]
    fn labels_survive_their_bytes_and_others_carry_no_time() {
        let carried = Carried { window_ms: 7, unix_ms: u64::MAX };
        assert_eq!(Carried::of_labels(&carried.to_labels()), Some(carried));
        for labels in [&b""[..], b"T1", b"T1short", b"CF1"] {
            assert_eq!(Carried::of_labels(labels), None);
        }
    }

    #[test]
    fn window_time_follows_no_step_of_the_time_of_day() {
        let clock = clock();
        let pace = Pace::new(&clock);
        pace.begin(&clock, std::iter::empty(), false);
        let begun = pace.window_ms(&clock);
        assert_eq!(begun, clock.unix_millis());
        for step in [-HOUR, HOUR, 1000 * HOUR] {
            clock.step(step);
            pass(&clock, 10);
        }
        assert_eq!(pace.window_ms(&clock), begun + 30);
        pace.observe(&clock);
        assert_eq!(pace.steps(), ClockSteps { back: 0, forward: 1, last_ms: 1000 * HOUR });
        clock.step(-HOUR);
        pace.observe(&clock);
        assert_eq!(pace.steps(), ClockSteps { back: 1, forward: 1, last_ms: -HOUR });
    }

    #[test]
    fn window_time_goes_on_from_the_newest_that_was_carried() {
        let clock = clock();
        let unix = clock.unix_millis();
        let begun_in = |carried: &[(u64, u64)], is_clustered: bool| {
            let pace = Pace::new(&clock);
            let carried = carried
                .iter()
                .map(|(window_ms, unix_ms)| (Carried { window_ms: *window_ms, unix_ms: *unix_ms }, 500));
            pace.begin(&clock, carried, is_clustered);
            pace.window_ms(&clock)
        };
        let begun = |carried: &[(u64, u64)]| begun_in(carried, false);
        assert_eq!(begun(&[]), unix);
        // A second passed since.
        assert_eq!(begun(&[(5_000, unix - 1_000), (1_000, unix - 5_000)]), 6_000);
        // The time of day was set back since.
        assert_eq!(begun(&[(unix + 9_000, unix + 9_000)]), unix + 9_000);
        assert_eq!(begun_in(&[(unix + 9_000, unix + 9_000)], true), unix + 9_500, "others may be so far");
        assert_eq!(begun_in(&[(5_000, unix - 100)], true), 5_100);
        assert_eq!(begun(&[(u64::MAX, 0)]), i64::MAX as u64, "no time is too late");
    }

    #[test]
    fn a_jump_holds_buckets_for_one_length_and_no_longer() {
        let clock = clock();
        let window = Window { length_ms: 10_000, buckets: 5 };
        let pace = Pace::new(&clock);
        pace.begin(&clock, std::iter::empty(), true);
        assert!(!pace.holds(&clock, window, false));
        assert!(pace.holds(&clock, window, true), "the clock of a new node may still be put right");
        pass(&clock, 12_000);
        assert!(!pace.holds(&clock, window, true));
        // Clocks of other nodes differ by a little.
        let now = pace.window_ms(&clock);
        assert!(!pace.reach(&clock, now + JUMP_MS, Some(now)));
        assert!(!pace.holds(&clock, window, true));
        let before = pace.window_ms(&clock);
        assert!(!pace.reach(&clock, before + HOUR as u64, Some(before)));
        assert_eq!(pace.window_ms(&clock), before + HOUR as u64);
        assert!(pace.holds(&clock, window, true));
        pass(&clock, 11_999);
        assert!(pace.holds(&clock, window, false));
        pass(&clock, 1);
        assert!(!pace.holds(&clock, window, true));
        // A node that goes on behind this one.
        assert!(!pace.reach(&clock, before, None));
        assert!(!pace.holds(&clock, window, true), "it was there before");
        let now = pace.window_ms(&clock);
        assert!(!pace.reach(&clock, now - LATE_MS, Some(now)), "it was read late");
        assert!(!pace.holds(&clock, window, true));
        assert!(pace.reach(&clock, before, Some(now)));
        assert!(pace.holds(&clock, window, true));
    }

    #[test]
    fn expiries_follow_a_step_forward_late_and_one_back_at_once() {
        let clock = clock();
        let pace = Pace::new(&clock);
        assert_eq!(pace.expiry_ms(&clock), clock.unix_millis());
        clock.step(HOUR);
        let doubted = pace.expiry_ms(&clock);
        assert_eq!(doubted, clock.unix_millis() - HOUR as u64);
        pass(&clock, 60_000);
        assert_eq!(pace.expiry_ms(&clock), doubted + 60_000);
        clock.step(-HOUR);
        assert_eq!(pace.expiry_ms(&clock), clock.unix_millis());
        clock.step(HOUR);
        assert_eq!(pace.expiry_ms(&clock), clock.unix_millis() - HOUR as u64);
        pass(&clock, BELIEVED_AFTER.as_millis() as u64 - 1);
        assert_eq!(pace.expiry_ms(&clock), clock.unix_millis() - HOUR as u64);
        pass(&clock, 1);
        assert_eq!(pace.expiry_ms(&clock), clock.unix_millis());
        clock.step(-2 * HOUR);
        assert_eq!(pace.expiry_ms(&clock), clock.unix_millis());
    }
}
