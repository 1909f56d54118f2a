//! From (capacity, error) to a geometry and back.
//!
//! The blocked layout is sized by its exact expected error. A line is eight words; a key puts one cell of each
//! word to use. With `m` keys thrown at `l` lines, the chance that `j` given cells of one line, one in each of `j`
//! words, are all unused is `(1 - (1 - (1 - 1/c)^j) / l)^m` for words of `c` cells; inclusion and exclusion over the eight
//! words gives the chance that all eight are used. That is the mixture over all occupancies of a line, in closed
//! form. Banks are filled independently, so a filter of `b` banks errs with the product.

use std::f64::consts::LN_2;

use crate::limits::{BANKS_MAX, HASHES_MAX, SHARDS_MAX};
use crate::raw::{LINE_BYTES, LINE_WORDS};
use crate::spec::check_error_rate;
use crate::{Error, Kind, Layout, Result, Spec};

/// The size and shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Geometry {
    /// Banks of lines; a key has one line in each bank.
    Blocked {
        /// Bits in a cell: 1, or the width of a counter.
        cell_bits: u32,
        /// Lines that a key touches.
        banks: u32,
        /// Lines in each bank.
        lines: u64,
    },
    /// One array of bits, with a key's bits anywhere in it.
    Classic {
        /// Bits in the array: the modulus of all positions.
        bits: u64,
        /// Bits that a key sets.
        hashes: u32,
    },
}

/// More banks must save at least this share of the memory to be worth their extra lines.
const BANK_MUST_SAVE: f64 = 0.125;
/// Lines beyond the expected need, so that the luck of the draw rarely takes a filter over its error rate.
const MARGIN: f64 = 1.004;

impl Geometry {
    /// The geometry that holds `spec` in each of `shards` equal shards.
    pub fn for_spec(spec: &Spec, shards: u32) -> Result<Self> {
        spec.check()?;
        if shards == 0 || shards > SHARDS_MAX {
            return Err(Error::invalid("shards", format!("{shards}; it must be 1 to {SHARDS_MAX}")));
        }
        let share = spec.capacity.div_ceil(u64::from(shards));
        Ok(match spec.layout {
            Layout::Blocked => blocked(spec, shards),
            Layout::Guava | Layout::Guava32 => guava(share, spec.error),
            Layout::RedisBloom { expansion } => redisbloom(share, first_link_error(spec.error, expansion)),
            Layout::Redisson => redisson(share, spec.error)?,
        })
    }

    /// Says what is wrong with a geometry that comes from outside, if anything.
    pub(crate) fn check(&self) -> Result<()> {
        let possible = match *self {
            Self::Blocked { cell_bits, banks, lines } => {
                matches!(cell_bits, 1 | 4 | 8) && (1..=BANKS_MAX).contains(&banks) && lines > 0
            }
            Self::Classic { bits, hashes } => (1..=HASHES_MAX).contains(&hashes) && bits > 0,
        };
        if possible { Ok(()) } else { Err(Error::invalid("geometry", format!("{self:?}"))) }
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> u128 {
        self.lines() * u128::from(LINE_BYTES)
    }

    /// Bits that answer lookups; the array is rounded up to whole lines.
    pub fn bits(&self) -> u128 {
        match *self {
            Self::Blocked { .. } => self.lines() * u128::from(LINE_BYTES) * 8,
            Self::Classic { bits, .. } => bits.into(),
        }
    }

    /// Lines of the array.
    pub(crate) fn lines(&self) -> u128 {
        match *self {
            Self::Blocked { banks, lines, .. } => u128::from(banks) * u128::from(lines),
            Self::Classic { bits, .. } => u128::from(bits).div_ceil(u128::from(LINE_BYTES) * 8),
        }
    }

    /// Bits that one key sets, or counters that it raises.
    pub fn hashes(&self) -> u32 {
        match *self {
            Self::Blocked { banks, .. } => banks * LINE_WORDS as u32,
            Self::Classic { hashes, .. } => hashes,
        }
    }

    /// The expected error rate with `keys` distinct keys in the array.
    pub fn error_with(&self, keys: f64) -> f64 {
        match *self {
            Self::Blocked { cell_bits, banks, lines } => {
                line_error(keys, lines as f64, cell_bits).powi(banks as i32)
            }
            Self::Classic { bits, hashes } => {
                let unused = f64::exp(keys * f64::from(hashes) * f64::ln_1p(-1.0 / bits as f64));
                (1.0 - unused).powi(hashes as i32)
            }
        }
    }

    /// The expected error rate with `keys` distinct keys spread over `shards` arrays of this geometry by hash.
    ///
    /// Some shards get more keys than others; the mean of the error one standard deviation up and down accounts
    /// for that to the second order.
    pub fn error_with_shards(&self, keys: f64, shards: u32) -> f64 {
        let mean = keys / f64::from(shards);
        let deviation = (mean * (1.0 - 1.0 / f64::from(shards))).sqrt().min(mean);
        (self.error_with(mean - deviation) + self.error_with(mean + deviation)) / 2.0
    }

    /// The number of distinct keys up to which the expected error rate stays at or under `error`.
    pub fn capacity_at(&self, error: f64) -> Result<u64> {
        check_error_rate(error)?;
        // Even one key in each bit is past every error rate.
        let most = u64::try_from(self.bits()).unwrap_or(u64::MAX);
        Ok(partition_point(most, |keys| self.error_with(keys as f64) <= error).saturating_sub(1))
    }

    /// The number of distinct keys that explains `used` used cells.
    pub(crate) fn cardinality(&self, used: u64) -> f64 {
        match *self {
            // In every bank a key uses one of the cells of each word index.
            Self::Blocked { cell_bits, lines, .. } => {
                let cells = lines as f64 * f64::from(64 / cell_bits);
                let density = used as f64 / (self.bits() as f64 / f64::from(cell_bits));
                f64::ln_1p(-density) / f64::ln_1p(-1.0 / cells)
            }
            Self::Classic { bits, hashes } => {
                let density = used as f64 / bits as f64;
                f64::ln_1p(-density) / f64::ln_1p(-1.0 / bits as f64) / f64::from(hashes)
            }
        }
    }
}

/// The chance that an absent key finds all its cells used in one line, with `keys` keys thrown at `lines` lines.
fn line_error(keys: f64, lines: f64, cell_bits: u32) -> f64 {
    const CHOOSE: [f64; LINE_WORDS + 1] = [1.0, -8.0, 28.0, -56.0, 70.0, -56.0, 28.0, -8.0, 1.0];
    let other_cell = 1.0 - f64::from(cell_bits) / 64.0;
    let sum: f64 = (0..)
        .zip(CHOOSE)
        .map(|(words, signed)| {
            let touched = 1.0 - other_cell.powi(words);
            signed * f64::exp(keys * f64::ln_1p(-touched / lines))
        })
        .sum();
    sum.clamp(0.0, 1.0)
}

fn blocked(spec: &Spec, shards: u32) -> Geometry {
    let cell_bits = spec.kind.cell_bits();
    let shape = |banks, lines| Geometry::Blocked { cell_bits, banks, lines };
    let lines_for = |banks| {
        let too_few = |lines| {
            lines == 0 || shape(banks, lines).error_with_shards(spec.capacity as f64, shards) > spec.error
        };
        partition_point(u64::MAX >> 12, too_few)
    };
    let sizes: Vec<u64> = (1..=BANKS_MAX).map(lines_for).collect();
    let total = |banks: u32| f64::from(banks) * sizes[banks as usize - 1] as f64;
    let leanest = (1..=BANKS_MAX).map(total).fold(f64::INFINITY, f64::min);
    let banks = (1..=BANKS_MAX).find(|&banks| total(banks) * (1.0 - BANK_MUST_SAVE) <= leanest).unwrap_or(1);

    let lines = (sizes[banks as usize - 1] as f64 * MARGIN).ceil() as u64;
    shape(banks, lines.next_multiple_of(granule(lines)))
}

/// Line counts are multiples of this power of two, which costs a thousandth and lets a filter fold to its half
/// again and again.
fn granule(lines: u64) -> u64 {
    1 << (lines / 1024).clamp(1, 64).ilog2()
}

/// The least `n` up to `most` for which `holds` is false, given that it turns false once.
fn partition_point(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let mut high = 1;
    while high < most && holds(high) {
        high = high.saturating_mul(2).min(most);
    }
    let mut low = 0;
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Bits and hash functions of the textbook: the real-valued optimum.
fn classic_bits(capacity: u64, error: f64) -> f64 {
    -(capacity as f64) * error.ln() / (LN_2 * LN_2)
}

fn classic_hashes(bits: u64, capacity: u64) -> u32 {
    (bits as f64 / capacity as f64 * LN_2).round().max(1.0) as u32
}

fn guava(capacity: u64, error: f64) -> Geometry {
    let bits = (classic_bits(capacity, error) as u64).max(1);
    Geometry::Classic { bits: bits.next_multiple_of(64), hashes: classic_hashes(bits, capacity) }
}

/// Redisson keeps bits in one Redis string, which bounds them.
pub(crate) const REDISSON_BITS_MAX: u64 = 4_294_967_294;

fn redisson(capacity: u64, error: f64) -> Result<Geometry> {
    let bits = (classic_bits(capacity, error) as u64).max(1);
    if bits > REDISSON_BITS_MAX {
        return Err(Error::TooLarge {
            what: "number of bits of a Redisson filter",
            asked: bits.into(),
            limit: REDISSON_BITS_MAX,
        });
    }
    Ok(Geometry::Classic { bits, hashes: classic_hashes(bits, capacity) })
}

/// RedisBloom halves the error rate from link to link so that a whole chain stays under the declared one.
pub(crate) const TIGHTENING: f64 = 0.5;

pub(crate) fn first_link_error(error: f64, expansion: Option<u32>) -> f64 {
    if expansion.is_some() { error * TIGHTENING } else { error }
}

/// RedisBloom's own constants, with as many digits as its source has: other digits would give other sizes.
pub(crate) fn redisbloom_bits_per_entry(error: f64) -> f64 {
    -error.ln() / 0.480_453_013_918_201
}

pub(crate) fn redisbloom(capacity: u64, error: f64) -> Geometry {
    let per_entry = redisbloom_bits_per_entry(error);
    let bits = ((capacity as f64 * per_entry) as u64).max(1);
    #[expect(clippy::approx_constant, reason = "RedisBloom's own digits")]
    let hashes = (0.693_147_180_559_945 * per_entry).ceil() as u32;
    Geometry::Classic { bits: bits.next_multiple_of(64), hashes }
}

/// What a spec takes, before anything is allocated.
///
/// ```
/// # use umbel_filter::{Plan, Spec};
/// let plan = Plan::new(&Spec::bloom(30_000_000_000, 0.001), 256)?;
/// assert!(plan.bytes() < 60 << 30);
/// assert!(plan.expected_error() <= 0.001);
/// # Ok::<(), umbel_filter::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// What was asked for.
    pub spec: Spec,
    /// The number of equal parts.
    pub shards: u32,
    /// The array of each part.
    pub geometry: Geometry,
}

impl Plan {
    /// Plans `spec` over `shards` shards.
    pub fn new(spec: &Spec, shards: u32) -> Result<Self> {
        Ok(Self { spec: *spec, shards, geometry: Geometry::for_spec(spec, shards)? })
    }

    /// Bytes of all shards together.
    pub fn bytes(&self) -> u128 {
        self.geometry.bytes() * u128::from(self.shards)
    }

    /// Bits of array for each element at capacity.
    pub fn bits_per_key(&self) -> f64 {
        (self.geometry.bits() * u128::from(self.shards)) as f64 / self.spec.capacity as f64
    }

    /// Bits for each element that the textbook's filter of the same cells would take.
    pub fn classic_bits_per_key(&self) -> f64 {
        classic_bits(1, self.spec.error) * f64::from(self.spec.kind.cell_bits())
    }

    /// The expected error rate at capacity.
    pub fn expected_error(&self) -> f64 {
        self.geometry.error_with_shards(self.spec.capacity as f64, self.shards)
    }
}

impl Kind {
    pub(crate) fn of(geometry: &Geometry) -> Option<Self> {
        match *geometry {
            Geometry::Blocked { cell_bits, .. } => Self::from_cell_bits(u8::try_from(cell_bits).ok()?),
            Geometry::Classic { .. } => Some(Self::Bloom),
        }
    }
}

#[cfg(test)]
mod tests;
