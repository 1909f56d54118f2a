//! The process dies, or the disk fails, at every single step of what an engine does with its files.
//!
//! An action is repeated with the first operation of the disk failing, then with the second, and so on. What is on the disk then,
//! and what a power cut would leave of it, is opened again and compared with what was there before.

use std::collections::BTreeMap;
use std::sync::Arc;

use umbel_core::disk::{Disk, Fault, MemoryDisk};
use umbel_core::engine::{Answer, Engine, Handle, NewFilter, Refill, Settings};
use umbel_core::entry::Request;
use umbel_core::log::{FileLog, Log};
use umbel_core::{Error, Position};
use umbel_filter::Spec;

use crate::world::{
    PARTITIONS, absent, blobs_on, everywhere, key, keys, log_on, open, open_on, reopened, run, settings,
    settle,
};

/// An engine and the log below it.
struct Alive {
    engine: Engine,
    log: Arc<FileLog>,
}

async fn alive(disk: &MemoryDisk) -> Result<Alive, Error> {
    let log = log_on(disk)?;
    let settings = Settings { runs_max: 2, ..settings() };
    let engine = open_on(disk, Arc::clone(&log) as Arc<dyn Log>, settings, disk.operations()).await?;
    Ok(Alive { engine, log })
}

/// How often each filter holds each key: at least and at most.
type Expected = BTreeMap<&'static str, Vec<(u64, u64, u64)>>;

fn exactly(times: u64, numbers: std::ops::Range<u64>) -> Vec<(u64, u64, u64)> {
    numbers.map(|number| (number, times, times)).collect()
}

fn maybe(numbers: std::ops::Range<u64>) -> Vec<(u64, u64, u64)> {
    numbers.map(|number| (number, 0, 1)).collect()
}

/// What is done, and what must be there afterwards.
struct Action {
    name: &'static str,
    prepare: fn(&Alive),
    /// Says whether what is to be tried happened.
    act: fn(&Alive) -> Result<bool, Error>,
    /// After a crash; the argument says whether the action had told that it was done, and that is still sure to count.
    expected: fn(bool) -> Expected,
    /// Filters that may be there or not.
    optional: &'static [&'static str],
    /// Of these filters exactly one is there.
    one_of: &'static [&'static str],
    /// Whether it writes to the log. What a checkpoint has of it may then be missing from a log that lost its end.
    writes: bool,
}

fn standard() -> Expected {
    BTreeMap::from([
        ("whole", [exactly(1, 0..300), exactly(0, 300..320)].concat()),
        ("sharded", [exactly(2, 0..40), exactly(1, 40..300), exactly(0, 300..340)].concat()),
        ("layers", exactly(1, 0..300)),
    ])
}

/// Three filters, with removals in the second one.
fn prepare(alive: &Alive) {
    run(async {
        let engine = &alive.engine;
        let whole = engine.create(NewFilter::new("whole", Spec::bloom(400, 0.01))).await.unwrap();
        let sharded = engine.create(everywhere("sharded", Spec::counting(600, 0.01))).await.unwrap();
        let layers = NewFilter { retain: false, ..everywhere("layers", Spec::bloom(1_000, 0.01)) };
        let layers = engine.create(layers).await.unwrap();
        for filter in [&whole, &sharded, &layers] {
            engine.add(filter, &keys(0..300)).await.unwrap();
        }
        engine.add(&sharded, &keys(300..340)).await.unwrap();
        engine.add(&sharded, &keys(0..40)).await.unwrap();
        assert_eq!(engine.remove(&sharded, &keys(300..340)).await.unwrap().answers, [Some(true); 40]);
    });
}

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

fn checkpoint(alive: &Alive) -> Result<bool, Error> {
    Ok(run(alive.engine.checkpoint())?.checkpoints > 0)
}

/// Checks everything that an engine holds, and gives the digest of what it comes to.
async fn check_action(alive: &Alive, action: &Action, expected: &Expected, place: &str) -> Vec<u128> {
    let there = action.one_of.iter().filter(|name| alive.engine.filter(name).is_some()).count();
    assert!(action.one_of.is_empty() || there == 1, "{place}: {there} of {:?} are there", action.one_of);
    check(alive, expected, action.optional, place).await
}

async fn check(alive: &Alive, expected: &Expected, optional: &[&str], place: &str) -> Vec<u128> {
    let engine = &alive.engine;
    settle(engine).await.unwrap_or_else(|error| panic!("{place}: {error}"));
    for (name, counts) in expected {
        let Some(filter) = engine.filter(name) else {
            assert!(optional.contains(name), "{place}: the filter {name} is gone");
            continue;
        };
        let numbers: Vec<_> = counts.iter().map(|(number, _, _)| key(*number)).collect();
        let answers = engine.contains(&filter, &numbers, None).await;
        let answers = answers.unwrap_or_else(|error| panic!("{place}: {name}: {error}"));
        for ((number, least, _), answer) in counts.iter().zip(answers) {
            let right = if *least > 0 { answer == Answer::Maybe } else { answer != Answer::Unknown };
            assert!(right, "{place}: {name}: key {number}, held {least} times, is {answer:?}");
        }
        if filter.definition().retain {
            let verified = engine.verify(&filter, &numbers).await;
            let verified = verified.unwrap_or_else(|error| panic!("{place}: {name}: {error}"));
            for ((number, least, most), count) in counts.iter().zip(verified) {
                let right = (least..=most).contains(&&count);
                assert!(right, "{place}: {name}: key {number} {count} times of {least} to {most}");
            }
        }
        assert!(!filter.is_behind(), "{place}: {name}");
    }
    engine.digests().await.unwrap()
}

/// Opens a disk and checks it. If its log is whole, it alone has to come to the same; true if that was tried.
fn check_disk(
    disk: &MemoryDisk,
    action: &Action,
    expected: &Expected,
    may_be_whole: bool,
    place: &str,
) -> bool {
    run(async {
        let alive = alive(disk).await.unwrap_or_else(|error| panic!("{place}: {error}"));
        let digests = check_action(&alive, action, expected, place).await;
        let mut whole = may_be_whole;
        for partition in 0..PARTITIONS {
            whole &= alive.log.bounds(partition).await.unwrap().oldest == Position::START;
        }
        if !whole {
            // What is recovered can go on.
            alive.engine.checkpoint().await.unwrap_or_else(|error| panic!("{place}: {error}"));
            return false;
        }
        drop(alive);
        let log_alone = disk.copied();
        for (path, _) in disk.files().iter().filter(|(path, _)| path.starts_with("/data/blobs")) {
            log_alone.remove(path).unwrap();
        }
        let place = format!("{place}, its log alone");
        let alive = self::alive(&log_alone).await.unwrap_or_else(|error| panic!("{place}: {error}"));
        let folded = check_action(&alive, action, expected, &place).await;
        assert_eq!(folded, digests, "{place} comes to something else");
        true
    })
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
                std::thread::sleep(std::time::Duration::from_micros(200));
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

/// Runs an action with each of its operations failing.
fn crash_everywhere(action: &Action) {
    let base = MemoryDisk::default();
    {
        let alive = run(alive(&base)).unwrap();
        (action.prepare)(&alive);
        alive.log.sync().unwrap();
    }
    let base = base.copied();
    let operations = {
        let disk = base.copied();
        let alive = run(alive(&disk)).unwrap();
        let before = disk.operations();
        let happened = (action.act)(&alive).unwrap();
        assert!(happened, "{}: it did not happen", action.name);
        disk.operations() - before
    };
    let (mut crashes, mut compared) = (0, 0);
    for nth in 1..=operations {
        for compares in die(&base, action, nth).into_iter().chain(go_on(&base, action, nth)) {
            crashes += 1;
            compared += u64::from(compares);
        }
    }
    println!("{}: {operations} operations, {crashes} crashes, {compared} logs folded alone", action.name);
}

/// The disk takes nothing from an operation on: the process dies there.
fn die(base: &MemoryDisk, action: &Action, nth: u64) -> Vec<bool> {
    let disk = base.copied();
    let alive = run(alive(&disk)).unwrap();
    disk.fail_at(nth, Fault::Full);
    let done = (action.act)(&alive).is_ok();
    let cuts = [1, 2].map(|seed| (nth * 1000 + seed, disk.after_power_cut(nth * 1000 + seed)));
    drop(alive);
    disk.mend();
    let place = format!("{}, ended at operation {nth}", action.name);
    let mut compared = vec![check_disk(&disk, action, &(action.expected)(done), true, &place)];
    for (seed, cut) in cuts {
        // What was written by the action was not synced.
        let place = format!("{place}, power cut {seed}");
        compared.push(check_disk(
            &cut,
            action,
            &(action.expected)(done && !action.writes),
            !action.writes,
            &place,
        ));
    }
    compared
}

/// One operation fails and the engine goes on, unless its log is closed.
fn go_on(base: &MemoryDisk, action: &Action, nth: u64) -> Vec<bool> {
    let disk = base.copied();
    let alive = run(alive(&disk)).unwrap();
    disk.fail_at(nth, Fault::Broken);
    let first = (action.act)(&alive);
    let place = format!("{}, operation {nth} failed", action.name);
    disk.mend();
    let again = run(alive.engine.checkpoint());
    let errors = [first.as_ref().err(), again.as_ref().err()];
    let closed = errors.iter().flatten().any(|error| matches!(error, Error::Closed(_)));
    let mut done = first.is_ok();
    let mut cuts = Vec::new();
    if !closed {
        again.unwrap_or_else(|error| panic!("{place}: a mended disk does not help: {error}"));
        alive.log.sync().unwrap();
        cuts.push((done, nth * 1000, disk.after_power_cut(nth * 1000)));
        if !done {
            // To do it again succeeds, or says that it was done.
            let second = (action.act)(&alive);
            done = second.is_ok();
            assert!(matches!(second, Ok(_) | Err(Error::Invalid(_))), "{place}, again: {second:?}");
        }
        run(check_action(&alive, action, &(action.expected)(done), &place));
        run(alive.engine.checkpoint()).unwrap();
        alive.log.sync().unwrap();
    }
    cuts.push((done, nth * 1000 + 1, disk.after_power_cut(nth * 1000 + 1)));
    drop(alive);
    let mut compared = vec![check_disk(&disk, action, &(action.expected)(done), true, &place)];
    let synced = !closed || !action.writes;
    for (done, seed, cut) in cuts {
        let place = format!("{place}, then power cut {seed}");
        compared.push(check_disk(&cut, action, &(action.expected)(done && synced), synced, &place));
    }
    compared
}

const STANDARD: Action = Action {
    name: "",
    prepare,
    act: checkpoint,
    expected: |_| standard(),
    optional: &[],
    one_of: &[],
    writes: false,
};

fn named(alive: &Alive, name: &str) -> Result<Arc<Handle>, Error> {
    alive.engine.filter(name).ok_or_else(|| Error::Invalid(format!("{name} is gone")))
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
fn a_filter_can_be_half_made() {
    crash_everywhere(&Action {
        name: "create a sharded filter",
        act: |alive| {
            let new = everywhere("new", Spec::counting(100, 0.01));
            let filter = run(alive.engine.create(new))?;
            run(alive.engine.add(&filter, &keys(0..20))).map(|_| true)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("new", if done { exactly(1, 0..20) } else { maybe(0..20) });
            expected
        },
        optional: &["new"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_filter_can_be_half_dropped() {
    crash_everywhere(&Action {
        name: "drop a sharded filter",
        act: |alive| {
            let filter = alive.engine.filter("sharded");
            let gone = || Error::Invalid("it is gone".into());
            run(alive.engine.drop_filter(&filter.ok_or_else(gone)?)).map(|()| true)
        },
        expected: |done| {
            let mut expected = standard();
            let counts = expected.get_mut("sharded").unwrap();
            if done {
                // Only a filter made anew could have this name.
                counts.iter_mut().for_each(|count| *count = (count.0, 9, 9));
            } else {
                counts.iter_mut().for_each(|count| count.1 = 0);
            }
            expected
        },
        optional: &["sharded"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_filter_can_be_half_cleared() {
    crash_everywhere(&Action {
        name: "clear a sharded filter",
        act: |alive| run(alive.engine.clear(&alive.engine.filter("sharded").unwrap())).map(|()| true),
        expected: |done| {
            let mut expected = standard();
            let counts = expected.get_mut("sharded").unwrap();
            counts.iter_mut().for_each(|count| count.1 = 0);
            if done {
                counts.iter_mut().for_each(|count| count.2 = 0);
            }
            expected
        },
        writes: true,
        ..STANDARD
    });
}

/// Expected of a filter that must not be there: only one that was made anew could have its name.
fn gone(counts: &mut [(u64, u64, u64)]) {
    counts.iter_mut().for_each(|count| *count = (count.0, 9, 9));
}

#[test]
fn a_filter_can_be_half_renamed() {
    crash_everywhere(&Action {
        name: "rename a sharded filter",
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.rename(&filter, "renamed", false))?;
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("renamed", expected["sharded"].clone());
            if done {
                gone(expected.get_mut("sharded").unwrap());
            }
            expected
        },
        optional: &["sharded", "renamed"],
        one_of: &["sharded", "renamed"],
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "rename a sharded filter over another",
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.rename(&filter, "whole", true)).map(|()| true)
        },
        // One or the other has the name, at every moment.
        expected: |done| {
            let mut expected = standard();
            expected.insert("whole", (0..300).map(|number| (number, 1, 2)).collect());
            if done {
                expected.insert("whole", expected["sharded"].clone());
                gone(expected.get_mut("sharded").unwrap());
            }
            expected
        },
        optional: &["sharded"],
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "rename filters over others, again and again",
        act: |alive| {
            for (from, to) in [("sharded", "whole"), ("layers", "other"), ("whole", "other")] {
                run(alive.engine.rename(&named(alive, from)?, to, true))?;
            }
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            let either: Vec<_> = (0..300).map(|number| (number, 1, 2)).collect();
            expected.insert("whole", either.clone());
            expected.insert("other", either);
            if done {
                expected.insert("other", expected["sharded"].clone());
                for name in ["sharded", "whole", "layers"] {
                    gone(expected.get_mut(name).unwrap());
                }
            }
            expected
        },
        optional: &["sharded", "whole", "layers", "other"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_filter_can_be_half_imported() {
    crash_everywhere(&Action {
        name: "import a filter",
        act: |alive| {
            let spec = Spec::hosted(umbel_filter::Layout::Guava, 200_000, 0.01);
            let filter = umbel_filter::Filter::new(&spec, &umbel_filter::Limits::default()).unwrap();
            filter.insert_fingerprints(&keys(0..500), &mut Vec::new()).unwrap();
            run(alive.engine.import(NewFilter::new("imported", spec), filter))?;
            checkpoint(alive)
        },
        expected: |_| {
            // It is there as a whole, or not at all.
            let mut expected = standard();
            expected.insert("imported", exactly(1, 0..500));
            expected
        },
        optional: &["imported"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn an_expired_filter_can_be_half_dropped() {
    crash_everywhere(&Action {
        name: "expire a sharded filter",
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.expire(&filter, Some(0)))?;
            run(alive.engine.maintain()).map(|_| true)
        },
        expected: |done| {
            let mut expected = standard();
            if done {
                gone(expected.get_mut("sharded").unwrap());
            }
            expected
        },
        optional: &["sharded"],
        writes: true,
        ..STANDARD
    });
}

fn window() -> NewFilter {
    let window = Some(umbel_core::definition::Window { length_ms: 1_000, buckets: 4 });
    NewFilter { window, ..NewFilter::new("window", Spec::bloom(400, 0.01)) }
}

#[test]
fn a_window_can_be_half_made_and_half_dropped() {
    crash_everywhere(&Action {
        name: "make a window and its first bucket",
        act: |alive| {
            let filter = match alive.engine.filter("window") {
                Some(filter) => filter,
                None => run(alive.engine.create(window()))?,
            };
            run(alive.engine.add(&filter, &keys(0..50)))?;
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("window", if done { exactly(1, 0..50) } else { maybe(0..50) });
            expected
        },
        optional: &["window"],
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "drop a window",
        prepare: |alive| {
            prepare(alive);
            let filter = run(alive.engine.create(window())).unwrap();
            run(alive.engine.add(&filter, &keys(0..50))).unwrap();
        },
        act: |alive| run(alive.engine.drop_filter(&named(alive, "window")?)).map(|()| true),
        expected: |done| {
            let mut expected = standard();
            expected.insert("window", exactly(1, 0..50));
            if done {
                gone(expected.get_mut("window").unwrap());
            }
            expected
        },
        optional: &["window"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_union_can_be_half_done() {
    crash_everywhere(&Action {
        name: "merge keys into a filter that has none of them",
        prepare: |alive| {
            prepare(alive);
            run(alive.engine.create(NewFilter::new("union", Spec::bloom(400, 0.01)))).unwrap();
        },
        act: |alive| {
            let (into, from) = (named(alive, "union")?, named(alive, "sharded")?);
            run(alive.engine.merge(&into, &[from]))?;
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("union", if done { exactly(1, 0..300) } else { maybe(0..300) });
            expected
        },
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

/// Begins to fill the sharded filter anew, while keys are added to it and removed.
fn begin_rebuild(alive: &Alive) -> Result<bool, Error> {
    run(async {
        let (engine, filter) = (&alive.engine, named(alive, "sharded")?);
        let (rebuild, _) = engine.begin_rebuild(&filter, &Refill::default()).await?;
        engine.add_as(&filter, &keys(500..520), Request { session: 5, sequence: 1 }).await?;
        engine.remove_as(&filter, &keys(40..60), Request { session: 5, sequence: 2 }).await?;
        engine.fill(&rebuild, &keys(0..200), Request::default()).await?;
        engine.fill(&rebuild, &keys(600..650), Request::default()).await?;
        Ok(true)
    })
}

/// The sharded filter as it is while another one is filled.
fn being_rebuilt(done: bool) -> Expected {
    let mut expected = standard();
    let (added, removed) =
        if done { (exactly(1, 500..520), exactly(0, 40..60)) } else { (maybe(500..520), maybe(40..60)) };
    let kept = [exactly(2, 0..40), exactly(1, 60..300), exactly(0, 600..650)].concat();
    expected.insert("sharded", [kept, added, removed].concat());
    expected
}

#[test]
fn a_filter_can_be_half_filled_anew() {
    crash_everywhere(&Action {
        name: "begin to fill a filter anew",
        act: begin_rebuild,
        expected: being_rebuilt,
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "checkpoint while a filter is filled anew",
        prepare: |alive| {
            prepare(alive);
            begin_rebuild(alive).unwrap();
        },
        expected: |_| being_rebuilt(true),
        ..STANDARD
    });
}

#[test]
fn a_filter_can_half_take_the_place_of_another() {
    let prepared = |alive: &Alive| {
        prepare(alive);
        begin_rebuild(alive).unwrap();
    };
    let finished = |done| {
        let mut expected = standard();
        let filled =
            [exactly(0, 40..60), exactly(1, 60..200), exactly(1, 500..520), exactly(0, 650..660)].concat();
        let other = if done {
            [exactly(1, 0..40), exactly(0, 200..300), exactly(1, 600..650)].concat()
        } else {
            let twice = (0..40).map(|number| (number, 1, 2)).collect();
            [twice, maybe(200..300), maybe(600..650)].concat()
        };
        expected.insert("sharded", [filled, other].concat());
        expected
    };
    let finish = |alive: &Alive| -> Result<bool, Error> {
        let filter = named(alive, "sharded")?;
        run(alive.engine.finish_rebuild(&filter, false)).map(|_| true)
    };
    let action = Action { act: finish, expected: finished, writes: true, ..STANDARD };
    crash_everywhere(&Action { name: "finish to fill a filter anew", prepare: prepared, ..action });
    let action = Action { act: finish, expected: finished, writes: true, ..STANDARD };
    crash_everywhere(&Action {
        name: "finish to fill a filter anew, from a checkpoint",
        prepare: |alive| {
            prepare(alive);
            begin_rebuild(alive).unwrap();
            checkpoint(alive).unwrap();
        },
        ..action
    });
    crash_everywhere(&Action {
        name: "give up filling a filter anew",
        prepare: prepared,
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.abort_rebuild(&filter)).map(|()| true)
        },
        expected: |_| being_rebuilt(true),
        writes: true,
        ..STANDARD
    });
}
