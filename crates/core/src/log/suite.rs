//! The contract of [`Log`] as tests, for every implementation: call [`all`] with an empty log of two partitions or more.

use bytes::Bytes;

use super::{Bounds, Log};
use crate::limits::ENTRY_BYTES_MAX;
use crate::{Error, Position};

/// What [`all`] runs, for tables of what passed.
pub const CASES: [&str; 6] = [
    "appends are read in order",
    "partitions are apart",
    "reads are bounded",
    "entries of every size survive",
    "nonsense is refused",
    "trims and says so",
];

/// Runs every test of the suite, each in a partition of its own as far as there are some.
///
/// # Panics
/// When the log breaks its contract.
pub async fn all(log: &dyn Log) {
    assert!(log.partitions() >= 2, "the suite needs two partitions");
    appends_are_read_in_order(log, 0).await;
    partitions_are_apart(log).await;
    reads_are_bounded(log, 0).await;
    entries_of_every_size_survive(log, 1).await;
    nonsense_is_refused(log).await;
    trims_and_says_so(log, 1).await;
}

fn entries(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
}

async fn bounds(log: &dyn Log, partition: u32) -> Bounds {
    log.bounds(partition).await.expect("bounds")
}

/// Everything after a position, however often one has to ask.
///
/// # Panics
/// When a read fails, or goes backwards.
pub async fn read_all(log: &dyn Log, partition: u32, after: Position) -> Vec<(Position, Bytes)> {
    let mut all: Vec<(Position, Bytes)> = Vec::new();
    loop {
        let last = all.last().map_or(after, |(position, _)| *position);
        let records = log.read(partition, last, 1 << 16).await.expect("read");
        if records.is_empty() {
            return all;
        }
        for record in records {
            assert!(record.position > all.last().map_or(after, |(position, _)| *position), "positions grow");
            all.push((record.position, record.entry));
        }
    }
}

/// What was appended is read back, in order, from any position on.
///
/// # Panics
/// When the log breaks its contract.
pub async fn appends_are_read_in_order(log: &dyn Log, partition: u32) {
    let start = bounds(log, partition).await.tail;
    let first = log.append_after(partition, entries(&["a", "b"]), start).await.expect("append");
    // Whoever has read less than there is must not be told that it knows all.
    let next = log.append_after(partition, entries(&["c"]), first.positions[0]).await.expect("append");
    assert!(!next.is_next, "{next:?}, and the one before it was not read");
    let positions = [first.positions, next.positions].concat();
    assert!(start < positions[0] && positions[0] < positions[1] && positions[1] < positions[2]);
    assert_eq!(bounds(log, partition).await.tail, positions[2]);

    let expected: Vec<_> = positions.iter().copied().zip(entries(&["a", "b", "c"])).collect();
    assert_eq!(read_all(log, partition, start).await, expected);
    assert_eq!(read_all(log, partition, positions[0]).await, expected[1..]);
    assert!(read_all(log, partition, positions[2]).await.is_empty());
    assert!(log.append(partition, Vec::new()).await.expect("nothing to append").positions.is_empty());
}

/// What was acknowledged to one is there for another who has the same log open, at once and without a look at its bounds: "nothing more"
/// is true. It is apart from [`all`], because it needs both.
///
/// # Panics
/// When the log breaks its contract.
pub async fn reads_reach_the_end(one: &dyn Log, other: &dyn Log, partition: u32) {
    let mut after = bounds(other, partition).await.tail;
    for number in 0..100 {
        let entry = Bytes::from(format!("number {number}"));
        let appended = one.append(partition, vec![entry.clone()]).await.expect("append");
        let read = other.read(partition, after, 1 << 16).await.expect("read");
        let found: Vec<_> = read.into_iter().map(|record| (record.position, record.entry)).collect();
        assert_eq!(found, [(appended.positions[0], entry)], "number {number} was acknowledged");
        after = appended.positions[0];
    }
}

/// A partition shows nothing of its neighbours.
///
/// # Panics
/// When the log breaks its contract.
pub async fn partitions_are_apart(log: &dyn Log) {
    let starts = [bounds(log, 0).await.tail, bounds(log, 1).await.tail];
    log.append(0, entries(&["for zero"])).await.expect("append");
    log.append(1, entries(&["for one"])).await.expect("append");
    for (partition, text) in [(0, "for zero"), (1, "for one")] {
        let read = read_all(log, partition, starts[partition as usize]).await;
        assert_eq!(read.iter().map(|(_, entry)| entry.clone()).collect::<Vec<_>>(), entries(&[text]));
    }
}

/// A read stops near its bound, but never gives nothing where there is something.
///
/// # Panics
/// When the log breaks its contract.
pub async fn reads_are_bounded(log: &dyn Log, partition: u32) {
    let start = bounds(log, partition).await.tail;
    let big = vec![Bytes::from(vec![7; 1000]); 20];
    let positions = log.append(partition, big).await.expect("append").positions;
    let some = log.read(partition, start, 5000).await.expect("read");
    assert!((1..=10).contains(&some.len()), "{} entries of 1000 bytes in 5000", some.len());
    let one = log.read(partition, start, 1).await.expect("read");
    assert_eq!((one.len(), one[0].position), (1, positions[0]));
}

/// One byte, and the most that is allowed.
///
/// # Panics
/// When the log breaks its contract.
pub async fn entries_of_every_size_survive(log: &dyn Log, partition: u32) {
    let start = bounds(log, partition).await.tail;
    let sizes = [1, 2, 7, 8, 9, 4095, 4096, 65_537, ENTRY_BYTES_MAX];
    let all: Vec<_> =
        sizes.iter().map(|size| Bytes::from_iter((0..*size).map(|i| (i * 31 % 251) as u8))).collect();
    for entry in &all {
        log.append(partition, vec![entry.clone()]).await.expect("append");
    }
    let read: Vec<_> = read_all(log, partition, start).await.into_iter().map(|(_, entry)| entry).collect();
    assert!(read == all);
}

/// Unknown partitions, entries that are empty or too large, and positions from nowhere.
///
/// # Panics
/// When the log breaks its contract.
pub async fn nonsense_is_refused(log: &dyn Log) {
    let tail = bounds(log, 0).await.tail;
    let nowhere = log.partitions();
    let invalid =
        |outcome: Result<(), Error>| assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    invalid(log.append(nowhere, entries(&["a"])).await.map(drop));
    invalid(log.read(nowhere, Position::START, 1).await.map(drop));
    invalid(log.bounds(nowhere).await.map(drop));
    invalid(log.trim(nowhere, Position::START).await);
    invalid(log.append(0, vec![Bytes::from_static(b"a"), Bytes::new()]).await.map(drop));
    invalid(log.append(0, vec![Bytes::from(vec![0; ENTRY_BYTES_MAX + 1])]).await.map(drop));
    assert_eq!(bounds(log, 0).await.tail, tail, "nothing of it was appended");
    let beyond = Position::from_number(u128::MAX);
    let outcome = log.read(0, beyond, 1).await;
    assert!(matches!(&outcome, Err(Error::Invalid(_))) || outcome.is_ok_and(|records| records.is_empty()));
}

/// After a trim the rest is there, and whoever asks for more is told.
///
/// # Panics
/// When the log breaks its contract.
pub async fn trims_and_says_so(log: &dyn Log, partition: u32) {
    let before = bounds(log, partition).await;
    // Enough to fill what the log keeps as a whole.
    let mut positions = Vec::new();
    for _ in 0..8 {
        let largest = vec![Bytes::from(vec![1; ENTRY_BYTES_MAX])];
        positions.extend(log.append(partition, largest).await.expect("append").positions);
    }
    let middle = positions[5];
    log.trim(partition, middle).await.expect("trim");
    let after = bounds(log, partition).await;
    assert!(
        after.oldest <= middle && after.oldest >= before.oldest && after.tail == positions[7],
        "{after:?}"
    );
    assert_eq!(read_all(log, partition, middle).await.len(), 2);
    if after.oldest > before.oldest {
        let outcome = log.read(partition, before.oldest, 1).await;
        assert!(matches!(outcome, Err(Error::Trimmed { oldest }) if oldest == after.oldest), "{outcome:?}");
    }
    log.trim(partition, Position::START).await.expect("a trim never goes back");
    assert_eq!(bounds(log, partition).await, after);
    log.append(partition, entries(&["after the trim"])).await.expect("append");
    assert_eq!(read_all(log, partition, positions[7]).await.len(), 1);
}
