//! Any header, then any chunks at any cursor: no panic, and added keys are found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::Limits;
use umbel_filter::format::redisbloom::Loader;

fuzz_target!(|input: (&[u8], Vec<(u64, &[u8])>)| {
    let limits = Limits { filter_bytes_max: 1 << 20, chain_links_max: 64 };
    let (header, chunks) = input;
    let Ok(mut loader) = Loader::new(header, &limits) else { return };
    for (cursor, chunk) in &chunks {
        let _ = loader.load(*cursor, chunk);
        // A cursor that fits the header gets further than a random one.
        let _ = loader.load(1 + chunk.len() as u64, chunk);
    }
    if loader.filter().insert(header).is_ok() {
        assert!(loader.filter().contains(header));
    }
    loader.filter().stats();
});
