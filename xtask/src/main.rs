//! The project's own chores: `cargo xtask check`, `fix`, `test`, `browser`, `docs`, `planes`, `services`, `imports`, `python`, `session`, `cluster`, `sizes`, `torture`, `schedules`, `model`, `fuzz`.

mod browser;
mod check;
mod clients;
mod cluster;
mod docs;
mod fuzz;
mod imports;
mod licences;
mod packages;
mod planes;
mod python;
mod schedules;
mod server;
mod services;
mod session;
mod sizes;
mod snapshots;
mod step;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the project")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// The gate: format, lints, documentation, licences, directions of dependency; changes nothing
    Check,
    /// The gate's twin: mends what can be mended by itself
    Fix,
    /// All tests, with what they need installed first
    Test,
    /// The console and the page of the archives in Chromium, as `test` does it too
    Browser {
        /// Where a picture of the archives is kept
        #[arg(long)]
        screenshot: Option<std::path::PathBuf>,
        /// Folder in which pictures of the console are kept
        #[arg(long)]
        console: Option<std::path::PathBuf>,
    },
    /// Every Redis client against a real server, as `test` runs them too
    Clients,
    /// Snapshots read by Java, Python and Go, as `test` does it too
    Snapshots,
    /// The HTTP API against its description, as `test` does it too
    Api,
    /// Every command of the documentation, as `test` does it too
    Docs,
    /// Filters of Guava, RedisBloom and Redisson, imported: their answers beside ours, as `test` does it with fewer keys
    Imports {
        /// Keys that are asked for
        #[arg(long, default_value_t = 1_000_000)]
        keys: usize,
    },
    /// The Python wheel: built, installed and tested with a real server, as `test` does it too
    Python,
    /// Every adapter against its real server; a table of what passed
    Planes {
        /// The servers, all if none is named
        names: Vec<String>,
    },
    /// Build time and size of the command, without engines and with all of them; builds from nothing
    Sizes,
    /// What a user would do, with real servers, printed as it happens
    Session {
        #[command(subcommand)]
        what: session::What,
    },
    /// Real servers on private ports, with data that is thrown away
    Services {
        #[command(subcommand)]
        what: Services,
    },
    /// A cluster on this machine, with the engines that it stands on
    Cluster {
        #[command(subcommand)]
        what: cluster::What,
    },
    /// Kills writing processes and looks for what they had acknowledged
    Torture {
        /// Kills of a log in each durability class, and of an engine in all
        #[arg(long, default_value_t = 200)]
        kills: u64,
        /// Kills of a server while redis-py writes
        #[arg(long, default_value_t = 100)]
        rounds: u64,
    },
    /// Breaks a cluster by chance (its network, nodes and engines, disks and clocks) while clients write and read; needs root
    Schedules {
        /// How many times
        #[arg(long, default_value_t = 200)]
        count: u64,
        /// The seed of the first; the next ones count up
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// What it stands on
        #[arg(long, value_enum, default_value_t = cluster::Engines::Redis)]
        engines: cluster::Engines,
    },
    /// Checks the cluster's rules in all states of a model, as `test` does it too
    Model {
        /// Check larger bounds, too: many minutes, and gigabytes of memory
        #[arg(long)]
        large: bool,
    },
    /// Fuzzes every decoder for a while; needs a nightly toolchain
    Fuzz {
        /// Seconds for each target
        #[arg(long, default_value_t = 30)]
        seconds: u32,
    },
}

#[derive(Subcommand)]
enum Services {
    /// Installs and starts them
    Start { names: Vec<String> },
    /// Ends them and removes their data
    Stop { names: Vec<String> },
    /// Says which run, and where
    Status { names: Vec<String> },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Check => check::check(),
        Chore::Fix => check::fix(),
        Chore::Test => test::run(),
        Chore::Browser { screenshot, console } => browser::run(screenshot.as_deref(), console.as_deref()),
        Chore::Clients => clients::run(),
        Chore::Snapshots => snapshots::run(),
        Chore::Api => clients::api(),
        Chore::Docs => docs::run(),
        Chore::Imports { keys } => imports::run(keys),
        Chore::Python => python::run(),
        Chore::Planes { names } => planes::run(&names),
        Chore::Sizes => sizes::run(),
        Chore::Services { what: Services::Start { names } } => services::start(&names).map(drop),
        Chore::Services { what: Services::Stop { names } } => services::stop(&names),
        Chore::Services { what: Services::Status { names } } => services::status(&names),
        Chore::Session { what } => session::run(&what),
        Chore::Cluster { what } => cluster::run(&what),
        Chore::Torture { kills, rounds } => test::torture(kills, rounds),
        Chore::Schedules { count, seed, engines } => schedules::run(engines, count, seed),
        Chore::Model { large } => test::model(large),
        Chore::Fuzz { seconds } => fuzz::run(seconds),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
