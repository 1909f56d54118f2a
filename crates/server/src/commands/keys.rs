//! Filters as keys: what is there, what it is called, and until when.

use std::sync::Arc;

use umbel_core::engine::Handle;
use umbel_core::random::{Random, SystemRandom};
use xxhash_rust::xxh3::xxh3_64;

use super::arguments::{Words, integer, is, unsigned};
use super::table::Id;
use super::{NOT_AN_INTEGER, Outcome, SYNTAX};
use crate::glob::matches;
use crate::names::{key_of, name_of};
use crate::resp::Command;
use crate::session::Session;

/// Filters that a scan looks at if nobody says how many.
const SCANNED: usize = 10;

/// `DEL key...`, `UNLINK key...`
pub async fn del(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut dropped = 0;
    for key in command.from(1) {
        if let Some(filter) = session.node.filter(&name_of(key)).await? {
            session.node.engine.drop_filter(&filter).await?;
            dropped += 1;
        }
    }
    session.reply.count(dropped);
    Ok(())
}

/// `EXISTS key...`, `TOUCH key...`
pub async fn exists(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut there = 0;
    for key in command.from(1) {
        there += u64::from(session.node.filter(&name_of(key)).await?.is_some());
    }
    session.reply.count(there);
    Ok(())
}

/// `TYPE key`
pub async fn kind(session: &mut Session, command: Command<'_>) -> Outcome {
    let kind = match session.node.filter(&name_of(command.get(1))).await? {
        None => "none",
        Some(filter) => type_of(&filter),
    };
    session.reply.simple(kind);
    Ok(())
}

/// `KEYS pattern`
pub async fn keys(session: &mut Session, command: Command<'_>) -> Outcome {
    let filters = session.filters(Id::Keys).await?;
    let names: Vec<_> = filters.iter().map(|filter| filter.definition()).collect();
    let found: Vec<_> = names
        .iter()
        .map(|definition| key_of(&definition.name))
        .filter(|key| matches(command.get(1), key))
        .collect();
    session.reply.array(found.len());
    found.iter().for_each(|key| session.reply.bulk(key));
    Ok(())
}

/// `RANDOMKEY`
pub(crate) async fn random(session: &mut Session) -> Outcome {
    let filters = session.filters(Id::Randomkey).await?;
    let number = SystemRandom::default().next() % filters.len().max(1) as u64;
    match filters.get(number as usize) {
        Some(filter) => session.reply.bulk(key_of(&filter.definition().name)),
        None => session.reply.null(),
    }
    Ok(())
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
///
/// Filters come in the order of a hash of their names, and the cursor is the last hash: whatever comes and goes meanwhile, a filter that is
/// there all the time is seen, once.
pub(crate) async fn scan(session: &mut Session, command: Command<'_>) -> Outcome {
    let word = command.get(1);
    // Redis takes a negative number for the large one with the same bits.
    let cursor = unsigned(word).or_else(|| integer(word).map(|number| number as u64));
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count, mut kind) = (None, SCANNED, None);
    let mut words = Words::from(command, 2);
    while let Some(option) = words.next() {
        let value = words.next().ok_or(SYNTAX)?;
        if is(option, "MATCH") {
            pattern = Some(value);
        } else if is(option, "COUNT") {
            let asked = integer(value).ok_or(NOT_AN_INTEGER)?;
            count = usize::try_from(asked).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
        } else if is(option, "TYPE") {
            kind = Some(value);
        } else {
            return Err(SYNTAX.into());
        }
    }
    let mut filters: Vec<(u64, Arc<Handle>)> = session
        .filters(Id::Scan)
        .await?
        .into_iter()
        .map(|filter| (place(&filter.definition().name), filter))
        .filter(|(place, _)| *place > cursor)
        .collect();
    filters.sort_unstable_by_key(|(place, _)| *place);
    let (taken, next) = page(&filters, count);
    let found: Vec<_> = taken
        .iter()
        .filter(|(_, filter)| kind.is_none_or(|kind| is(kind, type_of(filter))))
        .map(|(_, filter)| key_of(&filter.definition().name).into_owned())
        .filter(|key| pattern.is_none_or(|pattern| matches(pattern, key)))
        .collect();
    session.reply.array(2);
    session.reply.bulk(next.to_string());
    session.reply.array(found.len());
    found.iter().for_each(|key| session.reply.bulk(key));
    Ok(())
}

/// Where a filter comes in a scan; never 0, where scans begin. Cursors have 53 bits, for clients that take every number for a double.
fn place(name: &str) -> u64 {
    (xxh3_64(name.as_bytes()) >> 11).max(1)
}

/// So many of them, or a few more: those of one place stay together. And the cursor for the next ones.
fn page<T>(sorted: &[(u64, T)], count: usize) -> (&[(u64, T)], u64) {
    let Some((last, _)) = sorted.get(count - 1) else { return (sorted, 0) };
    let end = sorted.partition_point(|(place, _)| place <= last);
    (&sorted[..end], if end == sorted.len() { 0 } else { *last })
}

/// What clients take a filter for.
fn type_of(filter: &Handle) -> &'static str {
    if filter.is_erasable() { "MBbloomCF" } else { "MBbloom--" }
}

/// `DBSIZE`
pub async fn dbsize(session: &mut Session) -> Outcome {
    let filters = session.node.engine.find_all().await?.len();
    session.reply.count(filters as u64);
    Ok(())
}

/// `FLUSHALL`, `FLUSHDB`
pub async fn flush(id: Id, session: &mut Session) -> Outcome {
    session.permit_all_keys(id)?;
    for filter in session.node.engine.find_all().await? {
        session.node.engine.drop_filter(&filter).await?;
    }
    session.reply.ok();
    Ok(())
}
