//! The Python wheel: built, installed and tested, with a real server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clients::{packages, python_environment};
use crate::packages::{Need, install};
use crate::server::{Server, binary};
use crate::snapshots::BLOOMFILTER_PY;
use crate::step::{self, Failure, command, root};

const NEEDS: [Need; 1] = [Need { check: "python3 -m ensurepip --version", package: "python3-venv" }];
const CRATE: &str = "crates/python";
const TOOLS: [&str; 5] = ["maturin==1.16.0", "mypy==2.4.1", "numpy==2.4.6", "pytest==9.2.0", BLOOMFILTER_PY];

/// Builds the wheel as the tests build everything, since an optimised one takes minutes, and tries it as users have it: installed.
pub(crate) fn run() -> Result<(), Failure> {
    install(&NEEDS)?;
    let environment = python_environment()?;
    let mut tools = tool(&environment, "pip");
    step::run("Python tools", tools.args(["install", "--quiet"]).args(TOOLS))?;
    let wheel = built(&environment)?;
    let mut installed = tool(&environment, "pip");
    installed.args(["install", "--quiet", "--force-reinstall", "--no-deps"]).arg(wheel);
    step::run("install the wheel", &mut installed)?;

    let mut stubs = tool(&environment, "python");
    step::run("types of the module against its stubs", stubs.args(["-m", "mypy.stubtest", "umbel"]))?;
    let mut types = tool(&environment, "mypy");
    step::run("types of the tests", types.args(["--no-error-summary", "tests"]))?;
    let mut server = Server::start(&binary()?, &[])?;
    let mut tests = tool(&environment, "python");
    tests.args(["-m", "pytest", "--quiet", "tests"]);
    tests.env("UMBEL_URL", format!("http://127.0.0.1:{}", server.http_port));
    step::run("tests of the wheel", &mut tests)?;
    if server.is_running() { Ok(()) } else { Err(format!("the server has ended: {}", server.said()).into()) }
}

/// A program of the environment, where the settings of the crate are.
fn tool(environment: &Path, name: &str) -> Command {
    let mut line = command("env");
    line.arg(environment.join("bin").join(name)).current_dir(root().join(CRATE));
    line
}

/// Builds a wheel and says where it is.
fn built(environment: &Path) -> Result<PathBuf, Failure> {
    let folder = packages("wheels")?;
    std::fs::remove_dir_all(&folder)?;
    let mut build = tool(environment, "maturin");
    // For this machine only: whether others can load it is asked when one is published.
    build.args(["build", "--quiet", "--profile", "dev", "--locked", "--compatibility", "linux"]);
    build.arg("--interpreter").arg(environment.join("bin/python")).arg("--out").arg(&folder);
    step::run("build the wheel", &mut build)?;
    let mut wheels = std::fs::read_dir(&folder)?;
    let wheel = wheels.next().ok_or("maturin built no wheel")??;
    Ok(wheel.path())
}
