//! All tests, with the tools that some of them need.

use std::process::Command;

use serde_json::Value;

use crate::browser;
use crate::clients;
use crate::cluster::Engines;
use crate::docs;
use crate::imports;
use crate::packages::{Need, install};
use crate::planes;
use crate::python;
use crate::schedules;
use crate::snapshots;
use crate::step::{self, Failure, TESTS, command, output, root};

const NEEDS: [Need; 6] = [
    Need { check: "java -version", package: "default-jdk-headless" },
    Need { check: "test -e /usr/share/java/guava.jar", package: "libguava-java" },
    Need { check: "python3 -m ensurepip --version", package: "python3-venv" },
    Need { check: "go version", package: "golang-go" },
    Need { check: "valgrind --version", package: "valgrind" },
    Need { check: "redis-server --version", package: "redis-server" },
];

/// Kills of a server under load in a test run; `torture` does more.
const KILLS: u64 = 5;
/// Lives of a cluster on which things break, by what it stands on; `schedules` does more.
const SCHEDULES: [(Engines, u64); 2] = [(Engines::Redis, 3), (Engines::Kafka, 2)];
/// Keys that are asked for in filters which others made; `imports` asks for more.
const KEYS: usize = 50_000;
/// Of so many kills of an engine, one is of a server that replicas follow: it takes seconds, and not milliseconds.
const REPLICA_KILLS_SHARE: u64 = 5;

pub(crate) fn run() -> Result<(), Failure> {
    install(&NEEDS)?;
    planes::prepare()?;
    step::run("tests", &mut command(TESTS))?;
    model(false)?;
    languages()?;
    connections()?;
    clients::run()?;
    snapshots::run()?;
    imports::run(KEYS)?;
    clients::api()?;
    docs::run()?;
    python::run()?;
    browser::run(None, None)?;
    clients::kills(KILLS)?;
    servers()?;
    schedules::some(&SCHEDULES)?;
    memory_errors()?;
    // Engines are mostly waited for, and what loom explores does not depend on time.
    let explored = std::thread::spawn(|| interleavings().map_err(|error| error.to_string()));
    let planes = planes::run(&[]);
    explored.join().map_err(|_| "the interleavings ended badly")??;
    planes
}

/// Tests of the server that take more connections or memory than `cargo test` should.
fn connections() -> Result<(), Failure> {
    let line = format!("{TESTS} --test hostile -- --ignored --nocapture --test-threads=1");
    step::run("thousands of connections", &mut command(&line))
}

/// The tests that kill processes, as often as asked.
pub(crate) fn torture(kills: u64, rounds: u64) -> Result<(), Failure> {
    let mut tests = command(&format!("{TESTS} --test kills -- --nocapture"));
    step::run("kills", tests.env("UMBEL_KILLS", kills.to_string()))?;
    let mut replicas = command(&format!("{TESTS} --test faults -- --nocapture --test-threads=1"));
    replicas.env("UMBEL_TEST_KILLS", (kills / REPLICA_KILLS_SHARE).max(1).to_string());
    replicas
        .env("UMBEL_TEST_REPLICAS", "10")
        .env("UMBEL_TEST_CYCLES", "1000")
        .env("UMBEL_TEST_DAMAGE_SECONDS", "60");
    step::run("replicas under faults", &mut replicas)?;
    clients::kills(rounds)
}

/// All states of the model of the cluster's rules; the tests have smaller bounds.
pub(crate) fn model(large: bool) -> Result<(), Failure> {
    let mut model = command("cargo run --package umbel-model --release --quiet --");
    model.arg(if large { "--large" } else { "--brief" });
    step::run("the model of the cluster's rules", &mut model)
}

/// Filters go to Java, Python and Go and back.
fn languages() -> Result<(), Failure> {
    let environment = clients::python_environment()?;
    let mut install = Command::new(environment.join("bin/pip"));
    let packages = [snapshots::BLOOMFILTER_PY, "prometheus-client==0.26.0"];
    step::run("Python packages", install.args(["install", "--quiet"]).args(packages))?;
    let mut reader = command(&format!("{TESTS} --lib -- --ignored prometheus"));
    step::run("metrics read by Prometheus", reader.env("UMBEL_PYTHON", environment.join("bin/python")))?;
    let mut tests = command(&format!("{TESTS} --test languages -- --ignored --nocapture"));
    step::run("other languages", tests.env("UMBEL_PYTHON", environment.join("bin/python")))
}

/// The load generator and filters that move meet a server that others wrote, and so do the replies of ours.
fn servers() -> Result<(), Failure> {
    step::run("replies of Redis", &mut command(&format!("{TESTS} --test redis -- --ignored")))?;
    step::run("load on redis-server", &mut command(&format!("{TESTS} --test bench -- --ignored")))?;
    step::run(
        "filters from Redis",
        &mut command(&format!("{TESTS} --test migration --test mirror -- --ignored")),
    )
}

/// Loom explores what threads can do to the atomics; it replaces them, so it is a build of its own.
fn interleavings() -> Result<(), Failure> {
    let mut explore = command("cargo test -p umbel-filter --lib interleavings");
    explore.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", root().join("target/loom"));
    step::run("interleavings", &mut explore)
}

/// Valgrind watches every access of the unsafe module while it is compared with its safe twin.
fn memory_errors() -> Result<(), Failure> {
    let binary = test_binary("umbel_filter")?;
    let mut watched = command("valgrind --quiet --error-exitcode=1");
    watched.arg(binary).args(["--test-threads=1", "twins"]).env("PROPTEST_CASES", "24");
    step::run("memory errors under valgrind", &mut watched)
}

/// The path of the test binary of a library.
fn test_binary(library: &str) -> Result<String, Failure> {
    let build = format!("{TESTS} --lib --no-run --message-format=json");
    let messages = output(&mut command(&build))?;
    let messages = String::from_utf8(messages)?;
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let ours = message["target"]["name"] == library && message["profile"]["test"] == true;
        message["executable"].as_str().filter(|_| ours).map(str::to_owned)
    });
    executable.ok_or_else(|| format!("cargo built no tests of {library}").into())
}
