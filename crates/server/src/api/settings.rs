//! Settings in force, and commands that took long.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use super::lookup::bytes;
use crate::commands::table::Id;

/// Slow commands that are listed, if nobody says, and at most.
const SLOW: usize = 128;
const SLOW_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Most {
    count: Option<usize>,
}

/// `GET /v1/slowlog`
pub(super) async fn slowlog(caller: Caller, most: Result<Query<Most>, QueryRejection>) -> Reply {
    caller.may_on_all(Id::SlowlogGet)?;
    let Query(Most { count }) = most.map_err(|error| Fault::invalid(error.body_text()))?;
    let count = count.unwrap_or(SLOW);
    if !(1..=SLOW_MAX).contains(&count) {
        return Err(Fault::invalid(format!("count is {count}; it must be 1 to {SLOW_MAX}")));
    }
    let entries = caller.node.slowlog.newest(count).into_iter().map(|slow| {
        json!({
            "id": slow.id,
            "at_seconds": slow.at,
            "took_us": slow.took_us,
            "words": slow.words.iter().map(|word| bytes(word)).collect::<Vec<_>>(),
            "address": slow.address,
            "client": slow.name,
        })
    });
    let entries: Vec<Value> = entries.collect();
    let threshold = caller.node.config.load().slowlog_threshold_us;
    Ok(Json(json!({ "threshold_us": threshold, "entries": entries })))
}

/// `GET /v1/settings`
pub(super) async fn settings(caller: Caller) -> Reply {
    caller.may(Id::ConfigGet, &[])?;
    let config = caller.node.config.load_full();
    let settings = config.show().map(|shown| {
        json!({
            "name": shown.row.name,
            "value": shown.value,
            "default": shown.row.default,
            "unit": shown.row.unit,
            "source": shown.source.to_string(),
            "live": shown.row.live,
            "redis": shown.row.redis,
            "meaning": shown.row.meaning,
        })
    });
    let settings: Vec<Value> = settings.collect();
    Ok(Json(json!({ "settings": settings })))
}
