//! Redis clients against a real server, and what they say of it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::packages::{Need, install};
use crate::server::{Server, binary};
use crate::step::{self, Failure, command, output, root};

const NEEDS: [Need; 5] = [
    Need { check: "redis-cli --version", package: "redis-tools" },
    Need { check: "node --version", package: "nodejs" },
    Need { check: "npm --version", package: "npm" },
    Need { check: "go version", package: "golang-go" },
    Need { check: "mvn --version", package: "maven" },
];

const PROGRAMS: &str = "crates/server/tests/clients";
const REDIS_PY: &str = "redis==8.1.0";
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
/// A filter is not made with these: that it has none is no reason to doubt that it was made.
const API_SETTINGS: &str = r#"
[[operations]]
include-path-regex = "/(rebuild|rollout|schedule)$"
checks.ensure_resource_availability.enabled = false
"#;
const NODE: [&str; 2] = ["redis@6.3.1", "ioredis@6.0.0"];
/// The newest, and the newest for the Go of Debian's packages.
const GO_REDIS: [&str; 2] = ["v9.23.0", "v9.7.3"];
const JEDIS: &str = "6.2.0";

/// What a client's checks came to.
#[derive(Default)]
struct Row {
    client: String,
    version: String,
    protocol: String,
    passed: usize,
    waits: Vec<String>,
    failed: Vec<String>,
}

/// How a client is made ready and run.
struct Program {
    name: &'static str,
    /// Whether it is run only where its packages can be had.
    is_optional: bool,
    prepare: fn() -> Result<(), Failure>,
    run: fn() -> Command,
}

const ALL: [Program; 6] = [
    Program { name: "redis-py", is_optional: false, prepare: prepare_python, run: || python("matrix.py") },
    Program { name: "node-redis", is_optional: false, prepare: prepare_node, run: || node("node-redis.mjs") },
    Program { name: "ioredis", is_optional: false, prepare: prepare_node, run: || node("ioredis.mjs") },
    Program { name: "redis-rs and fred", is_optional: false, prepare: prepare_rust, run: rust },
    Program { name: "go-redis", is_optional: true, prepare: prepare_go, run: go },
    Program { name: "Jedis", is_optional: true, prepare: prepare_java, run: java },
];

/// Runs every client against one server, and prints what came of it.
pub(crate) fn run() -> Result<(), Failure> {
    install(&NEEDS)?;
    let mut server = Server::start(&binary()?, &[])?;
    let mut rows = Vec::new();
    let mut troubles = Vec::new();
    for program in &ALL {
        if let Err(error) = (program.prepare)() {
            let must = !program.is_optional && std::env::var_os("CI").is_some();
            eprintln!("!! {} is NOT tested, its packages cannot be had here: {error}", program.name);
            if must {
                troubles.push(format!("{} could not be installed", program.name));
            }
            continue;
        }
        eprintln!("== {}", program.name);
        let mut line = (program.run)();
        let ran = line.env("UMBEL_PORT", server.port.to_string()).stderr(Stdio::inherit()).output()?;
        let found = read_rows(&String::from_utf8_lossy(&ran.stdout));
        if !ran.status.success() || found.is_empty() {
            troubles.push(format!("the program for {} ended with {}", program.name, ran.status));
        }
        rows.extend(found);
        if !server.is_running() {
            return Err(format!("{} ended the server: {}", program.name, server.said()).into());
        }
    }
    rows.extend(redis_cli(&server)?);
    rows.push(redis_benchmark(&server)?);
    print_table(&rows);
    troubles.extend(
        rows.iter()
            .filter(|row| !row.failed.is_empty())
            .map(|row| format!("{} {}: {} checks failed", row.client, row.protocol, row.failed.len())),
    );
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ").into()) }
}

/// Kills a server under load, so many times, and looks for what redis-py was told is there.
pub(crate) fn kills(rounds: u64) -> Result<(), Failure> {
    prepare_python()?;
    let mut line = python("kills.py");
    step::run("kills under load", line.arg(binary()?).arg(rounds.to_string()))
}

/// Everything that the description of the HTTP API allows, and much that it does not, sent to a real server.
pub(crate) fn api() -> Result<(), Failure> {
    let environment = python_environment()?;
    let mut install = Command::new(environment.join("bin/pip"));
    step::run(SCHEMATHESIS, install.args(["install", "--quiet", SCHEMATHESIS]))?;
    // Any size may be asked for; what is too large is to be refused and not to fill the machine.
    let mut server = Server::start(&binary()?, &["--memory", "2GiB"])?;
    std::fs::write(server.folder.join("schemathesis.toml"), API_SETTINGS)?;
    let mut line = Command::new(environment.join("bin/schemathesis"));
    line.arg("run").arg(format!("http://127.0.0.1:{}/v1/openapi.json", server.http_port));
    // The same requests every time: what fails once fails again.
    line.args(["--seed", "1", "--generation-deterministic"]);
    line.args(["--max-examples", "50", "--continue-on-failure", "--no-color"]);
    // A rollout in groups begins when all replicas may have been heard of, up to 15 s after the server started.
    line.args(["--request-timeout", "30"]);
    // What does not end cannot be waited for; `tests/sync.rs` reads these.
    line.args(["--exclude-path-regex", "/(feed|notices|events)$"]);
    // Which options fit together is more than a schema can say: a valid request may still be refused.
    line.args(["--exclude-checks", "positive_data_acceptance"]).current_dir(&server.folder);
    step::run("HTTP API by its description", &mut line)?;
    if server.is_running() { Ok(()) } else { Err(format!("the server has ended: {}", server.said()).into()) }
}

/// The folder under `target` in which a client's packages are.
pub(crate) fn packages(name: &str) -> Result<PathBuf, Failure> {
    let folder = root().join("target").join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The environment of all Python programs.
pub(crate) fn python_environment() -> Result<PathBuf, Failure> {
    let environment = root().join("target/python");
    if !environment.join("bin/python").exists() {
        step::run("Python environment", command("python3 -m venv").arg(&environment))?;
    }
    Ok(environment)
}

fn prepare_python() -> Result<(), Failure> {
    let mut install = Command::new(python_environment()?.join("bin/pip"));
    step::run(REDIS_PY, install.args(["install", "--quiet", REDIS_PY]))
}

fn python(program: &str) -> Command {
    let mut line = Command::new(root().join("target/python/bin/python"));
    line.arg(root().join(PROGRAMS).join("python").join(program));
    line
}

/// Modules are found upwards from the program, so it is copied to where they are.
fn prepare_node() -> Result<(), Failure> {
    let folder = packages("node")?;
    for entry in std::fs::read_dir(root().join(PROGRAMS).join("node"))? {
        let entry = entry?;
        std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    let mut install = command("npm install --silent --no-audit --no-fund --prefix");
    step::run("npm packages", install.arg(folder).args(NODE))
}

fn node(program: &str) -> Command {
    let mut line = command("node");
    line.arg(root().join("target/node").join(program));
    line
}

fn rust_line(chore: &str) -> Command {
    let mut line = command(&format!("cargo {chore} --locked --manifest-path {PROGRAMS}/rust/Cargo.toml"));
    line.env("CARGO_TARGET_DIR", root().join("target/clients"));
    line
}

fn prepare_rust() -> Result<(), Failure> {
    step::run("build redis-rs and fred", &mut rust_line("build --quiet"))
}

fn rust() -> Command {
    rust_line("run --quiet")
}

/// Which go-redis the Go at hand can build.
fn go_redis() -> &'static str {
    let said = output(&mut command("go env GOVERSION")).unwrap_or_default();
    let minor = String::from_utf8_lossy(&said).trim().split('.').nth(1).and_then(|minor| minor.parse().ok());
    if minor.is_some_and(|minor: u32| minor >= 24) { GO_REDIS[0] } else { GO_REDIS[1] }
}

/// The tool of Go in a folder under `target`. Modules are where all of them find them.
pub(crate) fn go_line(folder: &str, words: &str) -> Command {
    let mut line = command(&format!("go {words}"));
    line.current_dir(root().join("target").join(folder));
    line.env("GOMODCACHE", root().join("target/go/modules")).env("GOFLAGS", "-mod=mod -modcacherw");
    line
}

fn prepare_go() -> Result<(), Failure> {
    let folder = packages("go")?;
    std::fs::copy(root().join(PROGRAMS).join("go/matrix.go"), folder.join("matrix.go"))?;
    std::fs::write(folder.join("go.mod"), "module matrix\n\ngo 1.18\n")?;
    step::run("go-redis", &mut go_line("go", &format!("get github.com/redis/go-redis/v9@{}", go_redis())))?;
    step::run("build for go-redis", &mut go_line("go", "build -o matrix matrix.go"))
}

fn go() -> Command {
    let mut line = Command::new(root().join("target/go/matrix"));
    line.env("UMBEL_GO_REDIS", go_redis());
    line
}

fn prepare_java() -> Result<(), Failure> {
    let folder = packages("maven")?;
    let mut fetch = command("mvn --quiet --batch-mode dependency:copy-dependencies --file");
    fetch.arg(root().join(PROGRAMS).join("java/pom.xml"));
    fetch.arg(format!("-DoutputDirectory={}", folder.join("jars").display()));
    fetch.arg(format!("-Dmaven.repo.local={}", folder.join("repository").display()));
    step::run("Jedis", &mut fetch)
}

fn java() -> Command {
    let mut line = command("java -cp");
    line.arg(root().join("target/maven/jars/*")).arg(root().join(PROGRAMS).join("java/Matrix.java"));
    line.env("UMBEL_JEDIS", JEDIS);
    line
}

/// Reads what a program printed; crates/server/tests/clients/README.md says how.
fn read_rows(text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        match (words[..].as_ref(), rows.last_mut()) {
            (["client", client, version, protocol], _) => rows.push(Row {
                client: (*client).to_owned(),
                version: (*version).to_owned(),
                protocol: (*protocol).to_owned(),
                ..Row::default()
            }),
            (["ok", ..], Some(row)) => row.passed += 1,
            (["waits", rest @ ..], Some(row)) => row.waits.push(rest.join(": ")),
            (["failed", rest @ ..], Some(row)) => row.failed.push(rest.join(": ")),
            _ => eprintln!("   {line}"),
        }
    }
    rows
}

fn print_table(rows: &[Row]) {
    println!("| client | version | protocol | passed | wait | failed |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for row in rows {
        let (waits, failed) = (row.waits.len(), row.failed.len());
        let Row { client, version, protocol, passed, .. } = row;
        println!("| {client} | {version} | {protocol} | {passed} | {waits} | {failed} |");
    }
    for row in rows {
        for (word, lines) in [("waits", &row.waits), ("FAILED", &row.failed)] {
            lines.iter().for_each(|line| println!("{word}: {} {}: {line}", row.client, row.protocol));
        }
    }
}

/// Lines that redis-cli is given, and what it prints for each.
const CLI: [(&str, &str); 24] = [
    ("DEL cli cli:cf cli:full", ""),
    ("BF.RESERVE cli 0.001 1000 EXPANSION 4", "OK"),
    ("BF.RESERVE cli 0.001 1000", "ERR item exists"),
    ("BF.ADD cli one", "1"),
    ("BF.ADD cli one", "0"),
    ("BF.MADD cli one two \"a b\" \"\\x00\\xff\" \"\"", "0 1 1 1 1"),
    ("BF.EXISTS cli \"a b\"", "1"),
    ("BF.MEXISTS cli two three \"\\x00\\xff\" \"\"", "1 0 1 1"),
    ("BF.INSERT cli NOCREATE ITEMS two four", "0 1"),
    ("BF.CARD cli", "6"),
    ("BF.INFO cli CAPACITY", "1000"),
    ("BF.RESERVE cli:full 0.01 1 NONSCALING", "OK"),
    ("BF.MADD cli:full a b c", "1 ERR non scaling filter is full"),
    ("CF.RESERVE cli:cf 1000 BUCKETSIZE 4 MAXITERATIONS 30 EXPANSION 2", "OK"),
    ("CF.INSERT cli:cf ITEMS one one two", "1 1 1"),
    ("CF.ADDNX cli:cf one", "0"),
    ("CF.COUNT cli:cf one", "2"),
    ("CF.DEL cli:cf never", "0"),
    ("CF.DEL cli:cf two", "1"),
    ("CF.EXISTS cli:cf two", "0"),
    ("CF.ADD cli one", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("BF.ADD cli", "ERR wrong number of arguments for 'bf.add' command"),
    ("TYPE cli:cf", "MBbloomCF"),
    ("DEL cli cli:cf cli:full", "3"),
];

/// redis-cli, with a command as its arguments and through a pipe, as people use it.
fn redis_cli(server: &Server) -> Result<Vec<Row>, Failure> {
    let version = String::from_utf8(output(&mut command("redis-cli --version"))?)?;
    let version = version.split_whitespace().nth(1).unwrap_or_default();
    let mut rows = Vec::new();
    for protocol in ["-2", "-3"] {
        let mut row = Row {
            client: "redis-cli".into(),
            version: version.into(),
            protocol: protocol.replace('-', "RESP"),
            ..Row::default()
        };
        let input: String = CLI.iter().flat_map(|(line, _)| [line, "\nECHO =====\n"]).collect();
        let said = through_redis_cli(server.port, protocol, &input)?;
        let answers: Vec<&str> = said.split("=====\n").collect();
        for ((line, wanted), said) in CLI.iter().zip(answers.iter().chain(std::iter::repeat(&""))) {
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            // Version 3 has words of its own for yes and no, and names what it counts.
            let said = said.replace("(true)", "1").replace("(false)", "0").replace("Capacity ", "");
            match said.as_str() {
                _ if wanted.is_empty() => {}
                said if said == *wanted => row.passed += 1,
                said if said.contains("not here yet") => row.waits.push(format!("{line}: {said}")),
                said => row.failed.push(format!("{line}: {said} instead of {wanted}")),
            }
        }
        let alone = command(&format!("redis-cli {protocol} -p {} PING", server.port)).output()?;
        match String::from_utf8_lossy(&alone.stdout).trim() {
            "PONG" => row.passed += 1,
            said => row.failed.push(format!("PING: {said}")),
        }
        rows.push(row);
    }
    Ok(rows)
}

fn through_redis_cli(port: u16, protocol: &str, input: &str) -> Result<String, Failure> {
    use std::io::Write;
    let mut line = command(&format!("redis-cli {protocol} -p {port}"));
    let mut running = line.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    running.stdin.take().ok_or("redis-cli takes no input")?.write_all(input.as_bytes())?;
    Ok(String::from_utf8_lossy(&running.wait_with_output()?.stdout).into_owned())
}

/// redis-benchmark, with commands of Bloom filters.
fn redis_benchmark(server: &Server) -> Result<Row, Failure> {
    let mut row = Row {
        client: "redis-benchmark".into(),
        version: "with redis-cli".into(),
        protocol: "RESP2".into(),
        ..Row::default()
    };
    let bare = format!("redis-benchmark -q -p {} -n 20000 -c 20 -r 100000", server.port);
    for words in [
        "-P 16 BF.ADD bench __rand_int__",
        "-P 16 BF.EXISTS bench __rand_int__",
        "BF.MADD bench a:__rand_int__ b:__rand_int__ c:__rand_int__",
        "CF.ADD bench:cf __rand_int__",
        "CF.EXISTS bench:cf __rand_int__",
        "-t ping",
    ] {
        let ran = command(&format!("{bare} {words}")).output()?;
        let said = String::from_utf8_lossy(&ran.stdout).replace('\r', "\n");
        let last = said.lines().rev().find(|line| line.contains("requests per second")).unwrap_or_default();
        if ran.status.success() && !last.is_empty() {
            row.passed += 1;
            eprintln!("   {}", last.trim());
        } else {
            row.failed.push(format!("{words}: {}", String::from_utf8_lossy(&ran.stderr).trim()));
        }
    }
    Ok(row)
}
