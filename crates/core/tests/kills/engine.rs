//! An engine that is killed while it works, on real files.
//!
//! The process does numbered operations, whose numbers say all about them, and prints each when it is acknowledged. So
//! whoever killed it knows what has to be there: everything up to the last number, and the next operation wholly or not at all.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbel_core::blobs::FolderStore;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{Answer, Engine, Handle, NewFilter, Settings, Sharding};
use umbel_core::log::{FileLog, Settings as LogSettings};
use umbel_filter::{Family, Fingerprint, Hasher, Spec};

use super::{FOLDER, block_on, kills_or, run_ignored};

const VARIANT: &str = "UMBEL_KILLS_VARIANT";
const FIRST: &str = "UMBEL_KILLS_FIRST";
/// Operations for which a filter is used before the next one is made, so that small ones are growing all the time.
const OPERATIONS_OF_A_FILTER: u64 = 4000;
/// How many operations later the second half of the removals comes: some of what they remove is archived by then.
const LATER: u64 = 2000;

/// How the engine is run.
#[derive(Clone, Copy, Debug)]
enum Variant {
    /// As it comes: kills hit the log and growth.
    Default,
    /// Checkpoints all the time: kills also hit checkpoints, merges and trims.
    Busy,
}

impl Variant {
    fn settings(self) -> Settings {
        let settings = Settings { memory_bytes: 256 << 20, ..Settings::default() };
        match self {
            Self::Default => settings,
            Self::Busy => Settings {
                checkpoint_every: Duration::from_millis(50),
                checkpoint_bytes: 64 << 10,
                runs_max: 2,
                ..settings
            },
        }
    }
}

async fn open(folder: &Path, variant: Variant) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let log = FileLog::open(&disk, &LogSettings::new(folder.join("log"))).unwrap();
    let blobs = FolderStore::new(disk, folder.join("blobs"));
    blobs.remove_leftovers().unwrap();
    let opened =
        Engine::builder(variant.settings()).with_log(Arc::new(log)).with_blobs(Arc::new(blobs)).open().await;
    opened.unwrap()
}

/// What an operation does with the keys of one number.
#[derive(Clone, Debug)]
struct Operation {
    filter: String,
    removes: bool,
    keys: Vec<Fingerprint>,
}

impl Operation {
    fn numbered(number: u64) -> Self {
        let named = |kind: &str, number: u64| format!("{kind}-{}", number / OPERATIONS_OF_A_FILTER);
        let all = |_: &usize| true;
        let (filter, removes, of, half): (_, _, _, fn(&usize) -> bool) = match number % 8 {
            0 | 4 => (named("growing", number), false, number, all),
            1 | 5 => (named("counting", number), false, number, all),
            2 | 6 => ("sharded".to_owned(), false, number, all),
            3 => (named("counting", number - 2), true, number - 2, |index| index % 2 == 0),
            _ => {
                let of = number.checked_sub(2 + LATER).unwrap_or(number - 2);
                (named("counting", of), true, of, |index| index % 2 == 1)
            }
        };
        // Another number of keys each time, from one on.
        let keys = (0..1 + of as usize * 7 % 12).filter(half).map(|index| key(of, index));
        Self { filter, removes, keys: keys.collect() }
    }

    async fn perform(&self, engine: &Engine) {
        let filter = filter(engine, &self.filter).await;
        let done = if self.removes {
            engine.remove(&filter, &self.keys).await
        } else {
            engine.add(&filter, &self.keys).await
        };
        let done = done.unwrap();
        assert!(done.answers.iter().all(Option::is_some), "refused: {:?}", done.refused);
    }
}

fn key(number: u64, index: usize) -> Fingerprint {
    let hasher = Hasher::new(Family::Murmur3, None).unwrap();
    hasher.fingerprint(format!("{number}/{index}").as_bytes())
}

/// The filter of that name, made if it is missing.
async fn filter(engine: &Engine, name: &str) -> Arc<Handle> {
    if let Some(filter) = engine.filter(name) {
        return filter;
    }
    let new = match name.split('-').next() {
        Some("sharded") => {
            NewFilter { sharding: Sharding::Everywhere, ..NewFilter::new(name, Spec::bloom(20_000, 0.001)) }
        }
        Some("counting") => NewFilter::new(name, Spec::counting(500, 0.001)),
        _ => NewFilter::new(name, Spec::bloom(500, 0.001)),
    };
    engine.create(new).await.unwrap()
}

/// The process that is killed.
#[test]
#[ignore = "the other test runs it as a process of its own"]
fn worker() {
    let (Ok(folder), Ok(variant)) = (std::env::var(FOLDER), std::env::var(VARIANT)) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let variant = if variant == "Busy" { Variant::Busy } else { Variant::Default };
    block_on(async {
        let engine = open(folder.as_ref(), variant).await;
        engine.start().unwrap();
        let mut out = std::io::stdout().lock();
        // The test's name stands on this line.
        writeln!(out).unwrap();
        for number in first.. {
            Operation::numbered(number).perform(&engine).await;
            writeln!(out, "ack {number}").unwrap();
            out.flush().unwrap();
            assert!(engine.failure().is_none(), "background work failed: {:?}", engine.failure());
        }
    });
}

/// What has to be in the filters.
#[derive(Default)]
struct Expected {
    added: BTreeMap<String, Vec<Fingerprint>>,
    /// How often each key is in a filter that counts.
    counts: BTreeMap<String, HashMap<Fingerprint, u64>>,
}

impl Expected {
    fn apply(&mut self, operation: &Operation) {
        let Operation { filter, removes, keys } = operation;
        if !filter.starts_with("counting") {
            return self.added.entry(filter.clone()).or_default().extend(keys);
        }
        let counts = self.counts.entry(filter.clone()).or_default();
        for key in keys {
            let count = counts.entry(*key).or_default();
            // What was not added is not removed.
            *count = if *removes { count.saturating_sub(1) } else { *count + 1 };
        }
    }

    fn counts_of(&self, operation: &Operation) -> Vec<u64> {
        let count = |key| self.counts.get(&operation.filter).and_then(|counts| counts.get(key)).copied();
        operation.keys.iter().map(|key| count(key).unwrap_or(0)).collect()
    }

    /// Takes in the operation that was under way, if it was done. It is one entry of the log, so it is done wholly or not.
    async fn settle(&mut self, engine: &Engine, operation: &Operation) {
        if !operation.filter.starts_with("counting") {
            // More than expected is no error.
            return;
        }
        let Some(filter) = engine.filter(&operation.filter) else { return };
        let found = engine.verify(&filter, &operation.keys).await.unwrap();
        let before = self.counts_of(operation);
        if found == before {
            return;
        }
        self.apply(operation);
        assert_eq!(found, self.counts_of(operation), "half of an operation; there was {before:?} before it");
    }

    /// Everything that was acknowledged is there.
    async fn check(&self, engine: &Engine, kill: u64) {
        for (name, keys) in &self.added {
            self.check_present(engine, name, keys, kill).await;
        }
        for (name, counts) in &self.counts {
            let held: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).map(|(key, _)| *key).collect();
            self.check_present(engine, name, &held, kill).await;
        }
    }

    async fn check_present(&self, engine: &Engine, name: &str, keys: &[Fingerprint], kill: u64) {
        let filter = engine.filter(name).unwrap_or_else(|| panic!("kill {kill}: the filter {name} is lost"));
        let answers = engine.contains(&filter, keys, None).await.unwrap();
        let lost = answers.iter().filter(|answer| **answer != Answer::Maybe).count();
        assert_eq!(lost, 0, "kill {kill}: of {} keys in {name}, so many are lost", keys.len());
    }

    /// Filters that count know exactly what is in them.
    async fn check_exactly(&self, engine: &Engine, operations: &[Operation], kill: u64) {
        for operation in operations.iter().filter(|operation| operation.filter.starts_with("counting")) {
            let Some(filter) = engine.filter(&operation.filter) else {
                panic!("kill {kill}: the filter {} is lost", operation.filter)
            };
            let found = engine.verify(&filter, &operation.keys).await.unwrap();
            assert_eq!(found, self.counts_of(operation), "kill {kill}: {operation:?}");
        }
    }
}

/// Lets a worker go on until it has done so many operations, kills it, and gives the last one that it acknowledged.
fn kill_after(folder: &Path, variant: Variant, first: u64, operations: u64) -> Option<u64> {
    let environment =
        [(FOLDER, folder.to_str().unwrap()), (VARIANT, &format!("{variant:?}")), (FIRST, &first.to_string())];
    let mut child = run_ignored("engine::worker", &environment);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged =
        lines.filter_map(|line| line.strip_prefix("ack ").and_then(|number| number.parse().ok()));
    let mut last = None;
    for number in acknowledged.by_ref() {
        last = Some(number);
        if number + 1 >= first + operations {
            break;
        }
    }
    child.kill().unwrap();
    // What it printed before it was killed counts.
    last = acknowledged.last().or(last);
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "the worker ended by itself after {last:?}: {status}");
    last
}

fn folder_of(variant: Variant) -> PathBuf {
    std::env::temp_dir().join(format!("umbel-kills-engine-{variant:?}-{}", std::process::id()))
}

#[test]
fn acknowledged_keys_survive_kill_9() {
    let kills = kills_or(40);
    for variant in [Variant::Default, Variant::Busy] {
        let kills = kills.div_ceil(2);
        let folder = folder_of(variant);
        let (mut expected, mut next, mut acknowledged) = (Expected::default(), 0, 0);
        for kill in 0..kills {
            // Another moment each time, from the first acknowledgement on.
            let last = kill_after(&folder, variant, next, 1 + kill * 337 % 2500);
            let Some(last) = last else { continue };
            let done: Vec<_> = (next..=last).map(Operation::numbered).collect();
            acknowledged += done.len();
            done.iter().for_each(|operation| expected.apply(operation));
            block_on(async {
                let engine = open(&folder, variant).await;
                expected.settle(&engine, &Operation::numbered(last + 1)).await;
                expected.check(&engine, kill).await;
                expected.check_exactly(&engine, &done, kill).await;
            });
            next = last + 2;
        }
        block_on(async {
            let engine = open(&folder, variant).await;
            let all: Vec<_> = (0..next).map(Operation::numbered).collect();
            expected.check_exactly(&engine, &all, kills).await;
        });
        println!("engine, {variant:?}: {kills} kills, acknowledged {acknowledged} operations, lost 0");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
