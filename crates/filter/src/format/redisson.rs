//! Redisson's `RBloomFilter`: a Redis bitmap and a hash of settings beside it.

use std::io::{Read, Write};

use super::Source;
use crate::array::BLOCK_BYTES;
use crate::classic::Sequence;
use crate::filter::Body;
use crate::limits::HASHES_MAX;
use crate::sizing::{Geometry, REDISSON_BITS_MAX};
use crate::spec::check_error_rate;
use crate::{Error, Family, Filter, Hasher, Layout, Limits, Result, Spec};

const FORMAT: &str = "Redisson";

/// The fields of the hash `{NAME}:config`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// `size`: bits.
    pub size: u64,
    /// `hashIterations`.
    pub hash_iterations: u32,
    /// `expectedInsertions`.
    pub expected_insertions: u64,
    /// `falseProbability`.
    pub false_probability: f64,
}

impl Config {
    fn check(&self) -> Result<Geometry> {
        if self.size == 0 || self.size > REDISSON_BITS_MAX {
            let why = format!("{}; Redisson allows 1 to {REDISSON_BITS_MAX}", self.size);
            return Err(Error::invalid("size", why));
        }
        if !(1..=HASHES_MAX).contains(&self.hash_iterations) {
            let why = format!("{}; it must be 1 to {HASHES_MAX}", self.hash_iterations);
            return Err(Error::invalid("hashIterations", why));
        }
        check_error_rate(self.false_probability)?;
        Ok(Geometry::Classic { bits: self.size, hashes: self.hash_iterations })
    }
}

/// Makes a filter of the value of the key NAME (nothing, if there is no such key) and its settings.
///
/// Redis ends a bitmap at the last byte that was ever written, so it may be shorter than `size`.
pub fn read(config: &Config, bitmap: impl Read, limits: &Limits) -> Result<Filter> {
    let geometry = config.check()?;
    let body = Body::with_geometry(Layout::Redisson, geometry, limits)?;
    let spec = Spec::hosted(Layout::Redisson, config.expected_insertions, config.false_probability);
    spec.check()?;
    let mut filter = Filter::of(spec, Hasher::new(Family::Redisson, None)?, body);

    let mut source = Source::new(bitmap, FORMAT);
    let mut chunk = vec![0; BLOCK_BYTES];
    loop {
        let start = source.offset;
        let read = source.fill(&mut chunk)?;
        if read == 0 {
            return Ok(filter);
        }
        let bytes = &mut chunk[..read];
        let past = (start + read as u64) * 8;
        if past > config.size.next_multiple_of(8) || stray_bits(bytes, past.saturating_sub(config.size)) {
            return Err(source.corrupt(format!("bits past the size of {}", config.size)));
        }
        // SETBIT counts from the most significant bit.
        bytes.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        for array in filter.arrays_mut() {
            array.load_bytes(start / 8, bytes);
        }
    }
}

/// Whether any of the last `unused` bits, fewer than eight, is set.
fn stray_bits(bytes: &[u8], unused: u64) -> bool {
    bytes.last().is_some_and(|last| u32::from(*last) & ((1 << unused) - 1) != 0)
}

/// The settings to store beside the bitmap.
pub fn config(filter: &Filter) -> Result<Config> {
    let Geometry::Classic { bits, hashes } = classic(filter)?.geometry() else {
        return Err(wrong_layout(filter));
    };
    let spec = filter.spec();
    Ok(Config {
        size: bits,
        hash_iterations: hashes,
        expected_insertions: spec.capacity,
        false_probability: spec.error,
    })
}

/// Writes the bitmap: the value to give the key NAME.
pub fn write(filter: &Filter, mut out: impl Write) -> Result<()> {
    let mut left = config(filter)?.size.div_ceil(8) as usize;
    let array = classic(filter)?.array();
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    for block in 0..array.blocks() {
        array.copy_block(block, &mut bytes);
        bytes.truncate(left);
        left -= bytes.len();
        bytes.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn classic(filter: &Filter) -> Result<&crate::classic::Classic> {
    match filter.body() {
        Body::Classic(classic) if classic.sequence() == Sequence::Redisson => Ok(classic),
        _ => Err(wrong_layout(filter)),
    }
}

fn wrong_layout(filter: &Filter) -> Error {
    Error::unsupported("writing Redisson's format", format!("a filter of layout {}", filter.spec().layout))
}
