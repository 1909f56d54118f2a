//! kill -9 of a process that writes: nothing that it had acknowledged is lost.
//!
//! | module | what is killed |
//! | --- | --- |
//! | `log` | a process that appends to a log, in each durability class |
//! | `engine` | a process with an engine, in the middle of adds, removals, checkpoints, merges, trims and growth |
//!
//! `UMBEL_KILLS` says how often: the log in each class, the engine in all. A process that is killed is this binary again.

mod engine;
mod log;

use std::process::{Child, Command, Stdio};

const FOLDER: &str = "UMBEL_KILLS_FOLDER";

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// How often to kill, unless somebody says otherwise.
fn kills_or(usual: u64) -> u64 {
    std::env::var("UMBEL_KILLS").map_or(usual, |kills| kills.parse().unwrap())
}

/// Runs a test of this binary, which is ignored otherwise, as a process of its own.
fn run_ignored(test: &str, environment: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}
