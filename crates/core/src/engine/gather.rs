//! Filters of which other nodes have parts: what is told of the whole is asked of the first hosts, part by part.
//!
//! Whoever answers has all that was acknowledged of the part, as for a lookup, and each part is asked for once. So nothing is counted
//! twice or left out while partitions change their hosts: a host that has just lost one says so, and the next one is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use umbel_filter::{Filter, Fingerprint};

use super::cluster::Cluster;
use super::handle::Handle;
use super::lane::Slot;
use super::requests::{gone, named};
use super::{Engine, Shared};
use crate::budget::Reservation;
use crate::fold::{Counts, Projection, no_filter};
use crate::limits::{DUMP_CHUNK_BYTES_MAX, KEYS_PAGE_MAX};
use crate::{Error, Result};

/// Parts whose arrays are digested, or only told of, for one request.
const DIGESTED_AT_ONCE: usize = 16;
const SHAPES_AT_ONCE: usize = 512;

/// The part of a filter that one slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf {
    /// The filter.
    pub filter: u64,
    /// The slot.
    pub slot: u16,
    /// The partition that the slot lives in.
    pub partition: u32,
}

/// The arrays of a part, without what is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Which size of the filter they are.
    pub generation: u32,
    /// Keys that were new when they were added, less those that went.
    pub items: u64,
    /// The oldest first.
    pub layers: Vec<LayerShape>,
}

/// One of these arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerShape {
    /// What it is, as in a dump.
    pub outline: Bytes,
    /// How long it is.
    pub bytes: u64,
    /// What is in it; 0 if nobody wanted to know.
    pub digest: u128,
}

/// A place in the arrays of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlocksFrom {
    /// Which size of the filter is meant.
    pub generation: u32,
    /// Which array.
    pub layer: u32,
    /// The byte at which the first block begins.
    pub offset: u64,
}

impl Shape {
    pub(super) fn of(projection: &Projection, digested: bool) -> Self {
        let layers = projection.filters().map(|filter| LayerShape {
            outline: filter.outline().into(),
            bytes: filter.bytes(),
            digest: if digested { filter.digest() } else { 0 },
        });
        Self { generation: projection.generation(), items: projection.items(), layers: layers.collect() }
    }
}

/// What other nodes ask of this one.
impl Engine {
    /// Keys of a part that is hosted here.
    pub async fn keys_for_peer(
        &self,
        part: PartOf,
        after: Option<Fingerprint>,
    ) -> Result<Vec<(Fingerprint, u32)>> {
        let filter = self.shared.proven_part(part).await?;
        let page = self.shared.keys_page(&filter, part.slot, after).await;
        page.map_err(|error| self.shared.lane(part.slot).unless_outdated(&self.shared, error))
    }

    /// What arrays parts have that are hosted here.
    pub async fn shapes_for_peer(&self, parts: &[PartOf], digested: bool) -> Result<Vec<Shape>> {
        let mut shapes = Vec::with_capacity(parts.len());
        for part in parts {
            shapes.push(Shape::of(&*self.shared.proven_arrays(*part).await?, digested));
        }
        Ok(shapes)
    }

    /// Blocks of a part that is hosted here.
    pub async fn blocks_for_peer(&self, part: PartOf, from: BlocksFrom, bytes_max: usize) -> Result<Bytes> {
        let arrays = self.shared.proven_arrays(part).await?;
        if arrays.generation() != from.generation {
            return Err(Error::Retry("the filter has another size than a moment ago".into()));
        }
        let layer = arrays.filters().nth(from.layer as usize);
        let layer = layer.ok_or_else(|| Error::Invalid(format!("there is no array {}", from.layer)))?;
        blocks_from(layer, from.offset, bytes_max.min(DUMP_CHUNK_BYTES_MAX))
    }

    /// What partitions that are hosted here hold of a filter, one by one.
    pub async fn counts_for_peer(&self, filter: u64, partitions: &[u32]) -> Result<Vec<Counts>> {
        self.shared.prove_filter(filter).await?;
        let mut all = Vec::with_capacity(partitions.len());
        for partition in partitions {
            self.shared.prove(*partition).await?;
            let lane = self.shared.hosting(*partition)?;
            // A partition that is let go of meanwhile has nothing to count, and that is not the same as nothing.
            let turn = lane.turn.lock().await;
            if turn.slots.is_empty() {
                return Err(lane.moved_away());
            }
            all.push(turn.slots.iter().map(|slot| slot.counts(filter)).fold(Counts::default(), Counts::and));
        }
        Ok(all)
    }
}

/// Whole blocks of an array, from a byte on that one begins at.
fn blocks_from(filter: &Filter, offset: u64, bytes_max: usize) -> Result<Bytes> {
    let (mut at, mut bytes, mut block) = (0, BytesMut::new(), Vec::new());
    for number in 0..filter.blocks() {
        let length = filter.block_bytes(number);
        if at >= offset {
            if at > offset && bytes.is_empty() {
                break;
            }
            if bytes.len() + length > bytes_max {
                return Ok(bytes.freeze());
            }
            filter.copy_block(number, &mut block);
            bytes.extend_from_slice(&block);
        }
        at += length as u64;
    }
    if bytes.is_empty() {
        return Err(Error::Invalid(format!("no block of the array begins at byte {offset}")));
    }
    Ok(bytes.freeze())
}

/// The arrays of a part: as they are here, or as another node had them a moment ago.
pub(super) enum Arrays {
    Here(Arc<Projection>),
    Copied(
        Vec<Filter>,
        #[expect(dead_code, reason = "it counts while the arrays are there")] Vec<Reservation>,
    ),
}

impl Arrays {
    /// The oldest first.
    pub(super) fn filters(&self) -> Box<dyn Iterator<Item = &Filter> + Send + '_> {
        match self {
            Self::Here(projection) => Box::new(projection.filters()),
            Self::Copied(filters, _) => Box::new(filters.iter()),
        }
    }
}

/// What a door asks.
impl Engine {
    /// Makes sure that what this node has of a filter that lives in one slot is in memory, and is all that was acknowledged.
    pub async fn refresh(&self, filter: &Arc<Handle>) -> Result<()> {
        if self.shared.cluster.is_some() && filter.is_whole() {
            self.shared.prove(self.shared.lane(filter.slot(Fingerprint::default())).partition).await?;
        }
        self.shared.load(filter).await
    }

    /// Bytes of a filter's arrays on all nodes, each counted once.
    pub async fn bytes_of(&self, filter: &Arc<Handle>) -> Result<u64> {
        let Some(cluster) = &self.shared.cluster else { return Ok(filter.bytes()) };
        let shapes = self.shared.shapes_in_nodes(&**cluster, filter, false).await?;
        Ok(shapes.iter().flat_map(|shape| &shape.layers).map(|layer| layer.bytes).sum())
    }

    /// How many keys a filter holds on all nodes.
    pub async fn counts(&self, filter: &Arc<Handle>) -> Result<Counts> {
        match &self.shared.cluster {
            None => Ok(Counts { items: filter.items(), held: filter.held(), removed: filter.removed() }),
            Some(cluster) => match self.shared.live_buckets(filter).await? {
                None => {
                    let counted = self.shared.counts_in_nodes(&**cluster, filter).await;
                    counted.map_err(|error| named(filter, error))
                }
                Some(buckets) => {
                    let counted =
                        buckets.iter().map(|bucket| self.shared.counts_in_nodes(&**cluster, bucket));
                    Ok(try_join_all(counted).await?.into_iter().fold(Counts::default(), Counts::and))
                }
            },
        }
    }
}

impl Shared {
    async fn counts_in_nodes(&self, cluster: &dyn Cluster, filter: &Handle) -> Result<Counts> {
        let partitions: BTreeSet<u32> = filter.slots().map(|slot| self.lane(slot).partition).collect();
        let partitions: Vec<u32> = partitions.into_iter().collect();
        let counted = cluster.counts(filter.id(), &partitions).await?;
        if counted.len() != partitions.len() {
            return Err(Error::Retry(
                "other nodes counted more or fewer partitions than they were asked".into(),
            ));
        }
        Ok(counted.into_iter().fold(Counts::default(), Counts::and))
    }

    pub(super) fn part_of(&self, filter: &Handle, slot: u16) -> PartOf {
        PartOf { filter: filter.id(), slot, partition: self.lane(slot).partition }
    }

    /// What arrays a filter has in each of its slots.
    pub(super) async fn shapes_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Handle,
        digested: bool,
    ) -> Result<Vec<Shape>> {
        let parts: Vec<PartOf> = filter.slots().map(|slot| self.part_of(filter, slot)).collect();
        let mut shapes = Vec::with_capacity(parts.len());
        // Whoever digests arrays reads all of them.
        for some in parts.chunks(if digested { DIGESTED_AT_ONCE } else { SHAPES_AT_ONCE }) {
            shapes.extend(cluster.shapes(some, digested).await?);
        }
        if shapes.len() != parts.len() || shapes.iter().any(|shape| shape.layers.is_empty()) {
            return Err(Error::Retry("other nodes told of more or fewer arrays than there are".into()));
        }
        Ok(shapes)
    }

    /// The next keys of a part of a filter, behind a key.
    pub(super) async fn keys_in_nodes(
        &self,
        cluster: &dyn Cluster,
        part: PartOf,
        after: Option<Fingerprint>,
    ) -> Result<Vec<(Fingerprint, u32)>> {
        let page = cluster.keys(part, after).await?;
        let goes_on = after.is_none_or(|after| page.first().is_none_or(|(first, _)| *first > after));
        // What does not go on would never end.
        if !goes_on || !page.is_sorted_by(|(one, _), (next, _)| one < next) || page.len() > KEYS_PAGE_MAX {
            return Err(Error::Corrupt("another node told keys that are not in order".into()));
        }
        Ok(page)
    }

    /// Blocks of a part's array, as many as fit into so many bytes.
    pub(super) async fn blocks_in_nodes(
        &self,
        cluster: &dyn Cluster,
        (filter, slot): (&Handle, u16),
        from: BlocksFrom,
        bytes_max: usize,
    ) -> Result<Bytes> {
        let bytes = cluster.blocks(self.part_of(filter, slot), from, bytes_max).await?;
        if bytes.len() > bytes_max {
            return Err(Error::Corrupt("another node told more blocks than it was asked for".into()));
        }
        Ok(bytes)
    }

    /// The arrays of a part, wherever it is hosted. Those of other nodes are copied, and their memory counts.
    pub(super) async fn arrays_of(&self, filter: &Arc<Handle>, slot: u16) -> Result<Arrays> {
        let Some(cluster) = &self.cluster else {
            self.load(filter).await?;
            return filter.projection(slot).map(Arrays::Here).ok_or_else(|| gone(filter));
        };
        let name = filter.definition().name.clone();
        let shapes = cluster.shapes(&[self.part_of(filter, slot)], false).await?;
        let shape = shapes.into_iter().next().ok_or_else(|| gone(filter))?;
        let (mut copied, mut memory) = (Vec::new(), Vec::new());
        for (number, layer) in (0..).zip(&shape.layers) {
            self.reserve(layer.bytes, &name).await?;
            memory.push(self.means.budget.reserve(layer.bytes, &name)?);
            let secret = self.means.secret_for(&filter.definition().spec);
            let array = Filter::from_outline(&layer.outline, secret, &self.means.limits);
            let mut array = array.map_err(|error| Error::Invalid(error.to_string()))?;
            if array.bytes() != layer.bytes {
                return Err(Error::Corrupt(format!(
                    "an array of {name} is not as long as another node says"
                )));
            }
            let (mut offset, mut block) = (0, 0);
            while offset < layer.bytes {
                let from = BlocksFrom { generation: shape.generation, layer: number, offset };
                let bytes =
                    self.blocks_in_nodes(&**cluster, (filter, slot), from, DUMP_CHUNK_BYTES_MAX).await?;
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let length = if block < array.blocks() { array.block_bytes(block) } else { usize::MAX };
                    let cut = || Error::Corrupt(format!("blocks of {name} that another node cut in two"));
                    let (whole, behind) = rest.split_at_checked(length).ok_or_else(cut)?;
                    array.load_block(block, whole).map_err(|error| Error::Retry(error.to_string()))?;
                    (rest, block) = (behind, block + 1);
                }
                if bytes.is_empty() {
                    return Err(Error::Corrupt(format!("another node tells no more of {name}")));
                }
                offset += bytes.len() as u64;
            }
            copied.push(array);
        }
        Ok(Arrays::Copied(copied, memory))
    }

    /// The filter of a part that a peer asks for, when all that was acknowledged of the part is folded.
    pub(super) async fn proven_part(&self, part: PartOf) -> Result<Arc<Handle>> {
        let is_wrong =
            u32::from(part.slot) >= self.settings.slots || self.lane(part.slot).partition != part.partition;
        if is_wrong {
            return Err(Error::Invalid(format!("slot {} of partition {}", part.slot, part.partition)));
        }
        self.prove(part.partition).await?;
        self.prove_filter(part.filter).await
    }

    /// The arrays of a part that a peer asks for.
    async fn proven_arrays(&self, part: PartOf) -> Result<Arc<Projection>> {
        let filter = self.proven_part(part).await?;
        self.load(&filter).await?;
        let lane = self.hosting(part.partition)?;
        let mut turn = lane.turn.lock().await;
        let slot = turn.slot(self, part.slot).ok_or_else(|| lane.moved_away())?;
        let shard = slot.state.shard(part.filter).ok_or_else(|| gone(&filter))?;
        let resident = shard.projection().cloned();
        resident
            .ok_or_else(|| Error::Retry(format!("the filter {} is not in memory", filter.definition().name)))
    }

    /// The filter of that number, also if another node made it a moment ago.
    pub(super) async fn prove_filter(&self, filter: u64) -> Result<Arc<Handle>> {
        if self.directory.numbered(filter).is_none() {
            self.prove_catalog().await?;
        }
        self.directory.numbered(filter).ok_or_else(|| Error::Gone(no_filter(filter)))
    }
}

impl Slot {
    /// What the slot holds of a filter.
    pub(super) fn counts(&self, filter: u64) -> Counts {
        let Some(shard) = self.state.shard(filter) else { return Counts::default() };
        let on_disk = || self.stored.get(&filter).map(|stored| stored.counts).unwrap_or_default();
        shard.projection().map_or_else(on_disk, |projection| projection.counts())
    }
}
