use crate::array::Array;
use crate::blocked::{Blocked, Occupancy};
use crate::chain::Chain;
use crate::classic::{Classic, Sequence};
use crate::sizing::Geometry;
use crate::sync::Ordering;
use crate::{Counter, Error, Family, Fingerprint, Hasher, Kind, Layout, Limits, Result, Secret, Spec};

mod blocks;

pub(crate) use blocks::blocks_of;

/// Keys that are hashed before their lines are touched.
const CHUNK: usize = 64;

/// A set-membership filter: it answers "absent" or "maybe".
///
/// What needs the filter alone, like [`clear`](Self::clear), says so by its signature. Everything else works through a
/// shared reference, from any number of threads, without locks on the way of adds and lookups.
///
/// ```
/// use umbel_filter::{Filter, Limits, Spec};
///
/// let filter = Filter::new(&Spec::bloom(1_000_000, 0.001), &Limits::default())?;
/// assert!(filter.insert("a key")?, "it was new");
/// assert!(filter.contains("a key"));
///
/// let mut answers = Vec::new();
/// filter.contains_batch(&["a key", "another"], &mut answers);
/// assert_eq!(answers, [true, false]);
/// # Ok::<(), umbel_filter::Error>(())
/// ```
#[derive(Debug)]
pub struct Filter {
    spec: Spec,
    hasher: Hasher,
    body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    Bits(Blocked<1>),
    Nibbles(Blocked<4>),
    Bytes(Blocked<8>),
    Classic(Classic),
    Chain(Chain),
}

/// What can be told from a filter's array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// The share of cells in use.
    pub fill: f64,
    /// The estimated number of distinct elements; infinite when every cell is in use.
    pub cardinality: f64,
    /// The error rate of the array as it is now.
    pub error: f64,
    /// Bytes of the array.
    pub bytes: u64,
}

/// One array of a filter, with what describes it. All layouts have one, a chain has one for each link.
pub(crate) struct Part<'a> {
    pub(crate) array: &'a Array,
    pub(crate) geometry: Geometry,
    pub(crate) capacity: u64,
    pub(crate) error: f64,
    pub(crate) items: u64,
}

impl Filter {
    /// An empty filter for `spec`; nothing is allocated if it would be larger than `limits` allow.
    pub fn new(spec: &Spec, limits: &Limits) -> Result<Self> {
        Self::with_hasher(spec, Hasher::new(spec.family, None)?, limits)
    }

    /// An empty filter of the `keyed` family.
    pub fn keyed(spec: &Spec, secret: &Secret, limits: &Limits) -> Result<Self> {
        let spec = spec.family(Family::Keyed);
        Self::with_hasher(&spec, Hasher::new(spec.family, Some(secret))?, limits)
    }

    fn with_hasher(spec: &Spec, hasher: Hasher, limits: &Limits) -> Result<Self> {
        let geometry = Geometry::for_spec(spec, 1)?;
        let body = match spec.layout {
            Layout::RedisBloom { expansion } => {
                Body::Chain(Chain::new(spec.capacity, spec.error, expansion, limits)?)
            }
            layout => Body::with_geometry(layout, geometry, limits)?,
        };
        Ok(Self { spec: *spec, hasher, body })
    }

    /// An empty shard: a filter with the geometry that a [`Plan`](crate::Plan) gave it.
    pub fn with_geometry(
        spec: &Spec,
        geometry: Geometry,
        secret: Option<&Secret>,
        limits: &Limits,
    ) -> Result<Self> {
        spec.check()?;
        if Kind::of(&geometry) != Some(spec.kind) {
            return Err(Error::invalid(
                "geometry",
                format!("{geometry:?}; it is not one for kind {}", spec.kind),
            ));
        }
        let hasher = Hasher::new(spec.family, secret)?;
        Ok(Self { spec: *spec, hasher, body: Body::with_geometry(spec.layout, geometry, limits)? })
    }

    pub(crate) fn of(spec: Spec, hasher: Hasher, body: Body) -> Self {
        Self { spec, hasher, body }
    }

    /// What the filter was made for. Foreign formats do not tell everything: the rest is what their geometry
    /// would be right for.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Hashes keys as this filter does.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// The size and shape of the array; of the newest one in a chain.
    pub fn geometry(&self) -> Geometry {
        match &self.body {
            Body::Bits(filter) => filter.geometry(),
            Body::Nibbles(filter) => filter.geometry(),
            Body::Bytes(filter) => filter.geometry(),
            Body::Classic(filter) => filter.geometry(),
            Body::Chain(chain) => match chain.links().last() {
                Some(link) => link.filter.geometry(),
                None => Geometry::Classic { bits: 0, hashes: 0 },
            },
        }
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Adds a key; true if it was not there before. Of several threads that add the same new key, at least one
    /// is told so. Counting filters count every add.
    ///
    /// It fails only on a chain of sub-filters that is full or over its limits.
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.insert_fingerprint(self.hasher.fingerprint(key.as_ref()))
    }

    /// Whether the key may have been added; false is certain.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.contains_fingerprint(self.hasher.fingerprint(key.as_ref()))
    }

    /// Takes one occurrence of a key out of a counting filter. False, and nothing changed, if it is not there.
    ///
    /// Remove only what was added: a key that is there by mistake (a false positive) takes counters away from
    /// the keys it is mistaken for.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.remove_fingerprint(self.hasher.fingerprint(key.as_ref()))
    }

    /// How often a key is in a counting filter, at most.
    pub fn count(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.count_fingerprint(self.hasher.fingerprint(key.as_ref()))
    }

    /// [`insert`](Self::insert) for a key that is hashed already.
    #[inline]
    pub fn insert_fingerprint(&self, key: Fingerprint) -> Result<bool> {
        match &self.body {
            Body::Bits(filter) => Ok(filter.insert(key)),
            Body::Nibbles(filter) => Ok(filter.insert(key)),
            Body::Bytes(filter) => Ok(filter.insert(key)),
            Body::Classic(filter) => Ok(filter.insert(key)),
            Body::Chain(chain) => chain.insert(key),
        }
    }

    /// [`contains`](Self::contains) for a key that is hashed already.
    #[inline]
    pub fn contains_fingerprint(&self, key: Fingerprint) -> bool {
        match &self.body {
            Body::Bits(filter) => filter.contains(key),
            Body::Nibbles(filter) => filter.contains(key),
            Body::Bytes(filter) => filter.contains(key),
            Body::Classic(filter) => filter.contains(key),
            Body::Chain(chain) => chain.contains(key),
        }
    }

    /// [`remove`](Self::remove) for a key that is hashed already.
    pub fn remove_fingerprint(&self, key: Fingerprint) -> Result<bool> {
        match &self.body {
            Body::Nibbles(filter) => Ok(filter.remove(key)),
            Body::Bytes(filter) => Ok(filter.remove(key)),
            _ => Err(self.unsupported("removal")),
        }
    }

    /// [`count`](Self::count) for a key that is hashed already.
    pub fn count_fingerprint(&self, key: Fingerprint) -> Result<u64> {
        match &self.body {
            Body::Nibbles(filter) => Ok(filter.count(key)),
            Body::Bytes(filter) => Ok(filter.count(key)),
            _ => Err(self.unsupported("counting")),
        }
    }

    /// Adds many keys and puts into `new`, for each, whether it was not there before.
    ///
    /// On an error `new` holds the answers for the keys that were added before it.
    pub fn insert_batch<K: AsRef<[u8]>>(&self, keys: &[K], new: &mut Vec<bool>) -> Result<()> {
        self.in_chunks(keys, new, |chunk, new| self.body.insert_run(chunk, false, new))
    }

    /// Puts into `answers`, for each key, whether it may have been added.
    pub fn contains_batch<K: AsRef<[u8]>>(&self, keys: &[K], answers: &mut Vec<bool>) {
        let run = |chunk: &[Fingerprint], answers: &mut [bool]| {
            self.body.contains_run(chunk, false, answers);
            (answers.len(), Ok(()))
        };
        // A lookup cannot fail.
        let _ = self.in_chunks(keys, answers, run);
    }

    /// [`insert_batch`](Self::insert_batch) for keys that are hashed already.
    pub fn insert_fingerprints(&self, keys: &[Fingerprint], new: &mut Vec<bool>) -> Result<()> {
        reset(new, keys.len());
        let (done, result) = self.body.insert_run(keys, self.body.prefetches(), new);
        new.truncate(done);
        result
    }

    /// [`insert_fingerprints`](Self::insert_fingerprints) into a slice that the caller has, as long as `keys`. Says how many keys
    /// were added, which are all unless there is an error.
    pub fn insert_into(&self, keys: &[Fingerprint], new: &mut [bool]) -> (usize, Result<()>) {
        self.body.insert_run(keys, self.body.prefetches(), new)
    }

    /// Adds many keys to a filter that nobody else holds: without atomic instructions, and so several times as fast.
    /// Rebuilding from sorted fingerprints is faster still, because lines then follow each other.
    pub fn fill_fingerprints(&mut self, keys: &[Fingerprint]) -> Result<()> {
        match &mut self.body {
            Body::Bits(filter) => filter.fill_run(keys),
            Body::Nibbles(filter) => filter.fill_run(keys),
            Body::Bytes(filter) => filter.fill_run(keys),
            Body::Classic(_) | Body::Chain(_) => {
                return self.insert_fingerprints(keys, &mut Vec::with_capacity(keys.len()));
            }
        }
        Ok(())
    }

    /// Adds each key as often as its count says, to a filter that nobody else holds: what
    /// [`insert_fingerprint`](Self::insert_fingerprint) gives when it is called that often, in one step. A counter
    /// that reaches its maximum stays there, however much is left to add; bits are set for any count but 0.
    ///
    /// On an error, which only a chain can give, the keys before the refused one are in.
    pub fn fill_counts(&mut self, keys: &[(Fingerprint, u32)]) -> Result<()> {
        match &mut self.body {
            Body::Bits(filter) => filter.fill_run(keys),
            Body::Nibbles(filter) => filter.fill_run(keys),
            Body::Bytes(filter) => filter.fill_run(keys),
            Body::Classic(_) | Body::Chain(_) => {
                for (key, _) in keys.iter().filter(|(_, count)| *count > 0) {
                    self.insert_fingerprint(*key)?;
                }
            }
        }
        Ok(())
    }

    /// Asks for the lines of a key, for one who will need them soon and has other work meanwhile. It does nothing
    /// on a chain.
    #[inline]
    pub fn prefetch(&self, key: Fingerprint) {
        self.body.prefetch(key);
    }

    /// [`contains_batch`](Self::contains_batch) for keys that are hashed already.
    pub fn contains_fingerprints(&self, keys: &[Fingerprint], answers: &mut Vec<bool>) {
        reset(answers, keys.len());
        self.body.contains_run(keys, self.body.prefetches(), answers);
    }

    /// Hashes chunk after chunk and asks for its lines, while `run` works on the chunk before, whose lines have
    /// arrived.
    #[inline]
    fn in_chunks<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        answers: &mut Vec<bool>,
        mut run: impl FnMut(&[Fingerprint], &mut [bool]) -> (usize, Result<()>),
    ) -> Result<()> {
        reset(answers, keys.len());
        let prefetches = self.body.prefetches();
        let hash = |keys: &[K], out: &mut [Fingerprint; CHUNK]| {
            if prefetches {
                self.hasher.fingerprints(keys, out, |key| self.body.prefetch(key));
            } else {
                self.hasher.fingerprints(keys, out, |_| ());
            }
        };
        let [mut ready, mut next] = [[Fingerprint::default(); CHUNK]; 2];
        let mut chunks = keys.chunks(CHUNK);
        let Some(first) = chunks.next() else { return Ok(()) };
        hash(first, &mut ready);
        for (index, out) in answers.chunks_mut(CHUNK).enumerate() {
            if let Some(chunk) = chunks.next() {
                hash(chunk, &mut next);
            }
            let (done, result) = run(&ready[..out.len()], out);
            if result.is_err() {
                answers.truncate(index * CHUNK + done);
                return result;
            }
            std::mem::swap(&mut ready, &mut next);
        }
        Ok(())
    }

    /// Measures the array: one pass over all of it.
    pub fn stats(&self) -> Stats {
        let bytes = self.bytes();
        let cells = |geometry: Geometry| geometry.bits() as f64 / f64::from(self.spec.kind.cell_bits());
        let of_blocked = |geometry: Geometry, occupancy: Occupancy| Stats {
            fill: occupancy.used as f64 / cells(geometry),
            cardinality: geometry.cardinality(occupancy.used),
            error: occupancy.error,
            bytes,
        };
        match &self.body {
            Body::Bits(filter) => of_blocked(filter.geometry(), filter.occupancy()),
            Body::Nibbles(filter) => of_blocked(filter.geometry(), filter.occupancy()),
            Body::Bytes(filter) => of_blocked(filter.geometry(), filter.occupancy()),
            Body::Classic(_) | Body::Chain(_) => self.with_parts(|parts| {
                let (mut used, mut all, mut cardinality, mut right) = (0.0, 0.0, 0.0, 1.0);
                for Part { array, geometry, .. } in parts {
                    let (ones, bits) = (array.ones(), geometry.bits() as f64);
                    used += ones as f64;
                    all += bits;
                    cardinality += geometry.cardinality(ones);
                    right *= 1.0 - (ones as f64 / bits).powi(geometry.hashes() as i32);
                }
                Stats { fill: used / all, cardinality, error: 1.0 - right, bytes }
            }),
        }
    }

    /// Bytes of all arrays, without a look at them.
    pub fn bytes(&self) -> u64 {
        self.with_parts(|parts| parts.iter().map(|part| part.array.bytes()).sum())
    }

    /// How many keys were new when they were added, where the layout counts them: a chain does.
    pub fn items(&self) -> Option<u64> {
        match &self.body {
            Body::Chain(chain) => Some(chain.items()),
            _ => None,
        }
    }

    /// Takes in all elements of a filter of the same family and geometry; counters are added up.
    pub fn union(&self, other: &Self) -> Result<()> {
        self.check_same(other)?;
        match (&self.body, &other.body) {
            (Body::Bits(ours), Body::Bits(theirs)) => ours.merge(theirs),
            (Body::Nibbles(ours), Body::Nibbles(theirs)) => ours.merge(theirs),
            (Body::Bytes(ours), Body::Bytes(theirs)) => ours.merge(theirs),
            (Body::Classic(ours), Body::Classic(theirs)) => {
                ours.array().merge(theirs.array(), |ours, theirs| ours | theirs);
            }
            _ => return Err(self.unsupported("union")),
        }
        Ok(())
    }

    /// The estimated number of elements that are in both filters.
    pub fn intersection(&self, other: &Self) -> Result<f64> {
        self.check_same(other)?;
        let used = match (&self.body, &other.body) {
            (Body::Bits(ours), Body::Bits(theirs)) => ours.used_with(theirs),
            (Body::Nibbles(ours), Body::Nibbles(theirs)) => ours.used_with(theirs),
            (Body::Bytes(ours), Body::Bytes(theirs)) => ours.used_with(theirs),
            (Body::Classic(ours), Body::Classic(theirs)) => ours.array().ones_with(theirs.array()),
            _ => return Err(self.unsupported("intersection")),
        };
        let union = self.geometry().cardinality(used);
        Ok((self.stats().cardinality + other.stats().cardinality - union).max(0.0))
    }

    /// The same elements folded into half the size, where the size divides: exactly what adding them all to a
    /// filter of half the size would have given.
    pub fn halved(&self) -> Result<Self> {
        let body = match &self.body {
            Body::Bits(filter) => Body::Bits(filter.halved()?),
            Body::Nibbles(filter) => Body::Nibbles(filter.halved()?),
            Body::Bytes(filter) => Body::Bytes(filter.halved()?),
            Body::Classic(filter) => Body::Classic(filter.halved()?),
            Body::Chain(_) => return Err(self.unsupported("folding")),
        };
        Ok(Self { spec: self.spec, hasher: self.hasher.clone(), body })
    }

    /// Forgets every element and gives the memory back.
    pub fn clear(&mut self) -> Result<()> {
        if let Body::Chain(chain) = &mut self.body {
            return chain.clear();
        }
        for array in self.arrays_mut() {
            *array = array.emptied()?;
        }
        Ok(())
    }

    /// Calls `with` with all arrays, none of which is added meanwhile.
    pub(crate) fn with_parts<R>(&self, with: impl FnOnce(&[Part<'_>]) -> R) -> R {
        let one = |array, geometry| {
            [Part { array, geometry, capacity: self.spec.capacity, error: self.spec.error, items: 0 }]
        };
        match &self.body {
            Body::Bits(filter) => with(&one(filter.array(), filter.geometry())),
            Body::Nibbles(filter) => with(&one(filter.array(), filter.geometry())),
            Body::Bytes(filter) => with(&one(filter.array(), filter.geometry())),
            Body::Classic(filter) => with(&one(filter.array(), filter.geometry())),
            Body::Chain(chain) => {
                let links = chain.links();
                let parts = links.iter().map(|link| Part {
                    array: link.filter.array(),
                    geometry: link.filter.geometry(),
                    capacity: link.capacity,
                    error: link.error,
                    items: link.items.load(Ordering::Relaxed),
                });
                with(&parts.collect::<Vec<_>>())
            }
        }
    }

    /// The arrays, for a decoder to fill.
    pub(crate) fn arrays_mut(&mut self) -> Vec<&mut Array> {
        match &mut self.body {
            Body::Bits(filter) => vec![filter.array_mut()],
            Body::Nibbles(filter) => vec![filter.array_mut()],
            Body::Bytes(filter) => vec![filter.array_mut()],
            Body::Classic(filter) => vec![filter.array_mut()],
            Body::Chain(chain) => chain.links_mut().iter_mut().map(|link| link.filter.array_mut()).collect(),
        }
    }

    fn check_same(&self, other: &Self) -> Result<()> {
        let (ours, theirs) = (&self.spec, &other.spec);
        if ours.family != theirs.family {
            return Err(Error::mismatch("family", ours.family.name(), theirs.family.name()));
        }
        if self.hasher.secret_check() != other.hasher.secret_check() {
            return Err(Error::mismatch("secret", "one secret", "another"));
        }
        if ours.layout != theirs.layout {
            return Err(Error::mismatch("layout", ours.layout.to_string(), theirs.layout.to_string()));
        }
        let [ours, theirs] = [self, other].map(Self::geometry);
        if ours != theirs {
            return Err(Error::mismatch("geometry", format!("{ours:?}"), format!("{theirs:?}")));
        }
        Ok(())
    }

    fn unsupported(&self, operation: &'static str) -> Error {
        Error::unsupported(operation, format!("a {} filter of layout {}", self.spec.kind, self.spec.layout))
    }
}

impl Body {
    pub(crate) fn with_geometry(layout: Layout, geometry: Geometry, limits: &Limits) -> Result<Self> {
        geometry.check()?;
        let sequence = match layout {
            Layout::Blocked => None,
            Layout::Guava => Some(Sequence::Guava),
            Layout::Guava32 => Some(Sequence::Guava32),
            Layout::Redisson => Some(Sequence::Redisson),
            Layout::RedisBloom { .. } => {
                return Err(Error::unsupported("a single array", "layout redisbloom"));
            }
        };
        match (sequence, geometry) {
            (None, Geometry::Blocked { banks, lines, .. }) => match Kind::of(&geometry) {
                Some(Kind::Bloom) => Ok(Self::Bits(Blocked::new(banks, lines, limits)?)),
                Some(Kind::Counting(Counter::Nibble)) => {
                    Ok(Self::Nibbles(Blocked::new(banks, lines, limits)?))
                }
                Some(Kind::Counting(Counter::Byte)) => Ok(Self::Bytes(Blocked::new(banks, lines, limits)?)),
                None => Err(Error::invalid("geometry", format!("{geometry:?}"))),
            },
            (Some(sequence), Geometry::Classic { bits, hashes }) => {
                Ok(Self::Classic(Classic::new(sequence, bits, hashes, limits)?))
            }
            _ => Err(Error::invalid("geometry", format!("{geometry:?}; it is not one of layout {layout}"))),
        }
    }

    /// Whether it pays to ask for lines early.
    fn prefetches(&self) -> bool {
        match self {
            Self::Bits(filter) => filter.array().outgrows_cache(),
            Self::Nibbles(filter) => filter.array().outgrows_cache(),
            Self::Bytes(filter) => filter.array().outgrows_cache(),
            Self::Classic(filter) => filter.array().outgrows_cache(),
            Self::Chain(_) => false,
        }
    }

    #[inline]
    fn prefetch(&self, key: Fingerprint) {
        match self {
            Self::Bits(filter) => filter.prefetch(key),
            Self::Nibbles(filter) => filter.prefetch(key),
            Self::Bytes(filter) => filter.prefetch(key),
            Self::Classic(filter) => filter.prefetch(key),
            Self::Chain(_) => (),
        }
    }

    fn contains_run(&self, keys: &[Fingerprint], fetch: bool, answers: &mut [bool]) {
        match self {
            Self::Bits(filter) => filter.contains_run(keys, fetch, answers),
            Self::Nibbles(filter) => filter.contains_run(keys, fetch, answers),
            Self::Bytes(filter) => filter.contains_run(keys, fetch, answers),
            Self::Classic(filter) => {
                keys.iter().zip(answers).for_each(|(key, out)| *out = filter.contains(*key));
            }
            Self::Chain(chain) => keys.iter().zip(answers).for_each(|(key, out)| *out = chain.contains(*key)),
        }
    }

    /// Inserts keys; says how many, which are all unless there is an error.
    fn insert_run(&self, keys: &[Fingerprint], fetch: bool, new: &mut [bool]) -> (usize, Result<()>) {
        match self {
            Self::Bits(filter) => filter.insert_run(keys, fetch, new),
            Self::Nibbles(filter) => filter.insert_run(keys, fetch, new),
            Self::Bytes(filter) => filter.insert_run(keys, fetch, new),
            Self::Classic(filter) => keys.iter().zip(new).for_each(|(key, out)| *out = filter.insert(*key)),
            Self::Chain(chain) => {
                for (index, (key, out)) in keys.iter().zip(new).enumerate() {
                    match chain.insert(*key) {
                        Ok(was_new) => *out = was_new,
                        Err(error) => return (index, Err(error)),
                    }
                }
            }
        }
        (keys.len(), Ok(()))
    }
}

fn reset(answers: &mut Vec<bool>, length: usize) {
    answers.clear();
    answers.resize(length, false);
}
