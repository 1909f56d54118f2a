//! A slot's part of a filter.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use umbel_filter::{Fingerprint, Kind};

use super::counts::Counts;
use super::mirror::Followed;
use super::projection::{Layer, Means, Projection};
use super::tail::{Newest, Tail};
use super::{Archived, Outcome};
use crate::definition::{Definition, Growth};
use crate::limits::LAYERS_MAX;
use crate::{Error, Result};

/// A slot's part of a filter.
#[derive(Debug)]
pub struct Shard {
    pub(super) definition: Definition,
    /// What answers; none while it is left on disk. It may be of an older generation than the definition, until the next one is
    /// built.
    projection: Option<Arc<Projection>>,
    /// What is going to answer. Whoever builds it offers it; from then on it takes all changes too.
    next: Option<Arc<Projection>>,
    /// What came after the archive, if the filter keeps its keys.
    tail: Option<Tail>,
    /// Archive runs of earlier checkpoints mean nothing for this filter: it was made, or cleared, after them.
    first_run: u64,
    /// What it remembers of the filter that it follows, if it follows one.
    pub(super) followed: Followed,
}

impl Shard {
    pub(super) fn new(definition: Definition, first_run: u64, means: &Means) -> Result<Self> {
        let projection = Projection::new(&definition, means)?;
        Ok(Self { projection: Some(Arc::new(projection)), ..Self::cold(definition, first_run) })
    }

    /// A shard whose array is on disk.
    pub(crate) fn cold(definition: Definition, first_run: u64) -> Self {
        let counted = definition.spec.kind != Kind::Bloom;
        let tail = definition.retain.then(|| Tail::new(counted));
        Self { definition, projection: None, next: None, tail, first_run, followed: Followed::default() }
    }

    /// The same with what it remembers of the filter that it follows.
    pub(crate) fn following(self, followed: Followed) -> Self {
        Self { followed, ..self }
    }

    /// What it remembers of the filter that it follows.
    pub(crate) fn followed(&self) -> &Followed {
        &self.followed
    }

    /// What the filter is.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// What answers, if it is in memory.
    pub fn projection(&self) -> Option<&Arc<Projection>> {
        self.projection.as_ref()
    }

    /// Whether another generation is defined than the one that answers.
    pub fn is_behind(&self) -> bool {
        self.projection
            .as_ref()
            .is_some_and(|projection| projection.generation() < self.definition.generation)
    }

    /// The first checkpoint whose archive run may hold keys of this filter.
    pub(crate) fn first_run(&self) -> u64 {
        self.first_run
    }

    /// Offers the array of the newest definition, with all that was folded so far.
    pub(crate) fn offer(&mut self, next: Arc<Projection>) {
        self.next = Some(next);
    }

    /// Whether the array of the newest definition is there.
    pub(crate) fn has_offer(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.generation() == self.definition.generation)
    }

    /// Lets the newest definition answer.
    pub(super) fn switch(&mut self) -> Result<Outcome> {
        if !self.is_behind() {
            // A clear made the array of the newest definition already: what was built of the keys before it is not wanted.
            self.next = None;
            return Ok(Outcome::Done);
        }
        if !self.has_offer() {
            let name = &self.definition.name;
            return Err(Error::Retry(format!("the next generation of {name} is not built")));
        }
        let next = self.next.take();
        if let (Some(next), Some(old)) = (&next, &self.projection) {
            next.follow(old, self.definition.shards);
        }
        self.projection = next;
        Ok(Outcome::Done)
    }

    /// Puts another array in place of the one that answers.
    pub(crate) fn set_projection(&mut self, projection: Option<Arc<Projection>>) {
        self.projection = projection;
    }

    /// What came after the archive and was not frozen yet.
    pub(crate) fn newest(&self) -> Option<&Newest> {
        self.tail.as_ref().map(Tail::newest)
    }

    /// Freezes what came after the archive, and gives all frozen parts.
    pub(crate) fn freeze(&mut self) -> Vec<Arc<Newest>> {
        self.tail.as_mut().map(Tail::freeze).unwrap_or_default()
    }

    /// Forgets frozen parts that are archived now.
    pub(crate) fn archived(&mut self, parts: &[Arc<Newest>]) {
        if let Some(tail) = &mut self.tail {
            tail.archived(parts);
        }
    }

    /// Adds less removals since the archive.
    pub(crate) fn tail_net(&self, key: Fingerprint) -> i64 {
        self.tail.as_ref().map_or(0, |tail| tail.net(key))
    }

    /// How often a key is here, exactly if keys are kept; if not, whether it seems to be.
    pub(super) fn held(&self, filter: u64, key: Fingerprint, archived: &Archived) -> Result<i64> {
        if !self.resident()?.contains(key) {
            return Ok(0);
        }
        match &self.tail {
            Some(tail) => Ok(archived.net(filter, key)? + tail.net(key)),
            None => Ok(1),
        }
    }

    /// For each key, whether it is not here and was not named before.
    pub(super) fn lacks(&self, filter: u64, keys: &[Fingerprint], archived: &Archived) -> Result<Vec<bool>> {
        self.resident()?;
        let mut named = HashSet::with_capacity(keys.len());
        keys.iter().map(|key| Ok(self.held(filter, *key, archived)? <= 0 && named.insert(*key))).collect()
    }

    /// Why it does not add keys only where they are absent, if it does not.
    pub(super) fn adds_no_absent_keys(&self) -> Option<String> {
        let name = &self.definition.name;
        if self.definition.spec.kind == Kind::Bloom {
            return Some(format!("the filter {name} counts no keys: a plain add adds a key once"));
        }
        self.definition.is_filling().then(|| format!("the filter {name} is being filled from its source"))
    }

    pub(super) fn resident(&self) -> Result<&Arc<Projection>> {
        self.projection.as_ref().ok_or_else(|| {
            Error::Retry(format!("the filter {} is on disk and has to be loaded first", self.definition.name))
        })
    }

    pub(super) fn add(&mut self, keys: &[Fingerprint], means: &Means) -> Result<Outcome> {
        let mut fitting = keys.len();
        if self.definition.growth == Growth::Fixed && !self.definition.is_chain() {
            let projection = self.resident()?;
            let room = projection.full_at(self.definition.shards).saturating_sub(projection.items());
            fitting = self::fitting(projection, keys, room);
        }
        let (new, full) = self.take(&keys[..fitting], means)?;
        let is_full = || format!("the filter {} is full", self.definition.name);
        let full = full.or_else(|| (fitting < keys.len()).then(is_full));
        Ok(match full {
            None => Outcome::Added(new),
            Some(why) => Outcome::Full(new, why),
        })
    }

    /// Takes keys, however many there are: for each that it took, whether it was new, and why it took no more. Only chains can be
    /// full, and they have no next generation.
    pub(super) fn take(
        &mut self,
        keys: &[Fingerprint],
        means: &Means,
    ) -> Result<(Vec<bool>, Option<String>)> {
        let projection = Arc::clone(self.resident()?);
        let mut new = Vec::new();
        let full = projection.insert(keys, &mut new).err().map(|error| error.to_string());
        if self.definition.is_chain() {
            projection.account(means);
        }
        let taken = &keys[..new.len()];
        if let Some(tail) = &mut self.tail {
            tail.add(taken);
        }
        if let Some(next) = &self.next {
            let _ = next.insert(taken, &mut Vec::new());
        }
        Ok((new, full))
    }

    /// Adds keys in the plain case, in which nobody has to be told more than `new` holds, and gives how many were new. In all
    /// other cases nothing is done and nothing given.
    #[inline]
    pub(super) fn add_simply(&mut self, keys: &[Fingerprint], new: &mut [bool]) -> Option<u64> {
        // The source of a filter that counts knows less than whoever uses it.
        let filling = self.definition.is_filling()
            && (self.definition.spec.kind != Kind::Bloom || self.followed.failed().is_some());
        let plain = self.next.is_none()
            && self.definition.growth != Growth::Fixed
            && !self.definition.is_chain()
            && !filling;
        let fresh = self.projection.as_ref().filter(|_| plain)?.insert_simply(keys, new)?;
        if let Some(tail) = &mut self.tail {
            tail.add(keys);
        }
        Some(fresh)
    }

    pub(super) fn remove(
        &mut self,
        filter: u64,
        keys: &[Fingerprint],
        archived: &Archived,
    ) -> Result<Outcome> {
        let Kind::Counting(_) = self.definition.spec.kind else {
            return Ok(Outcome::Refused("nothing can be removed from a bloom filter".into()));
        };
        let projection = Arc::clone(self.resident()?);
        if self.tail.is_none() {
            // Without an exact record, it is taken out if it seems to be there.
            return Ok(Outcome::Removed(keys.iter().map(|key| projection.remove(*key)).collect()));
        }
        // All are known before anything changes.
        keys.iter().try_for_each(|key| self.held(filter, *key, archived).map(drop))?;
        let removed = keys.iter().map(|key| {
            let is_held = self.held(filter, *key, archived)? > 0;
            if is_held {
                self.take_out(*key);
            }
            Ok(is_held)
        });
        Ok(Outcome::Removed(removed.collect::<Result<_>>()?))
    }

    /// Takes a key out, once, that is known to be here.
    pub(super) fn take_out(&mut self, key: Fingerprint) {
        for projection in self.projection.iter().chain(&self.next) {
            projection.remove(key);
        }
        if let Some(tail) = &mut self.tail {
            tail.remove(key);
        }
    }

    pub(super) fn clear(&mut self, first_run: u64, means: &Means) -> Result<()> {
        self.projection = Some(Arc::new(Projection::new(&self.definition, means)?));
        if let Some(tail) = &mut self.tail {
            tail.clear();
        }
        self.next = None;
        self.first_run = first_run;
        Ok(())
    }

    /// Takes empty arrays of these shapes in place of its own. What it kept of its keys would be wrong then, so it must have none.
    pub(super) fn adopt(&mut self, items: u64, outlines: &[Bytes], means: &Means) -> Result<Outcome> {
        if let Some(why) = self.takes_no_content() {
            return Ok(Outcome::Refused(why));
        }
        if outlines.is_empty() || outlines.len() > LAYERS_MAX {
            let why = format!("{} arrays; it must be 1 to {LAYERS_MAX}", outlines.len());
            return Ok(Outcome::Refused(why));
        }
        let mut layers = Vec::with_capacity(outlines.len());
        for outline in outlines {
            match Layer::of_outline(&self.definition, outline, means) {
                Ok(layer) => layers.push(Arc::new(layer)),
                Err(Error::Invalid(why)) => return Ok(Outcome::Refused(why)),
                Err(error) => return Err(error),
            }
        }
        self.projection =
            Some(Arc::new(Projection::of(self.definition.generation, layers, Counts::of_items(items))));
        self.next = None;
        Ok(Outcome::Done)
    }

    /// Sets the bits of blocks that follow each other.
    pub(super) fn load(&mut self, layer: usize, block: usize, items: u64, bytes: &[u8]) -> Result<Outcome> {
        if let Some(why) = self.takes_no_content() {
            return Ok(Outcome::Refused(why));
        }
        Ok(match self.resident()?.load_blocks((layer, block), items, bytes) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Refused(error.to_string()),
        })
    }

    fn takes_no_content(&self) -> Option<String> {
        let name = &self.definition.name;
        (self.definition.retain || self.definition.window.is_some())
            .then(|| format!("the filter {name} keeps its keys: it takes no bits without them"))
    }

    /// Takes the next definition. A filter that keeps its keys is rebuilt later; the others get one more layer now.
    pub(super) fn redefine(&mut self, next: &Definition, means: &Means) -> Result<Outcome> {
        if let Err(why) = next.check_follows(&self.definition) {
            return Ok(Outcome::Refused(why));
        }
        if !next.retain {
            let stacked = self.resident()?.stacked(&self.definition, next, means);
            match stacked {
                Ok(stacked) => self.projection = Some(Arc::new(stacked)),
                Err(Error::Invalid(why)) => return Ok(Outcome::Refused(why)),
                Err(error) => return Err(error),
            }
        }
        self.next = None;
        self.definition = next.described(&self.definition);
        Ok(Outcome::Done)
    }
}

/// How many of these keys a filter takes that has room for so many new ones.
fn fitting(projection: &Projection, keys: &[Fingerprint], mut room: u64) -> usize {
    if room >= keys.len() as u64 {
        return keys.len();
    }
    // A key that comes twice takes room once.
    let mut taken = HashSet::new();
    let takes = |key: &&Fingerprint| {
        let known = projection.contains(**key) || !taken.insert(**key);
        let takes = known || room > 0;
        room = room.saturating_sub(u64::from(!known));
        takes
    };
    keys.iter().take_while(takes).count()
}

#[cfg(test)]
mod tests {
    use umbel_filter::{Family, Hasher, Spec};

    use super::*;
    use crate::budget::Budget;

    #[test]
    fn what_was_built_before_a_clear_is_not_kept_behind_it() {
        let means = Means::new(Budget::new(1 << 20));
        let first = Definition::new("f", Spec::bloom(1000, 0.01));
        let next = first.resized(2000, 0.01).unwrap();
        let mut shard = Shard::new(first, 1, &means).unwrap();
        shard.redefine(&next, &means).unwrap();
        // Whoever builds the next size did not see the clear: it comes before the first checkpoint.
        let built = Arc::new(Projection::new(&next, &means).unwrap());
        shard.clear(1, &means).unwrap();
        let used = means.budget.used();
        shard.offer(built);
        assert_eq!(shard.switch().unwrap(), Outcome::Done);
        assert!(!shard.has_offer());
        assert!(means.budget.used() < used, "the memory of the array is free again");
        let key = Hasher::new(Family::Murmur3, None).unwrap().fingerprint(b"key");
        assert_eq!(shard.add_simply(&[key], &mut [false]), Some(1));
    }
    #[test]
    fn arrays_that_differ_decide_alike_what_is_absent() {
        let means = Means::new(Budget::new(1 << 24));
        let spec = Spec::counting(1000, 0.01);
        let hasher = Hasher::new(Family::Murmur3, None).unwrap();
        let key = |number: u32| hasher.fingerprint(&number.to_le_bytes());
        let keys: Vec<_> = (0..2000).map(key).collect();
        let (half, others): (_, Vec<_>) = (&keys[..1000], (10_000..60_000).map(key).collect());
        // The second one is another host's: bigger, or with counters that are stuck for keys that were there once.
        let lacks = |first: &Definition, full: bool| {
            let mut shard = Shard::new(first.clone(), 1, &means).unwrap();
            if full {
                shard.projection().unwrap().insert(&others, &mut Vec::new()).unwrap();
            }
            shard.add(half, &means).unwrap();
            let there = shard.projection().unwrap();
            let seem = keys.iter().filter(|key| there.contains(**key)).count();
            (seem, shard.lacks(1, &keys, &Archived::none()).unwrap())
        };
        let (seem, first) = lacks(&Definition::new("f", spec), false);
        let (all_seem, full) = lacks(&Definition::new("f", spec), true);
        let (few_seem, large) = lacks(&Definition::new("f", Spec::counting(100_000, 0.001)), false);
        assert!(few_seem < seem + 20 && all_seem == 2000, "{few_seem}, {seem}, {all_seem}");
        assert!(first.iter().enumerate().all(|(at, lacks)| *lacks == (at >= 1000)));
        assert!(first == full && first == large);
    }

    #[test]
    fn a_switch_counts_the_same_whenever_the_next_size_was_built() {
        let means = Means::new(Budget::new(1 << 20));
        let first = Definition::new("f", Spec::bloom(1000, 0.01));
        let next = first.resized(4000, 0.01).unwrap();
        let hasher = Hasher::new(Family::Murmur3, None).unwrap();
        let keys: Vec<_> = (0..3000_u32).map(|key| hasher.fingerprint(&key.to_le_bytes())).collect();
        // So many come before the array of the next size is offered, after its definition.
        let counts = [2000, 2500, 3000].map(|before| {
            let mut shard = Shard::new(first.clone(), 1, &means).unwrap();
            shard.add(&keys[..2000], &means).unwrap();
            shard.redefine(&next, &means).unwrap();
            shard.add(&keys[2000..before], &means).unwrap();
            let built = Projection::new(&next, &means).unwrap();
            built.insert(&keys[..before], &mut Vec::new()).unwrap();
            let built = Projection::of(next.generation, built.layers().to_vec(), Counts::default());
            shard.offer(Arc::new(built));
            shard.add(&keys[before..], &means).unwrap();
            shard.switch().unwrap();
            shard.projection().unwrap().counts()
        });
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        assert!(counts[0].items.abs_diff(3000) < 100, "{counts:?}");
    }
}
