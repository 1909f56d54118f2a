//! The native layout. A line holds eight words of cells; a key uses one cell in each word of one line, and has
//! such a line in every bank.
//!
//! ```text
//!        bank 0              bank 1 (strict error rates only)
//!   +------+------+---+   +------+------+---+
//!   | line | line | … |   | line | line | … |      first word of the fingerprint -> which line
//!   +------+------+---+   +------+------+---+      second word, 6 bits at a time -> which cell in each word
//!      |
//!      +-- word 0 | word 1 | … | word 7            bits: 64 cells a word; counters: 16 or 8
//! ```

use std::sync::PoisonError;

use crate::array::{Array, block_of};
use crate::fingerprint::scale;
use crate::limits::BANKS_MAX;
use crate::raw::{Kernel, LINE_WORDS, Line, Missing, Work, cell_mask, prefetch, shift};
use crate::sizing::Geometry;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, change_exclusive};
use crate::{Error, Fingerprint, Limits, Result};

/// How far ahead of the test a run of fingerprints asks for lines.
const PREFETCH_AHEAD: usize = 32;
/// Locks that removals share; colliding keys share a lock, others rarely do.
const REMOVAL_LOCKS: usize = if cfg!(loom) { 2 } else { 64 };

/// An array of cells of `CELL` bits: one bit, or a counter.
#[derive(Debug)]
pub(crate) struct Blocked<const CELL: u32> {
    array: Array,
    banks: u32,
    /// Lines in each bank.
    lines: u64,
    kernel: Kernel,
    removals: Box<[Mutex<()>]>,
}

/// What a pass over the whole array finds out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    /// Cells that are not zero.
    pub(crate) used: u64,
    /// The chance that an absent key finds all its cells used.
    pub(crate) error: f64,
}

impl<const CELL: u32> Blocked<CELL> {
    const CELLS: u32 = 64 / CELL;

    pub(crate) fn new(banks: u32, lines: u64, limits: &Limits) -> Result<Self> {
        let geometry = Geometry::Blocked { cell_bits: CELL, banks, lines };
        limits.check_bytes(geometry.bytes())?;
        Ok(Self::of(Array::zeroed(geometry.lines())?, banks, lines))
    }

    fn of(array: Array, banks: u32, lines: u64) -> Self {
        let locks = if CELL == 1 { 0 } else { REMOVAL_LOCKS };
        let removals = (0..locks).map(|_| Mutex::new(())).collect();
        Self { array, banks, lines, kernel: Kernel::detect(), removals }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry::Blocked { cell_bits: CELL, banks: self.banks, lines: self.lines }
    }

    pub(crate) fn array(&self) -> &Array {
        &self.array
    }

    pub(crate) fn array_mut(&mut self) -> &mut Array {
        &mut self.array
    }

    #[inline]
    fn banks(&self) -> Banks<'_> {
        Banks { lines: &self.array, banks: self.banks, each: self.lines }
    }

    #[inline]
    pub(crate) fn prefetch(&self, key: Fingerprint) {
        self.banks().prefetch(key);
    }

    #[inline]
    pub(crate) fn contains(&self, key: Fingerprint) -> bool {
        self.banks().contains::<CELL, Kernel>(self.kernel, key)
    }

    #[inline]
    pub(crate) fn insert(&self, key: Fingerprint) -> bool {
        self.insert_with(self.kernel, key)
    }

    #[inline(always)]
    fn insert_with<M: Missing>(&self, test: M, mut key: Fingerprint) -> bool {
        let banks = self.banks();
        let mut new = false;
        for bank in 0..self.banks {
            new |= raise_line::<CELL, M>(test, &self.array, banks.line(bank, key), key.second);
            key = key.rehashed();
        }
        new
    }

    /// Answers for a run of keys; `fetch` if nobody has asked for their lines yet.
    pub(crate) fn contains_run(&self, keys: &[Fingerprint], fetch: bool, answers: &mut [bool]) {
        self.kernel.run(ContainsRun::<CELL> { banks: self.banks(), keys, fetch, answers });
    }

    /// Inserts a run of keys and says of each whether it was new.
    pub(crate) fn insert_run(&self, keys: &[Fingerprint], fetch: bool, new: &mut [bool]) {
        self.kernel.run(InsertRun { filter: self, keys, fetch, new });
    }

    /// Adds a run of keys, each as often as it says, to a filter that nobody else holds.
    pub(crate) fn fill_run(&mut self, keys: &[impl Counted]) {
        let (fetch, kernel) = (self.array.outgrows_cache(), self.kernel);
        kernel.run(FillRun { filter: self, keys, fetch });
    }

    /// The blocks of a key's lines.
    #[inline]
    pub(crate) fn blocks_touched(&self, key: Fingerprint) -> impl Iterator<Item = usize> {
        self.places(key).map(|(line, _)| block_of(line))
    }

    /// The numbers and places of the lines of a key.
    #[inline]
    pub(crate) fn places(&self, key: Fingerprint) -> impl Iterator<Item = (usize, Fingerprint)> {
        let banks = self.banks();
        let keys = std::iter::successors(Some(key), |key| Some(key.rehashed()));
        (0..self.banks).zip(keys).map(move |(bank, key)| (banks.line(bank, key), key))
    }

    /// What is in use, judged by every `step`th line.
    pub(crate) fn occupancy(&self, step: usize) -> Occupancy {
        let mut used = 0;
        let mut error = 1.0;
        for bank in self.array.chunks(self.lines as usize) {
            let (mut sum, mut in_bank) = (0.0, 0);
            for line in bank.iter().step_by(step) {
                let mut product = 1.0;
                for word in &line.0 {
                    let cells = used_cells::<CELL>(word.load(Ordering::Relaxed));
                    in_bank += u64::from(cells);
                    product *= f64::from(cells) / f64::from(Self::CELLS);
                }
                sum += product;
            }
            let sampled = bank.len().div_ceil(step).max(1);
            used += (u128::from(in_bank) * bank.len() as u128 / sampled as u128) as u64;
            error *= sum / sampled as f64;
        }
        Occupancy { used, error }
    }

    /// Cells that would be used in the union with a filter of the same geometry.
    pub(crate) fn used_with(&self, other: &Self) -> u64 {
        let both = self.array.words().zip(other.array.words());
        both.map(|(ours, theirs)| u64::from(used_cells::<CELL>(ours | theirs))).sum()
    }

    /// Takes in all elements of a filter of the same geometry.
    pub(crate) fn merge(&self, other: &Self) {
        self.array.merge(&other.array, add_cells::<CELL>);
    }

    /// The same elements in half the lines: what would have been built there, because the line of a key in half
    /// as many lines is half the number of its line in these.
    pub(crate) fn halved(&self) -> Result<Self> {
        if !self.lines.is_multiple_of(2) {
            return Err(Error::unsupported(
                "folding",
                format!("banks of {} lines, an odd number", self.lines),
            ));
        }
        let mut half = Self::of(Array::zeroed(self.array.len() as u128 / 2)?, self.banks, self.lines / 2);
        for (pair, folded) in self.array.chunks(2).zip(half.array.iter()) {
            for (word, folded) in folded.0.iter().enumerate() {
                let [low, high] = [0, 1].map(|line: usize| pair[line].0[word].load(Ordering::Relaxed));
                folded.store(add_cells::<CELL>(low, high), Ordering::Relaxed);
            }
        }
        half.array.hold(0..half.array.blocks());
        Ok(half)
    }
}

/// Counters only.
impl<const CELL: u32> Blocked<CELL> {
    /// Takes one occurrence of a key out, or answers false and changes nothing if the key is not there.
    ///
    /// Removals whose lines share a lock go one after the other, so each finds its counters as they are and no
    /// other key's counter is ever lowered by a removal that is then refused. Adds need no lock: they only raise.
    pub(crate) fn remove(&self, key: Fingerprint) -> bool {
        let _held = self.lock_lines(key);
        if self.count(key) == 0 {
            return false;
        }
        for (line, key) in self.places(key) {
            for (word, counters) in self.array[line].0.iter().enumerate() {
                change::<CELL>(counters, shift::<CELL>(key.second, word), |count| count.saturating_sub(1));
            }
            self.array.touched(line);
        }
        true
    }

    /// How often a key was added, at most: its least counter.
    pub(crate) fn count(&self, key: Fingerprint) -> u64 {
        let counter = |(line, key): (usize, Fingerprint)| {
            let words = self.array[line].0.iter().enumerate();
            let counts = words.map(move |(word, counters)| {
                counters.load(Ordering::Relaxed) >> shift::<CELL>(key.second, word) & cell_mask(CELL)
            });
            counts.min().unwrap_or(0)
        };
        self.places(key).map(counter).min().unwrap_or(0)
    }

    /// Holds the locks of all lines of a key, taken in ascending order so that two removals never wait for each
    /// other.
    fn lock_lines(&self, key: Fingerprint) -> [Option<MutexGuard<'_, ()>>; BANKS_MAX as usize] {
        let mut wanted = 0_u64;
        for (line, _) in self.places(key) {
            wanted |= 1 << (line % self.removals.len());
        }
        let mut held = [const { None }; BANKS_MAX as usize];
        for guard in &mut held {
            if wanted == 0 {
                break;
            }
            let lock = &self.removals[wanted.trailing_zeros() as usize];
            // A lock guards no data, so one left behind by a panic is as good as any.
            *guard = Some(lock.lock().unwrap_or_else(PoisonError::into_inner));
            wanted &= wanted - 1;
        }
        held
    }
}

/// A filter's lines, ready to be searched.
#[derive(Clone, Copy)]
struct Banks<'a> {
    lines: &'a [Line],
    banks: u32,
    each: u64,
}

impl Banks<'_> {
    #[inline(always)]
    fn line(self, bank: u32, key: Fingerprint) -> usize {
        (u64::from(bank) * self.each + scale(key.first, self.each)) as usize
    }

    #[inline(always)]
    fn prefetch(self, mut key: Fingerprint) {
        prefetch(&self.lines[self.line(0, key)]);
        for bank in 1..self.banks {
            key = key.rehashed();
            prefetch(&self.lines[self.line(bank, key)]);
        }
    }

    #[inline(always)]
    fn contains<const CELL: u32, M: Missing>(self, test: M, mut key: Fingerprint) -> bool {
        let mut found = test.missing::<CELL>(&self.lines[self.line(0, key)], key.second) == 0;
        // With one bank the answer is a value, not a branch that half of the keys would mispredict.
        for bank in 1..self.banks {
            if !found {
                break;
            }
            key = key.rehashed();
            found = test.missing::<CELL>(&self.lines[self.line(bank, key)], key.second) == 0;
        }
        found
    }
}

struct ContainsRun<'a, const CELL: u32> {
    banks: Banks<'a>,
    keys: &'a [Fingerprint],
    fetch: bool,
    answers: &'a mut [bool],
}

impl<const CELL: u32> Work for ContainsRun<'_, CELL> {
    type Output = ();

    #[inline(always)]
    fn with<M: Missing>(self, test: M) {
        run_ahead(self.banks, self.keys, self.fetch, self.answers, |key| {
            self.banks.contains::<CELL, M>(test, key)
        });
    }
}

struct InsertRun<'a, const CELL: u32> {
    filter: &'a Blocked<CELL>,
    keys: &'a [Fingerprint],
    fetch: bool,
    new: &'a mut [bool],
}

impl<const CELL: u32> Work for InsertRun<'_, CELL> {
    type Output = ();

    #[inline(always)]
    fn with<M: Missing>(self, test: M) {
        run_ahead(self.filter.banks(), self.keys, self.fetch, self.new, |key| {
            self.filter.insert_with(test, key)
        });
    }
}

/// A key, and how often it is added.
pub(crate) trait Counted: Copy {
    fn key(self) -> Fingerprint;
    fn times(self) -> u32;
}

impl Counted for Fingerprint {
    #[inline(always)]
    fn key(self) -> Fingerprint {
        self
    }

    #[inline(always)]
    fn times(self) -> u32 {
        1
    }
}

impl Counted for (Fingerprint, u32) {
    #[inline(always)]
    fn key(self) -> Fingerprint {
        self.0
    }

    #[inline(always)]
    fn times(self) -> u32 {
        self.1
    }
}

struct FillRun<'a, const CELL: u32, K> {
    filter: &'a mut Blocked<CELL>,
    keys: &'a [K],
    fetch: bool,
}

impl<const CELL: u32, K: Counted> Work for FillRun<'_, CELL, K> {
    type Output = ();

    #[inline(always)]
    fn with<M: Missing>(self, _: M) {
        let (banks, each) = (self.filter.banks, self.filter.lines);
        let (lines, mut notes) = self.filter.array.exclusive();
        for (index, key) in self.keys.iter().enumerate() {
            if let Some(ahead) = self.keys.get(index + PREFETCH_AHEAD).filter(|_| self.fetch) {
                Banks { lines, banks, each }.prefetch(ahead.key());
            }
            let (mut key, times) = (key.key(), key.times());
            if times == 0 {
                continue;
            }
            for bank in 0..banks {
                let line = Banks { lines, banks, each }.line(bank, key);
                for (word, cells) in lines[line].0.iter_mut().enumerate() {
                    let shift = shift::<CELL>(key.second, word);
                    change_exclusive(cells, |cells| raised::<CELL>(cells, shift, times));
                }
                notes.touched(line);
                key = key.rehashed();
            }
        }
    }
}

/// A word with one of its cells raised, as far as its maximum. A key has one cell in each of its words, so that
/// raising them all at once gives what raising them one by one does.
#[inline(always)]
fn raised<const CELL: u32>(cells: u64, shift: u32, times: u32) -> u64 {
    if CELL == 1 {
        return cells | 1 << shift;
    }
    let room = cell_mask(CELL) - (cells >> shift & cell_mask(CELL));
    cells + (u64::from(times).min(room) << shift)
}

/// Answers for each key while the lines of later keys are on their way.
#[inline(always)]
fn run_ahead(
    banks: Banks<'_>,
    keys: &[Fingerprint],
    fetch: bool,
    answers: &mut [bool],
    answer: impl Fn(Fingerprint) -> bool,
) {
    if !fetch {
        for (key, out) in keys.iter().zip(answers) {
            *out = answer(*key);
        }
        return;
    }
    let (near, far) = keys.split_at(keys.len().min(PREFETCH_AHEAD));
    near.iter().for_each(|key| banks.prefetch(*key));
    let (steady, last) = answers.split_at_mut(far.len());
    for ((key, ahead), out) in keys.iter().zip(far).zip(steady) {
        banks.prefetch(*ahead);
        *out = answer(*key);
    }
    for (key, out) in keys[far.len()..].iter().zip(last) {
        *out = answer(*key);
    }
}

/// Adds a key to one line; true if any of its cells was zero.
///
/// The line is tested first: a key that is there costs no write, and two threads that add the same new key both
/// find a cell missing unless one has set them all, so at least one of them is told that the key was new.
#[inline(always)]
fn raise_line<const CELL: u32, M: Missing>(test: M, array: &Array, line: usize, second: u64) -> bool {
    let words = &array[line].0;
    let missing = test.missing::<CELL>(&array[line], second);
    if CELL == 1 && missing == 0 {
        return false;
    }
    if CELL == 1 {
        let mut rest = missing;
        while rest != 0 {
            let word = rest.trailing_zeros() as usize % LINE_WORDS;
            words[word].fetch_or(1 << shift::<CELL>(second, word), Ordering::SeqCst);
            rest &= rest - 1;
        }
    } else {
        for (word, counters) in words.iter().enumerate() {
            change::<CELL>(counters, shift::<CELL>(second, word), |count| count + 1);
        }
    }
    array.touched(line);
    missing != 0
}

/// Changes one counter of a word. One that has reached its maximum sticks: its true count is no longer known.
#[inline(always)]
fn change<const CELL: u32>(counters: &AtomicU64, shift: u32, by_one: impl Fn(u64) -> u64) {
    let mut seen = counters.load(Ordering::Relaxed);
    loop {
        let count = seen >> shift & cell_mask(CELL);
        if count == cell_mask(CELL) {
            return;
        }
        let wanted = seen & !(cell_mask(CELL) << shift) | by_one(count) << shift;
        match counters.compare_exchange_weak(seen, wanted, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Cells of a word that are not zero.
#[inline]
fn used_cells<const CELL: u32>(word: u64) -> u32 {
    let mut any = word;
    let mut step = 1;
    while step < CELL {
        any |= any >> step;
        step *= 2;
    }
    (any & lowest_bits::<CELL>()).count_ones()
}

/// The lowest bit of every cell.
const fn lowest_bits<const CELL: u32>() -> u64 {
    u64::MAX / cell_mask(CELL)
}

/// The sum of two words cell by cell, each stopping at its maximum; for bits, their union.
#[inline]
fn add_cells<const CELL: u32>(ours: u64, theirs: u64) -> u64 {
    if CELL == 1 {
        return ours | theirs;
    }
    let cells = (0..64).step_by(CELL as usize);
    cells.fold(0, |sum, shift| {
        let [a, b] = [ours, theirs].map(|word| word >> shift & cell_mask(CELL));
        sum | (a + b).min(cell_mask(CELL)) << shift
    })
}

#[cfg(test)]
mod tests;
