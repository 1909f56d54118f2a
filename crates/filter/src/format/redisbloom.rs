//! The chunks of RedisBloom's `BF.SCANDUMP` and `BF.LOADCHUNK`.
//!
//! A chunk comes with a cursor. Cursor 1 is the header; every other one is 1 + the bytes of all arrays up to the end of
//! its chunk. Chunks never cross from one link of the chain into the next.

use super::Fields;
use crate::array::Array;
use crate::chain::{Chain, Link};
use crate::filter::{Body, Part};
use crate::limits::{CAPACITY_MAX, HASHES_MAX};
use crate::sizing::{Geometry, TIGHTENING, redisbloom_bits_per_entry};
use crate::{Error, Family, Filter, Hasher, Layout, Limits, Result, Spec};

const FORMAT: &str = "RedisBloom";
/// RedisBloom's own bound on a chunk.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;

const FIXED_BYTES: usize = 20;
const LINK_BYTES: usize = 53;

/// Bits of the options word.
const NO_ROUND: u32 = 1;
const FORCE_64: u32 = 4;
const NO_SCALING: u32 = 8;
/// What RedisBloom writes as expansion when there is none.
const DEFAULT_EXPANSION: u32 = 2;

/// The next chunk after `cursor`, with its own cursor; start at 0, stop at a cursor of 0.
pub fn scan_dump(filter: &Filter, cursor: u64) -> Result<(u64, Vec<u8>)> {
    let Body::Chain(chain) = filter.body() else {
        let subject = format!("a filter of layout {}", filter.spec().layout);
        return Err(Error::unsupported("writing RedisBloom's format", subject));
    };
    filter.with_parts(|parts| {
        if cursor == 0 {
            return Ok((1, header(chain.expansion(), parts)));
        }
        let mut start = cursor - 1;
        if !start.is_multiple_of(8) {
            return Err(Error::invalid("cursor", format!("{cursor}; no chunk ends there")));
        }
        for part in parts {
            let bytes = stored_bytes(part.geometry);
            if start < bytes {
                let chunk = copy(part.array, start, (bytes - start).min(CHUNK_BYTES_MAX as u64) as usize);
                return Ok((cursor + chunk.len() as u64, chunk));
            }
            start -= bytes;
        }
        Ok((0, Vec::new()))
    })
}

/// All chunks of a filter, in order, as `scan_dump` gives them one by one.
pub fn chunks(filter: &Filter) -> impl Iterator<Item = Result<(u64, Vec<u8>)>> {
    let mut cursor = Some(0);
    std::iter::from_fn(move || match scan_dump(filter, cursor.take()?) {
        Ok((0, _)) => None,
        Ok((next, chunk)) => {
            cursor = Some(next);
            Some(Ok((next, chunk)))
        }
        Err(error) => Some(Err(error)),
    })
}

/// A filter that is being put together from chunks.
#[derive(Debug)]
pub struct Loader {
    filter: Filter,
    loaded: u64,
}

impl Loader {
    /// Starts with the header, the chunk of cursor 1. The arrays are reserved here, within `limits`.
    pub fn new(header: &[u8], limits: &Limits) -> Result<Self> {
        let (items, links, options, growth) = parse_fixed(header)?;
        limits.check_links(links)?;
        let expected = FIXED_BYTES + links as usize * LINK_BYTES;
        if header.len() < expected {
            let (offset, missing) = (header.len() as u64, (expected - header.len()) as u64);
            return Err(Error::Truncated { format: FORMAT, offset, missing });
        }
        if header.len() > expected {
            return Err(corrupt(expected, format!("{} bytes after {links} links", header.len() - expected)));
        }
        if options & FORCE_64 == 0 {
            return Err(Error::unsupported("reading", "a RedisBloom filter with 32-bit hashes"));
        }
        let expansion = (options & NO_SCALING == 0).then_some(growth);
        let parsed = header[FIXED_BYTES..].chunks_exact(LINK_BYTES).enumerate();
        let parsed = parsed.map(|(index, link)| {
            parse_link(link)
                .map_err(|why| corrupt(FIXED_BYTES + index * LINK_BYTES, format!("link {index}: {why}")))
        });
        let parsed = parsed.collect::<Result<Vec<_>>>()?;
        limits.check_bytes(parsed.iter().map(|link| link.geometry.bytes()).sum())?;
        let Some(first) = parsed.first() else { return Err(corrupt(8, "a chain without links")) };
        if parsed.iter().map(|link| u128::from(link.items)).sum::<u128>() != items.into() {
            return Err(corrupt(0, format!("{items} items in all, but the links count otherwise")));
        }

        let error = if expansion.is_some() { first.error / TIGHTENING } else { first.error };
        let spec = Spec::hosted(Layout::RedisBloom { expansion }, first.capacity, error);
        spec.check()?;
        let links = parsed
            .iter()
            .map(|link| Link::with_geometry(link.geometry, link.capacity, link.error, link.items, limits));
        let chain = Chain::of(links.collect::<Result<_>>()?, expansion, limits)?;
        let filter = Filter::of(spec, Hasher::new(Family::RedisBloom, None)?, Body::Chain(chain));
        Ok(Self { filter, loaded: 0 })
    }

    /// Takes the chunk that came with `cursor`. Chunks may come in any order and again.
    pub fn load(&mut self, cursor: u64, chunk: &[u8]) -> Result<()> {
        let bad = |why: &str| {
            Err(Error::invalid("chunk", format!("cursor {cursor} with {} bytes: {why}", chunk.len())))
        };
        if chunk.is_empty() || chunk.len() > CHUNK_BYTES_MAX {
            return bad("a chunk has 1 to 16777216 bytes");
        }
        let Some(mut start) = cursor.checked_sub(1 + chunk.len() as u64) else {
            return bad("it would begin before the first array");
        };
        let geometries: Vec<Geometry> =
            self.filter.with_parts(|parts| parts.iter().map(|part| part.geometry).collect());
        for (geometry, array) in geometries.into_iter().zip(self.filter.arrays_mut()) {
            let bytes = stored_bytes(geometry);
            if start < bytes {
                if start + chunk.len() as u64 > bytes {
                    return bad("it would cross the end of its link");
                }
                if !start.is_multiple_of(8) {
                    return bad("it does not begin at a whole word");
                }
                array.load_bytes(start / 8, chunk);
                self.loaded += chunk.len() as u64;
                return Ok(());
            }
            start -= bytes;
        }
        bad("it would begin after the last array")
    }

    /// The filter as loaded so far; keys of chunks that are still to come are missing from it.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// How many bytes are still to come.
    pub fn missing(&self) -> u64 {
        let all: u64 =
            self.filter.with_parts(|parts| parts.iter().map(|part| stored_bytes(part.geometry)).sum());
        all.saturating_sub(self.loaded)
    }

    /// The filter, if as many bytes were loaded as it has.
    pub fn finish(self) -> Result<Filter> {
        match self.missing() {
            0 => Ok(self.filter),
            missing => Err(Error::Truncated { format: FORMAT, offset: self.loaded, missing }),
        }
    }
}

/// The number of items, of links, the options and the expansion.
fn parse_fixed(header: &[u8]) -> Result<(u64, u32, u32, u32)> {
    if header.len() < FIXED_BYTES {
        let (offset, missing) = (header.len() as u64, (FIXED_BYTES - header.len()) as u64);
        return Err(Error::Truncated { format: FORMAT, offset, missing });
    }
    let mut fields = Fields(header);
    Ok((fields.u64(), fields.u32(), fields.u32(), fields.u32()))
}

struct LinkHeader {
    geometry: Geometry,
    items: u64,
    capacity: u64,
    error: f64,
}

fn parse_link(link: &[u8]) -> Result<LinkHeader, String> {
    let mut fields = Fields(link);
    let (bytes, bits, items) = (fields.u64(), fields.u64(), fields.u64());
    let (error, per_entry, hashes) = (fields.f64(), fields.f64(), fields.u32());
    let (capacity, power) = (fields.u64(), fields.u8());
    // An array of 2^power bits is addressed by the same positions as one of that many bits.
    let bits = match power {
        0 => bits,
        1..64 => 1 << power,
        _ => return Err(format!("2^{power} bits")),
    };
    let geometry = Geometry::Classic { bits, hashes };
    if bits == 0 || bytes != stored_bytes(geometry) {
        return Err(format!("{bits} bits in {bytes} bytes"));
    }
    if !(1..=HASHES_MAX).contains(&hashes) {
        return Err(format!("{hashes} hash functions"));
    }
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        return Err(format!("a capacity of {capacity}"));
    }
    if !(error > 0.0 && error < 1.0 && per_entry > 0.0 && per_entry.is_finite()) {
        return Err(format!("an error rate of {error} with {per_entry} bits an entry"));
    }
    Ok(LinkHeader { geometry, items, capacity, error })
}

fn header(expansion: Option<u32>, links: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIXED_BYTES + links.len() * LINK_BYTES);
    bytes.extend(links.iter().map(|link| link.items).sum::<u64>().to_le_bytes());
    bytes.extend((links.len() as u32).to_le_bytes());
    let options = FORCE_64 | NO_ROUND | if expansion.is_none() { NO_SCALING } else { 0 };
    bytes.extend(options.to_le_bytes());
    bytes.extend(expansion.unwrap_or(DEFAULT_EXPANSION).to_le_bytes());
    for link in links {
        bytes.extend(stored_bytes(link.geometry).to_le_bytes());
        bytes.extend((link.geometry.bits() as u64).to_le_bytes());
        bytes.extend(link.items.to_le_bytes());
        bytes.extend(link.error.to_le_bytes());
        bytes.extend(redisbloom_bits_per_entry(link.error).to_le_bytes());
        bytes.extend(link.geometry.hashes().to_le_bytes());
        bytes.extend(link.capacity.to_le_bytes());
        bytes.push(0);
    }
    bytes
}

/// Bytes of an array as RedisBloom keeps it: whole words.
fn stored_bytes(geometry: Geometry) -> u64 {
    geometry.bits().div_ceil(64) as u64 * 8
}

/// `length` bytes of an array from byte `start` on, which is the start of a word.
fn copy(array: &Array, start: u64, length: usize) -> Vec<u8> {
    let words = array.words_from(start / 8).take(length / 8);
    words.flat_map(u64::to_le_bytes).collect()
}

fn corrupt(offset: usize, why: impl Into<String>) -> Error {
    Error::Corrupt { format: FORMAT, offset: offset as u64, why: why.into() }
}
