use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use umbel_core::clock::ManualClock;
use umbel_core::definition::Growth;
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Answer, Engine, Event, Handle, NewFilter, Settings, Size, Why};
use umbel_core::entry::Request;
use umbel_core::{Error, log::MemoryLog};
use umbel_filter::{Counter, Kind, Layout, Spec};

use crate::world::{
    SLOTS, absent, block_on, everywhere, key, keys, open, open_at, open_with, reopened, settings, settle,
};

#[test]
fn what_was_added_is_there_after_every_restart() {
    block_on(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        engine.create(NewFilter::new("small", Spec::bloom(10_000, 0.001))).await.unwrap();
        engine.create(everywhere("large", Spec::bloom(10_000, 0.001))).await.unwrap();
        for round in 0..6 {
            for name in ["small", "large"] {
                let filter = engine.filter(name).unwrap();
                let new = keys(round * 1000..round * 1000 + 1000);
                let written = engine.add(&filter, &new).await.unwrap();
                let fresh = written.answers.iter().filter(|new| **new == Some(true)).count();
                assert!(fresh > 990, "{fresh} of 1000 were new");
                assert_eq!(absent(&engine, &filter, &keys(0..round * 1000 + 1000)).await, 0);
                assert!(absent(&engine, &filter, &keys(1_000_000..1_010_000)).await > 9_950);
            }
            if round % 2 == 1 {
                assert!(engine.checkpoint().await.unwrap().checkpoints > 0);
            }
            engine = reopened(engine, &disk).await;
            for name in ["small", "large"] {
                let filter = engine.filter(name).unwrap();
                assert_eq!(absent(&engine, &filter, &keys(0..round * 1000 + 1000)).await, 0);
                assert!(absent(&engine, &filter, &keys(1_000_000..1_010_000)).await > 9_950);
                assert!(filter.items().abs_diff(round * 1000 + 1000) < 20, "{}", filter.items());
            }
        }
    });
}

#[test]
fn only_what_was_added_can_be_removed() {
    block_on(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let filter = engine.create(everywhere("seen", Spec::counting(2_000, 0.1))).await.unwrap();
        engine.add(&filter, &keys(0..1_000)).await.unwrap();
        engine.checkpoint().await.unwrap();
        engine.add(&filter, &keys(500..1_500)).await.unwrap();
        for _ in 0..2 {
            engine = reopened(engine, &disk).await;
            let filter = engine.filter("seen").unwrap();
            // At this error rate many strangers look as if they were there.
            let strangers = keys(10_000..12_000);
            assert!(absent(&engine, &filter, &strangers).await < 1_990);
            let removed = engine.remove(&filter, &strangers).await.unwrap();
            assert!(removed.answers.iter().all(|there| *there == Some(false)));
            let counts = engine.verify(&filter, &keys(0..2_000)).await.unwrap();
            let expected =
                |number: usize| usize::from(number < 1_000) + usize::from((500..1_500).contains(&number));
            assert!(counts.iter().enumerate().all(|(number, count)| *count as usize == expected(number)));
        }
        let filter = engine.filter("seen").unwrap();
        for times in 0..3 {
            let removed = engine.remove(&filter, &[key(700)]).await.unwrap();
            assert_eq!(removed.answers, [Some(times < 2)]);
            engine.checkpoint().await.unwrap();
        }
        assert_eq!(engine.verify(&filter, &[key(700), key(701)]).await.unwrap(), [0, 2]);
    });
}

#[test]
fn filters_grow_and_hold_their_error_rate() {
    block_on(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        engine.create(NewFilter::new("small", Spec::bloom(1_000, 0.01))).await.unwrap();
        engine.create(everywhere("large", Spec::counting(1_000, 0.01))).await.unwrap();
        engine
            .create(NewFilter { retain: false, ..NewFilter::new("layers", Spec::bloom(1_000, 0.01)) })
            .await
            .unwrap();
        for round in 0..20 {
            for name in ["small", "large", "layers"] {
                let filter = engine.filter(name).unwrap();
                engine.add(&filter, &keys(round * 1_000..round * 1_000 + 1_000)).await.unwrap();
                assert_eq!(
                    absent(&engine, &filter, &keys(0..round * 1_000 + 1_000)).await,
                    0,
                    "{name} {round}"
                );
                let wrong = 10_000 - absent(&engine, &filter, &keys(1_000_000..1_010_000)).await;
                assert!(wrong < 150, "{name}: {wrong} of 10,000 are wrong");
            }
            if round % 7 == 3 {
                engine.checkpoint().await.unwrap();
                engine = reopened(engine, &disk).await;
            }
        }
        for name in ["small", "large", "layers"] {
            let definition = engine.filter(name).unwrap().definition();
            assert!(definition.generation > 3 && definition.spec.capacity >= 19_900, "{definition:?}");
        }
    });
}

/// Layers that err often: a key is taken out of the layer that it was added to, and not of one that only seems to have it.
#[test]
fn keys_leave_the_layer_that_they_came_to() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let eight_bits = Spec::counting(500, 0.4).kind(Kind::Counting(Counter::Byte));
        let new = NewFilter { retain: false, ..NewFilter::new("layers", eight_bits) };
        let filter = engine.create(new).await.unwrap();
        let all = keys(0..8_000);
        for some in all.chunks(500) {
            engine.add(&filter, some).await.unwrap();
        }
        assert!(filter.stats().layers > 3, "{:?}", filter.stats());
        // Some come a second time, when there are more layers than at the first.
        engine.add(&filter, &all[..2_000]).await.unwrap();
        let (removed, kept): (Vec<_>, Vec<_>) =
            all.iter().enumerate().partition(|(number, _)| number % 3 > 0);
        for (number, key) in removed {
            for _ in 0..if number < 2_000 { 2 } else { 1 } {
                assert_eq!(engine.remove(&filter, &[*key]).await.unwrap().answers, [Some(true)], "{number}");
            }
        }
        let kept: Vec<_> = kept.into_iter().map(|(_, key)| *key).collect();
        assert_eq!(absent(&engine, &filter, &kept).await, 0);
        for (number, key) in kept.iter().enumerate() {
            for _ in 0..if number * 3 < 2_000 { 2 } else { 1 } {
                assert_eq!(engine.remove(&filter, &[*key]).await.unwrap().answers, [Some(true)], "{number}");
            }
        }
        assert_eq!(absent(&engine, &filter, &all).await, all.len(), "nothing is left");
    });
}

#[test]
fn filters_shrink_and_become_stricter() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(everywhere("f", Spec::bloom(100_000, 0.05))).await.unwrap();
        engine.add(&filter, &keys(0..1_000)).await.unwrap();
        let before = filter.bytes();
        engine.resize(&filter, 1_000, 0.05).await.unwrap();
        assert!(filter.bytes() * 20 < before);
        engine.resize(&filter, 1_000, 0.0001).await.unwrap();
        assert!(absent(&engine, &filter, &keys(1_000_000..1_100_000)).await > 99_960);
        assert_eq!(absent(&engine, &filter, &keys(0..1_000)).await, 0);
        assert!(matches!(engine.resize(&filter, 100, 0.01).await, Err(Error::Invalid(_))));
        assert_eq!(filter.definition().generation, 2);
    });
}

#[test]
fn a_burst_does_not_decide_the_next_size() {
    block_on(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let engine = open_at(&disk, &clock).await.unwrap();
        for (name, growth, expected) in [("twice", 200, [2_000, 4_000]), ("half more", 150, [1_500, 2_250])] {
            let spec = Spec::bloom(1_000, 0.01);
            let growth = Growth::Percent(growth);
            let filter = engine.create(NewFilter { growth, ..NewFilter::new(name, spec) }).await.unwrap();
            engine.maintain().await.unwrap();
            // A hundred thousand keys a second, for a moment.
            clock.advance(Duration::from_millis(9));
            engine.add(&filter, &keys(0..900)).await.unwrap();
            engine.maintain().await.unwrap();
            assert_eq!(filter.definition().spec.capacity, expected[0], "{name}");
            clock.advance(Duration::from_millis(9));
            engine.add(&filter, &keys(900..1_400)).await.unwrap();
            engine.maintain().await.unwrap();
            engine.add(&filter, &keys(1_400..1_700)).await.unwrap();
            engine.maintain().await.unwrap();
            assert_eq!(filter.definition().spec.capacity, expected[1], "{name}");
            assert_eq!(absent(&engine, &filter, &keys(0..1_700)).await, 0);
        }
    });
}

#[test]
fn filters_are_built_anew_after_many_removals() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(everywhere("f", Spec::counting(1_000, 0.001))).await.unwrap();
        // A counter that reached its end stays there, however often the key is removed.
        let often = vec![key(1); 20];
        engine.add(&filter, &often).await.unwrap();
        engine.remove(&filter, &often).await.unwrap();
        assert_eq!(absent(&engine, &filter, &[key(1)]).await, 0);
        engine.maintain().await.unwrap();
        assert_eq!(filter.definition().generation, 0, "a few removals are no reason");
        for _ in 0..4 {
            engine.add(&filter, &keys(100..400)).await.unwrap();
            engine.remove(&filter, &keys(100..400)).await.unwrap();
        }
        engine.maintain().await.unwrap();
        assert_eq!(filter.definition().generation, 1);
        assert_eq!(absent(&engine, &filter, &[key(1)]).await, 1);
    });
}

#[test]
fn fixed_filters_refuse_when_they_are_full() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let fixed = NewFilter { growth: Growth::Fixed, ..NewFilter::new("fixed", Spec::bloom(100, 0.001)) };
        let filter = engine.create(fixed).await.unwrap();
        let written = engine.add(&filter, &keys(0..150)).await.unwrap();
        let taken = written.answers.iter().flatten().count();
        assert!((100..103).contains(&taken), "{taken}");
        assert!(written.refused.unwrap().contains("full"));
        let again = engine.add(&filter, &keys(0..10)).await.unwrap();
        assert_eq!(again.answers, [Some(false); 10]);
        assert!(again.refused.is_none());
        // A chain that may not grow says so by itself.
        let spec = Spec::hosted(Layout::RedisBloom { expansion: None }, 100, 0.001);
        let chain = engine.create(NewFilter::new("chain", spec)).await.unwrap();
        let written = engine.add(&chain, &keys(0..150)).await.unwrap();
        assert!(written.refused.is_some());
    });
}

#[test]
fn dropped_and_cleared_filters_are_forgotten() {
    block_on(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        for name in ["dropped", "cleared"] {
            let filter = engine.create(everywhere(name, Spec::counting(1_000, 0.001))).await.unwrap();
            engine.add(&filter, &keys(0..500)).await.unwrap();
        }
        engine.checkpoint().await.unwrap();
        let dropped = engine.filter("dropped").unwrap();
        engine.drop_filter(&dropped).await.unwrap();
        assert_eq!(dropped.contains(key(1)), Answer::Unknown, "a dropped filter is never sure");
        engine.clear(&engine.filter("cleared").unwrap()).await.unwrap();
        for _ in 0..3 {
            assert!(engine.filter("dropped").is_none());
            let cleared = engine.filter("cleared").unwrap();
            assert_eq!(cleared.items(), 0);
            assert_eq!(engine.verify(&cleared, &keys(0..500)).await.unwrap(), [0; 500]);
            assert_eq!(absent(&engine, &cleared, &keys(0..500)).await, 500);
            engine.checkpoint().await.unwrap();
            engine = reopened(engine, &disk).await;
        }
        let again = engine.create(everywhere("dropped", Spec::counting(1_000, 0.001))).await.unwrap();
        assert_eq!(engine.verify(&again, &keys(0..500)).await.unwrap(), [0; 500]);
        assert!(matches!(
            engine.create(everywhere("dropped", Spec::bloom(1, 0.1))).await,
            Err(Error::Invalid(_))
        ));
    });
}

#[test]
fn filters_that_nobody_uses_make_way_and_come_back() {
    block_on(async {
        let disk = MemoryDisk::default();
        let small = Settings { memory_bytes: 600 << 10, ..settings() };
        let mut engine = open_with(&disk, small.clone()).await.unwrap();
        // Each takes about 180 kB, so three fit.
        for number in 0..8 {
            let spec = Spec::bloom(100_000, 0.001);
            let filter = engine.create(everywhere(&format!("f{number}"), spec)).await.unwrap();
            engine.add(&filter, &keys(number * 100..number * 100 + 100)).await.unwrap();
            assert!(engine.budget().used() <= small.memory_bytes);
        }
        let refused = engine.create(NewFilter::new("huge", Spec::bloom(1_000_000, 0.001))).await.unwrap_err();
        assert!(refused.to_string().contains("614400"), "{refused}");
        for round in 0..2 {
            for number in (0..8).rev() {
                let filter = engine.filter(&format!("f{number}")).unwrap();
                assert_ne!(filter.contains(key(number * 100)), Answer::Absent);
                assert_eq!(absent(&engine, &filter, &keys(number * 100..number * 100 + 100)).await, 0);
                assert_eq!(filter.items(), 100 + round);
                engine.add(&filter, &keys(5_000..5_001 + round)).await.unwrap();
                engine.remove(&filter, &[key(1)]).await.unwrap_err();
                assert!(engine.budget().used() <= small.memory_bytes);
                filter_is_left_as_it_was(&engine, number).await;
            }
            engine.checkpoint().await.unwrap();
            drop(engine);
            engine = open_with(&disk, small.clone()).await.unwrap();
        }
    });
}

async fn filter_is_left_as_it_was(engine: &Engine, number: u64) {
    let filter = engine.filter(&format!("f{number}")).unwrap();
    let verified = engine.verify(&filter, &keys(number * 100..number * 100 + 101)).await.unwrap();
    assert_eq!(verified[..100], [1; 100]);
    assert_eq!(verified[100], 0);
}

#[test]
fn a_request_has_one_effect_and_one_answer_across_restarts() {
    block_on(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        engine.create(everywhere("f", Spec::counting(1_000, 0.001))).await.unwrap();
        let request = Request { session: 7, sequence: 1 };
        let first = engine.add_as(&engine.filter("f").unwrap(), &keys(0..100), request).await.unwrap();
        for round in 0..4 {
            let again = engine.add_as(&engine.filter("f").unwrap(), &keys(0..100), request).await.unwrap();
            assert_eq!(again.answers, first.answers);
            assert_eq!(engine.verify(&engine.filter("f").unwrap(), &keys(0..100)).await.unwrap(), [1; 100]);
            if round > 0 {
                engine.checkpoint().await.unwrap();
            }
            engine = reopened(engine, &disk).await;
        }
    });
}

#[test]
fn two_engines_on_one_log_agree() {
    block_on(async {
        let log = Arc::new(MemoryLog::new(2));
        let open = async || {
            let blobs = Arc::new(object_store::memory::InMemory::new());
            Engine::builder(settings()).with_log(log.clone()).with_blobs(blobs).open().await.unwrap()
        };
        let (one, other) = (open().await, open().await);
        let ours = one.create(everywhere("f", Spec::counting(1_000, 0.01))).await.unwrap();
        let written = one.add(&ours, &keys(0..100)).await.unwrap();
        other.digests().await.unwrap();
        let theirs = other.filter("f").unwrap();
        assert_eq!(other.remove(&theirs, &keys(0..50)).await.unwrap().answers, [Some(true); 50]);
        let answers = other.contains(&theirs, &keys(50..100), Some(&written.token)).await.unwrap();
        assert_eq!(answers, [Answer::Maybe; 50]);
        one.add(&ours, &keys(100..200)).await.unwrap();
        assert_eq!(one.digests().await.unwrap(), other.digests().await.unwrap());
        assert!(matches!(
            other.create(NewFilter::new("f", Spec::bloom(1, 0.1))).await,
            Err(Error::Invalid(_))
        ));
    });
}

#[test]
fn background_threads_and_others_do_the_same_work_at_once() {
    let disk = MemoryDisk::default();
    let busy = Settings { checkpoint_every: Duration::ZERO, ..settings() };
    let engine = block_on(open_with(&disk, busy)).unwrap();
    block_on(engine.create(everywhere("f", Spec::counting(100, 0.01)))).unwrap();
    engine.start().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let engine = &engine;
            scope.spawn(move || {
                block_on(async {
                    for round in 0..40 {
                        let filter = engine.filter("f").unwrap();
                        let own = thread * 10_000 + round * 50;
                        engine.add(&filter, &keys(own..own + 50)).await.unwrap();
                        assert_eq!(absent(engine, &filter, &keys(own..own + 50)).await, 0);
                        let removed = engine.remove(&filter, &keys(own..own + 25)).await.unwrap();
                        assert_eq!(removed.answers, [Some(true); 25]);
                        if round % 5 == thread {
                            engine.checkpoint().await.unwrap();
                        }
                    }
                });
            });
        }
    });
    engine.stop();
    assert!(engine.failure().is_none(), "{:?}", engine.failure());
    block_on(async {
        let engine = reopened(engine, &disk).await;
        let filter = engine.filter("f").unwrap();
        for own in (0..3).flat_map(|thread| (0..40).map(move |round| thread * 10_000 + round * 50)) {
            let counts = engine.verify(&filter, &keys(own..own + 50)).await.unwrap();
            assert_eq!((&counts[..25], &counts[25..]), (&[0; 25][..], &[1; 25][..]));
        }
    });
}

/// Large requests are left to whoever brought them, so none may depend on others to do it.
#[test]
fn large_requests_come_to_their_end_among_small_ones_and_may_be_given_up() {
    let disk = MemoryDisk::default();
    let engine = block_on(open(&disk)).unwrap();
    block_on(engine.create(NewFilter::new("f", Spec::bloom(1_000_000, 0.001)))).unwrap();
    let filter = engine.filter("f").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, filter) = (&engine, &filter);
            scope.spawn(move || {
                block_on(async {
                    for round in 0..40 {
                        let own = thread * 1_000_000 + round * 10_000;
                        let count = if thread < 2 { 6_000 } else { 20 };
                        let added = engine.add(filter, &keys(own..own + count)).await.unwrap();
                        assert_eq!(added.answers.len() as u64, count);
                        assert_eq!(absent(engine, filter, &keys(own..own + count)).await, 0);
                        // Given up at whatever it waits for first, if it has to wait at all.
                        let given_up = keys(own + 7_000..own + 7_000 + count);
                        let _ = poll_immediate(pin!(engine.add(filter, &given_up))).await;
                    }
                });
            });
        }
    });
    block_on(async {
        let digests = engine.digests().await.unwrap();
        assert_eq!(reopened(engine, &disk).await.digests().await.unwrap(), digests);
    });
}

#[test]
fn a_deployment_keeps_its_sizes() {
    block_on(async {
        let disk = MemoryDisk::default();
        drop(open(&disk).await.unwrap());
        let other = Settings { slots: SLOTS * 2, ..settings() };
        let refused = open_with(&disk, other).await.unwrap_err();
        assert!(refused.to_string().contains("4 slots"), "{refused}");
    });
}

#[test]
fn sizes_are_told_with_the_time_and_the_reason() {
    block_on(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let engine = open_at(&disk, &clock).await.unwrap();
        clock.advance(Duration::from_secs(5));
        let early = NewFilter { grow_at: Some(30), ..NewFilter::new("early", Spec::bloom(1_000, 0.01)) };
        let late = NewFilter { grow_at: Some(100), ..NewFilter::new("late", Spec::bloom(1_000, 0.01)) };
        let (early, late) = (engine.create(early).await.unwrap(), engine.create(late).await.unwrap());
        for filter in [&early, &late] {
            engine.add(filter, &keys(0..350)).await.unwrap();
            settle(&engine).await.unwrap();
        }
        let size = |capacity| Size { capacity, error: 0.01 };
        let begun = |filter: &Arc<Handle>, to, items, why| Event::Begun {
            filter: filter.id(),
            generation: 1,
            from: size(1_000),
            to: size(to),
            items,
            why,
            at_ms: 5_000,
        };
        let answers =
            |filter: &Arc<Handle>| Event::Answers { filter: filter.id(), generation: 1, at_ms: 5_000 };
        assert_eq!(engine.take_steps(), [begun(&early, 2_000, 350, Why::Due), answers(&early)]);
        assert_eq!(engine.take_steps(), [], "each is told once");

        // It waits until it is full, or is told to grow by hand.
        engine.add(&late, &keys(350..990)).await.unwrap();
        settle(&engine).await.unwrap();
        assert_eq!((engine.take_steps(), late.definition().spec.capacity), (vec![], 1_000));
        engine.add(&late, &keys(2_000..2_100)).await.unwrap();
        let [Event::Begun { why: Why::Full, items: 985..=990, .. }, Event::Answers { .. }] =
            engine.take_steps()[..]
        else {
            panic!("it was full");
        };
        engine.resize(&early, 9_000, 0.001).await.unwrap();
        let [Event::Begun { why: Why::Asked, generation: 2, .. }, Event::Answers { .. }] =
            engine.take_steps()[..]
        else {
            panic!("it was asked for");
        };

        // The threshold is in the log: it survives a crash, and can be given back.
        engine.set_grow_at(&late, Some(55)).await.unwrap();
        assert!(engine.set_grow_at(&late, Some(0)).await.is_err());
        drop(engine);
        let engine = open_at(&disk, &clock).await.unwrap();
        let late = engine.filter("late").unwrap();
        assert_eq!(late.definition().grow_at, Some(55));
        assert_eq!(engine.due_at(&late), Some((late.definition().spec.capacity * 55).div_ceil(100)));
        engine.set_grow_at(&late, None).await.unwrap();
        assert_eq!(late.definition().grow_at, None);
    });
}

#[test]
fn a_key_is_added_where_it_is_absent_whatever_became_of_its_arrays() {
    block_on(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let sorts = [
            everywhere("large", Spec::counting(4_000, 0.1)),
            NewFilter::new("small", Spec::counting(4_000, 0.1)),
        ];
        for (session, new) in (5..).zip(sorts) {
            let name = new.name.clone();
            engine.create(new).await.unwrap();
            let add = async |engine: &Engine, sequence: u64, numbers: std::ops::Range<u64>| {
                let filter = engine.filter(&name).unwrap();
                let request = Request { session, sequence };
                let written = engine.add_absent_as(&filter, &keys(numbers), request).await.unwrap();
                written.answers.iter().filter(|added| **added == Some(true)).count()
            };
            // One in ten only seems to be there: all of them are added all the same.
            assert_eq!(add(&engine, 1, 0..3_000).await, 3_000);
            engine.checkpoint().await.unwrap();
            assert_eq!(add(&engine, 2, 2_000..3_500).await, 500);
            let filter = engine.filter(&name).unwrap();
            engine.remove(&filter, &keys(0..100)).await.unwrap();
            engine = reopened(engine, &disk).await;
            assert_eq!(add(&engine, 3, 0..3_500).await, 100);
            let filter = engine.filter(&name).unwrap();
            engine.resize(&filter, 9_000, 0.001).await.unwrap();
            settle(&engine).await.unwrap();
            assert_eq!(add(&engine, 4, 0..3_600).await, 100);
            engine.unload(&filter).await.unwrap();
            assert_eq!(add(&engine, 4, 0..3_600).await, 100, "the same request again");
            assert_eq!(add(&engine, 5, 0..3_600).await, 0);
            let counts = engine.verify(&filter, &keys(0..3_600)).await.unwrap();
            assert!(counts.iter().all(|count| *count == 1));
            let refused = engine.add_absent_as(&filter, &keys(0..1), Request { session, sequence: 1 }).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
        let bloom = engine.create(NewFilter::new("bloom", Spec::bloom(10, 0.1))).await.unwrap();
        let refused = engine.add_absent(&bloom, &keys(0..1)).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    });
}

#[test]
fn a_full_filter_says_of_each_key_whether_it_is_there() {
    block_on(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let fixed =
            NewFilter { growth: Growth::Fixed, ..NewFilter::new("fixed", Spec::counting(10, 0.0001)) };
        let filter = engine.create(fixed).await.unwrap();
        engine.add(&filter, &keys(0..9)).await.unwrap();
        let asked = [0, 20, 20, 21, 1, 22, 21].map(key);
        let written =
            engine.add_absent_as(&filter, &asked, Request { session: 1, sequence: 1 }).await.unwrap();
        assert_eq!(written.answers, [Some(false), Some(true), Some(false), None, Some(false), None, None]);
        assert!(written.refused.is_some_and(|why| why.contains("full")));
        let again = engine.add_absent_as(&filter, &asked, Request { session: 1, sequence: 1 }).await.unwrap();
        assert_eq!(again.answers, written.answers);
    });
}
