//! Checkpoints, what they trim and merge, generations that switch, and adds beside them.

use std::time::Duration;

use umbel_core::disk::{Fault, MemoryDisk};
use umbel_core::engine::{Answer, NewFilter, Settings};
use umbel_core::entry::Request;
use umbel_core::log::Log;
use umbel_core::{Error, Position};
use umbel_filter::Spec;

use super::{
    Action, Alive, Expected, STANDARD, alive, check, checkpoint, crash_everywhere, exactly, maybe, prepare,
    standard,
};
use crate::world::{
    PARTITIONS, absent, blobs_on, everywhere, keys, open, open_with, reopened, run, settings,
};

/// Checkpoints between which all filters get keys again, so that the archive has runs.
fn prepare_runs(alive: &Alive) {
    prepare(alive);
    for _ in 0..2 {
        run(async {
            alive.engine.checkpoint().await.unwrap();
            for name in ["whole", "layers"] {
                let filter = alive.engine.filter(name).unwrap();
                alive.engine.add(&filter, &keys(0..100)).await.unwrap();
            }
            let sharded = alive.engine.filter("sharded").unwrap();
            alive.engine.add(&sharded, &keys(300..340)).await.unwrap();
            alive.engine.remove(&sharded, &keys(300..340)).await.unwrap();
        });
    }
}

/// Several segments, with checkpoints of all but the last keys.
fn prepare_segments(alive: &Alive) {
    prepare(alive);
    run(async {
        let big = alive.engine.create(NewFilter::new("big", Spec::bloom(400_000, 0.01))).await.unwrap();
        let sharded = everywhere("big sharded", Spec::bloom(400_000, 0.01));
        let sharded = alive.engine.create(sharded).await.unwrap();
        for start in (0..160_000).step_by(20_000) {
            alive.engine.add(&big, &keys(start..start + 20_000)).await.unwrap();
            alive.engine.add(&sharded, &keys(start..start + 20_000)).await.unwrap();
        }
    });
}

/// A checkpoint that is given up half-way leaves nothing behind that the next one relies on.
#[test]
fn checkpoints_can_be_given_up_anywhere() {
    use std::pin::pin;
    use std::task::Poll;

    let disk = MemoryDisk::default();
    let mut engine = run(open(&disk)).unwrap();
    let spread = NewFilter {
        sharding: umbel_core::engine::Sharding::Everywhere,
        ..NewFilter::new("f", Spec::bloom(200_000, 0.001))
    };
    run(engine.create(spread)).unwrap();
    for round in 0..60 {
        let filter = engine.filter("f").unwrap();
        let new = keys(round * 500..round * 500 + 500);
        run(engine.add(&filter, &new)).unwrap();
        let finished = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let mut checkpoint = pin!(engine.checkpoint());
            let mut polls = 0;
            std::future::poll_fn(|context| {
                if checkpoint.as_mut().poll(context).is_ready() {
                    return Poll::Ready(true);
                }
                context.waker().wake_by_ref();
                std::thread::sleep(Duration::from_micros(200));
                polls += 1;
                if polls > round { Poll::Ready(false) } else { Poll::Pending }
            })
            .await
        });
        if !finished && round % 3 == 0 {
            run(engine.checkpoint()).unwrap();
            engine = run(reopened(engine, &disk));
        }
        let filter = engine.filter("f").unwrap();
        assert_eq!(run(absent(&engine, &filter, &keys(0..round * 500 + 500))), 0, "round {round}");
    }
}

#[test]
fn a_first_checkpoint_can_end_anywhere() {
    crash_everywhere(&Action { name: "first checkpoint", ..STANDARD });
}

#[test]
fn a_further_checkpoint_can_end_anywhere() {
    let prepare = |alive: &Alive| {
        prepare(alive);
        checkpoint(alive).unwrap();
        let filter = alive.engine.filter("whole").unwrap();
        run(alive.engine.add(&filter, &keys(0..10))).unwrap();
    };
    crash_everywhere(&Action { name: "further checkpoint", prepare, ..STANDARD });
}

#[test]
fn a_merge_of_runs_can_end_anywhere() {
    crash_everywhere(&Action {
        name: "checkpoint with a merge of runs",
        prepare: prepare_runs,
        act: |alive| Ok(run(alive.engine.checkpoint())?.merges > 0),
        ..STANDARD
    });
}

#[test]
fn a_trim_can_end_anywhere() {
    fn oldest(alive: &Alive) -> Vec<Position> {
        (0..PARTITIONS).map(|partition| run(alive.log.bounds(partition)).unwrap().oldest).collect()
    }
    let expected = |_| {
        let mut expected = standard();
        let some: Vec<_> = (0..160_000).step_by(397).map(|number| (number, 1, 1)).collect();
        expected.insert("big", some.clone());
        expected.insert("big sharded", some);
        expected
    };
    crash_everywhere(&Action {
        name: "two checkpoints with a trim",
        prepare: prepare_segments,
        act: |alive| {
            let before = oldest(alive);
            checkpoint(alive)?;
            let filter = alive.engine.filter("whole").unwrap();
            run(alive.engine.add(&filter, &keys(0..1)))?;
            checkpoint(alive)?;
            Ok(oldest(alive) != before)
        },
        expected,
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_switch_of_generations_can_end_anywhere() {
    // The keys that make the filters grow are acknowledged or not.
    fn grown(name: &'static str, done: bool) -> Expected {
        let mut expected = standard();
        let more = if done { exactly(1, 400..900) } else { maybe(400..900) };
        expected.get_mut(name).unwrap().extend(more);
        expected
    }
    fn grow(alive: &Alive, name: &str) -> Result<bool, Error> {
        let filter = alive.engine.filter(name).unwrap();
        let generation = filter.definition().generation;
        let request = Request { session: 5, sequence: 1 };
        run(alive.engine.add_as(&filter, &keys(400..900), request))?;
        run(alive.engine.maintain())?;
        checkpoint(alive)?;
        Ok(filter.definition().generation > generation)
    }
    crash_everywhere(&Action {
        name: "growth of a whole filter",
        act: |alive| grow(alive, "whole"),
        expected: |done| grown("whole", done),
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "growth of a sharded filter",
        act: |alive| grow(alive, "sharded"),
        expected: |done| grown("sharded", done),
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "growth of a sharded filter by a layer",
        act: |alive| grow(alive, "layers"),
        expected: |done| grown("layers", done),
        writes: true,
        ..STANDARD
    });
}

#[test]
fn unloading_can_end_anywhere() {
    crash_everywhere(&Action {
        name: "unload a sharded filter",
        act: |alive| run(alive.engine.unload(&alive.engine.filter("sharded").unwrap())),
        ..STANDARD
    });
}

/// A log that was not synced is trimmed, and then the power fails: what the checkpoints hold is there, and what comes afterwards
/// stays.
#[test]
fn a_trim_of_an_unsynced_log_loses_nothing_that_was_checkpointed() {
    let disk = MemoryDisk::default();
    let alive = run(alive(&disk)).unwrap();
    prepare_segments(&alive);
    checkpoint(&alive).unwrap();
    let filter = alive.engine.filter("whole").unwrap();
    run(alive.engine.add(&filter, &keys(0..1))).unwrap();
    checkpoint(&alive).unwrap();
    for seed in 0..64 {
        let cut = disk.after_power_cut(seed);
        let place = format!("power cut {seed}");
        let recovered = run(self::alive(&cut)).unwrap_or_else(|error| panic!("{place}: {error}"));
        run(check(&recovered, &standard(), &[], &place));
        let filter = recovered.engine.filter("whole").unwrap();
        let written = run(recovered.engine.add(&filter, &keys(1_000..1_020))).unwrap();
        assert!(written.answers.iter().all(Option::is_some), "{place}: an add came to nothing");
        drop(recovered);
        let recovered = run(self::alive(&cut)).unwrap_or_else(|error| panic!("{place}, again: {error}"));
        let mut expected = standard();
        expected.get_mut("whole").unwrap().extend(exactly(1, 1_000..1_020));
        run(check(&recovered, &expected, &[], &place));
    }
    println!("64 power cuts after a trim of an unsynced log");
}

/// Every write and every sync fails in turn while keys come and checkpoints are made.
#[test]
fn adds_survive_every_failing_operation() {
    for fault in [Fault::Full, Fault::Broken] {
        let (mut nth, mut failed, mut closed) = (1, 0, 0);
        loop {
            let disk = MemoryDisk::default();
            let alive = run(alive(&disk)).unwrap();
            let whole = run(alive.engine.create(NewFilter::new("whole", Spec::bloom(50, 0.01)))).unwrap();
            let sharded = everywhere("sharded", Spec::counting(50, 0.01));
            let sharded = run(alive.engine.create(sharded)).unwrap();
            let before = disk.operations();
            disk.fail_at(nth, fault);
            let mut expected = Expected::from([("whole", Vec::new()), ("sharded", Vec::new())]);
            let (mut failures, mut is_closed) = (0, false);
            for round in 0..12 {
                let new = round * 10..round * 10 + 10;
                for (name, filter) in [("whole", &whole), ("sharded", &sharded)] {
                    let added =
                        run(alive.engine.add(filter, &keys(new.clone()))).and_then(|_| alive.log.sync());
                    let counts = expected.get_mut(name).unwrap();
                    match &added {
                        Ok(()) => counts.extend(exactly(1, new.clone())),
                        Err(error) => {
                            counts.extend(maybe(new.clone()));
                            failures += 1;
                            is_closed |= matches!(error, Error::Closed(_));
                        }
                    }
                }
                if round % 3 == 2 {
                    failures += u64::from(checkpoint(&alive).is_err());
                }
                if failures > 0 && round % 4 == 3 {
                    disk.mend();
                }
            }
            let operations = disk.operations() - before;
            disk.mend();
            let place = format!("{fault:?} at operation {nth}");
            if !is_closed {
                run(check(&alive, &expected, &[], &place));
                for (name, filter) in [("whole", &whole), ("sharded", &sharded)] {
                    let added = run(alive.engine.add(filter, &keys(500..510)));
                    added.unwrap_or_else(|error| panic!("{place}: a mended disk does not help: {error}"));
                    expected.get_mut(name).unwrap().extend(exactly(1, 500..510));
                }
                checkpoint(&alive).unwrap();
                alive.log.sync().unwrap();
            }
            failed += u64::from(failures > 0);
            closed += u64::from(is_closed);
            let cut = disk.after_power_cut(nth);
            drop(alive);
            for (disk, place) in [(disk, place.clone()), (cut, format!("{place}, power cut"))] {
                let alive = run(self::alive(&disk)).unwrap_or_else(|error| panic!("{place}: {error}"));
                run(check(&alive, &expected, &[], &place));
            }
            if nth > operations {
                break;
            }
            nth += 1;
        }
        println!(
            "{fault:?}: {nth} places, {failed} runs met it, {closed} logs closed, nothing acknowledged lost"
        );
        assert!(failed > 50, "{fault:?}: {failed}");
    }
}

/// A store that is opened and does nothing leaves nothing to clean.
#[test]
fn what_crashes_left_is_removed_at_the_next_start() {
    let disk = MemoryDisk::default();
    {
        let alive = run(alive(&disk)).unwrap();
        prepare_runs(&alive);
        disk.fail_at(20, Fault::Full);
        checkpoint(&alive).unwrap_err();
    }
    disk.mend();
    let blobs =
        |disk: &MemoryDisk| disk.files().iter().filter(|(path, _)| path.starts_with("/data/blobs")).count();
    for _ in 0..3 {
        let alive = run(alive(&disk)).unwrap();
        run(check(&alive, &standard(), &[], "after a crash"));
        checkpoint(&alive).unwrap();
        checkpoint(&alive).unwrap();
    }
    let settled = blobs(&disk);
    for _ in 0..3 {
        let alive = run(alive(&disk)).unwrap();
        checkpoint(&alive).unwrap();
    }
    assert_eq!(blobs(&disk), settled, "blobs pile up");
    assert_eq!(blobs_on(&disk).remove_leftovers().unwrap(), 0);
}

/// Lives that are too short for a checkpoint must not make every start longer than the one before.
#[test]
fn a_start_that_read_its_log_for_long_is_followed_by_checkpoints() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(NewFilter::new("seen", Spec::bloom(10_000, 0.01))).await.unwrap();
        engine.add(&filter, &keys(0..1000)).await.unwrap();
        drop(engine);
        for (replay_max, has_checkpoints) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
            let engine = open_with(&disk, Settings { replay_max, ..settings() }).await.unwrap();
            let done = engine.maintain().await.unwrap();
            assert_eq!(done.checkpoints > 0, has_checkpoints, "{replay_max:?}: {done:?}");
            let filter = engine.find("seen").await.unwrap().unwrap();
            let answers = engine.contains(&filter, &keys(0..1000), None).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Answer::Maybe));
        }
    });
}
