//! Redis clients for Rust: redis-rs with its typed Bloom commands, fred with raw ones.

mod fred_client;
mod redis_rs;

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a check and prints what came of it.
fn check(name: &str, body: impl FnOnce() -> Result<(), String>) {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err("panicked".into()));
    match outcome {
        Ok(()) => println!("ok\t{name}"),
        // A command that is still to come is no failure; the table says how many wait.
        Err(why) if why.contains("not here yet") => println!("waits\t{name}\t{why}"),
        Err(why) => println!("failed\t{name}\t{}", why.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

fn refused<T, E: Display>(text: &str, outcome: Result<T, E>) -> Result<(), String> {
    match outcome {
        Ok(_) => Err(format!("no error with {text}")),
        Err(error) if error.to_string().contains(text) => Ok(()),
        Err(error) => Err(format!("refused with {error} instead of {text}")),
    }
}

fn items(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("item {number}")).collect()
}

fn port() -> u16 {
    std::env::var("UMBEL_PORT").ok().and_then(|port| port.parse().ok()).expect("UMBEL_PORT names a port")
}

/// The version of a dependency, as the lock file has it.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap_or_default();
    after.split('"').next().unwrap_or_default()
}

fn main() {
    for protocol in [2, 3] {
        redis_rs::run(protocol);
    }
    for protocol in [2, 3] {
        fred_client::run(protocol);
    }
}
