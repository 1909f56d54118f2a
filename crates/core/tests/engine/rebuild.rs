//! Filters that are filled anew while the old ones are used, and then take their place.

mod model;

use std::sync::Arc;

use umbel_core::Error;
use umbel_core::definition::Growth;
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Answer, Engine, Handle, NewFilter, Refill, Settings};
use umbel_core::entry::Request;
use umbel_filter::{Fingerprint, Kind, Layout, Spec};

use crate::world::{absent, everywhere, key, keys, open, open_with, reopened, run, settings, settle};

const NOBODY: Request = Request { session: 0, sequence: 0 };

async fn begin(engine: &Engine, name: &str) -> Arc<Handle> {
    let filter = engine.filter(name).unwrap();
    engine.begin_rebuild(&filter, &Refill::default()).await.unwrap().0
}

async fn fill(engine: &Engine, rebuild: &Arc<Handle>, keys: &[Fingerprint]) -> Vec<Option<bool>> {
    engine.fill(rebuild, keys, NOBODY).await.unwrap().answers
}

async fn finish(engine: &Engine, name: &str) -> Result<Arc<Handle>, Error> {
    engine.finish_rebuild(&engine.filter(name).unwrap(), false).await
}

fn message<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// A filter of each kind, in one slot and in all.
fn every_kind() -> [NewFilter; 4] {
    [
        NewFilter::new("f", Spec::bloom(2000, 0.001)),
        everywhere("f", Spec::bloom(2000, 0.001)),
        NewFilter::new("f", Spec::counting(2000, 0.001)),
        everywhere("f", Spec::counting(2000, 0.001)),
    ]
}

#[test]
fn what_is_added_meanwhile_is_in_the_new_filter_and_what_the_source_lacks_is_not() {
    for new in every_kind() {
        run(async {
            let disk = MemoryDisk::default();
            let engine = open(&disk).await.unwrap();
            let filter = engine.create(new).await.unwrap();
            engine.add(&filter, &keys(0..500)).await.unwrap();
            let rebuild = begin(&engine, "f").await;
            engine.add(&filter, &keys(1000..1100)).await.unwrap();
            fill(&engine, &rebuild, &keys(200..600)).await;
            engine.add(&filter, &keys(1100..1200)).await.unwrap();
            // Until the end, the old one answers.
            assert_eq!(absent(&engine, &filter, &keys(0..200)).await, 0);
            assert!(absent(&engine, &filter, &keys(500..600)).await > 90);
            assert_eq!(engine.filters().len(), 1, "nobody sees what is being filled");
            finish(&engine, "f").await.unwrap();

            let filter = engine.filter("f").unwrap();
            assert_eq!(filter.id(), rebuild.id());
            assert_eq!(absent(&engine, &filter, &keys(200..600)).await, 0);
            assert_eq!(absent(&engine, &filter, &keys(1000..1200)).await, 0);
            assert_eq!(engine.verify(&filter, &keys(0..200)).await.unwrap(), [0; 200]);
            assert_eq!(engine.verify(&filter, &keys(200..600)).await.unwrap(), [1; 400]);
            assert_eq!(engine.verify(&filter, &keys(1000..1200)).await.unwrap(), [1; 200]);
            assert_eq!(engine.filters().len(), 1);
            // It goes on as any filter.
            engine.add(&filter, &keys(2000..2010)).await.unwrap();
            let digests = engine.digests().await.unwrap();
            let engine = reopened(engine, &disk).await;
            assert_eq!(engine.digests().await.unwrap(), digests);
            let filter = engine.filter("f").unwrap();
            assert_eq!(absent(&engine, &filter, &keys(2000..2010)).await, 0);
            assert_eq!(engine.filters().len(), 1);
        });
    }
}

#[test]
fn removals_count_whenever_the_source_names_the_key() {
    for (sharded, checkpoints) in [(false, false), (true, false), (false, true), (true, true)] {
        run(async {
            let disk = MemoryDisk::default();
            let mut engine = open(&disk).await.unwrap();
            // Strict, so that no count is taken for a greater one.
            let spec = Spec::counting(2000, 1e-7);
            let new = if sharded { everywhere("f", spec) } else { NewFilter::new("f", spec) };
            let filter = engine.create(new).await.unwrap();
            engine.add(&filter, &keys(0..500)).await.unwrap();
            // Keys that were added twice are still there when they were removed once.
            engine.add(&filter, &keys(400..500)).await.unwrap();
            begin(&engine, "f").await;
            // What happens in between, to those who have handles: none of it may make a difference.
            let between = async |engine: Engine| {
                if checkpoints {
                    engine.checkpoint().await.unwrap();
                    return reopened(engine, &disk).await;
                }
                engine
            };
            let of = |engine: &Engine| engine.filter("f").unwrap();
            fill(&engine, &begin(&engine, "f").await, &keys(0..100)).await;
            engine = between(engine).await;
            // Before the source names them, after it did, and for keys that are left.
            engine.remove(&of(&engine), &keys(50..150)).await.unwrap();
            engine.remove(&of(&engine), &keys(450..500)).await.unwrap();
            engine = between(engine).await;
            // Rows that are read twice, or were read before they went, change nothing.
            fill(&engine, &begin(&engine, "f").await, &keys(0..450)).await;
            engine = between(engine).await;
            fill(&engine, &begin(&engine, "f").await, &keys(80..500)).await;
            // Removed, added again, and then named by the source.
            engine.remove(&of(&engine), &keys(160..170)).await.unwrap();
            engine.add(&of(&engine), &keys(140..170)).await.unwrap();
            engine = between(engine).await;
            fill(&engine, &begin(&engine, "f").await, &keys(130..180)).await;
            // Added and then named by the source, named and then added; and gone for good.
            engine.add(&of(&engine), &keys(600..610)).await.unwrap();
            fill(&engine, &begin(&engine, "f").await, &keys(600..620)).await;
            engine.add(&of(&engine), &keys(610..620)).await.unwrap();
            engine.remove(&of(&engine), &keys(600..605)).await.unwrap();
            engine.remove(&of(&engine), &keys(610..615)).await.unwrap();
            // The old filter never had it, and it was removed all the same.
            fill(&engine, &begin(&engine, "f").await, &keys(700..710)).await;
            let refused = engine.remove(&of(&engine), &keys(700..705)).await.unwrap();
            assert_eq!(refused.answers, [Some(false); 5]);
            engine = between(engine).await;

            let digests = engine.digests().await.unwrap();
            engine = reopened(engine, &disk).await;
            assert_eq!(engine.digests().await.unwrap(), digests);
            finish(&engine, "f").await.unwrap();
            let filter = of(&engine);
            for number in 0..720 {
                let expected = match number {
                    // Those that were added twice, and named by the source at least as often.
                    150..160 | 400..450 => 2,
                    0..50 | 140..500 | 605..610 | 615..620 | 705..710 => 1,
                    _ => 0,
                };
                let count = engine.verify(&filter, &[key(number)]).await.unwrap();
                assert_eq!(count, [expected], "{number}");
                if expected > 0 {
                    assert_eq!(absent(&engine, &filter, &[key(number)]).await, 0, "{number}");
                }
            }
        });
    }
}

#[test]
fn a_rebuild_that_is_given_up_leaves_the_filter_as_it_is() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(everywhere("f", Spec::counting(1000, 0.001))).await.unwrap();
        engine.add(&filter, &keys(0..100)).await.unwrap();
        let digests = engine.digests().await.unwrap();
        let rebuild = begin(&engine, "f").await;
        fill(&engine, &rebuild, &keys(0..50)).await;
        engine.abort_rebuild(&filter).await.unwrap();
        assert_eq!(engine.digests().await.unwrap(), digests);
        assert!(engine.rebuild_of(&filter).await.unwrap().is_none());
        assert!(message(engine.abort_rebuild(&filter).await).contains("no rebuild"));
        assert!(message(finish(&engine, "f").await).contains("no rebuild"));
        assert!(message(engine.fill(&rebuild, &keys(0..1), NOBODY).await).contains("given up"));
        engine.add(&filter, &keys(100..110)).await.unwrap();
        // And again from the beginning.
        let rebuild = begin(&engine, "f").await;
        assert_eq!(rebuild.items(), 0);
        fill(&engine, &rebuild, &keys(0..60)).await;
        finish(&engine, "f").await.unwrap();
        assert_eq!(engine.verify(&engine.filter("f").unwrap(), &keys(58..62)).await.unwrap(), [1, 1, 0, 0]);
    });
}

#[test]
fn a_second_one_goes_on_with_the_first_unless_it_wants_something_else() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(everywhere("f", Spec::bloom(1000, 0.01))).await.unwrap();
        let asked = Refill { capacity: Some(5000), error: Some(0.001), ..Refill::default() };
        let (rebuild, is_resumed) = engine.begin_rebuild(&filter, &asked).await.unwrap();
        assert!(!is_resumed);
        // It grows, and is still what was asked for.
        fill(&engine, &rebuild, &keys(0..9000)).await;
        settle(&engine).await.unwrap();
        assert!(rebuild.definition().spec.capacity > 5000);
        let engine = reopened(engine, &disk).await;
        let filter = engine.filter("f").unwrap();
        for again in [asked, Refill::default(), Refill { error: Some(0.001), ..Refill::default() }] {
            let (resumed, is_resumed) = engine.begin_rebuild(&filter, &again).await.unwrap();
            assert!(is_resumed && resumed.id() == rebuild.id());
        }
        for other in [
            Refill { capacity: Some(5001), ..asked },
            Refill { error: Some(0.01), ..asked },
            Refill { kind: Some(Kind::Counting(umbel_filter::Counter::Nibble)), ..asked },
            Refill { retain: Some(false), ..asked },
            Refill { layout: Some(Layout::Guava), ..asked },
        ] {
            let why = message(engine.begin_rebuild(&filter, &other).await);
            assert!(why.contains("begun otherwise"), "{why}");
        }
        finish(&engine, "f").await.unwrap();
        let filter = engine.filter("f").unwrap();
        assert_eq!(filter.definition().spec.error, 0.001);
        assert_eq!(absent(&engine, &filter, &keys(0..9000)).await, 0);
        assert!(!filter.is_behind());
    });
}

#[test]
fn few_keys_take_the_place_of_many_only_if_they_are_forced_to() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let filter = engine.create(NewFilter::new("f", Spec::bloom(1000, 0.0001))).await.unwrap();
        begin(&engine, "f").await;
        assert!(message(finish(&engine, "f").await).contains("holds 0 keys"));
        engine.abort_rebuild(&filter).await.unwrap();
        engine.add(&filter, &keys(0..100)).await.unwrap();
        let rebuild = begin(&engine, "f").await;
        fill(&engine, &rebuild, &keys(0..49)).await;
        assert!(message(finish(&engine, "f").await).contains("holds 49 keys and the filter f holds 100"));
        fill(&engine, &rebuild, &keys(49..50)).await;
        finish(&engine, "f").await.unwrap();
        begin(&engine, "f").await;
        engine.finish_rebuild(&engine.filter("f").unwrap(), true).await.unwrap();
        assert_eq!(engine.filter("f").unwrap().items(), 0);
    });
}

/// Each step is followed by the end of the process: with its log alone, with a checkpoint, and with both.
#[test]
fn every_step_survives_the_end_of_the_process() {
    for checkpoint in [false, true] {
        for new in every_kind() {
            run(async {
                let disk = MemoryDisk::default();
                let mut engine = open(&disk).await.unwrap();
                let counts = new.spec.kind != Kind::Bloom;
                engine.create(new).await.unwrap();
                for step in 0..6 {
                    let filter = engine.filter("f").unwrap();
                    match step {
                        0 => _ = engine.add(&filter, &keys(0..300)).await.unwrap(),
                        1 => _ = begin(&engine, "f").await,
                        2 => _ = engine.add(&filter, &keys(300..400)).await.unwrap(),
                        3 if counts => _ = engine.remove(&filter, &keys(0..50)).await.unwrap(),
                        4 => _ = fill(&engine, &begin(&engine, "f").await, &keys(0..250)).await,
                        5 => _ = finish(&engine, "f").await.unwrap(),
                        _ => {}
                    }
                    if checkpoint {
                        engine.checkpoint().await.unwrap();
                    }
                    let digests = engine.digests().await.unwrap();
                    engine = reopened(engine, &disk).await;
                    assert_eq!(engine.digests().await.unwrap(), digests, "step {step}");
                }
                let filter = engine.filter("f").unwrap();
                let first = if counts { 50 } else { 0 };
                assert_eq!(absent(&engine, &filter, &keys(first..250)).await, 0);
                assert_eq!(absent(&engine, &filter, &keys(300..400)).await, 0);
                assert_eq!(engine.verify(&filter, &keys(0..first)).await.unwrap(), vec![0; first as usize]);
                assert_eq!(engine.verify(&filter, &keys(250..300)).await.unwrap(), [0; 50]);
            });
        }
    }
}

#[test]
fn the_new_filter_has_the_description_of_the_old_one_and_what_was_asked_for() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let new = NewFilter {
            growth: Growth::Fixed,
            labels: b"door"[..].into(),
            expires: Some(u64::MAX - 5),
            ..everywhere("f", Spec::bloom(100, 0.01))
        };
        let filter = engine.create(new).await.unwrap();
        let counter = Kind::Counting(umbel_filter::Counter::Byte);
        let asked = Refill { kind: Some(counter), error: Some(0.001), ..Refill::default() };
        let (rebuild, _) = engine.begin_rebuild(&filter, &asked).await.unwrap();
        // A bloom filter does not count how often a key is added.
        engine.add(&filter, &keys(0..10)).await.unwrap();
        engine.add(&filter, &keys(0..10)).await.unwrap();
        // It takes what the source has, and never grows again after that.
        fill(&engine, &rebuild, &keys(5..1000)).await;
        engine.rename(&filter, "g", false).await.unwrap();
        engine.finish_rebuild(&filter, false).await.unwrap();
        let filter = engine.filter("g").unwrap();
        let definition = filter.definition();
        assert_eq!((definition.spec.kind, definition.spec.error), (counter, 0.001));
        assert_eq!((definition.growth, definition.expires), (Growth::Fixed, Some(u64::MAX - 5)));
        assert_eq!(&definition.labels[..], b"door");
        assert_eq!(engine.verify(&filter, &keys(0..1000)).await.unwrap(), [1; 1000]);
        assert!(engine.add(&filter, &keys(1000..9000)).await.unwrap().refused.is_some());
        assert!(engine.filter("f").is_none());
    });
}

#[test]
fn whoever_has_the_old_filter_at_hand_goes_on_with_the_new_one() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let old = engine.create(everywhere("f", Spec::counting(1000, 0.001))).await.unwrap();
        engine.add(&old, &keys(0..10)).await.unwrap();
        let rebuild = begin(&engine, "f").await;
        fill(&engine, &rebuild, &keys(0..20)).await;
        finish(&engine, "f").await.unwrap();
        assert_eq!(absent(&engine, &old, &keys(0..20)).await, 0);
        assert_eq!(engine.add(&old, &keys(20..30)).await.unwrap().answers, [Some(true); 10]);
        assert_eq!(engine.remove(&old, &keys(0..5)).await.unwrap().answers, [Some(true); 5]);
        let counts = engine.verify(&engine.filter("f").unwrap(), &keys(0..30)).await.unwrap();
        assert_eq!(counts, [[0; 5].as_slice(), &[1; 25]].concat());
        // Once it is dropped by hand, nobody takes its place.
        engine.drop_filter(&engine.filter("f").unwrap()).await.unwrap();
        assert_eq!(engine.contains(&old, &keys(0..1), None).await.unwrap(), [Answer::Unknown]);
        assert!(engine.add(&old, &keys(0..1)).await.is_err());
    });
}

#[test]
fn a_filter_that_is_cleared_or_dropped_is_not_replaced() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(everywhere("f", Spec::bloom(1000, 0.01))).await.unwrap();
        let rebuild = begin(&engine, "f").await;
        fill(&engine, &rebuild, &keys(0..10)).await;
        engine.clear(&filter).await.unwrap();
        engine.checkpoint().await.unwrap();
        let engine = reopened(engine, &disk).await;
        let (filter, rebuild) = (engine.filter("f").unwrap(), begin(&engine, "f").await);
        assert!(engine.rebuild_failure(&rebuild).await.unwrap().contains("cleared"));
        assert!(message(engine.fill(&rebuild, &keys(0..10), NOBODY).await).contains("cleared"));
        assert!(message(finish(&engine, "f").await).contains("cleared"));
        engine.add(&filter, &keys(0..10)).await.unwrap();
        let engine = reopened(engine, &disk).await;
        let filter = engine.filter("f").unwrap();
        assert_eq!(absent(&engine, &filter, &keys(0..10)).await, 0);

        engine.drop_filter(&filter).await.unwrap();
        let used = engine.budget().used();
        assert_eq!(used, 0, "what was filled for it is dropped with it");
    });
}

#[test]
fn what_cannot_be_filled_anew_is_refused() {
    use umbel_core::definition::Window;

    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let window = Some(Window { length_ms: 1000, buckets: 2 });
        let new = NewFilter { window, ..NewFilter::new("window", Spec::bloom(100, 0.01)) };
        let window = engine.create(new).await.unwrap();
        assert!(message(engine.begin_rebuild(&window, &Refill::default()).await).contains("window"));
        let filter = engine.create(NewFilter::new("f", Spec::counting(100, 0.01))).await.unwrap();
        let forgetful = Refill { retain: Some(false), ..Refill::default() };
        assert!(message(engine.begin_rebuild(&filter, &forgetful).await).contains("keys are kept"));
        let chain = Refill {
            kind: Some(Kind::Bloom),
            layout: Some(Layout::RedisBloom { expansion: Some(2) }),
            ..Refill::default()
        };
        assert!(engine.begin_rebuild(&filter, &chain).await.is_err());
        let large = Refill { capacity: Some(1 << 38), ..Refill::default() };
        assert!(engine.begin_rebuild(&filter, &large).await.is_err());
        assert!(engine.rebuild_of(&filter).await.unwrap().is_none());
        // One that keeps no keys, as if it came from elsewhere, knows them afterwards.
        let new = NewFilter { retain: false, ..NewFilter::new("g", Spec::bloom(100, 0.01)) };
        let filter = engine.create(new).await.unwrap();
        engine.add(&filter, &keys(0..10)).await.unwrap();
        let rebuild = begin(&engine, "g").await;
        fill(&engine, &rebuild, &keys(0..20)).await;
        finish(&engine, "g").await.unwrap();
        assert_eq!(engine.verify(&engine.filter("g").unwrap(), &keys(0..20)).await.unwrap(), [1; 20]);
    });
}

/// A filter is added to and asked by others all the time while another one takes its place: nobody sees that.
#[test]
fn nobody_notices_the_switch() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    const BATCH: u64 = 5;
    let disk = MemoryDisk::default();
    let settings = Settings { memory_bytes: 256 << 20, ..settings() };
    let engine = run(open_with(&disk, settings)).unwrap();
    engine.start().unwrap();
    let (stop, added) = (AtomicBool::new(false), AtomicU64::new(1_000_000));
    run(engine.create(everywhere("f", Spec::bloom(10_000, 0.001)))).unwrap();
    let filter = engine.filter("f").unwrap();
    crate::world::block_on(engine.add(&filter, &keys(0..1000))).unwrap();
    let last_begun = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let filter = engine.filter("f").expect("the name is always somebody's");
                let next = added.load(Ordering::SeqCst);
                crate::world::block_on(engine.add(&filter, &keys(next..next + BATCH))).unwrap();
                added.store(next + BATCH, Ordering::SeqCst);
            }
        });
        // However late a busy machine lets it.
        let writer_goes_on = || {
            let end = added.load(Ordering::SeqCst) + 3 * BATCH;
            while added.load(Ordering::SeqCst) < end && !writer.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let filter = engine.filter("f").expect("the name is always somebody's");
                let answers = crate::world::block_on(engine.contains(&filter, &keys(0..50), None)).unwrap();
                assert_eq!(answers, [Answer::Maybe; 50]);
            }
        });
        let mut last_begun = 0;
        for _ in 0..5 {
            crate::world::block_on(async {
                let rebuild = begin(&engine, "f").await;
                last_begun = added.load(Ordering::SeqCst);
                writer_goes_on();
                for start in (0..1000).step_by(100) {
                    fill(&engine, &rebuild, &keys(start..start + 100)).await;
                }
                // The last rebuild's adds are those of the writer alone: fewer than the filter has.
                engine.finish_rebuild(&engine.filter("f").unwrap(), true).await.unwrap();
            });
        }
        let before = engine.filter("f").unwrap();
        writer_goes_on();
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(engine.filter("f").unwrap().id(), before.id());
        last_begun
    });
    let filter = engine.filter("f").unwrap();
    assert_eq!(run(absent(&engine, &filter, &keys(0..1000))), 0);
    // What was added while the last one was filled, and after that, is there: all but a batch that was on its way when that began.
    let added = last_begun + BATCH..added.into_inner();
    assert_eq!(run(absent(&engine, &filter, &keys(added))), 0);
    engine.stop();
}

/// A replica sends what it gathered, with a session, to the filter that it knows.
#[test]
fn a_session_that_writes_to_the_old_filter_writes_to_the_new_one() {
    for new in every_kind() {
        run(async {
            let disk = MemoryDisk::default();
            let engine = open(&disk).await.unwrap();
            let erasable = new.spec.kind != Kind::Bloom;
            let old = engine.create(new).await.unwrap();
            engine.add(&old, &keys(0..500)).await.unwrap();
            let rebuild = begin(&engine, "f").await;
            fill(&engine, &rebuild, &keys(0..500)).await;
            finish(&engine, "f").await.unwrap();
            let request = |sequence| Request { session: 77, sequence };
            let written = engine.add_as(&old, &keys(1000..1100), request(1)).await.unwrap();
            assert!(written.answers.iter().filter(|new| **new == Some(true)).count() > 95);
            let again = engine.add_as(&old, &keys(1000..1100), request(1)).await.unwrap();
            assert_eq!(again.answers, written.answers);
            let filter = engine.filter("f").unwrap();
            assert_eq!(engine.verify(&filter, &keys(1000..1100)).await.unwrap(), [1; 100]);
            if erasable {
                let removed = engine.remove_as(&old, &keys(1000..1050), request(2)).await.unwrap();
                assert_eq!(removed.answers, [Some(true); 50]);
                assert_eq!(engine.verify(&filter, &keys(1000..1050)).await.unwrap(), [0; 50]);
            }
        });
    }
}

/// What the old filter does to the new one, the log does not say: whoever follows the new one needs a version from after that, also if
/// nothing is in it that the version before lacks.
#[test]
fn versions_of_the_new_filter_can_be_followed() {
    for new in every_kind() {
        run(async {
            let engine = open(&MemoryDisk::default()).await.unwrap();
            let filter = engine.create(new).await.unwrap();
            engine.add(&filter, &keys(0..100)).await.unwrap();
            let rebuild = begin(&engine, "f").await;
            fill(&engine, &rebuild, &keys(0..100)).await;
            let first = engine.publish(&rebuild).await.unwrap();
            engine.changes(&rebuild, &first.token()).await.unwrap();
            // The source had them.
            engine.add(&filter, &keys(0..100)).await.unwrap();
            assert!(matches!(engine.changes(&rebuild, &first.token()).await, Err(Error::Trimmed { .. })));
            let second = engine.publish(&rebuild).await.unwrap();
            engine.changes(&rebuild, &second.token()).await.unwrap();
            // That the old one goes does nothing to the new one.
            finish(&engine, "f").await.unwrap();
            engine.changes(&rebuild, &second.token()).await.unwrap();
            assert_eq!(engine.publish(&rebuild).await.unwrap().number, second.number + 1, "it has the name");
            let third = engine.publish(&rebuild).await.unwrap();
            assert_eq!(third.number, second.number + 1, "nothing changed");
        });
    }
}

#[test]
fn a_rebuild_that_cannot_grow_is_told_in_the_name_of_its_filter() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open_with(&disk, Settings { memory_bytes: 60 << 10, ..settings() }).await.unwrap();
        engine.create(NewFilter::new("urls", Spec::bloom(1000, 0.001))).await.unwrap();
        let rebuild = begin(&engine, "urls").await;
        let mut refused = None;
        for start in (0..200_000).step_by(1000) {
            refused = engine.fill(&rebuild, &keys(start..start + 1000), NOBODY).await.err();
            if refused.is_some() {
                break;
            }
        }
        let why = refused.expect("there is not that much memory").to_string();
        assert!(why.contains("urls") && !why.contains('\u{1}'), "{why:?}");
    });
}
