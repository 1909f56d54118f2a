//! Running commands, loudly.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// All tests are chosen from the whole workspace with all engines: a package alone, or with other features, would be built again.
pub(crate) const TESTS: &str = "cargo test --workspace --features umbel/full";

/// Why a chore stopped.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(PathBuf::from).unwrap_or(manifest)
}

/// A command, as words, to be run in the repository's root.
pub(crate) fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(root());
    // Cargo, which started this chore, tells it which package it is of. Build scripts ask for the same names, and would be run again, with
    // all that depends on them, whenever somebody builds now with a chore and now without one.
    let of_this_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars()
        .filter(|(name, _)| of_this_package(name))
        .for_each(|(name, _)| _ = command.env_remove(name));
    command
}

/// Runs a command to its end, under a title; anything but success is a failure.
pub(crate) fn run(title: &str, command: &mut Command) -> Result<(), Failure> {
    eprintln!("== {title}");
    let start = Instant::now();
    let status = command.status().map_err(|error| format!("{title}: cannot start: {error}"))?;
    eprintln!("-- {title}: {:.1} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{title} failed").into()) }
}

/// What a command prints, if it succeeds.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if output.status.success() { Ok(output.stdout) } else { Err(format!("{command:?} failed").into()) }
}

/// Whether a program can be started.
pub(crate) fn exists(program: &str) -> bool {
    command("which").arg(program).output().is_ok_and(|output| output.status.success())
}
