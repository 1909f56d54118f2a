//! Entries survive their bytes, and nothing else passes for one.

use bytes::Bytes;
use proptest::prelude::*;
use umbel_core::definition::{Definition, Mirror};
use umbel_core::entry::{Entry, Operation, Request};
use umbel_core::limits::FINGERPRINTS_MAX;
use umbel_filter::{Fingerprint, Spec};

fn operations() -> impl Strategy<Value = Operation> {
    let key = any::<(u64, u64)>().prop_map(|(first, second)| Fingerprint { first, second });
    let keys = prop::collection::vec(key, 0..50);
    prop_oneof![
        keys.clone().prop_map(Operation::Add),
        keys.clone().prop_map(Operation::Remove),
        keys.prop_map(Operation::AddAbsent),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| Operation::Define(bytes.into())),
        (any::<u64>(), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(from, bytes)| Operation::Redescribe { from, definition: bytes.into() }),
        Just(Operation::Drop),
        Just(Operation::Clear),
        Just(Operation::Barrier),
        Just(Operation::Switch),
    ]
}

fn entries() -> impl Strategy<Value = Entry> {
    (any::<(u64, u16, u64, u64)>(), operations()).prop_map(
        |((filter, slot, session, sequence), operation)| Entry {
            filter,
            slot,
            request: Request { session, sequence },
            operation,
        },
    )
}

proptest! {
    #[test]
    fn an_entry_survives_its_bytes(entry in entries()) {
        prop_assert_eq!(Entry::decode(&entry.encode().unwrap()).unwrap(), entry);
    }

    #[test]
    fn damage_is_noticed(entry in entries(), bit: usize, cut: usize) {
        let bytes = entry.encode().unwrap();
        let mut flipped = bytes.to_vec();
        let bit = bit % (bytes.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Entry::decode(&flipped.into()).is_err());
        prop_assert!(Entry::decode(&bytes.slice(..cut % bytes.len())).is_err());
    }

    #[test]
    fn a_definition_survives_its_bytes_whatever_it_follows_and_replaces(
        grow_at in prop::option::of(1..=100_u8),
        replaces in prop::option::of(any::<u64>()),
        mirror in prop::option::of(any::<(u64, u64, u64, bool)>()),
        cut: usize,
    ) {
        let mirrors = mirror.map(|(of, began_ms, capacity, is_filled)| Mirror { of, began_ms, capacity, is_filled });
        let spec = Spec::bloom(1000, 0.01);
        let definition = Definition { grow_at, replaces, mirrors, ..Definition::new("links", spec) };
        let bytes = definition.encode().unwrap();
        prop_assert_eq!(Definition::decode(&bytes).unwrap(), definition);
        prop_assert!(Definition::decode(&bytes[..cut % bytes.len()]).is_err());
        prop_assert!(Definition::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(Entry::decode(&Bytes::from(noise)).is_err());
    }
}

#[test]
fn an_entry_that_is_too_large_is_refused() {
    let with = |keys| Entry {
        filter: 1,
        slot: 2,
        request: Request::default(),
        operation: Operation::Add(vec![Fingerprint::default(); keys]),
    };
    assert!(with(FINGERPRINTS_MAX).encode().is_ok());
    let error = with(FINGERPRINTS_MAX + 1).encode().unwrap_err().to_string();
    assert!(error.contains("65533"), "{error}");
}
