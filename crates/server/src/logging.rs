//! Which log lines are wanted now, and how often. `CONFIG SET loglevel` changes the former while the server runs.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Level;

static LEVEL: AtomicU8 = AtomicU8::new(2);

/// Wants lines of this level and of those above it.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether lines of that level are wanted.
pub fn is_enabled(level: tracing::Level) -> bool {
    let level = match level {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        tracing::Level::DEBUG => Level::Debug,
        tracing::Level::TRACE => Level::Trace,
    };
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// How often an event that clients can cause at will is logged.
const EVERY: Duration = Duration::from_secs(60);

/// Limits the lines about one kind of event to one a minute.
#[derive(Debug)]
pub(crate) struct OncePerMinute(Mutex<Option<Logged>>);

#[derive(Clone, Copy, Debug)]
struct Logged {
    at: Instant,
    /// Events since then.
    left_out: u64,
}

impl OncePerMinute {
    /// No line so far.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Counts an event. Returns how many went unlogged before it if this one is to be logged.
    pub(crate) fn event(&self, now: Instant) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *last {
            Some(logged) if now.saturating_duration_since(logged.at) < EVERY => {
                logged.left_out += 1;
                None
            }
            last => {
                last.replace(Logged { at: now, left_out: 0 }).map_or(Some(0), |before| Some(before.left_out))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_counts_the_others() {
        let (line, begin) = (OncePerMinute::new(), Instant::now());
        let at = |seconds| line.event(begin + Duration::from_secs(seconds));
        assert_eq!([at(0), at(0), at(1), at(59)], [Some(0), None, None, None]);
        assert_eq!([at(60), at(61), at(120), at(300)], [Some(3), None, Some(1), Some(0)]);
    }
}
