//! A filter of hundreds of millions of elements on many nodes: whether memory, balance and error rate are what `umbel plan` says.
//!
//! The plan comes first, and its figures are what is expected. A filter of just that capacity is filled through all nodes; then memory is
//! read where nodes and the system tell it, and keys that were added and keys that nobody added are asked for.

mod fill;
mod measure;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Story;
use super::link::Link;
use crate::cluster::{self, Engines, Setup, Up};
use crate::planes;
use crate::server::given;
use crate::step::{self, Failure, command, output, root};
use measure::{Node, nodes};

const FILTER: &str = "scale";
const COPIES: u32 = 2;
/// As many as there are slots, so that nodes host what the plan's ring gives them.
const PARTITIONS: u32 = 256;
/// What a large deployment is planned for, with the same code.
const LARGE: &str = "30e9";
const MIB: f64 = (1u64 << 20) as f64;

/// The largest node has a tenth more than the mean, at most.
const BALANCE_MAX: f64 = 1.1;
/// How far the arrays of all nodes may be from the plan: one partition, in which it stands what filters there are, is on every node.
const ARRAYS_TOLERANCE: f64 = 0.02;
/// What a node may take beyond its arrays and what it took without any: buffers for requests, entries on their way, blocks that become
/// checkpoints. It does not grow with the filter.
const BUFFERS_MAX: u64 = 192 << 20;

/// What somebody wants to see.
pub(super) struct Asked {
    pub(super) nodes: u16,
    pub(super) keys: u64,
    pub(super) error: f64,
    pub(super) engines: Engines,
}

pub(super) fn run(asked: &Asked, umbel: Option<&Path>) -> Result<(), Failure> {
    let umbel = match umbel {
        Some(path) => given(path)?,
        None => released()?,
    };
    let Asked { nodes: count, keys, error, engines } = *asked;
    let story = Story::begin();
    let plan = Plan::ask(&story, &umbel, asked)?;
    let up = Up::new(&Setup { nodes: count, engines, partitions: PARTITIONS, umbel: Some(&umbel) })?;
    let empty = nodes(count)?;
    let resident: u64 = empty.iter().map(|node| node.resident).sum();
    story.tell(&format!(
        "{count} nodes serve; each takes {:.1} MiB without a filter",
        resident as f64 / f64::from(count) / MIB
    ));

    let (capacity, rate) = (keys.to_string(), error.to_string());
    // It never grows and keeps no keys, so that what it takes is what was planned: its arrays, and a log that checkpoints let go of.
    let making = ["UMBEL.CREATE", FILTER, &capacity, &rate, "NONSCALING", "RETAIN", "no", "SHARDS", "all"];
    Link::open(cluster::port(1))?.ask(&making)?;
    story.tell(&making.join(" "));
    let filled = fill::run(&story, count, keys)?;
    story.tell(&format!(
        "{keys} keys are in, {} of them new; {} requests were refused and sent again; {:.0} s, {:.0} keys a second",
        filled.added,
        filled.refusals,
        filled.time.as_secs_f64(),
        keys as f64 / filled.time.as_secs_f64()
    ));

    let mut faults = memory(&story, &plan, &empty, &nodes(count)?);
    faults.extend(measure::answers(&story, count, keys, error)?);
    drop(up);
    story.tell("all is taken down");

    story.tell(&format!("the same plan for {LARGE} keys, and for machines with as much memory as it says:"));
    let copies = COPIES.to_string();
    let large = ["plan", "--capacity", LARGE, "--error", &rate, "--copies", &copies];
    let figures = output(Command::new(&umbel).args(large).arg("--json"))?;
    let needed = serde_json::from_slice::<Value>(&figures)?["nodes"].as_u64().ok_or("no number of nodes")?;
    for nodes in [u64::from(count), needed] {
        story.show(&umbel, &[&large[..], &["--nodes", &nodes.to_string()]].concat())?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
}

/// The command as people run it. It is built with all engines.
fn released() -> Result<PathBuf, Failure> {
    planes::prepare()?;
    step::run("build umbel", &mut command("cargo build --release --features full -p umbel"))?;
    Ok(root().join("target/release/umbel"))
}

/// What `umbel plan` says.
struct Plan {
    bytes: u64,
    shards: u64,
    shard_bytes: u64,
    /// Of the node that has most.
    node_bytes_max: u64,
}

impl Plan {
    fn ask(story: &Story, umbel: &Path, asked: &Asked) -> Result<Self, Failure> {
        let numbers =
            [asked.keys.to_string(), asked.error.to_string(), COPIES.to_string(), asked.nodes.to_string()];
        let [keys, error, copies, nodes] = numbers.each_ref().map(String::as_str);
        let words = ["plan", "--capacity", keys, "--error", error, "--copies", copies, "--nodes", nodes];
        story.show(umbel, &words)?;
        let told: Value = serde_json::from_slice(&output(Command::new(umbel).args(words).arg("--json"))?)?;
        let figure =
            |name: &str| told[name].as_u64().ok_or_else(|| format!("the plan has no {name}: {told}"));
        let shards = figure("shards")?;
        if shards != u64::from(PARTITIONS) {
            return Err(format!("{shards} shards are planned, for {PARTITIONS} partitions").into());
        }
        Ok(Self {
            bytes: figure("bytes")?,
            shards,
            shard_bytes: figure("shard_bytes")?,
            node_bytes_max: figure("ring_node_bytes_max")?,
        })
    }
}

/// Compares what nodes hold with the plan; what is not as it should be.
fn memory(story: &Story, plan: &Plan, empty: &[Node], full: &[Node]) -> Vec<String> {
    let mut faults = Vec::new();
    let count = full.len() as u64;
    let mib = |bytes: u64| bytes as f64 / MIB;
    story.tell(
        "node       partitions  arrays MiB  planned MiB  resident MiB  beyond arrays and the empty node, MiB",
    );
    for (number, (before, now)) in (1..).zip(empty.iter().zip(full)) {
        let planned = now.partitions * plan.shard_bytes;
        let beyond = now.resident.saturating_sub(before.resident + now.arrays);
        story.tell(&format!(
            "{:<9}  {:>10}  {:>10.1}  {:>11.1}  {:>12.1}  {:.1}",
            cluster::name(number),
            now.partitions,
            mib(now.arrays),
            mib(planned),
            mib(now.resident),
            mib(beyond)
        ));
        if now.arrays != planned {
            faults.push(format!("node {number} has arrays of {} bytes, and not of {planned}", now.arrays));
        }
        if beyond > BUFFERS_MAX {
            faults.push(format!("node {number} takes {:.1} MiB beyond its arrays", mib(beyond)));
        }
    }
    let (all, planned) = (full.iter().map(|node| node.arrays).sum::<u64>(), plan.bytes * u64::from(COPIES));
    let difference = all as f64 / planned as f64 - 1.0;
    story.tell(&format!(
        "all arrays: {:.1} MiB, {:+.2} % of the plan's {:.1} MiB ({} shards, {COPIES} copies); what filters there are is on all nodes",
        mib(all),
        difference * 100.0,
        mib(planned),
        plan.shards
    ));
    // The catalog's partition has more hosts than the others, which is known and no deviation.
    let catalog = (count - u64::from(COPIES)) * plan.shard_bytes;
    let unexplained = (all as f64 - catalog as f64) / planned as f64 - 1.0;
    if unexplained.abs() > ARRAYS_TOLERANCE {
        faults.push(format!("arrays are {:+.2} % of what was planned", unexplained * 100.0));
    }
    let largest = full.iter().map(|node| node.arrays).max().unwrap_or_default();
    let balance = largest as f64 * count as f64 / all as f64;
    story.tell(&format!(
        "the largest node has {:.1} MiB, {balance:.3} of the mean; the plan says up to {:.1} MiB",
        mib(largest),
        mib(plan.node_bytes_max)
    ));
    if balance > BALANCE_MAX {
        faults.push(format!("the largest node has {balance:.3} of the mean"));
    }
    if largest > plan.node_bytes_max + plan.shard_bytes {
        faults.push(format!("a node has {} bytes of arrays; {} were planned", largest, plan.node_bytes_max));
    }
    faults
}
