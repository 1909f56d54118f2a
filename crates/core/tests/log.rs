//! The log: its contract, and every fault that a disk can have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_core::disk::{Disk, Fault, MemoryDisk, RealDisk};
use umbel_core::log::{Durability, FileLog, Log, MemoryLog, Settings, suite};
use umbel_core::{Error, Position};

const HOUR: Durability = Durability::Interval(Duration::from_secs(3600));

/// Runs a future that waits for nothing but the log's own thread.
fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn settings(durability: Durability) -> Settings {
    Settings { partitions: 2, segment_bytes: 2 << 20, durability, ..Settings::new("/log") }
}

fn open(disk: &MemoryDisk, durability: Durability) -> Result<FileLog, Error> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    FileLog::open(&disk, &settings(durability))
}

/// An entry that shows its number.
fn entry(number: u64, bytes: usize) -> Bytes {
    let mut entry = number.to_le_bytes().to_vec();
    entry.resize(bytes.max(8), number as u8);
    entry.into()
}

fn number(entry: &Bytes) -> u64 {
    let number = u64::from_le_bytes(entry[..8].try_into().unwrap());
    assert!(entry[8..].iter().all(|byte| *byte == number as u8), "an entry is damaged");
    number
}

fn append(log: &FileLog, number: u64, bytes: usize) -> Result<Position, Error> {
    Ok(block_on(log.append(0, vec![entry(number, bytes)]))?.positions[0])
}

fn append_to(log: &FileLog, partition: u32) {
    block_on(log.append(partition, vec![entry(0, 8)])).unwrap();
}

fn numbers(log: &FileLog) -> Vec<u64> {
    let oldest = block_on(log.bounds(0)).unwrap().oldest;
    block_on(suite::read_all(log, 0, oldest)).iter().map(|(_, entry)| number(entry)).collect()
}

/// The folder of partition 0 holds these segments, in order.
fn segments(disk: &MemoryDisk) -> Vec<PathBuf> {
    let inside = |path: &PathBuf| path.parent() == Some(Path::new("/log/0"));
    let log = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "log");
    disk.files().into_iter().map(|(path, _)| path).filter(|path| inside(path) && log(path)).collect()
}

#[test]
fn every_log_keeps_the_contract() {
    let memory = MemoryLog::new(2);
    block_on(suite::all(&memory));
    block_on(suite::reads_reach_the_end(&memory, &memory, 0));
    for durability in [Durability::Always, Durability::default(), Durability::Os] {
        block_on(suite::all(&open(&MemoryDisk::default(), durability).unwrap()));
        let folder = std::env::temp_dir().join(format!("umbel-log-{}", std::process::id()));
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let settings = Settings { folder: folder.clone(), ..settings(durability) };
        block_on(suite::all(&FileLog::open(&disk, &settings).unwrap()));
        // Again, on what the first run left, without having closed it.
        block_on(suite::all(&FileLog::open(&disk, &settings).unwrap()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    for wrong in [
        Settings { partitions: 0, ..settings(HOUR) },
        Settings { partitions: u32::MAX, ..settings(HOUR) },
        Settings { segment_bytes: 1000, ..settings(HOUR) },
        Settings { segment_bytes: u64::MAX, ..settings(HOUR) },
    ] {
        assert!(matches!(FileLog::open(&disk, &wrong), Err(Error::Invalid(_))));
    }
}

#[test]
fn a_log_goes_on_where_it_ended() {
    for close in [false, true] {
        let disk = MemoryDisk::default();
        let mut positions = Vec::new();
        for round in 0..5 {
            let log = open(&disk, HOUR).unwrap();
            assert_eq!(numbers(&log), (0..round * 100).collect::<Vec<_>>());
            for number in round * 100..(round + 1) * 100 {
                positions.push(append(&log, number, 20_000).unwrap());
            }
            if close {
                log.close().unwrap();
                assert!(matches!(append(&log, 0, 8), Err(Error::Closed(_))));
            }
        }
        assert!(positions.is_sorted());
        assert!(segments(&disk).len() > 4);
    }
}

/// A power cut at any moment. `Always` loses nothing that was acknowledged; the others may lose the end, but never from the
/// middle, and no position is given out twice.
#[test]
fn power_cuts_take_what_was_not_synced_and_nothing_else() {
    let mut cuts = 0;
    let mut lost = 0;
    for durability in [Durability::Always, HOUR, Durability::Os] {
        for seed in 0..150_u64 {
            let mut disk = MemoryDisk::default();
            let mut expected: Vec<u64> = Vec::new();
            let mut highest = Position::START;
            let mut next = 0;
            for round in 0..4_u64 {
                let log = open(&disk, durability).unwrap();
                let found = numbers(&log);
                assert!(expected.starts_with(&found), "seed {seed}: {found:?} of {expected:?}");
                if durability == Durability::Always {
                    assert_eq!(found, expected, "seed {seed}");
                }
                lost += expected.len() - found.len();
                expected = found;
                let mut synced = expected.len();
                for step in 0..(seed * 7 + round * 3) % 40 {
                    let position = append(&log, next, (seed * 131 + step * 977) as usize % 150_000).unwrap();
                    assert!(position > highest, "seed {seed}: a position was given out twice");
                    highest = position;
                    expected.push(next);
                    next += 1;
                    if step % 9 == 8 {
                        log.sync().unwrap();
                        synced = expected.len();
                    }
                }
                disk = disk.after_power_cut(seed * 1000 + round);
                drop(log);
                let log = open(&disk, durability).unwrap();
                let found = numbers(&log);
                assert!(found.len() >= synced, "seed {seed}: what was synced is there");
                cuts += 1;
            }
        }
    }
    println!("{cuts} power cuts: {lost} unsynced entries lost, 0 synced ones");
    assert!(lost > 0, "the test must be able to lose something");
}

/// Cuts the newest segment at every byte: the log says what is wrong, or nothing acknowledged is missing.
#[test]
fn a_cut_segment_is_refused_by_name() {
    let disk = MemoryDisk::default();
    let log = open(&disk, Durability::Always).unwrap();
    for number in 0..40 {
        append(&log, number, 50).unwrap();
    }
    drop(log);
    let path = segments(&disk).pop().unwrap();
    let mut refused = 0;
    // Behind the frames there is only reserved space, so that one byte in ten thousand tells as much as all.
    for length in (0..4000).chain((4000..2 << 20).step_by(10_007)) {
        let cut = disk.copied();
        cut.tamper(&path, |bytes| bytes.truncate(length));
        match open(&cut, Durability::Always) {
            Err(Error::Corrupt(why)) => {
                assert!(why.contains(path.to_str().unwrap()) && why.contains("at byte"), "{why}");
                refused += 1;
            }
            Err(other) => panic!("{length}: {other}"),
            Ok(log) => assert_eq!(numbers(&log).len(), 40, "{length}"),
        }
    }
    println!("{refused} truncations of the newest segment, all refused by name");
}

/// Flips bits in files of a log that was at rest: every entry is there, or the log says which file is damaged where.
#[test]
fn flipped_bits_are_never_a_silent_loss() {
    let disk = MemoryDisk::default();
    let log = open(&disk, HOUR).unwrap();
    for number in 0..400 {
        append(&log, number, if number % 10 == 0 { 60_000 } else { 100 }).unwrap();
    }
    // At rest: synced, with a mark behind the last entry, as the syncing thread leaves it; then killed.
    log.sync().unwrap();
    append(&log, 400, 8).unwrap();
    log.sync().unwrap();
    log.close().unwrap();
    drop(log);
    let files = segments(&disk);
    assert!(files.len() > 1);
    let mut random = 12345_u64;
    let (mut refused, mut harmless) = (0, 0);
    for round in 0..2500_u64 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(round);
        let damaged = disk.copied();
        let path = &files[(random >> 60) as usize % files.len()];
        let mut bit = 0;
        damaged.tamper(path, |bytes| {
            // Small places matter as much as large entries, so half of the flips go to the first kilobytes.
            let range = if random & 1 == 0 { bytes.len().min(4096) } else { bytes.len() };
            bit = (random >> 8) as usize % (range * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        });
        let place = format!("{} bit {bit}", path.display());
        match open(&damaged, HOUR) {
            Err(Error::Corrupt(why)) => {
                assert!(why.contains("/log/0/") && why.contains("at byte"), "{place}: {why}");
                refused += 1;
            }
            Err(other) => panic!("{place}: {other}"),
            Ok(log) => match read(&log) {
                Err(Error::Corrupt(why)) => {
                    assert!(why.contains(path.to_str().unwrap()), "{place}: {why}");
                    refused += 1;
                }
                Err(other) => panic!("{place}: {other}"),
                Ok(found) => {
                    assert_eq!(found, (0..=400).collect::<Vec<_>>(), "{place}: a silent loss");
                    harmless += 1;
                }
            },
        }
    }
    println!("2500 flipped bits: {refused} refused by name, {harmless} harmless (in reserved space)");
    assert!(refused > 500);
}

fn read(log: &FileLog) -> Result<Vec<u64>, Error> {
    let mut after = block_on(log.bounds(0))?.oldest;
    let mut numbers = Vec::new();
    loop {
        let records = block_on(log.read(0, after, 1 << 16))?;
        let Some(last) = records.last() else { return Ok(numbers) };
        after = last.position;
        numbers.extend(records.iter().map(|record| number(&record.entry)));
    }
}

/// Every operation of the disk fails once: with a full disk the log refuses and goes on when there is space; with a broken one
/// it closes and says so. Either way everything acknowledged is there afterwards.
#[test]
fn every_operation_of_the_disk_may_fail() {
    for fault in [Fault::Full, Fault::Broken] {
        let (mut failures, mut nth) = (0, 1);
        loop {
            let disk = MemoryDisk::default();
            let log = open(&disk, HOUR).unwrap();
            let before = disk.operations();
            disk.fail_at(nth, fault);
            let mut acknowledged = Vec::new();
            let mut failed = false;
            for number in 0..60 {
                // Enough for several segments.
                let outcome = append(&log, number, 100_000).and_then(|_| log.sync());
                match outcome {
                    Ok(()) => acknowledged.push(number),
                    Err(error @ (Error::Retry(_) | Error::Closed(_))) => {
                        // A broken disk closes the log; a full one does so only if it fails a sync.
                        assert!(fault == Fault::Full || matches!(error, Error::Closed(_)), "{error}");
                        failed = true;
                        if fault == Fault::Full && number % 3 == 0 {
                            disk.mend();
                        }
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            disk.mend();
            let operations = disk.operations() - before;
            drop(log);
            for disk in [disk.after_power_cut(nth), disk] {
                let found = numbers(&open(&disk, HOUR).unwrap());
                let missing = acknowledged.iter().filter(|number| !found.contains(number)).count();
                assert_eq!(missing, 0, "{fault:?} at operation {nth}");
                assert!(found.is_sorted(), "{fault:?} at operation {nth}: {found:?}");
            }
            failures += u64::from(failed);
            if nth > operations {
                break;
            }
            nth += 1;
        }
        println!("{fault:?}: {nth} places, {failures} runs failed, nothing acknowledged was lost");
        assert!(failures > 50);
    }
}

/// A process that was killed on a full disk starts again: what is there is read, and taken is what comes when there is space.
#[test]
fn a_log_on_a_full_disk_can_be_read() {
    for torn in [false, true] {
        let disk = MemoryDisk::default();
        let log = open(&disk, HOUR).unwrap();
        (0..30).for_each(|number| _ = append(&log, number, 100_000).unwrap());
        log.sync().unwrap();
        drop(log);
        if torn {
            // What a crash left of an entry.
            let newest = segments(&disk).pop().unwrap();
            disk.tamper(&newest, |bytes| {
                let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 100;
                bytes[end..end + 100].fill(0xa5);
            });
        }
        disk.limit_to(Some(0));
        for number in 30..33 {
            let log = open(&disk, HOUR).unwrap();
            assert!(log.waits_for_space());
            assert_eq!(numbers(&log), Vec::from_iter(0..30));
            let refused = append(&log, number, 100);
            assert!(
                matches!(&refused, Err(Error::Retry(why)) if why.contains("cannot begin a segment")),
                "{refused:?}"
            );
            if number == 31 {
                log.close().unwrap();
            }
        }
        let log = open(&disk, HOUR).unwrap();
        disk.limit_to(None);
        append(&log, 30, 100).unwrap();
        append_to(&log, 1);
        assert!(!log.waits_for_space());
        log.sync().unwrap();
        drop(log);
        for disk in [disk.after_power_cut(1), disk] {
            assert_eq!(numbers(&open(&disk, HOUR).unwrap()), Vec::from_iter(0..31));
        }
    }
    let disk = MemoryDisk::default();
    disk.limit_to(Some(0));
    assert!(matches!(open(&disk, HOUR), Err(Error::Retry(_))), "a new log has nothing that could be read");
}

/// Segments of a small volume leave room for others and for checkpoints.
#[test]
fn segments_fit_a_small_volume() {
    let disk = MemoryDisk::default();
    disk.limit_to(Some(64 << 20));
    let settings = Settings { segment_bytes: 64 << 20, ..settings(HOUR) };
    let log = FileLog::open(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &settings).unwrap();
    let largest = disk.files().into_iter().map(|(_, bytes)| bytes).max().unwrap();
    assert_eq!(largest, 8 << 20);
    (0..200).for_each(|number| _ = append(&log, number, 100_000).unwrap());
    assert_eq!(numbers(&log), Vec::from_iter(0..200));
}

#[test]
fn a_missing_segment_is_noticed() {
    let disk = MemoryDisk::default();
    let log = open(&disk, HOUR).unwrap();
    for number in 0..100 {
        append(&log, number, 100_000).unwrap();
    }
    log.close().unwrap();
    drop(log);
    let paths = segments(&disk);
    assert!(paths.len() >= 4);
    for path in &paths[1..paths.len() - 1] {
        let disk = disk.copied();
        disk.remove(path).unwrap();
        let outcome = open(&disk, HOUR).and_then(|log| read(&log));
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{}: {outcome:?}", path.display());
    }
}

/// Threads append at once: every acknowledged entry is there once, and each thread's in its order.
#[test]
fn appends_from_many_threads_stand_in_one_order() {
    for durability in [Durability::Always, Durability::default()] {
        let disk = MemoryDisk::default();
        let log = open(&disk, durability).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let log = &log;
                scope.spawn(move || {
                    let mut last = Position::START;
                    for step in 0..250 {
                        let position = append(log, thread << 32 | step, 500).unwrap();
                        assert!(position > last);
                        last = position;
                    }
                });
            }
        });
        let found = numbers(&log);
        assert_eq!(found.len(), 1000);
        for thread in 0..4 {
            let steps: Vec<_> = found.iter().filter(|number| **number >> 32 == thread).collect();
            assert!(steps.len() == 250 && steps.is_sorted());
        }
        drop(log);
        let disk = if durability == Durability::Always { disk.after_power_cut(7) } else { disk };
        assert_eq!(numbers(&open(&disk, durability).unwrap()), found);
    }
}

#[test]
fn one_process_at_a_time_has_a_log() {
    let folder = std::env::temp_dir().join(format!("umbel-log-lock-{}", std::process::id()));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let settings = Settings { partitions: 1, segment_bytes: 2 << 20, ..Settings::new(&folder) };
    let first = FileLog::open(&disk, &settings).unwrap();
    let second = FileLog::open(&disk, &settings).unwrap_err();
    assert!(second.to_string().contains("another process"), "{second}");
    drop(first);
    drop(FileLog::open(&disk, &settings).unwrap());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_copy_that_is_put_back_does_not_know_what_the_log_became_meanwhile() {
    for is_closed in [true, false] {
        let disk = MemoryDisk::default();
        let mut log = open(&disk, HOUR).unwrap();
        let before = append(&log, 1, 100).unwrap();
        if is_closed {
            drop(log);
            log = open(&disk.copied(), HOUR).unwrap();
        }
        let copy = disk.copied();
        let lost: Vec<Position> = (2..50).map(|number| append(&log, number, 100).unwrap()).collect();
        let restored = open(&copy, HOUR).unwrap();
        (2..500).for_each(|number| _ = append(&restored, number, 100).unwrap());
        let holds = |position| block_on(restored.holds(0, position)).unwrap();
        assert!(holds(before) && holds(block_on(restored.bounds(0)).unwrap().tail));
        assert!(lost.into_iter().all(|position| !holds(position)), "closed: {is_closed}");
        assert_eq!(numbers(&restored), (1..500).collect::<Vec<_>>());
    }
}
