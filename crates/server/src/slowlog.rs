//! Commands that took long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clients::Client;
use crate::node::unix_time;
use crate::session::microseconds;

/// Words of a command that are kept; Redis's own bound.
const WORDS_MAX: usize = 32;
/// Bytes of a word that are kept; Redis's own bound.
const WORD_BYTES_MAX: usize = 128;

/// A command that took long.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Its number.
    pub id: u64,
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// How long it took.
    pub took_us: u64,
    /// Its words, or the beginning of them.
    pub words: Vec<Vec<u8>>,
    /// Where the client is.
    pub address: String,
    /// What the client calls itself.
    pub name: String,
}

/// The newest of them.
#[derive(Debug)]
pub struct Slowlog {
    threshold_us: AtomicU64,
    length_max: AtomicUsize,
    entries: Mutex<(u64, VecDeque<Slow>)>,
}

impl Default for Slowlog {
    fn default() -> Self {
        Self {
            threshold_us: AtomicU64::new(10_000),
            length_max: AtomicUsize::new(128),
            entries: Mutex::default(),
        }
    }
}

impl Slowlog {
    fn entries(&self) -> MutexGuard<'_, (u64, VecDeque<Slow>)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a command takes that is slow.
    #[inline]
    pub fn threshold(&self) -> Duration {
        Duration::from_micros(self.threshold_us.load(Ordering::Relaxed))
    }

    /// Says what is slow (nothing, if negative), and how many are kept.
    pub fn set(&self, threshold_us: i64, length_max: usize) {
        let threshold = u64::try_from(threshold_us).unwrap_or(u64::MAX);
        self.threshold_us.store(threshold, Ordering::Relaxed);
        self.length_max.store(length_max, Ordering::Relaxed);
        self.entries().1.truncate(length_max);
    }

    /// Keeps a command.
    pub fn push(&self, client: &Client, words: &[&[u8]], took: Duration) {
        let mut kept: Vec<Vec<u8>> = words.iter().take(WORDS_MAX).map(|word| shortened(word)).collect();
        if words.len() > WORDS_MAX {
            kept.pop();
            kept.push(format!("... ({} more arguments)", words.len() - WORDS_MAX + 1).into_bytes());
        }
        let mut entries = self.entries();
        let slow = Slow {
            id: entries.0,
            at: unix_time().as_secs(),
            took_us: microseconds(took),
            words: kept,
            address: client.address.to_string(),
            name: client.about().name.clone(),
        };
        entries.0 += 1;
        entries.1.push_front(slow);
        entries.1.truncate(self.length_max.load(Ordering::Relaxed));
    }

    /// The newest ones.
    pub fn newest(&self, most: usize) -> Vec<Slow> {
        self.entries().1.iter().take(most).cloned().collect()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.entries().1.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.entries().1.clear();
    }
}

fn shortened(word: &[u8]) -> Vec<u8> {
    if word.len() <= WORD_BYTES_MAX {
        return word.to_vec();
    }
    let mut short = word[..WORD_BYTES_MAX].to_vec();
    short.extend_from_slice(format!("... ({} more bytes)", word.len() - WORD_BYTES_MAX).as_bytes());
    short
}
