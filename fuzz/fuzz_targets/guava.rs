//! What the Guava decoder takes, it must write back byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::Limits;
use umbel_filter::format::guava;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { filter_bytes_max: 1 << 20, chain_links_max: 64 };
    let Ok(filter) = guava::read(bytes, &limits) else { return };
    filter.insert(bytes).expect("a single array takes every key");
    assert!(filter.contains(bytes));
    let mut again = Vec::new();
    guava::write(&filter, &mut again).expect("a vector takes everything");
    assert_eq!(bytes[..6], again[..6]);
});
