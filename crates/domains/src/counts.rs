//! How often keys are asked for, in memory that does not grow: a count-min sketch, and beside it the keys that were asked for most often.
//!
//! ```text
//!  key --hash--> one cell in each row, all raised      a count is the least of its cells: never too low, seldom much too high
//! ```

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use umbel_core::random::Random;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::limits::{ACCESSES_MAX, COUNTS_BYTES, TOP_KEY_BYTES_MAX, TOP_MAX};
use crate::{Error, Result};

/// A count is wrong by more than twice the average of a row's cells for one key in sixteen at most.
const ROWS: usize = 4;

/// Counts of keys.
pub struct Counts {
    /// Nobody can choose keys that are counted together.
    seed: u64,
    /// One row behind the other; each is a power of two long.
    cells: Box<[AtomicU32]>,
    accesses: AtomicU64,
    listed_max: usize,
    listed: Mutex<HashSet<Box<[u8]>>>,
    /// Keys with lower counts are not worth a place in the list.
    least: AtomicU64,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts")
            .field("accesses", &self.accesses)
            .field("width", &self.width())
            .finish_non_exhaustive()
    }
}

impl Counts {
    /// Counts in about so many bytes, with a list of so many keys.
    pub fn new(bytes: usize, listed: usize, random: &dyn Random) -> Result<Self> {
        if !COUNTS_BYTES.contains(&bytes) || !(1..=TOP_MAX).contains(&listed) {
            return Err(Error::Invalid(format!(
                "counts of {bytes} bytes and {listed} keys; it must be {} to {} bytes and 1 to {TOP_MAX} keys",
                COUNTS_BYTES.start(),
                COUNTS_BYTES.end()
            )));
        }
        let width = 1_usize << (bytes / ROWS / size_of::<AtomicU32>()).ilog2();
        let cells = (0..ROWS * width).map(|_| AtomicU32::new(0)).collect();
        Ok(Self {
            seed: random.next(),
            cells,
            accesses: AtomicU64::new(0),
            listed_max: listed,
            listed: Mutex::default(),
            least: AtomicU64::new(0),
        })
    }

    fn width(&self) -> usize {
        self.cells.len() / ROWS
    }

    /// The cells of a key, one in each row.
    fn cells_of(&self, key: &[u8]) -> impl Iterator<Item = &AtomicU32> {
        let (hash, width) = (xxh3_128_with_seed(key, self.seed), self.width());
        let (first, step) = (hash as u64, (hash >> 64) as u64 | 1);
        (0..ROWS).map(move |row| {
            let place = first.wrapping_add(step.wrapping_mul(row as u64)) as usize & (width - 1);
            &self.cells[row * width + place]
        })
    }

    /// Counts one access; says how many there were, about.
    pub fn note(&self, key: &[u8]) -> u64 {
        let raised = self.cells_of(key).map(|cell| cell.fetch_add(1, Ordering::Relaxed).saturating_add(1));
        let count = u64::from(raised.min().unwrap_or(0));
        if count > self.least.load(Ordering::Relaxed) && key.len() <= TOP_KEY_BYTES_MAX {
            self.list(key);
        }
        if self.accesses.fetch_add(1, Ordering::Relaxed) + 1 >= ACCESSES_MAX {
            self.halve_from(ACCESSES_MAX);
        }
        count
    }

    /// How often a key was asked for: at least so many times is never more than this.
    pub fn count(&self, key: &[u8]) -> u64 {
        u64::from(self.cells_of(key).map(|cell| cell.load(Ordering::Relaxed)).min().unwrap_or(0))
    }

    /// Accesses that were counted, as far as they were not halved away.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// The keys that were asked for most often, with about how often. No key that is left out was asked for more often than is said of
    /// one of these.
    pub fn top(&self, most: usize) -> Vec<(Vec<u8>, u64)> {
        let mut top = self.ranked(&self.listed());
        top.truncate(most.min(self.listed_max));
        top
    }

    /// Makes what was counted so far count half, so that what is asked for now comes forward.
    pub fn halve(&self) {
        self.halve_from(0);
    }

    /// The same if there are still so many accesses: several threads may find that it is time.
    fn halve_from(&self, accesses: u64) {
        let listed = self.listed();
        if self.accesses() < accesses {
            return;
        }
        self.accesses.store(self.accesses() / 2, Ordering::Relaxed);
        for cell in &self.cells {
            // It always has a half.
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count / 2));
        }
        self.least.store(self.least.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        drop(listed);
    }

    fn listed(&self) -> MutexGuard<'_, HashSet<Box<[u8]>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranked(&self, listed: &HashSet<Box<[u8]>>) -> Vec<(Vec<u8>, u64)> {
        let mut ranked: Vec<_> = listed.iter().map(|key| (key.to_vec(), self.count(key))).collect();
        ranked.sort_by(|(one, of_one), (other, of_other)| of_other.cmp(of_one).then_with(|| one.cmp(other)));
        ranked
    }

    fn list(&self, key: &[u8]) {
        let mut listed = self.listed();
        if listed.contains(key) {
            return;
        }
        listed.insert(key.into());
        // Twice as many as are wanted, so that they are put in order now and then only.
        if listed.len() > 2 * self.listed_max {
            let ranked = self.ranked(&listed);
            let (kept, dropped) = ranked.split_at(self.listed_max);
            dropped.iter().for_each(|(key, _)| _ = listed.remove(&**key));
            self.least.store(kept.last().map_or(0, |(_, count)| *count), Ordering::Relaxed);
        }
    }
}
