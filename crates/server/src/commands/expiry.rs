//! What filters are called, and until when they are there.

use umbel_core::Error;
use umbel_core::engine::Handle;

use super::arguments::{integer, is};
use super::table::Id;
use super::{NOT_AN_INTEGER, Outcome, Refusal};
use crate::names::name_of;
use crate::node::unix_time;
use crate::resp::Command;
use crate::session::Session;

/// `RENAME key new`, `RENAMENX key new`, `UMBEL.RENAME key new [NX]`
pub(super) async fn rename(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    let unless_taken = id == Id::Renamenx || is(command.get(3), "NX");
    if command.len() > 3 && !is(command.get(3), "NX") {
        return Err(super::SYNTAX.into());
    }
    let engine = &session.node.engine;
    let filter = session.node.filter(&name_of(command.get(1))).await?.ok_or("ERR no such key")?;
    let (from, to) = (command.get(1), command.get(2));
    let taken = session.node.filter(&name_of(to)).await?.is_some();
    if unless_taken && taken {
        session.reply.integer(0);
        return Ok(());
    }
    if from != to {
        match engine.rename_from(&filter, &name_of(from), &name_of(to), !unless_taken).await {
            Ok(()) => {}
            // Another renaming or creation came before this one in the log.
            Err(Error::Invalid(why)) => return lost_name(session, from, to, unless_taken, why).await,
            Err(error) => return Err(error.into()),
        }
    }
    if unless_taken {
        session.reply.integer(1);
    } else {
        session.reply.ok();
    }
    Ok(())
}

/// Answers a renaming that was refused because of what another client did at the same time.
async fn lost_name(
    session: &mut Session,
    from: &[u8],
    to: &[u8],
    unless_taken: bool,
    why: String,
) -> Outcome {
    if session.node.filter(&name_of(from)).await?.is_none() {
        return Err("ERR no such key".into());
    }
    if unless_taken && session.node.filter(&name_of(to)).await?.is_some() {
        session.reply.integer(0);
        return Ok(());
    }
    Err(Error::Invalid(why).into())
}

/// Which of the times that a filter has and is given lets it be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Only {
    #[default]
    Always,
    IfNone,
    IfAny,
    IfLater,
    IfSooner,
}

/// `EXPIRE key seconds [NX|XX|GT|LT]`, and the same in milliseconds and as times.
pub(super) async fn expire(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    let row = id.row();
    let number = integer(command.get(2)).ok_or(NOT_AN_INTEGER)?;
    let invalid = || Refusal::from(format!("ERR invalid expire time in '{}' command", row.name));
    let (in_seconds, absolute) = match id {
        Id::Expire => (true, false),
        Id::Pexpire => (false, false),
        Id::Expireat => (true, true),
        _ => (false, true),
    };
    let millis = if in_seconds { number.checked_mul(1000).ok_or_else(invalid)? } else { number };
    let now = unix_time().as_millis() as i64;
    let at = if absolute { millis } else { now.checked_add(millis).ok_or_else(invalid)? };
    let only = only(command)?;
    let engine = &session.node.engine;
    let Some(filter) = session.node.filter(&name_of(command.get(1))).await? else {
        session.reply.integer(0);
        return Ok(());
    };
    let at_unsigned = u64::try_from(at).unwrap_or(0);
    let allows = |has: Option<u64>| match only {
        Only::Always => true,
        Only::IfNone => has.is_none(),
        Only::IfAny => has.is_some(),
        // A filter that never expires does so later than any other.
        Only::IfLater => has.is_some_and(|has| at_unsigned > has),
        Only::IfSooner => has.is_none_or(|has| at_unsigned < has),
    };
    let changes = if at > now {
        engine.expire_if(&filter, Some(at_unsigned), allows).await?
    } else {
        let changes = allows(filter.definition().expires);
        if changes {
            engine.drop_filter(&filter).await?;
        }
        changes
    };
    session.reply.integer(changes.into());
    Ok(())
}

fn only(command: Command<'_>) -> Outcome<Only> {
    let mut only = Only::default();
    for word in command.from(3) {
        let wanted = match word.to_ascii_uppercase().as_slice() {
            b"NX" => Only::IfNone,
            b"XX" => Only::IfAny,
            b"GT" => Only::IfLater,
            b"LT" => Only::IfSooner,
            _ => return Err(format!("ERR Unsupported option {}", String::from_utf8_lossy(word)).into()),
        };
        only = match (only, wanted) {
            (Only::Always, wanted) => wanted,
            (was, wanted) if was == wanted => was,
            // Whoever asks for both asks for the stricter one.
            (Only::IfAny, Only::IfLater | Only::IfSooner) => wanted,
            (Only::IfLater | Only::IfSooner, Only::IfAny) => only,
            (Only::IfLater, Only::IfSooner) | (Only::IfSooner, Only::IfLater) => {
                return Err("ERR GT and LT options at the same time are not compatible".into());
            }
            _ => return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into()),
        };
    }
    Ok(only)
}

/// `TTL key`, `PTTL key`, `EXPIRETIME key`, `PEXPIRETIME key`
pub(super) async fn time_left(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = session.node.filter(&name_of(command.get(1))).await?;
    session.reply.integer(filter.map_or(-2, |filter| time_of(id, &filter)));
    Ok(())
}

fn time_of(id: Id, filter: &Handle) -> i64 {
    let Some(at) = filter.definition().expires else { return -1 };
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    let left = (at - unix_time().as_millis() as i64).max(0);
    match id {
        Id::Ttl => left.saturating_add(500) / 1000,
        Id::Pttl => left,
        Id::Expiretime => at / 1000,
        _ => at,
    }
}

/// `PERSIST key`
pub(super) async fn persist(session: &mut Session, command: Command<'_>) -> Outcome {
    let found = session.node.filter(&name_of(command.get(1))).await?;
    let expiring = found.filter(|filter| filter.definition().expires.is_some());
    if let Some(filter) = &expiring {
        session.node.engine.expire(filter, None).await?;
    }
    session.reply.integer(expiring.is_some().into());
    Ok(())
}
