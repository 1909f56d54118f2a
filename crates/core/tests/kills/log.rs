//! A log that is killed while it is appended to, in each durability class.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::log::{Durability, FileLog, Log, Settings, suite};

use super::{FOLDER, block_on, kills_or, run_ignored};

const CLASS: &str = "UMBEL_KILLS_CLASS";
const PARTITIONS: u32 = 2;

fn open(folder: &Path, class: &str) -> FileLog {
    let durability = match class {
        "always" => Durability::Always,
        "interval" => Durability::default(),
        _ => Durability::Os,
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let settings =
        Settings { partitions: PARTITIONS, segment_bytes: 2 << 20, durability, ..Settings::new(folder) };
    FileLog::open(&disk, &settings).unwrap()
}

/// The numbers in a log, by partition, in order.
fn numbers(log: &FileLog) -> Vec<Vec<u64>> {
    let of = |partition| {
        let oldest = block_on(log.bounds(partition)).unwrap().oldest;
        let records = block_on(suite::read_all(log, partition, oldest));
        records.iter().map(|(_, entry)| u64::from_le_bytes(entry[..8].try_into().unwrap())).collect()
    };
    (0..PARTITIONS).map(of).collect()
}

/// The process that is killed: it appends numbers from the next one on, and prints each when it is acknowledged.
#[test]
#[ignore = "the other test runs it as a process of its own"]
fn writer() {
    let (Ok(folder), Ok(class)) = (std::env::var(FOLDER), std::env::var(CLASS)) else { return };
    let log = open(folder.as_ref(), &class);
    let mut next = numbers(&log).iter().flatten().max().map_or(0, |last| last + 1);
    let mut out = std::io::stdout().lock();
    loop {
        let mut entry = next.to_le_bytes().to_vec();
        entry.resize(8 + (next as usize * 997) % 5000, 0);
        block_on(log.append((next % u64::from(PARTITIONS)) as u32, vec![Bytes::from(entry)])).unwrap();
        writeln!(out, "ack {next}").unwrap();
        out.flush().unwrap();
        next += 1;
    }
}

#[test]
fn acknowledged_entries_survive_kill_9() {
    let kills = kills_or(30);
    for class in ["interval", "always", "os"] {
        let folder = std::env::temp_dir().join(format!("umbel-kills-{class}-{}", std::process::id()));
        let mut acknowledged = HashSet::new();
        let mut written = 0;
        for kill in 0..kills {
            let mut child = run_ignored("log::writer", &[(FOLDER, folder.to_str().unwrap()), (CLASS, class)]);
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            // Another moment each time, from the first acknowledgement on.
            let enough = 1 + kill * 37 % 400;
            // The pipe stays open until the kill, so that nothing else ends the process.
            for line in lines.by_ref().map_while(Result::ok) {
                let Some(number) = line.strip_prefix("ack ").and_then(|number| number.parse().ok()) else {
                    continue;
                };
                acknowledged.insert(number);
                if number >= written + enough {
                    break;
                }
            }
            child.kill().unwrap();
            child.wait().unwrap();

            let found = numbers(&open(&folder, class));
            assert!(found.iter().all(|numbers| numbers.is_sorted()), "{class}: out of order");
            let all: HashSet<u64> = found.iter().flatten().copied().collect();
            assert_eq!(
                all.len(),
                found.iter().map(Vec::len).sum::<usize>(),
                "{class}: an entry is there twice"
            );
            let lost = acknowledged.iter().filter(|number| !all.contains(number)).count();
            assert_eq!(lost, 0, "{class}: lost by kill {kill}");
            written = all.iter().max().map_or(0, |last| last + 1);
        }
        println!("log, {class}: {kills} kills, acknowledged {} entries, lost 0", acknowledged.len());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
