use std::collections::BTreeMap;
use std::path::PathBuf;

use umbel_core::disk::{Fault, MemoryDisk};
use umbel_core::random::SeededRandom;

use super::*;
use crate::view::Views;

fn key(number: u64) -> Fingerprint {
    Fingerprint { first: number, second: !number }
}

fn store(disk: &MemoryDisk) -> Store {
    Store::open(Arc::new(disk.clone()), PathBuf::from("/replica")).unwrap()
}

fn open(disk: &MemoryDisk, dedup: bool) -> Spool {
    Spool::open(Some(&store(disk)), filter(1, dedup), &SeededRandom::new(disk.operations())).unwrap()
}

fn filter(number: u64, dedup: bool) -> Target {
    Target { filter: number, deployment: None, line: "murmur3 f".to_owned(), is_successor: false, dedup }
}

/// A centre that does every request of a session once.
#[derive(Default)]
struct Centre {
    last: BTreeMap<u64, u64>,
    counts: BTreeMap<Fingerprint, i64>,
}

impl Centre {
    fn take(&mut self, batch: &Batch) {
        let last = self.last.entry(batch.session).or_default();
        assert!(batch.sequence >= *last, "{batch:?} after {last}");
        if batch.sequence > *last {
            *last = batch.sequence;
            let by = if batch.change == Change::Add { 1 } else { -1 };
            batch.keys.iter().for_each(|key| *self.counts.entry(*key).or_default() += by);
        }
    }
}

#[test]
fn keys_are_sent_in_order_in_requests_of_one_kind() {
    let mut spool = Spool::open(None, filter(1, false), &SeededRandom::new(1)).unwrap();
    let many: Vec<_> = (0..25_000).map(key).collect();
    spool.push(vec![(Change::Add, many.clone(), 1), (Change::Add, vec![key(7)], 2)]).unwrap();
    spool.push(vec![(Change::Remove, vec![key(7)], 3), (Change::Add, vec![key(8)], 4)]).unwrap();
    let (mut sent, mut shapes) = (Vec::new(), Vec::new());
    while let Some(batch) = spool.seal().unwrap().cloned() {
        assert_eq!(spool.seal().unwrap(), Some(&batch), "the same until it is done");
        shapes.push((batch.sequence, batch.change, batch.keys.len(), batch.through));
        sent.extend(batch.keys);
        spool.done(&Token::default());
    }
    assert_eq!(
        shapes,
        [
            (1, Change::Add, 10_000, 0),
            (2, Change::Add, 10_000, 0),
            (3, Change::Add, 5_001, 2),
            (4, Change::Remove, 1, 3),
            (5, Change::Add, 1, 4)
        ]
    );
    assert_eq!(sent[..25_000], many);
    assert_eq!(spool.keys(), 0);
}

#[test]
fn whatever_happens_each_key_counts_once() {
    for seed in 0..200 {
        let random = SeededRandom::new(seed);
        let mut disk = MemoryDisk::default();
        let mut spool = open(&disk, false);
        let mut centre = Centre::default();
        let (mut promised, mut next): (BTreeMap<Fingerprint, i64>, u64) = (BTreeMap::new(), 0);
        for _ in 0..60 {
            match random.next() % 8 {
                0..=2 => {
                    let keys: Vec<_> = (next..next + random.next() % 5_000).map(key).collect();
                    next += keys.len() as u64;
                    spool.push(vec![(Change::Add, keys.clone(), 1)]).unwrap();
                    keys.into_iter().for_each(|key| *promised.entry(key).or_default() += 1);
                }
                3 if next > 0 => {
                    let gone = vec![key(random.next() % next)];
                    spool.push(vec![(Change::Remove, gone.clone(), 1)]).unwrap();
                    *promised.entry(gone[0]).or_default() -= 1;
                }
                4 | 5 => {
                    if let Some(batch) = spool.seal().unwrap().cloned() {
                        centre.take(&batch);
                        // Half of the time nobody hears the answer.
                        if random.next().is_multiple_of(2) {
                            spool.done(&Token::default());
                        }
                    }
                }
                6 => {
                    drop(spool);
                    disk = disk.after_power_cut(random.next());
                    spool = open(&disk, false);
                }
                _ => {}
            }
        }
        while let Some(batch) = spool.seal().unwrap().cloned() {
            centre.take(&batch);
            spool.done(&Token::default());
        }
        assert_eq!(centre.counts, promised, "seed {seed}");
    }
}

#[test]
fn a_disk_that_fails_takes_nothing_that_was_promised() {
    for nth in 1..40 {
        let disk = MemoryDisk::default();
        let mut spool = open(&disk, true);
        let mut promised = Vec::new();
        disk.fail_at(nth, Fault::Broken);
        for number in 0..20 {
            if spool.push(vec![(Change::Add, vec![key(number)], number)]).is_ok() {
                promised.push(key(number));
            }
            if number % 5 == 4 && spool.seal().is_ok_and(|batch| batch.is_some()) {
                // It is sent, and nobody hears of it.
            }
        }
        assert!(promised.len() >= 19, "one failure, one refusal");
        let mut spool = open(&disk.after_power_cut(nth), true);
        let mut sent = Vec::new();
        while let Some(batch) = spool.seal().unwrap().cloned() {
            sent.extend(batch.keys);
            spool.done(&Token::default());
        }
        assert!(promised.iter().all(|key| sent.contains(key)), "{nth}");
    }
}

#[test]
fn the_file_stays_short_while_keys_come_and_go() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, true);
    for round in 0..200_u64 {
        let keys = (0..10_000).map(|number| key(round * 10_000 + number)).collect();
        spool.push(vec![(Change::Add, keys, round)]).unwrap();
        spool.seal().unwrap();
        spool.done(&Token::default());
        spool.settle(|_| true);
    }
    let bytes: u64 = disk.files().iter().map(|(_, bytes)| *bytes).sum();
    assert!(bytes < 2 * SPOOL_FILE_BYTES, "{bytes}");
    assert_eq!(open(&disk, true).sequence, 200);
}

#[test]
fn keys_of_another_filter_are_dropped_and_sequences_go_on() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, true);
    spool.push(vec![(Change::Add, vec![key(1), key(1)], 1)]).unwrap();
    assert_eq!(spool.seal().unwrap().unwrap().keys, [key(1)], "twice is once");
    let session = spool.session;
    let mut other = Spool::open(Some(&store(&disk)), filter(2, true), &SeededRandom::new(9)).unwrap();
    assert_eq!((other.keys(), other.session, other.sequence), (0, session, 1));
    assert_eq!(other.seal().unwrap(), None);
}

#[test]
fn keys_are_for_the_filter_that_took_the_place_of_another() {
    let successor = |number| Target { is_successor: true, ..filter(number, false) };
    let disk = MemoryDisk::default();
    let open = |target| Spool::open(Some(&store(&disk)), target, &SeededRandom::new(9)).unwrap();
    let mut spool = open(filter(1, true));
    spool.push(vec![(Change::Add, vec![key(1), key(1)], 1), (Change::Remove, vec![key(2)], 2)]).unwrap();
    // It was sent to the first filter, and nobody heard of it.
    let sent = spool.seal().unwrap().cloned().unwrap();
    assert_eq!(spool.go_on_with(successor(2)).unwrap(), 0);
    assert_eq!((spool.keys(), spool.filter()), (3, 2));
    assert_eq!(spool.seal().unwrap(), Some(&sent));
    spool.done(&Token::default());
    drop(spool);
    // Those between are gone by now.
    let mut spool = open(successor(5));
    assert_eq!((spool.keys(), spool.sequence, spool.filter()), (1, 1, 5));
    assert_eq!(spool.seal().unwrap().unwrap().change, Change::Remove);
    drop(spool);
    // Another name, or other hashes: it was filled to take the place of a filter that has nothing to do with this one.
    let stranger = Target { line: "xxh3 f".to_owned(), ..successor(6) };
    assert_eq!(open(stranger).keys(), 0);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut whole = Vec::new();
    put_opened(&mut whole, &[5, 0, 1], "murmur3 f");
    put_keys(&mut whole, Change::Add, &[key(1), key(2)]);
    put(&mut whole, tag::SEALED, &[1, 2]);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (mut rest, mut records) = (&bytes[..], 0);
        while take(&mut rest).is_some() {
            records += 1;
        }
        assert!(records < 3, "bit {bit}");
    }
}

#[test]
fn keys_that_only_the_centre_has_are_visible_after_a_restart() {
    let position: Token = "0:7,3:1f".parse().unwrap();
    for settled in [false, true] {
        let disk = MemoryDisk::default();
        let mut spool = open(&disk, true);
        spool.push(vec![(Change::Add, vec![key(1), key(2)], 1)]).unwrap();
        spool.seal().unwrap();
        spool.done(&position);
        spool.settle(|token| settled && *token == position);
        spool.push(vec![(Change::Add, vec![key(3)], 2)]).unwrap();
        for _ in 0..2 {
            // What a rewritten file says is the same.
            let mut spool = open(&disk, true);
            let views = Views::default();
            let overlay = Overlay::new(views.clone());
            let shown = spool.show(&overlay).unwrap();
            assert_eq!(shown, (!settled).then(|| (1, position.clone())));
            let visible = [1, 2, 3].map(|number| views.load().has_own(key(number)));
            assert_eq!(visible, [!settled, !settled, true]);
            assert_eq!((spool.keys(), spool.sequence), (1, 1));
        }
    }
}
