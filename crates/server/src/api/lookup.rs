//! Keys of all domains.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, Request};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value as Written, json};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use super::json;
use super::keys::Key;
use crate::commands::look::age_ms;
use crate::commands::table::Id;
use crate::lookup::{Found, HOTTEST, HOTTEST_MAX, Lookups, Question, Record, Value, WITHIN_MAX};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[serde(default)]
    fetch: bool,
    #[serde(default)]
    local: bool,
    within_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    key: Key,
    #[serde(default)]
    fetch: bool,
    #[serde(default)]
    local: bool,
    within_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Most {
    count: Option<usize>,
}

impl Options {
    fn question(&self) -> Result<Question, Fault> {
        let within = self.within_ms.map(Duration::from_millis);
        if let Some(time) = within.filter(|time| time.is_zero() || *time > WITHIN_MAX) {
            let most = WITHIN_MAX.as_millis();
            return Err(Fault::invalid(format!("within_ms is {}; it must be 1 to {most}", time.as_millis())));
        }
        Ok(Question { fetch: self.fetch, local: self.local, within })
    }
}

fn lookups(caller: &Caller) -> Result<Arc<dyn Lookups>, Fault> {
    let lookups = caller.node.lookups.get().cloned();
    lookups.ok_or_else(|| {
        Fault::not_found("this server is no domain; the settings domain and [catalogs] make it one")
    })
}

fn no_catalog(name: &str) -> Fault {
    Fault::not_found(format!("there is no catalog {}", name.escape_debug()))
}

/// `GET /v1/lookup/{catalog}/{key}`
pub(super) async fn get(
    caller: Caller,
    Path((catalog, key)): Path<(String, String)>,
    options: Result<Query<Options>, axum::extract::rejection::QueryRejection>,
) -> Reply {
    let Query(options) = options.map_err(|error| Fault::invalid(error.body_text()))?;
    answer(&caller, &catalog, key.as_bytes(), &options).await
}

/// `POST /v1/lookup/{catalog}`: the same for any key, also for one that cannot stand in a path.
pub(super) async fn ask(caller: Caller, Path(catalog): Path<String>, request: Request) -> Reply {
    let Asked { key, fetch, local, within_ms } = json(request).await?;
    answer(&caller, &catalog, &key.bytes()?, &Options { fetch, local, within_ms }).await
}

async fn answer(caller: &Caller, catalog: &str, key: &[u8], options: &Options) -> Reply {
    caller.may(Id::UmbelLookup, &[catalog])?;
    let question = options.question()?;
    let lookups = lookups(caller)?;
    let found = lookups.ask(catalog, key, question).await?.ok_or_else(|| no_catalog(catalog))?;
    Ok(Json(json!({
        "catalog": catalog,
        "asked": lookups.domain(),
        "key": bytes(key),
        "absent": found.is_absent(),
        "domains": standings(&found),
        "record": found.record.as_ref().map(|(domain, record)| written(domain, record)),
        "steps": steps(&found),
        "looked_us": microseconds(found.looked),
        "took_us": microseconds(found.took),
    })))
}

/// `GET /v1/lookup/{catalog}/hottest`
pub(super) async fn hottest(
    caller: Caller,
    Path(catalog): Path<String>,
    most: Result<Query<Most>, axum::extract::rejection::QueryRejection>,
) -> Reply {
    caller.may(Id::UmbelHottest, &[&catalog])?;
    let Query(Most { count }) = most.map_err(|error| Fault::invalid(error.body_text()))?;
    let count = count.unwrap_or(HOTTEST);
    if !(1..=HOTTEST_MAX).contains(&count) {
        return Err(Fault::invalid(format!("count is {count}; it must be 1 to {HOTTEST_MAX}")));
    }
    let listed = lookups(&caller)?.hottest(&catalog, count).ok_or_else(|| no_catalog(&catalog))?;
    let keys: Vec<Written> =
        listed.keys.iter().map(|(key, count)| json!({ "key": bytes(key), "count": count })).collect();
    Ok(Json(json!({ "catalog": catalog, "accesses": listed.accesses, "keys": keys })))
}

fn standings(found: &Found) -> Vec<Written> {
    let standings = found.standings.iter().map(|standing| {
        json!({
            "domain": standing.domain,
            "answer": standing.answer.word(),
            "age_ms": standing.age.map(age_ms),
            "from": standing.origin.word(),
        })
    });
    standings.collect()
}

fn steps(found: &Found) -> Vec<Written> {
    let steps = found.steps.iter().map(|step| {
        json!({
            "domain": step.domain,
            "asked": step.origin.word(),
            "began_us": microseconds(step.began),
            "ended_us": microseconds(step.ended),
            "failed": step.failed,
        })
    });
    steps.collect()
}

fn written(domain: &str, record: &Record) -> Written {
    match record {
        Record::Row(fields) => {
            let fields: Vec<Written> = fields
                .iter()
                .map(|(column, value)| json!({ "column": column, "value": plain(value) }))
                .collect();
            json!({ "domain": domain, "fields": fields })
        }
        Record::Body { kind, bytes: body } => json!({ "domain": domain, "type": kind, "body": bytes(body) }),
    }
}

fn plain(value: &Value) -> Written {
    match value {
        Value::Null => Written::Null,
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        // JSON has no words for what is no number.
        Value::Real(number) if !number.is_finite() => number.to_string().into(),
        Value::Real(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Bytes(bytes) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

/// Text, or bytes in base64.
pub(super) fn bytes(bytes: &[u8]) -> Written {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
