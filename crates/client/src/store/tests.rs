use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use umbel_core::Position;
use umbel_core::definition::Definition;
use umbel_core::disk::{Fault, MemoryDisk};
use umbel_core::feed::Frame;
use umbel_core::random::SeededRandom;
use umbel_core::version::{VersionLayer, VersionShard};
use umbel_filter::Spec;

use super::*;

const FOLDER: &str = "/replica";

fn store(disk: &MemoryDisk) -> Store {
    Store::open(Arc::new(disk.clone()), PathBuf::from(FOLDER)).unwrap()
}

/// A version whose chunks are these; its arrays are of no interest here.
fn version(filter: u64, number: u64, chunks: &[ChunkId]) -> Version {
    let chunks = chunks.iter().copied().map(Some).collect();
    let layers = vec![VersionLayer { outline: vec![1, 2, 3], chunks }];
    let shards = vec![VersionShard { slot: 0, position: Position::from_number(7), items: 1, layers }];
    let definition = Definition::new("f", Spec::bloom(1_000, 0.01));
    Version { filter, number, made_ms: 0, partitions: 1, definition, shards }
}

fn chunk(number: u8) -> (ChunkId, Vec<u8>) {
    let bytes = vec![number; 1_000];
    (ChunkId::of(&bytes), bytes)
}

fn reached(number: u128) -> Frame {
    Frame::Reached { partition: 0, position: Position::from_number(number) }
}

fn damage(disk: &MemoryDisk, wanted: impl Fn(&Path) -> bool) {
    let files = disk.files();
    let (path, _) = files.iter().find(|(path, _)| wanted(path)).expect("such a file");
    disk.tamper(path, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
}

#[test]
fn a_replica_keeps_its_name() {
    let disk = MemoryDisk::default();
    let first = store(&disk).id(&SeededRandom::new(1)).unwrap();
    assert_eq!(first.len(), 32);
    assert_eq!(store(&disk).id(&SeededRandom::new(2)).unwrap(), first);
    damage(&disk, |path| path.ends_with("replica"));
    assert_eq!(store(&disk).id(&SeededRandom::new(2)).unwrap().len(), 32);
}

#[test]
fn two_versions_are_kept_with_their_chunks_and_no_more() {
    let disk = MemoryDisk::default();
    let store = store(&disk);
    let chunks: Vec<_> = (0..4).map(chunk).collect();
    let versions: Vec<_> =
        (0..3).map(|n| version(1, n as u64 + 1, &[chunks[n].0, chunks[n + 1].0])).collect();
    for (id, bytes) in &chunks {
        store.put_chunk(*id, bytes).unwrap();
    }
    for version in &versions {
        store.new_journal(version).unwrap();
        store.commit(version).unwrap();
    }
    assert_eq!(store.versions(), [Some(versions[2].clone()), Some(versions[1].clone())]);
    assert_eq!(store.sweep(), 1, "the first version's chunk");
    assert!(!store.has_chunk(chunks[0].0) && chunks[1..].iter().all(|(id, _)| store.chunk(*id).is_some()));
    let journals = disk.files().iter().filter(|(path, _)| path.to_string_lossy().contains("journal")).count();
    assert_eq!(journals, 2);
    store.commit(&versions[2]).unwrap();
    assert_eq!(store.versions()[1], Some(versions[1].clone()), "the same again changes nothing");
    store.uncommit().unwrap();
    assert_eq!(store.versions(), [Some(versions[1].clone()), None]);
    // Another filter of the same name has no version before its first.
    let other = version(2, 1, &[]);
    store.commit(&other).unwrap();
    assert_eq!(store.versions(), [Some(other), None]);
}

#[test]
fn what_is_damaged_is_thrown_away() {
    let disk = MemoryDisk::default();
    let store = store(&disk);
    let (id, bytes) = chunk(1);
    store.put_chunk(id, &bytes).unwrap();
    store.commit(&version(1, 1, &[id])).unwrap();
    store.commit(&version(1, 2, &[id])).unwrap();
    damage(&disk, |path| path.to_string_lossy().contains("chunks"));
    assert_eq!(store.chunk(id), None);
    assert!(!store.has_chunk(id), "it would only be in the way");
    damage(&disk, |path| path.ends_with("current.version"));
    assert_eq!(store.versions().map(|version| version.map(|version| version.number)), [None, Some(1)]);
}

#[test]
fn a_commit_survives_a_power_cut_at_any_moment() {
    let (old, new) = (version(1, 1, &[]), version(1, 2, &[]));
    for nth in 1.. {
        let disk = MemoryDisk::default();
        store(&disk).commit(&old).unwrap();
        disk.fail_at(nth, Fault::Full);
        let done = store(&disk).commit(&new).is_ok();
        for seed in 0..8 {
            let disk = disk.after_power_cut(seed);
            let [current, previous] = store(&disk).versions();
            let newest = current.or(previous).expect("one of them is whole");
            assert!(newest == new || !done && newest == old, "{nth} {seed}");
        }
        if done {
            break;
        }
    }
}

#[test]
fn a_journal_comes_back_up_to_what_is_whole() {
    let disk = MemoryDisk::default();
    let store = store(&disk);
    let version = version(1, 1, &[]);
    let mut journal = store.new_journal(&version).unwrap();
    let frames: Vec<Frame> = (1..=100).map(reached).collect();
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    journal.append(&bytes).unwrap();
    let each = bytes.len() / 100;
    for cut in [0, 1, each - 1, each, 10 * each + 3, 100 * each] {
        let copy = disk.copied();
        let store = self::store(&copy);
        let path =
            copy.files().into_iter().find(|(path, _)| path.to_string_lossy().contains("journal")).unwrap();
        copy.tamper(&path.0, |bytes| bytes.truncate(cut));
        let mut found = Vec::new();
        let mut journal = store
            .journal(&version, |frame| {
                found.push(frame);
                Ok(())
            })
            .unwrap();
        assert_eq!(found, frames[..cut / each]);
        // What comes later stands behind what is whole.
        let mut more = Vec::new();
        reached(1_000).encode(&mut more);
        journal.append(&more).unwrap();
        let mut last = None;
        store
            .journal(&version, |frame| {
                last = Some(frame);
                Ok(())
            })
            .unwrap();
        assert_eq!(last, Some(reached(1_000)));
    }
}

#[test]
fn every_flipped_bit_of_a_journal_ends_it_there() {
    let disk = MemoryDisk::default();
    let store = store(&disk);
    let version = version(1, 1, &[]);
    let mut bytes = Vec::new();
    let frames = [reached(1), Frame::Chunk(Bytes::from_static(b"c")), reached(2)];
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    store.new_journal(&version).unwrap().append(&bytes).unwrap();
    let path = Path::new(FOLDER).join("journal-0000000000000001-1");
    for bit in 0..bytes.len() * 8 {
        let disk = disk.copied();
        disk.tamper(&path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let mut found = Vec::new();
        let store = self::store(&disk);
        let read = store.journal(&version, |frame| {
            found.push(frame);
            Ok(())
        });
        assert!(
            read.is_ok() && found.len() < 3 && found[..] == frames[..found.len()],
            "bit {bit}: {found:?}"
        );
    }
}
