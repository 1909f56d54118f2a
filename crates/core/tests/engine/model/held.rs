//! What a filter holds, exactly.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use umbel_core::definition::{Definition, Growth, Window};
use umbel_core::engine::Handle;
use umbel_filter::Kind;

/// What can change without the arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) expires: Option<u64>,
    pub(super) labels: Bytes,
    pub(super) growth: Growth,
}

impl Described {
    fn of(definition: &Definition) -> Self {
        Self { expires: definition.expires, labels: definition.labels.clone(), growth: definition.growth }
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

/// When a key was last added to a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// What is sure to be there.
    sure: Option<u64>,
    /// What may be there: a power cut may have taken it.
    may: Option<u64>,
    /// What was sure when the log was last synced.
    synced: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) id: u64,
    pub(super) counting: bool,
    pub(super) chain: bool,
    pub(super) retain: bool,
    pub(super) window: Option<Window>,
    pub(super) counts: BTreeMap<u64, u64>,
    /// The least and the most that a key's count was since the log was last synced.
    pub(super) since_sync: BTreeMap<u64, (u64, u64)>,
    /// In place of counts, for windows.
    pub(super) times: BTreeMap<u64, Times>,
    /// All descriptions since the log was last synced; the last one counts.
    pub(super) described: Vec<Described>,
    pub(super) made_since_sync: bool,
    /// Keys written so far: each can make the number of items wrong, at the filter's error rate.
    pub(super) writes: u64,
    pub(super) worst_error: f64,
    /// Counters of four bits get stuck when they are full: then it matters whether a removal came before a rebuild or after it.
    pub(super) small_counters: bool,
    pub(super) removed_any: bool,
}

/// Whether a bucket that took a key at this time is still there: it stays for the length of the window after its own end.
fn is_alive(window: Window, added: Option<u64>, now: u64) -> u64 {
    let bucket = window.bucket_ms();
    u64::from(added.is_some_and(|added| now < (added / bucket + 1) * bucket + window.length_ms))
}

impl Held {
    pub(super) fn count(&self, key: u64) -> u64 {
        self.counts.get(&key).copied().unwrap_or(0)
    }

    /// How often a key is there, at least and at most.
    pub(super) fn range(&self, key: u64, now: u64) -> (u64, u64) {
        let Some(window) = self.window else { return (self.count(key), self.count(key)) };
        let times = self.times.get(&key).copied().unwrap_or_default();
        (is_alive(window, times.sure, now), is_alive(window, times.may, now))
    }

    pub(super) fn set(&mut self, key: u64, count: u64) {
        let before = self.count(key);
        let (least, most) = self.since_sync.entry(key).or_insert((before, before));
        (*least, *most) = ((*least).min(count), (*most).max(count));
        self.counts.insert(key, count);
    }

    /// A key came so many times.
    pub(super) fn add(&mut self, key: u64, times: u64, now: u64) {
        if self.window.is_some() {
            let times = self.times.entry(key).or_default();
            (times.sure, times.may) = (Some(now), Some(now));
        } else {
            self.set(key, if self.counting { self.count(key) + times } else { 1 });
        }
    }

    /// A key of a window was among those that may have come, and is there so many times now; it was not there before, or was.
    pub(super) fn may_come(&mut self, key: u64, count: u64, is_new: bool, now: u64) {
        if count > 0 {
            let times = self.times.entry(key).or_default();
            times.may = Some(now);
            times.sure = if is_new { Some(now) } else { times.sure };
        }
    }

    pub(super) fn clear(&mut self) {
        let held: Vec<u64> = self.counts.keys().copied().collect();
        held.into_iter().for_each(|key| self.set(key, 0));
        // Buckets are dropped, and that is synced.
        self.times.clear();
    }

    /// Everything written so far survives a power cut.
    pub(super) fn synced(&mut self) {
        self.since_sync.clear();
        self.times.values_mut().for_each(|times| times.synced = times.sure);
        self.home_synced();
    }

    /// What the filter is called survives a power cut, whatever its keys do.
    pub(super) fn home_synced(&mut self) {
        self.made_since_sync = false;
        self.described.drain(..self.described.len() - 1);
    }

    /// What the count of a key may be after a power cut took some end of each partition's log.
    pub(super) fn possible(&self, key: u64, now: u64) -> (u64, u64) {
        if let Some(window) = self.window {
            let times = self.times.get(&key).copied().unwrap_or_default();
            return (is_alive(window, times.synced, now), is_alive(window, times.may, now));
        }
        let count = self.count(key);
        self.since_sync.get(&key).copied().unwrap_or((count, count))
    }

    /// So often a key is there after a power cut.
    pub(super) fn found(&mut self, key: u64, count: u64) {
        if self.window.is_none() {
            self.counts.insert(key, count);
        } else if let Some(times) = self.times.get_mut(&key) {
            // It may be there from an older time.
            times.sure = times.synced;
            times.may = times.may.filter(|_| count > 0 || !self.retain);
        }
    }

    /// The description that is there after a power cut must be one of those that were.
    pub(super) fn find_description(&mut self, definition: &Definition) {
        let found = Described::of(definition);
        assert!(self.described.contains(&found), "{found:?} was never said, but {:?}", self.described);
        self.described = vec![found];
    }

    /// All keys that were ever in it.
    pub(super) fn keys(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.counts.keys().chain(self.times.keys()).copied().collect();
        all.into_iter().collect()
    }

    /// The keys that are sure to be in it.
    pub(super) fn holding(&self, now: u64) -> Vec<u64> {
        self.keys().into_iter().filter(|key| self.range(*key, now).0 > 0).collect()
    }

    /// Whether nobody can tell of some key whether it is there.
    pub(super) fn is_uncertain(&self, now: u64) -> bool {
        self.times.keys().map(|key| self.range(*key, now)).any(|(least, most)| least < most)
    }

    /// Whether it takes no more keys when it is full. Chains have a growth of their own, and buckets always grow.
    pub(super) fn may_be_full(&self) -> bool {
        self.chain || self.window.is_none() && self.now_described().growth == Growth::Fixed
    }

    pub(super) fn now_described(&self) -> &Described {
        self.described.last().unwrap()
    }

    pub(super) fn check_definition(&self, name: &str, handle: &Handle) {
        let definition = handle.definition();
        assert_eq!((handle.id(), &*definition.name), (self.id, name));
        assert_eq!(&Described::of(&definition), self.now_described(), "{name}");
        assert_eq!((definition.retain, definition.window), (self.retain, self.window), "{name}");
        assert_eq!(definition.spec.kind != Kind::Bloom, self.counting, "{name}");
    }
}
