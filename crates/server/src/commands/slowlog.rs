//! `SLOWLOG`: commands that took long.

use super::arguments::integer;
use super::table::Id;
use super::{Outcome, help};
use crate::resp::Command;
use crate::session::Session;

/// How many are shown if nobody says.
const SHOWN: i64 = 10;

/// `SLOWLOG GET [count]`
pub(crate) fn get(session: &mut Session, command: Command<'_>) -> Outcome {
    session.permit_all_keys(Id::SlowlogGet)?;
    let count = match command.len() {
        2 => SHOWN,
        3 => integer(command.get(2))
            .filter(|count| *count >= -1)
            .ok_or("ERR count should be greater than or equal to -1")?,
        _ => {
            return Err(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.".into()
            );
        }
    };
    // All of them, if negative.
    let newest = session.node.slowlog.newest(usize::try_from(count).unwrap_or(usize::MAX));
    let reply = &mut session.reply;
    reply.array(newest.len());
    for slow in newest {
        reply.array(6);
        reply.count(slow.id);
        reply.count(slow.at);
        reply.count(slow.took_us);
        reply.array(slow.words.len());
        slow.words.iter().for_each(|word| reply.bulk(word));
        reply.bulk(&slow.address);
        reply.bulk(&slow.name);
    }
    Ok(())
}

/// `SLOWLOG LEN`
pub(crate) fn len(session: &mut Session) -> Outcome {
    let length = session.node.slowlog.len();
    session.reply.count(length as u64);
    Ok(())
}

/// `SLOWLOG RESET`
pub(crate) fn reset(session: &mut Session) -> Outcome {
    session.node.slowlog.clear();
    session.reply.ok();
    Ok(())
}

/// `SLOWLOG HELP`
pub(crate) fn show_help(session: &mut Session) -> Outcome {
    let lines = [
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
    ];
    help(session, "SLOWLOG", &lines)
}
