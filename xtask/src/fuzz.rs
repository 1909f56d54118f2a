//! Fuzzing of the decoders.

use crate::step::{self, Failure, command, exists};

/// Fuzz targets, and where each finds recorded input to start from.
const TARGETS: [(&str, &str); 6] = [
    ("native", "fixtures/native/v1"),
    ("guava", "fixtures/guava"),
    ("redisbloom", "fixtures/redisbloom"),
    ("redisson", "fixtures/redisson"),
    ("engine", "fixtures/engine/v1/blobs/slots/0000"),
    ("resp", "fixtures/resp"),
];

pub(crate) fn run(seconds: u32) -> Result<(), Failure> {
    if !exists("cargo-fuzz") {
        step::run("install cargo-fuzz", &mut command("cargo install cargo-fuzz --locked"))?;
    }
    for (target, recorded) in TARGETS {
        // What the fuzzer finds goes into the first folder; the second is only read.
        let found = format!("fuzz/corpus/{target}");
        std::fs::create_dir_all(step::root().join(&found))?;
        let bounds = format!("-max_total_time={seconds} -rss_limit_mb=2048 -max_len=32768");
        let line = format!("cargo +nightly fuzz run {target} {found} {recorded} -- {bounds}");
        step::run(&format!("fuzz {target}"), &mut command(&line))?;
    }
    Ok(())
}
