//! Every adapter against its real server.

use std::process::Stdio;
use std::time::Instant;

use crate::packages::{Need, install};
use crate::services;
use crate::step::{self, Failure, command};

/// What builds the clients.
const NEEDS: [Need; 2] = [
    Need { check: "protoc --version", package: "protobuf-compiler" },
    Need { check: "test -e /usr/include/google/protobuf/any.proto", package: "libprotobuf-dev" },
];

/// What a line of a test that passed begins with; `crates/adapters/tests/common` prints it.
const PASSED: &str = "PASSED|";

/// Starts servers, runs the adapters' tests against them and prints what came of it.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let begin = Instant::now();
    install(&NEEDS)?;
    let running = services::start(names)?;
    let outcome = tests(&running);
    services::stop(names)?;
    let rows = outcome?;
    println!("| engine | version | plane | case | what was seen |\n| --- | --- | --- | --- | --- |");
    rows.iter().for_each(|row| println!("| {} |", row.replace('|', " | ")));
    println!("{} cases passed in {:.0} s", rows.len(), begin.elapsed().as_secs_f64());
    Ok(())
}

/// The rows of all tests of the servers that run.
fn tests(running: &[&str]) -> Result<Vec<String>, Failure> {
    step::run("build the adapters", &mut command("cargo test -p umbel-adapters --features full --no-run"))?;
    step::run("adapters without a server", &mut command("cargo test -p umbel-adapters --features full"))?;
    let mut rows = Vec::new();
    for name in running {
        eprintln!("== {name}");
        // One after another: they stop, pause and kill the server.
        let line =
            "cargo test -p umbel-adapters --features full --test * -- --ignored --nocapture --test-threads=1";
        let mut tests = command(line);
        tests.arg(name).env("UMBEL_SERVICES", services::folder());
        // S3's server takes anybody, but the client has to be somebody.
        tests.env("AWS_ACCESS_KEY_ID", "umbel").env("AWS_SECRET_ACCESS_KEY", "umbel");
        let ran = tests.stderr(Stdio::inherit()).output()?;
        let said = String::from_utf8_lossy(&ran.stdout);
        if !ran.status.success() {
            eprintln!("{said}");
            return Err(format!("the tests of {name} failed").into());
        }
        let found: Vec<_> =
            said.lines().filter_map(|line| Some(line.split_once(PASSED)?.1.to_owned())).collect();
        if found.is_empty() {
            return Err(format!("{name} was not tested").into());
        }
        rows.extend(found);
    }
    Ok(rows)
}
