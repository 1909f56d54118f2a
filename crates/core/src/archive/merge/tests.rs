use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Feeds lists to the step in chunks, as a merge of runs does.
fn merged_in_chunks<R: Record>(lists: &[Vec<R>], chunk: usize) -> Vec<R> {
    let mut feeds: Vec<_> = lists.iter().map(|list| list.chunks(chunk)).collect();
    let mut lanes: Vec<Lane<R>> = lists.iter().map(|_| Lane::default()).collect();
    let (mut all, mut out) = (Vec::new(), Vec::new());
    loop {
        for (feed, lane) in feeds.iter_mut().zip(&mut lanes) {
            if !lane.ended && lane.taken == lane.records.len() {
                let next = feed.next();
                (lane.records, lane.taken, lane.ended) =
                    (next.unwrap_or_default().to_vec(), 0, next.is_none());
            }
        }
        if lanes.iter().all(|lane| lane.ended) {
            return all;
        }
        step(&mut lanes, &mut out);
        assert!(
            lanes.iter().any(|lane| !lane.ended && lane.taken == lane.records.len()),
            "no lane was emptied"
        );
        all.extend_from_slice(&out);
    }
}

proptest! {
    #[test]
    fn steps_come_to_a_sorted_sum(
        lists in prop::collection::vec(prop::collection::btree_map(0u64..60, -2i32..3, 0..40), 1..7),
        chunk in 1usize..9,
    ) {
        let key = |first: u64| Fingerprint { first: first / 3, second: first % 3 };
        let mut sums = BTreeMap::<Fingerprint, i32>::new();
        for (first, net) in lists.iter().flatten() {
            *sums.entry(key(*first)).or_default() += net;
        }
        let tally = |(first, net): (&u64, &i32)| Tally { key: key(*first), net: *net };
        let tallies: Vec<Vec<_>> = lists.iter().map(|list| list.iter().map(tally).collect()).collect();
        let bare = |list: &Vec<Tally>| list.iter().map(|tally| tally.key).collect();
        let keys: Vec<Vec<_>> = tallies.iter().map(bare).collect();
        prop_assert_eq!(merged_in_chunks(&keys, chunk), sums.keys().copied().collect::<Vec<_>>());
        sums.retain(|_, net| *net != 0);
        let expected: Vec<_> = sums.into_iter().map(|(key, net)| Tally { key, net }).collect();
        prop_assert_eq!(merged_in_chunks(&tallies, chunk), expected);
    }
}
