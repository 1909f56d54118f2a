//! The fold: what a slot's log comes to, entry by entry.
//!
//! [`State::apply`] is the same in a node, a replica, a rebuild and a test. It depends on nothing but the state and the entry: no
//! clock, no chance, no order of threads. Two states that folded the same entries are equal.

mod counts;
mod mirror;
mod projection;
mod sessions;
mod shard;
mod tail;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use umbel_filter::Fingerprint;
use xxhash_rust::xxh3::Xxh3Default;

use crate::definition::Definition;
use crate::entry::{Entry, Operation, Request, SPREAD};
use crate::log::Record;
use crate::{Error, Position, Result};
pub(crate) use counts::Counters;
pub use counts::Counts;
pub(crate) use mirror::Followed;
pub(crate) use projection::{Layer, Place};
pub use projection::{Means, Projection};
use sessions::{Known, Sessions};
pub use shard::Shard;
pub use tail::Newest;

/// Everything that one slot holds.
#[derive(Debug)]
pub struct State {
    slot: u16,
    slots: u32,
    applied: Position,
    filters: BTreeMap<u64, Shard>,
    /// The filters that have their home here, by name.
    names: HashMap<String, u64>,
    /// Filters, each with one that follows it.
    followers: BTreeSet<(u64, u64)>,
    sessions: Sessions,
    /// The number of the last checkpoint that was begun.
    checkpoint: u64,
    means: Means,
}

/// What an entry came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// For each key, whether it was new.
    Added(Vec<bool>),
    /// For each key, whether it was there to be removed.
    Removed(Vec<bool>),
    /// The filter became full: for each key that it still took, whether it was new; and why it took no more.
    Full(Vec<bool>, String),
    /// Keys were added where they were absent: for each key, whether it was added, or nothing if the filter was too full to take it;
    /// and why it was too full.
    AddedAbsent(Vec<Option<bool>>, Option<String>),
    /// It was done.
    Done,
    /// It changed nothing, on every node alike, for this reason.
    Refused(String),
    /// It has no effect here: it is of another slot, or was folded before.
    Passed,
}

/// Why a filter does not get a name that another one has.
pub fn name_taken(name: &str) -> String {
    format!("there is a filter {name} already")
}

/// Why an entry is refused whose filter is not there.
pub(crate) fn no_filter(filter: u64) -> String {
    format!("there is no filter {filter:x}")
}

/// What is to be done in a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    Add(&'a [Fingerprint]),
    Remove(&'a [Fingerprint]),
    AddAbsent(&'a [Fingerprint]),
    /// A definition that goes to all slots of a partition. The home of a filter takes it only for a filter that it has: what was dropped
    /// there does not come back when another node repeats the definition in all slots.
    DefineInAll(&'a [u8]),
    /// Anything else without keys.
    Other(&'a Operation),
}

impl<'a> Work<'a> {
    /// The keys that it adds or takes out.
    pub(crate) fn keys(self) -> &'a [Fingerprint] {
        match self {
            Self::Add(keys) | Self::Remove(keys) | Self::AddAbsent(keys) => keys,
            Self::DefineInAll(_) | Self::Other(_) => &[],
        }
    }

    fn has_keys(self) -> bool {
        !matches!(self, Self::DefineInAll(_) | Self::Other(_))
    }
}

impl<'a> From<&'a Operation> for Work<'a> {
    fn from(operation: &'a Operation) -> Self {
        match operation {
            Operation::Add(keys) => Self::Add(keys),
            Operation::Remove(keys) => Self::Remove(keys),
            Operation::AddAbsent(keys) => Self::AddAbsent(keys),
            other => Self::Other(other),
        }
    }
}

impl Outcome {
    /// How many keys were new.
    pub(crate) fn new_keys(&self) -> u64 {
        match self {
            Self::Added(new) | Self::Full(new, _) => new.iter().filter(|new| **new).count() as u64,
            _ => 0,
        }
    }
}

/// What the archive says of the fingerprints in an entry. A removal needs it, because the state keeps only what came after the
/// archive. It is as much a part of the log as the state is: how it was looked up makes no difference.
#[derive(Debug, Default)]
pub struct Archived {
    nets: HashMap<(u64, Fingerprint), i64>,
    exists: bool,
}

impl Archived {
    /// Nothing is archived: all there is came after it.
    pub fn none() -> Self {
        Self::default()
    }

    /// What was looked up of a filter's keys.
    pub(crate) fn insert(&mut self, filter: u64, key: Fingerprint, net: i64) {
        self.exists = true;
        *self.nets.entry((filter, key)).or_default() += net;
    }

    /// Whether a key was looked up.
    pub(crate) fn knows(&self, filter: u64, key: Fingerprint) -> bool {
        self.nets.contains_key(&(filter, key))
    }

    fn net(&self, filter: u64, key: Fingerprint) -> Result<i64> {
        match self.nets.get(&(filter, key)) {
            Some(net) => Ok(*net),
            None if !self.exists => Ok(0),
            None => Err(Error::Retry("the archive was not asked for a key that is to be removed".into())),
        }
    }
}

impl State {
    /// A slot, of so many, before its first entry.
    pub fn new(slot: u16, slots: u32, means: Means) -> Self {
        Self {
            slot,
            slots,
            applied: Position::START,
            filters: BTreeMap::new(),
            names: HashMap::new(),
            followers: BTreeSet::new(),
            sessions: Sessions::default(),
            checkpoint: 0,
            means,
        }
    }

    /// The slot's number.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The position of the last entry that was folded, or a later one with nothing for this slot before it.
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// A filter's part in this slot.
    #[inline]
    pub fn shard(&self, filter: u64) -> Option<&Shard> {
        self.filters.get(&filter)
    }

    /// All filters that have a part in this slot, by number.
    pub fn shards(&self) -> impl Iterator<Item = (u64, &Shard)> {
        self.filters.iter().map(|(filter, shard)| (*filter, shard))
    }

    /// Folds a record of the slot's log. Records that were folded before are passed over, so a replay may overlap.
    ///
    /// An error means that this node cannot go on: the record is damaged, or memory is short. Nothing was changed then.
    pub fn apply_record(&mut self, record: &Record, archived: &Archived) -> Result<Outcome> {
        if record.position <= self.applied {
            return Ok(Outcome::Passed);
        }
        self.apply(record.position, &Entry::decode(&record.entry)?, archived)
    }

    /// Folds an entry that stands at `position`.
    pub fn apply(&mut self, position: Position, entry: &Entry, archived: &Archived) -> Result<Outcome> {
        let own;
        let work = match (&entry.operation, entry.slot) {
            (Operation::Add(keys), SPREAD) => {
                own = self.own(keys);
                Work::Add(&own)
            }
            (Operation::Remove(keys), SPREAD) => {
                own = self.own(keys);
                Work::Remove(&own)
            }
            (Operation::AddAbsent(keys), SPREAD) => {
                own = self.own(keys);
                Work::AddAbsent(&own)
            }
            (Operation::Define(definition), SPREAD) => Work::DefineInAll(definition),
            (operation, _) => operation.into(),
        };
        let nothing = entry.slot == SPREAD && work.has_keys() && work.keys().is_empty();
        if nothing || (entry.slot != SPREAD && entry.slot != self.slot) {
            return Ok(self.passed(position));
        }
        self.apply_work(position, entry.filter, entry.request, work, archived)
    }

    /// Folds what of an entry is for this slot.
    pub(crate) fn apply_work(
        &mut self,
        position: Position,
        filter: u64,
        request: Request,
        work: Work<'_>,
        archived: &Archived,
    ) -> Result<Outcome> {
        if position <= self.applied {
            return Ok(Outcome::Passed);
        }
        let is_lost = work.has_keys() && !self.filters.contains_key(&filter);
        let outcome = match self.sessions.known(request) {
            // It changed nothing, so it is not remembered: the same request may go to the filter that took the place of this one.
            Known::New if is_lost => {
                self.applied = position;
                return self.perform(filter, work, archived);
            }
            Known::New => self.perform(filter, work, archived)?,
            Known::Answered(outcome) => outcome,
            Known::Old => Outcome::Refused(format!(
                "request {} of session {:x} is older than the last one",
                request.sequence, request.session
            )),
        };
        self.sessions.remember(request, &outcome, position);
        self.applied = position;
        Ok(outcome)
    }

    /// Adds keys for nobody's session, with the answers in `new`, which is as long as `keys`, and gives how many were new. What
    /// takes more than that is left undone for [`apply_work`](Self::apply_work), which does the same and more.
    #[inline]
    pub(crate) fn add_simply(
        &mut self,
        position: Position,
        filter: u64,
        keys: &[Fingerprint],
        new: &mut [bool],
    ) -> Option<u64> {
        if position <= self.applied || self.is_followed(filter) || self.replaced_by(filter).is_some() {
            return None;
        }
        let fresh = self.filters.get_mut(&filter)?.add_simply(keys, new)?;
        self.applied = position;
        Some(fresh)
    }

    /// The keys that belong to this slot.
    fn own(&self, keys: &[Fingerprint]) -> Vec<Fingerprint> {
        keys.iter().copied().filter(|key| key.slot(self.slots) == u32::from(self.slot)).collect()
    }

    fn perform(&mut self, filter: u64, work: Work<'_>, archived: &Archived) -> Result<Outcome> {
        if let Work::Other(Operation::Define(bytes)) = work {
            return self.define(filter, bytes, true);
        }
        if let Work::DefineInAll(bytes) = work {
            return self.define(filter, bytes, false);
        }
        if let Work::Other(Operation::Describe(bytes)) = work {
            return Ok(self.describe(filter, bytes, None));
        }
        if let Work::Other(Operation::Redescribe { from, definition }) = work {
            return Ok(self.describe(filter, definition, Some(*from)));
        }
        if !self.filters.contains_key(&filter) {
            return Ok(match work {
                Work::Other(Operation::Barrier | Operation::Drop | Operation::Switch) => Outcome::Done,
                _ => Outcome::Refused(no_filter(filter)),
            });
        }
        if let Work::AddAbsent(keys) = work {
            return self.add_absent(filter, keys, archived);
        }
        let replaced = self.replaced_by(filter);
        if let Some(old) = replaced {
            self.check_replaced(old, work, archived)?;
        }
        let outcome = if self.is_followed(filter) {
            self.perform_followed(filter, work, archived)?
        } else {
            self.perform_alone(filter, work, archived)?
        };
        if let Some(old) = replaced {
            self.perform_in_replaced(old, work, &outcome, archived)?;
        }
        Ok(outcome)
    }

    /// Adds those of these keys that the filter does not hold here in the log, each once.
    ///
    /// The decision has to be the same for every host, replay and rebuild, or one would hold a key that another calls absent. Arrays do
    /// not give that: one that was built again from the archive has other stuck counters than one that was filled entry by entry. So
    /// a filter that keeps its keys decides by their exact count, as removals do, and one that does not decides by its arrays,
    /// which only the log changes.
    fn add_absent(&mut self, filter: u64, keys: &[Fingerprint], archived: &Archived) -> Result<Outcome> {
        let Some(shard) = self.filters.get(&filter) else { return Ok(Outcome::Passed) };
        if let Some(why) = shard.adds_no_absent_keys() {
            return Ok(Outcome::Refused(why));
        }
        let is_absent = shard.lacks(filter, keys, archived)?;
        let absent: Vec<Fingerprint> =
            keys.iter().zip(&is_absent).filter(|(_, absent)| **absent).map(|(key, _)| *key).collect();
        let (taken, full) = match self.perform(filter, Work::Add(&absent), archived)? {
            Outcome::Added(_) => (absent.len(), None),
            Outcome::Full(taken, why) => (taken.len(), Some(why)),
            other => return Ok(other),
        };
        let (mut left, mut not_taken) = (taken, HashSet::new());
        let added = keys.iter().zip(is_absent).map(|(key, is_absent)| match (is_absent, left) {
            // One that is named again is not there if it was not taken the first time.
            (false, _) => (!not_taken.contains(key)).then_some(false),
            (true, 0) => {
                not_taken.insert(*key);
                None
            }
            (true, _) => {
                left -= 1;
                Some(true)
            }
        });
        Ok(Outcome::AddedAbsent(added.collect(), full))
    }

    /// Does the work in the filter itself.
    fn perform_alone(&mut self, filter: u64, work: Work<'_>, archived: &Archived) -> Result<Outcome> {
        let Some(shard) = self.filters.get_mut(&filter) else { return Ok(Outcome::Passed) };
        match work {
            Work::Add(keys) if shard.definition.is_filling() => self.fill(filter, keys, archived),
            Work::Add(keys) => shard.add(keys, &self.means),
            Work::Remove(keys) => shard.remove(filter, keys, archived),
            Work::AddAbsent(keys) => self.add_absent(filter, keys, archived),
            Work::Other(Operation::Clear) => {
                shard.clear(self.checkpoint + 1, &self.means)?;
                Ok(Outcome::Done)
            }
            Work::Other(Operation::Drop) => {
                if let Some(shard) = self.filters.remove(&filter) {
                    self.forget_name(&shard.definition.name, filter);
                    self.followers.retain(|(of, follower)| *of != filter && *follower != filter);
                }
                Ok(Outcome::Done)
            }
            Work::Other(Operation::Switch) => shard.switch(),
            Work::Other(Operation::Adopt { items, outlines }) => shard.adopt(*items, outlines, &self.means),
            Work::Other(Operation::Load { layer, block, items, bytes }) => {
                shard.load(*layer as usize, *block as usize, *items, bytes)
            }
            Work::DefineInAll(_) | Work::Other(_) => Ok(Outcome::Done),
        }
    }

    /// Makes a filter, or gives it a new definition. In its home it is made only by an entry `for_slot`.
    fn define(&mut self, filter: u64, bytes: &[u8], for_slot: bool) -> Result<Outcome> {
        let definition = match Definition::decode(bytes) {
            Ok(definition) => definition,
            Err(error) => return Ok(Outcome::Refused(error.to_string())),
        };
        if let Some(shard) = self.filters.get_mut(&filter) {
            // What a filter is called is no part of its size.
            if shard.definition == definition.described(&shard.definition) {
                return Ok(Outcome::Done);
            }
            return shard.redefine(&definition, &self.means);
        }
        if definition.generation > 0 {
            return Ok(Outcome::Refused(format!(
                "there is no filter {} that could be resized",
                definition.name
            )));
        }
        let at_home = definition.home(self.slots) == self.slot;
        if at_home && !for_slot {
            return Ok(Outcome::Passed);
        }
        if at_home && self.names.contains_key(&definition.name) {
            return Ok(Outcome::Refused(name_taken(&definition.name)));
        }
        let shard = Shard::new(definition, self.checkpoint + 1, &self.means)?;
        self.adopt(filter, shard);
        Ok(Outcome::Done)
    }

    /// Takes in a shard that was made elsewhere.
    fn adopt(&mut self, filter: u64, shard: Shard) {
        let definition = &shard.definition;
        self.followers.extend(definition.mirrors.map(|mirror| (mirror.of, filter)));
        if definition.home(self.slots) == self.slot {
            let holder = self.names.get(&definition.name);
            let replaces =
                |holder: &u64| self.filters.get(holder).and_then(|shard| shard.definition.replaces);
            let stays = |holder: &u64| {
                definition.replaces != Some(*holder) && (*holder < filter || replaces(holder) == Some(filter))
            };
            if !holder.is_some_and(stays) {
                self.names.insert(definition.name.clone(), filter);
            }
        }
        self.filters.insert(filter, shard);
    }

    /// Changes what a filter is called, and whatever else does not touch its arrays. A change that was made from another description
    /// than the filter has here in the log is refused: of two that were made at the same time, the first takes effect.
    fn describe(&mut self, filter: u64, bytes: &[u8], from: Option<u64>) -> Outcome {
        let like = match Definition::decode(bytes) {
            Ok(definition) => definition,
            Err(error) => return Outcome::Refused(error.to_string()),
        };
        let Some(now) = self.filters.get(&filter).map(|shard| shard.definition.clone()) else {
            return Outcome::Refused(no_filter(filter));
        };
        let next = now.described(&like);
        if from.is_some_and(|from| from != now.description()) {
            return Outcome::Refused(format!("the filter {} was changed at the same time", now.name));
        }
        let replaced = next.replaces.filter(|_| from.is_some() && next.replaces != now.replaces);
        if replaced.is_some_and(|replaced| self.is_named_otherwise(replaced, &next.name)) {
            let why = format!("the filter {} got another name at the same time", next.name);
            return Outcome::Refused(why);
        }
        let is_filled = now.is_filling() && !next.is_filling();
        let failed = self.filters.get(&filter).and_then(|shard| shard.followed.failed());
        if let Some(why) = failed.filter(|_| is_filled) {
            return Outcome::Refused(why.to_owned());
        }
        if now.home(self.slots) == self.slot && next.name != now.name {
            let holder = self.names.get(&next.name).copied();
            if holder.is_some() && holder != next.replaces {
                return Outcome::Refused(name_taken(&next.name));
            }
            self.forget_name(&now.name, filter);
            self.names.insert(next.name.clone(), filter);
        }
        if let Some(shard) = self.filters.get_mut(&filter) {
            shard.definition = next;
            if is_filled {
                shard.followed.end();
            }
        }
        Outcome::Done
    }

    /// Whether a filter has its home here and another name.
    fn is_named_otherwise(&self, filter: u64, name: &str) -> bool {
        let definition = self.filters.get(&filter).map(|shard| &shard.definition);
        definition.is_some_and(|definition| {
            definition.home(self.slots) == self.slot && self.names.get(name) != Some(&filter)
        })
    }

    /// Frees a name, if it is this filter's.
    fn forget_name(&mut self, name: &str, filter: u64) {
        if self.names.get(name) == Some(&filter) {
            self.names.remove(name);
        }
    }

    /// A digest of all filters and of which requests were answered: equal for equal states. How a request was answered is not in
    /// it, because an answer may have come from another generation.
    pub fn digest(&self) -> u128 {
        let mut digest = Xxh3Default::new();
        for (id, shard) in &self.filters {
            digest.update(&id.to_le_bytes());
            digest_of(shard, &mut digest);
        }
        self.sessions.digest_into(&mut digest);
        digest.digest128()
    }

    /// The digest of each filter, and that of what sessions were told: for whoever has to find out what differs.
    pub fn digests(&self) -> (Vec<(u64, u64)>, u64) {
        let of_filter = |(id, shard): (&u64, &Shard)| {
            let mut digest = Xxh3Default::new();
            digest_of(shard, &mut digest);
            (*id, digest.digest())
        };
        let mut sessions = Xxh3Default::new();
        self.sessions.digest_into(&mut sessions);
        (self.filters.iter().map(of_filter).collect(), sessions.digest())
    }
}

fn digest_of(shard: &Shard, digest: &mut Xxh3Default) {
    match shard.projection() {
        Some(projection) => projection.digest_into(digest),
        None => digest.update(b"on disk"),
    }
    shard.followed.digest_into(digest);
}

/// What checkpoints and recovery need.
impl State {
    /// The slot as a checkpoint has it: shards whose arrays are to be loaded, and what sessions were told.
    pub(crate) fn restored(
        mut self,
        checkpoint: u64,
        applied: Position,
        sessions: &[u8],
        shards: impl IntoIterator<Item = (u64, Shard)>,
    ) -> Result<Self> {
        self.checkpoint = checkpoint;
        self.applied = applied;
        self.sessions = Sessions::decode(sessions)?;
        shards.into_iter().for_each(|(filter, shard)| self.adopt(filter, shard));
        Ok(self)
    }

    /// Entries up to `position` have nothing for this slot but what was folded.
    pub(crate) fn passed(&mut self, position: Position) -> Outcome {
        self.applied = self.applied.max(position);
        Outcome::Passed
    }

    /// Begins the next checkpoint and gives its number. What is cleared from here on is cleared after it.
    pub(crate) fn begin_checkpoint(&mut self) -> u64 {
        self.checkpoint += 1;
        self.checkpoint
    }

    /// What sessions were told, to be stored.
    pub(crate) fn sessions(&self) -> Vec<u8> {
        self.sessions.encode()
    }

    /// Whether a request was folded before.
    pub(crate) fn is_repeated(&self, request: Request) -> bool {
        request.session != 0 && !matches!(self.sessions.known(request), Known::New)
    }

    pub(crate) fn shard_mut(&mut self, filter: u64) -> Option<&mut Shard> {
        self.filters.get_mut(&filter)
    }
}

/// This node cannot do what the log demands; others may.
fn cannot(error: &umbel_filter::Error) -> Error {
    Error::Retry(error.to_string())
}
