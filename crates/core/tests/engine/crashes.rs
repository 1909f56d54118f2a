//! The process dies, or the disk fails, at every single step of what an engine does with its files.
//!
//! An action is repeated with the first operation of the disk failing, then with the second, and so on. What is on the disk then,
//! and what a power cut would leave of it, is opened again and compared with what was there before.
//!
//! | module | what is done |
//! | --- | --- |
//! | `checkpoints` | checkpoints and all that comes with them, and adds |
//! | `filters` | filters that come, change and go |
//! | `rebuilds` | filters that are filled anew |

mod checkpoints;
mod filters;
mod rebuilds;

use std::collections::BTreeMap;
use std::sync::Arc;

use umbel_core::disk::{Disk, Fault, MemoryDisk};
use umbel_core::engine::{Answer, Engine, Handle, NewFilter, Settings};
use umbel_core::log::{FileLog, Log};
use umbel_core::{Error, Position};
use umbel_filter::Spec;

use crate::world::{PARTITIONS, everywhere, key, keys, log_on, open_on, run, settings, settle};

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
