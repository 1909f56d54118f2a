//! Loads that are killed, cut off and refused, compared with what the source holds.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use umbel_core::random::SeededRandom;

use super::*;
use crate::limits::BATCH_KEYS_MAX;
use crate::sink::{Packed, Who};
use crate::{Batch, Cursor};

/// Keys in memory. Every so often a cursor is cut off.
struct Memory {
    parts: Vec<Vec<String>>,
    cuts: Option<Arc<SeededRandom>>,
    /// Keys that come to the last part when it was read.
    late: Vec<String>,
    reads_of_last: AtomicU64,
}

impl Memory {
    fn new(parts: usize, keys: usize, cuts: Option<u64>) -> Self {
        let key = |part: usize, number: usize| format!("{}", (part * keys + number) * 7 / 8);
        let parts = (0..parts).map(|part| (0..keys).map(|number| key(part, number)).collect()).collect();
        let cuts = cuts.map(|seed| Arc::new(SeededRandom::new(seed)));
        Self { parts, cuts, late: Vec::new(), reads_of_last: AtomicU64::new(0) }
    }

    fn expected(&self) -> HashMap<String, u64> {
        let mut counts = HashMap::new();
        let all = self.parts.iter().flatten().chain(&self.late).filter(|key| !is_null(key));
        all.for_each(|key| *counts.entry(key.clone()).or_default() += 1);
        counts
    }
}

fn is_null(key: &str) -> bool {
    key.ends_with("99")
}

struct At {
    keys: Vec<String>,
    at: usize,
    cuts: Option<Arc<SeededRandom>>,
}

impl Source for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn identity(&self) -> String {
        "memory".into()
    }

    fn parts(&self, _: usize) -> Result<Vec<Part>> {
        let part = |number: usize| Part {
            name: format!("part {number}"),
            bounds: number.to_string(),
            bytes: None,
            rows: Some(self.parts[number].len() as u64),
        };
        Ok((0..self.parts.len()).map(part).collect())
    }

    fn open(&self, part: &Part, after: Option<&Bookmark>) -> Result<Box<dyn Cursor>> {
        let number: usize = part.bounds.parse().unwrap();
        let mut keys = self.parts[number].clone();
        if number + 1 == self.parts.len() && self.reads_of_last.fetch_add(1, Ordering::Relaxed) > 0 {
            keys.extend(self.late.iter().cloned());
        }
        let at = after.map_or(0, |after| after.as_str().parse().unwrap());
        Ok(Box::new(At { keys, at, cuts: self.cuts.clone() }))
    }

    fn tail<'a>(&self, parts: &'a [Part]) -> Option<&'a Part> {
        parts.last().filter(|_| !self.late.is_empty())
    }
}

impl Cursor for At {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        if self.cuts.as_ref().is_some_and(|random| random.next().is_multiple_of(5)) {
            return Err(Error::Retry("cut off".into()));
        }
        while !batch.is_full() && batch.len() < 1000 && self.at < self.keys.len() {
            match &self.keys[self.at] {
                key if is_null(key) => batch.skip(),
                key => batch.push(key.as_bytes())?,
            }
            self.at += 1;
        }
        if batch.is_empty() { Ok(None) } else { Bookmark::new(self.at.to_string()).map(Some) }
    }
}

/// Counts keys, remembers the last batch of each session as a server does, and fails on either side of doing so.
struct Counting {
    held: Mutex<Held>,
    random: SeededRandom,
    fails: bool,
}

#[derive(Default)]
struct Held {
    counts: HashMap<String, u64>,
    last: HashMap<u64, (u64, u64)>,
    /// Sends after which the process is thought to be killed; then what its folder has is kept here.
    left: Option<u64>,
    folder: Option<(PathBuf, HashMap<PathBuf, Vec<u8>>)>,
}

impl Counting {
    fn new(seed: u64, fails: bool) -> Self {
        Self { held: Mutex::default(), random: SeededRandom::new(seed), fails }
    }
}

fn files_in(folder: &Path) -> HashMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // Files come and go while others write.
    paths.filter_map(|path| fs::read(&path).ok().map(|bytes| (path, bytes))).collect()
}

/// A folder as it was at one moment. Others may be writing their journals: what was read twice without a change was all there in between.
fn at_one_moment(folder: &Path) -> HashMap<PathBuf, Vec<u8>> {
    let mut files = files_in(folder);
    loop {
        let again = files_in(folder);
        if again == files {
            return files;
        }
        files = again;
    }
}

impl Sink for Counting {
    fn form(&self) -> String {
        "text".into()
    }

    fn pack(&self, batch: &Batch) -> Result<Packed> {
        let keys: Vec<&[u8]> = batch.keys().collect();
        Ok(Packed { keys: batch.len() as u64, bytes: Bytes::from(keys.join(&b'\n')) })
    }

    fn send(&self, who: Who, packed: &Packed) -> Result<u64> {
        let mut held = locked(&self.held);
        let fate = self.random.next() % 8;
        if self.fails && fate == 0 {
            return Err(Error::Retry("no answer, not done".into()));
        }
        if held.left == Some(0) {
            return Err(Error::Invalid("killed".into()));
        }
        let known = held.last.get(&who.session).copied();
        let added = match known {
            Some((sequence, added)) if sequence == who.sequence => added,
            Some((sequence, _)) if sequence > who.sequence => panic!("an old batch was sent again"),
            _ => {
                let mut added = 0;
                for key in std::str::from_utf8(&packed.bytes).unwrap().split('\n') {
                    let count = held.counts.entry(key.to_owned()).or_default();
                    added += u64::from(*count == 0);
                    *count += 1;
                }
                held.last.insert(who.session, (who.sequence, added));
                added
            }
        };
        if let Some(left) = held.left {
            held.left = Some(left - 1);
            if left == 1 {
                let (folder, _) = held.folder.take().unwrap();
                let files = at_one_moment(&folder);
                held.folder = Some((folder, files));
                return Err(Error::Invalid("killed".into()));
            }
        }
        if self.fails && fate == 1 {
            return Err(Error::Retry("no answer, but done".into()));
        }
        Ok(added)
    }
}

fn options(checkpoint: Option<&Path>, exactly_once: bool) -> Options {
    Options {
        lanes: 3,
        checkpoint: checkpoint.map(Path::to_owned),
        exactly_once,
        target: "test".into(),
        ..Options::default()
    }
}

#[test]
fn every_key_arrives_once_whatever_is_cut_off() {
    for seed in 0..4 {
        let source = Memory::new(5, 4_000, Some(seed));
        let sink = Counting::new(seed, true);
        let progress = Progress::default();
        let outcome = Loader::new(&source, &sink, options(None, false)).unwrap().run(&progress).unwrap();
        let expected = source.expected();
        assert_eq!(outcome.counts.keys, expected.values().sum::<u64>());
        assert_eq!(outcome.counts.added, expected.len() as u64);
        assert_eq!(outcome.counts.keys + outcome.counts.nulls, 20_000);
        assert!(locked(&sink.held).counts == expected, "seed {seed}");
        assert!(progress.retries() > 0 && progress.take_trouble().is_some());
        assert_eq!(progress.parts_done(), 5);
    }
}

/// A load that is killed after some sends, again and again: each time its folder is what it was at that moment.
fn survives_kills(
    exactly_once: bool,
    (parts, keys): (usize, usize),
    seed: u64,
) -> (HashMap<String, u64>, HashMap<String, u64>) {
    let folder = std::env::temp_dir()
        .join(format!("umbel-kills-{exactly_once}-{parts}-{seed}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let checkpoint = folder.join("load");
    let (source, sink) = (Memory::new(parts, keys, Some(seed)), Counting::new(seed, true));
    let random = SeededRandom::new(seed);
    // Enough for every lane to come to its next part, if parts are small.
    let (mut kills, most_sends) = (0, if keys < 1_000 { 12 } else { 5 });
    loop {
        {
            let mut held = locked(&sink.held);
            held.left = (kills < 6).then(|| random.next() % most_sends + 1);
            held.folder = Some((folder.clone(), HashMap::new()));
        }
        let loader = Loader::new(&source, &sink, options(Some(&checkpoint), exactly_once)).unwrap();
        let outcome = loader.run(&Progress::default());
        let Err(error) = outcome else { break };
        assert!(matches!(&error, Error::Invalid(why) if why == "killed"), "{error}");
        kills += 1;
        let (_, files) = locked(&sink.held).folder.take().unwrap();
        files_in(&folder).keys().for_each(|path| fs::remove_file(path).unwrap());
        files.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
    assert!(kills >= 3, "{kills} kills");
    assert_eq!(files_in(&folder).len(), 0, "nothing is left when all is done");
    fs::remove_dir_all(&folder).unwrap();
    let counts = std::mem::take(&mut locked(&sink.held).counts);
    (counts, source.expected())
}

#[test]
fn a_load_that_is_killed_goes_on_and_no_key_counts_twice() {
    for seed in 0..8 {
        let (found, expected) = survives_kills(true, (4, 6_000), seed);
        assert!(found == expected, "seed {seed}");
    }
}

#[test]
fn the_end_of_a_part_is_not_forgotten_when_its_lane_goes_on() {
    for seed in 0..4 {
        let (found, expected) = survives_kills(true, (40, 400), seed);
        assert!(found == expected, "seed {seed}");
    }
}

#[test]
fn without_a_journal_no_key_is_lost() {
    for seed in 0..8 {
        let (found, expected) = survives_kills(false, (4, 6_000), seed);
        assert!(expected.iter().all(|(key, count)| found.get(key).is_some_and(|have| have >= count)));
        assert_eq!(found.len(), expected.len(), "seed {seed}");
    }
}

#[test]
fn what_comes_behind_the_end_is_read_too() {
    let mut source = Memory::new(3, 2_500, None);
    source.late = (0..1_500).map(|number| format!("late-{number}")).collect();
    let sink = Counting::new(1, false);
    let path = std::env::temp_dir().join(format!("umbel-tail-{}", std::process::id()));
    let loader = Loader::new(&source, &sink, options(Some(&path), true)).unwrap();
    let outcome = loader.run(&Progress::default()).unwrap();
    assert!(locked(&sink.held).counts == source.expected());
    assert_eq!(outcome.parts, 3);
}

#[test]
fn whoever_stops_it_can_go_on() {
    let path = std::env::temp_dir().join(format!("umbel-stop-{}", std::process::id()));
    let (source, sink, progress) =
        (Memory::new(2, 5_000, None), Counting::new(1, false), Progress::default());
    let slow = Options { rate: Some(2_000), ..options(Some(&path), false) };
    let outcome = thread::scope(|scope| {
        let load = scope.spawn(|| Loader::new(&source, &sink, slow).unwrap().run(&progress));
        while progress.counts().keys == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        progress.stop();
        load.join().unwrap()
    });
    assert!(matches!(outcome, Err(Error::Stopped)), "{outcome:?}");
    let loader = Loader::new(&source, &sink, options(Some(&path), false)).unwrap();
    let before = loader.resumed().unwrap();
    assert!(before.keys > 0 && before.keys < 10_000);
    let outcome = loader.run(&Progress::default()).unwrap();
    assert_eq!(outcome.before, before);
    assert!(locked(&sink.held).counts == source.expected());
    assert!(Loader::new(&source, &sink, options(Some(&path), false)).unwrap().resumed().is_none());
}

#[test]
fn a_rate_is_kept() {
    let (source, sink) = (Memory::new(2, 3_000, None), Counting::new(1, false));
    let slow = Options { rate: Some(10_000), ..options(None, false) };
    let begun = Instant::now();
    Loader::new(&source, &sink, slow).unwrap().run(&Progress::default()).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
}

#[test]
fn counting_sends_nothing_and_says_what_to_choose() {
    let source = Memory::new(3, 5_000, None);
    let counted = crate::count(&source, 2, Duration::ZERO, &Progress::default()).unwrap();
    let expected = source.expected();
    assert_eq!(counted.counts.keys, expected.values().sum::<u64>());
    assert_eq!(counted.counts.keys + counted.counts.nulls, 15_000);
    let off = counted.distinct.abs_diff(expected.len() as u64);
    assert!(off * 30 < counted.distinct && counted.capacity > counted.distinct, "{counted:?}");
}

#[test]
fn nonsense_is_refused() {
    let (source, sink) = (Memory::new(1, BATCH_KEYS_MAX, None), Counting::new(1, false));
    for lanes in [0, LANES_MAX + 1] {
        assert!(Loader::new(&source, &sink, Options { lanes, ..Options::default() }).is_err());
    }
}
