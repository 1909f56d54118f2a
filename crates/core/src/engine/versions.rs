//! Versions of filters: made from checkpoints, kept as blobs.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::checkpoint::{put_new, read};
use super::handle::Handle;
use super::requests::{check_has_array, gone};
use super::stored::{StoredLayer, read_blocks};
use super::{Engine, Shared};
use crate::version::{CHUNK_BLOCKS, CHUNK_BYTES_MAX, ChunkId, Version, VersionLayer, VersionShard, chunk};
use crate::{Error, Result};

const VERSIONS: &str = "versions";
const CHUNKS: &str = "chunks";

fn folder(filter: u64) -> String {
    format!("{VERSIONS}/{filter:016x}")
}

fn version_name(filter: u64, number: u64) -> String {
    format!("{}/{number:012}.version", folder(filter))
}

/// Chunks are many: the first two digits spread them over folders.
fn chunk_name(id: ChunkId) -> String {
    let id = id.to_string();
    format!("{CHUNKS}/{}/{id}", &id[..2])
}

impl Engine {
    /// Makes a version of a filter as it is now. What did not change since another version is not written again.
    pub async fn publish(&self, filter: &Arc<Handle>) -> Result<Version> {
        let shared = &self.shared;
        let definition = filter.definition();
        check_has_array(&definition)?;
        // Whoever removes chunks that nobody needs would take those of a version that is not written yet.
        let _alone = shared.versions.lock().await;
        let number = self.versions(filter.id()).await?.last().map_or(1, |last| last + 1);
        let mut shards = Vec::new();
        for slot in filter.slots() {
            shards.push(shared.publish_slot(filter, slot).await?);
        }
        let made_ms = shared.clock.unix_millis();
        let version = Version {
            filter: filter.id(),
            number,
            made_ms,
            partitions: shared.lanes.len() as u32,
            definition: (*filter.definition()).clone(),
            shards,
        };
        put_new(&*shared.blobs, &version_name(version.filter, number), version.encode()?).await?;
        Ok(version)
    }

    /// The numbers of a filter's versions, in order.
    pub async fn versions(&self, filter: u64) -> Result<Vec<u64>> {
        let names = self.shared.list(&folder(filter)).await?;
        let number = |path: &Path| path.filename()?.strip_suffix(".version")?.parse().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A version.
    pub async fn version(&self, filter: u64, number: u64) -> Result<Version> {
        let name = version_name(filter, number);
        Version::decode(&read(&*self.shared.blobs, &name).await?, &name)
    }

    /// A chunk of some version; none if there is no such chunk.
    pub async fn chunk(&self, id: ChunkId) -> Result<Option<Bytes>> {
        let name = chunk_name(id);
        let failed = |error: object_store::Error| Error::blob(format!("cannot read {name}"), &error);
        let found = match self.shared.blobs.get(&Path::from(name.as_str())).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(failed)?,
        };
        if found.meta.size > CHUNK_BYTES_MAX as u64 {
            return Err(Error::Corrupt(format!("{name} has {} bytes, more than any chunk", found.meta.size)));
        }
        let bytes = found.bytes().await.map_err(failed)?;
        if ChunkId::of(&bytes) != id {
            return Err(Error::Corrupt(format!("{name}: its bytes are not those that it is named after")));
        }
        Ok(Some(bytes))
    }

    /// Removes versions of a filter but for these, and all chunks that no version of any filter needs. Gives how many chunks went.
    pub async fn keep_versions(&self, filter: u64, kept: &[u64]) -> Result<usize> {
        let _alone = self.shared.versions.lock().await;
        for number in self.versions(filter).await? {
            if !kept.contains(&number) {
                self.shared.delete(&Path::from(version_name(filter, number))).await?;
            }
        }
        self.shared.remove_chunks().await
    }
}

impl Shared {
    async fn list(&self, folder: &str) -> Result<Vec<Path>> {
        let listed = self.blobs.list(Some(&Path::from(folder))).map_ok(|found| found.location).try_collect();
        listed.await.map_err(|error| Error::blob(format!("cannot list {folder}"), &error))
    }

    async fn delete(&self, path: &Path) -> Result<()> {
        match self.blobs.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::blob(format!("cannot remove {path}"), &error)),
        }
    }

    /// A slot's part of a filter, from a checkpoint that is made for it.
    async fn publish_slot(&self, filter: &Arc<Handle>, number: u16) -> Result<VersionShard> {
        self.checkpoint(number).await?;
        let _reader = self.reading[usize::from(number)].begin();
        let (stored, position) = {
            let mut turn = self.lane(number).turn.lock().await;
            let slot = turn.slot(self, number).ok_or_else(|| gone(filter))?;
            let stored = slot.stored.get(&filter.id()).cloned().ok_or_else(|| gone(filter))?;
            let newest = slot.kept.last().ok_or_else(|| gone(filter))?;
            (stored, newest.position)
        };
        let mut layers = Vec::new();
        for layer in &stored.layers {
            layers.push(self.publish_layer(layer).await?);
        }
        Ok(VersionShard { slot: number, position, items: stored.counts.items, layers })
    }

    async fn publish_layer(&self, layer: &StoredLayer) -> Result<VersionLayer> {
        let mut chunks = Vec::new();
        for (part, places) in layer.blocks.chunks(CHUNK_BLOCKS).enumerate() {
            let mut blocks = vec![Vec::new(); places.len()];
            let first = part * CHUNK_BLOCKS;
            let placed: Vec<_> =
                places.iter().enumerate().filter_map(|(n, at)| Some((first + n, at.as_ref()?))).collect();
            let take = |number: usize, block: &[u8]| {
                blocks[number - first] = block.to_vec();
                true
            };
            read_blocks(&*self.blobs, &placed, take).await?;
            let Some((id, bytes)) = chunk(&blocks) else {
                chunks.push(None);
                continue;
            };
            let path = Path::from(chunk_name(id));
            let is_there = self.blobs.head(&path).await.is_ok_and(|there| there.size == bytes.len() as u64);
            if !is_there {
                let put = self.blobs.put(&path, PutPayload::from(bytes)).await;
                put.map_err(|error| Error::blob(format!("cannot put {path}"), &error))?;
            }
            chunks.push(Some(id));
        }
        Ok(VersionLayer { outline: layer.outline.clone(), chunks })
    }

    /// Removes versions of filters that are gone, and chunks that no version needs.
    async fn remove_chunks(&self) -> Result<usize> {
        let mut needed = HashSet::new();
        for path in self.list(VERSIONS).await? {
            let name = path.to_string();
            let version = Version::decode(&read(&*self.blobs, &name).await?, &name)?;
            if self.directory.numbered(version.filter).is_none() {
                self.delete(&path).await?;
                continue;
            }
            needed.extend(version.chunks());
        }
        let mut removed = 0;
        for path in self.list(CHUNKS).await? {
            let id = path.filename().and_then(|name| name.parse::<ChunkId>().ok());
            if !id.is_some_and(|id| needed.contains(&id)) {
                self.delete(&path).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}
