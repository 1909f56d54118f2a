//! What the native decoder takes, it must write and read again as the same filter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::Limits;
use umbel_filter::format::native::{self, Compression};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { filter_bytes_max: 1 << 20, chain_links_max: 64 };
    let Ok(filter) = native::read(bytes, &limits) else { return };
    let mut again = Vec::new();
    native::write(&filter, Compression::Zstd, &mut again).expect("a vector takes everything");
    let same = native::read(&again[..], &limits).expect("what was written is read");
    assert_eq!(same.digest(), filter.digest());
});
