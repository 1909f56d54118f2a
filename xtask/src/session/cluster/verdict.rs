//! What is so in the end: every key at every node, and all hosts of a slot alike.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::traffic::Traffic;
use super::{FILTER, PATIENCE, Story};
use crate::cluster;
use crate::session::link::{Link, Trouble, Value};
use crate::step::Failure;

/// Keys that are asked for at once.
const TOGETHER: u64 = 1000;
/// Slots of a deployment, if nobody says otherwise.
const SLOTS: usize = 256;
/// Pause before somebody is asked again.
const RETRY: Duration = Duration::from_millis(200);

/// Looks at everything, says what it finds, and fails if anything is not as it should be.
pub(super) fn reach(story: &Story, traffic: &Traffic, living: &[u16]) -> Result<(), Failure> {
    let (slots, hosts) = hosts_agree(living)?;
    let mut faults = Vec::new();
    story.tell(&format!("keys acknowledged: {}", traffic.keys()));
    for number in living {
        let lost = lost(*number, traffic)?;
        story.tell(&format!("lost, asked at {}: {lost}", cluster::name(*number)));
        if lost > 0 {
            faults.push(format!("{lost} acknowledged keys are lost at {}", cluster::name(*number)));
        }
    }
    let wrong = traffic.wrong();
    story.tell(&format!("wrong \"absent\" while it went on: {} of {} answers", wrong.len(), traffic.looks()));
    if let Some((key, port)) = wrong.first() {
        faults.push(format!("{} wrong answers; the first: {key} is absent, says port {port}", wrong.len()));
    }
    story.tell(&format!("digests of the hosts are equal: {slots} slots at {hosts} hosts in all"));
    let [writes, reads] = traffic.refusals();
    story.tell(&format!("refused or not reached, and asked again: writes {writes}; reads {reads}"));
    story.tell(&format!(
        "the longest time without an acknowledged write: {:.2} s",
        traffic.longest_wait().as_secs_f64()
    ));
    if traffic.keys() == 0 || traffic.looks() == 0 {
        faults.push("nobody wrote, or nobody read".to_owned());
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
}

/// How many acknowledged keys a node does not know.
fn lost(number: u16, traffic: &Traffic) -> Result<u64, Failure> {
    let mut link = Link::open(cluster::port(number))?;
    let mut lost = 0;
    for keys in traffic.some_keys(TOGETHER) {
        lost += insist(|| link.missing(FILTER, &keys))?;
    }
    Ok(lost)
}

/// Asks again what is refused for the moment.
fn insist<T>(mut ask: impl FnMut() -> Result<T, Trouble>) -> Result<T, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Err(trouble @ Trouble::Refused(_)) if trouble.is_passing() && Instant::now() < end => {
                std::thread::sleep(RETRY);
            }
            other => return Ok(other?),
        }
    }
}

/// All hosts of a slot have come to the same, and each slot has two: how many slots there are, and how many hosts of them.
fn hosts_agree(living: &[u16]) -> Result<(usize, usize), Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut slots: BTreeMap<i64, Vec<Value>> = BTreeMap::new();
        for number in living {
            let mut link = Link::open(cluster::port(*number))?;
            let reply = insist(|| link.ask(&["UMBEL.NODE", "DIGESTS"]))?;
            for pair in reply.list().chunks_exact(2) {
                let slot = pair[0].number().ok_or_else(|| format!("no slot: {:?}", pair[0]))?;
                slots
                    .entry(slot)
                    .or_default()
                    .push(pair[1].list().first().cloned().unwrap_or(pair[1].clone()));
            }
        }
        let agree = |hosts: &[Value]| hosts.len() >= 2 && hosts.iter().all(|host| *host == hosts[0]);
        let differ = slots.iter().find(|(_, hosts)| !agree(hosts));
        match differ {
            None if slots.len() == SLOTS => return Ok((slots.len(), slots.values().map(Vec::len).sum())),
            // One that was just taken in may still be on its way.
            _ if Instant::now() < end => std::thread::sleep(RETRY),
            Some((slot, hosts)) => return Err(format!("slot {slot} differs: {hosts:?}").into()),
            None => return Err(format!("{} slots have hosts, of {SLOTS}", slots.len()).into()),
        }
    }
}
