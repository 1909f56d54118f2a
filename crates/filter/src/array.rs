//! The array under every filter: lines, copied block by block, with a record of what changed.

use std::ops::{Deref, Range};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::raw::{LINE_BYTES, LINE_WORDS, Line, Memory};
use crate::sync::{AtomicU64, Ordering, change_exclusive, fence};
use crate::{Error, Result};

/// Bytes in a block: the unit of checksums, snapshots and change tracking.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Smaller arrays are at home in the second-level cache.
const CACHED_BYTES_MAX: u64 = 1 << 20;

const BLOCK_LINES: usize = BLOCK_BYTES / LINE_BYTES as usize;

#[derive(Debug)]
pub(crate) struct Array {
    lines: Memory,
    /// One bit a block: changed since it was last asked for.
    dirty: Box<[AtomicU64]>,
    /// One bit a block: may hold more than zeros, though it is not dirty. All other blocks are as they were
    /// reserved, which cannot be seen from their content without touching their pages.
    held: Box<[AtomicU64]>,
}

impl Deref for Array {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        &self.lines
    }
}

impl Array {
    /// The lines and the notes of their changes, for one who has them alone.
    #[inline]
    pub(crate) fn exclusive(&mut self) -> (&mut [Line], Notes<'_>) {
        (&mut self.lines, Notes(&mut self.dirty))
    }

    pub(crate) fn zeroed(lines: u128) -> Result<Self> {
        let lines = u64::try_from(lines).map_err(|_| Error::TooLarge {
            what: "number of lines",
            asked: lines,
            limit: u64::MAX,
        })?;
        let lines = Memory::zeroed(lines)?;
        let blocks = lines.len().div_ceil(BLOCK_LINES);
        let none = || (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { lines, dirty: none(), held: none() })
    }

    /// A zeroed array of the same size.
    pub(crate) fn emptied(&self) -> Result<Self> {
        Self::zeroed(self.len() as u128)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.len() as u64 * LINE_BYTES
    }

    /// Whether lines have to come from far away, so that it pays to ask for them early.
    pub(crate) fn outgrows_cache(&self) -> bool {
        self.bytes() > CACHED_BYTES_MAX
    }

    #[inline]
    pub(crate) fn word(&self, index: u64) -> &AtomicU64 {
        let index = index as usize;
        &self[index / LINE_WORDS].0[index % LINE_WORDS]
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.iter().flat_map(|line| &line.0).map(|word| word.load(Ordering::Relaxed))
    }

    /// The words from number `first` on.
    pub(crate) fn words_from(&self, first: u64) -> impl Iterator<Item = u64> {
        let (lines, words) = (first as usize / LINE_WORDS, first as usize % LINE_WORDS);
        let lines = self.iter().skip(lines).flat_map(|line| &line.0);
        lines.skip(words).map(|word| word.load(Ordering::Relaxed))
    }

    /// Bits that would be set in the union with an array of the same size.
    pub(crate) fn ones_with(&self, other: &Self) -> u64 {
        self.words().zip(other.words()).map(|(ours, theirs)| u64::from((ours | theirs).count_ones())).sum()
    }

    /// Replaces every word by what `combine` makes of it and its counterpart in an array of the same size.
    pub(crate) fn merge(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) {
        for (index, (ours, theirs)) in self.iter().zip(other.iter()).enumerate() {
            let mut changed = false;
            for (ours, theirs) in ours.0.iter().zip(&theirs.0) {
                changed |= combine_into(ours, theirs.load(Ordering::Relaxed), &combine);
            }
            if changed {
                self.touched(index);
            }
        }
    }

    /// Notes that a line has changed; called after the change, so that whoever takes the note finds it.
    ///
    /// The note is nearly always there already, and a load is cheaper than setting it again. But it must not be
    /// one that [`take_dirty`](Self::take_dirty) is about to clear before reading the line as it was: therefore
    /// changes to lines, this load and the clearing all take part in the one order of sequential consistency.
    #[inline]
    pub(crate) fn touched(&self, line: usize) {
        let block = block_of(line);
        let (word, bit) = (&self.dirty[block / 64], 1 << (block % 64));
        if cfg!(loom) {
            // Loom orders sequentially consistent fences only, not accesses.
            fence(Ordering::SeqCst);
        }
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Notes a block as changed, though nobody changed it.
    pub(crate) fn mark_dirty(&self, block: usize) {
        self.dirty[block / 64].fetch_or(1 << (block % 64), Ordering::SeqCst);
    }

    /// The blocks that changed since the last call, in order.
    pub(crate) fn take_dirty(&self) -> Vec<usize> {
        let mut blocks = Vec::new();
        for (index, word) in self.dirty.iter().enumerate() {
            let mut bits = word.swap(0, Ordering::SeqCst);
            if bits != 0 {
                self.held[index].fetch_or(bits, Ordering::Relaxed);
            }
            while bits != 0 {
                blocks.push(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        fence(Ordering::SeqCst);
        blocks
    }

    pub(crate) fn blocks(&self) -> usize {
        self.len().div_ceil(BLOCK_LINES)
    }

    /// Copies a block, as little-endian words, into `bytes`, which it clears first.
    pub(crate) fn copy_block(&self, block: usize, bytes: &mut Vec<u8>) {
        bytes.clear();
        for line in self.chunks(BLOCK_LINES).nth(block).unwrap_or_default() {
            for word in &line.0 {
                bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
        }
    }

    /// Overwrites the words from `first` on with little-endian `bytes`; a last short word is filled with zeros.
    /// Zeros are left out: the words are zero already.
    pub(crate) fn load_bytes(&mut self, first: u64, bytes: &[u8]) {
        self.load(first, bytes, false);
    }

    /// Overwrites a block with `bytes`, which must be as many as it has. That is no change to be noted.
    pub(crate) fn load_block(&mut self, block: usize, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), self.block_bytes(block));
        let notes = [&self.dirty, &self.held].map(|notes| notes[block / 64].load(Ordering::Relaxed));
        let may_hold = (notes[0] | notes[1]) >> (block % 64) & 1 == 1;
        self.load((block * BLOCK_BYTES / 8) as u64, bytes, may_hold);
    }

    /// Sets all bits in a block that are set in `bytes`, which must be as many as it has.
    pub(crate) fn merge_block(&self, block: usize, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), self.block_bytes(block));
        let (lines, _) = bytes.as_chunks::<{ LINE_BYTES as usize }>();
        for (line, theirs) in (block * BLOCK_LINES..).zip(lines) {
            let mut changed = false;
            for (index, word) in theirs.as_chunks::<8>().0.iter().enumerate() {
                let ours = &self[line].0[index];
                changed |= combine_into(ours, u64::from_le_bytes(*word), |ours, theirs| ours | theirs);
            }
            if changed {
                self.touched(line);
            }
        }
    }

    /// Bits that are set, judged by every `step`th line.
    pub(crate) fn ones(&self, step: usize) -> u64 {
        let sampled = self.iter().step_by(step).flat_map(|line| &line.0);
        let ones: u64 = sampled.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum();
        let lines = self.len().div_ceil(step).max(1);
        (u128::from(ones) * self.len() as u128 / lines as u128) as u64
    }

    fn load(&mut self, first: u64, bytes: &[u8], with_zeros: bool) {
        let mut any = 0;
        for (index, chunk) in (first..).zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(word);
            any |= word;
            // Untouched zero pages stay unallocated.
            if word != 0 || with_zeros {
                self.word(index).store(word, Ordering::Relaxed);
            }
        }
        if any != 0 {
            let start = first as usize * 8;
            self.hold(start / BLOCK_BYTES..(start + bytes.len()).div_ceil(BLOCK_BYTES));
        }
    }

    /// Notes that blocks may hold more than zeros: for whoever filled them and noted no change.
    pub(crate) fn hold(&mut self, blocks: Range<usize>) {
        for block in blocks {
            change_exclusive(&mut self.held[block / 64], |held| held | 1 << (block % 64));
        }
    }

    /// Bytes in a block: all have [`BLOCK_BYTES`] but the last.
    pub(crate) fn block_bytes(&self, block: usize) -> usize {
        BLOCK_BYTES.min((self.bytes() as usize).saturating_sub(block * BLOCK_BYTES))
    }
}

/// Notes of changes, for one who has them alone.
pub(crate) struct Notes<'a>(&'a mut [AtomicU64]);

impl Notes<'_> {
    #[inline(always)]
    pub(crate) fn touched(&mut self, line: usize) {
        let block = block_of(line);
        change_exclusive(&mut self.0[block / 64], |notes| notes | 1 << (block % 64));
    }
}

fn combine_into(word: &AtomicU64, other: u64, combine: impl Fn(u64, u64) -> u64) -> bool {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let wanted = combine(seen, other);
        if wanted == seen {
            return false;
        }
        match word.compare_exchange_weak(seen, wanted, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}

/// The number of the block that a line is in.
#[inline]
pub(crate) fn block_of(line: usize) -> usize {
    line / BLOCK_LINES
}

/// The checksum of a block: XXH3 with the block's number as its seed, so that blocks cannot change places unnoticed.
///
/// Blocks are numbered as [`Filter::copy_block`](crate::Filter::copy_block) does, through all links of a chain.
pub fn block_sum(number: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, number)
}
