//! `CONFIG`: settings, while the server runs.

use super::arguments::text;
use super::table::Id;
use super::{Outcome, Refusal};
use crate::acl::DEFAULT;
use crate::config::{self, Row};
use crate::logging;
use crate::resp::Command;
use crate::session::Session;

impl From<config::Error> for Refusal {
    fn from(error: config::Error) -> Self {
        format!("ERR {error}").into()
    }
}

/// Runs a subcommand.
pub(super) fn run(id: Id, session: &mut Session, command: Command<'_>) -> Outcome {
    match id {
        Id::ConfigGet => {
            let patterns: Vec<&[u8]> = command.from(2).collect();
            let settings = session.node.config.get(&patterns);
            session.reply.map(settings.len());
            for (name, value) in settings {
                session.reply.bulk(name);
                session.reply.bulk(value);
            }
        }
        Id::ConfigSet => set(session, command)?,
        Id::ConfigResetstat => {
            session.node.metrics.reset();
            session.reply.ok();
        }
        Id::ConfigRewrite => return Err("ERR The server's file of settings is written by people only".into()),
        _ => super::help::write(session, "CONFIG"),
    }
    Ok(())
}

fn set(session: &mut Session, command: Command<'_>) -> Outcome {
    let words: Option<Vec<&str>> = command.from(2).map(text).collect();
    let words = words.ok_or("ERR settings are text")?;
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("ERR wrong number of arguments for 'config|set' command".into());
    }
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    // It is the default user's, whose rights the client may not have.
    let is_password =
        |name: &str| ["password", "requirepass"].iter().any(|known| known.eq_ignore_ascii_case(name));
    if pairs.iter().any(|(name, _)| is_password(name)) {
        let by = session.user().ok_or("NOAUTH Authentication required.")?;
        super::acl::known_user(session, &by, DEFAULT)?;
    }
    let changed = session.node.config.set(&pairs)?;
    changed.iter().try_for_each(|row| act_on(session, row))?;
    session.reply.ok();
    Ok(())
}

/// Most settings are read where they matter; some are kept elsewhere too.
fn act_on(session: &Session, row: &Row) -> Outcome {
    let node = &session.node;
    let config = node.config.load();
    match row.name {
        "password" => node.acl.set_password(config.password)?,
        "acl_log_length" => node.acl.log().resize(config.acl_log_length as usize),
        "slowlog_threshold_us" | "slowlog_length" => {
            node.slowlog.set(config.slowlog_threshold_us, config.slowlog_length as usize);
        }
        "latency_threshold_ms" => node.latency.set_threshold_ms(config.latency_threshold_ms),
        "log_level" => logging::set_level(config.log_level),
        _ => {}
    }
    Ok(())
}
