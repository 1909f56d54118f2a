//! `MEMORY`: where memory goes.

use super::arguments::{Words, integer, is};
use super::info::human;
use super::{NOT_AN_INTEGER, Outcome, SYNTAX, help};
use crate::names::name_of;
use crate::node::Node;
use crate::process;
use crate::resp::Command;
use crate::session::Session;

/// An estimate of what a connection takes besides its buffers.
const CLIENT_BYTES: u64 = 2 << 10;
/// An estimate of what a filter takes besides its arrays.
const FILTER_BYTES: u64 = 1 << 10;
/// Under this, there is nothing to be said about memory.
const LITTLE_BYTES: u64 = 5 << 20;

/// Bytes that the server takes: what is counted before it is taken, and an estimate of the rest.
pub(crate) fn used_bytes(node: &Node) -> u64 {
    node.engine.budget().used() + overhead_bytes(node)
}

fn overhead_bytes(node: &Node) -> u64 {
    node.clients.len() as u64 * CLIENT_BYTES + node.engine.filters().len() as u64 * FILTER_BYTES
}

/// `MEMORY USAGE key [SAMPLES count]`
pub(crate) async fn usage(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut words = Words::from(command, 3);
    while let Some(option) = words.next() {
        let count = words.next().filter(|_| is(option, "SAMPLES")).ok_or(SYNTAX)?;
        if integer(count).ok_or(NOT_AN_INTEGER)? < 0 {
            return Err(SYNTAX.into());
        }
    }
    match session.node.filter(&name_of(command.get(2))).await? {
        Some(filter) => session.reply.count(filter.bytes() + FILTER_BYTES),
        None => session.reply.null(),
    }
    Ok(())
}

/// `MEMORY STATS`
pub(crate) fn stats(session: &mut Session) -> Outcome {
    let node = &session.node;
    let budget = node.engine.budget();
    let (dataset, overhead) = (budget.used(), overhead_bytes(node));
    let used = dataset + overhead;
    let peak = budget.peak().max(used);
    let resident = process::usage().resident_bytes;
    let keys = node.engine.filters().len() as u64;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let numbers = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", node.clients.len() as u64 * CLIENT_BYTES),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.total", overhead),
        ("keys.count", keys),
        ("keys.bytes-per-key", dataset.checked_div(keys).unwrap_or_default()),
        ("dataset.bytes", dataset),
    ];
    let shares = [
        ("dataset.percentage", share(dataset, used) * 100.0),
        ("peak.percentage", share(used, peak) * 100.0),
        ("fragmentation", share(resident, used)),
    ];
    let reply = &mut session.reply;
    reply.map(numbers.len() + shares.len() + 1);
    for (name, number) in numbers {
        reply.bulk(name);
        reply.count(number);
    }
    for (name, number) in shares {
        reply.bulk(name);
        reply.double(number);
    }
    reply.bulk("fragmentation.bytes");
    reply.integer(resident as i64 - used as i64);
    Ok(())
}

/// `MEMORY DOCTOR`
pub(crate) fn doctor(session: &mut Session) -> Outcome {
    let budget = session.node.engine.budget();
    let (used, limit) = (budget.used(), budget.limit());
    let text = if used < LITTLE_BYTES {
        "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in these conditions. Please, leave for your mission on Earth and fill it with some data. The new Sam and I will be back to our programming as soon as I finished rebooting.\n".to_owned()
    } else if used > limit / 10 * 9 {
        format!(
            "Sam, I detected a few issues in this instance memory implants:\n\n * Close to the limit: filters take {} of {}. Filters that nobody asked for lately are left on disk, and new ones are refused when that does not suffice.\n",
            human(used),
            human(limit)
        )
    } else {
        "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this base.\n".to_owned()
    };
    session.reply.verbatim(&text);
    Ok(())
}

/// `MEMORY HELP`
pub(crate) fn show_help(session: &mut Session) -> Outcome {
    let lines = [
        "DOCTOR",
        "    Return memory problems reports.",
        "STATS",
        "    Return information about the memory usage of the server.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value. Nested values are",
        "    sampled up to <count> times (default: 5, 0 means sample all).",
    ];
    help(session, "MEMORY", &lines)
}
