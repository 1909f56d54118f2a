//! Changes in half the bytes, for readers that say which shape their arrays have: instead of keys, the cells that keys come to there.
//!
//! ```text
//!  | filter u64 | sum of the shape u32 | 1 adds, 2 takes out | shards that have keys, one behind another |
//!    shard: | its number | keys | of each key, sorted by line: lines since the one before | cells, 3, 4 or 6 bytes |
//!    numbers of no fixed length have seven bits a byte, low ones first; the last byte is below 128
//! ```

use std::fmt;
use std::str::FromStr;

use umbel_filter::limits::SHARDS_MAX;
use umbel_filter::{Condensed, Fingerprint, Geometry};

use crate::entry::{Entry, Operation};
use crate::{Error, Result};

const HEAD_BYTES: usize = 8 + 4 + 1;
const ADDS: u8 = 1; // persisted, as all of this
const REMOVES: u8 = 2;

/// What reader and writer must have in common. As text: shards, bits of a cell and lines of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    shards: u32,
    cell_bits: u32,
    lines: u64,
    condensed: Condensed,
}

impl Shape {
    /// Of a filter with so many shards, each of one array; none if keys cannot be packed for such arrays.
    pub fn new(shards: u32, array: &Geometry) -> Option<Self> {
        match *array {
            Geometry::Blocked { cell_bits, lines, .. } if (1..=SHARDS_MAX).contains(&shards) => {
                Some(Self { shards, cell_bits, lines, condensed: array.condensed()? })
            }
            _ => None,
        }
    }

    fn sum(&self) -> u32 {
        crc32c::crc32c(self.to_string().as_bytes())
    }

    fn shard_of(&self, key: Fingerprint) -> u32 {
        if self.shards == 1 { 0 } else { key.slot(self.shards) }
    }

    /// What an entry does to arrays of this shape; none if it does something else than adding keys and taking them out.
    pub fn pack(&self, entry: &Entry) -> Option<Vec<u8>> {
        let (kind, keys) = match &entry.operation {
            Operation::Add(keys) => (ADDS, keys),
            Operation::Remove(keys) => (REMOVES, keys),
            _ => return None,
        };
        let mut places: Vec<(u32, u64, u64)> = keys
            .iter()
            .map(|key| {
                let (line, cells) = self.condensed.split(*key);
                (self.shard_of(*key), line, cells)
            })
            .collect();
        places.sort_unstable();
        let mut out = Vec::with_capacity(HEAD_BYTES + 9 * places.len());
        out.extend(entry.filter.to_le_bytes());
        out.extend(self.sum().to_le_bytes());
        out.push(kind);
        for places in places.chunk_by(|one, next| one.0 == next.0) {
            put(&mut out, places[0].0.into());
            put(&mut out, places.len() as u64);
            let mut before = 0;
            for (_, line, cells) in places {
                put(&mut out, line - before);
                out.extend_from_slice(&cells.to_le_bytes()[..self.condensed.cell_bytes()]);
                before = *line;
            }
        }
        Some(out)
    }

    /// Reads what [`pack`](Self::pack) gave.
    pub fn unpack(&self, bytes: &[u8]) -> Result<Packed> {
        let corrupt = |why: &str| Error::Corrupt(format!("{} bytes of packed changes: {why}", bytes.len()));
        let (head, mut rest) =
            bytes.split_first_chunk::<HEAD_BYTES>().ok_or_else(|| corrupt("they are fewer than any"))?;
        let [filter @ .., s0, s1, s2, s3, kind] = *head;
        if u32::from_le_bytes([s0, s1, s2, s3]) != self.sum() {
            return Err(corrupt(&format!("they are for arrays of another shape than {self}")));
        }
        let removes = match kind {
            ADDS => false,
            REMOVES => true,
            _ => return Err(corrupt("they neither add nor take out")),
        };
        let mut shards = Vec::new();
        while !rest.is_empty() {
            shards.push(self.unpack_shard(&mut rest).ok_or_else(|| corrupt("a shard is not whole"))?);
        }
        Ok(Packed { filter: u64::from_le_bytes(filter), removes, shards })
    }

    fn unpack_shard(&self, rest: &mut &[u8]) -> Option<(u32, Vec<Fingerprint>)> {
        let shard = u32::try_from(take(rest)?).ok().filter(|shard| *shard < self.shards)?;
        let count = usize::try_from(take(rest)?).ok()?;
        // A key has at least the byte of its line.
        if count == 0 || count > rest.len() / (1 + self.condensed.cell_bytes()) {
            return None;
        }
        let (mut keys, mut line) = (Vec::with_capacity(count), 0_u64);
        for _ in 0..count {
            line = line.checked_add(take(rest)?)?;
            let (cells, behind) = rest.split_at_checked(self.condensed.cell_bytes())?;
            let mut word = [0; 8];
            word[..cells.len()].copy_from_slice(cells);
            keys.push(self.condensed.join(line, u64::from_le_bytes(word))?);
            *rest = behind;
        }
        Some((shard, keys))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.shards, self.cell_bits, self.lines)
    }
}

impl FromStr for Shape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let shape = || {
            let mut numbers = text.split('-').map(str::parse::<u64>);
            let mut next = || numbers.next()?.ok();
            let (shards, cell_bits, lines) = (next()?, next()?, next()?);
            let geometry = Geometry::Blocked { cell_bits: cell_bits.try_into().ok()?, banks: 1, lines };
            Self::new(shards.try_into().ok()?, &geometry).filter(|_| numbers.next().is_none())
        };
        shape().ok_or_else(|| {
            Error::Invalid(format!(
                "the shape {text:?}; it is shards-bits-lines, say 1-1-1000, with 1, 4 or 8 bits"
            ))
        })
    }
}

/// Changes that were unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The filter.
    pub(crate) filter: u64,
    /// Whether keys are taken out rather than added.
    pub(crate) removes: bool,
    /// Of each shard that has any, twins of the keys: to arrays of the shape, they are the keys.
    pub(crate) shards: Vec<(u32, Vec<Fingerprint>)>,
}

/// Puts a number down, seven bits a byte.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number up again; none if it is not whole or too large.
fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::Request;

    fn entry(keys: &[(u64, u64)], removes: bool) -> Entry {
        let keys =
            keys.iter().map(|(first, second)| Fingerprint { first: *first, second: *second }).collect();
        let operation = if removes { Operation::Remove(keys) } else { Operation::Add(keys) };
        Entry { filter: 77, slot: 0, request: Request::default(), operation }
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let lines = prop_oneof![1_u64..1_000, 1_u64 << 20..1 << 40, Just(u64::MAX)];
        let cells = prop_oneof![Just(1), Just(4), Just(8)];
        (1_u32..300, cells, lines).prop_map(|(shards, cell_bits, lines)| {
            Shape::new(shards, &Geometry::Blocked { cell_bits, banks: 1, lines }).expect("a shape")
        })
    }

    proptest! {
        #[test]
        fn every_key_comes_back_in_its_shard_line_and_cells(
            shape in shapes(),
            keys in prop::collection::vec(any::<(u64, u64)>(), 1..200),
            removes: bool,
        ) {
            let entry = entry(&keys, removes);
            let packed = shape.unpack(&shape.pack(&entry).unwrap()).unwrap();
            prop_assert_eq!((packed.filter, packed.removes), (77, removes));
            let place = |shard: u32, key: Fingerprint| (shard, shape.condensed.split(key));
            let mut sent: Vec<_> = entry.operation.keys().iter().map(|key| place(shape.shard_of(*key), *key)).collect();
            let mut came: Vec<_> = packed
                .shards
                .iter()
                .flat_map(|(shard, keys)| keys.iter().map(|key| place(*shard, *key)))
                .collect();
            sent.sort_unstable();
            came.sort_unstable();
            prop_assert_eq!(sent, came);
            prop_assert_eq!(shape.to_string().parse::<Shape>().unwrap(), shape);
        }

        #[test]
        fn whatever_comes_is_taken_or_refused(shape in shapes(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = shape.unpack(&bytes);
            let mut framed = shape.pack(&entry(&[], false)).unwrap();
            framed.extend(bytes);
            let _ = shape.unpack(&framed);
        }

        #[test]
        fn a_part_is_not_the_whole(keys in prop::collection::vec(any::<(u64, u64)>(), 1..20)) {
            let shape: Shape = "1-1-1000000".parse().unwrap();
            let whole = shape.pack(&entry(&keys, false)).unwrap();
            for length in HEAD_BYTES + 1..whole.len() {
                prop_assert!(shape.unpack(&whole[..length]).is_err());
            }
        }
    }

    #[test]
    fn a_key_takes_eight_bytes() {
        // A hundred keys in a filter for ten million: what a change of a busy filter is.
        let keys: Vec<_> = (1..=100_u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n << 7)).collect();
        let bloom: Shape = "1-1-310000".parse().unwrap();
        assert!(bloom.pack(&entry(&keys, false)).unwrap().len() <= HEAD_BYTES + 2 + 8 * keys.len());
        let counting: Shape = "1-4-1500000".parse().unwrap();
        assert!(counting.pack(&entry(&keys, true)).unwrap().len() <= HEAD_BYTES + 2 + 7 * keys.len());
    }

    #[test]
    fn other_shapes_are_refused() {
        let [one, other]: [Shape; 2] = ["1-1-1000", "1-1-1001"].map(|text| text.parse().unwrap());
        let packed = one.pack(&entry(&[(1, 2)], false)).unwrap();
        assert!(other.unpack(&packed).unwrap_err().to_string().contains("1-1-1001"));
        for text in ["", "1", "1-1", "1-1-0", "0-1-1", "1-2-1", "1-1-1-1", "70000-1-1", "1-1-x", "-1-1-1"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }
}
