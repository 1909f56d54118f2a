//! Damaged, cut and hostile runs are refused: whatever is answered is right.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use umbel_core::archive::{Cover, MAGIC, Run, inspect};
use umbel_core::{Error, Result};
use umbel_filter::Fingerprint;

use crate::support::{Model, Random, in_memory, key, scanned, tallies, write};

const PATH: &str = "slots/3/run";
const COVER: Cover = Cover { low: 10, high: 19, slot: 3 };

fn small_model() -> Model {
    let mut random = Random(5);
    let mut section = |counted, count| (counted, random.nets(counted, count, 1 << 40));
    Model::from([
        (2, section(false, 1000)),
        (3, section(true, 900)),
        (70, section(false, 10)),
        (90, section(true, 3)),
    ])
}

async fn small_run() -> (Arc<dyn ObjectStore>, Run, Vec<u8>, Model) {
    let (store, model) = (in_memory(), small_model());
    let run = write(&store, PATH, COVER, &model).await;
    let bytes = store.get(run.path()).await.unwrap().bytes().await.unwrap().to_vec();
    (store, run, bytes, model)
}

async fn replace(store: &Arc<dyn ObjectStore>, bytes: &[u8]) {
    store.put(&Path::from(PATH), Bytes::copy_from_slice(bytes).into()).await.unwrap();
}

/// The message, if it is that of a damaged blob and names it with a place.
fn damage<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Corrupt(message)) if message.starts_with(&format!("{PATH} at byte ")) => message,
        other => panic!("{other:?}"),
    }
}

/// Compares all that the run answers with the model: how many answers were right, and how many refused.
async fn right_or_refused(run: &Run, model: &Model) -> (usize, usize) {
    let (mut right, mut refused) = (0, 0);
    for (filter, (_, nets)) in model {
        match scanned(run, *filter).await {
            Ok(all) => assert_eq!(all, tallies(nets)),
            error => drop(damage(error)),
        }
        let keys: Vec<Fingerprint> = nets.keys().copied().step_by(41).collect();
        for key in keys {
            match run.nets(*filter, &[key]).await {
                Ok(found) => {
                    assert_eq!(found, [i64::from(nets[&key])]);
                    right += 1;
                }
                error => {
                    damage(error);
                    refused += 1;
                }
            }
        }
    }
    (right, refused)
}

#[tokio::test]
async fn the_bytes_are_those_of_version_1() {
    let (_, _, bytes, _) = small_run().await;
    assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (45312, 0xf2c7_fbf0));
}

#[tokio::test]
async fn flipped_bits_are_noticed() {
    let (store, run, mut bytes, model) = small_run().await;
    let footer = bytes.len() - bytes.len() % 4096;
    let mut random = Random(77);
    let anywhere = (0..3500).map(|_| random.below(bytes.len() as u64 * 8) as usize);
    let flips: Vec<usize> = anywhere.chain(footer * 8..bytes.len() * 8).collect();
    let (mut at_open, mut at_verify, mut right, mut refused) = (0, 0, 0, 0);
    for bit in &flips {
        bytes[bit / 8] ^= 1 << (bit % 8);
        replace(&store, &bytes).await;
        match Run::open(&store, Path::from(PATH)).await {
            Ok(opened) => {
                at_verify += 1;
                damage(opened.verify().await);
                let (fine, wrong) = right_or_refused(&opened, &model).await;
                right += fine;
                refused += wrong;
            }
            error => {
                at_open += 1;
                damage(error);
            }
        }
        // One that was open before answers rightly too, or not at all.
        damage(run.verify().await);
        if bit % 8 == 0 {
            right_or_refused(&run, &model).await;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    println!(
        "{} flips in {} bytes: {at_open} refused at opening, {at_verify} when verified; of the lookups in between \
         {right} were right and {refused} refused",
        flips.len(),
        bytes.len()
    );
    assert!(flips.len() > 3000 && right > 0 && refused > 0);
    replace(&store, &bytes).await;
    run.verify().await.unwrap();
}

#[tokio::test]
async fn runs_that_were_cut_are_refused() {
    let (store, run, bytes, _) = small_run().await;
    let footer = bytes.len() - bytes.len() % 4096;
    let lengths: Vec<usize> =
        (0..footer).step_by(61).chain((0..footer).step_by(4096)).chain(footer..bytes.len()).collect();
    for length in &lengths {
        replace(&store, &bytes[..*length]).await;
        damage(Run::open(&store, Path::from(PATH)).await);
        assert!(run.verify().await.is_err());
    }
    let longer = [&bytes[..], &[0]].concat();
    replace(&store, &longer).await;
    damage(Run::open(&store, Path::from(PATH)).await);
    println!("{} lengths refused", lengths.len());
}

#[tokio::test]
async fn pages_cannot_change_places() {
    let (store, run, bytes, model) = small_run().await;
    let mut swapped = bytes.clone();
    let (one, two) = (1..2, 2..3);
    swapped[one.start * 4096..one.end * 4096].copy_from_slice(&bytes[two.start * 4096..two.end * 4096]);
    swapped[two.start * 4096..two.end * 4096].copy_from_slice(&bytes[one.start * 4096..one.end * 4096]);
    replace(&store, &swapped).await;
    let message = damage(run.verify().await);
    assert!(message.contains("byte 4096"), "{message}");

    // The same records at the same place in a run of another slot.
    let other = write(&store, "other", Cover { slot: 4, ..COVER }, &model).await;
    let mut foreign = store.get(other.path()).await.unwrap().bytes().await.unwrap().to_vec();
    foreign[..3 * 4096].copy_from_slice(&bytes[..3 * 4096]);
    store.put(other.path(), foreign.into()).await.unwrap();
    assert!(matches!(other.verify().await, Err(Error::Corrupt(_))));
}

/// Changes bytes of the footer, counted from its beginning, and makes its checksum right again.
fn with_footer(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let footer = bytes.len() - bytes.len() % 4096;
    bytes[footer + at..footer + at + new.len()].copy_from_slice(new);
    let end = bytes.len();
    let sum = crc32c::crc32c(&bytes[footer..end - 12]);
    bytes[end - 12..end - 8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[tokio::test]
async fn hostile_footers_are_refused() {
    let (store, run, bytes, _) = small_run().await;
    assert_eq!(bytes[..8], MAGIC);
    let sections: Vec<_> = run.filters().collect();
    assert_eq!(sections.len(), 4);
    let footer_bytes = bytes.len() % 4096;
    let section = |number: usize, at: usize| 32 + 32 * number + at;
    let index = section(4, 0);
    let mut hostile: Vec<(&str, usize, Vec<u8>)> = vec![
        ("another magic", 0, vec![0]),
        ("another version", 8, vec![2]),
        ("no sections", 12, vec![0; 4]),
        ("fewer sections", 12, vec![3, 0, 0, 0]),
        ("more sections", 12, vec![5, 0, 0, 0]),
        ("very many sections", 12, vec![255; 4]),
        ("covers backwards", 16, vec![255; 8]),
        ("filters out of order", section(1, 0), vec![1, 0, 0, 0, 0, 0, 0, 0]),
        ("a filter twice", section(1, 0), vec![2, 0, 0, 0, 0, 0, 0, 0]),
        ("no records", section(0, 8), vec![0; 8]),
        ("very many records", section(0, 8), vec![255; 8]),
        ("records for more pages", section(0, 8), 2000u64.to_le_bytes().to_vec()),
        ("overlapping sections", section(1, 16), 3u64.to_le_bytes().to_vec()),
        ("a section over the header", section(0, 16), vec![0; 8]),
        ("a section far away", section(1, 16), vec![255; 8]),
        ("no pages", section(0, 24), vec![0; 4]),
        ("very many pages", section(3, 24), vec![255; 4]),
        ("records of 17 bytes", section(0, 28), vec![17]),
        ("something reserved", section(0, 29), vec![1]),
        ("an index out of order", index, vec![255; 8]),
    ];
    for length in
        [0, 1, footer_bytes as u32 - 1, footer_bytes as u32 + 1, footer_bytes as u32 + 4096, u32::MAX]
    {
        hostile.push(("another length", footer_bytes - 16, length.to_le_bytes().to_vec()));
    }
    // As many records and pages as fit together, far beyond the blob.
    let footer = bytes.len() - footer_bytes;
    let pages = 1u32 << 23;
    let beyond = [
        &(u64::from(pages) * 204).to_le_bytes()[..],
        &bytes[footer + section(3, 16)..footer + section(3, 24)],
        &pages.to_le_bytes(),
    ];
    hostile.push(("pages beyond the blob", section(3, 8), beyond.concat()));
    for (what, at, new) in &hostile {
        let changed = with_footer(&bytes, *at, new);
        assert_ne!(changed, bytes, "{what}");
        replace(&store, &changed).await;
        println!("{what}: {}", damage(Run::open(&store, Path::from(PATH)).await));
    }

    // What only the pages can tell.
    let records = (sections[0].2 - 1).to_le_bytes();
    for (what, at, new) in
        [("a record fewer", section(0, 8), &records[..]), ("another index", index, &[0; 8])]
    {
        replace(&store, &with_footer(&bytes, at, new)).await;
        assert!(Run::open(&store, Path::from(PATH)).await.is_ok(), "{what}");
        println!("{what}: {}", damage(inspect(&store, Path::from(PATH)).await));
    }
}

/// A page is sound by its checksum, but its records are not: only a writer with a fault does this.
#[tokio::test]
async fn records_out_of_order_are_refused() {
    let (store, run, bytes, _) = small_run().await;
    // The last record of the first page comes before those in front of it, or after those of the next page.
    for wrong in [key(0, 0), key(u64::MAX, 0)] {
        let mut changed = bytes.clone();
        let page = &mut changed[4096..2 * 4096];
        let last = 8 + 254 * 16;
        page[last..last + 16].copy_from_slice(&wrong.to_bytes());
        let mut place = [0; 32];
        place[..8].copy_from_slice(&COVER.low.to_le_bytes());
        place[8..16].copy_from_slice(&COVER.high.to_le_bytes());
        place[16..18].copy_from_slice(&COVER.slot.to_le_bytes());
        place[24..].copy_from_slice(&1u64.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&place), &page[4..]);
        page[..4].copy_from_slice(&sum.to_le_bytes());
        replace(&store, &changed).await;
        let message = damage(run.verify().await);
        assert!(message.contains("order"), "{message}");
        let message = damage(run.scan(2).next_keys().await.map(|keys| keys.map(<[_]>::len)));
        assert!(message.contains("order"), "{message}");
    }
}

#[tokio::test]
async fn another_run_in_its_place_is_noticed() {
    let (store, run, _, mut model) = small_run().await;
    model.remove(&90);
    write(&store, PATH, COVER, &model).await.verify().await.unwrap();
    damage(run.verify().await);
}
