//! The fold against an exact oracle, and against itself.

use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::*;
use umbel_core::budget::Budget;
use umbel_core::definition::{Definition, Mirror, Window};
use umbel_core::entry::{Entry, Operation, Request};
use umbel_core::fold::{Archived, Means, Outcome, State};
use umbel_core::log::Record;
use umbel_core::{Error, Position};
use umbel_filter::{Family, Fingerprint, Hasher, Layout, Limits, Spec};

const SLOT: u16 = 7;
const BLOOM: u64 = 1;
const COUNTING: u64 = 2;

fn key(number: u8) -> Fingerprint {
    Hasher::new(Family::Murmur3, None).unwrap().fingerprint(&[number])
}

fn state() -> State {
    State::new(SLOT, 256, Means::new(Budget::new(u64::MAX)))
}

fn definition(spec: Spec) -> Bytes {
    Definition::new("urls", spec).encode().unwrap()
}

fn entry(filter: u64, request: Request, operation: Operation) -> Entry {
    Entry { filter, slot: SLOT, request, operation }
}

/// A log in which both filters are defined, and then whatever `operations` say.
fn records(operations: Vec<(u64, Request, Operation)>) -> Vec<Record> {
    let defined = [
        (BLOOM, Request::default(), Operation::Define(definition(Spec::bloom(100, 0.001)))),
        (COUNTING, Request::default(), Operation::Define(definition(Spec::counting(100, 0.001)))),
    ];
    let all = defined.into_iter().chain(operations);
    (1..)
        .zip(all)
        .map(|(number, (filter, request, operation))| Record {
            position: Position::from_number(number * 10),
            entry: entry(filter, request, operation).encode().unwrap(),
        })
        .collect()
}

fn folded(records: &[Record]) -> State {
    let mut state = state();
    records.iter().for_each(|record| {
        state.apply_record(record, &Archived::none()).unwrap();
    });
    state
}

fn operations() -> impl Strategy<Value = Vec<(u64, Request, Operation)>> {
    let keys = prop::collection::vec((0..40_u8).prop_map(key), 0..6);
    let operation = prop_oneof![
        6 => keys.clone().prop_map(Operation::Add),
        2 => keys.clone().prop_map(Operation::Remove),
        3 => keys.prop_map(Operation::AddAbsent),
        1 => Just(Operation::Barrier),
        1 => Just(Operation::Clear),
    ];
    // Few sessions and numbers, so that retries, late ones and gaps are all there.
    let request = (0..3_u64, 0..12_u64).prop_map(|(session, sequence)| Request { session, sequence });
    prop::collection::vec((BLOOM..=COUNTING, request, operation), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What was folded as it came is what a fresh fold of the same log gives, wherever it is interrupted and however the replay
    /// overlaps.
    #[test]
    fn replays_come_to_the_same(operations in operations(), cut: usize, overlap: usize) {
        let records = records(operations);
        let whole = folded(&records);
        let cut = cut % (records.len() + 1);
        let mut resumed = folded(&records[..cut]);
        for record in &records[cut - overlap % (cut + 1)..] {
            resumed.apply_record(record, &Archived::none()).unwrap();
        }
        prop_assert_eq!(resumed.digest(), whole.digest());
        prop_assert_eq!(resumed.applied(), records.last().unwrap().position);
    }

    /// A multiset that does each request once is the oracle.
    #[test]
    fn every_request_has_one_effect_and_one_answer(operations in operations()) {
        let records = records(operations.clone());
        let mut state = folded(&records[..2]);
        let mut held: HashMap<(u64, u8), u64> = HashMap::new();
        let mut sessions: HashMap<u64, (u64, Outcome)> = HashMap::new();
        let mut removed = 0;
        for ((filter, request, operation), record) in operations.iter().zip(&records[2..]) {
            let outcome = state.apply_record(record, &Archived::none()).unwrap();
            let last = sessions.get(&request.session).filter(|_| request.session != 0);
            match last {
                Some((sequence, answer)) if *sequence == request.sequence => {
                    prop_assert_eq!(&outcome, answer);
                    continue;
                }
                Some((sequence, _)) if *sequence > request.sequence => {
                    prop_assert!(matches!(outcome, Outcome::Refused(_)));
                    continue;
                }
                _ => {}
            }
            sessions.insert(request.session, (request.sequence, outcome.clone()));
            let number = |fingerprint: &Fingerprint| (0..40).find(|number| key(*number) == *fingerprint).unwrap();
            match operation {
                Operation::Add(keys) => {
                    prop_assert!(matches!(&outcome, Outcome::Added(new) if new.len() == keys.len()));
                    keys.iter().for_each(|key| *held.entry((*filter, number(key))).or_default() += 1);
                }
                Operation::Remove(keys) if *filter == COUNTING => {
                    let Outcome::Removed(there) = &outcome else { panic!("{outcome:?}") };
                    for (key, there) in keys.iter().zip(there) {
                        let count = held.entry((*filter, number(key))).or_default();
                        prop_assert!(*there || *count == 0, "what is there can be removed");
                        *count = count.saturating_sub(1);
                        removed += u64::from(*there);
                    }
                }
                Operation::AddAbsent(keys) if *filter == COUNTING => {
                    // Exactly: a key that only seems to be there is added, and a key that is named twice is added once.
                    let added = keys.iter().map(|key| {
                        let count = held.entry((*filter, number(key))).or_default();
                        let is_absent = *count == 0;
                        *count += u64::from(is_absent);
                        Some(is_absent)
                    });
                    prop_assert_eq!(&outcome, &Outcome::AddedAbsent(added.collect(), None));
                }
                Operation::Remove(_) | Operation::AddAbsent(_) => {
                    prop_assert!(matches!(outcome, Outcome::Refused(_)));
                }
                Operation::Clear => {
                    held.retain(|(cleared, _), _| cleared != filter);
                    removed = if *filter == COUNTING { 0 } else { removed };
                }
                _ => prop_assert_eq!(outcome, Outcome::Done),
            }
            for ((filter, number), count) in &held {
                let shard = state.shard(*filter).unwrap();
                prop_assert!(*count == 0 || shard.projection().unwrap().contains(key(*number)), "a key is absent");
            }
            for filter in [BLOOM, COUNTING] {
                let counts = state.shard(filter).unwrap().projection().unwrap().counts();
                let of_filter = held.iter().filter(|((of, _), _)| *of == filter);
                prop_assert_eq!(counts.held, of_filter.map(|(_, count)| count).sum::<u64>());
                prop_assert_eq!(counts.removed, if filter == COUNTING { removed } else { 0 });
            }
        }
    }
}

#[test]
fn entries_of_other_slots_are_passed_over() {
    let mut state = folded(&records(Vec::new()));
    let foreign = Entry { slot: SLOT + 1, ..entry(BLOOM, Request::default(), Operation::Add(vec![key(1)])) };
    assert_eq!(
        state.apply(Position::from_number(100), &foreign, &Archived::none()).unwrap(),
        Outcome::Passed
    );
    assert!(!state.shard(BLOOM).unwrap().projection().unwrap().contains(key(1)));
    assert_eq!(state.applied(), Position::from_number(100), "they move the position on");
}

#[test]
fn definitions_are_made_once_and_refused_when_they_differ() {
    let mut state = folded(&records(Vec::new()));
    let mut define = |number, filter, bytes| {
        let define = entry(filter, Request::default(), Operation::Define(bytes));
        state.apply(Position::from_number(number), &define, &Archived::none()).unwrap()
    };
    assert_eq!(define(30, BLOOM, definition(Spec::bloom(100, 0.001))), Outcome::Done, "the same again");
    assert!(matches!(define(31, BLOOM, definition(Spec::bloom(200, 0.001))), Outcome::Refused(_)));
    assert!(matches!(define(32, 9, Bytes::from_static(b"nonsense")), Outcome::Refused(_)));
    let dropped = entry(BLOOM, Request::default(), Operation::Drop);
    assert_eq!(state.apply(Position::from_number(40), &dropped, &Archived::none()).unwrap(), Outcome::Done);
    let add = entry(BLOOM, Request::default(), Operation::Add(vec![key(1)]));
    assert!(matches!(
        state.apply(Position::from_number(41), &add, &Archived::none()).unwrap(),
        Outcome::Refused(_)
    ));
}

#[test]
fn what_a_node_cannot_do_is_an_error_and_changes_nothing() {
    let limits = Limits { filter_bytes_max: 1 << 20, ..Limits::default() };
    let mut state = State::new(SLOT, 256, Means { limits, ..Means::new(Budget::new(u64::MAX)) });
    let large =
        entry(BLOOM, Request::default(), Operation::Define(definition(Spec::bloom(100_000_000, 0.001))));
    let error = state.apply(Position::from_number(10), &large, &Archived::none()).unwrap_err();
    assert!(matches!(&error, Error::Retry(why) if why.contains("1048576")), "{error}");
    assert_eq!(state.applied(), Position::START);
    let damaged = Record { position: Position::from_number(10), entry: Bytes::from_static(b"no entry") };
    assert!(matches!(state.apply_record(&damaged, &Archived::none()), Err(Error::Corrupt(_))));
    assert_eq!(state.applied(), Position::START);
}

#[test]
fn sessions_are_remembered_within_bounds() {
    let mut state = folded(&records(Vec::new()));
    let mut apply = |session: u64, position: u128| {
        let request = Request { session, sequence: 1 };
        let add = entry(BLOOM, request, Operation::Add(vec![key(session as u8); 1000]));
        state.apply(Position::from_number(position), &add, &Archived::none()).unwrap()
    };
    let first = apply(1, 100);
    for session in 2..5000 {
        apply(session, 100 + u128::from(session));
    }
    // The newest is remembered, the oldest long forgotten: its request counts as new, and its keys as known.
    let newest = apply(4999, 10_000);
    assert!(matches!(&newest, Outcome::Added(new) if new.len() == 1000));
    let forgotten = apply(1, 10_001);
    assert!(matches!(&first, Outcome::Added(new) if new[0]));
    assert!(matches!(&forgotten, Outcome::Added(new) if !new[0]));
}

#[test]
fn a_definition_survives_its_bytes() {
    let plain =
        Definition { shards: 256, retain: false, ..Definition::new("ключ", Spec::counting(5, 0.1)) };
    let window = Definition {
        window: Some(Window { length_ms: 60_000, buckets: 6 }),
        ..Definition::new("window", Spec::bloom(5, 0.1))
    };
    let whole =
        Definition { origin: "key".into(), expires: Some(5), labels: b"door"[..].into(), ..plain.clone() };
    let mirror = Mirror { of: 7, began_ms: 8, capacity: 9, is_filled: false };
    let filling = Definition { retain: true, mirrors: Some(mirror), ..whole.clone() };
    let filled = Definition {
        mirrors: Some(Mirror { is_filled: true, ..mirror }),
        replaces: Some(7),
        ..filling.clone()
    };
    for definition in [&plain, &window, &whole, &filling, &filled] {
        let bytes = definition.encode().unwrap();
        assert_eq!(Definition::decode(&bytes).unwrap(), *definition);
        assert!((0..bytes.len()).all(|cut| Definition::decode(&bytes[..cut]).is_err()));
    }
    // The first version had no more than a name.
    let bytes = plain.encode().unwrap();
    let bare = [&[1], &bytes[1..40], "ключ".as_bytes()].concat();
    assert_eq!(Definition::decode(&bare).unwrap(), plain);
    for wrong in [
        Definition { name: String::new(), ..whole.clone() },
        Definition { name: "n".repeat(2000), ..whole.clone() },
        Definition { shards: 0, ..whole.clone() },
        Definition { mirrors: Some(mirror), ..whole.clone() },
        Definition { mirrors: Some(mirror), ..window.clone() },
        Definition { labels: vec![0; 257].into(), ..whole.clone() },
        Definition { window: window.window, ..whole.clone() },
        Definition { window: Some(Window { length_ms: 5, buckets: 6 }), ..window.clone() },
        Definition { spec: Spec::hosted(Layout::RedisBloom { expansion: None }, 5, 0.1), ..whole.clone() },
        Definition { spec: Spec::bloom(0, 0.1), ..whole },
    ] {
        assert!(matches!(wrong.encode(), Err(Error::Invalid(_))));
    }
}

const NEXT: u64 = 3;

/// What follows the counting filter, while its source is read or when that was read to the end.
fn follower(is_filled: bool) -> Bytes {
    let mirror = Mirror { of: COUNTING, began_ms: 1, capacity: 100, is_filled };
    let next = Definition::new("next", Spec::counting(200, 1e-6));
    Definition { mirrors: Some(mirror), ..next }.encode().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// While two nodes may call different filters by one name, each finds in the one it knows what the other did in its own.
    #[test]
    fn a_filter_and_its_successor_hold_the_same_until_the_old_one_is_dropped(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0..30_u8), 1..80)
    ) {
        let begun = (NEXT, Request::default(), Operation::Define(follower(false)));
        let filled = (NEXT, Request::default(), Operation::Describe(follower(true)));
        let mut held: HashMap<u8, u64> = HashMap::new();
        let mut written = vec![begun, filled];
        for (is_next, adds, number) in &steps {
            let operation = if *adds { Operation::Add } else { Operation::Remove };
            let filter = if *is_next { NEXT } else { COUNTING };
            written.push((filter, Request::default(), operation(vec![key(*number)])));
            let count = held.entry(*number).or_default();
            *count = if *adds { *count + 1 } else { count.saturating_sub(1) };
        }
        let records = records(written);
        let mut state = folded(&records);
        for filter in [COUNTING, NEXT] {
            let projection = state.shard(filter).unwrap().projection().unwrap();
            for number in 0..30_u8 {
                let expected = held.get(&number).copied().unwrap_or(0);
                // So few keys that neither errs, and counters end at fifteen.
                prop_assert!(projection.count(key(number)) >= expected.min(15), "{} in {}", number, filter);
                prop_assert_eq!(projection.contains(key(number)), expected > 0, "{} in {}", number, filter);
            }
        }
        let last = records.last().unwrap().position.number();
        let after = |number: u128, filter, operation| Record {
            position: Position::from_number(last + number),
            entry: entry(filter, Request::default(), operation).encode().unwrap(),
        };
        state.apply_record(&after(1, COUNTING, Operation::Drop), &Archived::none()).unwrap();
        state.apply_record(&after(2, NEXT, Operation::Add(vec![key(200)])), &Archived::none()).unwrap();
        prop_assert!(state.shard(COUNTING).is_none());
        prop_assert!(state.shard(NEXT).unwrap().projection().unwrap().contains(key(200)));
    }
}

/// A filter takes the place of another at one place in the log; whoever wrote to the old one behind it writes to the new one, as the same
/// request.
#[test]
fn a_request_for_a_filter_that_is_gone_may_go_to_another() {
    let request = Request { session: 9, sequence: 4 };
    for operation in [Operation::Add(vec![key(1)]), Operation::Remove(vec![key(1)])] {
        let is_add = matches!(operation, Operation::Add(_));
        let mut state = folded(&records(vec![(BLOOM, Request::default(), Operation::Drop)]));
        let mut fold = |number, filter, operation| {
            let entry = entry(filter, request, operation);
            state.apply(Position::from_number(number), &entry, &Archived::none()).unwrap()
        };
        assert!(matches!(fold(100, BLOOM, operation.clone()), Outcome::Refused(_)));
        let told = fold(110, COUNTING, operation.clone());
        let expected = if is_add { Outcome::Added(vec![true]) } else { Outcome::Removed(vec![false]) };
        assert_eq!(told, expected);
        // From then on it is known, wherever it comes.
        assert_eq!(fold(120, COUNTING, operation.clone()), expected);
        assert_eq!(fold(130, BLOOM, operation), expected);
    }
}
