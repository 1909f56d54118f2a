//! The gate and its mutating twin.

use serde_json::Value;

use crate::licences;
use crate::planes;
use crate::step::{Failure, command, exists, output, run};

/// Workspaces of their own: built apart, so that rivals and fuzzers never reach users.
const SIDE_WORKSPACES: [&str; 3] =
    ["bench/Cargo.toml", "fuzz/Cargo.toml", "crates/server/tests/clients/rust/Cargo.toml"];

/// Which of our crates each of them may depend on.
const DIRECTIONS: [(&str, &[&str]); 11] = [
    ("umbel-filter", &[]),
    ("umbel-core", &["umbel-filter"]),
    ("umbel-adapters", &["umbel-filter", "umbel-core"]),
    ("umbel-client", &["umbel-filter", "umbel-core"]),
    ("umbel-load", &["umbel-filter", "umbel-core", "umbel-adapters", "umbel-client"]),
    ("umbel-domains", &["umbel-filter", "umbel-core", "umbel-adapters", "umbel-client", "umbel-load"]),
    // The client only in its tests: replicas follow a real server.
    ("umbel-server", &["umbel-filter", "umbel-core", "umbel-client"]),
    (
        "umbel",
        &[
            "umbel-filter",
            "umbel-core",
            "umbel-adapters",
            "umbel-client",
            "umbel-load",
            "umbel-domains",
            "umbel-server",
        ],
    ),
    ("umbel-python", &["umbel-filter", "umbel-core", "umbel-client"]),
    // The rules are written down a second time, apart from the code that follows them.
    ("umbel-model", &[]),
    ("xtask", &[]),
];

pub(crate) fn check() -> Result<(), Failure> {
    run("format", &mut command("cargo fmt --all --check"))?;
    for manifest in SIDE_WORKSPACES {
        run(
            &format!("format of {manifest}"),
            &mut command(&format!("cargo fmt --manifest-path {manifest} --check")),
        )?;
    }
    // With all engines, as the tests have them. The adapters are built without any for bench.
    planes::prepare()?;
    let all = "cargo clippy --workspace --all-targets --features umbel/full --quiet -- -D warnings";
    run("clippy", &mut command(all))?;
    run(
        "clippy of bench",
        &mut command("cargo clippy --manifest-path bench/Cargo.toml --quiet -- -D warnings"),
    )?;
    run(
        "documentation",
        command("cargo doc --workspace --no-deps --features umbel/full --quiet")
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    directions()?;
    licences::check()?;
    if exists("cargo-deny") {
        // Not the advisories: the gate must not fail because a database on the network has changed or is away.
        run("licences and sources", &mut command("cargo deny --all-features check licenses bans sources"))?;
    }
    Ok(())
}

pub(crate) fn fix() -> Result<(), Failure> {
    let line =
        "cargo clippy --workspace --all-targets --features umbel/full --fix --allow-dirty --allow-staged";
    run("clippy", &mut command(line))?;
    run("format", &mut command("cargo fmt --all"))?;
    for manifest in SIDE_WORKSPACES {
        run(
            &format!("format of {manifest}"),
            &mut command(&format!("cargo fmt --manifest-path {manifest}")),
        )?;
    }
    Ok(())
}

/// Dependencies between our crates go one way.
fn directions() -> Result<(), Failure> {
    eprintln!("== directions of dependency");
    let metadata = output(&mut command("cargo metadata --format-version 1 --no-deps"))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = DIRECTIONS.iter().find(|(ours, _)| *ours == name) else {
            return Err(format!("{name} is not in the table of directions in xtask/src/check.rs").into());
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        for dependency in dependencies.filter_map(|dependency| dependency["name"].as_str()) {
            let ours = DIRECTIONS.iter().any(|(name, _)| *name == dependency);
            if ours && !allowed.contains(&dependency) {
                return Err(format!("{name} may not depend on {dependency}").into());
            }
        }
    }
    Ok(())
}
