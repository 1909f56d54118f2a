//! The console, and the page of the archives, in a real browser.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::clients::packages;
use crate::packages::{Need, install};
use crate::server::binary;
use crate::step::{self, Failure, command, root};

const NEEDS: [Need; 4] = [
    Need { check: "chromium --version", package: "chromium" },
    Need { check: "node --version", package: "nodejs" },
    Need { check: "npm --version", package: "npm" },
    Need { check: "redis-server --version", package: "redis-server" },
];
/// It drives a browser that is there, and brings none.
const PLAYWRIGHT: &str = "playwright-core@1.65.1";
/// It looks for what keeps people out.
const AXE: &str = "axe-core@4.14.0";
const PROGRAMS: [&str; 3] = [
    "examples/archives/browser.mjs",
    "crates/server/tests/browser/console.mjs",
    "crates/server/tests/browser/servers.mjs",
];
/// As the tests have it, so that nothing is built twice.
const BUILD: &str = "cargo build --workspace --features umbel/full --example archives";

/// Three archives, until it is dropped.
struct Archives(Child);

impl Drop for Archives {
    fn drop(&mut self) {
        // It may have ended by itself, of which its output tells.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Uses the pages as a person does; keeps pictures of them where somebody wants some: of the archives, and, in a folder, of the console.
pub(crate) fn run(screenshot: Option<&Path>, console: Option<&Path>) -> Result<(), Failure> {
    install(&NEEDS)?;
    let folder = packages("browser")?;
    let mut packages = command("npm install --silent --no-audit --no-fund --prefix");
    step::run("npm packages", packages.arg(&folder).args([PLAYWRIGHT, AXE]))?;
    // Modules are found upwards from the program, so it is copied to where they are.
    for program in PROGRAMS.map(|program| root().join(program)) {
        std::fs::copy(&program, folder.join(program.file_name().ok_or("a program has a name")?))?;
    }
    let mut program = command("node");
    program.arg(folder.join("console.mjs")).arg(binary()?);
    if let Some(path) = console {
        program.arg(std::path::absolute(path)?);
    }
    step::run("the console in a browser", &mut program)?;
    archives(&folder, screenshot)
}

fn archives(folder: &Path, screenshot: Option<&Path>) -> Result<(), Failure> {
    step::run("build the archives", &mut command(BUILD))?;
    let mut start = Command::new(root().join("target/debug/examples/archives"));
    let mut archives = Archives(start.args(["--port", "0"]).stdout(Stdio::piped()).spawn()?);
    let (address, first) = ready(&mut archives)?;
    let mut program = command("node");
    program.arg(folder.join("browser.mjs")).arg(address).arg(first);
    if let Some(path) = screenshot {
        program.arg(std::path::absolute(path)?);
    }
    step::run("the archives in a browser", &mut program)
}

/// Waits until they say where the page is, and which number is the first.
fn ready(archives: &mut Archives) -> Result<(String, String), Failure> {
    let output = archives.0.stdout.take().ok_or("the archives say nothing")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        let said = line.split_once("http://").filter(|_| line.starts_with("ready"));
        let Some((_, rest)) = said else { continue };
        let mut words = rest.split([' ', '/', '(']).filter(|word| !word.is_empty());
        let address = words.next().ok_or("the archives name no address")?;
        let first = words.find(|word| word.parse::<u32>().is_ok()).ok_or("the archives name no number")?;
        return Ok((format!("http://{address}"), first.to_owned()));
    }
    Err("the archives ended before they were ready".into())
}
