//! Filters as readers see them: by name, without waiting for anybody.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use umbel_filter::{Fingerprint, Hasher, Kind};

use super::window::Live;
use crate::definition::Definition;
use crate::fold::{Counters, Counts, Layer, Projection, Shard};
use crate::{Error, Position, Result};

/// How many keys ahead of the one that is looked up lines are asked for.
const KEYS_AHEAD: usize = 32;

/// What a lookup says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The key was not added: this is certain.
    Absent,
    /// The key may have been added.
    Maybe,
    /// The filter cannot be asked here and now.
    Unknown,
}

impl Answer {
    fn of(maybe: bool) -> Self {
        if maybe { Self::Maybe } else { Self::Absent }
    }

    /// As every door says it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Maybe => "maybe",
            Self::Unknown => "unknown",
        }
    }
}

/// A filter that lookups go to. It stays valid while the filter changes its size; when it is dropped, everything is unknown.
#[derive(Debug)]
pub struct Handle {
    id: u64,
    slots: u32,
    home: u16,
    hasher: Hasher,
    definition: ArcSwap<Definition>,
    shards: Box<[Place]>,
    /// All shards at once, for batches; none if one of them changed. To load them one by one costs more than to look into them.
    table: ArcSwapOption<Box<[Looked]>>,
    /// Whoever changes a shard or makes the table.
    changes: Mutex<()>,
    /// Shards that are not in memory. Every add asks, and counting them anew would take longer than the add.
    absent: AtomicU64,
    /// Those of them that other nodes host.
    elsewhere: AtomicU64,
    items: AtomicU64,
    lookups: Counter,
    /// Set by whoever uses the filter, cleared by whoever looks for filters that nobody uses.
    pub(super) used: AtomicBool,
    pub(super) growing: tokio::sync::Mutex<()>,
    /// Elements that the arrays which answer are made for.
    room: AtomicU64,
    /// Whether new keys came to it since the process was started.
    has_new_keys: AtomicBool,
    /// Elements that somebody wants to add at once.
    pub(super) wanted: AtomicU64,
    /// Keys that were removed since the arrays were built.
    pub(super) removals: AtomicU64,
    /// When it is gone, in milliseconds since 1970; the greatest number for never.
    expires: AtomicU64,
    /// Where in the log it got the description that it has here, and whether some node may not have folded that.
    named_at: Mutex<Position>,
    is_unconfirmed: AtomicBool,
    /// Whether its keys are in other filters.
    windowed: bool,
    pub(super) live: ArcSwap<Live>,
    /// Whoever looks for the buckets that are alive: what is found first is not stored last.
    pub(super) looking: Mutex<()>,
}

/// A counter that all readers raise, in cache lines of its own: what they read beside it does not change.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// A shard as readers see it.
#[derive(Debug, Default)]
struct Place {
    projection: ArcSwapOption<Projection>,
    /// How many keys it has while it is on disk.
    on_disk: Counters,
}

impl Place {
    fn counts(&self) -> Counts {
        let resident = self.projection.load().as_ref().map(|projection| projection.counts());
        resident.unwrap_or_else(|| self.on_disk.get())
    }
}

/// A shard as batches see it: what nearly every key asks stands first.
#[derive(Debug)]
struct Looked {
    newest: Option<Arc<Layer>>,
    /// All layers, if there are more.
    all: Option<Arc<Projection>>,
}

impl Looked {
    fn new(projection: Option<Arc<Projection>>) -> Self {
        let newest = projection.as_ref().and_then(|projection| projection.layers().last()).cloned();
        Self { newest, all: projection.filter(|projection| projection.layers().len() > 1) }
    }

    #[inline]
    fn contains(&self, key: Fingerprint) -> Answer {
        match (&self.newest, &self.all) {
            (Some(only), None) => Answer::of(only.filter.contains_fingerprint(key)),
            (_, Some(all)) => Answer::of(all.contains(key)),
            (None, None) => Answer::Unknown,
        }
    }
}

impl Handle {
    fn new(id: u64, slots: u32, definition: Definition, hasher: Hasher) -> Self {
        Self {
            id,
            slots,
            home: definition.home(slots),
            hasher,
            shards: (0..definition.shards).map(|_| Place::default()).collect(),
            table: ArcSwapOption::empty(),
            changes: Mutex::default(),
            absent: AtomicU64::new(u64::from(definition.shards)),
            elsewhere: AtomicU64::new(0),
            expires: AtomicU64::new(definition.expires.unwrap_or(u64::MAX)),
            named_at: Mutex::default(),
            is_unconfirmed: AtomicBool::new(false),
            windowed: definition.window.is_some(),
            live: ArcSwap::default(),
            looking: Mutex::default(),
            definition: ArcSwap::from_pointee(definition),
            items: AtomicU64::new(0),
            lookups: Counter::default(),
            used: AtomicBool::new(true),
            growing: tokio::sync::Mutex::default(),
            room: AtomicU64::new(0),
            has_new_keys: AtomicBool::new(false),
            wanted: AtomicU64::new(0),
            removals: AtomicU64::new(0),
        }
    }

    /// The filter's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What the filter is, by its newest definition.
    pub fn definition(&self) -> Arc<Definition> {
        self.definition.load_full()
    }

    /// Whether its time will be over some day.
    #[inline]
    pub fn expires(&self) -> bool {
        self.expires.load(Ordering::Relaxed) != u64::MAX
    }

    /// Whether its time was over at this time, in milliseconds since 1970.
    pub fn is_expired(&self, unix_millis: u64) -> bool {
        self.expires.load(Ordering::Relaxed) <= unix_millis
    }

    /// Hashes keys as the filter does.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// The slot that a key belongs to.
    #[inline]
    pub fn slot(&self, key: Fingerprint) -> u16 {
        if self.shards.len() == 1 { self.home } else { key.slot(self.slots) as u16 }
    }

    /// The slots in which the filter has a shard.
    pub fn slots(&self) -> impl Iterator<Item = u16> + use<> {
        if self.shards.len() == 1 { self.home..=self.home } else { 0..=(self.slots - 1) as u16 }
    }

    fn shard(&self, slot: u16) -> Option<&Place> {
        self.shards.get(if self.shards.len() == 1 { 0 } else { usize::from(slot) })
    }

    /// What answers for a slot, if it is in memory.
    pub fn projection(&self, slot: u16) -> Option<Arc<Projection>> {
        self.shard(slot)?.projection.load_full()
    }

    /// Whether everything that answers here is in memory.
    pub fn is_resident(&self) -> bool {
        if self.windowed {
            return self.window_is_resident();
        }
        self.absent.load(Ordering::Acquire) <= self.elsewhere.load(Ordering::Acquire)
    }

    /// Lets another array answer for a shard, or none, and gives the one that did before: to free it may take a while. Whoever has the
    /// slot's turn calls it.
    fn set_projection(&self, place: &Place, projection: Option<Arc<Projection>>) -> Option<Arc<Projection>> {
        let present = projection.is_some();
        let _alone = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.table.store(None);
        let before = place.projection.swap(projection);
        match (before.is_some(), present) {
            (false, true) => _ = self.absent.fetch_sub(1, Ordering::AcqRel),
            (true, false) => _ = self.absent.fetch_add(1, Ordering::AcqRel),
            _ => {}
        }
        before
    }

    /// Asks for one key.
    #[inline]
    pub fn contains(&self, key: Fingerprint) -> Answer {
        if self.windowed {
            let mut answers = Vec::new();
            self.window_contains(&[key], &mut answers);
            return answers.first().copied().unwrap_or(Answer::Unknown);
        }
        let Some(shard) = self.shard(self.slot(key)) else { return Answer::Unknown };
        match &*shard.projection.load() {
            Some(projection) => Answer::of(projection.contains(key)),
            None => Answer::Unknown,
        }
    }

    /// Asks for many keys and puts the answers into `answers`.
    pub fn contains_batch(&self, keys: &[Fingerprint], answers: &mut Vec<Answer>) {
        self.lookups.0.fetch_add(keys.len() as u64, Ordering::Relaxed);
        if self.windowed {
            return self.window_contains(keys, answers);
        }
        answers.clear();
        if let [key] = keys {
            return answers.push(self.contains(*key));
        }
        if let [only] = &self.shards[..] {
            let Some(projection) = &*only.projection.load() else {
                answers.resize(keys.len(), Answer::Unknown);
                return;
            };
            let mut maybe = Vec::new();
            projection.contains_batch(keys, &mut maybe);
            answers.extend(maybe.into_iter().map(Answer::of));
            return;
        }
        let Some(table) = &*self.table.load() else {
            // Whoever finds no table makes one; nobody waits for it.
            self.make_table();
            answers.extend(keys.iter().map(|key| self.contains(*key)));
            return;
        };
        let shard = |key: &Fingerprint| &table[key.slot(self.slots) as usize];
        let prefetch = |key: &Fingerprint| {
            if let Some(newest) = &shard(key).newest {
                newest.filter.prefetch(*key);
            }
        };
        let (near, far) = keys.split_at(keys.len().min(KEYS_AHEAD));
        near.iter().for_each(prefetch);
        let mut far = far.iter();
        answers.extend(keys.iter().map(|key| {
            far.next().into_iter().for_each(prefetch);
            shard(key).contains(*key)
        }));
    }

    fn make_table(&self) {
        if let Ok(_alone) = self.changes.try_lock() {
            let table = self.shards.iter().map(|place| Looked::new(place.projection.load_full()));
            self.table.store(Some(Arc::new(table.collect())));
        }
    }

    /// Whether it lives in one slot.
    pub(super) fn is_whole(&self) -> bool {
        self.shards.len() == 1
    }

    /// Keys that were new when they were added, less those that went.
    pub fn items(&self) -> u64 {
        if self.windowed { self.window_items() } else { self.items.load(Ordering::Relaxed) }
    }

    /// The same on all nodes, as far as it can be told from the shards that are here: keys are spread evenly.
    pub fn items_everywhere(&self) -> u64 {
        let shards = self.shards.len() as u64;
        let here = shards.saturating_sub(self.elsewhere.load(Ordering::Relaxed));
        if here == shards {
            return self.items();
        }
        let all = u128::from(self.items()) * u128::from(shards) / u128::from(here.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Keys that were asked for here since the process was started, in batches of any length.
    pub fn lookups(&self) -> u64 {
        self.lookups.0.load(Ordering::Relaxed)
    }

    /// The log says at this position what it is and what it is called. All nodes have to know that before keys that it takes count.
    fn described_at(&self, at: Position) {
        let mut named_at = self.named_at.lock().unwrap_or_else(PoisonError::into_inner);
        *named_at = at;
        self.is_unconfirmed.store(true, Ordering::Release);
    }

    /// Where the log says what it is.
    pub(super) fn named_at(&self) -> Position {
        *self.named_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, if some node may not have read that.
    #[inline]
    pub(super) fn unconfirmed_at(&self) -> Option<Position> {
        let is_unconfirmed = self.is_unconfirmed.load(Ordering::Acquire);
        is_unconfirmed.then(|| self.named_at())
    }

    /// Every node has folded the catalog up to a position.
    pub(super) fn confirmed_up_to(&self, position: Position) {
        let named_at = self.named_at.lock().unwrap_or_else(PoisonError::into_inner);
        if *named_at <= position {
            self.is_unconfirmed.store(false, Ordering::Release);
        }
    }

    /// Whether it remembers its newest keys only, in other filters.
    pub fn is_window(&self) -> bool {
        self.windowed
    }

    /// Elements that the arrays which answer are made for.
    pub(super) fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    /// Adds less removals: a key counts as often as it was added. A window does not count them.
    pub fn held(&self) -> u64 {
        self.shards.iter().map(|shard| shard.counts().held).sum()
    }

    /// Removals that took a key out, since the filter was made, cleared or built anew in its own size.
    pub fn removed(&self) -> u64 {
        self.shards.iter().map(|shard| shard.counts().removed).sum()
    }

    /// Whether the arrays that answer have room for so many more.
    pub(super) fn has_room_for(&self, more: u64) -> bool {
        self.items_everywhere().saturating_add(more) <= self.room.load(Ordering::Relaxed)
    }

    pub(super) fn added(&self, keys: u64) {
        self.items.fetch_add(keys, Ordering::Relaxed);
        if keys > 0 && !self.has_new_keys() {
            self.has_new_keys.store(true, Ordering::Relaxed);
        }
    }

    /// Whether new keys came to it since the process was started.
    pub(super) fn has_new_keys(&self) -> bool {
        self.has_new_keys.load(Ordering::Relaxed)
    }

    /// Counts anew from the shards.
    pub(super) fn recount(&self) {
        self.items.store(self.shards.iter().map(|shard| shard.counts().items).sum(), Ordering::Relaxed);
    }

    /// Bytes of the arrays that are in memory.
    pub fn bytes(&self) -> u64 {
        if self.windowed {
            return self.window_bytes();
        }
        self.shards
            .iter()
            .filter_map(|shard| shard.projection.load().as_ref().map(|shard| shard.bytes()))
            .sum()
    }

    /// Whether keys can be taken out again.
    pub fn is_erasable(&self) -> bool {
        self.definition.load().spec.kind != Kind::Bloom
    }

    /// Whether some shard answers from an older generation than the definition's.
    pub fn is_behind(&self) -> bool {
        let generation = self.definition.load().generation;
        self.shards.iter().any(|shard| {
            shard.projection.load().as_ref().is_some_and(|shard| shard.generation() < generation)
        })
    }
}

/// All filters, by name and by number.
#[derive(Debug)]
pub(super) struct Directory {
    slots: u32,
    /// Which slots are hosted here.
    hosted: Box<[AtomicBool]>,
    filters: RwLock<Filters>,
    /// How often names were changed.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Filters {
    by_name: HashMap<String, Arc<Handle>>,
    /// Every add looks here. There are few filters, and numbers are compared faster than hashed.
    by_id: BTreeMap<u64, Arc<Handle>>,
    /// Those whose home was shown: they exist.
    homed: HashSet<u64>,
}

impl Filters {
    /// Forgets a filter that does not exist any more and has no shard here.
    fn forget_if_gone(&mut self, handle: &Handle) {
        let is_empty = handle.absent.load(Ordering::Acquire) == handle.shards.len() as u64;
        if is_empty && !self.homed.contains(&handle.id) {
            self.by_id.remove(&handle.id);
        }
    }

    /// Frees a name, if it is this filter's.
    fn forget_name(&mut self, name: &str, id: u64) {
        if self.by_name.get(name).is_some_and(|named| named.id == id) {
            self.by_name.remove(name);
        }
    }
}

impl Directory {
    pub(super) fn new(slots: u32) -> Self {
        let hosted = (0..slots).map(|_| AtomicBool::new(false)).collect();
        Self { slots, hosted, filters: RwLock::default(), version: AtomicU64::new(0) }
    }

    pub(super) fn is_hosted(&self, slot: u16) -> bool {
        self.hosted.get(usize::from(slot)).is_some_and(|hosted| hosted.load(Ordering::Acquire))
    }

    /// Says that slots are hosted here from now on, or are not.
    pub(super) fn set_hosted(&self, slots: impl Iterator<Item = u16>, is_hosted: bool) {
        // Filters that are shown for the first time meanwhile are counted by whoever shows them.
        let filters = self.filters.write().unwrap_or_else(PoisonError::into_inner);
        for slot in slots {
            if let Some(hosted) = self.hosted.get(usize::from(slot)) {
                hosted.store(is_hosted, Ordering::Release);
            }
        }
        filters.by_id.values().for_each(|handle| self.count_elsewhere(handle));
    }

    fn count_elsewhere(&self, handle: &Handle) {
        let elsewhere = handle.slots().filter(|slot| !self.is_hosted(*slot)).count();
        handle.elsewhere.store(elsewhere as u64, Ordering::Release);
    }

    /// Greater than before if names mean something else. To be read before a name is looked up.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn names_changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(super) fn named(&self, name: &str) -> Option<Arc<Handle>> {
        self.filters.read().unwrap_or_else(PoisonError::into_inner).by_name.get(name).cloned()
    }

    /// Whether there is a filter of that number.
    pub(super) fn exists(&self, id: u64) -> bool {
        self.filters.read().unwrap_or_else(PoisonError::into_inner).homed.contains(&id)
    }

    pub(super) fn numbered(&self, id: u64) -> Option<Arc<Handle>> {
        self.filters.read().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).cloned()
    }

    /// The filters that somebody wants, in no order that means anything.
    pub(super) fn those(&self, wanted: impl Fn(&Handle) -> bool) -> Vec<Arc<Handle>> {
        let filters = self.filters.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = |handle: &&Arc<Handle>| wanted(handle) && filters.homed.contains(&handle.id);
        filters.by_id.values().filter(wanted).cloned().collect()
    }

    /// All filters, in no order that means anything.
    pub(super) fn unsorted(&self) -> Vec<Arc<Handle>> {
        self.those(|_| true)
    }

    /// All filters, by name.
    pub(super) fn all(&self) -> Vec<Arc<Handle>> {
        let all = self.unsorted().into_iter();
        let mut all: Vec<_> = all.map(|handle| (handle.definition(), handle)).collect();
        all.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        all.into_iter().map(|(_, handle)| handle).collect()
    }

    /// Shows readers a slot's part of a filter as it is now, or that it is gone.
    pub(super) fn show(
        &self,
        slot: u16,
        id: u64,
        shard: Option<(&Shard, Counts)>,
        at: Position,
        hasher: impl FnOnce(&Definition) -> Result<Hasher>,
    ) -> Result<()> {
        let handle = self.numbered(id);
        let Some((shard, on_disk)) = shard else {
            if let Some(handle) = handle {
                self.hide(slot, &handle);
            }
            return Ok(());
        };
        let definition = shard.definition();
        let handle = match handle {
            Some(handle) => handle,
            None => Arc::new(Handle::new(id, self.slots, definition.clone(), hasher(definition)?)),
        };
        if handle.shard(slot).is_none() {
            return Err(Error::Corrupt(format!(
                "the filter {} has no shard in slot {slot}",
                definition.name
            )));
        }
        // It is freed when nobody waits for the directory any more.
        let _old_array = {
            let mut filters = self.filters.write().unwrap_or_else(PoisonError::into_inner);
            let handle = match filters.by_id.entry(id) {
                // Another slot may have shown it first, or the last one that was shown have gone.
                Entry::Occupied(shown) => Arc::clone(shown.get()),
                Entry::Vacant(vacant) => {
                    self.count_elsewhere(&handle);
                    Arc::clone(vacant.insert(handle))
                }
            };
            self.show_in(&mut filters, &handle, slot, (shard, on_disk), at)
        };
        Ok(())
    }

    /// Shows a slot's part of a filter that the directory has, and gives the array that answered before.
    fn show_in(
        &self,
        filters: &mut Filters,
        handle: &Arc<Handle>,
        slot: u16,
        (shard, on_disk): (&Shard, Counts),
        at: Position,
    ) -> Option<Arc<Projection>> {
        let (id, definition) = (handle.id, shard.definition());
        let place = handle.shard(slot)?;
        place.on_disk.set(on_disk);
        let old_array = handle.set_projection(place, shard.projection().cloned());
        if definition.home(self.slots) == slot {
            let before = handle.definition.swap(Arc::new(definition.clone()));
            handle.expires.store(definition.expires.unwrap_or(u64::MAX), Ordering::Relaxed);
            if filters.homed.insert(id) || *before != *definition {
                // Before it is found by its name.
                handle.described_at(at);
            }
            if before.name != definition.name {
                filters.forget_name(&before.name, id);
            }
            // Two of one name are there while one replaces the other. If there were others, all would agree on which one has it.
            let takes = |named: &Arc<Handle>| {
                let replaced = named.definition.load().replaces == Some(id);
                definition.replaces == Some(named.id) || named.id >= id && !replaced
            };
            if filters.by_name.get(&definition.name).is_none_or(takes) {
                filters.by_name.insert(definition.name.clone(), Arc::clone(handle));
            }
            self.names_changed();
        }
        if !handle.is_behind() {
            handle.room.store(handle.definition.load().spec.capacity, Ordering::Relaxed);
        }
        old_array
    }

    /// Gives every filter its name anew. While partitions are replayed one after another, a name may pass to a filter before the one
    /// that had it is dropped, and be lost with that one.
    pub(super) fn settle_names(&self) {
        let mut filters = self.filters.write().unwrap_or_else(PoisonError::into_inner);
        let Filters { by_name, by_id, homed } = &mut *filters;
        by_name.clear();
        let existing = || by_id.values().filter(|handle| homed.contains(&handle.id));
        let replaced: HashSet<u64> =
            existing().filter_map(|handle| handle.definition.load().replaces).collect();
        // In the order of their numbers: the first of one name has it, unless it was replaced.
        for handle in existing().filter(|handle| !replaced.contains(&handle.id)) {
            by_name.entry(handle.definition.load().name.clone()).or_insert_with(|| Arc::clone(handle));
        }
        self.names_changed();
    }

    /// Another node answers for a slot's part of a filter.
    pub(super) fn give_away(&self, slot: u16, id: u64) {
        let Some(handle) = self.numbered(id) else { return };
        if let Some(place) = handle.shard(slot) {
            place.on_disk.set(Counts::default());
            handle.set_projection(place, None);
        }
        handle.recount();
        let mut filters = self.filters.write().unwrap_or_else(PoisonError::into_inner);
        filters.forget_if_gone(&handle);
    }

    fn hide(&self, slot: u16, handle: &Arc<Handle>) {
        if let Some(place) = handle.shard(slot) {
            place.on_disk.set(Counts::default());
            handle.set_projection(place, None);
        }
        let mut filters = self.filters.write().unwrap_or_else(PoisonError::into_inner);
        if slot == handle.home {
            filters.homed.remove(&handle.id);
            filters.forget_name(&handle.definition.load().name, handle.id);
            self.names_changed();
        }
        filters.forget_if_gone(handle);
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::{Family, Spec};

    use super::*;
    use crate::budget::Budget;
    use crate::entry::{Entry, Operation, Request};
    use crate::fold::{Archived, Means, State};

    #[test]
    fn two_slots_that_show_a_new_filter_at_the_same_time_show_the_same_one() {
        let definition = Definition { shards: 2, ..Definition::new("f", Spec::bloom(1000, 0.01)) };
        let define = Operation::Define(definition.encode().unwrap());
        let states = [0, 1].map(|slot| {
            let entry = Entry { filter: 5, slot, request: Request::default(), operation: define.clone() };
            let mut state = State::new(slot, 2, Means::new(Budget::new(1 << 20)));
            state.apply(Position::from_number(1), &entry, &Archived::none()).unwrap();
            state
        });
        let hasher = || Hasher::new(Family::Murmur3, None).map_err(|error| Error::Invalid(error.to_string()));
        let directory = Directory::new(2);
        let shard = |slot: usize| states[slot].shard(5).map(|shard| (shard, Counts::default()));
        // The other slot comes when this one has found that the filter is not there.
        let at = Position::from_number(1);
        let shown = directory.show(0, 5, shard(0), at, |_| {
            directory.show(1, 5, shard(1), at, |_| hasher()).unwrap();
            hasher()
        });
        shown.unwrap();
        let handle = directory.numbered(5).unwrap();
        for slot in [0, 1] {
            assert!(handle.projection(slot).is_some(), "slot {slot}");
        }
        assert_eq!(handle.absent.load(Ordering::Acquire), 0);
        assert!(Arc::ptr_eq(&handle, &directory.named("f").unwrap()));
    }
}
