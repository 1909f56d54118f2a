//! Answers that are kept, and counts of keys compared with exact ones.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::Exact;
use proptest::prelude::*;
use umbel_core::clock::ManualClock;
use umbel_core::random::SeededRandom;
use umbel_domains::{Catalog, Counts, Domain, Hot, HotSettings, Origin};
use umbel_filter::{Family, Hasher};

const SECOND: Duration = Duration::from_secs(1);

struct World {
    catalog: Catalog,
    hot: Arc<Hot>,
    clock: ManualClock,
    held: [Exact; 2],
    sources: [Exact; 2],
}

/// A local domain and another one, whose filters and sources can be told apart.
fn world(bytes_max: u64) -> World {
    let clock = ManualClock::default();
    let hasher = Hasher::new(Family::Murmur3, None).unwrap();
    let settings = HotSettings { bytes_max, found_for: 60 * SECOND, absent_for: 10 * SECOND };
    let hot = Arc::new(Hot::new(settings, hasher, Arc::new(clock.clone())));
    let [held, sources] = [(); 2].map(|()| [(); 2].map(|()| Exact::of(&[])));
    let domain = |name: &str, number: usize| {
        let (held, source): (&Exact, &Exact) = (&held[number], &sources[number]);
        Domain::new(name).unwrap().held(held.arc()).source(source.arc())
    };
    let catalog = Catalog::new(domain("here", 0)).with_hot(Arc::clone(&hot));
    catalog.join(domain("there", 1)).unwrap();
    World { catalog, hot, clock, held, sources }
}

impl World {
    fn add(&self, which: usize, key: &str, to_filter: bool, to_source: bool) {
        let key = key.as_bytes().to_vec();
        self.held[which].set(|state| _ = to_filter.then(|| state.keys.insert(key.clone())));
        self.sources[which].set(|state| _ = to_source.then(|| state.keys.insert(key.clone())));
    }

    fn erase(&self, which: usize, key: &str, from_filter: bool, from_source: bool) {
        let key = key.as_bytes().to_vec();
        self.held[which].set(|state| _ = from_filter.then(|| state.keys.remove(&key)));
        self.sources[which].set(|state| _ = from_source.then(|| state.keys.remove(&key)));
    }

    /// Who has the record, and whether that was kept.
    async fn fetch(&self, key: &str) -> (Option<String>, bool) {
        let fetched = self.catalog.fetch(key, SECOND).await;
        let is_kept = fetched.standings.iter().any(|standing| standing.origin == Origin::Cache);
        assert!(!is_kept || fetched.steps.is_empty());
        assert_eq!(fetched.is_absent(), fetched.record.is_none());
        (fetched.record.map(|(domain, _)| domain.to_string()), is_kept)
    }
}

fn there(is_kept: bool) -> (Option<String>, bool) {
    (Some("there".into()), is_kept)
}

#[tokio::test(start_paused = true)]
async fn records_are_kept_until_something_says_otherwise() {
    let world = world(1 << 20);
    world.add(1, "a", true, true);
    assert_eq!(world.fetch("a").await, there(false));
    assert_eq!(world.fetch("a").await, there(true));
    world.clock.advance(59 * SECOND);
    assert_eq!(world.fetch("a").await, there(true));
    world.clock.advance(SECOND);
    assert_eq!(world.fetch("a").await, there(false), "its time is over");
    world.hot.forget_key(b"a");
    assert_eq!(world.fetch("a").await, there(false), "it was changed");
    let [same, other] = [Family::Murmur3, Family::Xxh3].map(|family| Hasher::new(family, None).unwrap());
    world.hot.forget_fingerprints(&same, &[same.fingerprint(b"b")]);
    assert_eq!(world.fetch("a").await, there(true), "another key was changed");
    world.hot.forget_fingerprints(&same, &[same.fingerprint(b"a")]);
    assert_eq!(world.fetch("a").await, there(false));
    world.hot.forget_fingerprints(&other, &[]);
    assert_eq!(world.fetch("a").await, there(true));
    world.hot.forget_fingerprints(&other, &[other.fingerprint(b"b")]);
    assert_eq!(world.fetch("a").await, there(false), "nobody knows which key that is");
    world.erase(1, "a", true, true);
    assert_eq!(world.fetch("a").await, (None, false), "its filter has heard that it is gone");
    world.add(1, "a", true, true);
    assert_eq!(world.fetch("a").await, there(false));
    world.add(0, "a", true, true);
    assert_eq!(world.fetch("a").await, (Some("here".into()), false), "the local domain has it now");
}

#[tokio::test(start_paused = true)]
async fn that_nobody_has_it_is_kept_too() {
    let world = world(1 << 20);
    // Both filters are mistaken.
    world.add(0, "a", true, false);
    world.add(1, "a", true, false);
    assert_eq!(world.fetch("a").await, (None, false));
    assert_eq!(world.fetch("a").await, (None, true));
    world.clock.advance(10 * SECOND);
    assert_eq!(world.fetch("a").await, (None, false), "its time is over");
    let third = Exact::of(&["a"]);
    world.catalog.join(Domain::new("third").unwrap().held(third.arc()).source(third.arc())).unwrap();
    assert_eq!(world.fetch("a").await, (Some("third".into()), false), "a domain has come that may have it");
    assert_eq!(world.fetch("a").await, (Some("third".into()), true));
    world.catalog.leave("third");
    assert_eq!(world.fetch("a").await, (None, false), "and has gone");
    world.sources[1].set(|state| state.is_down = true);
    world.hot.forget_all();
    let unknown = world.catalog.fetch("a", SECOND).await;
    assert!(!unknown.is_absent() && world.hot.is_empty(), "what is not known is not kept");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_change_overtook_is_not_kept() {
    let world = world(1 << 20);
    world.add(1, "a", true, true);
    world.sources[1].set(|state| state.delay = SECOND / 2);
    let (fetched, ()) = tokio::join!(world.catalog.fetch("a", SECOND), async {
        tokio::time::sleep(SECOND / 4).await;
        world.hot.forget_key(b"a");
    });
    assert!(fetched.record.is_some() && world.hot.is_empty());
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded() {
    let world = world(100_000);
    for number in 0..2_000 {
        let key = format!("key {number}");
        world.add(1, &key, true, true);
        world.fetch(&key).await;
    }
    assert!(world.hot.bytes() <= 100_000 && world.hot.len() > 100, "{:?}", world.hot);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn counts_are_never_too_low_and_seldom_much_too_high(
        seed: u64,
        listed in 1_usize..20,
        asked in prop::collection::vec((0_u32..600, 1_u32..30), 1..800),
    ) {
        let counts = Counts::new(16 << 10, listed, &SeededRandom::new(seed)).unwrap();
        let mut exact: HashMap<u32, u64> = HashMap::new();
        for (key, times) in &asked {
            for _ in 0..*times {
                counts.note(&key.to_le_bytes());
                *exact.entry(*key).or_default() += 1;
            }
        }
        let all: u64 = exact.values().sum();
        prop_assert_eq!(counts.accesses(), all);
        let over = |key: &u32, count: &u64| counts.count(&key.to_le_bytes()) - count;
        for (key, count) in &exact {
            prop_assert!(counts.count(&key.to_le_bytes()) >= *count);
        }
        let far = exact.iter().filter(|(key, count)| over(key, count) > 2 * all / 1024).count();
        prop_assert!(far <= 5 + exact.len() / 8, "{} of {} are far off", far, exact.len());
        let top = counts.top(listed);
        prop_assert_eq!(top.len(), listed.min(exact.len()));
        let least = top.last().map_or(0, |(_, count)| *count);
        prop_assert!(top.is_sorted_by(|(_, one), (_, next)| one >= next));
        for (key, count) in &exact {
            let is_listed = top.iter().any(|(known, _)| known[..] == key.to_le_bytes());
            prop_assert!(is_listed || *count <= least, "{} was asked for {} times; the last one has {}", key, count, least);
        }
        counts.halve();
        prop_assert!(exact.iter().all(|(key, count)| counts.count(&key.to_le_bytes()) >= count / 2));
    }
}

#[test]
fn threads_lose_no_count() {
    let counts = Counts::new(1 << 20, 10, &SeededRandom::new(1)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let counts = &counts;
            scope.spawn(move || {
                for number in 0..20_000_u32 {
                    counts.note(b"hottest");
                    counts.note(&(thread << 24 | number).to_le_bytes());
                }
            });
        }
    });
    assert_eq!(counts.accesses(), 160_000);
    let top = counts.top(1);
    assert_eq!(top[0].0, b"hottest");
    assert!((80_000..80_010).contains(&top[0].1), "{}", top[0].1);
    assert!(
        Counts::new(1, 10, &SeededRandom::new(1)).is_err()
            && Counts::new(1 << 20, 0, &SeededRandom::new(1)).is_err()
    );
}
