//! Filters in chunks: `Engine::dump` gives them, a [`Loader`] takes them. `docs/formats.md` draws them.
//!
//! The first chunk is the header: the definition and the shape of every array. The others hold the arrays, one after another.
//! A cursor says where a chunk ends, and, in its upper bits, which size of the filter it is of.

use std::sync::Arc;

use bytes::Bytes;
use umbel_filter::{Filter, Spec};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::cluster::Cluster;
use super::gather::{BlocksFrom, Shape};
use super::handle::Handle;
use super::requests::{NewFilter, Sharding, check_has_array, gone};
use super::transfer::Content;
use super::{Engine, Shared};
use crate::budget::Reservation;
use crate::definition::Definition;
use crate::fields::{Fields, put_bytes, put_list, seal, take_bytes, take_list};
use crate::fold::{Means, Projection};
use crate::limits::{DUMP_CHUNK_BYTES_MAX, DUMP_HEADER_BYTES_MAX, LAYERS_MAX};
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"\x89UMBDMP\n";
const VERSION: u16 = 1;
const SUM_BYTES: usize = 8;
/// The cursor of the header.
const HEADER: u64 = 1;
/// Bits of a cursor that say where; above them are the eight of the shape. Clients in JavaScript know numbers of 53 bits.
const PLACE_BITS: u32 = 45;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
/// Bytes of an outline beside its parts, and of a part.
const OUTLINE_BYTES: usize = 64;
const PART_BYTES: usize = 48;

/// Whether this is the header of a dump.
pub fn is_dump(header: &[u8]) -> bool {
    header.starts_with(&MAGIC)
}

impl Engine {
    /// The next chunk of a filter and its cursor, after the chunk of this cursor; 0 begins, and ends. Chunks have at most 4 MiB.
    ///
    /// Adds may go on meanwhile: what was added before the dump began is in it. When the filter changes its size, begin anew.
    pub async fn dump(&self, filter: &Arc<Handle>, cursor: u64) -> Result<(u64, Bytes)> {
        check_has_array(&filter.definition())?;
        let arrays = self.shared.arrays_to_dump(filter, cursor == 0).await?;
        let definition = filter.definition();
        if cursor == 0 {
            return Ok((HEADER, header(&definition, arrays.shapes())?));
        }
        let outlines =
            arrays.shapes().iter().flat_map(|shard| &shard.layers).map(|layer| layer.outline.len());
        let shape = shape(definition.generation, outlines);
        if cursor != HEADER && cursor >> PLACE_BITS != shape {
            return Err(Error::Invalid(format!(
                "the filter {} changed its size since the dump began: begin anew",
                definition.name
            )));
        }
        let start = (cursor & PLACE).saturating_sub(HEADER);
        let bytes = match &arrays {
            Dumped::Here(_, shards) => chunk(shards, start, &definition.name)?,
            Dumped::There(cluster, shapes) => {
                self.shared.chunk_in_nodes(&**cluster, filter, shapes, start).await?
            }
        };
        if bytes.is_empty() {
            return Ok((0, Bytes::new()));
        }
        let end = start + bytes.len() as u64 + HEADER;
        let mut sealed = Vec::with_capacity(SUM_BYTES + bytes.len());
        sealed.extend(xxh3_64_with_seed(&bytes, start).to_le_bytes());
        sealed.extend(bytes);
        Ok((shape << PLACE_BITS | end, sealed.into()))
    }

    /// Makes a filter of a dump that was loaded. It has as many shards and layers as the one that was dumped, and does not keep its
    /// keys.
    pub async fn import_loaded(&self, name: &str, loader: Loader) -> Result<Arc<Handle>> {
        self.restore_loaded(name, None, false, loader).await
    }

    /// The same with the time at which it is gone, in milliseconds since 1970, and perhaps in place of the filter that has the name: that one
    /// answers until this one does.
    pub async fn restore_loaded(
        &self,
        name: &str,
        expires: Option<u64>,
        replace: bool,
        loader: Loader,
    ) -> Result<Arc<Handle>> {
        if !loader.is_complete() {
            let (loaded, blocks) = (loader.seen.iter().filter(|seen| **seen).count(), loader.seen.len());
            return Err(Error::Invalid(format!("the dump is not whole: {loaded} of {blocks} blocks came")));
        }
        let Loader { definition, contents, memory, .. } = loader;
        let new = NewFilter {
            sharding: if definition.shards == 1 { Sharding::Whole } else { Sharding::Everywhere },
            growth: definition.growth,
            grow_at: definition.grow_at,
            expires,
            labels: definition.labels.clone(),
            ..NewFilter::new(name, definition.spec)
        };
        let installed = self.shared.install(new, contents, replace).await;
        drop(memory);
        installed
    }
}

/// What is dumped: arrays of this engine, or of several nodes.
enum Dumped {
    Here(Vec<Shape>, Vec<Arc<Projection>>),
    There(Arc<dyn Cluster>, Vec<Shape>),
}

impl Dumped {
    fn shapes(&self) -> &[Shape] {
        match self {
            Self::Here(shapes, _) | Self::There(_, shapes) => shapes,
        }
    }
}

impl Shared {
    /// The arrays of a filter, all of one generation.
    async fn arrays_to_dump(&self, filter: &Arc<Handle>, begins: bool) -> Result<Dumped> {
        if let Some(cluster) = &self.cluster {
            let shapes = self.shapes_in_nodes(&**cluster, filter, false).await?;
            let definition = filter.definition();
            if shapes.iter().any(|shape| shape.generation != definition.generation) {
                // Each node builds what it is the first host of, and is not waited for.
                return Err(Error::Retry(format!("the filter {} changes its size now", definition.name)));
            }
            return Ok(Dumped::There(Arc::clone(cluster), shapes));
        }
        if begins && filter.is_behind() {
            let _one_at_a_time = filter.growing.lock().await;
            self.build(filter).await?;
        }
        self.load(filter).await?;
        let shards = filter.slots().map(|slot| filter.projection(slot).ok_or_else(|| gone(filter)));
        let shards = shards.collect::<Result<Vec<Arc<Projection>>>>()?;
        Ok(Dumped::Here(shards.iter().map(|shard| Shape::of(shard, false)).collect(), shards))
    }

    /// Whole blocks from a place on, as many as fit into a chunk, from the nodes that have them.
    async fn chunk_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Handle,
        shapes: &[Shape],
        start: u64,
    ) -> Result<Vec<u8>> {
        let (mut at, mut bytes) = (0, Vec::new());
        for (slot, shape) in filter.slots().zip(shapes) {
            for (layer, array) in (0..).zip(&shape.layers) {
                let end = at + array.bytes;
                let mut place = start + bytes.len() as u64;
                while (at..end).contains(&place) {
                    let from = BlocksFrom { generation: shape.generation, layer, offset: place - at };
                    let most = DUMP_CHUNK_BYTES_MAX - SUM_BYTES - bytes.len();
                    let blocks = self.blocks_in_nodes(cluster, (filter, slot), from, most).await?;
                    if blocks.is_empty() {
                        return Ok(bytes);
                    }
                    bytes.extend_from_slice(&blocks);
                    place += blocks.len() as u64;
                }
                at = end;
            }
        }
        if at < start {
            let name = &filter.definition().name;
            return Err(Error::Invalid(format!("no chunk of {name} ends where this cursor says")));
        }
        Ok(bytes)
    }
}

/// Which size of a filter it is, modulo 256: any next generation, layer or link makes it another. Outlines tell by their lengths.
fn shape(generation: u32, outlines: impl Iterator<Item = usize>) -> u64 {
    let parts = outlines.map(|bytes| bytes.saturating_sub(OUTLINE_BYTES) / PART_BYTES);
    (u64::from(generation) + parts.sum::<usize>() as u64) % 256
}

fn header(definition: &Definition, shards: &[Shape]) -> Result<Bytes> {
    let mut out = Vec::from(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 2]);
    put_bytes(&mut out, &definition.encode()?);
    put_list(&mut out, shards, |out, shard| {
        out.extend(shard.items.to_le_bytes());
        put_list(out, &shard.layers, |out, layer| put_bytes(out, &layer.outline));
    });
    seal(&mut out);
    if out.len() > DUMP_HEADER_BYTES_MAX {
        let bytes = out.len();
        return Err(Error::Invalid(format!(
            "a dump's header of {bytes} bytes; at most {DUMP_HEADER_BYTES_MAX}"
        )));
    }
    Ok(out.into())
}

/// Whole blocks from a place on, as many as fit into a chunk.
fn chunk(shards: &[Arc<Projection>], start: u64, name: &str) -> Result<Vec<u8>> {
    let (mut at, mut bytes, mut block) = (0, Vec::new(), Vec::new());
    for filter in shards.iter().flat_map(|shard| shard.filters()) {
        let end = at + filter.bytes();
        if end <= start {
            at = end;
            continue;
        }
        for number in 0..filter.blocks() {
            let length = filter.block_bytes(number);
            if bytes.len() + length + SUM_BYTES > DUMP_CHUNK_BYTES_MAX {
                return Ok(bytes);
            }
            if at == start + bytes.len() as u64 {
                filter.copy_block(number, &mut block);
                bytes.extend_from_slice(&block);
            } else if at > start {
                return Err(Error::Invalid(format!("no chunk of {name} ends where this cursor says")));
            }
            at += length as u64;
        }
    }
    if at < start {
        return Err(Error::Invalid(format!("no chunk of {name} ends where this cursor says")));
    }
    Ok(bytes)
}

/// Takes the chunks of a dump, in any order.
#[derive(Debug)]
pub struct Loader {
    definition: Definition,
    contents: Vec<Content>,
    /// For each block of all arrays, whether it came.
    seen: Vec<bool>,
    shape: u64,
    memory: Vec<Reservation>,
}

impl Loader {
    /// Begins with the header. Memory is counted in the engine's budget.
    pub fn new(header: &[u8], engine: &Engine) -> Result<Self> {
        let Shared { means, settings, .. } = &*engine.shared;
        if header.len() > DUMP_HEADER_BYTES_MAX {
            let bytes = header.len();
            return Err(Error::Invalid(format!(
                "a dump's header of {bytes} bytes; at most {DUMP_HEADER_BYTES_MAX}"
            )));
        }
        let mut fields = Fields::checked(header, "a dump", MAGIC, VERSION)?;
        if fields.u16()? != 0 {
            return Err(fields.corrupt("reserved bytes that are not zero"));
        }
        let definition = Definition::decode(take_bytes(&mut fields)?)?;
        if definition.shards != 1 && definition.shards != settings.slots {
            return Err(Error::Invalid(format!(
                "a dump of {} shards; this deployment has {} slots",
                definition.shards, settings.slots
            )));
        }
        let (mut left, mut memory) = (settings.limits.filter_bytes_max, Vec::new());
        let contents = take_list(&mut fields, |fields| {
            let items = fields.u64()?;
            let layers = take_list(fields, |fields| {
                let filter = empty(take_bytes(fields)?, &definition.spec, means, left)?;
                left -= filter.bytes().min(left);
                memory.push(means.budget.reserve(filter.bytes(), "a dump that is loaded")?);
                Ok(filter)
            })?;
            if layers.is_empty() || layers.len() > LAYERS_MAX {
                return Err(fields.corrupt("a number of layers that there cannot be"));
            }
            Ok(Content { items, layers })
        })?;
        fields.end()?;
        if contents.len() != definition.shards as usize {
            return Err(fields.corrupt("not as many shards as the definition says"));
        }
        let layers = || contents.iter().flat_map(|content| &content.layers);
        let seen = vec![false; layers().map(Filter::blocks).sum()];
        let shape = shape(definition.generation, layers().map(|layer| layer.outline().len()));
        Ok(Self { definition, seen, shape, contents, memory })
    }

    /// Takes a chunk, with the cursor that came with it.
    pub fn load(&mut self, cursor: u64, chunk: &[u8]) -> Result<()> {
        let wrong = |why: &str| Err(Error::Invalid(format!("a chunk of a dump, cursor {cursor}: {why}")));
        let Some((sum, mut bytes)) = chunk.split_first_chunk::<SUM_BYTES>() else {
            return wrong("it is shorter than any");
        };
        if chunk.len() > DUMP_CHUNK_BYTES_MAX {
            return wrong("it is longer than any");
        }
        if cursor >> PLACE_BITS != self.shape {
            return wrong("it is of another size of the filter than the header");
        }
        let Some(start) = (cursor & PLACE).checked_sub(HEADER + bytes.len() as u64) else {
            return wrong("it would begin before the first");
        };
        if xxh3_64_with_seed(bytes, start).to_le_bytes() != *sum {
            return Err(Error::Corrupt(format!("a chunk of a dump, cursor {cursor}: it is damaged")));
        }
        let (mut at, mut index, mut began) = (0, 0, false);
        for filter in self.contents.iter_mut().flat_map(|content| &mut content.layers) {
            if at + filter.bytes() <= start {
                at += filter.bytes();
                index += filter.blocks();
                continue;
            }
            for number in 0..filter.blocks() {
                if bytes.is_empty() {
                    return Ok(());
                }
                let length = filter.block_bytes(number);
                if at >= start {
                    began |= at == start;
                    let whole = bytes.split_at_checked(length).filter(|_| began);
                    let Some((block, rest)) = whole else { return wrong("its ends are not those of blocks") };
                    if filter.load_block(number, block).is_err() {
                        return wrong("it does not fit");
                    }
                    self.seen[index] = true;
                    bytes = rest;
                }
                at += length as u64;
                index += 1;
            }
        }
        if bytes.is_empty() { Ok(()) } else { wrong("it goes on behind the end") }
    }

    /// Whether all chunks came.
    pub fn is_complete(&self) -> bool {
        self.seen.iter().all(|seen| *seen)
    }

    /// What was dumped.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }
}

/// An empty array of a dump, which must be of the filter's kind.
fn empty(outline: &[u8], spec: &Spec, means: &Means, bytes_max: u64) -> Result<Filter> {
    let most = bytes_max.min(means.budget.limit());
    let limits = umbel_filter::Limits { filter_bytes_max: most, ..means.limits.clone() };
    let filter = Filter::from_outline(outline, means.secret_for(spec), &limits);
    let filter = filter.map_err(|error| Error::Invalid(format!("an array of a dump: {error}")))?;
    let found = filter.spec();
    if (found.kind, found.layout, found.family) != (spec.kind, spec.layout, spec.family) {
        return Err(Error::Invalid("an array of a dump is not of the filter's kind".into()));
    }
    Ok(filter)
}
