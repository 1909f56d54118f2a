//! Lookups that say how current their answers have to be, and hear how old they may be.

use std::sync::Arc;
use std::time::Duration;

use umbel_core::Error;
use umbel_core::engine::{Answer, Consistency, Handle, Token, Told};

use super::Outcome;
use super::arguments::text;
use super::umbel::hashed;
use crate::resp::Command;
use crate::session::Session;

/// `UMBEL.EXISTS key [AFTER position] READ any|current|strong ITEMS item...`
pub(super) async fn exists(
    session: &mut Session,
    command: Command<'_>,
    filter: Option<&Arc<Handle>>,
    after: Option<&Token>,
    (read, first): (&[u8], usize),
) -> Outcome {
    let wanted = text(read).and_then(reading).ok_or("ERR READ is any, current or strong")?;
    let told = match filter {
        None => Told { answers: vec![Answer::Unknown; command.len() - first], ..Told::default() },
        Some(filter) => {
            let keys = hashed(filter, command, first);
            match session.node.engine.look(filter, &keys, after, wanted).await {
                // A filter that is not there has seen nothing.
                Err(Error::Gone(_)) => Told { answers: vec![Answer::Unknown; keys.len()], ..Told::default() },
                told => told?,
            }
        }
    };
    session.reply.map(3);
    session.reply.simple("position");
    session.reply.bulk(told.position.to_string());
    session.reply.simple("age_ms");
    session.reply.count(age_ms(told.age));
    session.reply.simple("answers");
    session.reply.array(told.answers.len());
    told.answers.iter().for_each(|answer| session.reply.simple(answer.word()));
    Ok(())
}

/// How current answers have to be, by name.
pub(crate) fn reading(name: &str) -> Option<Consistency> {
    let names =
        [("any", Consistency::Any), ("current", Consistency::Current), ("strong", Consistency::Strong)];
    names.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, reading)| reading)
}

/// An age in milliseconds, rounded up: nothing is younger than it is said to be.
pub(crate) fn age_ms(age: Duration) -> u64 {
    u64::try_from(age.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
