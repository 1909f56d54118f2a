//! Every adapter against its real server, the server on all of them, and whatever keys are loaded from.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::packages::{Need, install};
use crate::services;
use crate::step::{self, Failure, TESTS, command};

/// What builds the clients, and what the tests of the server ask it with.
const NEEDS: [Need; 7] = [
    Need { check: "pkg-config --version", package: "pkg-config" },
    Need { check: "pkg-config --exists openssl", package: "libssl-dev" },
    Need { check: "protoc --version", package: "protobuf-compiler" },
    Need { check: "test -e /usr/include/google/protobuf/any.proto", package: "libprotobuf-dev" },
    Need { check: "redis-cli --version", package: "redis-tools" },
    Need { check: "curl --version", package: "curl" },
    Need { check: "etcdctl version", package: "etcd-client" },
];

/// The tests of adapters and of sources of keys, and those of the server on engines.
const ADAPTERS: &str =
    "--test blobs --test changes --test databases --test engines --test logs --test probes --test registries";
const SERVER: &str = "--test planes --test guarded --test cluster --test domains";
/// The tests of one engine that sleeps, is killed and moves under a server that goes on. With `UMBEL_LARGE` in the environment, engines also
/// sleep for a minute.
const RECOVERY: &str = "--test recovery";
const RECOVERING: [&str; 7] = ["etcd", "kafka", "nats", "rabbitmq", "redis", "s3", "zookeeper"];

/// What a line of a test that passed begins with; `crates/adapters/tests/common` prints it.
const PASSED: &str = "PASSED|";

/// Installs what builds the engines' clients, and what their tests use.
pub(crate) fn prepare() -> Result<(), Failure> {
    install(&NEEDS)
}

/// Starts servers, runs the tests against them and prints what came of it.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    prepare()?;
    step::run("build the tests", &mut command(&format!("{TESTS} {ADAPTERS} {SERVER} {RECOVERY} --no-run")))?;
    let begin = Instant::now();
    let running = services::start(names)?;
    let outcome = tests(&running);
    services::stop(names)?;
    let rows = outcome?;
    println!("| engine | version | plane | case | what was seen |\n| --- | --- | --- | --- | --- |");
    rows.iter().for_each(|row| println!("| {} |", row.replace('|', " | ")));
    for missing in services::names(names)?.iter().filter(|name| !running.contains(name)) {
        println!("| {missing} | | | NOT TESTED: its packages could not be had | |");
    }
    println!("{} cases passed in {:.0} s", rows.len(), begin.elapsed().as_secs_f64());
    Ok(())
}

/// The rows of all tests of the servers that run.
fn tests(running: &[&'static str]) -> Result<Vec<String>, Failure> {
    // Tests of one server stop, pause and kill it, so they come one after another. Those of different servers mostly wait.
    let adapters: Vec<_> = running
        .iter()
        .map(|name| {
            let mut tests = command(&format!("{TESTS} {ADAPTERS}"));
            tests.args(["--", "--ignored", "--nocapture", "--test-threads=1", name]);
            (*name, tests)
        })
        .collect();
    let mut rows = at_once(adapters)?;
    let recoveries = running.iter().filter(|name| RECOVERING.contains(name)).map(|name| {
        let mut tests = command(&format!("{TESTS} {RECOVERY}"));
        tests.args(["--", "--ignored", "--nocapture", "--test-threads=1", &format!("{name}::")]);
        (*name, tests)
    });
    rows.extend(at_once(recoveries.collect())?);
    let mut server = command(&format!("{TESTS} {SERVER}"));
    server.args(["--", "--ignored", "--nocapture", "--test-threads=2"]);
    rows.extend(at_once(vec![("the server on them", server)])?);
    Ok(rows)
}

/// The rows of tests that run side by side. All of them come to an end, whatever becomes of the others.
fn at_once(tests: Vec<(&'static str, Command)>) -> Result<Vec<String>, Failure> {
    let mut threads = Vec::new();
    for (name, mut tests) in tests {
        eprintln!("== {name}");
        tests.env("UMBEL_SERVICES", services::folder());
        // S3's server takes anybody, but the client has to be somebody.
        tests.env("AWS_ACCESS_KEY_ID", "umbel").env("AWS_SECRET_ACCESS_KEY", "umbel");
        let ran = std::thread::spawn(move || {
            let begin = Instant::now();
            (tests.stdout(Stdio::piped()).stderr(Stdio::piped()).output(), begin.elapsed())
        });
        threads.push((name, ran));
    }
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (name, thread) in threads {
        let (ran, took) = thread.join().map_err(|_| format!("the tests of {name} ended badly"))?;
        let ran = ran?;
        eprintln!("-- {name}: {:.1} s", took.as_secs_f64());
        let said = String::from_utf8_lossy(&ran.stdout);
        let found: Vec<_> =
            said.lines().filter_map(|line| Some(line.split_once(PASSED)?.1.to_owned())).collect();
        if !ran.status.success() {
            eprintln!("{said}{}", String::from_utf8_lossy(&ran.stderr));
            failures.push(format!("the tests of {name} failed"));
        } else if found.is_empty() {
            failures.push(format!("{name} was not tested"));
        }
        rows.extend(found);
    }
    if failures.is_empty() { Ok(rows) } else { Err(failures.join(", ").into()) }
}
