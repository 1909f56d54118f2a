//! How long somebody has watched a server's clock, by a clock of their own that does not jump.
//!
//! Leases end by the time of day of a server, which somebody may set. Who is to end a lease of another one must know that its time is over
//! really, and not because that clock was set forward: it has seen the clock go on for the whole length of the lease, as fast as its own.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How far both clocks may be apart before one of them has jumped: little of the time by which holders give up earlier than they must.
const APART_MAX_MILLIS: i64 = 100;

/// What the server's clock showed when it was asked for the first time, or after it jumped.
#[derive(Clone, Copy, Debug)]
struct Start {
    clock: i64,
    asked: Instant,
    answered: Instant,
}

/// What a server's clock must show, and since when that is known. All times are milliseconds.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<Option<Start>>);

/// From one moment to another, which may be the earlier one.
fn millis(from: Instant, to: Instant) -> i64 {
    let length = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match to.checked_duration_since(from) {
        Some(time) => length(time),
        None => -length(from - to),
    }
}

impl Watch {
    /// What the clock shows by now at the least, and what it showed when this began; nothing of both at first.
    pub(super) fn told(&self, now: Instant) -> (i64, i64) {
        let start = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        start.map_or((0, 0), |start| (start.clock + millis(start.answered, now), start.clock))
    }

    /// Takes in what the clock showed between a question and its answer. If it cannot have come to that by itself, the watch begins anew.
    pub(super) fn heard(&self, clock: i64, asked: Instant, answered: Instant) {
        let mut start = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let went_on = start.is_some_and(|start| {
            let least = start.clock + millis(start.answered, asked) - APART_MAX_MILLIS;
            let most = start.clock + millis(start.asked, answered) + APART_MAX_MILLIS;
            (least..=most).contains(&clock)
        });
        if !went_on {
            *start = Some(Start { clock, asked, answered });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOON: i64 = 1_700_000_000_000;

    #[test]
    fn a_watch_begins_anew_when_the_clock_jumps_and_only_then() {
        let (watch, begin) = (Watch::default(), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        assert_eq!(watch.told(at(0)), (0, 0), "nobody has looked yet");
        watch.heard(NOON, at(0), at(10));
        assert_eq!(
            watch.told(at(1010)),
            (NOON + 1000, NOON),
            "counted from the answer: it may have been on its way"
        );
        // As fast as our own, however long an answer takes.
        watch.heard(NOON + 1000, at(990), at(1005));
        watch.heard(NOON + 2000, at(1100), at(9000));
        watch.heard(NOON + 2500, at(2000), at(2600));
        assert_eq!(watch.told(at(9010)), (NOON + 9000, NOON));
        // What was asked before the first answer came.
        watch.heard(NOON - 50, at(0), at(10));
        assert_eq!(watch.told(at(9010)).1, NOON);
        watch.heard(NOON + 9000 + 3_600_000, at(9000), at(9010));
        assert_eq!(
            watch.told(at(9020)),
            (NOON + 9010 + 3_600_000, NOON + 9000 + 3_600_000),
            "it went forward"
        );
        watch.heard(NOON + 9500, at(9500), at(9510));
        assert_eq!(watch.told(at(9510)), (NOON + 9500, NOON + 9500), "and back");
    }
}
