//! A cluster against one server: lookups through the ring, what they cost, adds over the log, and a node that is lost.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `lookups` | latency at a steady rate, and processor time of lookups in batches |
//! | `adds` | adds in batches beside bare appends to the same log |
//! | `loss` | a node is killed while somebody reads and writes |
//! | `nodes` | the processes |
//!
//! Nodes are processes of the `umbel` that is named, all on this machine: they share its processors with the engines and with the
//! benchmark, as the single server does that they are compared with.

mod adds;
mod lookups;
mod loss;
mod nodes;

use std::error::Error;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::How;
use crate::link::{self, Link};
use crate::measure::Progress;
use crate::report::Report;
use nodes::Nodes;

pub(crate) const EXAMPLES: &str = "The servers: `cargo xtask services start redis` (or kafka s3 etcd) provides them, and `cargo build --release --features full` the umbel.
Addresses are without names: nodes get names of their own there, which stay; do not point this at a server that you need.
Examples:
  bench cluster --log redis://127.0.0.1:6379 --blobs redis://127.0.0.1:6379 --registry redis://127.0.0.1:6379
  bench cluster --log kafka://127.0.0.1:9092 --blobs 's3://bucket?endpoint=http://127.0.0.1:9000&region=us-east-1' \\
                --registry etcd://127.0.0.1:2379 --part adds";

/// What `cluster` is to measure, and on what.
#[derive(Args)]
pub(crate) struct Options {
    /// Where nodes write: the address of an engine.
    #[arg(long, value_name = "URL")]
    log: String,
    /// Where nodes keep arrays.
    #[arg(long, value_name = "URL")]
    blobs: String,
    /// Where nodes agree on who they are.
    #[arg(long, value_name = "URL")]
    registry: String,
    /// The command, built with these engines.
    #[arg(long, value_name = "PATH", default_value = "target/release/umbel")]
    umbel: PathBuf,
    /// How many nodes there are.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=20))]
    nodes: u16,
    /// How many partitions the log has.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    partitions: u32,
    /// Only these parts.
    #[arg(long, value_enum)]
    part: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Lookups,
    Adds,
    Loss,
}

const PART: &str = "cluster";
const FILTER: &str = "measured";
/// So large that its shards are on all nodes.
const CAPACITY: u64 = 50_000_000;
/// Keys of a request when the filter is filled, and when adds are measured.
const BATCH: usize = 1000;

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    let (mut report, mut progress) = (Report::new(how.json), Progress::start());
    let keys: u64 = if how.quick { 100_000 } else { 2_000_000 };
    let wanted = |part| options.part.is_empty() || options.part.contains(&part);
    progress.step(format!("starting {} nodes and one server", options.nodes));
    let mut nodes = Nodes::start(options)?;
    for port in [nodes.ring()[0], nodes.single()] {
        progress.step(format!("{keys} keys through port {port}"));
        fill(port, keys, &progress)?;
    }
    if wanted(Part::Lookups) {
        lookups::run(&nodes, keys, how.quick, &mut report, &mut progress)?;
    }
    if wanted(Part::Adds) {
        adds::run(&nodes, &options.log, how.quick, &mut report, &mut progress)?;
    }
    if wanted(Part::Loss) {
        loss::run(&mut nodes, how.quick, &mut report, &mut progress)?;
    }
    progress.step("done".to_owned());
    progress.pause();
    Ok(())
}

/// Makes the filter and adds keys, some batches at a time.
fn fill(port: u16, keys: u64, progress: &Progress) -> Result<(), Box<dyn Error>> {
    const AHEAD: u64 = 8;
    let mut link = Link::open(port)?;
    link.ask(&[b"BF.RESERVE", FILTER.as_bytes(), b"0.001", CAPACITY.to_string().as_bytes()])?;
    let batches = keys.div_ceil(BATCH as u64);
    for batch in 0..batches + AHEAD {
        if batch < batches {
            let numbers = batch * BATCH as u64..(batch + 1) * BATCH as u64;
            link.send(&command(b"BF.MADD", numbers))?;
        }
        if batch >= AHEAD {
            link.receive()?;
        }
        progress.part(batch, batches);
    }
    Ok(())
}

/// A command about keys of the filter.
fn command(name: &[u8], numbers: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    link::command(name, FILTER, numbers)
}
