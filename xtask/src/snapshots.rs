//! Snapshots of a real server, downloaded and read by other languages, each with the library that people there use.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::clients::{go_line, packages, python_environment};
use crate::packages::{Need, install};
use crate::server::{Server, binary};
use crate::step::{self, Failure, command, root};

pub(crate) const BLOOMFILTER_PY: &str = "bloomfilter-py==2.0.0";
const GO_MODULE: &str = "github.com/OldPanda/bloomfilter@latest";
pub(crate) const GUAVA: &str = "/usr/share/java/guava.jar";
const PROGRAMS: &str = "crates/server/tests/snapshots";

const NEEDS: [Need; 4] = [
    Need { check: "java -version", package: "default-jdk-headless" },
    Need { check: "test -e /usr/share/java/guava.jar", package: "libguava-java" },
    Need { check: "python3 -m ensurepip --version", package: "python3-venv" },
    Need { check: "go version", package: "golang-go" },
];

/// Keys in a filter, and how many of them, and of others, are asked for.
const KEYS: usize = 100_000;
const ASKED: usize = 10_000;
/// Room for them; a filter that is full would be rebuilt meanwhile.
const CAPACITY: usize = 130_000;

/// A language that reads snapshots.
struct Language {
    name: &'static str,
    library: &'static str,
    /// Whether it is run only where its packages can be had.
    is_optional: bool,
    prepare: fn() -> Result<(), Failure>,
    run: fn() -> Command,
}

const ALL: [Language; 3] = [
    Language { name: "Java", library: "Guava", is_optional: false, prepare: || Ok(()), run: java },
    Language {
        name: "Python",
        library: BLOOMFILTER_PY,
        is_optional: false,
        prepare: prepare_python,
        run: python,
    },
    Language { name: "Go", library: GO_MODULE, is_optional: true, prepare: prepare_go, run: go },
];

/// Fills filters, lets every language read them, and compares every answer with the server's.
pub(crate) fn run() -> Result<(), Failure> {
    install(&NEEDS)?;
    let mut server = Server::start(&binary()?, &[])?;
    let filters = [
        // The same bits on both sides, so the same mistakes.
        Filter::fill(&server, "hosted", &json!({ "layout": "guava" }), true)?,
        // Bits of another layout, from the same keys.
        Filter::fill(&server, "native", &json!({}), false)?,
    ];
    let mut troubles = Vec::new();
    println!("| language | library | filter | bytes | present | absent | wrong answers | false positives |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for language in &ALL {
        if let Err(error) = (language.prepare)() {
            let must = !language.is_optional && std::env::var_os("CI").is_some();
            eprintln!("!! {} is NOT tested, its packages cannot be had here: {error}", language.name);
            if must {
                troubles.push(format!("the library for {} could not be installed", language.name));
            }
            continue;
        }
        for filter in &filters {
            let url = format!("http://127.0.0.1:{}{}", server.http_port, filter.path());
            let mut line = (language.run)();
            line.arg(url).arg(server.folder.join("keys.txt")).stderr(Stdio::inherit());
            let ran = line.output()?;
            let printed = String::from_utf8_lossy(&ran.stdout);
            if !ran.status.success() || printed.trim().len() != 2 * ASKED {
                troubles.push(format!("the program for {} ended with {}", language.name, ran.status));
                continue;
            }
            let wrong = filter.wrong(printed.trim());
            println!("| {} | {} | {} |", language.name, language.library, wrong.row(filter));
            if wrong.answers > 0 {
                troubles
                    .push(format!("{}: {} wrong answers of {}", language.name, wrong.answers, filter.name));
            }
        }
    }
    if !server.is_running() {
        troubles.push(format!("the server has ended: {}", server.said()));
    }
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ").into()) }
}

/// A filter of the server, and what that one answers.
struct Filter {
    name: &'static str,
    /// A digit for each key that is asked for: first those that are there.
    answers: String,
    /// Whether the snapshot has the same bits, and not only the same keys.
    is_same: bool,
    bytes: usize,
}

/// How a program's answers differ.
struct Wrong {
    answers: usize,
    false_positives: usize,
}

impl Wrong {
    fn row(&self, filter: &Filter) -> String {
        let Self { answers, false_positives } = self;
        format!("{} | {} | {ASKED} | {ASKED} | {answers} | {false_positives}", filter.name, filter.bytes)
    }
}

fn key(number: usize) -> String {
    format!("key {number} \u{fc}")
}

impl Filter {
    fn fill(server: &Server, name: &'static str, more: &Value, is_same: bool) -> Result<Self, Failure> {
        let mut new = json!({ "name": name, "capacity": CAPACITY, "error": 0.01, "growth": 1 });
        for (option, value) in more.as_object().into_iter().flatten() {
            new[option] = value.clone();
        }
        ask(server, "POST", "/v1/filters", "application/json", new.to_string().as_bytes())?;
        let keys: String = (0..KEYS).map(|number| key(number) + "\n").collect();
        ask(server, "POST", &format!("/v1/filters/{name}/add"), "text/plain", keys.as_bytes())?;
        let asked: Vec<String> = (0..ASKED).chain(KEYS..KEYS + ASKED).map(key).collect();
        write_lines(&server.folder.join("keys.txt"), &asked)?;
        let body = json!({ "keys": asked }).to_string();
        let checked =
            ask(server, "POST", &format!("/v1/filters/{name}/check"), "application/json", body.as_bytes())?;
        let checked: Value = serde_json::from_slice(&checked)?;
        let answers = checked["answers"].as_array().ok_or("no answers")?;
        let answers = answers.iter().map(|answer| if answer == "maybe" { '1' } else { '0' }).collect();
        let mut filter = Self { name, answers, is_same, bytes: 0 };
        filter.bytes = ask(server, "GET", &filter.path(), "text/plain", b"")?.len();
        Ok(filter)
    }

    fn path(&self) -> String {
        format!("/v1/filters/{}/snapshot?format=guava", self.name)
    }

    fn wrong(&self, answers: &str) -> Wrong {
        let lost = answers[..ASKED].bytes().filter(|answer| *answer != b'1').count();
        let differ = answers.bytes().zip(self.answers.bytes()).filter(|(one, other)| one != other).count();
        let false_positives = answers[ASKED..].bytes().filter(|answer| *answer == b'1').count();
        // Far more mistakes than were asked for are wrong as well: 1 % at more keys than there are.
        let many = false_positives.saturating_sub(ASKED / 50);
        Wrong { answers: if self.is_same { differ } else { lost + many }, false_positives }
    }
}

fn write_lines(path: &Path, lines: &[String]) -> Result<(), Failure> {
    Ok(std::fs::write(path, lines.join("\n") + "\n")?)
}

/// The body of an answer, if it is one of success. Its length is known, as those of all that are asked here.
pub(crate) fn ask(
    server: &Server,
    method: &str,
    path: &str,
    kind: &str,
    body: &[u8],
) -> Result<Vec<u8>, Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.http_port))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: umbel\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or("an answer without a head")?;
    let content = answer.split_off(head + 4);
    if answer.starts_with(b"HTTP/1.1 2") {
        return Ok(content);
    }
    Err(format!(
        "{method} {path}: {} {}",
        String::from_utf8_lossy(&answer),
        String::from_utf8_lossy(&content)
    )
    .into())
}

fn java() -> Command {
    let mut line = command("java -cp");
    line.arg(GUAVA).arg(root().join(PROGRAMS).join("Snapshot.java"));
    line
}

fn prepare_python() -> Result<(), Failure> {
    let mut install = Command::new(python_environment()?.join("bin/pip"));
    step::run(BLOOMFILTER_PY, install.args(["install", "--quiet", BLOOMFILTER_PY]))
}

fn python() -> Command {
    let mut line = Command::new(root().join("target/python/bin/python"));
    line.arg(root().join(PROGRAMS).join("snapshot.py"));
    line
}

const GO_FOLDER: &str = "go-snapshots";

fn prepare_go() -> Result<(), Failure> {
    let folder = packages(GO_FOLDER)?;
    std::fs::copy(root().join(PROGRAMS).join("snapshot.go"), folder.join("snapshot.go"))?;
    std::fs::write(folder.join("go.mod"), "module snapshot\n\ngo 1.18\n")?;
    step::run(GO_MODULE, &mut go_line(GO_FOLDER, &format!("get {GO_MODULE}")))?;
    step::run("build for Go", &mut go_line(GO_FOLDER, "build -o snapshot snapshot.go"))
}

fn go() -> Command {
    Command::new(root().join("target").join(GO_FOLDER).join("snapshot"))
}
