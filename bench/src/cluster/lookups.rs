//! Lookups through the ring beside those of one server: latency at a steady rate, and processor time in batches.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use umbel_client::{Answer, Router};

use super::{FILTER, Nodes, PART, command};
use crate::link::{Link, encoded, key, spread};
use crate::measure::{self, Progress, at, median};
use crate::report::{Figure, Report, Target};

/// Requests a second of the published figure that the ratio is measured for.
const RATE: u64 = 500;
/// What is in turns has turns of this length.
const TURN: Duration = Duration::from_secs(5);
/// Keys of a request, and requests on their way at a time over each connection.
const LOADS: [(&str, usize, usize); 3] =
    [("1 key, 64 ahead", 1, 64), ("64 keys", 64, 1), ("1000 keys, 4 ahead", 1000, 4)];
/// Connections to each server: a client that is alone, and as many as a busy server has at a time. What comes over several of them at once
/// goes to other nodes together.
const CONNECTIONS: [usize; 2] = [1, 16];

pub(super) fn run(
    nodes: &Nodes,
    keys: u64,
    quick: bool,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), Box<dyn Error>> {
    let turns = if quick { 1 } else { 12 };
    let (mut ring, mut single) = (open(&nodes.ring(), 1)?, open(&[nodes.single()], 1)?);
    let (mut routed, mut routed_single) = (Routed::new(&nodes.ring())?, Routed::new(&[nodes.single()])?);
    let mut taken: [Vec<f64>; 4] = Default::default();
    for turn in 0..turns {
        progress.step(format!("{RATE} lookups a second, turn {} of {turns}", turn + 1));
        let [by_single, by_ring, by_routed_single, by_routed] = &mut taken;
        steadily(keys, turn, by_single, |request, key| look_up(&mut single, request, key))?;
        steadily(keys, turn, by_ring, |request, key| look_up(&mut ring, request, key))?;
        steadily(keys, turn, by_routed_single, |_, key| routed_single.look_up(key))?;
        steadily(keys, turn, by_routed, |_, key| routed.look_up(key))?;
    }
    progress.pause();
    let ways = [("", "any node", 0, 1.15), (", routing client", "the right node", 2, 1.05)];
    for (way, who, first, most) in ways {
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let (single, ring) = (at(&mut taken[first], share), at(&mut taken[first + 1], share));
            let what = |who: &str| format!("a lookup, {RATE}/s{way}, {who}: {name}");
            report.figure(Figure::new(PART, what("one server"), single, "us"))?;
            let figure = Figure::new(PART, what(who), ring, "us").against(ring / single, "one server");
            report.figure(figure)?;
            if name == "p99" {
                let ratio = Figure::new(PART, format!("{name} through the ring{way}"), ring / single, "x");
                report.figure(ratio.target(Target::AtMost(most)))?;
            }
        }
    }
    for (connections, (name, batch, ahead)) in CONNECTIONS.iter().flat_map(|n| LOADS.map(|load| (*n, load))) {
        let name = match connections {
            1 => name.to_owned(),
            several => format!("{name}, {several} connections"),
        };
        progress.step(format!("processor time: {name}"));
        let (mut ring, mut single) =
            (open(&nodes.ring(), connections)?, open(&[nodes.single()], connections)?);
        let (mut by_ring, mut by_single) = (Vec::new(), Vec::new());
        for turn in 0..if quick { 1 } else { 5 } {
            let time = Duration::from_secs(if quick { 1 } else { 2 });
            let before = nodes.processor_times().0;
            let count = flat_out(&mut ring, keys, batch, ahead, time, turn)?;
            by_ring.push((nodes.processor_times().0 - before).as_secs_f64() * 1e9 / count as f64);
            let before = nodes.processor_times().1;
            let count = flat_out(&mut single, keys, batch, ahead, time, turn)?;
            by_single.push((nodes.processor_times().1 - before).as_secs_f64() * 1e9 / count as f64);
        }
        progress.pause();
        let (ring, single) = (median(&by_ring), median(&by_single));
        let what = |who: &str| format!("processor time of a key, {name}: {who}");
        report.figure(Figure::new(PART, what("one server"), single, "ns"))?;
        let ratio = ring / single;
        let figure = Figure::new(PART, what("all nodes"), ring, "ns").against(ratio, "one server");
        report.figure(figure)?;
        let figure = Figure::new(PART, format!("processor time, {name}"), ratio, "x");
        report.figure(figure.target(Target::AtMost(1.6)))?;
    }
    Ok(())
}

/// So many connections to each of these servers.
fn open(ports: &[u16], connections: usize) -> std::io::Result<Vec<Link>> {
    let each = ports.iter().flat_map(|port| std::iter::repeat_n(*port, connections));
    each.map(Link::open).collect()
}

/// Looks keys up when they are due, one after another, and notes how many microseconds after that their answers came.
fn steadily(
    keys: u64,
    turn: u64,
    latencies: &mut Vec<f64>,
    mut look_up: impl FnMut(u64, &[u8]) -> Result<bool, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let requests = TURN.as_secs() * RATE;
    let ask = |request: u64| {
        let number = spread(turn * requests + request) % (2 * keys);
        if !look_up(request, &key(number))? && number < keys {
            return Err(format!("key {number} was added and is not there").into());
        }
        Ok::<_, Box<dyn Error>>(())
    };
    latencies.extend(measure::steadily(RATE, |request| request < requests, ask)?);
    Ok(())
}

/// Looks a key up at one connection after the other.
fn look_up(links: &mut [Link], request: u64, key: &[u8]) -> Result<bool, Box<dyn Error>> {
    let link = &mut links[(request % links.len() as u64) as usize];
    Ok(link.ask(&[b"BF.EXISTS", FILTER.as_bytes(), key])?.hits == 1)
}

/// The client that asks the node that has a key.
struct Routed {
    runtime: Runtime,
    router: Router,
}

impl Routed {
    fn new(ports: &[u16]) -> Result<Self, Box<dyn Error>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let addresses: Vec<_> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
        let router = Router::new(&addresses.iter().map(String::as_str).collect::<Vec<_>>())?;
        // Connections are made by the first requests.
        let first: Vec<_> = (0..1000).map(key).collect();
        runtime.block_on(router.contains(FILTER, &first))?;
        Ok(Self { runtime, router })
    }

    fn look_up(&mut self, key: &[u8]) -> Result<bool, Box<dyn Error>> {
        let answers = self.runtime.block_on(self.router.contains(FILTER, &[key]))?;
        Ok(answers.first() == Some(&Answer::Maybe))
    }
}

/// Looks up as many keys as are answered in a time, at all connections at once, and says how many.
fn flat_out(
    links: &mut [Link],
    keys: u64,
    batch: usize,
    ahead: usize,
    time: Duration,
    turn: u64,
) -> Result<u64, Box<dyn Error>> {
    let name: &[u8] = if batch == 1 { b"BF.EXISTS" } else { b"BF.MEXISTS" };
    // Made beforehand: the load's own work is not to be in the way.
    let requests: Vec<Vec<u8>> = (0..32)
        .map(|request| {
            let mut bytes = Vec::new();
            for one in 0..ahead as u64 {
                let first = ((turn * 32 + request) * ahead as u64 + one) * batch as u64;
                let numbers = (first..first + batch as u64).map(|number| spread(number) % (2 * keys));
                bytes.extend(encoded(&command(name, numbers)));
            }
            bytes
        })
        .collect();
    let begin = Instant::now();
    let (mut answered, mut next) = (0, 0);
    while begin.elapsed() < time {
        for link in &mut *links {
            link.send_all(&requests[next % requests.len()])?;
            next += 1;
        }
        for link in &mut *links {
            for _ in 0..ahead {
                answered += link.receive()?.all as u64;
            }
        }
    }
    Ok(answered)
}
