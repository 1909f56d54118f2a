//! The bytes of Guava's `BloomFilter.writeTo` and `readFrom`, for Java and for every language with a reader of them.

use std::io::{Read, Write};

use super::Source;
use crate::classic::Sequence;
use crate::filter::Body;
use crate::sizing::Geometry;
use crate::{Error, Family, Filter, Hasher, Kind, Layout, Limits, Result, Spec};

const FORMAT: &str = "Guava";
/// Ordinals of Guava's strategies.
const MITZ_32: u8 = 0;
const MITZ_64: u8 = 1;
/// Words that are written or read at a time.
const CHUNK_WORDS: usize = 8192;

/// Writes a filter of layout `guava` as `BloomFilter.writeTo` would.
pub fn write(filter: &Filter, mut out: impl Write) -> Result<()> {
    let Body::Classic(classic) = filter.body() else { return Err(wrong_layout(filter)) };
    let ordinal = match classic.sequence() {
        Sequence::Guava => MITZ_64,
        Sequence::Guava32 => MITZ_32,
        _ => return Err(wrong_layout(filter)),
    };
    let Geometry::Classic { bits, hashes } = classic.geometry() else { return Err(wrong_layout(filter)) };
    // A Java array has no more elements.
    let limit = i32::MAX.cast_unsigned();
    let words = u32::try_from(bits / 64).ok().filter(|words| *words <= limit);
    let words = words.ok_or(Error::TooLarge {
        what: "number of words of a Guava filter",
        asked: (bits / 64).into(),
        limit: limit.into(),
    })?;
    let hashes =
        u8::try_from(hashes).map_err(|_| Error::invalid("hash functions", format!("{hashes}, over 255")))?;
    out.write_all(&[ordinal, hashes])?;
    out.write_all(&words.to_be_bytes())?;
    let mut bytes = Vec::with_capacity(CHUNK_WORDS * 8);
    let mut left = classic.array().words().take(words as usize);
    loop {
        bytes.clear();
        bytes.extend(left.by_ref().take(CHUNK_WORDS).flat_map(u64::to_be_bytes));
        if bytes.is_empty() {
            return Ok(());
        }
        out.write_all(&bytes)?;
    }
}

/// Reads what `BloomFilter.writeTo` wrote, and nothing after it.
///
/// The format names neither the funnel nor the capacity. Keys are to be given as the bytes that the funnel gave; the
/// capacity and the error rate are those for which the size is best.
pub fn read(input: impl Read, limits: &Limits) -> Result<Filter> {
    let mut source = Source::new(input, FORMAT);
    let [ordinal, hashes] = source.array()?;
    let layout = match ordinal {
        MITZ_32 => Layout::Guava32,
        MITZ_64 => Layout::Guava,
        other => return Err(source.corrupt(format!("unknown strategy {other}"))),
    };
    if hashes == 0 {
        return Err(source.corrupt("no hash functions"));
    }
    let words = i32::from_be_bytes(source.array()?);
    let Ok(words @ 1..) = u64::try_from(words) else {
        return Err(source.corrupt(format!("{words} words")));
    };
    let hashes = u32::from(hashes);
    let geometry = Geometry::Classic { bits: words * 64, hashes };
    let body = Body::with_geometry(layout, geometry, limits)?;
    let mut filter = Filter::of(spec_for(layout, geometry), Hasher::new(Family::Murmur3, None)?, body);

    let mut bytes = vec![0; CHUNK_WORDS * 8];
    let mut done = 0;
    while done < words {
        let count = (words - done).min(CHUNK_WORDS as u64);
        let chunk = &mut bytes[..count as usize * 8];
        source.exact(chunk)?;
        chunk.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
        for array in filter.arrays_mut() {
            array.load_bytes(done, chunk);
        }
        done += count;
    }
    Ok(filter)
}

/// The spec that a classic geometry is best for: half of its bits set at capacity.
pub(super) fn spec_for(layout: Layout, geometry: Geometry) -> Spec {
    let error = 0.5_f64.powi(geometry.hashes() as i32).max(crate::limits::ERROR_MIN);
    let per_key = f64::from(geometry.hashes()) / std::f64::consts::LN_2;
    let capacity = (geometry.bits() as f64 / per_key).round().max(1.0) as u64;
    Spec { kind: Kind::Bloom, ..Spec::hosted(layout, capacity, error) }
}

fn wrong_layout(filter: &Filter) -> Error {
    Error::unsupported("writing Guava's format", format!("a filter of layout {}", filter.spec().layout))
}
