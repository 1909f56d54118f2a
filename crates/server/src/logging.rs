//! Which log lines are wanted now. `CONFIG SET loglevel` changes it while the server runs.

use std::sync::atomic::{AtomicU8, Ordering};

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
