//! What a folder is good for: starting without a server, and no trust in files that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use umbel_client::{Answer, Strategy};
use umbel_filter::Spec;

use crate::world::{Centre, Folder, all_maybe, mostly_absent, open, reached, strategies};

const NOBODYS: std::ops::Range<u64> = 1_000_000..1_010_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_needs_no_server() {
    for strategy in strategies() {
        let mut centre = Centre::start();
        centre.create(Spec::bloom(1_000_000, 0.001)).await;
        centre.add(0..10_000).await;
        let folder = Folder::new();
        let replica = open(centre.options(strategy).folder(folder.path())).await;
        reached(&replica, &centre.add(10_000..20_000).await).await;
        replica.close().await.unwrap();
        let before = replica.status();
        drop(replica);
        centre.stop();

        let began = Instant::now();
        let replica = open(centre.options(strategy).folder(folder.path())).await;
        let took = began.elapsed();
        println!("{} of {} bytes opened without a server in {took:?}", strategy.name(), before.bytes);
        all_maybe(&replica, 0..20_000);
        mostly_absent(&replica, NOBODYS);
        let status = replica.status();
        assert_eq!((&status.id, &status.token), (&before.id, &before.token));
        assert_eq!((status.age, status.chunks_fetched), (None, 0));

        // Back again, it goes on where it was: nothing is fetched that is there.
        centre.start_again();
        reached(&replica, &centre.add(20_000..20_100).await).await;
        all_maybe(&replica, 0..20_100);
        replica.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_are_thrown_away_and_fetched_again() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 6] = [
        ("chunks", |bytes| bytes[100] ^= 1),
        ("chunks", Vec::clear),
        ("current.version", |bytes| bytes[40] ^= 1),
        ("journal", |bytes| bytes.truncate(bytes.len() - 3)),
        ("journal", |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
        }),
        ("replica", |bytes| bytes.truncate(5)),
    ];
    for strategy in [Strategy::delta(), Strategy::push()] {
        let centre = Centre::start();
        centre.create(Spec::bloom(100_000, 0.001)).await;
        centre.add(0..1_000).await;
        let folder = Folder::new();
        let mut last = 1_000;
        for (name, damage) in damages {
            let replica = open(centre.options(strategy).folder(folder.path())).await;
            reached(&replica, &centre.add(last..last + 500).await).await;
            last += 500;
            replica.close().await.unwrap();
            drop(replica);
            let mut damaged = 0;
            for path in folder.files() {
                if path.to_string_lossy().contains(name) {
                    let mut bytes = std::fs::read(&path).unwrap();
                    if !bytes.is_empty() {
                        damage(&mut bytes);
                        std::fs::write(&path, bytes).unwrap();
                        damaged += 1;
                    }
                }
            }
            assert!(damaged > 0, "{name} in {:?}", folder.files());
            let token = centre.add(last..last + 1).await;
            last += 1;
            let replica = open(centre.options(strategy).folder(folder.path())).await;
            // Before it has caught up it may lack the newest keys, but no key of the version that it began with.
            reached(&replica, &token).await;
            all_maybe(&replica, 0..last);
            mostly_absent(&replica, NOBODYS);
            replica.close().await.unwrap();
        }
    }
}

/// One bit of one file at a time, wherever it is: in the copy, the journal, the spool or the name of the replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_on_the_disk_is_never_believed() {
    let (mut number, mut flips) = (1_u64, BTreeMap::<String, u32>::new());
    let mut chance = |below: usize| {
        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (number >> 33) as usize % below
    };
    for strategy in strategies() {
        let centre = Centre::start();
        centre.create(Spec::bloom(100_000, 0.001)).await;
        centre.add(0..1_000).await;
        let (folder, mut last) = (Folder::new(), 1_000);
        for _ in 0..25 {
            let replica = open(centre.options(strategy).folder(folder.path())).await;
            reached(&replica, &centre.add(last..last + 50).await).await;
            last += 50;
            replica.close().await.unwrap();
            drop(replica);
            let mut files = folder.files();
            files.retain(|path| path.metadata().unwrap().len() > 0);
            // Each kind of file as often as any other.
            let kind = |path: &std::path::PathBuf| {
                let inside = path.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned();
                inside.split(['/', '-', '.']).next().unwrap().to_owned()
            };
            let kinds: Vec<String> = files.iter().map(kind).collect::<BTreeSet<_>>().into_iter().collect();
            let chosen = &kinds[chance(kinds.len())];
            files.retain(|path| kind(path) == *chosen);
            let path = &files[chance(files.len())];
            let mut bytes = std::fs::read(path).unwrap();
            let bit = chance(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(path, bytes).unwrap();
            *flips.entry(chosen.clone()).or_default() += 1;
            let replica = open(centre.options(strategy).folder(folder.path())).await;
            mostly_absent(&replica, NOBODYS);
            reached(&replica, &centre.add(last..last + 1).await).await;
            last += 1;
            all_maybe(&replica, 0..last);
            mostly_absent(&replica, NOBODYS);
            replica.close().await.unwrap();
        }
    }
    println!("bits flipped in files: {flips:?}");
    assert!(["chunks", "current", "journal"].iter().all(|kind| flips.contains_key(*kind)), "{flips:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_changed_travels() {
    let centre = Centre::start();
    // Some 30 chunks.
    centre.create(Spec::bloom(4_000_000, 0.001)).await;
    centre.add(0..100_000).await;
    let folder = Folder::new();
    let replica =
        open(centre.options(Strategy::pull(std::time::Duration::from_millis(100))).folder(folder.path()))
            .await;
    let first = replica.status();
    assert!(first.chunks_fetched > 20, "{first:#?}");
    reached(&replica, &centre.add(100_000..100_001).await).await;
    let second = replica.status();
    let fetched = second.chunks_fetched - first.chunks_fetched;
    assert!((1..=3).contains(&fetched), "{second:#?}");
    assert!(second.chunks_reused + 3 >= first.chunks_fetched, "{second:#?}");
    all_maybe(&replica, 99_990..100_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_come_compressed_where_that_makes_them_smaller() {
    let centre = Centre::start();
    centre.create(Spec::bloom(1_000_000, 0.001)).await;
    let pull = Strategy::pull(std::time::Duration::from_millis(100));
    let mut last = 0;
    // Not so many that it grows, and the two begin with arrays of another size.
    for (keys, most) in [(100_000, 0.5), (300_000, 0.9), (700_000, 1.0)] {
        let token = centre.add(last..keys).await;
        last = keys;
        // A version has all of them, so that neither begins with an older one.
        reached(&open(centre.options(pull)).await, &token).await;
        let (plain, packed) =
            (open(centre.options(pull).compression(false)).await, open(centre.options(pull)).await);
        reached(&plain, &token).await;
        reached(&packed, &token).await;
        let (plain, is) = (plain.status(), packed.status());
        assert_eq!((plain.digest, plain.chunks_fetched), (is.digest, is.chunks_fetched));
        let share = is.bytes_fetched as f64 / plain.bytes_fetched as f64;
        println!("{keys} keys: {} bytes instead of {}, {share:.2}", is.bytes_fetched, plain.bytes_fetched);
        assert!(share <= most, "{share} of what it is uncompressed");
        all_maybe(&packed, 0..1_000);
        mostly_absent(&packed, 10_000_000..10_010_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_can_be_taken_back() {
    for with_folder in [true, false] {
        let centre = Centre::start();
        centre.create(Spec::bloom(10_000, 0.0001)).await;
        centre.add(0..1_000).await;
        let folder = Folder::new();
        let mut options = centre.options(Strategy::pull(std::time::Duration::from_millis(50)));
        if with_folder {
            options = options.folder(folder.path());
        }
        let replica = open(options).await;
        assert!(replica.roll_back().await.is_err(), "there is none before the first");
        reached(&replica, &centre.add(1_000..1_500).await).await;
        let bad = replica.status().version.unwrap();
        let good = replica.roll_back().await.unwrap();
        assert!(good < bad);
        all_maybe(&replica, 0..1_000);
        assert_eq!(replica.contains("key 1400"), Answer::Absent);
        let token = centre.add(1_500..1_600).await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!((replica.status().version, replica.status().held), (Some(good), true));
        replica.resume().await.unwrap();
        reached(&replica, &token).await;
        all_maybe(&replica, 0..1_600);
    }
}
