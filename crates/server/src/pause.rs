//! A pause: connections wait before they run commands.

use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The longest time that one waits before looking again, and the longest pause if it is past all times.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Which commands wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum What {
    /// Those that change something.
    Writes = 1,
    /// All.
    All = 2,
}

/// A pause that somebody asked for, if any.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// What waits, 0 for nothing: all that is looked at while nobody waits.
    what: AtomicU8,
    until: Mutex<Option<Instant>>,
    ended: Notify,
}

impl Pause {
    /// Lets commands wait. A pause under way may become longer and stricter, not shorter.
    pub(crate) fn pause(&self, now: Instant, time: Duration, what: What) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let end = now.checked_add(time).or_else(|| now.checked_add(LONGEST_WAIT)).unwrap_or(now);
        match *until {
            Some(before) if before > now => {
                *until = Some(before.max(end));
                self.what.fetch_max(what as u8, Ordering::SeqCst);
            }
            _ => {
                *until = Some(end);
                self.what.store(what as u8, Ordering::SeqCst);
            }
        }
    }

    /// Lets all go on.
    pub(crate) fn end(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.what.store(0, Ordering::SeqCst);
        self.ended.notify_waiters();
    }

    /// Whether anybody may have to wait.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.what.load(Ordering::Relaxed) != 0
    }

    /// For how long a command has to wait, if it has to.
    fn left(&self, now: Instant, writes: bool) -> Option<Duration> {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        match *until {
            Some(end) if end > now => {
                let waits = writes || self.what.load(Ordering::SeqCst) == What::All as u8;
                waits.then(|| (end - now).min(LONGEST_WAIT))
            }
            Some(_) => {
                self.what.store(0, Ordering::SeqCst);
                None
            }
            None => None,
        }
    }

    /// Waits until a command may run.
    pub(crate) async fn wait(&self, writes: bool, now: impl Fn() -> Instant) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Who ends the pause from here on is heard.
            ended.as_mut().enable();
            let Some(left) = self.left(now(), writes) else { return };
            // Either way, it is looked at again.
            let _ = tokio::time::timeout(left, ended).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_only_becomes_longer_and_stricter() {
        let pause = Pause::default();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        assert!(!pause.is_on() && pause.left(now, true).is_none());
        pause.pause(now, 2 * second, What::Writes);
        assert_eq!(pause.left(now, false), None);
        assert_eq!(pause.left(now, true), Some(2 * second));
        pause.pause(now, second, What::All);
        assert_eq!(pause.left(now, false), Some(2 * second));
        assert_eq!(pause.left(now + 2 * second, true), None);
        assert!(!pause.is_on(), "it is over");
        pause.pause(now, second, What::Writes);
        assert_eq!(pause.left(now, false), None, "the old pause is forgotten");
        pause.end();
        assert!(!pause.is_on() && pause.left(now, true).is_none());
    }
}
