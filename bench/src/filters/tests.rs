use std::collections::HashSet;
use std::error::Error;

use super::keys::{Keys, Kind, absent, present, with_keys};
use super::peers::{Mode, Peer, SplitBlock, Umbel};
use crate::measure::{median, smoothed_mean};

#[test]
fn texts_are_distinct_and_of_the_promised_length() {
    let numbers = (0..50_000).chain(absent(50_000, 3));
    with_keys(Kind::Text, numbers, |keys| {
        let texts = if let Keys::Text(texts) = keys { texts } else { &[] };
        let lengths: HashSet<_> = texts.iter().map(|text| text.len()).collect();
        assert_eq!(lengths, (16..=25).collect());
        assert_eq!(texts.iter().collect::<HashSet<_>>().len(), 100_000);
    });
}

#[test]
fn present_keys_were_filled_in_and_absent_ones_were_not() {
    assert!(present(1000, 5000, 2).all(|number| number < 1000));
    assert!(absent(5000, 0).chain(absent(5000, 1)).all(|number| number >= 1 << 40));
}

#[test]
fn filters_find_what_they_were_given_and_hold_their_error() -> Result<(), Box<dyn Error>> {
    const N: u64 = 20_000;
    for kind in Kind::ALL {
        let ours = Umbel::new("umbel", Mode::Batch, &umbel_filter::Spec::bloom(N, 1e-2))?;
        let peers: [Box<dyn Peer>; 2] = [Box::new(ours), Box::new(SplitBlock::new(N, 1e-2))];
        for mut peer in peers {
            with_keys(kind, 0..N, |keys| peer.insert(keys))?;
            assert_eq!(with_keys(kind, 0..N, |keys| peer.contains(keys)), N as usize);
            let wrong = with_keys(kind, absent(100_000, 0), |keys| peer.contains(keys));
            assert!((500..1100).contains(&wrong), "{} errs {wrong} times in 100000", peer.name());
        }
    }
    Ok(())
}

#[test]
fn medians_ignore_what_disturbs_a_few_samples() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(smoothed_mean(&[1.0, 1.0, 90.0, 1.0, 1.0, 2.0, 2.0, 2.0, 50.0, 2.0]), 1.5);
}
