//! Answers that are asked for again and again: kept in this process for a while, those that nobody has the record too.
//!
//! A kept answer ends when its time is over, when somebody says that the key was changed, or when a filter says something else than it
//! did: whoever asks looks at the filters first, which costs next to nothing.
//!
//! | file | subject |
//! | --- | --- |
//! | `hot/shared.rs` | answers that several servers keep together: how they are written, and when they are believed |
//! | `hot/redis.rs` | in Redis |

#[cfg(feature = "redis")]
mod redis;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::runtime::Handle;
use umbel_core::clock::Clock;
use umbel_core::engine::Answer;
use umbel_filter::{Fingerprint, Hasher};

use crate::answers::Origin;
use crate::fetch::Fetched;
use crate::limits::KEY_BYTES_MAX;
use crate::source::Record;
#[cfg(feature = "redis")]
pub use redis::RedisAnswers;
pub use shared::SharedAnswers;
use shared::{Shared, Written};

/// What a kept answer takes besides its key and its record.
const ENTRY_BYTES: usize = 256;
/// About as much as an answer takes, to guess how many there will be.
const TYPICAL_BYTES: u64 = 1024;
/// Keys share numbers of changes; a change of another key costs one fetch at worst.
const STRIPES: usize = 1024;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct HotSettings {
    /// Memory for all of it.
    pub bytes_max: u64,
    /// How long a record is kept. A record that was changed, and neither added nor erased, is seen after this at the latest.
    pub found_for: Duration,
    /// How long it is kept that nobody has a record.
    pub absent_for: Duration,
}

impl Default for HotSettings {
    fn default() -> Self {
        Self { bytes_max: 64 << 20, found_for: Duration::from_secs(60), absent_for: Duration::from_secs(10) }
    }
}

/// Kept answers. Names of keys are hashed in one way, which should be that of most domains' filters.
pub struct Hot {
    settings: HotSettings,
    clock: Arc<dyn Clock>,
    hasher: Hasher,
    kept: Cache<Fingerprint, Arc<Kept>, Weigh>,
    /// How often keys were changed.
    changes: Box<[AtomicU64]>,
    /// When they were last, in microseconds; 0 if never.
    changed: Box<[AtomicU64]>,
    /// What others keep, too.
    shared: Option<Shared>,
}

impl fmt::Debug for Hot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hot")
            .field("settings", &self.settings)
            .field("kept", &self.kept.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Kept {
    /// Other keys may have the same fingerprint, if somebody makes them so.
    key: Box<[u8]>,
    record: Option<(Arc<str>, Arc<Record>)>,
    /// Domains whose source did not have what their filter might have had.
    refuted: Vec<Arc<str>>,
    since: Duration,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Weigh;

impl Weighter<Fingerprint, Arc<Kept>> for Weigh {
    fn weight(&self, _: &Fingerprint, kept: &Arc<Kept>) -> u64 {
        kept.bytes
    }
}

/// An answer that was kept.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) record: Option<(Arc<str>, Arc<Record>)>,
    pub(crate) age: Duration,
    kept: Arc<Kept>,
}

impl Entry {
    /// Whether it was found out that a domain does not have the key, whatever its filter says.
    pub(crate) fn is_refuted(&self, domain: &str) -> bool {
        self.kept.refuted.iter().any(|refuted| &**refuted == domain)
    }
}

/// How often a key was changed before it was fetched: an answer that was overtaken by a change is not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    fingerprint: Fingerprint,
    changes: u64,
    /// The time of those who share answers, before anything is fetched; none if they are away.
    time: Option<Duration>,
}

impl Hot {
    /// Nothing is kept yet.
    pub fn new(settings: HotSettings, hasher: Hasher, clock: Arc<dyn Clock>) -> Self {
        let items =
            usize::try_from(settings.bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX).clamp(16, 1 << 24);
        let kept = Cache::with_weighter(items, settings.bytes_max, Weigh);
        let [changes, changed] = [(); 2].map(|()| (0..STRIPES).map(|_| AtomicU64::new(0)).collect());
        Self { settings, clock, hasher, kept, changes, changed, shared: None }
    }

    /// Answers of a catalog are kept together with others, too, who have the same filters and hash alike. The store is asked for what this
    /// process does not have, and never waited for.
    #[must_use]
    pub fn sharing(self, store: Arc<dyn SharedAnswers>, catalog: &str, runtime: Handle) -> Self {
        let shared = Shared::new(store, catalog, runtime, Arc::clone(&self.clock));
        Self { shared: Some(shared), ..self }
    }

    /// How many answers are kept, some of them perhaps for too long.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Bytes that they take, about.
    pub fn bytes(&self) -> u64 {
        self.kept.weight()
    }

    /// A key was added, changed or erased.
    pub fn forget_key(&self, key: &[u8]) {
        self.forget(key);
    }

    /// Keys were added, changed or erased somewhere, as a feed tells it: by fingerprints. Those of another way to hash say nothing of
    /// which keys they are, so everything is forgotten.
    pub fn forget_fingerprints(&self, hasher: &Hasher, fingerprints: &[Fingerprint]) {
        match self.hasher.agrees_with(hasher) {
            true => fingerprints.iter().for_each(|fingerprint| _ = self.forget_one(*fingerprint)),
            false if fingerprints.is_empty() => {}
            false => self.forget_all(),
        }
    }

    /// Forgets everything.
    pub fn forget_all(&self) {
        let now = self.micros();
        self.changed.iter().for_each(|changed| changed.store(now, Ordering::SeqCst));
        self.changes.iter().for_each(|changes| _ = changes.fetch_add(1, Ordering::SeqCst));
        self.kept.clear();
    }

    pub(crate) fn forget(&self, key: &[u8]) -> Ticket {
        self.forget_one(self.hasher.fingerprint(key))
    }

    fn forget_one(&self, fingerprint: Fingerprint) -> Ticket {
        self.changed[stripe(fingerprint)].store(self.micros(), Ordering::SeqCst);
        // In this order: whoever is about to keep an old answer sees the number, or is seen here.
        let changes = self.changes_of(fingerprint).fetch_add(1, Ordering::SeqCst) + 1;
        self.kept.remove(&fingerprint);
        if let Some(shared) = &self.shared {
            shared.remove(fingerprint);
        }
        Ticket { fingerprint, changes, time: None }
    }

    fn changes_of(&self, fingerprint: Fingerprint) -> &AtomicU64 {
        &self.changes[stripe(fingerprint)]
    }

    fn micros(&self) -> u64 {
        (self.clock.now().as_micros() as u64).max(1)
    }

    /// How long an answer is good.
    fn good_for(&self, has_record: bool) -> Duration {
        if has_record { self.settings.found_for } else { self.settings.absent_for }
    }

    /// What is kept of a key, or what it takes to keep it.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Entry, Ticket> {
        let fingerprint = self.hasher.fingerprint(key);
        let changes = self.changes_of(fingerprint).load(Ordering::SeqCst);
        let kept = self.kept.get(&fingerprint).filter(|kept| *kept.key == *key);
        let kept = kept.ok_or(Ticket { fingerprint, changes, time: None })?;
        let age = self.clock.now().saturating_sub(kept.since);
        if age >= self.good_for(kept.record.is_some()) {
            return Err(Ticket { fingerprint, changes, time: None });
        }
        Ok(Entry { record: kept.record.clone(), age, kept })
    }

    /// What others have kept of a key, if it is still good. Whoever believes it may keep it: [`Hot::adopt`].
    pub(crate) async fn get_shared(&self, ticket: &mut Ticket, key: &[u8]) -> Option<Entry> {
        let shared = self.shared.as_ref()?;
        let began = self.clock.now();
        let seen = shared.get(ticket.fingerprint, key).await?;
        ticket.time = Some(seen.time);
        let (Written { record, refuted, .. }, age) = seen.answer?;
        // It was there a moment after `began`, so it is younger than a change before that if it is so even now.
        let changed = self.changed[stripe(ticket.fingerprint)].load(Ordering::SeqCst);
        let is_overtaken = changed > 0 && began.saturating_sub(Duration::from_micros(changed)) <= age;
        let is_changed = self.changes_of(ticket.fingerprint).load(Ordering::SeqCst) != ticket.changes;
        if is_overtaken || is_changed || age >= self.good_for(record.is_some()) {
            return None;
        }
        let kept = Arc::new(self.weighed(key, record, refuted, began.saturating_sub(age)));
        Some(Entry { record: kept.record.clone(), age, kept })
    }

    /// Keeps what others have kept, for as long as they do.
    pub(crate) fn adopt(&self, ticket: Ticket, entry: &Entry) {
        self.keep(ticket, Arc::clone(&entry.kept));
    }

    fn weighed(
        &self,
        key: &[u8],
        record: Option<(Arc<str>, Arc<Record>)>,
        refuted: Vec<Arc<str>>,
        since: Duration,
    ) -> Kept {
        let bytes = key.len()
            + record.as_ref().map_or(0, |(_, record)| record.bytes())
            + ENTRY_BYTES
            + 16 * refuted.len();
        Kept { key: key.into(), record, refuted, since, bytes: bytes as u64 }
    }

    fn keep(&self, ticket: Ticket, kept: Arc<Kept>) {
        self.kept.insert(ticket.fingerprint, kept);
        if self.changes_of(ticket.fingerprint).load(Ordering::SeqCst) != ticket.changes {
            self.kept.remove(&ticket.fingerprint);
        }
    }

    /// Keeps an answer, unless the key was changed meanwhile, or not all is known.
    pub(crate) fn put(&self, ticket: Ticket, key: &[u8], fetched: &Fetched) {
        if fetched.record.is_none() && !fetched.is_absent() || key.len() > KEY_BYTES_MAX {
            return;
        }
        let refuted = fetched.standings.iter().filter(|standing| {
            standing.answer == Answer::Absent && matches!(standing.origin, Origin::Source | Origin::Cache)
        });
        let refuted: Vec<_> = refuted.map(|standing| Arc::clone(&standing.domain)).collect();
        if let Some((shared, born)) = self.shared.as_ref().zip(ticket.time) {
            let answer =
                Written { born, key: key.to_vec(), record: fetched.record.clone(), refuted: refuted.clone() };
            shared.put(ticket.fingerprint, &answer, self.good_for(answer.record.is_some()));
        }
        // The record was as it is when the fetch began, or later.
        let kept = self.weighed(key, fetched.record.clone(), refuted, self.clock.now());
        self.keep(ticket, Arc::new(kept));
    }
}

fn stripe(fingerprint: Fingerprint) -> usize {
    fingerprint.second as usize % STRIPES
}
