//! Versions of filters: made from checkpoints, kept as blobs.

mod known;
mod listing;
mod nodes;
mod placed;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::checkpoint::{put_new, read};
use super::handle::Handle;
use super::requests::{Token, check_has_array, gone};
use super::stored::{BlockAt, Stored, StoredLayer, read_blocks};
use super::{Engine, Shared};
use crate::version::{CHUNK_BLOCKS, CHUNK_BYTES_MAX, ChunkId, Version, VersionLayer, VersionShard, chunk};
use crate::{Error, Position, Result};
pub(super) use known::Known;
use known::{LayerAt, Users};
pub(super) use listing::Listings;
pub use listing::{Current, Making, Pin};
pub use nodes::Publication;
use placed::Placed;
pub(super) use placed::Shelf;
pub use placed::{MAGIC as PLACED_MAGIC, placed_version};

const VERSIONS: &str = "versions";
const CHUNKS: &str = "chunks";
/// How often a slot is looked at again whose arrays were replaced meanwhile.
const ATTEMPTS: usize = 4;
/// Slots that are published at the same time.
const SLOTS_AT_ONCE: usize = 16;

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

/// Where chunks of a version are written, and which are there already.
struct Target<'a> {
    known: &'a Known,
    /// Where several nodes make versions: the one that is made, and the one that it is made from.
    made: Option<(Making, Option<&'a Placed>)>,
}

impl Target<'_> {
    fn is_there(&self, id: ChunkId) -> bool {
        match self.made {
            None => self.known.is_there(id),
            Some((_, base)) => base.is_some_and(|base| base.place(id).is_some()),
        }
    }

    fn name(&self, filter: u64, id: ChunkId) -> String {
        match self.made {
            None => chunk_name(id),
            Some((making, _)) => placed::chunk_name(filter, making, id),
        }
    }
}

/// What came of publishing.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The filter as it is.
    pub version: Version,
    /// Whether it was made for this; if not, nothing had changed since.
    pub is_new: bool,
}

impl Version {
    /// Whether it has everything of the filter that a token has seen. Partitions without the filter do not matter.
    pub fn includes(&self, token: &Token) -> bool {
        self.token().positions().all(|(partition, position)| position >= token.position(partition))
    }

    /// Whether there is nothing in it that the other one has not, nor less.
    fn has_content_of(&self, other: &Self) -> bool {
        let items = |version: &Self| version.shards.iter().map(|shard| shard.items).collect::<Vec<_>>();
        self.definition == other.definition
            && self.partitions == other.partitions
            && items(self) == items(other)
            && self.digest() == other.digest()
    }
}

impl Engine {
    /// A version of a filter as it is now: the newest one, if nothing changed since.
    pub async fn publish(&self, filter: &Arc<Handle>) -> Result<Version> {
        Ok(self.publish_at_least(filter, None).await?.version)
    }

    /// A version of a filter as it is now, with everything that a token has seen. The newest one is given again if it has that and
    /// nothing changed since; chunks that did not change are not written again, nor read.
    pub async fn publish_at_least(
        &self,
        filter: &Arc<Handle>,
        at_least: Option<&Token>,
    ) -> Result<Published> {
        let shared = &self.shared;
        check_has_array(&filter.definition())?;
        let nothing = Token::default();
        let at_least = at_least.unwrap_or(&nothing);
        self.reached(at_least).await?;
        if let Some((cluster, listings)) = shared.nodes() {
            return shared.publish_in_nodes(cluster, listings, filter, at_least).await;
        }
        // Whoever removes chunks that nobody needs would take those of a version that is not written yet.
        let known = &mut *shared.versions.lock().await;
        if known.users.is_none() {
            // Without it more is read. Whoever removes chunks has to know, and says what is wrong.
            known.users = shared.users().await.ok();
        }
        let published = shared.publish(known, filter, at_least).await;
        if published.is_err() {
            known.is_swept = false;
        }
        published
    }

    /// The numbers of a filter's versions, in order.
    pub async fn versions(&self, filter: u64) -> Result<Vec<u64>> {
        match &self.shared.listings {
            None => self.shared.versions(filter).await,
            Some(listings) => {
                let listing = listings.of(filter).await?;
                Ok(listing.versions.iter().map(|listed| listed.making.number).collect())
            }
        }
    }

    /// A version.
    pub async fn version(&self, filter: u64, number: u64) -> Result<Version> {
        match &self.shared.listings {
            None => self.shared.version(filter, number).await,
            Some(listings) => self.shared.placed_version(listings, filter, number).await,
        }
    }

    /// A chunk of some version of a filter; none if there is no such chunk. Where one engine makes all versions, filters share chunks.
    pub async fn chunk(&self, filter: u64, id: ChunkId) -> Result<Option<Bytes>> {
        match &self.shared.listings {
            None => self.shared.read_chunk(&chunk_name(id), id).await,
            Some(listings) => self.shared.placed_chunk(listings, filter, id).await,
        }
    }

    /// Removes versions of a filter but for these, those of filters that are gone, and all chunks that no version of any filter needs
    /// then. Gives how many chunks went. In a cluster the newest version and what is or was pinned stay in any case.
    pub async fn keep_versions(&self, filter: u64, kept: &[u64]) -> Result<usize> {
        if let Some((_, listings)) = self.shared.nodes() {
            return self.shared.keep_in_nodes(listings, filter, kept).await;
        }
        let known = &mut *self.shared.versions.lock().await;
        let removed = self.shared.keep_versions(known, filter, kept).await;
        if removed.is_err() {
            // What is there now is not known: the next one looks again.
            *known = Known::default();
        }
        removed
    }
}

impl Shared {
    /// The bytes of a chunk; none if there is no such blob.
    async fn read_chunk(&self, name: &str, id: ChunkId) -> Result<Option<Bytes>> {
        let failed = |error: object_store::Error| Error::blob(format!("cannot read {name}"), &error);
        let found = match self.blobs.get(&Path::from(name)).await {
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

    async fn versions(&self, filter: u64) -> Result<Vec<u64>> {
        let names = self.list(&folder(filter)).await?;
        let number = |path: &Path| path.filename()?.strip_suffix(".version")?.parse().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    async fn version(&self, filter: u64, number: u64) -> Result<Version> {
        let name = version_name(filter, number);
        Version::decode(&read(&*self.blobs, &name).await?, &name)
    }

    async fn list(&self, folder: &str) -> Result<Vec<Path>> {
        let listed = self.blobs.list(Some(&Path::from(folder))).map_ok(|found| found.location).try_collect();
        listed.await.map_err(|error| Error::blob(format!("cannot list {folder}"), &error))
    }

    async fn delete(&self, path: &Path) -> Result<()> {
        self.claimed()?;
        match self.blobs.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::blob(format!("cannot remove {path}"), &error)),
        }
    }

    /// Makes a version, unless the newest one is the same.
    async fn publish(&self, known: &mut Known, filter: &Arc<Handle>, at_least: &Token) -> Result<Published> {
        // Before anything of it is read: a version is at least as new as it says.
        let made_ms = self.clock.unix_millis();
        let last = self.versions(filter.id()).await?.last().copied();
        // Each of them waits for disks or networks several times.
        let target = Target { known, made: None };
        let slots = stream::iter(filter.slots()).map(|slot| {
            let at_least = at_least.position(self.lane(slot).partition);
            self.publish_slot(&target, filter, slot, at_least)
        });
        let published: Vec<_> = slots.buffered(SLOTS_AT_ONCE).try_collect().await?;
        let shards = known.remember_all(filter.id(), published);
        let version = Version {
            filter: filter.id(),
            number: last.map_or(1, |last| last + 1),
            made_ms,
            partitions: self.lanes.len() as u32,
            definition: (*filter.definition()).clone(),
            shards,
        };
        if let Some(last) = last {
            match self.version(filter.id(), last).await {
                Ok(newest) => {
                    let is_enough = newest.includes(at_least) && newest.has_content_of(&version);
                    if is_enough && self.can_follow(&newest, &version.token()).await? {
                        return Ok(Published { version: newest, is_new: false });
                    }
                }
                // One that is damaged does not stand in the way of the next.
                Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        put_new(&*self.blobs, &version_name(version.filter, version.number), version.encode()?).await?;
        if let Some(users) = &mut known.users {
            users.add(&version);
        }
        Ok(Published { version, is_new: true })
    }

    /// Whether the log still has what came after a version up to now, and says what that did: without that, nobody could go on from it.
    async fn can_follow(&self, version: &Version, now: &Token) -> Result<bool> {
        let followed = version.definition.mirrors.map(|mirror| mirror.of);
        for (partition, position) in version.token().positions() {
            let oldest = self.log.bounds(partition).await?.oldest;
            if position < oldest || !self.log.holds(partition, position).await? {
                return Ok(false);
            }
            if let Some(followed) = followed
                && !self
                    .leaves_followers_alone(followed, partition, position, now.position(partition))
                    .await?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A slot's part of a filter, and what its layers were made from.
    async fn publish_slot(
        &self,
        target: &Target<'_>,
        filter: &Arc<Handle>,
        number: u16,
        at_least: Position,
    ) -> Result<(VersionShard, Vec<StoredLayer>)> {
        for _ in 0..ATTEMPTS {
            self.checkpoint(number).await?;
            let _reader = self.reading[usize::from(number)].begin();
            let Some((stored, position)) = self.stored(filter, number).await? else { continue };
            if position < at_least {
                continue;
            }
            let mut layers = Vec::new();
            for (layer, stored) in stored.layers.iter().enumerate() {
                layers.push(self.publish_layer(target, (filter.id(), number, layer), stored).await?);
            }
            let shard = VersionShard { slot: number, position, items: stored.counts.items, layers };
            return Ok((shard, stored.layers));
        }
        let name = &filter.definition().name;
        Err(Error::Retry(format!("the filter {name} changes so fast that there is no version of it yet")))
    }

    /// What the newest checkpoint has of a filter, and up to where that is everything; none if the arrays were replaced since.
    async fn stored(&self, filter: &Arc<Handle>, number: u16) -> Result<Option<(Stored, Position)>> {
        let mut turn = self.lane(number).turn.lock().await;
        let folded = (!turn.uncertain).then_some(turn.applied);
        let slot = turn.slot(self, number).ok_or_else(|| gone(filter))?;
        if slot.state.shard(filter.id()).is_none() {
            return Err(gone(filter));
        }
        let newest = slot.kept.last().map(|kept| kept.position);
        let (Some(stored), Some(newest)) = (slot.stored.get(&filter.id()), newest) else { return Ok(None) };
        // If nothing came for this slot since, the checkpoint has everything that was folded.
        let position = folded.filter(|_| slot.last_entry <= newest).map_or(newest, |all| all.max(newest));
        Ok(Some((stored.clone(), position)))
    }

    async fn publish_layer(
        &self,
        target: &Target<'_>,
        at: LayerAt,
        layer: &StoredLayer,
    ) -> Result<VersionLayer> {
        let mut chunks = Vec::with_capacity(layer.blocks.len().div_ceil(CHUNK_BLOCKS));
        for (part, places) in layer.blocks.chunks(CHUNK_BLOCKS).enumerate() {
            chunks.push(match target.known.chunk(at, part, places, |id| target.is_there(id)) {
                Some(id) => id,
                None => self.publish_chunk(target, at.0, part, places).await?,
            });
        }
        Ok(VersionLayer { outline: layer.outline.clone(), chunks })
    }

    /// The chunk of some blocks, read and, if it is not there, written.
    async fn publish_chunk(
        &self,
        target: &Target<'_>,
        filter: u64,
        part: usize,
        places: &[Option<BlockAt>],
    ) -> Result<Option<ChunkId>> {
        let mut blocks = vec![Vec::new(); places.len()];
        let first = part * CHUNK_BLOCKS;
        let placed: Vec<_> =
            places.iter().enumerate().filter_map(|(n, at)| Some((first + n, at.as_ref()?))).collect();
        let take = |number: usize, block: &[u8]| {
            blocks[number - first] = block.to_vec();
            true
        };
        read_blocks(&*self.blobs, &placed, take).await?;
        let Some(bytes) = chunk(&blocks) else { return Ok(None) };
        let id = ChunkId::of(&bytes);
        if !target.is_there(id) {
            let path = Path::from(target.name(filter, id));
            let is_there = self.blobs.head(&path).await.is_ok_and(|there| there.size == bytes.len() as u64);
            if !is_there {
                let put = self.blobs.put(&path, PutPayload::from(bytes)).await;
                put.map_err(|error| Error::blob(format!("cannot put {path}"), &error))?;
            }
        }
        Ok(Some(id))
    }

    async fn keep_versions(&self, known: &mut Known, filter: u64, kept: &[u64]) -> Result<usize> {
        if known.users.is_none() {
            known.users = Some(self.users().await?);
        }
        let Known { users: Some(users), is_swept, .. } = known else { return Ok(0) };
        let is_gone = |id: &u64| self.directory.numbered(*id).is_none();
        let gone: Vec<u64> = users.filters.iter().copied().filter(is_gone).collect();
        let mut removed = 0;
        for id in gone.iter().copied().chain([filter]) {
            let stays = |number: u64| id == filter && !gone.contains(&id) && kept.contains(&number);
            for number in self.versions(id).await? {
                if stays(number) {
                    continue;
                }
                let version = self.version(id, number).await?;
                self.delete(&Path::from(version_name(id, number))).await?;
                for chunk in users.remove(&version) {
                    self.delete(&Path::from(chunk_name(chunk))).await?;
                    removed += 1;
                }
            }
        }
        gone.iter().for_each(|id| _ = users.filters.remove(id));
        if !*is_swept {
            removed += self.sweep(users).await?;
            *is_swept = true;
        }
        Ok(removed)
    }

    /// Who needs which chunk, from all versions.
    async fn users(&self) -> Result<Users> {
        let mut users = Users::default();
        for path in self.list(VERSIONS).await? {
            let name = path.to_string();
            users.add(&Version::decode(&read(&*self.blobs, &name).await?, &name)?);
        }
        Ok(users)
    }

    /// Removes chunks that nobody needs: what is left of versions that were not finished.
    async fn sweep(&self, users: &Users) -> Result<usize> {
        let mut removed = 0;
        for path in self.list(CHUNKS).await? {
            let id = path.filename().and_then(|name| name.parse::<ChunkId>().ok());
            if !id.is_some_and(|id| users.need(id)) {
                self.delete(&path).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}
