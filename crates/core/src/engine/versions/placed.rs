//! A version, and where its chunks are, where several nodes make versions.
//!
//! ```text
//!  versions/{filter}/000000000008-5f3a09c1.version      chunks a1f3, 77b0 and c9d2, all of them of 8-5f3a09c1
//!  versions/{filter}/000000000008-5f3a09c1/a1f3…        a chunk that was written for it
//!  versions/{filter}/000000000009-0b44d2e0.version      a1f3 and c9d2 of 8-5f3a09c1, 5e11 of 9-0b44d2e0
//! ```
//!
//! A chunk belongs to the making that it was written for, and is not written again while the version needs it from which the next one is
//! made. So a chunk that no listed version needs is needed by none that comes later, and whoever removes it may be as late as it will.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::listing::Making;
use crate::fields::{Fields, put_bytes, put_list, seal, take_bytes, take_list};
use crate::version::{ChunkId, Version};
use crate::{Error, Result};

/// The first bytes of a version with the places of its chunks.
pub const MAGIC: [u8; 8] = *b"\x89UMBPLA\n";
const FORMAT: u16 = 1;
/// Chunks of versions that are remembered with their places: in some 100 MiB.
const CHUNKS_MAX: usize = 1 << 20;

pub(super) fn folder(filter: u64) -> String {
    format!("{}/{filter:016x}", super::VERSIONS)
}

pub(super) fn making_folder(filter: u64, making: Making) -> String {
    format!("{}/{making}", folder(filter))
}

pub(super) fn record_name(filter: u64, making: Making) -> String {
    format!("{}/{making}.version", folder(filter))
}

pub(super) fn chunk_name(filter: u64, making: Making, id: ChunkId) -> String {
    format!("{}/{id}", making_folder(filter, making))
}

/// A version and where its chunks are.
#[derive(Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) making: Making,
    pub(super) version: Version,
    /// For which making each chunk was written.
    places: HashMap<ChunkId, Making>,
}

impl Placed {
    /// A version that was made from another one: chunks that this one has were not written again.
    pub(super) fn new(version: Version, making: Making, base: Option<&Self>) -> Self {
        let place = |id: ChunkId| (id, base.and_then(|base| base.place(id)).unwrap_or(making));
        Self { making, places: version.chunks().map(place).collect(), version }
    }

    /// For which making a chunk was written; none if it is no chunk of this version.
    pub(super) fn place(&self, id: ChunkId) -> Option<Making> {
        self.places.get(&id).copied()
    }

    /// All chunks and their places.
    pub(super) fn places(&self) -> impl Iterator<Item = (ChunkId, Making)> {
        self.places.iter().map(|(id, making)| (*id, *making))
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let makings: Vec<Making> =
            self.places.values().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let mut chunks: Vec<_> = self.places().collect();
        chunks.sort_unstable();
        let mut out = Vec::from(MAGIC);
        out.extend(FORMAT.to_le_bytes());
        out.extend([0; 2]);
        put_making(&mut out, &self.making);
        put_list(&mut out, &makings, put_making);
        put_list(&mut out, &chunks, |out, (_, making)| {
            let number = makings.partition_point(|other| other < making);
            out.extend((number as u32).to_le_bytes());
        });
        put_bytes(&mut out, &self.version.encode()?);
        seal(&mut out);
        Ok(out)
    }

    pub(super) fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let mut fields = Fields::checked(bytes, name, MAGIC, FORMAT)?;
        if fields.take::<2>()? != [0; 2] {
            return Err(fields.corrupt("reserved bytes that are not zero"));
        }
        let making = take_making(&mut fields)?;
        let makings = take_list(&mut fields, take_making)?;
        let places = take_list(&mut fields, |fields| {
            let number = fields.u32()? as usize;
            makings.get(number).copied().ok_or_else(|| fields.corrupt("a place that is not in the list"))
        })?;
        let version = Version::decode(take_bytes(&mut fields)?, name)?;
        fields.end()?;
        let ids: BTreeSet<ChunkId> = version.chunks().collect();
        if ids.len() != places.len() || version.number != making.number {
            return Err(Error::Corrupt(format!("{name}: its places are not those of its chunks")));
        }
        Ok(Self { making, places: ids.into_iter().zip(places).collect(), version })
    }
}

/// The version in a file of a cluster's blobs; `name` is for messages.
pub fn placed_version(bytes: &[u8], name: &str) -> Result<Version> {
    Ok(Placed::decode(bytes, name)?.version)
}

fn put_making(out: &mut Vec<u8>, making: &Making) {
    out.extend(making.number.to_le_bytes());
    out.extend(making.nonce.to_le_bytes());
}

fn take_making(fields: &mut Fields<'_>) -> Result<Making> {
    Ok(Making { number: fields.u64()?, nonce: fields.u32()? })
}

/// Versions that were read lately. What is in them never changes.
#[derive(Debug, Default)]
pub(in crate::engine) struct Shelf(Mutex<VecDeque<Arc<Placed>>>);

impl Shelf {
    /// A version that is remembered.
    pub(super) fn get(&self, filter: u64, making: Making) -> Option<Arc<Placed>> {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |placed: &Arc<Placed>| placed.version.filter == filter && placed.making == making;
        let at = shelf.iter().position(is_it)?;
        let found = shelf.remove(at)?;
        shelf.push_front(Arc::clone(&found));
        Some(found)
    }

    /// The version of a filter that has a chunk, of those that are remembered.
    pub(super) fn with_chunk(&self, filter: u64, id: ChunkId) -> Option<Making> {
        let shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.iter().filter(|placed| placed.version.filter == filter).find_map(|placed| placed.place(id))
    }

    /// Remembers a version. Those that were not asked for lately go.
    pub(super) fn put(&self, placed: &Arc<Placed>) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.push_front(Arc::clone(placed));
        let mut left = CHUNKS_MAX;
        let fits = shelf.iter().take_while(|placed| {
            // One without chunks takes a little, too.
            let fits = left > placed.places.len();
            left = left.saturating_sub(placed.places.len() + 1);
            fits
        });
        let fits = fits.count().max(1);
        shelf.truncate(fits);
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::Spec;

    use super::*;
    use crate::Position;
    use crate::definition::Definition;
    use crate::version::{VersionLayer, VersionShard};

    fn version(number: u64, chunks: &[&[u8]]) -> Version {
        let chunks = chunks.iter().map(|bytes| Some(ChunkId::of(bytes))).chain([None]).collect();
        let layers = vec![VersionLayer { outline: vec![1, 2, 3], chunks }];
        Version {
            filter: 7,
            number,
            made_ms: 5,
            partitions: 4,
            definition: Definition::new("f", Spec::bloom(100, 0.01)),
            shards: vec![VersionShard { slot: 2, position: Position::from_number(9), items: 3, layers }],
        }
    }

    #[test]
    fn chunks_stay_where_they_were_written() {
        let (first, second) = (Making { number: 1, nonce: 8 }, Making { number: 2, nonce: 3 });
        let one = Placed::new(version(1, &[b"a", b"b"]), first, None);
        let two = Placed::new(version(2, &[b"b", b"c", b"b"]), second, Some(&one));
        assert_eq!(two.place(ChunkId::of(b"b")), Some(first));
        assert_eq!(two.place(ChunkId::of(b"c")), Some(second));
        assert_eq!(two.place(ChunkId::of(b"a")), None);
        let bytes = two.encode().unwrap();
        assert_eq!(Placed::decode(&bytes, "it").unwrap(), two);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Placed::decode(&damaged, "it").is_err(), "byte {at}");
            assert!(Placed::decode(&bytes[..at], "it").is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let shelf = Shelf::default();
        for number in 1..=4 {
            let names: Vec<Vec<u8>> =
                (0..CHUNKS_MAX / 3).map(|n| (n as u64).to_le_bytes().to_vec()).collect();
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let making = Making { number, nonce: 0 };
            shelf.put(&Arc::new(Placed::new(version(number, &names), making, None)));
            assert!(shelf.get(7, making).is_some());
        }
        assert!(shelf.get(7, Making { number: 1, nonce: 0 }).is_none());
        assert_eq!(
            shelf.with_chunk(7, ChunkId::of(&0_u64.to_le_bytes())),
            Some(Making { number: 4, nonce: 0 })
        );
        assert_eq!(shelf.with_chunk(8, ChunkId::of(&0_u64.to_le_bytes())), None);
    }
}
