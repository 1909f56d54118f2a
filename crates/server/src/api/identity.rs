//! Which deployment a request is for, and which filter: names are given again, and addresses too.
//!
//! A replica says in `umbel-deployment` of which deployment its copy is, and in `umbel-filter` for which filter keys are that it sends.
//! What is for another one is refused before anything is done. Every answer says which deployment gave it.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use umbel_core::engine::{DeploymentId, Handle};

use super::Api;
use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;
use crate::names::shown;

const DEPLOYMENT: HeaderName = HeaderName::from_static("umbel-deployment");
const FILTER: HeaderName = HeaderName::from_static("umbel-filter");

/// Refuses requests for another deployment, and names this one in every answer.
pub(super) async fn named(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Ok(node) = api.0.node() else { return next.run(request).await };
    let own = node.engine.deployment();
    let mut answer = match check_deployment(request.headers(), own) {
        Ok(()) => next.run(request).await,
        Err(fault) => fault.into_response(),
    };
    if let Ok(text) = HeaderValue::from_str(&own.to_string()) {
        answer.headers_mut().insert(DEPLOYMENT, text);
    }
    answer
}

fn check_deployment(headers: &HeaderMap, own: DeploymentId) -> Reply<()> {
    let Some(meant) = headers.get(DEPLOYMENT) else { return Ok(()) };
    let damaged =
        || Fault::of(StatusCode::BAD_REQUEST, "damaged", "umbel-deployment is not an id of a deployment");
    let meant: DeploymentId = meant.to_str().ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
    if meant == own {
        return Ok(());
    }
    let message = format!("this is the deployment {own}; the request is for the deployment {meant}");
    Err(Fault::of(StatusCode::GONE, "other_deployment", message))
}

/// Refuses keys that are for another filter, unless this one was filled to take its place.
pub(super) fn check_filter(headers: &HeaderMap, filter: &Handle) -> Reply<()> {
    let Some(meant) = headers.get(FILTER) else { return Ok(()) };
    let damaged =
        || Fault::of(StatusCode::BAD_REQUEST, "damaged", "umbel-filter is not a number of 16 digits");
    let text = meant.to_str().ok().filter(|text| text.len() == 16);
    let meant = text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(damaged)?;
    if meant == filter.id() || predecessor(filter) == Some(meant) {
        return Ok(());
    }
    let name = shown(&filter.definition().name);
    let message = format!("the filter {name} is another one by now: {:016x}, not {meant:016x}", filter.id());
    Err(Fault::of(StatusCode::GONE, "replaced", message))
}

/// The filter whose place this one was filled to take.
fn predecessor(filter: &Handle) -> Option<u64> {
    filter.definition().mirrors.filter(|mirror| mirror.is_filled).map(|mirror| mirror.of)
}

/// `GET /v1/filters/{name}/identity`
pub(super) async fn identity(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelExport, &name).await?;
    Ok(Json(json!({
        "filter": format!("{:016x}", filter.id()),
        "predecessor": predecessor(&filter).map(|filter| format!("{filter:016x}")),
        "deployment": caller.node.engine.deployment().to_string(),
    })))
}
