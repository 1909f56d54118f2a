//! What nodes hold, by their own account and by the system's, and how they answer.

use std::ops::Range;
use std::process::Command;

use serde_json::Value;

use super::{FILTER, Story};
use crate::cluster;
use crate::server::get;
use crate::session::link::Link;
use crate::step::{Failure, output};

/// Keys that are asked for, of those that were added and of those that nobody added.
const SAMPLE: u64 = 2_000_000;
/// Keys of a request.
const TOGETHER: u64 = 5000;
/// Threads that ask.
const READERS: u64 = 4;
/// Standard deviations that the share of wrong answers may be over the target.
const DEVIATIONS: f64 = 3.0;
/// A number that has no factor with most others: steps of it through all keys meet different ones.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a node holds.
pub(super) struct Node {
    /// Partitions that it serves.
    pub(super) partitions: u64,
    /// Bytes of the filter's arrays, if there is one.
    pub(super) arrays: u64,
    /// Bytes of its process in memory.
    pub(super) resident: u64,
}

/// What all nodes hold.
pub(super) fn nodes(count: u16) -> Result<Vec<Node>, Failure> {
    let registry = cluster::registry()?;
    let told =
        output(Command::new(cluster::umbel_command()?).args(["ring", "--json", "--registry", &registry]))?;
    let ring: Value = serde_json::from_slice(&told)?;
    let served = |name: &str| {
        let nodes = ring["nodes"].as_array()?;
        nodes.iter().find(|node| node["name"] == name)?["serves"].as_u64()
    };
    let node = |number: u16| {
        let name = cluster::name(number);
        let partitions = served(&name).ok_or_else(|| format!("{name} is not in the ring"))?;
        Ok(Node { partitions, arrays: arrays(number)?, resident: resident(number)? })
    };
    (1..=count).map(node).collect()
}

fn arrays(number: u16) -> Result<u64, Failure> {
    let page = get(cluster::http_port(number), "/metrics")?;
    let name = format!("umbel_filter_bytes{{filter=\"{FILTER}\"}}");
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    match line {
        None => Ok(0),
        Some(value) => Ok(value.trim().parse::<f64>().map_err(|error| format!("{value}: {error}"))? as u64),
    }
}

fn resident(number: u16) -> Result<u64, Failure> {
    let pid = cluster::process(number).ok_or_else(|| format!("node {number} does not run"))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = kibibytes.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kibibytes.ok_or_else(|| format!("process {pid} has no memory"))? * 1024)
}

/// Asks for keys that were added and for strangers; what is not as it should be.
pub(super) fn answers(story: &Story, nodes: u16, keys: u64, error: f64) -> Result<Vec<String>, Failure> {
    let mut faults = Vec::new();
    let sample = SAMPLE.min(keys);
    let added = |number: u64| 1 + (u128::from(number) * u128::from(STRIDE) % u128::from(keys)) as u64;
    let lost = missing(nodes, sample, &added)?;
    story.tell(&format!(
        "of {sample} keys that were added, asked for at all nodes in turn, {lost} are missing"
    ));
    if lost > 0 {
        faults.push(format!("{lost} keys are lost"));
    }
    let stranger = |number: u64| keys + 1 + number;
    let mistaken = SAMPLE - missing(nodes, SAMPLE, &stranger)?;
    let rate = mistaken as f64 / SAMPLE as f64;
    let most = error + DEVIATIONS * (error / SAMPLE as f64).sqrt();
    story.tell(&format!(
        "of {SAMPLE} keys that nobody added, {mistaken} are taken for added: an error rate of {rate:.3e}, for a target of {error:.3e} \
         (up to {most:.3e} is chance)"
    ));
    if rate > most {
        faults.push(format!("the error rate is {rate:.3e}"));
    }
    Ok(faults)
}

/// How many of these keys are certainly not in the filter. Nodes are asked in turn.
fn missing(nodes: u16, count: u64, key: &(dyn Fn(u64) -> u64 + Sync)) -> Result<u64, Failure> {
    let ask = |reader: u64, numbers: Range<u64>| -> Result<u64, Failure> {
        let ports = (1..=nodes).map(cluster::port);
        let mut links = ports.map(Link::open).collect::<Result<Vec<_>, _>>()?;
        let mut missing = 0;
        for (turn, first) in (reader as usize..).zip(numbers.clone().step_by(TOGETHER as usize)) {
            let keys: Vec<String> =
                (first..numbers.end.min(first + TOGETHER)).map(|number| key(number).to_string()).collect();
            let node = turn % links.len();
            missing += links[node].missing(FILTER, &keys)?;
        }
        Ok(missing)
    };
    let counts: Vec<Result<u64, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..READERS)
            .map(|reader| {
                let (ask, bound) = (&ask, |reader: u64| count * reader / READERS);
                let numbers = bound(reader)..bound(reader + 1);
                scope.spawn(move || ask(reader, numbers).map_err(|error| error.to_string()))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a reader died".into())))
            .collect()
    });
    Ok(counts.into_iter().collect::<Result<Vec<_>, _>>()?.iter().sum())
}
