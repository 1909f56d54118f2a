//! Whatever is done to an engine, in whatever order: it answers as an exact multiset says that it must.
//!
//! A case is a deployment of its own and some dozens of steps, all of which follow from a seed. When one fails, it prints its
//! steps and how to repeat it: `UMBEL_MODEL_SEED=<seed> UMBEL_MODEL_CASES=1 cargo test -p umbel-core --test engine model`.

mod changes;
mod held;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use umbel_core::clock::{Clock, ManualClock};
use umbel_core::definition::{Growth, Window};
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Answer, Engine, Handle, NewFilter, Settings, Sharding};
use umbel_core::entry::Request;
use umbel_core::log::{FileLog, Log, MemoryLog};
use umbel_core::random::{Random, SeededRandom};
use umbel_core::{Error, Position};
use umbel_filter::{Counter, Fingerprint, Kind, Layout, Spec};

use self::held::{Described, Held};
use crate::world::{PARTITIONS, below, key, log_on, open_on, open_on_at, run, settings, settle};

const CASES: u64 = 20_000;
const SEED: u64 = 1;
/// One case in so many keeps its log in files, which is slow, and has power cuts that take some of it.
const IN_FILES: u64 = 64;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Keys that are added; those behind are strangers.
const KEYS: u64 = 96;
/// Windows of few milliseconds, some of which cannot be cut into equal buckets.
const WINDOWS: [Window; 4] = [
    Window { length_ms: 40, buckets: 4 },
    Window { length_ms: 30, buckets: 8 },
    Window { length_ms: 25, buckets: 1 },
    Window { length_ms: 50, buckets: 7 },
];
const GROWTHS: [Growth; 3] = [Growth::Fixed, Growth::Percent(150), Growth::Percent(200)];

pub(crate) fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn every_answer_is_as_a_multiset_says() {
    let cases = from_environment("UMBEL_MODEL_CASES", CASES);
    let first = from_environment("UMBEL_MODEL_SEED", SEED);
    let mut tally = Tally::default();
    for number in 0..cases {
        let mut case = Case::new(first.wrapping_add(number));
        run(case.live());
        tally.count(&case.tally);
    }
    println!("{cases} cases: {tally:?}");
    assert!(cases < 1000 || tally.all_happened(), "{tally:?}");
}

/// What happened, so that the test cannot go by without having tried it.
#[derive(Debug, Default)]
struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn count(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| *self.0.entry(what).or_default() += times);
    }

    fn all_happened(&self) -> bool {
        const ALL: [&str; 35] = [
            "create",
            "create a window",
            "recreate",
            "rename",
            "rename over another",
            "expire",
            "expired",
            "label",
            "grow otherwise",
            "time passes",
            "keys left a window",
            "import",
            "merge",
            "merge bits",
            "merge a window",
            "merge refused",
            "merge in part",
            "add",
            "add absent",
            "refused when full",
            "remove",
            "retry",
            "clear",
            "drop",
            "resize",
            "rebuild",
            "checkpoint",
            "maintain",
            "unload",
            "reopen",
            "power cut",
            "unsynced power cut",
            "unsynced writes lost",
            "same digest after reopening",
            "same digest from the log alone",
        ];
        ALL.iter().all(|what| self.0.get(what).is_some_and(|times| *times > 0))
    }
}

/// A session and the last thing that it asked for.
#[derive(Debug, Default)]
struct Session {
    sequence: u64,
    last: Option<Asked>,
}

#[derive(Clone, Debug)]
struct Asked {
    filter: u64,
    /// When it was asked. What a window answers depends on its buckets.
    at: u64,
    keys: Vec<u64>,
    removes: bool,
    answers: Vec<Option<bool>>,
}

#[derive(Debug)]
struct Case {
    seed: u64,
    random: SeededRandom,
    settings: Settings,
    disk: MemoryDisk,
    clock: ManualClock,
    memory: Option<Arc<MemoryLog>>,
    file: Option<Arc<FileLog>>,
    engine: Option<Engine>,
    filters: BTreeMap<&'static str, Held>,
    /// Filters whose time was over since the log was last synced: it may forget when their time is over.
    lapsed: Vec<(&'static str, Held)>,
    /// Names of filters that are gone.
    freed: BTreeSet<&'static str>,
    sessions: [Session; 3],
    /// Requests to add what is absent, in a session of their own.
    absent_requests: u64,
    /// Whether a power cut may have taken entries that a checkpoint still has.
    log_was_cut: bool,
    steps: Vec<String>,
    tally: Tally,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let steps = self.steps.join("\n  ");
            eprintln!("UMBEL_MODEL_SEED={} UMBEL_MODEL_CASES=1\n  {steps}", self.seed);
        }
    }
}

fn fingerprints(keys: &[u64]) -> Vec<Fingerprint> {
    keys.iter().copied().map(key).collect()
}

impl Case {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let in_files = below(&random, IN_FILES) == 0;
        let settings = Settings {
            runs_max: 2 + below(&random, 2) as usize,
            checkpoint_bytes: [600, 4_000, 64 << 20][below(&random, 3) as usize],
            ..settings()
        };
        Self {
            seed,
            settings,
            disk: MemoryDisk::default(),
            clock: ManualClock::default(),
            memory: (!in_files).then(|| Arc::new(MemoryLog::new(PARTITIONS))),
            file: None,
            engine: None,
            filters: BTreeMap::new(),
            lapsed: Vec::new(),
            freed: BTreeSet::new(),
            sessions: Default::default(),
            absent_requests: 0,
            log_was_cut: false,
            steps: Vec::new(),
            tally: Tally::default(),
            random,
        }
    }

    fn below(&self, bound: u64) -> u64 {
        below(&self.random, bound)
    }

    fn now(&self) -> u64 {
        self.clock.unix_millis()
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn handle(&self, name: &str) -> Arc<Handle> {
        self.engine().filter(name).unwrap_or_else(|| panic!("the filter {name} is gone"))
    }

    fn note(&mut self, what: &'static str, details: &str) {
        self.steps.push(format!("{what} {details}"));
        self.tally.add(what);
    }

    async fn open(&mut self) {
        let log: Arc<dyn Log> = match &self.memory {
            Some(log) => Arc::clone(log) as Arc<dyn Log>,
            None => {
                let log = log_on(&self.disk).unwrap();
                self.file = Some(Arc::clone(&log));
                log
            }
        };
        let (settings, seed) = (self.settings.clone(), self.random.next());
        let opened = open_on_at(&self.disk, log, settings, seed, &self.clock).await;
        self.engine = Some(opened.unwrap());
        // To open a log syncs it.
        self.synced();
    }

    fn close(&mut self) {
        self.engine = None;
        self.file = None;
    }

    fn synced(&mut self) {
        self.lapsed.clear();
        self.filters.values_mut().for_each(Held::synced);
    }

    async fn live(&mut self) {
        self.open().await;
        for _ in 0..8 + self.below(24) {
            self.step().await;
            self.check_some().await;
        }
        self.check_all().await;
        self.end().await;
    }

    async fn step(&mut self) {
        let Some(name) = self.any_filter() else { return self.create().await };
        match self.below(100) {
            0..8 => self.create().await,
            8..33 => self.write(name, false).await,
            33..38 => self.add_absent(name).await,
            38..50 => self.write(name, true).await,
            50..55 => self.retry().await,
            55..58 => self.clear(name).await,
            58..60 => self.drop_filter(name).await,
            60..65 => self.resize(name).await,
            65..67 => self.rebuild(name).await,
            67..71 => self.rename(name).await,
            71..76 => self.describe(name).await,
            76..82 => self.pass_time(),
            82..84 => self.import(name).await,
            84..88 => self.merge(name).await,
            88..92 => {
                self.note("checkpoint", "");
                self.engine().checkpoint().await.unwrap();
            }
            92..94 => {
                self.note("maintain", "");
                self.engine().maintain().await.unwrap();
            }
            94..96 => {
                self.note("unload", name);
                self.engine().unload(&self.handle(name)).await.unwrap();
            }
            96..98 => {
                self.note("reopen", "");
                self.close();
                self.open().await;
            }
            _ => self.cut_power().await,
        }
    }

    fn any_filter(&self) -> Option<&'static str> {
        let names: Vec<_> = self.filters.keys().copied().collect();
        names.get(self.below(names.len() as u64) as usize).copied()
    }

    async fn create(&mut self) {
        let name = NAMES[self.below(4) as usize];
        let capacity = [2, 8, 30, 200][self.below(4) as usize];
        let error = [0.001, 0.01, 0.05, 0.2][self.below(4) as usize];
        let (chain, counting) = (self.below(8) == 0, self.below(2) == 0);
        let small_counters = self.below(3) == 0;
        let spec = match (chain, counting) {
            (true, _) => {
                let expansion = [None, Some(2)][self.below(2) as usize];
                Spec::hosted(Layout::RedisBloom { expansion }, capacity, error)
            }
            (_, true) if small_counters => Spec::counting(capacity, error),
            (_, true) => Spec::counting(capacity, error).kind(Kind::Counting(Counter::Byte)),
            (_, false) => Spec::bloom(capacity, error),
        };
        let counting = counting && !chain;
        let window = WINDOWS[self.below(4) as usize];
        let window = (self.below(3) == 0 && !counting).then_some(window);
        let new = NewFilter {
            sharding: if chain || self.below(2) == 0 { Sharding::Whole } else { Sharding::Everywhere },
            retain: self.below(4) > 0,
            growth: GROWTHS[self.below(3) as usize],
            expires: (self.below(6) == 0).then(|| self.now() + 1 + self.below(100)),
            labels: vec![self.below(256) as u8; self.below(3) as usize].into(),
            window,
            ..NewFilter::new(name, spec)
        };
        self.steps.push(format!("create {new:?}"));
        let described = Described { expires: new.expires, labels: new.labels.clone(), growth: new.growth };
        let retain = new.retain;
        let created = self.engine().create(new).await;
        if self.filters.contains_key(name) {
            assert!(matches!(created, Err(Error::Invalid(_))), "two filters of one name");
            return;
        }
        self.tally.add(match (self.freed.contains(name), window) {
            (true, _) => "recreate",
            (_, Some(_)) => "create a window",
            (_, None) => "create",
        });
        let held = Held {
            id: created.unwrap().id(),
            counting,
            chain,
            retain,
            window,
            described: vec![described],
            made_since_sync: true,
            worst_error: error,
            small_counters,
            ..Held::default()
        };
        self.take_name(name, held);
    }

    /// A filter gets a name. If another one had it, that one is gone for good.
    fn take_name(&mut self, name: &'static str, held: Held) {
        self.lapsed.retain(|(lapsed, _)| *lapsed != name);
        self.filters.insert(name, held);
    }

    /// A batch of keys to add or to remove, sometimes for a session.
    async fn write(&mut self, name: &'static str, removes: bool) {
        let many = if self.below(8) == 0 { KEYS } else { 8 };
        let range = [8, 32, KEYS][self.below(3) as usize];
        let mut keys: Vec<u64> = (0..1 + self.below(many)).map(|_| self.below(range)).collect();
        let held = &self.filters[name];
        if removes && held.retain && self.below(3) == 0 {
            keys.extend((0..4).map(|_| KEYS + self.below(1000)));
        }
        if removes && !held.retain {
            // Without its keys, a filter takes out what seems to be there: only what is there may be asked for.
            keys.sort_unstable();
            keys.dedup();
            keys.retain(|key| held.count(*key) > 0);
        }
        let session = self.below(6) as usize;
        let request = match self.sessions.get_mut(session) {
            None => Request::default(),
            Some(last) => {
                last.sequence += 1;
                last.last = None;
                Request { session: session as u64 + 1, sequence: last.sequence }
            }
        };
        self.note(if removes { "remove" } else { "add" }, &format!("{name} {keys:?} {request:?}"));
        let answers = self.send(name, &keys, removes, request).await;
        let Some(answers) = answers else { return };
        let taken = removes || self.filters[name].may_be_full() || !answers.contains(&None);
        assert!(taken, "{name} was to grow");
        let asked = Asked { filter: self.filters[name].id, at: self.now(), keys, removes, answers };
        self.fold(name, &asked);
        if let Some(last) = self.sessions.get_mut(session) {
            last.last = Some(asked);
        }
    }

    async fn send(
        &mut self,
        name: &'static str,
        keys: &[u64],
        removes: bool,
        request: Request,
    ) -> Option<Vec<Option<bool>>> {
        let (handle, keys) = (self.handle(name), fingerprints(keys));
        if !removes {
            let written = self.engine().add_as(&handle, &keys, request).await.unwrap();
            let full = written.answers.contains(&None);
            assert_eq!(full, written.refused.is_some(), "refused keys have no answer, and a reason");
            if full {
                self.tally.add("refused when full");
            }
            return Some(written.answers);
        }
        let removed = self.engine().remove_as(&handle, &keys, request).await;
        if self.filters[name].counting || keys.is_empty() {
            return Some(removed.unwrap().answers);
        }
        assert!(
            matches!(removed, Err(Error::Invalid(_))),
            "{removed:?}: nothing can be removed from bloom filters"
        );
        None
    }

    /// Keys that are added where they are absent, for a session or not; a session asks again.
    async fn add_absent(&mut self, name: &'static str) {
        if !self.filters[name].counting {
            return;
        }
        let range = [8, 32, KEYS][self.below(3) as usize];
        let keys: Vec<u64> = (0..1 + self.below(8)).map(|_| self.below(range)).collect();
        let in_session = self.below(2) == 0;
        self.note("add absent", &format!("{name} {keys:?}, in a session: {in_session}"));
        let (handle, asked) = (self.handle(name), fingerprints(&keys));
        let answers = if in_session {
            self.absent_requests += 1;
            let request = Request { session: 100, sequence: self.absent_requests };
            let written = self.engine().add_absent_as(&handle, &asked, request).await.unwrap();
            let again = self.engine().add_absent_as(&handle, &asked, request).await.unwrap();
            assert_eq!(again.answers, written.answers, "a retried request got another answer");
            written.answers
        } else {
            self.engine().add_absent(&handle, &asked).await.unwrap().answers
        };
        let now = self.now();
        let held = self.filters.get_mut(name).unwrap();
        let is_exact = in_session && held.retain;
        for (key, answer) in keys.iter().zip(answers) {
            let count = held.count(*key);
            match answer {
                Some(true) => {
                    assert_eq!(count, 0, "{name}: key {key} was added, held {count} times");
                    held.add(*key, 1, now);
                    held.writes += 1;
                }
                Some(false) => assert!(count > 0 || !is_exact, "{name}: key {key} was not added"),
                None => assert!(held.may_be_full(), "{name} was to grow"),
            }
        }
    }

    /// What was answered becomes part of the truth, after it was compared with it.
    fn fold(&mut self, name: &'static str, asked: &Asked) {
        let now = self.now();
        let held = self.filters.get_mut(name).unwrap();
        assert_eq!(asked.answers.len(), asked.keys.len());
        for (key, answer) in asked.keys.iter().zip(&asked.answers) {
            let (count, _) = held.range(*key, now);
            held.writes += 1;
            if asked.removes {
                assert_eq!(*answer, Some(count > 0), "{name}: removal of key {key}, held {count} times");
                held.set(*key, count.saturating_sub(1));
                held.removed_any = true;
                continue;
            }
            let Some(new) = answer else { continue };
            assert!(!(*new && count > 0), "{name}: key {key} is new, held {count} times");
            held.add(*key, 1, now);
        }
    }

    async fn retry(&mut self) {
        let session = self.below(3) as usize;
        let Some(asked) = self.sessions[session].last.clone() else { return };
        let known = self.filters.iter().find(|(_, held)| held.id == asked.filter);
        let Some((name, held)) = known.map(|(name, held)| (*name, held)) else { return };
        if held.window.is_some() && asked.at != self.now() {
            return;
        }
        let request = Request { session: session as u64 + 1, sequence: self.sessions[session].sequence };
        self.note("retry", &format!("{asked:?}"));
        let again = self.send(name, &asked.keys, asked.removes, request).await;
        let again = again.unwrap();
        assert_eq!(again, asked.answers, "a retried request got another answer");
    }

    async fn clear(&mut self, name: &'static str) {
        self.note("clear", name);
        self.engine().clear(&self.handle(name)).await.unwrap();
        let held = self.filters.get_mut(name).unwrap();
        held.clear();
        held.writes = 0;
        if held.window.is_some() {
            // Whether a key was new depends on its older buckets, and these are gone.
            let id = held.id;
            let asked = |session: &Session| session.last.as_ref().is_some_and(|asked| asked.filter == id);
            self.sessions.iter_mut().filter(|session| asked(session)).for_each(|session| session.last = None);
        }
    }

    async fn drop_filter(&mut self, name: &'static str) {
        self.note("drop", name);
        let handle = self.handle(name);
        self.engine().drop_filter(&handle).await.unwrap();
        self.filters.remove(name);
        self.freed.insert(name);
        assert!(self.engine().filter(name).is_none());
        self.check_dropped(&handle);
    }

    fn check_dropped(&self, handle: &Handle) {
        assert_eq!(handle.contains(key(0)), Answer::Unknown, "a dropped filter is never sure");
    }

    async fn resize(&mut self, name: &'static str) {
        let handle = self.handle(name);
        let (spec, items) = (handle.definition().spec, handle.items());
        let capacity = match self.below(3) {
            0 => items.max(1),
            1 => spec.capacity * 2,
            _ => spec.capacity,
        };
        let error = [spec.error, 0.0001, 0.1, 0.3][self.below(4) as usize];
        self.note("resize", &format!("{name} to {capacity} at {error}"));
        let resized = self.engine().resize(&handle, capacity, error).await;
        let held = self.filters.get_mut(name).unwrap();
        let chain = matches!(spec.layout, Layout::RedisBloom { .. });
        let grows = capacity > spec.capacity && error.to_bits() == spec.error.to_bits();
        if items > capacity || chain || held.window.is_some() || !held.retain && !grows {
            assert!(matches!(resized, Err(Error::Invalid(_))), "{resized:?}");
        } else {
            resized.unwrap();
            held.worst_error = held.worst_error.max(error);
        }
    }

    async fn rebuild(&mut self, name: &'static str) {
        let handle = self.handle(name);
        let fits = handle.items() <= handle.definition().spec.capacity;
        let chain = matches!(handle.definition().spec.layout, Layout::RedisBloom { .. });
        let held = &self.filters[name];
        if held.retain && fits && !chain && held.window.is_none() {
            self.note("rebuild", name);
            self.engine().rebuild(&handle).await.unwrap();
        }
    }

    async fn cut_power(&mut self) {
        let synced = self.file.is_none() || self.below(2) == 0;
        self.note(if synced { "power cut" } else { "unsynced power cut" }, "");
        if let Some(log) = self.file.as_ref().filter(|_| synced) {
            log.sync().unwrap();
        }
        self.disk = self.disk.after_power_cut(self.random.next());
        self.close();
        if synced {
            self.synced();
            return self.open().await;
        }
        self.log_was_cut = true;
        let before = (std::mem::take(&mut self.filters), std::mem::take(&mut self.lapsed));
        self.open().await;
        // Requests may be gone, and what they were told with them.
        self.sessions.iter_mut().for_each(|session| session.last = None);
        self.take_over(before.0, before.1).await;
    }

    /// After a cut that may have taken the end of each partition's log, takes over what is left, if it can be.
    async fn take_over(&mut self, filters: BTreeMap<&'static str, Held>, lapsed: Vec<(&'static str, Held)>) {
        let now = self.now();
        for (name, held) in &filters {
            let found = self.engine().filters().iter().any(|handle| handle.id() == held.id);
            let gone = held.made_since_sync || held.described.iter().any(|some| some.is_over(now));
            assert!(found || gone, "the filter {name} was synced and is gone");
        }
        let mut known: Vec<_> = filters.into_iter().chain(lapsed).collect();
        for handle in self.engine().filters() {
            let at = known.iter().position(|(_, held)| held.id == handle.id());
            let (name, mut held) = known.swap_remove(at.expect("a filter that nobody made"));
            assert_eq!(handle.definition().name, name, "renamings are synced");
            held.find_description(&handle.definition());
            let keys: Vec<u64> = held.keys();
            let answers = self.engine().contains(&handle, &fingerprints(&keys), None).await.unwrap();
            let counts = if held.retain {
                self.engine().verify(&handle, &fingerprints(&keys)).await.unwrap()
            } else {
                keys.iter().map(|key| held.possible(*key, now).0).collect()
            };
            for ((key, answer), count) in keys.iter().zip(answers).zip(counts) {
                let (least, most) = held.possible(*key, now);
                assert!(
                    least == 0 || answer == Answer::Maybe,
                    "{name}: key {key} was synced and is {answer:?}"
                );
                assert!(
                    (least..=most).contains(&count),
                    "{name}: key {key} {count} times of {least} to {most}"
                );
                if count < held.range(*key, now).0 {
                    self.tally.add("unsynced writes lost");
                }
                held.found(*key, count);
            }
            self.filters.insert(name, held);
        }
        self.synced();
    }

    async fn check_some(&mut self) {
        if let Some(name) = self.any_filter() {
            let mut keys: Vec<u64> = (0..6).map(|_| self.below(KEYS + 20)).collect();
            let holding = self.filters[name].holding(self.now());
            keys.extend((0..6).filter_map(|_| holding.get(self.below(holding.len() as u64) as usize)));
            self.check(name, &keys).await;
        }
    }

    async fn check_all(&self) {
        let here: Vec<_> =
            self.engine().filters().iter().map(|handle| handle.definition().name.clone()).collect();
        assert!(here.iter().map(String::as_str).eq(self.filters.keys().copied()), "{here:?}");
        for name in self.filters.keys() {
            self.check(name, &(0..KEYS + 20).collect::<Vec<_>>()).await;
        }
    }

    async fn check(&self, name: &str, keys: &[u64]) {
        let (held, handle, now) = (&self.filters[name], self.handle(name), self.now());
        held.check_definition(name, &handle);
        // What nobody loaded yet may be unknown, and is never absent.
        for key_number in keys.iter().filter(|key| held.range(**key, now).0 > 0) {
            assert_ne!(handle.contains(key(*key_number)), Answer::Absent, "{name}: key {key_number}");
        }
        let fingerprints = fingerprints(keys);
        if held.retain {
            let counts = self.engine().verify(&handle, &fingerprints).await.unwrap();
            for (key, count) in keys.iter().zip(counts) {
                let (least, most) = held.range(*key, now);
                assert!(
                    (least..=most).contains(&count),
                    "{name}: key {key} {count} times of {least} to {most}"
                );
            }
        }
        let answers = self.engine().contains(&handle, &fingerprints, None).await.unwrap();
        for (key, answer) in keys.iter().zip(answers) {
            let (count, _) = held.range(*key, now);
            let right = if count > 0 { answer == Answer::Maybe } else { answer != Answer::Unknown };
            assert!(right, "{name}: key {key}, held {count} times, is {answer:?}");
        }
        // An older generation that holds more than it was made for, as after a restart, does not count well; and a window counts a
        // key for every bucket that has it.
        if held.retain && held.window.is_none() && !handle.is_behind() {
            let (items, distinct) = (handle.items(), held.holding(now).len() as u64);
            let slack = 6 + (held.writes as f64 * held.worst_error * 4.0) as u64;
            assert!(
                items.abs_diff(distinct) <= slack,
                "{name}: {items} items, {distinct} held, {slack} allowed"
            );
        }
    }

    fn is_behind(&self) -> bool {
        self.engine().filters().iter().any(|handle| handle.is_behind())
    }

    fn generations(&self) -> Vec<u32> {
        self.engine().filters().iter().map(|handle| handle.definition().generation).collect()
    }

    /// Everything folded anew comes to the same.
    async fn end(&mut self) {
        settle(self.engine()).await.unwrap();
        self.check_all().await;
        let (before, generations) = (self.engine().digests().await.unwrap(), self.generations());
        assert!(!self.is_behind());
        self.steps.push("the end".into());
        self.close();
        self.open().await;
        self.check_all().await;
        settle(self.engine()).await.unwrap();
        assert_eq!(self.generations(), generations, "generations after reopening");
        // A counter that was stuck may be free in an array that was built from sums.
        let stuck = self.filters.values().any(|held| held.small_counters && held.removed_any);
        if !stuck {
            assert_eq!(self.engine().digests().await.unwrap(), before, "digests after reopening");
            self.tally.add("same digest after reopening");
            self.fold_the_log_alone(&before, &generations).await;
        }
        for name in NAMES {
            if self.filters.contains_key(name) {
                self.rebuild(name).await;
            }
        }
        self.check_all().await;
    }

    /// Opens an engine on the same log without any blobs, if the log is still whole.
    async fn fold_the_log_alone(&mut self, digests: &[u128], generations: &[u32]) {
        let log: Arc<dyn Log> = match (&self.memory, &self.file) {
            (Some(log), _) => Arc::clone(log) as Arc<dyn Log>,
            (None, Some(log)) => Arc::clone(log) as Arc<dyn Log>,
            (None, None) => return,
        };
        if self.log_was_cut {
            return;
        }
        for partition in 0..PARTITIONS {
            if log.bounds(partition).await.unwrap().oldest > Position::START {
                return;
            }
        }
        let settings = self.settings.clone();
        let fresh = open_on_at(&MemoryDisk::default(), log, settings, 0, &self.clock).await.unwrap();
        let folded = fresh.token();
        settle(&fresh).await.unwrap();
        let same = fresh
            .filters()
            .iter()
            .map(|handle| handle.definition().generation)
            .eq(generations.iter().copied());
        // Buckets of windows may grow too, where nobody sees it.
        if same && fresh.token() == folded {
            assert_eq!(fresh.digests().await.unwrap(), digests, "digests of the log folded alone");
            self.tally.add("same digest from the log alone");
        }
    }
}

/// Which keys a full filter takes must not depend on when its next generation was there.
#[test]
fn a_fixed_filter_takes_the_same_keys_when_its_log_is_folded_again() {
    run(async {
        let (disk, log) = (MemoryDisk::default(), Arc::new(MemoryLog::new(PARTITIONS)));
        let open = async || open_on(&disk, Arc::clone(&log) as Arc<dyn Log>, settings(), 1).await.unwrap();
        let engine = open().await;
        let fixed =
            NewFilter { growth: Growth::Fixed, ..NewFilter::new("fixed", Spec::bloom(2_000, 0.0001)) };
        let filter = engine.create(fixed).await.unwrap();
        engine.resize(&filter, 2_000, 0.3).await.unwrap();
        let all: Vec<u64> = (0..6_000).collect();
        let mut taken = Vec::new();
        for some in all.chunks(50) {
            let written = engine.add(&filter, &fingerprints(some)).await.unwrap();
            let answered = some.iter().zip(&written.answers).filter(|(_, answer)| answer.is_some());
            taken.extend(answered.map(|(key, _)| *key));
        }
        drop(engine);
        let engine = open().await;
        let verified = engine.verify(&engine.filter("fixed").unwrap(), &fingerprints(&taken)).await.unwrap();
        assert!(verified.iter().all(|count| *count == 1), "acknowledged keys are gone");
    });
}
