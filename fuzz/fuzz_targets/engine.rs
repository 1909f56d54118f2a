//! Blobs of an engine with a right checksum and any content, and logs of any entries: no panic, and no memory beyond the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_core::Position;
use umbel_core::budget::Budget;
use umbel_core::engine;
use umbel_core::entry::{Entry, Operation, Request};
use umbel_core::fold::{Archived, Means, State};
use umbel_filter::{Fingerprint, Limits};

fuzz_target!(|input: (u8, &[u8], Vec<(u8, u8, u8, &[u8])>)| {
    let (magic, content, entries) = input;
    let magics =
        [engine::MANIFEST_MAGIC, engine::TRIMMED_MAGIC, engine::DEPLOYMENT_MAGIC, engine::ARRAYS_MAGIC];
    let mut blob = magics[usize::from(magic) % magics.len()].to_vec();
    blob.extend([1, 0]);
    blob.extend(content);
    // Without it hardly any input would get past the checksum.
    blob.extend(crc32c::crc32c(&blob).to_le_bytes());
    let _ = engine::inspect(&blob, "blob");
    let _ = engine::inspect_arrays(&blob[..], "blob");

    let limits = Limits { filter_bytes_max: 1 << 20, chain_links_max: 64 };
    let mut state = State::new(0, 4, Means { limits, ..Means::new(Budget::new(1 << 24)) });
    for (number, (operation, filter, session, bytes)) in (1..).zip(entries) {
        let keys = || {
            bytes
                .chunks_exact(16)
                .map(|key| Fingerprint::from_bytes(key.try_into().expect("16 bytes")))
                .collect()
        };
        let operation = match operation % 12 {
            0 => Operation::Add(keys()),
            1 => Operation::Remove(keys()),
            2 => Operation::Define(bytes.to_vec().into()),
            3 => Operation::Drop,
            4 => Operation::Clear,
            5 => Operation::Switch,
            6 => Operation::Describe(bytes.to_vec().into()),
            7 => Operation::Adopt { items: 1, outlines: vec![bytes.to_vec().into()] },
            8 => Operation::Load { layer: 0, block: 0, items: 1, bytes: bytes.to_vec().into() },
            9 => Operation::AddAbsent(keys()),
            10 => Operation::Redescribe { from: filter.into(), definition: bytes.to_vec().into() },
            _ => Operation::Barrier,
        };
        let request = Request { session: session.into(), sequence: number };
        let entry = Entry { filter: u64::from(filter % 4), slot: 0, request, operation };
        let Ok(encoded) = entry.encode() else { continue };
        let decoded = Entry::decode(&encoded).expect("what was encoded is decoded");
        assert_eq!(decoded, entry);
        let _ = state.apply(Position::from_number(number.into()), &decoded, &Archived::none());
    }
    state.digest();
});
