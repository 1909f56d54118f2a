use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const COVER: Cover = Cover { low: 3, high: 9, slot: 7 };

fn key(first: u64, second: u64) -> Fingerprint {
    Fingerprint { first, second }
}

fn written(records: &[Tally], counted: bool, number: u64) -> (Vec<u8>, Expected) {
    let mut page = vec![0; PAGE_BYTES];
    Tally::encode(records, counted, &mut page[HEAD_BYTES..]);
    seal(&mut page, COVER, number, counted, records.len());
    let first = records[0].key.first;
    (page, Expected { cover: COVER, number, counted, records: records.len(), first })
}

fn some_records(counted: bool) -> Vec<Tally> {
    let net = |i: usize| if counted { i as i32 - 3000 } else { 1 };
    (0..page_records(counted)).map(|i| Tally { key: key(i as u64 * 5, 1), net: net(i) }).collect()
}

#[test]
fn pages_hold_what_the_format_says() {
    assert_eq!((page_records(false), page_records(true)), (255, 204));
    for counted in [false, true] {
        let records = some_records(counted);
        for count in [1, 2, records.len() - 1, records.len()] {
            let (page, expected) = written(&records[..count], counted, 4);
            let mut decoded = Vec::new();
            let bytes = open(&page, &expected).unwrap();
            Tally::decode(bytes, counted, &mut decoded).unwrap();
            assert_eq!(decoded, &records[..count]);
            for (i, record) in records.iter().enumerate() {
                assert_eq!(find(bytes, counted, record.key), (i < count).then_some(record.net));
            }
            assert_eq!(find(bytes, counted, key(1, 1)), None);
        }
    }
}

#[test]
fn a_page_is_refused_at_another_place() {
    let (page, expected) = written(&some_records(false), false, 4);
    let refused = |other: Expected| open(&page, &other).unwrap_err();
    refused(Expected { number: 5, ..expected });
    refused(Expected { cover: Cover { slot: 8, ..COVER }, ..expected });
    refused(Expected { cover: Cover { low: 4, ..COVER }, ..expected });
    refused(Expected { cover: Cover { high: 10, ..COVER }, ..expected });
    refused(Expected { records: 254, ..expected });
    refused(Expected { counted: true, records: 204, ..expected });
    refused(Expected { first: 1, ..expected });
    assert!(open(&page[..4095], &expected).is_err());
}

#[test]
fn every_flipped_bit_of_a_page_is_noticed() {
    let (mut page, expected) = written(&some_records(true)[..100], true, 1);
    for bit in 0..PAGE_BYTES * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&page, &expected).is_err(), "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(open(&page, &expected).is_ok());
}

#[test]
fn a_net_of_nothing_is_refused() {
    let (page, expected) = written(&[Tally { key: key(1, 1), net: 0 }], true, 1);
    let bytes = open(&page, &expected).unwrap();
    assert!(Tally::decode(bytes, true, &mut Vec::new()).is_err());
}

#[test]
fn sums_stay_within_32_bits() {
    let same = |nets: &[i32]| {
        let mut tallies: Vec<_> = nets.iter().map(|net| Tally { key: key(1, 1), net: *net }).collect();
        Tally::combine(&mut tallies);
        tallies.iter().map(|tally| tally.net).collect::<Vec<_>>()
    };
    assert_eq!(same(&[i32::MAX, 5, -3]), [i32::MAX], "clamped after all is summed, not in between");
    assert_eq!(same(&[i32::MAX, 5, -5]), [i32::MAX]);
    assert_eq!(same(&[i32::MIN, -1]), [i32::MIN]);
    assert!(same(&[2, -2]).is_empty());
    assert!(same(&[]).is_empty());
}

proptest! {
    #[test]
    fn the_index_leads_to_every_page_with_a_key(
        records in prop::collection::btree_set((0u64..12, 0u64..12), 1..60),
        page_records in 1usize..5,
        asked in (0u64..13, 0u64..13),
    ) {
        let records: Vec<_> = records.into_iter().map(|(first, second)| key(first, second)).collect();
        let pages: Vec<_> = records.chunks(page_records).collect();
        let index: Vec<_> = pages.iter().map(|page| page[0].first).collect();
        let found = page_for(&index, key(asked.0, asked.1));
        for (i, page) in pages.iter().enumerate() {
            if page.iter().any(|record| record.first == asked.0) {
                prop_assert!(found.contains(&i), "page {i} is not in {found:?}");
            }
        }
        // Only the page before the equal ones may be read in vain.
        let equal = index.iter().filter(|first| **first == asked.0).count();
        prop_assert!(found.len() <= equal + 1);
    }

    #[test]
    fn combining_sums(nets in prop::collection::vec((0u64..20, -3i32..4), 0..100)) {
        let mut sums = BTreeMap::<u64, i32>::new();
        nets.iter().for_each(|(first, net)| *sums.entry(*first).or_default() += net);
        sums.retain(|_, net| *net != 0);
        let tally = |(first, net): &(u64, i32)| Tally { key: key(*first, 0), net: *net };
        let mut tallies: Vec<_> = nets.iter().map(tally).collect();
        tallies.sort_by_key(Record::order);
        Tally::combine(&mut tallies);
        let found: BTreeMap<_, _> = tallies.iter().map(|tally| (tally.key.first, tally.net)).collect();
        prop_assert_eq!(found, sums);
        prop_assert!(tallies.is_sorted_by(|a, b| a.order() < b.order()));
    }
}
