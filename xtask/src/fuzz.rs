//! Fuzzing of the decoders.

use crate::step::{self, Failure, command, exists};

const TARGETS: [&str; 4] = ["native", "guava", "redisbloom", "redisson"];

pub(crate) fn run(seconds: u32) -> Result<(), Failure> {
    if !exists("cargo-fuzz") {
        step::run("install cargo-fuzz", &mut command("cargo install cargo-fuzz --locked"))?;
    }
    for target in TARGETS {
        let line =
            format!("cargo +nightly fuzz run {target} -- -max_total_time={seconds} -rss_limit_mb=1024");
        step::run(&format!("fuzz {target}"), &mut command(&line))?;
    }
    Ok(())
}
