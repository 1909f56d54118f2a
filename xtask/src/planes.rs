//! Every adapter against its real server.

use crate::services;
use crate::step::{self, Failure, command};

/// Starts servers, runs the adapters' tests against them and prints what came of it.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let _running = services::start(names)?;
    let mut tests = command("cargo test -p umbel-adapters --features full");
    let outcome = step::run("planes", tests.env("UMBEL_SERVICES", services::folder()));
    services::stop(names)?;
    outcome
}
