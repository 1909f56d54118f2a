//! What nodes tell each other of parts of filters: keys and arrays.
//!
//! ```text
//! part:   filter u64, partition u32, slot u16
//! KEYS    part, has u8, after 16                                   --> [key 16, count u32]
//! SHAPES  digested u8, [part]                                      --> [generation u32, items u64, [outline, bytes u64, digest 16]]
//! BLOCKS  part, generation u32, layer u32, offset u64, most u32    --> whole blocks
//! PUBLISH filter u64, making, has u8, base, after, [part]          --> shards as they stand in a version
//!
//! making: number u64, nonce u32
//! ```

use bytes::Bytes;
use umbel_core::Result;
use umbel_core::engine::{BlocksFrom, LayerShape, Making, PartOf, Publication, Shape};
use umbel_core::limits::KEYS_PAGE_MAX;
use umbel_filter::Fingerprint;

use super::{Message, cut, put_length, put_token, take_token};

const PART_BYTES: usize = 14;
const COUNTED_BYTES: usize = 20;
/// Least bytes of an array, and of a part's arrays.
const LAYER_BYTES_MIN: usize = 28;
const SHAPE_BYTES_MIN: usize = 16;

fn put_part(out: &mut Vec<u8>, part: PartOf) {
    out.extend(part.filter.to_le_bytes());
    out.extend(part.partition.to_le_bytes());
    out.extend(part.slot.to_le_bytes());
}

fn take_part(message: &mut Message<'_>) -> Result<PartOf> {
    let (filter, partition) = (message.u64()?, message.u32()?);
    Ok(PartOf { filter, partition, slot: u16::from_le_bytes(message.take()?) })
}

fn take_flag(message: &mut Message<'_>) -> Result<bool> {
    match message.take()? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(cut()),
    }
}

/// A question for the next keys of a part.
pub(crate) fn put_keys(part: PartOf, after: Option<Fingerprint>) -> Vec<u8> {
    let mut out = Vec::new();
    put_part(&mut out, part);
    out.push(after.is_some().into());
    out.extend(after.unwrap_or_default().to_bytes());
    out
}

pub(crate) fn keys(bytes: &[u8]) -> Result<(PartOf, Option<Fingerprint>)> {
    let mut message = Message(bytes);
    let (part, has_key) = (take_part(&mut message)?, take_flag(&mut message)?);
    let key = Fingerprint::from_bytes(message.take()?);
    message.end((part, has_key.then_some(key)))
}

pub(crate) fn put_page(page: &[(Fingerprint, u32)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + page.len() * COUNTED_BYTES);
    put_length(&mut out, page.len());
    for (key, count) in page {
        out.extend(key.to_bytes());
        out.extend(count.to_le_bytes());
    }
    out
}

pub(crate) fn page(bytes: &[u8]) -> Result<Vec<(Fingerprint, u32)>> {
    let mut message = Message(bytes);
    let count = message.count(COUNTED_BYTES)?;
    if count > KEYS_PAGE_MAX {
        return Err(cut());
    }
    let key = |_| Ok((Fingerprint::from_bytes(message.take()?), message.u32()?));
    let page = (0..count).map(key).collect::<Result<_>>()?;
    message.end(page)
}

/// A question what arrays parts have.
pub(crate) fn put_parts(parts: &[PartOf], digested: bool) -> Vec<u8> {
    let mut out = vec![u8::from(digested)];
    put_length(&mut out, parts.len());
    parts.iter().for_each(|part| put_part(&mut out, *part));
    out
}

pub(crate) fn parts(bytes: &[u8]) -> Result<(Vec<PartOf>, bool)> {
    let mut message = Message(bytes);
    let digested = take_flag(&mut message)?;
    let count = message.count(PART_BYTES)?;
    let parts = (0..count).map(|_| take_part(&mut message)).collect::<Result<_>>()?;
    message.end((parts, digested))
}

pub(crate) fn put_shapes(shapes: &[Shape]) -> Vec<u8> {
    let mut out = Vec::new();
    put_length(&mut out, shapes.len());
    for Shape { generation, items, layers } in shapes {
        out.extend(generation.to_le_bytes());
        out.extend(items.to_le_bytes());
        put_length(&mut out, layers.len());
        for LayerShape { outline, bytes, digest } in layers {
            put_length(&mut out, outline.len());
            out.extend_from_slice(outline);
            out.extend(bytes.to_le_bytes());
            out.extend(digest.to_le_bytes());
        }
    }
    out
}

pub(crate) fn shapes(bytes: &[u8]) -> Result<Vec<Shape>> {
    let mut message = Message(bytes);
    let count = message.count(SHAPE_BYTES_MIN)?;
    let mut shapes = Vec::with_capacity(count);
    for _ in 0..count {
        let (generation, items) = (message.u32()?, message.u64()?);
        let mut layers = Vec::with_capacity(message.count(LAYER_BYTES_MIN)?);
        for _ in 0..layers.capacity() {
            let length = message.count(1)?;
            let outline = Bytes::copy_from_slice(message.bytes(length)?);
            let bytes = message.u64()?;
            layers.push(LayerShape { outline, bytes, digest: u128::from_le_bytes(message.take()?) });
        }
        shapes.push(Shape { generation, items, layers });
    }
    message.end(shapes)
}

/// A question for blocks.
pub(crate) fn put_blocks(part: PartOf, from: BlocksFrom, bytes_max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put_part(&mut out, part);
    out.extend(from.generation.to_le_bytes());
    out.extend(from.layer.to_le_bytes());
    out.extend(from.offset.to_le_bytes());
    put_length(&mut out, bytes_max);
    out
}

pub(crate) fn blocks(bytes: &[u8]) -> Result<(PartOf, BlocksFrom, usize)> {
    let mut message = Message(bytes);
    let part = take_part(&mut message)?;
    let (generation, layer, offset) = (message.u32()?, message.u32()?, message.u64()?);
    let bytes_max = message.u32()? as usize;
    message.end((part, BlocksFrom { generation, layer, offset }, bytes_max))
}

fn put_making(out: &mut Vec<u8>, making: Making) {
    out.extend(making.number.to_le_bytes());
    out.extend(making.nonce.to_le_bytes());
}

fn take_making(message: &mut Message<'_>) -> Result<Making> {
    Ok(Making { number: message.u64()?, nonce: message.u32()? })
}

/// An order to make parts of a version.
pub(crate) fn put_publish(parts: &[PartOf], publication: &Publication) -> Vec<u8> {
    let Publication { filter, making, base, at_least } = publication;
    let mut out = filter.to_le_bytes().to_vec();
    put_making(&mut out, *making);
    out.push(base.is_some().into());
    put_making(&mut out, base.unwrap_or_default());
    put_token(&mut out, at_least);
    put_length(&mut out, parts.len());
    parts.iter().for_each(|part| put_part(&mut out, *part));
    out
}

pub(crate) fn publish(bytes: &[u8]) -> Result<(Vec<PartOf>, Publication)> {
    let mut message = Message(bytes);
    let (filter, making) = (message.u64()?, take_making(&mut message)?);
    let (has_base, base) = (take_flag(&mut message)?, take_making(&mut message)?);
    let at_least = take_token(&mut message)?;
    let count = message.count(PART_BYTES)?;
    let parts = (0..count).map(|_| take_part(&mut message)).collect::<Result<_>>()?;
    message.end((parts, Publication { filter, making, base: has_base.then_some(base), at_least }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_core::Position;
    use umbel_core::engine::Token;

    use super::*;

    const PART: PartOf = PartOf { filter: 1 << 40, slot: 300, partition: 44 };

    #[test]
    fn all_that_is_told_is_understood() {
        let key = |n: u64| Fingerprint { first: n, second: !n };
        for after in [None, Some(key(7))] {
            assert_eq!(keys(&put_keys(PART, after)).unwrap(), (PART, after));
        }
        let told: Vec<_> = (0..100).map(|n| (key(n), n as u32)).collect();
        assert_eq!(page(&put_page(&told)).unwrap(), told);
        let asked = vec![PART, PartOf { slot: 0, ..PART }];
        assert_eq!(parts(&put_parts(&asked, true)).unwrap(), (asked, true));
        let layer = LayerShape { outline: Bytes::from_static(b"outline"), bytes: 99, digest: u128::MAX };
        let told = vec![
            Shape { generation: 3, items: 5, layers: vec![layer.clone(), layer] },
            Shape { generation: 4, items: 0, layers: Vec::new() },
        ];
        assert_eq!(shapes(&put_shapes(&told)).unwrap(), told);
        let from = BlocksFrom { generation: 9, layer: 2, offset: u64::MAX };
        assert_eq!(blocks(&put_blocks(PART, from, 4 << 20)).unwrap(), (PART, from, 4 << 20));
        let making = Making { number: 1 << 50, nonce: u32::MAX };
        for base in [None, Some(Making { number: 3, nonce: 0 })] {
            let mut at_least = Token::default();
            at_least.see(3, Position::from_number(9));
            let order = Publication { filter: PART.filter, making, base, at_least };
            assert_eq!(publish(&put_publish(&[PART], &order)).unwrap(), (vec![PART], order));
        }
    }

    #[test]
    fn a_count_that_is_too_large_takes_no_memory() {
        let many = u32::MAX.to_le_bytes();
        assert!(page(&many).is_err() && shapes(&many).is_err());
        assert!(parts(&[&[0][..], &many].concat()).is_err());
        assert!(shapes(&[&1_u32.to_le_bytes()[..], &[0; 12], &many].concat()).is_err());
        let too_many = put_page(&vec![(Fingerprint::default(), 1); KEYS_PAGE_MAX + 1]);
        assert!(page(&too_many).is_err());
    }

    proptest! {
        #[test]
        fn nothing_that_comes_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (keys(&bytes), page(&bytes), parts(&bytes), shapes(&bytes), blocks(&bytes));
            let _ = publish(&bytes);
        }
    }
}
