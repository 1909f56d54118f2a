//! The textbook's filter, with a key's bits anywhere in the array: the geometry of Guava, of Redisson and of each
//! link of RedisBloom's chain. They differ only in the sequence of positions.

use crate::array::{Array, block_of};
use crate::raw::{LINE_WORDS, prefetch};
use crate::sizing::Geometry;
use crate::sync::Ordering;
use crate::{Error, Fingerprint, Limits, Result};

/// How positions follow from a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sequence {
    /// `first + i * second`, without the sign bit.
    Guava,
    /// The halves of the first word in 32-bit arithmetic, a negative sum inverted.
    Guava32,
    /// `first + i * second`.
    RedisBloom,
    /// `first`, then the second and the first word added by turns, without the sign bit.
    Redisson,
}

/// Java's `long` without its sign.
const NON_NEGATIVE: u64 = u64::MAX >> 1;

#[derive(Debug)]
pub(crate) struct Classic {
    array: Array,
    bits: u64,
    hashes: u32,
    sequence: Sequence,
}

impl Classic {
    pub(crate) fn new(sequence: Sequence, bits: u64, hashes: u32, limits: &Limits) -> Result<Self> {
        let geometry = Geometry::Classic { bits, hashes };
        limits.check_bytes(geometry.bytes())?;
        Ok(Self { array: Array::zeroed(geometry.lines())?, bits, hashes, sequence })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry::Classic { bits: self.bits, hashes: self.hashes }
    }

    pub(crate) fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(crate) fn array(&self) -> &Array {
        &self.array
    }

    pub(crate) fn array_mut(&mut self) -> &mut Array {
        &mut self.array
    }

    #[inline]
    pub(crate) fn positions(&self, key: Fingerprint) -> impl Iterator<Item = u64> {
        let (bits, sequence) = (self.bits, self.sequence);
        let low = key.first as i32;
        let high = (key.first >> 32) as i32;
        let mut sum = key.first;
        (0..self.hashes).map(move |i| {
            let step = match sequence {
                Sequence::Redisson if i % 2 == 1 => key.first,
                _ => key.second,
            };
            let word = match sequence {
                Sequence::Guava | Sequence::Redisson => sum & NON_NEGATIVE,
                Sequence::RedisBloom => sum,
                Sequence::Guava32 => {
                    let both = low.wrapping_add(high.wrapping_mul(i.cast_signed() + 1));
                    u64::from(if both < 0 { !both } else { both }.cast_unsigned())
                }
            };
            sum = sum.wrapping_add(step);
            word % bits
        })
    }

    #[inline]
    pub(crate) fn prefetch(&self, key: Fingerprint) {
        for position in self.positions(key) {
            prefetch(&self.array[line_of(position)]);
        }
    }

    /// The blocks of a key's bits.
    #[inline]
    pub(crate) fn blocks_touched(&self, key: Fingerprint) -> impl Iterator<Item = usize> {
        self.positions(key).map(|position| block_of(line_of(position)))
    }

    // Kept out of `Filter::contains`, whose native path would save registers for it.
    #[inline(never)]
    pub(crate) fn contains(&self, key: Fingerprint) -> bool {
        self.positions(key).all(|position| {
            self.array.word(position / 64).load(Ordering::Relaxed) >> (position % 64) & 1 == 1
        })
    }

    /// Sets a key's bits; true if any of them was not set.
    #[inline(never)]
    pub(crate) fn insert(&self, key: Fingerprint) -> bool {
        let mut new = false;
        for position in self.positions(key) {
            let (word, bit) = (self.array.word(position / 64), 1 << (position % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::SeqCst);
                self.array.touched(line_of(position));
                new = true;
            }
        }
        new
    }

    /// The same elements in half the bits, where that comes out even.
    pub(crate) fn halved(&self) -> Result<Self> {
        if !self.bits.is_multiple_of(128) {
            return Err(Error::unsupported("folding", format!("{} bits, no multiple of 128", self.bits)));
        }
        let half = Geometry::Classic { bits: self.bits / 2, hashes: self.hashes };
        let mut half = Self { array: Array::zeroed(half.lines())?, bits: self.bits / 2, ..*self };
        for (index, word) in self.array.words().take((self.bits / 64) as usize).enumerate() {
            half.array.word(index as u64 % (half.bits / 64)).fetch_or(word, Ordering::Relaxed);
        }
        half.array.hold(0..half.array.blocks());
        Ok(half)
    }
}

#[inline]
fn line_of(position: u64) -> usize {
    position as usize / (64 * LINE_WORDS)
}
