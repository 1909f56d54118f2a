//! Damaged files: an engine that opens answers rightly, or says which file is damaged. It never answers wrongly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_core::Error;
use umbel_core::disk::{Disk, MemoryDisk};
use umbel_core::engine::{Answer, Engine, NewFilter};
use umbel_core::log::{FileLog, Log, MemoryLog};
use umbel_core::random::{Random, SeededRandom};
use umbel_filter::{Layout, Spec};

use crate::world::{PARTITIONS, below, everywhere, key, keys, log_on, open_on, run, settings};

const SEED: u64 = 7;

/// What the filters of the deployment hold, by number of the key.
fn held(name: &str) -> BTreeMap<u64, u64> {
    let count = |number: u64| match name {
        "counting" => 1 + u64::from(number < 20) - u64::from((20..40).contains(&number)),
        _ => 1,
    };
    (0..120).map(|number| (number, count(number))).collect()
}

const NAMES: [&str; 5] = ["bloom", "chain", "counting", "layers", "sharded"];

/// Several filters, checkpoints, merged runs, and a tail of the log that is in no checkpoint.
async fn fill(engine: &Engine) {
    let chain = Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 20, 0.01);
    for new in [
        NewFilter::new("bloom", Spec::bloom(50, 0.01)),
        NewFilter { retain: false, ..NewFilter::new("chain", chain) },
        everywhere("counting", Spec::counting(100, 0.01)),
        NewFilter { retain: false, ..everywhere("layers", Spec::bloom(50, 0.01)) },
        everywhere("sharded", Spec::bloom(200, 0.01)),
    ] {
        engine.create(new).await.unwrap();
    }
    let mut merges = 0;
    for (round, new) in [0..30, 30..60, 60..90, 90..105, 105..120].into_iter().enumerate() {
        for name in NAMES {
            let filter = engine.filter(name).unwrap();
            engine.add(&filter, &keys(new.clone())).await.unwrap();
        }
        let counting = engine.filter("counting").unwrap();
        match round {
            1 => _ = engine.add(&counting, &keys(0..20)).await.unwrap(),
            3 => assert_eq!(engine.remove(&counting, &keys(20..40)).await.unwrap().answers, [Some(true); 20]),
            _ => {}
        }
        // The last keys stay in the log alone.
        if round < 4 {
            merges += engine.checkpoint().await.unwrap().merges;
        }
    }
    assert!(merges > 0, "runs are merged");
    // The other slots are quiet while the log before these is trimmed: only the record says that they lack nothing.
    for _ in 0..3 {
        let bloom = engine.filter("bloom").unwrap();
        engine.add(&bloom, &keys(0..3)).await.unwrap();
        engine.checkpoint().await.unwrap();
    }
    let layers = engine.filter("layers").unwrap();
    engine.add(&layers, &keys(0..9)).await.unwrap();
}

/// Whether all answers are right; an error is one that the engine gave.
async fn check(engine: &Engine, place: &str) -> Result<(), Error> {
    for name in NAMES {
        let filter = engine.filter(name).unwrap_or_else(|| panic!("{place}: the filter {name} is gone"));
        let held = held(name);
        let mut all = keys(0..120);
        all.extend(keys(1_000..1_010));
        // Before anything is loaded, answers may be unknown, but not wrong.
        for (number, count) in &held {
            assert!(
                *count == 0 || filter.contains(key(*number)) != Answer::Absent,
                "{place}: {name}: key {number}"
            );
        }
        let answers = engine.contains(&filter, &all, None).await?;
        for ((number, count), answer) in held.iter().zip(answers) {
            assert!(*count == 0 || answer == Answer::Maybe, "{place}: {name}: key {number} is {answer:?}");
        }
        if filter.definition().retain {
            let verified = engine.verify(&filter, &all).await?;
            let expected: Vec<u64> = held.values().copied().chain([0; 10]).collect();
            assert_eq!(verified, expected, "{place}: {name}");
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Outcomes {
    refused: u64,
    /// The engine opened and all answers are right, although bytes that it reads are damaged.
    right: u64,
}

/// A deployment at rest.
struct Deployment {
    disk: MemoryDisk,
    /// Without one, the log is on the disk.
    log: Option<Arc<MemoryLog>>,
}

impl Deployment {
    fn new(in_memory: bool) -> Self {
        let disk = MemoryDisk::default();
        let log = in_memory.then(|| Arc::new(MemoryLog::new(PARTITIONS)));
        let deployment = Self { disk, log };
        let (engine, file) = run(deployment.open(&deployment.disk)).unwrap();
        run(fill(&engine));
        drop(engine);
        if let Some(file) = file {
            file.close().unwrap();
        }
        deployment
    }

    async fn open(&self, disk: &MemoryDisk) -> Result<(Engine, Option<Arc<FileLog>>), Error> {
        let settings = umbel_core::engine::Settings { runs_max: 2, ..settings() };
        if let Some(log) = &self.log {
            return Ok((open_on(disk, Arc::clone(log) as Arc<dyn Log>, settings, SEED).await?, None));
        }
        let log = log_on(disk)?;
        Ok((open_on(disk, Arc::clone(&log) as Arc<dyn Log>, settings, SEED).await?, Some(log)))
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        self.disk
            .files()
            .into_iter()
            .filter(|(path, _)| path.extension().is_none_or(|end| end != "tmp"))
            .collect()
    }

    /// Damages a file and looks what comes of it.
    fn damage(&self, path: &Path, place: &str, change: impl FnOnce(&MemoryDisk), outcomes: &mut Outcomes) {
        let disk = self.disk.copied();
        change(&disk);
        let outcome = run(async {
            let (engine, _log) = self.open(&disk).await?;
            check(&engine, place).await
        });
        match outcome {
            Ok(()) => outcomes.right += 1,
            Err(error) => {
                // Blobs are named by their place in the store.
                let name = path.strip_prefix("/data/blobs").unwrap_or(path).to_str().unwrap();
                let why = error.to_string();
                assert!(why.contains(name) || why.contains("partition"), "{place}: {why}");
                outcomes.refused += 1;
            }
        }
    }
}

/// The kind of a file, for the counts.
fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|end| end.to_str()) {
        Some("log") => "log segments",
        Some("manifest") => "manifests",
        Some("arrays") => "arrays",
        Some("run") => "runs",
        Some("trimmed") => "records of trimming",
        _ => "deployment",
    }
}

/// Flips bits of a deployment, evenly among the kinds of files.
fn flip_bits(deployment: &Deployment, flips: u64) -> BTreeMap<&'static str, Outcomes> {
    let mut by_kind: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (path, bytes) in deployment.files().into_iter().filter(|(_, bytes)| *bytes > 0) {
        by_kind.entry(kind(&path)).or_default().push((path, bytes));
    }
    let random = SeededRandom::new(SEED);
    let mut all: BTreeMap<&'static str, Outcomes> = BTreeMap::new();
    for flip in 0..flips {
        let (kind, files) = by_kind.iter().nth(flip as usize % by_kind.len()).unwrap();
        let (path, bytes) = &files[below(&random, files.len() as u64) as usize];
        // Segments are mostly reserved space, and runs pages that are not full.
        let within = if flip % 4 == 0 { *bytes } else { (*bytes).min(4096) };
        let bit = random.next() % (within * 8);
        let place = format!("seed {SEED}, flip {flip}, {} bit {bit}", path.display());
        let change =
            |disk: &MemoryDisk| disk.tamper(path, |bytes| bytes[(bit / 8) as usize] ^= 1 << (bit % 8));
        deployment.damage(path, &place, change, all.entry(kind).or_default());
    }
    all
}

#[test]
fn flipped_bits_of_blobs_are_never_a_wrong_answer() {
    let deployment = Deployment::new(true);
    let all = flip_bits(&deployment, 12_000);
    println!("12000 flipped bits in blobs: {all:?}");
    for kind in ["manifests", "arrays", "runs", "records of trimming", "deployment"] {
        assert!(all.contains_key(kind), "no {kind}");
    }
    // All of these have a checksum over all of it.
    assert_eq!(all["deployment"].right, 0);
    assert!(all["records of trimming"].refused > 0, "without its record, a trimmed log is not believed");
    assert!(all["manifests"].right > 0, "one damaged checkpoint loses nothing");
    assert!(all["arrays"].right > 0, "arrays are made anew from the archive");
}

#[test]
fn flipped_bits_of_a_log_are_never_a_wrong_answer() {
    let deployment = Deployment::new(false);
    let all = flip_bits(&deployment, 2_000);
    println!("2000 flipped bits with a log in files: {all:?}");
    assert!(all["log segments"].refused > 100);
}

#[test]
fn cut_and_missing_blobs_are_never_a_wrong_answer() {
    for in_memory in [true, false] {
        let deployment = Deployment::new(in_memory);
        let (mut cut, mut missing) = (Outcomes::default(), Outcomes::default());
        let blobs = |(path, _): &(PathBuf, u64)| path.starts_with("/data/blobs");
        for (path, bytes) in deployment.files().into_iter().filter(blobs) {
            for length in [0, 1, 8, 100, bytes / 4, bytes / 2, bytes.saturating_sub(4096), bytes - 1] {
                let place = format!("{} cut to {length} bytes", path.display());
                let change = |disk: &MemoryDisk| disk.tamper(&path, |bytes| bytes.truncate(length as usize));
                deployment.damage(&path, &place, change, &mut cut);
            }
            let place = format!("{} is missing", path.display());
            deployment.damage(&path, &place, |disk| disk.remove(&path).unwrap(), &mut missing);
        }
        println!("cut: {cut:?}, missing: {missing:?}");
        assert!(missing.right > 0);
    }
}
