//! Filters as keys: what is there, what it is called, and until when.

use super::Outcome;
use crate::names::{key_of, name_of};
use crate::resp::Command;
use crate::session::{Session, is_erasable};

/// `DEL key...`, `UNLINK key...`
pub async fn del(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut dropped = 0;
    for key in command.from(1) {
        if let Some(filter) = session.node.engine.filter(&name_of(key)) {
            session.node.engine.drop_filter(&filter).await?;
            dropped += 1;
        }
    }
    session.reply.count(dropped);
    Ok(())
}

/// `EXISTS key...`, `TOUCH key...`
pub fn exists(session: &mut Session, command: Command<'_>) -> Outcome {
    let there = command.from(1).filter(|key| session.node.engine.filter(&name_of(key)).is_some()).count();
    session.reply.count(there as u64);
    Ok(())
}

/// `TYPE key`
pub fn kind(session: &mut Session, command: Command<'_>) -> Outcome {
    let kind = match session.node.engine.filter(&name_of(command.get(1))) {
        None => "none",
        Some(filter) if is_erasable(&filter) => "MBbloomCF",
        Some(_) => "MBbloom--",
    };
    session.reply.simple(kind);
    Ok(())
}

/// `KEYS pattern`
pub fn keys(session: &mut Session, _command: Command<'_>) -> Outcome {
    let filters = session.node.engine.filters();
    session.reply.array(filters.len());
    filters.iter().for_each(|filter| session.reply.bulk(key_of(&filter.definition().name)));
    Ok(())
}

/// `DBSIZE`
pub fn dbsize(session: &mut Session) -> Outcome {
    let filters = session.node.engine.filters().len();
    session.reply.count(filters as u64);
    Ok(())
}

/// `FLUSHALL`, `FLUSHDB`
pub async fn flush(session: &mut Session) -> Outcome {
    for filter in session.node.engine.filters() {
        session.node.engine.drop_filter(&filter).await?;
    }
    session.reply.ok();
    Ok(())
}
