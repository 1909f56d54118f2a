//! A projection: the array of one generation of a shard, which answers lookups while it is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_filter::{Counter, Family, Filter, Fingerprint, Kind, Limits, Plan, Secret, Spec};
use xxhash_rust::xxh3::Xxh3Default;

use super::cannot;
use super::counts::{Counters, Counts};
use crate::budget::{Budget, Reservation};
use crate::definition::{Definition, Growth};
use crate::limits::LAYERS_MAX;
use crate::{Error, Result};

/// How much of an array is looked at to tell how many keys are in it.
const ESTIMATE_BYTES: u64 = 4 << 20;

/// What filters are made of and from.
#[derive(Clone, Debug)]
pub struct Means {
    /// The deployment's secret, for filters of the `keyed` family.
    pub secret: Option<Secret>,
    /// Bounds of each filter.
    pub limits: Limits,
    /// The memory for all of them.
    pub budget: Arc<Budget>,
}

impl Means {
    /// Without a secret, within the default limits.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { secret: None, limits: Limits::default(), budget }
    }

    pub(crate) fn secret_for(&self, spec: &Spec) -> Option<&Secret> {
        self.secret.as_ref().filter(|_| spec.family == Family::Keyed)
    }
}

/// One sized projection of a shard.
///
/// Lookups go on at any time, and so do copies. Changes come one after another: whoever folds the slot makes them.
#[derive(Debug)]
pub struct Projection {
    generation: u32,
    layers: Vec<Arc<Layer>>,
    counters: Counters,
    copying: AtomicBool,
    copy: Mutex<Copy>,
}

/// An array and its share of the memory. Filters that grow without their keys have several.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) filter: Filter,
    memory: Mutex<Vec<Reservation>>,
}

/// A block of a projection: the layer, and the block in it.
pub(crate) type Place = (usize, usize);

/// A copy of blocks, all as they were at one moment.
#[derive(Debug, Default)]
struct Copy {
    wanted: BTreeSet<Place>,
    saved: BTreeMap<Place, Vec<u8>>,
}

impl Projection {
    /// An empty one for the definition.
    pub(crate) fn new(definition: &Definition, means: &Means) -> Result<Self> {
        if !definition.has_arrays() {
            return Ok(Self::of(definition.generation, Vec::new(), Counts::default()));
        }
        let grows = definition.growth != Growth::Fixed;
        let halved = !definition.retain && grows && !definition.is_chain();
        let error = if halved { definition.spec.error / 2.0 } else { definition.spec.error };
        let first = Layer::new(definition, Spec { error, ..definition.spec }, means)?;
        Ok(Self::of(definition.generation, vec![Arc::new(first)], Counts::default()))
    }

    pub(crate) fn of(generation: u32, layers: Vec<Arc<Layer>>, counts: Counts) -> Self {
        Self {
            generation,
            layers,
            counters: counts.into(),
            copying: AtomicBool::new(false),
            copy: Mutex::default(),
        }
    }

    /// The same with one more layer, for what the next definition has room for beyond this one. Each layer errs half as often
    /// as the one before it, so that all together stay within the filter's rate.
    pub(crate) fn stacked(&self, now: &Definition, next: &Definition, means: &Means) -> Result<Self> {
        if self.layers.len() >= LAYERS_MAX {
            return Err(Error::Invalid(format!("{LAYERS_MAX} layers are the most; rebuild the filter")));
        }
        let capacity = next.spec.capacity - now.spec.capacity;
        let error = next.spec.error / 2_f64.powi(self.layers.len() as i32 + 1);
        let spec = Spec { capacity, error: error.max(umbel_filter::limits::ERROR_MIN), ..next.spec };
        let mut layers = self.layers.clone();
        layers.push(Arc::new(Layer::new(next, spec, means)?));
        Ok(Self::of(next.generation, layers, self.counts()))
    }

    /// Which size of the filter this is.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Keys that were new when they were added, less those that went.
    pub fn items(&self) -> u64 {
        self.counts().items
    }

    /// How many keys it has.
    pub fn counts(&self) -> Counts {
        self.counters.get()
    }

    /// Elements at which a shard of a fixed filter is full. Some shards get more than others: six standard deviations let the
    /// whole filter take what it was made for.
    pub(super) fn full_at(&self, shards: u32) -> u64 {
        let share = self.share(shards);
        if shards == 1 { share } else { share + (6.0 * (share as f64).sqrt()) as u64 }
    }

    /// Elements that it was made for.
    fn share(&self, shards: u32) -> u64 {
        let capacity: u64 = self.filters().map(|filter| filter.spec().capacity).sum();
        capacity.div_ceil(u64::from(shards.max(1)))
    }

    /// Counts the keys that the generation before counted. If that had to take more than it was made for, it took many for known, and
    /// what this one holds is nearer to the truth. It is looked at now, and not when it was built, which is another time on every node.
    pub(super) fn follow(&self, old: &Self, shards: u32) {
        let overfull = old.items() > old.share(shards);
        let items = if overfull { old.items().max(self.estimated_items()) } else { old.items() };
        let Counts { held, removed, .. } = old.counts();
        // A generation of another size is no new beginning.
        let anew = self.share(shards) == old.share(shards);
        self.counters.set(Counts { items, held, removed: if anew { 0 } else { removed } });
    }

    /// How many keys the used cells speak for: a function of these alone.
    fn estimated_items(&self) -> u64 {
        let keys: f64 = self.filters().map(|filter| filter.sampled_stats(ESTIMATE_BYTES).cardinality).sum();
        keys as u64
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.filter.bytes()).sum()
    }

    /// The filters that it consists of, oldest first: one, unless it grew without its keys.
    pub fn filters(&self) -> impl DoubleEndedIterator<Item = &Filter> {
        self.layers.iter().map(|layer| &layer.filter)
    }

    pub(crate) fn layers(&self) -> &[Arc<Layer>] {
        &self.layers
    }

    /// Whether the key may have been added; false is certain.
    #[inline]
    pub fn contains(&self, key: Fingerprint) -> bool {
        match &self.layers[..] {
            [only] => only.filter.contains_fingerprint(key),
            layers => layers.iter().rev().any(|layer| layer.filter.contains_fingerprint(key)),
        }
    }

    /// Puts into `answers`, for each key, whether it may have been added.
    pub fn contains_batch(&self, keys: &[Fingerprint], answers: &mut Vec<bool>) {
        if let [only] = &self.layers[..] {
            return only.filter.contains_fingerprints(keys, answers);
        }
        answers.clear();
        answers.extend(keys.iter().map(|key| self.contains(*key)));
    }

    /// How often a key is in it, at most; of filters that do not count, at most once.
    pub fn count(&self, key: Fingerprint) -> u64 {
        self.oldest_with(key).map_or(0, |filter| filter.count_fingerprint(key).unwrap_or(1))
    }

    /// The same where counters that are stuck say nothing: as often as there are numbers.
    pub(super) fn count_at_most(&self, key: Fingerprint) -> i64 {
        let stuck_at = |filter: &Filter| match filter.spec().kind {
            Kind::Bloom => u64::MAX,
            Kind::Counting(Counter::Nibble) => 15,
            Kind::Counting(Counter::Byte) => 255,
        };
        let count = self.count(key);
        let is_stuck = self.layers.last().is_some_and(|layer| count >= stuck_at(&layer.filter));
        if is_stuck { i64::MAX } else { i64::try_from(count).unwrap_or(i64::MAX) }
    }

    /// The oldest layer that may have the key: the one that a key which is there is counted in.
    ///
    /// A key is added to the oldest layer that seems to have it, and to the newest if none does. So no cell of an older layer is ever
    /// set again once it is zero, and a layer that does not seem to have a key when that is added never will. To take the key out of
    /// the oldest layer that seems to have it is therefore to take it out where it was added, even if others err.
    fn oldest_with(&self, key: Fingerprint) -> Option<&Filter> {
        self.filters().find(|filter| filter.contains_fingerprint(key))
    }

    /// Adds keys and puts into `new`, for each that it took, whether it was not there before.
    pub(crate) fn insert(
        &self,
        keys: &[Fingerprint],
        new: &mut Vec<bool>,
    ) -> Result<(), umbel_filter::Error> {
        let Some((newest, older)) = self.layers.split_last() else { return Ok(()) };
        let _copy = self.save_blocks(keys);
        let outcome = if older.is_empty() {
            newest.filter.insert_fingerprints(keys, new)
        } else {
            let counts = newest.filter.spec().kind != Kind::Bloom;
            let mut insert = |key: &Fingerprint| {
                let known = self.oldest_with(*key);
                match known {
                    None => _ = newest.filter.insert_fingerprint(*key)?,
                    Some(filter) if counts => _ = filter.insert_fingerprint(*key)?,
                    // What a layer answers for need not be added again, unless adds are counted.
                    Some(_) => {}
                }
                new.push(known.is_none());
                Ok(())
            };
            keys.iter().try_for_each(&mut insert)
        };
        let fresh = new.iter().filter(|new| **new).count() as u64;
        self.counters.add(new.len() as u64, fresh);
        outcome
    }

    /// Adds keys where nothing but the newest layer is asked, and puts the answers into `new`, which is as long as `keys`. Gives how
    /// many were new; nothing, and nothing was done, if it is not so simple.
    #[inline]
    pub(super) fn insert_simply(&self, keys: &[Fingerprint], new: &mut [bool]) -> Option<u64> {
        let [only] = &self.layers[..] else { return None };
        let _copy = self.save_blocks(keys);
        // It cannot fail: only chains can, and they are not added to in this way.
        let _ = only.filter.insert_into(keys, new);
        let fresh = new.iter().filter(|new| **new).count() as u64;
        self.counters.add(keys.len() as u64, fresh);
        Some(fresh)
    }

    /// Takes a key out, where there are counters and it seems to be there.
    pub(crate) fn remove(&self, key: Fingerprint) -> bool {
        let _copy = self.save_blocks(&[key]);
        let removed =
            self.oldest_with(key).is_some_and(|filter| filter.remove_fingerprint(key).unwrap_or(false));
        if removed {
            self.counters.remove(!self.contains(key));
        }
        removed
    }

    /// Charges what a chain of sub-filters took when it grew.
    pub(super) fn account(&self, means: &Means) {
        for layer in &self.layers {
            layer.account(means);
        }
    }

    pub(super) fn digest_into(&self, digest: &mut Xxh3Default) {
        digest.update(&self.generation.to_le_bytes());
        for filter in self.filters() {
            digest.update(&filter.digest().to_le_bytes());
        }
    }
}

/// Copies of blocks for snapshots.
impl Projection {
    fn copy(&self) -> MutexGuard<'_, Copy> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on, [`copied`](Self::copied) gives these blocks as they are now, whatever changes meanwhile.
    pub(crate) fn begin_copy(&self, blocks: impl IntoIterator<Item = Place>) {
        let mut copy = self.copy();
        copy.saved.clear();
        copy.wanted = blocks.into_iter().collect();
        self.copying.store(!copy.wanted.is_empty(), Ordering::Relaxed);
    }

    /// The next few blocks; none when all were given.
    pub(crate) fn copied(&self, blocks_max: usize) -> Vec<(Place, Vec<u8>)> {
        let mut copy = self.copy();
        let mut out = Vec::new();
        while out.len() < blocks_max {
            if let Some(saved) = copy.saved.pop_first() {
                out.push(saved);
            } else if let Some(place) = copy.wanted.pop_first() {
                out.push((place, self.copy_block(place)));
            } else {
                break;
            }
        }
        self.copying.store(!copy.wanted.is_empty(), Ordering::Relaxed);
        out
    }

    /// Ends a copy that nobody wants any more.
    pub(crate) fn end_copy(&self) {
        self.begin_copy([]);
    }

    /// Copies the blocks that adding or removing these keys may change, if a copy still wants them. Nobody else copies until the
    /// keys are in.
    fn save_blocks(&self, keys: &[Fingerprint]) -> Option<MutexGuard<'_, Copy>> {
        if !self.copying.load(Ordering::Relaxed) {
            return None;
        }
        let mut copy = self.copy();
        let mut touched = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            for key in keys {
                layer.filter.blocks_touched(*key, |block| {
                    if copy.wanted.remove(&(number, block)) {
                        touched.push((number, block));
                    }
                });
            }
        }
        copy.saved.extend(touched.into_iter().map(|place| (place, self.copy_block(place))));
        Some(copy)
    }

    /// Sets the bits of blocks that follow each other. All of them are there, or nothing is done.
    pub(super) fn load_blocks(
        &self,
        (layer, first): Place,
        items: u64,
        mut bytes: &[u8],
    ) -> Result<(), umbel_filter::Error> {
        let Some(filter) = self.layers.get(layer).map(|layer| &layer.filter) else {
            return Err(umbel_filter::Error::Unsupported {
                operation: "loading blocks",
                subject: format!("array {layer} of {}", self.layers.len()),
            });
        };
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let block = first + blocks.len();
            let length = filter.block_bytes(block);
            let Some((content, rest)) = bytes.split_at_checked(length).filter(|_| length > 0) else {
                // It says what is wrong.
                return filter.merge_block(block, bytes);
            };
            blocks.push((block, content));
            bytes = rest;
        }
        let mut copy = self.copy();
        for (block, content) in blocks {
            let place = (layer, block);
            if copy.wanted.remove(&place) {
                let saved = self.copy_block(place);
                copy.saved.insert(place, saved);
            }
            filter.merge_block(block, content)?;
        }
        self.counters.add(items, items);
        Ok(())
    }

    fn copy_block(&self, (layer, block): Place) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(layer) = self.layers.get(layer) {
            layer.filter.copy_block(block, &mut bytes);
        }
        bytes
    }

    /// The blocks that changed since they were last taken.
    pub(crate) fn take_dirty(&self) -> Vec<Place> {
        let of = |(number, layer): (usize, &Arc<Layer>)| {
            layer.filter.take_dirty().into_iter().map(move |block| (number, block))
        };
        self.layers.iter().enumerate().flat_map(of).collect()
    }

    /// Puts blocks back among those that changed.
    pub(crate) fn mark_dirty(&self, blocks: impl IntoIterator<Item = Place>) {
        for (layer, block) in blocks {
            if let Some(layer) = self.layers.get(layer) {
                layer.filter.mark_dirty(block);
            }
        }
    }
}

impl Layer {
    fn new(definition: &Definition, spec: Spec, means: &Means) -> Result<Self> {
        let plan = Plan::new(&spec, definition.shards).map_err(|error| cannot(&error))?;
        // Who asked for the filter made sure that there was room; what the log says is done in any case.
        let memory = means.budget.charge(bytes_of(&plan));
        let made = if definition.is_chain() {
            let most = means.limits.filter_bytes_max.min(means.budget.limit());
            Filter::new(&spec, &Limits { filter_bytes_max: most, ..means.limits.clone() })
        } else {
            Filter::with_geometry(&spec, plan.geometry, means.secret_for(&spec), &means.limits)
        };
        Ok(Self { filter: made.map_err(|error| cannot(&error))?, memory: Mutex::new(vec![memory]) })
    }

    /// An empty one of the shape that an outline describes.
    pub(super) fn of_outline(definition: &Definition, outline: &[u8], means: &Means) -> Result<Self> {
        let most = means.limits.filter_bytes_max.min(means.budget.limit());
        let limits = Limits { filter_bytes_max: most, ..means.limits.clone() };
        let secret = means.secret_for(&definition.spec);
        let filter = Filter::from_outline(outline, secret, &limits).map_err(|error| match error {
            umbel_filter::Error::TooLarge { .. } | umbel_filter::Error::NoMemory { .. } => cannot(&error),
            error => Error::Invalid(error.to_string()),
        })?;
        let (spec, wanted) = (filter.spec(), &definition.spec);
        if (spec.kind, spec.layout, spec.family) != (wanted.kind, wanted.layout, wanted.family) {
            return Err(Error::Invalid(format!(
                "an array of kind {}, layout {} and family {}; the filter {} has {}, {} and {}",
                spec.kind,
                spec.layout,
                spec.family.name(),
                definition.name,
                wanted.kind,
                wanted.layout,
                wanted.family.name()
            )));
        }
        // Who asked for it made sure that there was room; what the log says is done in any case.
        let memory = means.budget.charge(filter.bytes());
        Ok(Self::adopt(filter, memory))
    }

    /// A filter that came from elsewhere, within the budget.
    pub(crate) fn adopt(filter: Filter, memory: Reservation) -> Self {
        Self { filter, memory: Mutex::new(vec![memory]) }
    }

    fn account(&self, means: &Means) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let charged: u64 = memory.iter().map(Reservation::bytes).sum();
        if let Some(more) = self.filter.bytes().checked_sub(charged).filter(|more| *more > 0) {
            memory.push(means.budget.charge(more));
        }
    }
}

/// Bytes of one shard.
fn bytes_of(plan: &Plan) -> u64 {
    u64::try_from(plan.geometry.bytes()).unwrap_or(u64::MAX)
}
