//! Publishes that all switch to together, those that go out group by group, and those that come by the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;
use crate::sync::rollout::{self, Plan, Rollout};
use crate::sync::schedule::{self, Schedule};
use crate::sync::strong::{self, Terms};

/// How long replicas may take to have a version ready, if nobody says, and at most.
const TIMEOUT_MS: u64 = 30_000;
const TIMEOUT_MS_MAX: u64 = 600_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Strong {
    /// The version to switch to, such as an older one; the filter as it is now, if none is named.
    version: Option<u64>,
    #[serde(default)]
    group: BTreeMap<String, String>,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    /// The version; if nobody says, one is published.
    version: Option<u64>,
    #[serde(default)]
    plan: Plan,
}

/// `POST /v1/filters/{name}/switch`
pub(super) async fn switch(
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Reply<impl IntoResponse> {
    let filter = caller.filter(Id::UmbelResize, &name).await?;
    let Strong { version, group, timeout_ms } = super::json(request).await?;
    let timeout_ms = timeout_ms.unwrap_or(TIMEOUT_MS);
    if timeout_ms > TIMEOUT_MS_MAX {
        return Err(Fault::invalid(format!("timeout_ms is at most {TIMEOUT_MS_MAX}")));
    }
    let terms = Terms { version, group, timeout: Duration::from_millis(timeout_ms) };
    let switched = strong::publish(&caller.node, &filter, &terms).await?;
    let version = switched.version;
    let made = json!({
        "number": version.number,
        "digest": version.digest().to_string(),
        "position": version.token().to_string(),
        "acknowledged": switched.acknowledged,
        "registered": switched.registered,
        // Other replicas stay at what is pinned for them.
        "pinned": switched.pinned,
    });
    Ok((StatusCode::CREATED, Json(made)))
}

/// `POST /v1/filters/{name}/rollout`
pub(super) async fn start(
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Reply<impl IntoResponse> {
    let filter = caller.filter(Id::UmbelResize, &name).await?;
    let Start { version, plan } = super::json(request).await?;
    let rollout = rollout::start(&caller.node, &filter, version, plan).await?;
    Ok((StatusCode::CREATED, Json(shown(&rollout)?)))
}

/// `GET /v1/filters/{name}/rollout`
pub(super) async fn status(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelStats, &name).await?;
    let rollout = rollout::status(&caller.node, filter.id()).await?;
    let rollout = rollout.ok_or_else(|| Fault::not_found("there was no rollout of this filter"))?;
    Ok(Json(shown(&rollout)?))
}

/// `DELETE /v1/filters/{name}/rollout`
pub(super) async fn abort(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelResize, &name).await?;
    let rollout = rollout::abort(&caller.node, filter.id()).await?;
    Ok(Json(shown(&rollout)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    paused: bool,
}

/// `PUT /v1/filters/{name}/rollout`
pub(super) async fn hold(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let filter = caller.filter(Id::UmbelResize, &name).await?;
    let Hold { paused } = super::json(request).await?;
    let rollout = rollout::hold(&caller.node, filter.id(), paused).await?;
    Ok(Json(shown(&rollout)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    cron: String,
}

/// `PUT /v1/filters/{name}/schedule`
pub(super) async fn plan_rebuilds(
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Reply<Json<Schedule>> {
    let filter = caller.filter(Id::UmbelResize, &name).await?;
    let When { cron } = super::json(request).await?;
    Ok(Json(schedule::set(&caller.node, &filter, &cron).await?))
}

/// `GET /v1/filters/{name}/schedule`
pub(super) async fn planned(caller: Caller, Path(name): Path<String>) -> Reply<Json<Schedule>> {
    let filter = caller.filter(Id::UmbelStats, &name).await?;
    let planned = schedule::get(&caller.node, filter.id()).await?;
    planned.map(Json).ok_or_else(|| Fault::not_found("the filter is not rebuilt by any schedule"))
}

/// `DELETE /v1/filters/{name}/schedule`
pub(super) async fn unplan(caller: Caller, Path(name): Path<String>) -> Reply<StatusCode> {
    let filter = caller.filter(Id::UmbelResize, &name).await?;
    schedule::remove(&caller.node, filter.id()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(rollout: &Rollout) -> Result<Value, Fault> {
    serde_json::to_value(rollout).map_err(|error| Fault::unavailable(error.to_string()))
}
