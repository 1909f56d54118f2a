//! Copies: a filter in another process than the one that owns it. A version is where a copy begins; what the log says later is
//! folded into it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_filter::{Filter, Fingerprint, Hasher};

use crate::definition::Definition;
use crate::engine::Token;
use crate::entry::{Entry, Operation, SPREAD};
use crate::feed::Shape;
use crate::fold::{Counts, Layer, Means, Projection};
use crate::version::{CHUNK_BLOCKS, ChunkId, Version, chunk, load};
use crate::{Error, Position, Result};

/// A copy that is being put together from the chunks of a version.
#[derive(Debug)]
pub struct Assembly {
    version: Version,
    /// The arrays of each shard, oldest first.
    shards: Vec<Vec<Filter>>,
    /// Where each chunk that is not there yet belongs: shard, layer, number.
    missing: HashMap<ChunkId, Vec<(usize, usize, usize)>>,
}

impl Assembly {
    /// Empty arrays for a version.
    pub fn new(version: Version, means: &Means) -> Result<Self> {
        let definition = &version.definition;
        if version.shards.len() as u64 != u64::from(definition.shards) || version.partitions == 0 {
            return Err(Error::Corrupt(format!(
                "a version of {} with {} shards of {} in {} partitions",
                definition.name,
                version.shards.len(),
                definition.shards,
                version.partitions
            )));
        }
        let secret = means.secret_for(&definition.spec);
        let (mut shards, mut missing) = (Vec::with_capacity(version.shards.len()), HashMap::new());
        for (number, shard) in version.shards.iter().enumerate() {
            if definition.shards > 1 && usize::from(shard.slot) != number {
                return Err(Error::Corrupt(format!("shard {number} of a version is of slot {}", shard.slot)));
            }
            let layers = shard.layers.iter().map(|layer| layer.empty(secret, &means.limits));
            shards.push(layers.collect::<Result<Vec<_>>>()?);
            for (layer, stored) in shard.layers.iter().enumerate() {
                for (place, id) in stored.chunks.iter().enumerate() {
                    let Some(id) = id else { continue };
                    let places: &mut Vec<_> = missing.entry(*id).or_default();
                    places.push((number, layer, place));
                }
            }
        }
        Ok(Self { version, shards, missing })
    }

    /// What is being put together.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The chunks that are not there yet.
    pub fn missing(&self) -> impl ExactSizeIterator<Item = ChunkId> {
        self.missing.keys().copied()
    }

    /// Takes from another copy what is the same there. Gives how many chunks that were.
    pub fn reuse(&mut self, copy: &Copy) -> usize {
        let before = self.missing.len();
        if copy.shards.len() != self.version.shards.len() {
            return 0;
        }
        let changed = copy.progress().changed;
        for (number, shard) in copy.shards.iter().enumerate() {
            for (layer, filter) in shard.projection.filters().enumerate() {
                let stored = self.version.shards[number].layers.get(layer);
                let Some(stored) = stored.filter(|stored| stored.outline == filter.outline()) else {
                    continue;
                };
                let wanted: Vec<_> = stored.chunks.iter().copied().enumerate().collect();
                let began = &copy.version.shards[number].layers[layer].chunks;
                for (place, id) in wanted {
                    let Some(id) = id.filter(|id| self.missing.contains_key(id)) else { continue };
                    // As long as nothing was folded in, the copy is its version, and its chunks need not be hashed to be known.
                    let is_known = !changed && began.get(place) == Some(&Some(id));
                    if changed || is_known {
                        let found = chunk_of(filter, place);
                        if let Some(bytes) = found.filter(|bytes| is_known || ChunkId::of(bytes) == id) {
                            // It cannot fail: it has the shape that is wanted.
                            let _ = self.place(id, &bytes);
                        }
                    }
                }
            }
        }
        before - self.missing.len()
    }

    /// Puts a chunk where it belongs; false if it is not wanted.
    pub fn put(&mut self, bytes: &[u8]) -> Result<bool> {
        self.place(ChunkId::of(bytes), bytes)
    }

    /// The same for one whose name is known.
    fn place(&mut self, id: ChunkId, bytes: &[u8]) -> Result<bool> {
        let Some(places) = self.missing.get(&id) else { return Ok(false) };
        for (shard, layer, number) in places {
            load(&mut self.shards[*shard][*layer], *number, bytes)?;
        }
        self.missing.remove(&id);
        Ok(true)
    }

    /// The copy, when nothing is missing.
    pub fn finish(self, means: &Means) -> Result<Copy> {
        if !self.missing.is_empty() {
            let (missing, name) = (self.missing.len(), &self.version.definition.name);
            return Err(Error::Retry(format!("{missing} chunks of {name} are missing")));
        }
        let Self { version, shards, .. } = self;
        let definition = &version.definition;
        let secret = means.secret_for(&definition.spec);
        let hasher =
            Hasher::new(definition.spec.family, secret).map_err(|error| Error::Invalid(error.to_string()))?;
        let generation = definition.generation;
        let shards = version.shards.iter().zip(shards).map(|(stored, filters)| {
            let layers = filters.into_iter().map(|filter| {
                let memory = means.budget.charge(filter.bytes());
                Arc::new(Layer::adopt(filter, memory))
            });
            let projection = Projection::of(generation, layers.collect(), Counts::of_items(stored.items));
            CopyShard { base: stored.position, projection }
        });
        let shards: Box<[_]> = shards.collect();
        let reached = version.token().positions().collect();
        let progress = Progress { reached, changed: false, behind: None, gone: false };
        Ok(Copy { shape: shape_of(&shards), hasher, shards, progress: Mutex::new(progress), version })
    }
}

/// A filter in another process. Lookups go on while changes are folded in.
#[derive(Debug)]
pub struct Copy {
    version: Version,
    hasher: Hasher,
    shape: Option<Shape>,
    shards: Box<[CopyShard]>,
    progress: Mutex<Progress>,
}

/// The only array of a copy: it answers as the copy does, without the way through it.
#[derive(Clone, Debug)]
pub struct OnlyArray(Arc<Layer>);

impl OnlyArray {
    /// Whether the key may have been added: as [`Copy::contains`] says it.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.filter.contains(key)
    }
}

#[derive(Debug)]
struct CopyShard {
    /// Up to here the version has everything.
    base: Position,
    projection: Projection,
}

impl CopyShard {
    /// Adds keys or takes them out, unless the version has that already.
    fn change(&self, position: Position, keys: &[Fingerprint], removes: bool) -> Result<()> {
        if position <= self.base {
            return Ok(());
        }
        if removes {
            keys.iter().for_each(|key| _ = self.projection.remove(*key));
            return Ok(());
        }
        let mut new = Vec::with_capacity(keys.len());
        self.projection.insert(keys, &mut new).map_err(|error| Error::Retry(error.to_string()))
    }
}

/// The shape that all arrays have, if each shard has one and keys can be packed for it.
fn shape_of(shards: &[CopyShard]) -> Option<Shape> {
    let mut geometries = shards.iter().map(|shard| match shard.projection.layers() {
        [only] => Some(only.filter.geometry()),
        _ => None,
    });
    let first = geometries.next()??;
    let shape = Shape::new(shards.len() as u32, &first)?;
    geometries.all(|geometry| geometry == Some(first)).then_some(shape)
}

#[derive(Debug)]
struct Progress {
    /// How far each partition is folded.
    reached: BTreeMap<u32, Position>,
    /// Whether anything was folded in since the version.
    changed: bool,
    /// A change that only a later version can bring.
    behind: Option<Token>,
    gone: bool,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the copy, now or since before.
    Done,
    /// Only a version at or after this place has it: the arrays have another shape from here on. The copy goes on to answer "maybe"
    /// for every key that it should.
    NeedsVersion,
    /// The filter was dropped.
    Gone,
}

impl Copy {
    /// The version that it began with.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// What the filter is.
    pub fn definition(&self) -> &Definition {
        &self.version.definition
    }

    /// Hashes keys as the filter does.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is.
    pub fn token(&self) -> Token {
        let mut token = Token::default();
        self.progress().reached.iter().for_each(|(partition, position)| token.see(*partition, *position));
        token
    }

    /// The place from which on a later version is needed, if one is.
    pub fn behind(&self) -> Option<Token> {
        self.progress().behind.clone()
    }

    /// Whether the filter was dropped.
    pub fn is_gone(&self) -> bool {
        self.progress().gone
    }

    /// Elements, as the centre counts them.
    pub fn items(&self) -> u64 {
        self.shards.iter().map(|shard| shard.projection.items()).sum()
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.projection.bytes()).sum()
    }

    #[inline]
    fn shard(&self, key: Fingerprint) -> &CopyShard {
        match &*self.shards {
            [only] => only,
            shards => &shards[key.slot(shards.len() as u32) as usize],
        }
    }

    /// Whether the key may have been added; false is certain for the place that the copy is at.
    #[inline]
    pub fn contains(&self, key: Fingerprint) -> bool {
        self.shard(key).projection.contains(key)
    }

    /// The same for many keys.
    pub fn contains_batch(&self, keys: &[Fingerprint], answers: &mut Vec<bool>) {
        if let [only] = &*self.shards {
            return only.projection.contains_batch(keys, answers);
        }
        let prefetch = |key: &Fingerprint| {
            if let Some(newest) = self.shard(*key).projection.filters().next_back() {
                newest.prefetch(*key);
            }
        };
        let (near, far) = keys.split_at(keys.len().min(KEYS_AHEAD));
        near.iter().for_each(prefetch);
        let mut far = far.iter();
        answers.clear();
        answers.extend(keys.iter().map(|key| {
            far.next().into_iter().for_each(prefetch);
            self.contains(*key)
        }));
    }

    /// Its array, if it has only one.
    pub fn only_array(&self) -> Option<OnlyArray> {
        let [shard] = &*self.shards else { return None };
        let [layer] = shard.projection.layers() else { return None };
        Some(OnlyArray(Arc::clone(layer)))
    }

    /// The shape of its arrays, if changes can be packed for them.
    pub fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Folds a change in. Changes of a partition come in the order of the log; those that are in the copy already are passed over.
    pub fn apply(&self, partition: u32, position: Position, entry: &Entry) -> Result<Taken> {
        let mut progress = self.progress();
        if !self.is_next(&progress, entry.filter, partition, position)? {
            return Ok(Taken::Done);
        }
        progress.changed |= !entry.operation.keys().is_empty();
        let taken = match &entry.operation {
            Operation::Add(keys) | Operation::Remove(keys) => {
                let removes = matches!(entry.operation, Operation::Remove(_));
                self.for_keys(keys, |shard, keys| shard.change(position, keys, removes))?;
                Taken::Done
            }
            Operation::Barrier | Operation::Describe(_) | Operation::Redescribe { .. } => Taken::Done,
            Operation::Drop => Taken::Gone,
            // Feeds tell what was added. What an entry like this one added, a copy does not know.
            Operation::AddAbsent(_) => Taken::NeedsVersion,
            // Arrays of another shape, or content without keys. A definition by itself changes nothing yet where keys are kept.
            Operation::Define(_) if self.version.definition.retain => Taken::Done,
            Operation::Define(_)
            | Operation::Switch
            | Operation::Clear
            | Operation::Adopt { .. }
            | Operation::Load { .. } => {
                if self.had(position, entry.slot, partition) {
                    Taken::Done
                } else {
                    Taken::NeedsVersion
                }
            }
        };
        match taken {
            Taken::Done => {}
            Taken::NeedsVersion => progress.behind.get_or_insert_default().see(partition, position),
            Taken::Gone => progress.gone = true,
        }
        progress.reached.insert(partition, position);
        Ok(taken)
    }

    /// The same for a change that was packed for the shape of this copy.
    pub fn apply_packed(&self, partition: u32, position: Position, changes: &[u8]) -> Result<Taken> {
        let shape = self.shape.ok_or_else(|| {
            Error::Invalid("a packed change; keys cannot be packed for the arrays of this copy".to_owned())
        })?;
        let packed = shape.unpack(changes)?;
        let mut progress = self.progress();
        if self.is_next(&progress, packed.filter, partition, position)? {
            progress.changed = true;
            for (shard, keys) in &packed.shards {
                self.shards[*shard as usize].change(position, keys, packed.removes)?;
            }
            progress.reached.insert(partition, position);
        }
        Ok(Taken::Done)
    }

    /// Whether a change is one that the copy does not have yet.
    fn is_next(&self, progress: &Progress, filter: u64, partition: u32, position: Position) -> Result<bool> {
        if filter != self.version.filter {
            return Err(Error::Invalid(format!(
                "a change of filter {filter:016x}; the copy is of {:016x}",
                self.version.filter
            )));
        }
        match progress.reached.get(&partition) {
            Some(reached) => Ok(position > *reached),
            None => Err(Error::Invalid(format!(
                "a change in partition {partition}, where the filter has no shard"
            ))),
        }
    }

    /// Notes that nothing else happened up to a place.
    pub fn reach(&self, partition: u32, position: Position) {
        if let Some(reached) = self.progress().reached.get_mut(&partition) {
            *reached = position.max(*reached);
        }
    }

    /// Whether the version has an entry without keys in all slots that it is for.
    fn had(&self, position: Position, slot: u16, partition: u32) -> bool {
        let all = self.shards.iter().zip(&self.version.shards);
        all.filter(|(_, stored)| u32::from(stored.slot) % self.version.partitions == partition)
            .filter(|(_, stored)| slot == SPREAD || stored.slot == slot)
            .all(|(shard, _)| position <= shard.base)
    }

    /// Hands each shard its keys.
    fn for_keys(
        &self,
        keys: &[Fingerprint],
        mut change: impl FnMut(&CopyShard, &[Fingerprint]) -> Result<()>,
    ) -> Result<()> {
        if let [only] = &*self.shards {
            return change(only, keys);
        }
        let slots = self.shards.len() as u32;
        let mut keys = keys.chunk_by(|one, next| one.slot(slots) == next.slot(slots));
        keys.try_for_each(|keys| change(self.shard(keys[0]), keys))
    }

    /// A chunk of the version that it began with, unless changes have come into it since.
    pub fn chunk(&self, id: ChunkId) -> Option<bytes::Bytes> {
        let places = self.shards.iter().zip(&self.version.shards).flat_map(|(shard, stored)| {
            shard.projection.filters().zip(&stored.layers).flat_map(|(filter, layer)| {
                layer.chunks.iter().enumerate().map(move |(number, chunk)| (filter, number, *chunk))
            })
        });
        let (filter, number, _) = places.into_iter().find(|(.., chunk)| *chunk == Some(id))?;
        chunk_of(filter, number).filter(|bytes| ChunkId::of(bytes) == id)
    }

    /// What stands for all of its content, as of a version: equal to that of a version at the same place.
    pub fn digest(&self) -> ChunkId {
        let mut version = self.version.clone();
        for (shard, stored) in self.shards.iter().zip(&mut version.shards) {
            for (filter, layer) in shard.projection.filters().zip(&mut stored.layers) {
                for (number, id) in layer.chunks.iter_mut().enumerate() {
                    *id = chunk_of(filter, number).map(|bytes| ChunkId::of(&bytes));
                }
            }
        }
        version.digest()
    }
}

/// How many keys ahead of the one that is looked up lines are asked for.
const KEYS_AHEAD: usize = 32;

/// A chunk of an array as it is now; none if it is of zeros.
fn chunk_of(filter: &Filter, number: usize) -> Option<bytes::Bytes> {
    let first = number * CHUNK_BLOCKS;
    let blocks = (first..filter.blocks().min(first + CHUNK_BLOCKS)).map(|block| {
        let mut bytes = Vec::new();
        filter.copy_block(block, &mut bytes);
        bytes
    });
    chunk(&blocks.collect::<Vec<_>>())
}
