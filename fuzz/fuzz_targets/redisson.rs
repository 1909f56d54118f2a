//! Any settings and any bitmap: no panic, and added keys are found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::Limits;
use umbel_filter::format::redisson::{self, Config};

fuzz_target!(|input: (u32, u8, u16, f64, &[u8])| {
    let (size, hash_iterations, expected_insertions, false_probability, bitmap) = input;
    let config = Config {
        size: size.into(),
        hash_iterations: hash_iterations.into(),
        expected_insertions: expected_insertions.into(),
        false_probability,
    };
    let limits = Limits { filter_bytes_max: 1 << 20, chain_links_max: 64 };
    let Ok(filter) = redisson::read(&config, bitmap, &limits) else { return };
    filter.insert(bitmap).expect("a single array takes every key");
    assert!(filter.contains(bitmap));
    assert_eq!(redisson::config(&filter).expect("it is of that layout"), config);
});
