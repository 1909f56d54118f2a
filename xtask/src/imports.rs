//! Filters that others made, imported into a real server: its answers beside those of whoever made them, key by key.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::packages;
use crate::packages::{Need, install};
use crate::server::{Server, binary};
use crate::services;
use crate::snapshots::{GUAVA, ask};
use crate::step::{self, Failure, command, output, root};

const NEEDS: [Need; 4] = [
    Need { check: "java -version", package: "default-jdk-headless" },
    Need { check: "test -e /usr/share/java/guava.jar", package: "libguava-java" },
    Need { check: "mvn --version", package: "maven" },
    Need { check: "g++ --version", package: "g++" },
];
const PROGRAMS: &str = "fixtures/programs";
/// Keys that the server is asked for at once.
const TOGETHER: usize = 10_000;

/// Imports one filter of each kind, and compares all answers for so many keys `item:N`. In those that are made here, the first half
/// of the keys is; RedisBloom's were recorded.
pub(crate) fn run(keys: usize) -> Result<(), Failure> {
    install(&NEEDS)?;
    let umbel = binary()?;
    let server = Server::start(&umbel, &[])?;
    let keys = Keys::write(&server.folder, keys)?;
    println!("| kind | filter | keys asked | maybe | different |");
    println!("| --- | --- | --- | --- | --- |");
    let mut troubles = Vec::new();
    let mut row = |kind: &str, source: &[&str], name: &str, theirs: &[u8]| -> Result<(), Failure> {
        let to = format!("redis://127.0.0.1:{}", server.port);
        let arguments = [&["import", kind], source, &["--as", name, "--to", &to]].concat();
        output(Command::new(&umbel).args(arguments))?;
        let (ours, theirs) = (keys.asked(&server, name)?, theirs.trim_ascii());
        if ours.len() != theirs.len() {
            return Err(format!("{kind}: {} answers for {} keys", theirs.len(), ours.len()).into());
        }
        let different = ours.iter().zip(theirs).filter(|(one, other)| one != other).count();
        let maybe = ours.iter().filter(|answer| **answer == b'1').count();
        println!("| {kind} | {name} | {} | {maybe} | {different} |", ours.len());
        if different > 0 {
            troubles.push(format!("{kind}: {different} answers of {name} differ"));
        }
        Ok(())
    };

    let file = server.folder.join("guava.bin");
    row("guava", &[text(&file)?], "guava", &guava(&file, &keys)?)?;
    let peer = server.folder.join("redisbloom");
    let source = root().join(PROGRAMS).join("redisbloom.cc");
    step::run("RedisBloom's peer", command("g++ -std=c++17 -O2 -o").arg(&peer).arg(source))?;
    for name in ["rb_default", "rb_nonscaling"] {
        let file = root().join("fixtures/redisbloom").join(name).with_extension("scandump");
        let theirs = output(Command::new(&peer).arg("answers").arg(&file).arg(&keys.hex))?;
        row("redisbloom", &[text(&file)?], name, &theirs)?;
    }
    match fetch_redisson() {
        Err(error) => eprintln!("!! Redisson is NOT compared, it cannot be had here: {error}"),
        Ok(jars) => {
            services::start(&["redis".to_owned()])?;
            let address = services::address("redis")?;
            let (_, port) = address.rsplit_once(':').ok_or("the address of Redis has no port")?;
            let name = format!("imported-{}", std::process::id());
            let mut peer = command("java -cp");
            peer.arg(jars.join("*")).arg(root().join(PROGRAMS).join("redisson/RedissonPeer.java"));
            let theirs = output(peer.args(["answers", &name, port, &keys.count.to_string()]))?;
            row("redisson", &[&format!("redis://{address}"), &name], "redisson", &theirs)?;
        }
    }
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ").into()) }
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| format!("{} is no text", path.display()).into())
}

/// The keys that are asked for, in a file that the other implementations read: one in hexadecimal digits a line.
struct Keys {
    count: usize,
    hex: PathBuf,
    /// The first half of them.
    added: PathBuf,
}

impl Keys {
    fn write(folder: &Path, count: usize) -> Result<Self, Failure> {
        let line = |number| {
            let digits: String = key(number).bytes().map(|byte| format!("{byte:02x}")).collect();
            digits + "\n"
        };
        let lines: Vec<String> = (0..count).map(line).collect();
        let (hex, added) = (folder.join("keys.hex"), folder.join("added.hex"));
        std::fs::write(&hex, lines.concat())?;
        std::fs::write(&added, lines[..count / 2].concat())?;
        Ok(Self { count, hex, added })
    }

    /// What the server answers, a digit for each key.
    fn asked(&self, server: &Server, filter: &str) -> Result<Vec<u8>, Failure> {
        let numbers: Vec<usize> = (0..self.count).collect();
        let path = format!("/v1/filters/{filter}/check");
        let mut answers = Vec::with_capacity(self.count);
        for some in numbers.chunks(TOGETHER) {
            let keys: Vec<String> = some.iter().map(|number| key(*number)).collect();
            let body = json!({ "keys": keys }).to_string();
            let told: Value =
                serde_json::from_slice(&ask(server, "POST", &path, "application/json", body.as_bytes())?)?;
            let told = told["answers"].as_array().ok_or("no answers")?;
            answers.extend(told.iter().map(|answer| if answer == "maybe" { b'1' } else { b'0' }));
        }
        Ok(answers)
    }
}

fn key(number: usize) -> String {
    format!("item:{number}")
}

/// Makes a filter with Guava, and asks it.
fn guava(file: &Path, keys: &Keys) -> Result<Vec<u8>, Failure> {
    let line = |mode: &str| {
        let mut line = command("java -cp");
        line.arg(GUAVA).arg(root().join(PROGRAMS).join("GuavaPeer.java")).arg(mode).arg(file);
        line
    };
    let capacity = (keys.count / 2).to_string();
    output(line("write").arg(&keys.added).args([&capacity, "0.01"]))?;
    output(line("answers").arg(&keys.hex))
}

/// Where Redisson's jars are.
fn fetch_redisson() -> Result<PathBuf, Failure> {
    let folder = packages("maven")?;
    let jars = folder.join("redisson");
    let mut fetch = command("mvn --quiet --batch-mode dependency:copy-dependencies --file");
    fetch.arg(root().join(PROGRAMS).join("redisson/pom.xml"));
    fetch.arg(format!("-DoutputDirectory={}", jars.display()));
    fetch.arg(format!("-Dmaven.repo.local={}", folder.join("repository").display()));
    step::run("Redisson", &mut fetch)?;
    Ok(jars)
}
