//! The server itself: checkpoints, its end, and those who watch.

use std::time::Duration;

use super::arguments::{Words, float, is};
use super::connection::write_modules;
use super::table::Id;
use super::{Outcome, Refusal, SYNTAX, help};
use crate::node::unix_time;
use crate::resp::Command;
use crate::saves;
use crate::session::Session;

const SAVING: &str = "ERR Background save already in progress";
const NO_DEBUG: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.";
/// Longest sleep that a test may ask for.
const SLEEP_S_MAX: f64 = 86_400.0;

/// `TIME`
pub(crate) fn time(session: &mut Session) -> Outcome {
    let now = unix_time();
    session.reply.array(2);
    session.reply.bulk(now.as_secs().to_string());
    session.reply.bulk(now.subsec_micros().to_string());
    Ok(())
}

/// `ROLE`
pub(crate) fn role(session: &mut Session) -> Outcome {
    session.reply.array(3);
    session.reply.bulk("master");
    session.reply.integer(0);
    session.reply.array(0);
    Ok(())
}

/// `MODULE LIST`
pub(crate) fn modules(session: &mut Session) -> Outcome {
    write_modules(&mut session.reply);
    Ok(())
}

/// `LASTSAVE`
pub(crate) fn last_save(session: &mut Session) -> Outcome {
    let at = session.node.counts.last_save.load(std::sync::atomic::Ordering::Relaxed);
    session.reply.count(at);
    Ok(())
}

/// `SAVE`
pub(crate) async fn save(session: &mut Session) -> Outcome {
    checkpoint(session).await?;
    session.reply.ok();
    Ok(())
}

async fn checkpoint(session: &Session) -> Outcome {
    let outcome = saves::begin(&session.node)?.ok_or(SAVING)?;
    // Only this client waits, not its event loop.
    outcome.await.map_err(|_| Refusal::from("ERR the checkpoint was given up"))??;
    Ok(())
}

/// `BGSAVE [SCHEDULE]`
pub(crate) fn background_save(session: &mut Session, command: Command<'_>) -> Outcome {
    match command.len() {
        1 => {}
        2 if is(command.get(1), "SCHEDULE") => {}
        _ => return Err(SYNTAX.into()),
    }
    // Nobody waits for it: LASTSAVE and INFO tell when it is made.
    drop(saves::begin(&session.node)?.ok_or(SAVING)?);
    session.reply.simple("Background saving started");
    Ok(())
}

/// `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`
///
/// What was acknowledged is in the log, with a checkpoint or without one; a checkpoint makes the next start faster.
pub(crate) async fn shutdown(session: &mut Session, command: Command<'_>) -> Outcome {
    let (mut saves, mut spares, mut forces, mut aborts) = (false, false, false, false);
    for word in Words::from(command, 1) {
        match () {
            () if is(word, "SAVE") => saves = true,
            () if is(word, "NOSAVE") => spares = true,
            // Nobody follows this server, so there is nobody to wait for.
            () if is(word, "NOW") => {}
            () if is(word, "FORCE") => forces = true,
            () if is(word, "ABORT") => aborts = true,
            () => return Err(SYNTAX.into()),
        }
    }
    if saves && spares || aborts && command.len() > 2 {
        return Err(SYNTAX.into());
    }
    if aborts {
        return Err("ERR No shutdown in progress.".into());
    }
    if saves {
        let outcome = checkpoint(session).await;
        if outcome.is_err() && !forces {
            return Err("ERR Errors trying to SHUTDOWN. Check logs.".into());
        }
    }
    tracing::info!(client = session.client.id, "a client ends the server");
    session.node.stop.stop();
    // The end of the connection is the reply.
    session.is_closing = true;
    Ok(())
}

/// Why `DEBUG` is not for everybody, unless it is.
pub(crate) fn permits_debug(session: &Session) -> Outcome {
    if session.node.config.load().enable_debug_command { Ok(()) } else { Err(NO_DEBUG.into()) }
}

/// `DEBUG SLEEP seconds`: the connection waits, nobody else.
pub(crate) async fn debug_sleep(session: &mut Session, command: Command<'_>) -> Outcome {
    permits_debug(session)?;
    let seconds = float(command.get(2)).ok_or("ERR value is not a valid float")?;
    tokio::time::sleep(Duration::from_secs_f64(seconds.clamp(0.0, SLEEP_S_MAX))).await;
    session.reply.ok();
    Ok(())
}

/// `DEBUG RELOAD`: leaves all filters on disk; whoever asks for one loads it again.
pub(crate) async fn debug_reload(session: &mut Session) -> Outcome {
    permits_debug(session)?;
    for filter in session.node.engine.filters() {
        session.node.engine.unload(&filter).await?;
    }
    session.reply.ok();
    Ok(())
}

/// `DEBUG HELP`
pub(crate) fn debug_help(session: &mut Session) -> Outcome {
    permits_debug(session)?;
    let lines = [
        "RELOAD [option ...]",
        "    Leave all filters on disk and load them again when they are asked for.",
        "SLEEP <seconds>",
        "    Let the connection wait for <seconds>. Decimals allowed.",
    ];
    help(session, "DEBUG", &lines)
}

/// `MONITOR`
pub(crate) fn monitor(session: &mut Session) -> Outcome {
    if session.is_executing {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    session.permit_all_keys(Id::Monitor)?;
    session.node.clients.watch(&session.client);
    session.reply.ok();
    Ok(())
}
