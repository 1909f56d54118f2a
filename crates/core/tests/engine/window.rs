//! Sliding windows, compared with a list of when each key was added.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use umbel_core::Error;
use umbel_core::clock::{Clock, ManualClock};
use umbel_core::definition::Window;
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Answer, Engine, Handle, NewFilter};
use umbel_core::random::SeededRandom;
use umbel_filter::{Layout, Spec};

use crate::world::{absent, below, everywhere, key, keys, open_at, run};

const LENGTH: u64 = 60_000;
const WINDOW: Window = Window { length_ms: LENGTH, buckets: 6 };

fn windowed(name: &str, spec: Spec) -> NewFilter {
    NewFilter { window: Some(WINDOW), ..NewFilter::new(name, spec) }
}

/// When each key was last added.
#[derive(Default)]
struct Oracle(HashMap<u64, u64>);

impl Oracle {
    /// Whether a key must be there, and whether it may.
    fn held(&self, key: u64, now: u64) -> (bool, bool) {
        let age = self.0.get(&key).map(|added| now - added);
        let bucket = WINDOW.bucket_ms();
        (age.is_some_and(|age| age <= LENGTH), age.is_some_and(|age| age <= LENGTH + bucket))
    }
}

#[test]
fn a_window_remembers_what_was_added_within_its_length() {
    let (mut wrong, mut asked, mut restarts) = (0_u64, 0_u64, 0);
    for seed in 1..=12 {
        run(async {
            let (disk, clock, random) =
                (MemoryDisk::default(), ManualClock::default(), SeededRandom::new(seed));
            let mut engine = open_at(&disk, &clock).await.unwrap();
            clock.advance(Duration::from_millis(below(&random, 100_000)));
            engine.create(windowed("w", Spec::bloom(600, 0.001))).await.unwrap();
            let mut oracle = Oracle::default();
            for step in 0..120_u64 {
                let window = engine.filter("w").unwrap();
                match below(&random, 12) {
                    0..5 => {
                        let first = below(&random, 2_000);
                        let some: Vec<u64> = (first..first + 1 + below(&random, 60)).collect();
                        let now = clock.unix_millis();
                        let fingerprints: Vec<_> = some.iter().copied().map(key).collect();
                        let written = engine.add(&window, &fingerprints).await.unwrap();
                        for (key, answer) in some.iter().zip(written.answers) {
                            let (must, may) = oracle.held(*key, now);
                            let new = answer.expect("windows take all keys");
                            assert!(!(new && must), "seed {seed}, step {step}: key {key} is new");
                            wrong += u64::from(!new && !may);
                            asked += 1;
                            oracle.0.insert(*key, now);
                        }
                    }
                    5..9 => clock.advance(Duration::from_millis(below(&random, 25_000))),
                    9 => drop(engine.maintain().await.unwrap()),
                    10 => drop(engine.checkpoint().await.unwrap()),
                    _ => {
                        restarts += 1;
                        drop(engine);
                        engine = open_at(&disk, &clock).await.unwrap();
                    }
                }
                let (window, now) = (engine.filter("w").unwrap(), clock.unix_millis());
                let fingerprints: Vec<_> = (0..2_100).map(key).collect();
                let answers = engine.contains(&window, &fingerprints, None).await.unwrap();
                for (key, answer) in (0..).zip(&answers) {
                    let (must, may) = oracle.held(key, now);
                    assert_ne!(*answer, Answer::Unknown, "seed {seed}, step {step}: key {key}");
                    assert!(
                        !must || *answer == Answer::Maybe,
                        "seed {seed}, step {step}: key {key} is absent"
                    );
                    wrong += u64::from(!may && *answer == Answer::Maybe);
                    asked += 1;
                }
                // Who asks without waiting is told the same.
                let mut told = Vec::new();
                window.contains_batch(&fingerprints, &mut told);
                assert_eq!(told, answers);
                assert_eq!(window.contains(fingerprints[7]), answers[7]);
                let live: Vec<u64> = (0..2_000).filter(|key| oracle.held(*key, now).0).collect();
                let verified: Vec<_> = live.iter().copied().map(key).collect();
                let counts = engine.verify(&window, &verified).await.unwrap();
                assert!(counts.iter().all(|count| *count == 1));
                assert!(window.items() + 5 >= live.len() as u64);
                assert_eq!(engine.filters().len(), 1, "buckets are not shown");
            }
        });
    }
    println!("{wrong} of {asked} answers were wrong; {restarts} restarts");
    assert!((wrong as f64) < asked as f64 * 0.0015, "{wrong} of {asked}");
}

async fn fill(engine: &Engine, clock: &ManualClock, window: &Arc<Handle>) {
    for bucket in 0..6 {
        engine.add(window, &keys(bucket * 100..bucket * 100 + 100)).await.unwrap();
        clock.advance(Duration::from_millis(WINDOW.bucket_ms()));
    }
}

#[test]
fn what_happens_to_a_window_happens_to_its_buckets() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let mut engine = open_at(&disk, &clock).await.unwrap();
        let window = engine.create(windowed("w", Spec::bloom(600, 0.01))).await.unwrap();
        assert_eq!(engine.budget().used(), 0, "it has no array");
        fill(&engine, &clock, &window).await;
        assert!(window.items().abs_diff(600) < 20);
        let stats = window.stats();
        assert!(stats.layers == 6 && stats.bytes > 0 && stats.estimated_error < 0.01, "{stats:?}");

        engine.rename(&window, "v", false).await.unwrap();
        engine.unload(&window).await.unwrap();
        drop(engine);
        engine = open_at(&disk, &clock).await.unwrap();
        let window = engine.filter("v").unwrap();
        assert_eq!(absent(&engine, &window, &keys(0..600)).await, 0);

        let copy = engine.create(everywhere("copy", Spec::bloom(600, 0.01))).await.unwrap();
        // A key is counted once, in however many buckets it is.
        let counting = engine.create(everywhere("counting", Spec::counting(600, 0.01))).await.unwrap();
        engine.add(&window, &keys(50..150)).await.unwrap();
        engine.merge(&counting, std::slice::from_ref(&window)).await.unwrap();
        assert!(engine.verify(&counting, &keys(0..600)).await.unwrap().iter().all(|count| *count == 1));
        engine.drop_filter(&counting).await.unwrap();
        let merged = engine.merge(&copy, std::slice::from_ref(&window)).await.unwrap();
        assert!(merged > 580);
        assert_eq!(absent(&engine, &copy, &keys(0..600)).await, 0);
        engine.drop_filter(&copy).await.unwrap();

        engine.clear(&window).await.unwrap();
        assert_eq!(absent(&engine, &window, &keys(0..600)).await, 600);
        assert_eq!(window.items(), 0);
        engine.add(&window, &keys(0..100)).await.unwrap();
        drop(engine);
        engine = open_at(&disk, &clock).await.unwrap();
        let window = engine.filter("v").unwrap();
        assert_eq!(absent(&engine, &window, &keys(0..600)).await, 500);

        engine.expire(&window, Some(clock.unix_millis() + 1)).await.unwrap();
        clock.advance(Duration::from_millis(1));
        engine.maintain().await.unwrap();
        assert_eq!(engine.budget().used(), 0, "its buckets are gone");
        let window = engine.create(windowed("v", Spec::bloom(600, 0.01))).await.unwrap();
        fill(&engine, &clock, &window).await;
        engine.drop_filter(&window).await.unwrap();
        assert_eq!(engine.budget().used(), 0);
        assert!(engine.add(&window, &keys(0..1)).await.is_err());
    });
}

#[test]
fn a_window_of_uneven_buckets_remembers_for_its_whole_length() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let engine = open_at(&disk, &clock).await.unwrap();
        // Buckets of 15 milliseconds: 64 of them are shorter than the window.
        let uneven = Some(Window { length_ms: 1_000, buckets: 64 });
        let new = NewFilter { window: uneven, ..NewFilter::new("w", Spec::bloom(6_400, 0.01)) };
        let window = engine.create(new).await.unwrap();
        let mut added = Vec::new();
        for number in 0..400 {
            engine.add(&window, &[key(number)]).await.unwrap();
            added.push(clock.unix_millis());
            clock.advance(Duration::from_millis(5));
            let first = added.partition_point(|at| at + 1_000 < clock.unix_millis()) as u64;
            assert_eq!(absent(&engine, &window, &keys(first..number + 1)).await, 0, "{first} to {number}");
        }
        let right = absent(&engine, &window, &keys(10_000..30_000)).await;
        assert!(right > 19_750, "{right} of 20,000");
    });
}

#[test]
fn a_dropped_window_is_never_sure() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let engine = open_at(&disk, &clock).await.unwrap();
        let window = engine.create(windowed("w", Spec::bloom(600, 0.01))).await.unwrap();
        fill(&engine, &clock, &window).await;
        engine.clear(&window).await.unwrap();
        assert_eq!(window.contains(key(0)), Answer::Absent);
        engine.add(&window, &keys(0..10)).await.unwrap();
        engine.drop_filter(&window).await.unwrap();
        for _ in 0..2 {
            assert_eq!(window.contains(key(0)), Answer::Unknown);
            assert_eq!(engine.contains(&window, &keys(0..1), None).await.unwrap(), [Answer::Unknown]);
            engine.maintain().await.unwrap();
        }
    });
}

#[test]
fn the_next_bucket_is_made_ahead_of_time() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let engine = open_at(&disk, &clock).await.unwrap();
        let window = engine.create(windowed("w", Spec::bloom(6_000, 0.01))).await.unwrap();
        engine.maintain().await.unwrap();
        assert_eq!(window.stats().layers, 0, "nobody used it yet");
        engine.add(&window, &keys(0..10)).await.unwrap();
        engine.maintain().await.unwrap();
        assert_eq!(window.stats().layers, 1);
        clock.advance(Duration::from_millis(9_000));
        engine.maintain().await.unwrap();
        assert_eq!(window.stats().layers, 2);
        // Unused, everything goes.
        for _ in 0..20 {
            clock.advance(Duration::from_millis(9_000));
            engine.maintain().await.unwrap();
        }
        assert_eq!((window.stats().layers, engine.budget().used()), (0, 0));
    });
}

#[test]
fn windows_of_other_kinds_are_refused() {
    run(async {
        let engine = open_at(&MemoryDisk::default(), &ManualClock::default()).await.unwrap();
        for new in [
            windowed("w", Spec::counting(600, 0.01)),
            NewFilter {
                window: Some(Window { length_ms: 10, buckets: 0 }),
                ..windowed("w", Spec::bloom(6, 0.01))
            },
            NewFilter {
                window: Some(Window { length_ms: 10, buckets: 65 }),
                ..windowed("w", Spec::bloom(6, 0.01))
            },
        ] {
            let refused = engine.create(new).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
        let guava = windowed("guava", Spec::hosted(Layout::Guava, 600, 0.01));
        let guava = engine.create(guava).await.unwrap();
        engine.add(&guava, &keys(0..600)).await.unwrap();
        assert_eq!(absent(&engine, &guava, &keys(0..600)).await, 0);
        assert!(engine.remove(&guava, &keys(0..1)).await.is_err());
        assert!(engine.resize(&guava, 1_000, 0.01).await.is_err());
        assert!(engine.dump(&guava, 0).await.is_err());
        assert!(engine.project(&guava, Spec::hosted(Layout::Guava, 600, 0.01)).await.is_err());
    });
}

/// Each group of keys is there until the length of the window has passed since it was added.
#[test]
fn a_clock_that_is_set_makes_a_window_forget_nothing_early() {
    const HOUR: i64 = 3_600_000;
    for (steps, reopens) in [
        (vec![-HOUR], false),
        (vec![HOUR], false),
        (vec![HOUR, -HOUR, -HOUR], false),
        (vec![-HOUR], true),
        (vec![HOUR], true),
        (vec![24 * 365 * HOUR, -24 * 365 * HOUR], true),
    ] {
        run(async {
            let what = format!("{steps:?}, restarts: {reopens}");
            let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
            clock.advance(Duration::from_secs(50 * 365 * 24 * 3600));
            let mut engine = open_at(&disk, &clock).await.unwrap();
            engine.create(windowed("w", Spec::bloom(6_000, 0.001))).await.unwrap();
            // When each group of a hundred keys was added, by a clock that nobody sets.
            let mut added: Vec<Duration> = Vec::new();
            let mut steps = steps.into_iter();
            for round in 0..60 {
                let window = engine.filter("w").unwrap();
                if round < 40 {
                    let first = round * 100;
                    engine.add(&window, &keys(first..first + 100)).await.unwrap();
                    added.push(clock.now());
                }
                if round % 8 == 5
                    && let Some(step) = steps.next()
                {
                    clock.step(step);
                    if !reopens {
                        let all = keys(round.saturating_sub(20) * 100..round * 100);
                        assert_eq!(
                            absent(&engine, &window, &all).await,
                            0,
                            "{what}: at once, in round {round}"
                        );
                    }
                    engine.maintain().await.unwrap();
                }
                if reopens && round % 8 == 6 {
                    drop(engine);
                    engine = open_at(&disk, &clock).await.unwrap();
                }
                clock.advance(Duration::from_millis(3_000));
                engine.maintain().await.unwrap();
                let window = engine.filter("w").unwrap();
                for (group, at) in added.iter().enumerate() {
                    let (age, group) = (clock.now() - *at, group as u64 * 100);
                    let absent = absent(&engine, &window, &keys(group..group + 100)).await;
                    if age <= Duration::from_millis(LENGTH) {
                        assert_eq!(absent, 0, "{what}: group {group} of age {age:?} in round {round}");
                    }
                    if age > Duration::from_millis(LENGTH + WINDOW.bucket_ms() + 3_000) {
                        assert!(absent > 95, "{what}: group {group} of age {age:?} is still there, {absent}");
                    }
                }
            }
        });
    }
}

#[test]
fn a_process_that_starts_with_a_clock_that_was_set_back_forgets_nothing_early() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        clock.advance(Duration::from_secs(1_000_000));
        let engine = open_at(&disk, &clock).await.unwrap();
        let window = engine.create(windowed("w", Spec::bloom(600, 0.001))).await.unwrap();
        engine.add(&window, &keys(0..100)).await.unwrap();
        clock.advance(Duration::from_secs(20));
        drop(engine);
        // It is set back while no process runs.
        clock.step(-3_600_000);
        let engine = open_at(&disk, &clock).await.unwrap();
        let window = engine.filter("w").unwrap();
        for _ in 0..8 {
            assert_eq!(absent(&engine, &window, &keys(0..100)).await, 0);
            clock.advance(Duration::from_secs(5));
            engine.maintain().await.unwrap();
        }
        clock.advance(Duration::from_secs(35));
        engine.maintain().await.unwrap();
        assert!(absent(&engine, &window, &keys(0..100)).await > 95, "and forgets them");
    });
}
