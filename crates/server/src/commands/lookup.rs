//! `UMBEL.LOOKUP` and `UMBEL.HOTTEST`: keys of all domains.

use std::sync::Arc;
use std::time::Duration;

use super::arguments::{Words, is, text, unsigned};
use super::look::age_ms;
use super::{Outcome, Refusal};
use crate::lookup::{Found, HOTTEST, HOTTEST_MAX, Lookups, Question, Record, Value, WITHIN_MAX};
use crate::resp::{Command, Reply};
use crate::session::Session;

fn lookups(session: &Session) -> Outcome<Arc<dyn Lookups>> {
    let lookups = session.node.lookups.get().cloned();
    lookups
        .ok_or_else(|| "ERR this server is no domain; the settings domain and [catalogs] make it one".into())
}

fn no_catalog(name: &[u8]) -> Refusal {
    format!("ERR there is no catalog {}", String::from_utf8_lossy(name).escape_debug()).into()
}

/// `UMBEL.LOOKUP catalog key [FETCH] [LOCAL] [WITHIN milliseconds]`
pub(super) async fn lookup(session: &mut Session, command: Command<'_>) -> Outcome {
    let lookups = lookups(session)?;
    let (catalog, key) = (command.get(1), command.get(2));
    let mut question = Question::default();
    let mut words = Words::from(command, 3);
    while let Some(word) = words.next() {
        if is(word, "FETCH") {
            question.fetch = true;
        } else if is(word, "LOCAL") {
            question.local = true;
        } else if is(word, "WITHIN") {
            let time = words.next().and_then(unsigned).map(Duration::from_millis);
            let time = time.filter(|time| (Duration::from_millis(1)..=WITHIN_MAX).contains(time));
            question.within =
                Some(time.ok_or_else(|| {
                    format!("ERR WITHIN takes 1 to {} milliseconds", WITHIN_MAX.as_millis())
                })?);
        } else {
            return Err("ERR unknown option; UMBEL.LOOKUP takes FETCH, LOCAL and WITHIN".into());
        }
    }
    let name = text(catalog).ok_or_else(|| no_catalog(catalog))?;
    let found = lookups.ask(name, key, question).await?.ok_or_else(|| no_catalog(catalog))?;
    write_found(&mut session.reply, &found);
    Ok(())
}

/// `UMBEL.HOTTEST catalog [COUNT keys]`
pub(super) fn hottest(session: &mut Session, command: Command<'_>) -> Outcome {
    let catalog = command.get(1);
    let most = match command.len() {
        2 => HOTTEST,
        4 if is(command.get(2), "COUNT") => unsigned(command.get(3))
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| (1..=HOTTEST_MAX).contains(count))
            .ok_or_else(|| format!("ERR COUNT takes a number from 1 to {HOTTEST_MAX}"))?,
        _ => return Err(super::SYNTAX.into()),
    };
    let listed =
        text(catalog).map(|name| lookups(session).map(|lookups| lookups.hottest(name, most))).transpose()?;
    let listed = listed.flatten().ok_or_else(|| no_catalog(catalog))?;
    session.reply.array(listed.keys.len());
    for (key, count) in listed.keys {
        session.reply.array(2);
        session.reply.bulk(key);
        session.reply.count(count);
    }
    Ok(())
}

fn write_found(reply: &mut Reply, found: &Found) {
    reply.map(4);
    reply.simple("absent");
    reply.boolean(found.is_absent());
    reply.simple("domains");
    reply.array(found.standings.len());
    for standing in &found.standings {
        reply.map(4);
        for (name, value) in [
            ("domain", &*standing.domain),
            ("answer", standing.answer.word()),
            ("from", standing.origin.word()),
        ] {
            reply.simple(name);
            reply.bulk(value);
        }
        reply.simple("age_ms");
        match standing.age {
            Some(age) => reply.count(age_ms(age)),
            None => reply.null(),
        }
    }
    reply.simple("record");
    match &found.record {
        Some((domain, record)) => write_record(reply, domain, record),
        None => reply.null(),
    }
    reply.simple("took_us");
    reply.count(u64::try_from(found.took.as_micros()).unwrap_or(u64::MAX));
}

fn write_record(reply: &mut Reply, domain: &str, record: &Record) {
    match record {
        Record::Row(fields) => {
            reply.map(2);
            reply.simple("domain");
            reply.bulk(domain);
            reply.simple("fields");
            reply.map(fields.len());
            for (column, value) in fields {
                reply.bulk(column);
                match value {
                    Value::Null => reply.null(),
                    Value::Int(number) => reply.integer(*number),
                    // RESP has no larger numbers.
                    Value::Uint(number) => reply.bulk(number.to_string()),
                    Value::Real(number) => reply.double(*number),
                    Value::Text(text) => reply.bulk(text),
                    Value::Bytes(bytes) => reply.bulk(bytes),
                }
            }
        }
        Record::Body { kind, bytes } => {
            reply.map(3);
            reply.simple("domain");
            reply.bulk(domain);
            reply.simple("type");
            match kind {
                Some(kind) => reply.bulk(kind),
                None => reply.null(),
            }
            reply.simple("body");
            reply.bulk(bytes);
        }
    }
}
