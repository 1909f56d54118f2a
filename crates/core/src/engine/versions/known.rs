//! What is known of chunks without reading them: the blocks that each was made of, and how many versions need it.
//!
//! All of it can be forgotten at any time. Then more is read, and nothing else changes.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::stored::{BlockAt, StoredLayer};
use crate::version::{CHUNK_BLOCKS, ChunkId, Version, VersionShard};

/// Blocks whose places are remembered: those of 64 GiB of arrays, in some 50 MiB.
const BLOCKS_MAX: usize = 1 << 20;

/// An array: its filter, slot and layer.
pub(super) type LayerAt = (u64, u16, usize);

#[derive(Debug, Default)]
pub(in crate::engine) struct Known {
    /// Arrays that were published lately.
    young: HashMap<LayerAt, Source>,
    young_blocks: usize,
    /// Those before them. They go when there are as many younger ones.
    old: HashMap<LayerAt, Source>,
    /// Who needs which chunk; nothing if the versions were not looked at yet.
    pub(super) users: Option<Users>,
    /// Whether every chunk that is there is one that somebody needs.
    pub(super) is_swept: bool,
}

/// What an array was published from.
#[derive(Debug)]
struct Source {
    /// Where its blocks were. A place is never written twice, so the same place is the same content.
    blocks: Vec<Option<BlockAt>>,
    chunks: Vec<Option<ChunkId>>,
}

impl Known {
    /// The chunk of some blocks, if they are where they were when it was made, and it is still there. The inner one is none if
    /// they are of zeros.
    pub(super) fn chunk(
        &self,
        at: LayerAt,
        part: usize,
        blocks: &[Option<BlockAt>],
        is_there: impl Fn(ChunkId) -> bool,
    ) -> Option<Option<ChunkId>> {
        if blocks.iter().all(Option::is_none) {
            return Some(None);
        }
        let source = self.young.get(&at).or_else(|| self.old.get(&at))?;
        let first = part * CHUNK_BLOCKS;
        let end = source.blocks.len().min(first + CHUNK_BLOCKS);
        if source.blocks.get(first..end)? != blocks {
            return None;
        }
        let id = *source.chunks.get(part)?;
        id.is_none_or(is_there).then_some(id)
    }

    /// Whether a version needs a chunk, so that it must be there.
    pub(super) fn is_there(&self, id: ChunkId) -> bool {
        self.users.as_ref().is_some_and(|users| users.need(id))
    }

    /// Remembers what shards of a filter were published from.
    pub(super) fn remember_all(
        &mut self,
        filter: u64,
        published: Vec<(VersionShard, Vec<StoredLayer>)>,
    ) -> Vec<VersionShard> {
        let mut shards = Vec::with_capacity(published.len());
        for (shard, stored) in published {
            for (number, (layer, stored)) in shard.layers.iter().zip(&stored).enumerate() {
                self.remember((filter, shard.slot, number), stored, &layer.chunks);
            }
            shards.push(shard);
        }
        shards
    }

    /// Remembers what an array was published from.
    pub(super) fn remember(&mut self, at: LayerAt, layer: &StoredLayer, chunks: &[Option<ChunkId>]) {
        let more = layer.blocks.len();
        if more > BLOCKS_MAX / 2 {
            return;
        }
        if self.young_blocks + more > BLOCKS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_blocks = 0;
        }
        let source = Source { blocks: layer.blocks.clone(), chunks: chunks.to_vec() };
        let before = self.young.insert(at, source);
        self.young_blocks = self.young_blocks + more - before.map_or(0, |before| before.blocks.len());
    }
}

/// How many versions need each chunk, and which filters have versions.
#[derive(Debug, Default)]
pub(super) struct Users {
    counts: HashMap<ChunkId, u32>,
    pub(super) filters: BTreeSet<u64>,
}

impl Users {
    /// Whether a version needs a chunk.
    pub(super) fn need(&self, id: ChunkId) -> bool {
        self.counts.contains_key(&id)
    }

    /// There is another version.
    pub(super) fn add(&mut self, version: &Version) {
        self.filters.insert(version.filter);
        for id in distinct(version) {
            *self.counts.entry(id).or_default() += 1;
        }
    }

    /// A version is gone. Gives the chunks that nobody needs now.
    pub(super) fn remove(&mut self, version: &Version) -> Vec<ChunkId> {
        let mut unneeded = Vec::new();
        for id in distinct(version) {
            let Some(count) = self.counts.get_mut(&id) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&id);
                unneeded.push(id);
            }
        }
        unneeded
    }
}

fn distinct(version: &Version) -> HashSet<ChunkId> {
    version.chunks().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn layer(offset: u64, blocks: usize) -> StoredLayer {
        let blob: Arc<str> = Arc::from("a blob");
        let at = |n: usize| BlockAt { blob: Arc::clone(&blob), offset: offset + n as u64, length: 1, sum: 0 };
        StoredLayer { outline: Vec::new(), blocks: (0..blocks).map(|n| Some(at(n))).collect() }
    }

    #[test]
    fn a_chunk_is_known_by_the_places_of_its_blocks_while_somebody_needs_it() {
        let mut known = Known { users: Some(Users::default()), ..Known::default() };
        let (stored, id) = (layer(0, 6), ChunkId::of(b"a chunk"));
        known.remember((1, 0, 0), &stored, &[Some(id), None]);
        let chunk = |known: &Known, at, part, blocks: &[Option<BlockAt>]| {
            known.chunk(at, part, blocks, |id| known.is_there(id))
        };
        assert_eq!(chunk(&known, (1, 0, 0), 0, &stored.blocks[..4]), None, "no version needs it");
        assert_eq!(chunk(&known, (1, 0, 0), 1, &stored.blocks[4..]), Some(None), "it has only zeros");
        known.users.as_mut().unwrap().counts.insert(id, 1);
        assert_eq!(chunk(&known, (1, 0, 0), 0, &stored.blocks[..4]), Some(Some(id)));
        assert_eq!(chunk(&known, (1, 0, 1), 0, &stored.blocks[..4]), None, "another layer");
        assert_eq!(chunk(&known, (1, 0, 0), 0, &layer(1, 4).blocks), None, "other places");
        assert_eq!(chunk(&known, (1, 0, 0), 0, &stored.blocks[..3]), None, "a part of them");
        assert_eq!(chunk(&known, (9, 9, 9), 7, &[None, None]), Some(None), "zeros are known anywhere");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Known::default();
        for filter in 0..10 {
            known.remember((filter, 0, 0), &layer(0, BLOCKS_MAX / 4), &[]);
            let sources = known.young.values().chain(known.old.values());
            let blocks: usize = sources.map(|source| source.blocks.len()).sum();
            assert!(blocks <= BLOCKS_MAX, "{blocks}");
        }
        assert!(known.young.contains_key(&(9, 0, 0)) && !known.old.contains_key(&(0, 0, 0)));
        known.remember((10, 0, 0), &layer(0, BLOCKS_MAX), &[]);
        assert!(!known.young.contains_key(&(10, 0, 0)), "it alone would be too much");
    }
}
