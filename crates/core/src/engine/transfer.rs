//! Filters that come from elsewhere, and go there: bits without their keys.
//!
//! A filter that is imported is made under an internal name, gets its shape (`Adopt`) and its bits (`Load`) through the log, and
//! is called by its own name when all of them are there. So nobody asks one that is half there, and what a crash leaves is dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use umbel_filter::{Filter, Fingerprint, Kind, Layout, Plan, Spec};

use super::cluster::Cluster;
use super::gather::{PartOf, Shape};
use super::handle::Handle;
use super::requests::{NewFilter, Sharding, check_has_array, gone};
use super::{Engine, Shared};
use crate::archive::{Run, merged, merged_after};
use crate::definition::{Definition, IMPORT, INTERNAL};
use crate::entry::{Entry, Operation, Request};
use crate::fold::Newest;
use crate::limits::{ENTRY_BYTES_MAX, KEYS_PAGE_MAX};
use crate::{Error, Result};

/// How long an import may take: what nobody finishes is dropped then, or at the next start.
const IMPORT_MILLIS_MAX: u64 = 24 * 3600 * 1000;
/// Bytes of blocks in one entry: fifteen whole ones.
const LOAD_BYTES_MAX: usize = ENTRY_BYTES_MAX - (64 << 10);

/// A shard that comes from elsewhere.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) items: u64,
    pub(super) layers: Vec<Filter>,
}

impl Engine {
    /// Makes a filter that answers as this one does. Its keys are not known, so it grows by layers, or, if it is a chain, by
    /// itself. What `new` says of its size is not used.
    pub async fn import(&self, new: NewFilter, filter: Filter) -> Result<Arc<Handle>> {
        let spec = *filter.spec();
        let items = filter.items().unwrap_or_else(|| filter.stats().cardinality.min(u64::MAX as f64) as u64);
        let new = NewFilter { spec, sharding: Sharding::Whole, ..new };
        self.shared.install(new, vec![Content { items, layers: vec![filter] }], false).await
    }

    /// A filter of any layout, size and error rate of the same family, with all keys of this one. If its keys are not known, a copy
    /// of it is all there can be.
    ///
    /// The memory counts while it is built; then it is the caller's.
    pub async fn project(&self, filter: &Arc<Handle>, spec: Spec) -> Result<Filter> {
        let (shared, definition) = (&self.shared, filter.definition());
        let invalid = |error: umbel_filter::Error| Error::Invalid(error.to_string());
        check_has_array(&definition)?;
        if spec.family != definition.spec.family {
            return Err(Error::Invalid(format!(
                "a filter of family {}; {} is of family {}, and its keys are not known",
                spec.family.name(),
                definition.name,
                definition.spec.family.name()
            )));
        }
        if !definition.retain {
            return shared.copy(filter, &spec).await;
        }
        let plan = Plan::new(&spec, 1).map_err(invalid)?;
        let bytes = u64::try_from(plan.bytes()).unwrap_or(u64::MAX);
        shared.reserve(bytes, &definition.name).await?;
        let _memory = shared.means.budget.reserve(bytes, &definition.name)?;
        let (secret, limits) = (shared.means.secret_for(&spec), &shared.means.limits);
        let made = match (spec.layout, secret) {
            (Layout::RedisBloom { .. }, _) | (_, None) => Filter::new(&spec, limits),
            (_, Some(secret)) => Filter::keyed(&spec, secret, limits),
        };
        let mut out = made.map_err(invalid)?;
        for slot in filter.slots() {
            shared.project_slot(filter, slot, &mut out).await?;
        }
        Ok(out)
    }
}

impl Shared {
    /// Makes a filter of what came from elsewhere: whole, or with one content for each slot. If it may replace another one, that has the
    /// name until this one is whole.
    pub(super) async fn install(
        &self,
        new: NewFilter,
        contents: Vec<Content>,
        replace: bool,
    ) -> Result<Arc<Handle>> {
        if new.window.is_some() {
            return Err(Error::Invalid("a window cannot be imported: its buckets can".into()));
        }
        let (name, expires) = (new.name.clone(), new.expires.filter(|at| *at != u64::MAX));
        let now = self.expiry_now();
        if !replace && self.directory.named(&name).is_some_and(|holder| !holder.is_expired(now)) {
            return Err(Error::Invalid(format!("there is a filter {name} already")));
        }
        Definition { labels: new.labels.clone(), ..Definition::new(&name, new.spec) }.check()?;
        let bytes: u64 = contents.iter().flat_map(|content| &content.layers).map(Filter::bytes).sum();
        if bytes > self.settings.limits.filter_bytes_max {
            return Err(Error::Invalid(format!(
                "the filter {name} takes {bytes} bytes; one may take {}",
                self.settings.limits.filter_bytes_max
            )));
        }
        let share = if contents.len() == 1 { bytes } else { self.share_of(bytes, self.settings.slots) };
        let hidden = format!("{INTERNAL}{IMPORT}{:016x}", self.random.next());
        let named = |error: Error| error.reworded(|why| why.replace(&hidden, &name));
        let internal = NewFilter {
            name: hidden.clone(),
            retain: false,
            expires: Some(now.saturating_add(IMPORT_MILLIS_MAX)),
            ..new
        };
        let definition = self.define(internal)?;
        // Nobody else is told that there is room before the arrays of this one have taken theirs.
        let naming = self.naming.lock().await;
        self.reserve(share, &name).await?;
        let filter = self.make_alone(definition).await.map_err(named)?;
        let adopted = self.adopt_shapes(&filter, &contents).await;
        drop(naming);
        let installed = async {
            adopted?;
            self.fill(&filter, &contents).await?;
            // If its home alone were synced, a power cut could leave it with its name and without some of its shards.
            self.sync_all().await?;
            let _naming = self.naming.lock().await;
            let now = filter.definition();
            let next = Definition { name: name.clone(), expires, ..(*now).clone() };
            self.rename(&filter, &now, &next, replace).await?;
            // A shard that is cleared gets empty arrays, unless it thinks that they are still to come.
            let next = filter.definition();
            self.everywhere(filter.id(), &next, &Operation::Describe(next.encode()?)).await
        };
        match installed.await {
            Ok(()) => Ok(filter),
            // It has the name already, and the one that had it may have none: it stays, and what is left to do is done later.
            Err(error) if !filter.definition().is_internal() => {
                self.work.is_unfinished();
                Err(named(error))
            }
            Err(error) => {
                // Nobody can see it; what cannot be dropped now is dropped at the next start.
                let _ = self.drop_filter(&filter).await;
                Err(named(error))
            }
        }
    }

    /// Gives a filter empty arrays like those that it is to hold.
    async fn adopt_shapes(&self, filter: &Arc<Handle>, contents: &[Content]) -> Result<()> {
        for (slot, content) in filter.slots().zip(contents) {
            let outlines = content.layers.iter().map(|layer| Bytes::from(layer.outline())).collect();
            let adopt = Operation::Adopt { items: content.items, outlines };
            self.apply_to(filter, slot, adopt).await?;
        }
        Ok(())
    }

    async fn fill(&self, filter: &Arc<Handle>, contents: &[Content]) -> Result<()> {
        for (slot, content) in filter.slots().zip(contents) {
            for (number, layer) in content.layers.iter().enumerate() {
                self.load_layer(filter, slot, number as u32, layer, 0).await?;
            }
        }
        let shapes = match &self.cluster {
            Some(cluster) => self.shapes_in_nodes(&**cluster, filter, true).await?,
            None => {
                let arrays = filter.slots().map(|slot| filter.projection(slot).ok_or_else(|| gone(filter)));
                let arrays = arrays.collect::<Result<Vec<_>>>()?;
                arrays.iter().map(|arrays| Shape::of(arrays, true)).collect()
            }
        };
        for (shape, content) in shapes.iter().zip(contents) {
            let loaded = shape.layers.iter().map(|layer| layer.digest);
            if !loaded.eq(content.layers.iter().map(Filter::digest)) {
                let name = &filter.definition().name;
                return Err(Error::Corrupt(format!("the filter {name} is not what was loaded into it")));
            }
        }
        Ok(())
    }

    /// Puts the bits of a filter into a layer, through the log.
    pub(super) async fn load_layer(
        &self,
        filter: &Arc<Handle>,
        slot: u16,
        layer: u32,
        from: &Filter,
        mut items: u64,
    ) -> Result<()> {
        let (mut block, mut pending) = (Vec::new(), BytesMut::new());
        let mut first = 0;
        let blocks = from.blocks();
        for number in 0..=blocks {
            from.copy_block(number, &mut block);
            let empty = block.iter().all(|byte| *byte == 0);
            let full = pending.len() + block.len() > LOAD_BYTES_MAX;
            if !pending.is_empty() && (empty || full || number == blocks) {
                self.work.keep_up(self).await;
                let bytes = pending.split().freeze();
                let load = Operation::Load { layer, block: first, items: std::mem::take(&mut items), bytes };
                self.apply_to(filter, slot, load).await?;
            }
            if !empty {
                if pending.is_empty() {
                    first = number as u32;
                }
                pending.extend_from_slice(&block);
            }
        }
        Ok(())
    }

    /// Does something in one slot of a filter.
    pub(super) async fn apply_to(&self, filter: &Arc<Handle>, slot: u16, operation: Operation) -> Result<()> {
        let entry = Entry { filter: filter.id(), slot, request: Request::default(), operation };
        for applied in self.submit(vec![(self.lane(slot).partition, entry)]).await? {
            if let Some(why) = applied.refused {
                return Err(Error::Invalid(why));
            }
        }
        Ok(())
    }

    /// Drops what imports left that did not come to their end.
    pub(super) async fn drop_half_imported(&self) -> Result<()> {
        let prefix = format!("{INTERNAL}{IMPORT}");
        for filter in self.directory.unsorted() {
            if filter.definition().name.starts_with(&prefix) {
                self.drop_filter(&filter).await?;
            }
        }
        Ok(())
    }

    /// A copy of a filter that has one array, of this spec.
    async fn copy(&self, filter: &Arc<Handle>, spec: &Spec) -> Result<Filter> {
        if filter.is_whole() {
            self.prove(self.lane(filter.slot(Fingerprint::default())).partition).await?;
        }
        self.load(filter).await?;
        let definition = filter.definition();
        let only = filter.slots().next().and_then(|slot| filter.projection(slot));
        let only = only.ok_or_else(|| gone(filter))?;
        let mut layers = only.filters();
        let (Some(source), None, 1) = (layers.next(), layers.next(), definition.shards) else {
            return Err(Error::Invalid(format!(
                "the filter {} has several arrays and does not keep its keys: there can be no other one of them",
                definition.name
            )));
        };
        if spec.to_bytes() != source.spec().to_bytes() && spec.to_bytes() != definition.spec.to_bytes() {
            return Err(Error::Invalid(format!(
                "the filter {} does not keep its keys: it can be copied as it is and not otherwise",
                definition.name
            )));
        }
        let _memory = self.means.budget.reserve(source.bytes(), &definition.name)?;
        let secret = self.means.secret_for(spec);
        let copied = Filter::from_outline(&source.outline(), secret, &self.means.limits);
        let mut copied = copied.map_err(|error| Error::Invalid(error.to_string()))?;
        let mut block = Vec::new();
        for number in 0..copied.blocks() {
            source.copy_block(number, &mut block);
            copied.load_block(number, &block).map_err(|error| Error::Retry(error.to_string()))?;
        }
        Ok(copied)
    }

    /// Folds all keys of a slot's part of a filter into another.
    async fn project_slot(&self, filter: &Arc<Handle>, number: u16, out: &mut Filter) -> Result<()> {
        let full = |error: umbel_filter::Error| Error::Invalid(error.to_string());
        let mut keys = self.keys_of(filter, number).await?;
        let counted = out.spec().kind != Kind::Bloom;
        while let Some(counts) = keys.next().await? {
            if counted {
                out.fill_counts(counts).map_err(full)?;
            } else {
                let keys: Vec<Fingerprint> = counts.iter().map(|(key, _)| *key).collect();
                out.fill_fingerprints(&keys).map_err(full)?;
            }
        }
        Ok(())
    }

    /// All keys of a slot's part of a filter, with their counts, as they are now.
    pub(super) async fn keys_of<'a>(&'a self, filter: &Arc<Handle>, number: u16) -> Result<Keys<'a>> {
        if let Some(cluster) = &self.cluster {
            let part = PartOf { filter: filter.id(), slot: number, partition: self.lane(number).partition };
            return Ok(Keys::there(self, &**cluster, part));
        }
        let frozen = self.frozen(filter, number).await?;
        let mut tail: HashMap<Fingerprint, i64> = HashMap::new();
        frozen.each_newer(None, |key, net| *tail.entry(key).or_default() += net);
        let scan = Some(merged(&frozen.runs, filter.id())?);
        let source = Source::Here { scan, tail, counted: frozen.counted, _reader: frozen.reader };
        Ok(Keys { source, out: Vec::new() })
    }

    /// What a slot has of a filter's keys at this moment.
    async fn frozen(&self, filter: &Arc<Handle>, number: u16) -> Result<Frozen<'_>> {
        let reader = self.reading[usize::from(number)].begin();
        let lane = self.lane(number);
        let mut turn = lane.turn.lock().await;
        if turn.slots.is_empty() {
            return Err(lane.moved_away());
        }
        let slot = turn.slot(self, number).ok_or_else(|| gone(filter))?;
        let runs = slot.runs_of(filter.id());
        let shard = slot.state.shard_mut(filter.id()).ok_or_else(|| gone(filter))?;
        let counted = shard.definition().spec.kind != Kind::Bloom;
        if !shard.definition().retain {
            let name = &shard.definition().name;
            return Err(Error::Invalid(format!("the filter {name} does not keep its keys")));
        }
        Ok(Frozen { reader, runs, parts: shard.freeze(), counted })
    }

    /// The keys of a slot's part of a filter behind a key, in order. Fewer than a page are the last ones.
    pub(super) async fn keys_page(
        &self,
        filter: &Arc<Handle>,
        number: u16,
        after: Option<Fingerprint>,
    ) -> Result<Vec<(Fingerprint, u32)>> {
        let frozen = self.frozen(filter, number).await?;
        let mut tail: BTreeMap<Fingerprint, i64> = BTreeMap::new();
        frozen.each_newer(after, |key, net| *tail.entry(key).or_default() += net);
        let mut page = Vec::new();
        let mut put = |key: Fingerprint, net: i64| {
            if net > 0 {
                page.push((key, count(net)));
            }
            page.len()
        };
        let mut scan = merged_after(&frozen.runs, filter.id(), after)?;
        'pages: while let Some(tallies) = scan.next().await? {
            for tally in tallies {
                while let Some(newer) = tail.first_entry().filter(|newer| *newer.key() < tally.key) {
                    let (key, net) = newer.remove_entry();
                    put(key, net);
                }
                let more = tail.remove(&tally.key).unwrap_or(0);
                let net = if frozen.counted { i64::from(tally.net) + more } else { 1 };
                if put(tally.key, net) >= KEYS_PAGE_MAX {
                    tail.clear();
                    break 'pages;
                }
            }
        }
        for (key, net) in tail {
            if put(key, net) >= KEYS_PAGE_MAX {
                break;
            }
        }
        page.truncate(KEYS_PAGE_MAX);
        Ok(page)
    }
}

/// A slot's keys of a filter at one moment: archived, and newer.
struct Frozen<'a> {
    reader: Reader<'a>,
    runs: Vec<Run>,
    parts: Vec<Arc<Newest>>,
    counted: bool,
}

impl Frozen<'_> {
    /// What came after the archive, behind a key: a key may come several times. Where nothing is counted, once is enough.
    fn each_newer(&self, after: Option<Fingerprint>, mut take: impl FnMut(Fingerprint, i64)) {
        let is_wanted = |key: &Fingerprint| after.is_none_or(|after| *key > after);
        for part in &self.parts {
            match &**part {
                Newest::Keys(keys) => keys.iter().filter(|key| is_wanted(key)).for_each(|key| take(*key, 1)),
                Newest::Nets(nets) => {
                    let wanted = nets.iter().filter(|(key, _)| is_wanted(key));
                    wanted.for_each(|(key, net)| take(*key, i64::from(*net)));
                }
            }
        }
    }
}

fn count(net: i64) -> u32 {
    u32::try_from(net).unwrap_or(if net < 0 { 0 } else { u32::MAX })
}

/// Who reads the runs of a slot. Blobs that no checkpoint needs any more stay for them.
#[derive(Debug, Default)]
pub(super) struct Reading(Mutex<(u64, Vec<Arc<str>>)>);

/// One who reads the runs of a slot.
pub(super) struct Reader<'a>(&'a Reading);

impl Reading {
    pub(super) fn begin(&self) -> Reader<'_> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 += 1;
        Reader(self)
    }

    /// Which blobs can be removed, now that these are not needed any more. The others can next time, or at the next start.
    pub(super) fn unread(&self, blobs: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.1.extend(blobs);
        if reading.0 == 0 { std::mem::take(&mut reading.1) } else { Vec::new() }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).0 -= 1;
    }
}

/// Keys with their counts, chunk by chunk.
pub(super) struct Keys<'a> {
    source: Source<'a>,
    out: Vec<(Fingerprint, u32)>,
}

/// Where keys are read.
enum Source<'a> {
    /// From the runs of this engine, and from what came after them.
    Here {
        _reader: Reader<'a>,
        scan: Option<crate::archive::NetScan>,
        tail: HashMap<Fingerprint, i64>,
        counted: bool,
    },
    /// From whichever node hosts the part, page by page.
    There {
        shared: &'a Shared,
        cluster: &'a dyn Cluster,
        part: PartOf,
        after: Option<Fingerprint>,
        has_more: bool,
    },
}

impl<'a> Keys<'a> {
    fn there(shared: &'a Shared, cluster: &'a dyn Cluster, part: PartOf) -> Self {
        let source = Source::There { shared, cluster, part, after: None, has_more: true };
        Self { source, out: Vec::new() }
    }

    /// The next keys; none in the end.
    pub(super) async fn next(&mut self) -> Result<Option<&[(Fingerprint, u32)]>> {
        let out = &mut self.out;
        out.clear();
        match &mut self.source {
            Source::There { has_more: false, .. } => {}
            Source::There { shared, cluster, part, after, has_more } => {
                *out = shared.keys_in_nodes(*cluster, *part, *after).await?;
                *has_more = out.len() == KEYS_PAGE_MAX;
                *after = out.last().map(|(key, _)| *key);
            }
            Source::Here { scan, tail, counted, .. } => {
                while let Some(runs) = scan {
                    let Some(tallies) = runs.next().await? else {
                        *scan = None;
                        break;
                    };
                    for tally in tallies {
                        let more = tail.remove(&tally.key).unwrap_or(0);
                        let net = if *counted { i64::from(tally.net) + more } else { 1 };
                        out.push((tally.key, count(net)));
                    }
                    out.retain(|(_, count)| *count > 0);
                    if !out.is_empty() {
                        return Ok(Some(&self.out));
                    }
                }
                out.extend(tail.drain().map(|(key, net)| (key, count(net))));
                out.retain(|(_, count)| *count > 0);
            }
        }
        Ok((!self.out.is_empty()).then_some(&self.out[..]))
    }
}
