//! Chance, behind a seam, so that simulations can repeat it.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of numbers that others do not guess by accident. Not for secrets.
pub trait Random: Debug + Send + Sync + 'static {
    /// The next number.
    fn next(&self) -> u64;
}

/// The system's chance.
#[derive(Debug, Default)]
pub struct SystemRandom {
    keys: RandomState,
    drawn: AtomicU64,
}

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        let mut hasher = self.keys.build_hasher();
        // A process that was forked has the same keys as the one that it comes from.
        hasher.write_u32(std::process::id());
        hasher.write_u64(self.drawn.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}

/// The same numbers again for the same seed (`SplitMix64`).
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn next(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
