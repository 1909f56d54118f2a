//! A filter that is filled from a source to take the place of another one, and follows that one meanwhile.
//!
//! ```text
//!  source ---- keys ----> the follower <---- adds, removals ---- the other filter <---- whoever uses it
//! ```
//!
//! Whoever uses the filter knows more than the source, which is read before and after: a key that was removed stays away, however
//! often the source names it, until it is added again. And a key that is named twice, by the source and by whoever uses the filter or
//! by a source that is read again, is one key: where keys are counted, none counts more often here than there, and one that is not there
//! counts once.
//!
//! All of it happens where the other filter's entries stand in the log, so all who fold the log come to the same.
//!
//! When it is filled, and until the other one is dropped, it is the other way round too: one node may have heard that the follower has the
//! name while another has not, and both have to find what either of them adds.

use std::collections::{BTreeSet, HashMap};

use umbel_filter::{Fingerprint, Kind};
use xxhash_rust::xxh3::Xxh3Default;

use super::shard::Shard;
use super::{Archived, Means, Outcome, State, Work};
use crate::Result;
use crate::definition::Definition;
use crate::entry::Operation;
use crate::fields::{Fields, put_bytes, put_list, take_bytes, take_list};
use crate::limits::REBUILD_REMOVALS_MAX;

/// What a follower remembers of the filter that it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Keys that were removed and not added again.
    removed: BTreeSet<Fingerprint>,
    /// Why it cannot take the other's place any more.
    failed: Option<String>,
}

impl Followed {
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.failed.is_none()
    }

    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
        self.removed.clear();
    }

    fn remove(&mut self, key: Fingerprint, definition: &Definition) {
        self.removed.insert(key);
        let most = REBUILD_REMOVALS_MAX / definition.shards.max(1) as usize;
        if self.removed.len() > most {
            self.fail(format!(
                "too many keys were removed while the source was read: about {REBUILD_REMOVALS_MAX} may be"
            ));
        }
    }

    /// The source was read: nothing comes any more that removals could be compared with.
    pub(super) fn end(&mut self) {
        self.removed.clear();
    }

    pub(super) fn digest_into(&self, digest: &mut Xxh3Default) {
        self.removed.iter().for_each(|key| digest.update(&key.to_bytes()));
        digest.update(self.failed.as_deref().unwrap_or_default().as_bytes());
    }

    /// The stored form; `docs/formats.md` draws it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let removed: Vec<_> = self.removed.iter().collect();
        put_list(out, &removed, |out, key| out.extend(key.to_bytes()));
        put_bytes(out, self.failed.as_deref().unwrap_or_default().as_bytes());
    }

    /// Reads what [`put`](Self::put) wrote.
    pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Self> {
        let removed = take_list(fields, |fields| Ok(Fingerprint::from_bytes(fields.take()?)))?;
        let why = String::from_utf8_lossy(take_bytes(fields)?).into_owned();
        Ok(Self { removed: removed.into_iter().collect(), failed: (!why.is_empty()).then_some(why) })
    }
}

/// What a follower does.
impl Shard {
    /// Says whether everything is known that it takes to follow an entry with these keys.
    fn check_follows(&self, filter: u64, keys: &[Fingerprint], archived: &Archived) -> Result<()> {
        self.resident()?;
        if self.definition.spec.kind == Kind::Bloom {
            return Ok(());
        }
        keys.iter().try_for_each(|key| self.held(filter, *key, archived).map(drop))
    }

    /// Adds keys of the source, each of which may be here as often as `most` says.
    fn fill(
        &mut self,
        filter: u64,
        keys: &[Fingerprint],
        most: &[i64],
        archived: &Archived,
        means: &Means,
    ) -> Result<Outcome> {
        if let Some(why) = self.followed.failed() {
            return Ok(Outcome::Refused(why.to_owned()));
        }
        let is_there = |key: &Fingerprint| !self.followed.removed.contains(key);
        let lacking = self.lacking(filter, keys, most, archived)?;
        let lacking: Vec<usize> = lacking.into_iter().filter(|place| is_there(&keys[*place])).collect();
        let taken = self.take_some(keys, &lacking, means)?;
        let mut new = vec![false; keys.len()];
        lacking.iter().zip(taken).for_each(|(place, taken)| new[*place] = taken);
        Ok(Outcome::Added(new))
    }

    /// Where keys stand that may be here once more.
    fn lacking(
        &self,
        filter: u64,
        keys: &[Fingerprint],
        most: &[i64],
        archived: &Archived,
    ) -> Result<Vec<usize>> {
        if self.definition.spec.kind == Kind::Bloom {
            return Ok((0..keys.len()).collect());
        }
        let (mut lacking, mut counts) = (Vec::new(), HashMap::new());
        for (place, (key, most)) in keys.iter().zip(most).enumerate() {
            let held = self.held(filter, *key, archived)?;
            let count = counts.entry(*key).or_insert(held);
            if *count < *most {
                *count += 1;
                lacking.push(place);
            }
        }
        Ok(lacking)
    }

    fn take_some(&mut self, keys: &[Fingerprint], places: &[usize], means: &Means) -> Result<Vec<bool>> {
        if places.len() == keys.len() {
            return Ok(self.take(keys, means)?.0);
        }
        let some: Vec<Fingerprint> = places.iter().map(|place| keys[*place]).collect();
        Ok(self.take(&some, means)?.0)
    }

    /// Takes keys that were added to the other filter, each of which may be here as often as `most` says.
    fn follow_adds(
        &mut self,
        filter: u64,
        keys: &[Fingerprint],
        most: &[i64],
        archived: &Archived,
        means: &Means,
    ) -> Result<()> {
        if self.followed.failed().is_some() {
            return Ok(());
        }
        if !self.followed.removed.is_empty() {
            keys.iter().for_each(|key| _ = self.followed.removed.remove(key));
        }
        let lacking = self.lacking(filter, keys, most, archived)?;
        self.take_some(keys, &lacking, means)?;
        Ok(())
    }

    /// Lets go of keys that were removed from the other filter, each with whether that one still has it. What it has is never lost here,
    /// and what it has not goes, however often it came.
    fn follow_removals(
        &mut self,
        filter: u64,
        keys: &[(Fingerprint, bool)],
        archived: &Archived,
    ) -> Result<()> {
        if self.definition.spec.kind == Kind::Bloom {
            return Ok(());
        }
        for (key, is_held) in keys {
            if self.followed.failed().is_some() {
                return Ok(());
            }
            let held = self.held(filter, *key, archived)?;
            let surplus = if *is_held { (held - 1).clamp(0, 1) } else { held };
            (0..surplus).for_each(|_| self.take_out(*key));
            if !is_held && self.definition.is_filling() {
                self.followed.remove(*key, &self.definition);
            }
        }
        Ok(())
    }

    /// It cannot take the other's place any more, because that one has what is not here.
    fn cannot_follow(&mut self, why: &str) {
        self.followed.fail(why.to_owned());
    }
}

/// What is done where a filter has followers.
impl State {
    /// The filters that follow another.
    pub(crate) fn followers(&self, filter: u64) -> impl Iterator<Item = u64> {
        self.followers.range((filter, 0)..=(filter, u64::MAX)).map(|(_, follower)| *follower)
    }

    pub(super) fn is_followed(&self, filter: u64) -> bool {
        !self.followers.is_empty() && self.followers(filter).next().is_some()
    }

    /// The filter whose place another one takes that is filled, while it is still here.
    pub(super) fn replaced_by(&self, filter: u64) -> Option<u64> {
        if self.followers.is_empty() {
            return None;
        }
        let mirror = self.filters.get(&filter)?.definition.mirrors?;
        (mirror.is_filled && self.filters.contains_key(&mirror.of)).then_some(mirror.of)
    }

    /// The filters that have to be in memory for an entry besides its own: those that follow it, and the one that it follows.
    pub(crate) fn related(&self, filter: u64) -> Vec<u64> {
        let of = self.filters.get(&filter).and_then(|shard| shard.definition.mirrors).map(|mirror| mirror.of);
        of.into_iter().chain(self.followers(filter)).collect()
    }

    /// The filters whose archive has to be asked for the keys of an entry.
    pub(crate) fn asks_archive_of(&self, filter: u64, work: Work<'_>) -> Vec<u64> {
        let asks = match work {
            Work::Add(_) => self.filters.get(&filter).is_some_and(|shard| shard.definition.is_filling()),
            Work::Remove(_) | Work::AddAbsent(_) => true,
            Work::DefineInAll(_) | Work::Other(_) => return Vec::new(),
        };
        let counts = |filter: &u64| {
            self.filters.get(filter).is_some_and(|shard| shard.definition.spec.kind != Kind::Bloom)
        };
        let replaced = self.replaced_by(filter).filter(|_| matches!(work, Work::Remove(_)));
        let asked = asks.then_some(filter).into_iter().chain(self.followers(filter)).chain(replaced);
        asked.filter(counts).collect()
    }

    /// How often each key may be in a filter that follows another: as often as it is there, and once if it is not.
    fn most(&self, of: u64, keys: &[Fingerprint]) -> Result<Vec<i64>> {
        let Some(shard) = self.filters.get(&of) else { return Ok(vec![1; keys.len()]) };
        let projection = shard.resident()?;
        Ok(keys.iter().map(|key| projection.count_at_most(*key).max(1)).collect())
    }

    /// Adds keys of its source to a filter that follows another.
    pub(super) fn fill(&mut self, filter: u64, keys: &[Fingerprint], archived: &Archived) -> Result<Outcome> {
        let mirror = self.filters.get(&filter).and_then(|shard| shard.definition.mirrors);
        let most = self.most(mirror.map_or(filter, |mirror| mirror.of), keys)?;
        let Some(shard) = self.filters.get_mut(&filter) else { return Ok(Outcome::Passed) };
        shard.fill(filter, keys, &most, archived, &self.means)
    }

    /// Does the work in a filter and in those that follow it. They can be asked before anything changes.
    pub(super) fn perform_followed(
        &mut self,
        filter: u64,
        work: Work<'_>,
        archived: &Archived,
    ) -> Result<Outcome> {
        let followers: Vec<u64> = self.followers(filter).collect();
        let keys = work.keys();
        for follower in &followers {
            let Some(shard) = self.filters.get(follower) else { continue };
            if !keys.is_empty() {
                shard.check_follows(*follower, keys, archived)?;
            } else if is_beyond_followers(work) && !shard.definition.is_filling() {
                return Ok(Outcome::Refused("another filter is about to take its place".into()));
            }
        }
        let outcome = self.perform_alone(filter, work, archived)?;
        let (mut most, mut removed) = (Vec::new(), Vec::new());
        match (&outcome, self.filters.get(&filter)) {
            (Outcome::Added(_) | Outcome::Full(..), _) => most = self.most(filter, keys)?,
            (Outcome::Removed(_), Some(shard)) => {
                for key in keys {
                    removed.push((*key, shard.held(filter, *key, archived)? > 0));
                }
            }
            _ => {}
        }
        for follower in &followers {
            let Some(shard) = self.filters.get_mut(follower) else { continue };
            match &outcome {
                Outcome::Added(new) | Outcome::Full(new, _) => {
                    shard.follow_adds(*follower, &keys[..new.len()], &most, archived, &self.means)?;
                }
                Outcome::Removed(_) => shard.follow_removals(*follower, &removed, archived)?,
                Outcome::Done if is_beyond_followers(work) => {
                    shard.cannot_follow(
                        "the filter was cleared, or bits were put into it, while the source was read",
                    );
                }
                _ => {}
            }
        }
        Ok(outcome)
    }
}

/// What is done in a filter whose place another one takes.
impl State {
    /// Says whether everything is known that it takes to do there what is done in the other one.
    pub(super) fn check_replaced(&self, old: u64, work: Work<'_>, archived: &Archived) -> Result<()> {
        match (work, self.filters.get(&old)) {
            (Work::Add(_), Some(shard)) => shard.resident().map(drop),
            (Work::Remove(keys), Some(shard)) => shard.check_follows(old, keys, archived),
            _ => Ok(()),
        }
    }

    /// Adds there what was added to the other one, and takes out what was taken out of it.
    pub(super) fn perform_in_replaced(
        &mut self,
        old: u64,
        work: Work<'_>,
        outcome: &Outcome,
        archived: &Archived,
    ) -> Result<()> {
        let Some(shard) = self.filters.get_mut(&old) else { return Ok(()) };
        match (work, outcome) {
            // However full it is: it has not long to live.
            (Work::Add(keys), Outcome::Added(new) | Outcome::Full(new, _)) => {
                shard.take(&keys[..new.len()], &self.means)?;
            }
            (Work::Remove(keys), Outcome::Removed(removed)) if shard.definition.spec.kind != Kind::Bloom => {
                for (key, _) in keys.iter().zip(removed).filter(|(_, removed)| **removed) {
                    if shard.held(old, *key, archived)? > 0 {
                        shard.take_out(*key);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether it changes a filter otherwise than key by key, so that no follower can do the same.
fn is_beyond_followers(work: Work<'_>) -> bool {
    matches!(work, Work::Other(Operation::Clear | Operation::Adopt { .. } | Operation::Load { .. }))
}

#[cfg(test)]
mod tests {
    use umbel_filter::Spec;

    use super::*;

    fn key(number: u64) -> Fingerprint {
        Fingerprint { first: number, second: number }
    }

    #[test]
    fn removals_are_remembered_up_to_a_bound_and_stored() {
        // Each of so many shards has a share of four.
        let shards = REBUILD_REMOVALS_MAX as u32 / 4;
        let definition = Definition { shards, ..Definition::new("f", Spec::counting(10, 0.1)) };
        let mut followed = Followed::default();
        assert!(followed.is_empty());
        let stored = |followed: &Followed| {
            let mut out = Vec::new();
            followed.put(&mut out);
            let mut fields = Fields::new(&out, "test");
            let back = Followed::take(&mut fields).unwrap();
            fields.end().unwrap();
            back
        };
        for number in [0, 1, 2, 3, 3, 2] {
            followed.remove(key(number), &definition);
        }
        assert_eq!(followed.failed(), None);
        assert_eq!(stored(&followed), followed);
        followed.remove(key(4), &definition);
        assert!(followed.failed().unwrap().contains("about 1048576 may be"), "{followed:?}");
        assert!(followed.removed.is_empty() && !followed.is_empty());
        assert_eq!(stored(&followed), followed);
    }
}
