//! Keys: added, asked for, removed.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, Request};
use axum::http::header;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use umbel_core::engine::{Answer, Handle, Token, Written};
use umbel_core::entry;
use umbel_filter::Fingerprint;

use super::caller::Caller;
use super::fault::{Fault, Reply};
use super::identity;
use super::lines::Lines;
use super::rebuild::begun;
use crate::commands::look::{age_ms, reading};
use crate::commands::table::Id;
use crate::names::name_of;

/// A key: text, or bytes in base64.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Key {
    Text(String),
    Bytes(Base64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Base64 {
    base64: String,
}

impl Key {
    pub(super) fn bytes(self) -> Result<Vec<u8>, Fault> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Bytes(Base64 { base64 }) => BASE64_STANDARD
                .decode(&base64)
                .map_err(|error| Fault::invalid(format!("a key that is no base64: {error}"))),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    keys: Vec<Key>,
    /// Whoever gives both may send the same request again: it has one effect and one answer.
    session: Option<u64>,
    sequence: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    keys: Vec<Key>,
    /// A position that the answers have to include.
    after: Option<String>,
    /// How current they have to be: `any`, `current` or `strong`.
    read: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verified {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Who {
    session: Option<u64>,
    sequence: Option<u64>,
}

/// Whoever gives both may send the same request again.
fn asker(session: Option<u64>, sequence: Option<u64>) -> Result<entry::Request, Fault> {
    match (session, sequence) {
        (None, None) => Ok(entry::Request::default()),
        (Some(session @ 1..), Some(sequence)) => Ok(entry::Request { session, sequence }),
        _ => Err(Fault::invalid("session, a number from 1, and sequence go together")),
    }
}

fn fingerprints(bytes: &[u8]) -> Result<Vec<Fingerprint>, Fault> {
    let (keys, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(Fault::invalid(format!("{} bytes of fingerprints; each has 16", bytes.len())));
    }
    Ok(keys.iter().map(|key| Fingerprint::from_bytes(*key)).collect())
}

/// What is done to keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
    /// Adds keys of the source to what is being filled.
    Fill,
}

fn hashed(filter: &Handle, keys: Vec<Key>) -> Result<Vec<Fingerprint>, Fault> {
    let hasher = filter.hasher();
    keys.into_iter().map(|key| Ok(hasher.fingerprint(&key.bytes()?))).collect()
}

/// Whether the body is lines of text and not JSON.
fn is_text(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/plain"))
}

fn lines(caller: &Caller, request: Request) -> Lines {
    Lines::new(request.into_body(), caller.node.limits(true).bulk_bytes_max)
}

/// Whether the body is fingerprints, 16 bytes each: keys that a replica has hashed already.
fn is_hashed(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/vnd.umbel.fingerprints"))
}

/// `POST /v1/filters/{name}/add`
pub(super) async fn add(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    change(&caller, &name, request, Change::Add).await
}

/// `POST /v1/filters/{name}/remove`
pub(super) async fn remove(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    change(&caller, &name, request, Change::Remove).await
}

/// `POST /v1/filters/{name}/rebuild/add`
pub(super) async fn fill(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    change(&caller, &name, request, Change::Fill).await
}

async fn change(caller: &Caller, name: &str, request: Request, change: Change) -> Reply {
    let id = match change {
        Change::Add => Id::UmbelAdd,
        Change::Remove => Id::UmbelRemove,
        Change::Fill => Id::UmbelRebuildAdd,
    };
    let mut filter = caller.filter(id, name).await?;
    if change == Change::Fill {
        filter = begun(caller, &filter).await?;
    }
    if change == Change::Remove && !filter.is_erasable() {
        return Err(Fault::conflict("keys can be removed from counting filters only"));
    }
    if is_text(&request) {
        return change_lines(caller, name, &filter, lines(caller, request), change).await;
    }
    identity::check_filter(request.headers(), &filter)?;
    let hashed_already = is_hashed(&request);
    let (keys, who) = if hashed_already {
        let Query(Who { session, sequence }) =
            Query::try_from_uri(request.uri()).map_err(|rejection| Fault::invalid(rejection.body_text()))?;
        (fingerprints(&super::body(request).await?)?, asker(session, sequence)?)
    } else {
        let Keys { keys, session, sequence } = super::json(request).await?;
        (hashed(&filter, keys)?, asker(session, sequence)?)
    };
    let written = write(caller, name, &filter, &keys, who, change).await?;
    let done = written.answers.iter().filter(|answer| **answer == Some(true)).count();
    let mut reply = counted(keys.len() as u64, done as u64, &written.token, change);
    if !hashed_already {
        reply["answers"] = json!(written.answers);
    }
    if let Some(why) = written.refused {
        reply["refused"] = why.into();
    }
    Ok(Json(reply))
}

async fn change_lines(
    caller: &Caller,
    name: &str,
    filter: &Arc<Handle>,
    mut lines: Lines,
    change: Change,
) -> Reply {
    let (mut keys, mut taken, mut done) = (Vec::new(), 0, 0);
    let mut position = Token::default();
    loop {
        keys.clear();
        let more = lines.next(|line| keys.push(filter.hasher().fingerprint(line))).await;
        if !more.map_err(|fault| fault.after(taken))? {
            break;
        }
        let written = write(caller, name, filter, &keys, entry::Request::default(), change).await;
        let written = written.map_err(|fault| fault.after(taken))?;
        taken += written.answers.iter().flatten().count() as u64;
        if let Some(why) = written.refused {
            return Err(Fault::conflict(why).after(taken));
        }
        done += written.answers.iter().filter(|answer| **answer == Some(true)).count() as u64;
        written.token.positions().for_each(|(partition, at)| position.see(partition, at));
    }
    Ok(Json(counted(taken, done, &position, change)))
}

async fn write(
    caller: &Caller,
    name: &str,
    filter: &Arc<Handle>,
    keys: &[Fingerprint],
    who: entry::Request,
    change: Change,
) -> Result<Written, Fault> {
    if let Some(written) = write_to(caller, filter, keys, who, change).await? {
        return Ok(written);
    }
    // The name may mean another filter by now, which takes the keys if it hashes them alike.
    let now = caller.node.filter_again(&name_of(name.as_bytes())).await?;
    let now = now.ok_or_else(|| Fault::no_filter(name))?;
    let again = || Fault::unavailable(format!("the filter {} was dropped meanwhile", name.escape_debug()));
    if now.hasher().family() != filter.hasher().family() {
        return Err(again());
    }
    write_to(caller, &now, keys, who, change).await?.ok_or_else(again)
}

/// Nothing if the filter was dropped meanwhile.
async fn write_to(
    caller: &Caller,
    filter: &Arc<Handle>,
    keys: &[Fingerprint],
    who: entry::Request,
    change: Change,
) -> Result<Option<Written>, Fault> {
    let engine = &caller.node.engine;
    let written = match change {
        Change::Add => engine.add_as(filter, keys, who).await,
        Change::Remove => engine.remove_as(filter, keys, who).await,
        // A rebuild that failed, or that somebody finished, takes no keys.
        Change::Fill => {
            let written = engine.fill(filter, keys, who).await;
            return written.map(Some).map_err(|error| Fault::from(error).into_conflict());
        }
    };
    match written {
        Err(umbel_core::Error::Gone(_)) => Ok(None),
        written => Ok(Some(written?)),
    }
}

fn counted(keys: u64, done: u64, position: &Token, change: Change) -> Value {
    let done_name = if change == Change::Remove { "removed" } else { "added" };
    json!({ "keys": keys, done_name: done, "position": position.to_string() })
}

/// `POST /v1/filters/{name}/check`
pub(super) async fn check(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let filter = caller.filter(Id::UmbelExists, &name).await?;
    let engine = &caller.node.engine;
    // The position is taken before the answers, so they include it.
    let position = engine.token().to_string();
    if !is_text(&request) {
        let Asked { keys, after, read } = super::json(request).await?;
        let after: Option<Token> = after.map(|text| text.parse()).transpose()?;
        let keys = hashed(&filter, keys)?;
        if let Some(read) = read {
            let wanted = reading(&read).ok_or_else(|| Fault::invalid("read is any, current or strong"))?;
            let told = engine.look(&filter, &keys, after.as_ref(), wanted).await?;
            let words: Vec<&str> = told.answers.iter().map(|answer| answer.word()).collect();
            let position = told.position.to_string();
            return Ok(Json(json!({ "answers": words, "position": position, "age_ms": age_ms(told.age) })));
        }
        let answers = engine.contains(&filter, &keys, after.as_ref()).await?;
        let words: Vec<&str> = answers.iter().map(|answer| answer.word()).collect();
        return Ok(Json(json!({ "answers": words, "position": position })));
    }
    let (mut lines, mut keys) = (lines(&caller, request), Vec::new());
    let [mut absent, mut maybe, mut unknown] = [0_u64; 3];
    loop {
        keys.clear();
        if !lines.next(|line| keys.push(filter.hasher().fingerprint(line))).await? {
            break;
        }
        for answer in engine.contains(&filter, &keys, None).await? {
            match answer {
                Answer::Absent => absent += 1,
                Answer::Maybe => maybe += 1,
                Answer::Unknown => unknown += 1,
            }
        }
    }
    let keys = absent + maybe + unknown;
    Ok(Json(
        json!({ "keys": keys, "absent": absent, "maybe": maybe, "unknown": unknown, "position": position }),
    ))
}

/// `POST /v1/filters/{name}/verify`
pub(super) async fn verify(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let filter = caller.filter(Id::UmbelVerify, &name).await?;
    let Verified { keys } = super::json(request).await?;
    let counts = caller.node.engine.verify(&filter, &hashed(&filter, keys)?).await?;
    Ok(Json(json!({ "counts": counts })))
}
