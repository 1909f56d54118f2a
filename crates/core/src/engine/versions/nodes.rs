//! Versions in a cluster: any node makes one, of parts that the first hosts make, and any node removes what none needs.
//!
//! ```text
//!  list: 8 is the newest --> first hosts: checkpoint, chunks that 8 lacks, under 9-0b44d2e0 --> the version --> list: 9, if 8 still is
//! ```
//!
//! Nobody has to know of versions that others are making. One of them can count only if it was made from the newest version that is
//! listed, and then it needs chunks of that one and its own: so whoever has read the list removes what was written for makings up to the
//! newest number and is not needed by a listed version. That does no harm however late it comes, because what is not needed by the newest
//! version is never needed again under its name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStore;
use object_store::path::Path;

use super::listing::{Listed, Listing, Listings, Making};
use super::placed::{Placed, chunk_name, folder, making_folder, record_name};
use super::{ATTEMPTS, Current, Pin, Published, SLOTS_AT_ONCE, Target, VERSIONS};
use crate::engine::checkpoint::{put_new, read};
use crate::engine::cluster::Cluster;
use crate::engine::gather::PartOf;
use crate::engine::handle::Handle;
use crate::engine::requests::Token;
use crate::engine::stored::StoredLayer;
use crate::engine::{Engine, Shared};
use crate::version::{ChunkId, Version, VersionShard};
use crate::{Error, Result};

/// What parts of a version are made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The filter.
    pub filter: u64,
    /// What is made.
    pub making: Making,
    /// What it is made from, if there is a version: its chunks are not written again.
    pub base: Option<Making>,
    /// What the version has to have.
    pub at_least: Token,
}

/// What other nodes ask of this one.
impl Engine {
    /// Makes parts of a version whose first host this node is: at most 16 at once.
    pub async fn publish_for_peer(
        &self,
        parts: &[PartOf],
        publication: &Publication,
    ) -> Result<Vec<VersionShard>> {
        self.shared.publish_parts(parts, publication).await
    }
}

/// What a door asks.
impl Engine {
    /// Which versions of a filter replicas are to answer from, where nodes of a cluster agree on that.
    pub async fn current_version(&self, filter: u64) -> Result<Current> {
        Ok(self.listings()?.of(filter).await?.current)
    }

    /// Pins a version, or none, if what is pinned is as expected, or nobody expects anything. With a guard, it is pinned only if that is
    /// the newest one.
    pub async fn pin_version(
        &self,
        filter: u64,
        version: Option<u64>,
        expected: Option<Option<u64>>,
        guard: Option<u64>,
    ) -> Result<Pin> {
        self.listings()?.pin(filter, version, expected, guard).await
    }

    /// Sets the version that strong replicas answer from, if it is as expected and the guard is the newest one.
    pub async fn switch_version(
        &self,
        filter: u64,
        version: u64,
        expected: Option<u64>,
        guard: u64,
    ) -> Result<Pin> {
        self.listings()?.switch(filter, version, expected, guard).await
    }

    /// Sets the guard of a filter's versions: whoever has an older one pins nothing from then on.
    pub async fn guard_versions(&self, filter: u64, guard: u64) -> Result<()> {
        self.listings()?.guard(filter, guard).await
    }

    /// The numbers of versions that were made after a time, whichever node made them.
    pub async fn versions_since(&self, filter: u64, time_ms: u64) -> Result<Vec<u64>> {
        let listed = self.listings()?.of(filter).await?.versions;
        let young = listed.iter().filter(|listed| listed.made_ms > time_ms);
        Ok(young.map(|listed| listed.making.number).collect())
    }

    fn listings(&self) -> Result<&Listings> {
        let none = || Error::Invalid("this engine is no node of a cluster".into());
        self.shared.listings.as_ref().ok_or_else(none)
    }
}

impl Shared {
    /// The other nodes and what they agree on, if there are any.
    pub(super) fn nodes(&self) -> Option<(&dyn Cluster, &Listings)> {
        Some((&**self.cluster.as_ref()?, self.listings.as_ref()?))
    }

    /// A version with the places of its chunks.
    async fn placed(&self, filter: u64, making: Making) -> Result<Arc<Placed>> {
        if let Some(found) = self.shelf.get(filter, making) {
            return Ok(found);
        }
        let name = record_name(filter, making);
        let placed = Placed::decode(&read(&*self.blobs, &name).await?, &name)?;
        if placed.making != making || placed.version.filter != filter {
            return Err(Error::Corrupt(format!("{name}: it is another version")));
        }
        let placed = Arc::new(placed);
        self.shelf.put(&placed);
        Ok(placed)
    }

    pub(super) async fn placed_version(
        &self,
        listings: &Listings,
        filter: u64,
        number: u64,
    ) -> Result<Version> {
        let making = listings.of(filter).await?.numbered(number);
        let none = || Error::Invalid(format!("there is no version {number}"));
        Ok(self.placed(filter, making.ok_or_else(none)?).await?.version.clone())
    }

    pub(super) async fn placed_chunk(
        &self,
        listings: &Listings,
        filter: u64,
        id: ChunkId,
    ) -> Result<Option<Bytes>> {
        if let Some(making) = self.shelf.with_chunk(filter, id)
            && let Some(bytes) = self.read_chunk(&chunk_name(filter, making, id), id).await?
        {
            return Ok(Some(bytes));
        }
        // A version that this node has not read yet may have it, or have it elsewhere.
        for listed in listings.of(filter).await?.versions.iter().rev() {
            let placed = match self.placed(filter, listed.making).await {
                Ok(placed) => placed,
                // Somebody else removed it meanwhile, or it is damaged: others may have the chunk.
                Err(Error::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            };
            if let Some(making) = placed.place(id) {
                return self.read_chunk(&chunk_name(filter, making, id), id).await;
            }
        }
        Ok(None)
    }

    /// Makes a version, unless the newest one is the same.
    pub(super) async fn publish_in_nodes(
        &self,
        cluster: &dyn Cluster,
        listings: &Listings,
        filter: &Arc<Handle>,
        at_least: &Token,
    ) -> Result<Published> {
        let id = filter.id();
        let parts: Vec<PartOf> = filter.slots().map(|slot| self.part_of(filter, slot)).collect();
        for _ in 0..ATTEMPTS {
            // Before anything of it is read: a version is at least as new as it says.
            let made_ms = self.clock.unix_millis();
            let newest = listings.of(id).await?.newest();
            let is_overtaken = async || Ok::<_, Error>(listings.of(id).await?.newest() != newest);
            let base = match newest {
                None => None,
                Some(newest) => match self.placed(id, newest).await {
                    Ok(base) => Some(base),
                    Err(Error::Corrupt(_)) if is_overtaken().await? => continue,
                    // One that is damaged does not stand in the way of the next.
                    Err(Error::Corrupt(_)) => None,
                    Err(error) => return Err(error),
                },
            };
            let number = match newest {
                Some(newest) => newest.number + 1,
                None => self.last_number(id).await? + 1,
            };
            let making = Making { number, nonce: self.random.next() as u32 };
            let publication = Publication {
                filter: id,
                making,
                base: base.as_ref().map(|base| base.making),
                at_least: at_least.clone(),
            };
            let shards = match cluster.publish(&parts, &publication).await {
                Ok(shards) => shards,
                Err(Error::Retry(_)) if is_overtaken().await? => continue,
                Err(error) => return Err(error),
            };
            if !shards.iter().map(|shard| shard.slot).eq(filter.slots()) {
                return Err(Error::Retry("other nodes made more or fewer parts than there are".into()));
            }
            let version = Version {
                filter: id,
                number,
                made_ms,
                partitions: self.lanes.len() as u32,
                definition: (*filter.definition()).clone(),
                shards,
            };
            if let Some(base) = &base {
                let newest = &base.version;
                let is_enough = newest.includes(at_least) && newest.has_content_of(&version);
                if is_enough && self.can_follow(newest, &version.token()).await? {
                    return Ok(Published { version: newest.clone(), is_new: false });
                }
            }
            let placed = Arc::new(Placed::new(version, making, base.as_deref()));
            put_new(&*self.blobs, &record_name(id, making), placed.encode()?).await?;
            if listings.commit(id, newest, Listed { making, made_ms }).await? {
                self.shelf.put(&placed);
                return Ok(Published { version: placed.version.clone(), is_new: true });
            }
        }
        let name = &filter.definition().name;
        Err(Error::Retry(format!("other nodes make versions of {name} all the time")))
    }

    /// The greatest number that a version of a filter ever had, or was to have: by what was written, if the registry was lost.
    async fn last_number(&self, filter: u64) -> Result<u64> {
        let (records, folders) = self.makings(filter).await?;
        Ok(records.iter().chain(&folders).map(|making| making.number).max().unwrap_or(0))
    }

    /// Makings of a filter of which something was written: those with a version, and those with chunks.
    async fn makings(&self, filter: u64) -> Result<(Vec<Making>, Vec<Making>)> {
        let folder = folder(filter);
        let listed = self.blobs.list_with_delimiter(Some(&Path::from(folder.as_str()))).await;
        let listed = listed.map_err(|error| Error::blob(format!("cannot list {folder}"), &error))?;
        let record = |path: &Path| path.filename()?.strip_suffix(".version")?.parse().ok();
        let records = listed.objects.iter().filter_map(|found| record(&found.location)).collect();
        let folders =
            listed.common_prefixes.iter().filter_map(|path| path.filename()?.parse().ok()).collect();
        Ok((records, folders))
    }

    /// Makes parts of a version whose first host this node is.
    async fn publish_parts(&self, parts: &[PartOf], publication: &Publication) -> Result<Vec<VersionShard>> {
        let Publication { filter, making, base, at_least } = publication;
        if parts.len() > SLOTS_AT_ONCE || parts.iter().any(|part| part.filter != *filter) {
            return Err(Error::Invalid(format!("at most {SLOTS_AT_ONCE} parts of one filter at once")));
        }
        let known = &mut *self.versions.lock().await;
        let base = match base {
            None => None,
            Some(base) => Some(self.placed(*filter, *base).await.map_err(|error| match error {
                Error::Corrupt(why) => Error::Retry(format!("what a version is made from is gone: {why}")),
                other => other,
            })?),
        };
        let target = Target { known, made: Some((*making, base.as_deref())) };
        let made = stream::iter(parts.iter().copied()).map(|part| self.publish_part(&target, part, at_least));
        let made: Vec<_> = made.buffered(SLOTS_AT_ONCE).try_collect().await?;
        Ok(known.remember_all(*filter, made))
    }

    async fn publish_part(
        &self,
        target: &Target<'_>,
        part: PartOf,
        at_least: &Token,
    ) -> Result<(VersionShard, Vec<StoredLayer>)> {
        let filter = self.proven_part(part).await?;
        let lane = self.hosting(part.partition)?;
        // All that was acknowledged, and what somebody has seen.
        let at_least = at_least.position(part.partition).max(lane.applied());
        let is_not_first = || Error::Moved(format!("partition {} has another first host", part.partition));
        if !self.is_first(part.partition) {
            return Err(is_not_first());
        }
        match self.publish_slot(target, &filter, part.slot, at_least).await {
            // Whoever is the first host now makes it.
            Err(Error::Retry(_)) if !self.is_first(part.partition) => Err(is_not_first()),
            // Another node made a checkpoint since the one that is known here, which is taken over first.
            Err(error @ Error::Moved(_)) => {
                lane.is_outdated.store(true, Ordering::Relaxed);
                self.work.ring_for_followers();
                Err(error)
            }
            made => made.map_err(|error| lane.unless_outdated(self, error)),
        }
    }

    pub(super) async fn keep_in_nodes(
        &self,
        listings: &Listings,
        filter: u64,
        kept: &[u64],
    ) -> Result<usize> {
        let listing = listings.retain(filter, kept).await?;
        Ok(self.sweep_filter(filter, &listing).await? + self.sweep_gone(listings).await?)
    }

    /// Removes what was written for versions of a filter and is not needed by those that are listed.
    async fn sweep_filter(&self, filter: u64, listing: &Listing) -> Result<usize> {
        let Some(newest) = listing.newest() else { return Ok(0) };
        let mut needed: HashMap<Making, HashSet<ChunkId>> = HashMap::new();
        for listed in &listing.versions {
            for (id, making) in self.placed(filter, listed.making).await?.places() {
                needed.entry(making).or_default().insert(id);
            }
        }
        let is_needed =
            |id: ChunkId, making: Making| needed.get(&making).is_some_and(|ids| ids.contains(&id));
        // What has a greater number may come to be listed.
        let is_over = |making: &Making| making.number <= newest.number;
        let (records, folders) = self.makings(filter).await?;
        let mut removed = 0;
        for making in records.into_iter().filter(|making| is_over(making) && !listing.counts(*making)) {
            match self.placed(filter, making).await {
                Ok(gone) => {
                    for (id, at) in gone.places().filter(|(id, at)| !is_needed(*id, *at)) {
                        self.delete(&Path::from(chunk_name(filter, at, id))).await?;
                        removed += 1;
                    }
                }
                // Its own chunks go with their folder.
                Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
            // Last: as long as it is there, somebody can find out what belonged to it.
            self.delete(&Path::from(record_name(filter, making))).await?;
        }
        for making in folders.into_iter().filter(|making| is_over(making) && !needed.contains_key(making)) {
            removed += self.delete_all(&making_folder(filter, making)).await?;
        }
        Ok(removed)
    }

    /// Removes versions of filters that are gone.
    async fn sweep_gone(&self, listings: &Listings) -> Result<usize> {
        let listed = self.blobs.list_with_delimiter(Some(&Path::from(VERSIONS))).await;
        let listed = listed.map_err(|error| Error::blob(format!("cannot list {VERSIONS}"), &error))?;
        // Whoever wrote a version of a filter knew it: it is in the catalog by now, or was.
        self.prove_catalog().await?;
        let mut removed = 0;
        for path in listed.common_prefixes {
            let id = path.filename().and_then(|name| u64::from_str_radix(name, 16).ok());
            let Some(id) = id.filter(|id| self.directory.numbered(*id).is_none()) else { continue };
            listings.forget(id).await?;
            removed += self.delete_all(&folder(id)).await?;
        }
        Ok(removed)
    }

    async fn delete_all(&self, folder: &str) -> Result<usize> {
        let mut removed = 0;
        for path in self.list(folder).await? {
            self.delete(&path).await?;
            removed += 1;
        }
        Ok(removed)
    }
}
