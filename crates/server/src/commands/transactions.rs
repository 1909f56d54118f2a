//! `MULTI` and `EXEC`: commands that are collected and then run one after another.

use super::Outcome;
use crate::resp::OwnedCommand;
use crate::session::{Session, Transaction, Wants};

/// `MULTI`
pub(crate) fn multi(session: &mut Session) -> Outcome {
    if session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    session.transaction = Some(Transaction::default());
    session.client.about().collected = Some(0);
    session.reply.ok();
    Ok(())
}

/// `DISCARD`
pub(crate) fn discard(session: &mut Session) -> Outcome {
    take(session).ok_or("ERR DISCARD without MULTI")?;
    session.reply.ok();
    Ok(())
}

/// `EXEC`
pub(crate) async fn exec(session: &mut Session) -> Outcome {
    let transaction = take(session).ok_or("ERR EXEC without MULTI")?;
    if transaction.is_broken {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    session.reply.array(transaction.commands.len());
    session.is_executing = true;
    for (id, words) in transaction.commands {
        let before = session.reply.len();
        let wanted = session.wants;
        let command = OwnedCommand::new(&words);
        session.run_collected(id, command.as_command()).await;
        if wanted == Wants::Nothing && session.wants == Wants::Nothing {
            session.reply.truncate(before);
        }
    }
    session.is_executing = false;
    Ok(())
}

/// The commands that were collected. From here on they are none.
fn take(session: &mut Session) -> Option<Transaction> {
    session.client.about().collected = None;
    session.transaction.take()
}
