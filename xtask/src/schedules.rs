//! A cluster on machines of its own, on which things break by chance.

use crate::cluster::Engines;
use crate::packages::{Need, install};
use crate::services;
use crate::step::{self, Failure, TESTS, command};

const NEEDS: [Need; 3] = [
    Need { check: "ip -V", package: "iproute2" },
    Need { check: "nft --version", package: "nftables" },
    Need { check: "strace --version", package: "strace" },
];

/// So many of them on these engines, which have to be there.
pub(crate) fn run(engines: Engines, count: u64, seed: u64) -> Result<(), Failure> {
    if !services::prepare(&engines.services())? {
        return Err(format!("the engines of --engines {} are not there", engines.name()).into());
    }
    break_things(engines, count, seed)
}

/// So many of them on each of these engines; those that cannot be had are left out, and it is said.
pub(crate) fn some(all: &[(Engines, u64)]) -> Result<(), Failure> {
    for (engines, count) in all {
        if services::prepare(&engines.services())? {
            break_things(*engines, *count, 1)?;
        } else {
            eprintln!("!! a cluster on {} is NOT broken", engines.name());
        }
    }
    Ok(())
}

fn break_things(engines: Engines, count: u64, seed: u64) -> Result<(), Failure> {
    install(&NEEDS)?;
    if !command("unshare --net true").output()?.status.success() {
        let why = "partitions are NOT tested: only root can make network namespaces";
        if std::env::var("CI").is_ok_and(|ci| ci == "true") {
            return Err(why.into());
        }
        eprintln!("!! {why}");
        return Ok(());
    }
    let tests = |which: &str| {
        let line = format!("{TESTS} --test schedules -- --ignored --nocapture --test-threads=1 {which}");
        let mut tests = command(&line);
        tests
            .env("UMBEL_SCHEDULES", count.to_string())
            .env("UMBEL_SCHEDULE_SEED", seed.to_string())
            .env("UMBEL_SCHEDULE_ENGINES", engines.name())
            .env("UMBEL_SERVICES", services::folder());
        tests
    };
    step::run(&format!("single faults of a cluster on {}", engines.name()), &mut tests("directed::"))?;
    let random = &mut tests("nothing_that_was_acknowledged_is_lost");
    step::run(&format!("a cluster on {} that breaks", engines.name()), random)
}
