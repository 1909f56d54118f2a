//! Umbel measured against its rivals, and against what the machine can do at all.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `filters` | filters in process: speed, memory and error |
//! | `engine` | the engine on real files: adds, pauses, recovery, growth, snapshots |
//! | `sync` | replicas: what travels, how soon it is there, what lookups notice |
//! | `planes` | logs on engines against the embedded one |
//! | `cluster` | nodes on a ring against one server |
//! | `loops` | what a request costs on tokio, on bare epoll and on io_uring |
//! | `load` | keys from files and databases into filters, and rebuilds |
//! | `federation` | lookups across domains against asking every database |
//! | `link`, `process` | connections to servers, and their processes |
//! | `report` | figures for people and programs |
//! | `measure` | clocks, medians and progress |
//! | `huge_pages` | the allocator that gives rivals the pages that Umbel's arrays have |

mod cluster;
mod engine;
mod federation;
mod filters;
mod huge_pages;
mod link;
mod load;
mod loops;
mod measure;
mod planes;
mod process;
mod report;
mod sync;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static HEAP: huge_pages::HugePages = huge_pages::HugePages;

/// Measures Umbel against its rivals.
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    how: How,
}

/// What all measurements may be told.
#[derive(Clone, Copy, clap::Args)]
struct How {
    /// One JSON object a line on standard output; what is not a figure goes to standard error.
    #[arg(long, global = true)]
    json: bool,
    /// Smaller sizes and fewer rounds, to see that nothing is badly wrong.
    #[arg(long, global = true)]
    quick: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Filters in process: fills and lookups, memory and error, targets.
    Filters(filters::Options),
    /// The engine on real files: adds, pauses, recovery, projection, growth, snapshots.
    #[command(after_help = engine::EXAMPLES)]
    Engine(engine::Options),
    /// Event loops: the processor time of a request on tokio, on bare epoll and on io_uring.
    #[command(after_help = loops::EXAMPLES)]
    Loops(loops::Options),
    /// Replicas: bytes on the wire, time until an add is everywhere, lookups while versions are swapped, compression.
    #[command(after_help = sync::EXAMPLES)]
    Sync(sync::Options),
    /// Logs on Kafka, NATS, RabbitMQ and Redis against the embedded one: appends, latency, reading back, processor time.
    #[command(after_help = planes::EXAMPLES)]
    Planes(planes::Options),
    /// A cluster against one server: lookups through the ring, their processor time, adds, a node that is lost.
    #[command(after_help = cluster::EXAMPLES)]
    Cluster(cluster::Options),
    /// Loads from text, Parquet, SQLite and PostgreSQL against simply reading them, and lookups while a filter is rebuilt.
    #[command(after_help = load::EXAMPLES)]
    Load(load::Options),
    /// Lookups across domains against asking every database, over a network that is slow; memory and speed of the filters.
    #[command(after_help = federation::EXAMPLES)]
    Federation(federation::Options),
}

fn main() -> ExitCode {
    let Arguments { command, how } = Arguments::parse();
    let done = match command {
        Command::Filters(options) => filters::run(&options, how),
        Command::Engine(options) => engine::run(&options, how),
        Command::Loops(options) => loops::run(&options, how),
        Command::Sync(options) => sync::run(&options, how),
        Command::Planes(options) => planes::run(&options, how),
        Command::Cluster(options) => cluster::run(&options, how),
        Command::Load(options) => load::run(&options, how),
        Command::Federation(options) => federation::run(&options, how),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
