//! Filters that are filled anew while they are used.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use umbel_core::engine::{Handle, Refill};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use super::filters;
use crate::commands::table::Id;
use crate::making::set_refill;
use crate::node::Node;
use crate::rebuild::{self, Progress};
use crate::work::beside;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    capacity: Option<u64>,
    error: Option<f64>,
    kind: Option<String>,
    layout: Option<String>,
    retain: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    /// Whether it also takes the filter's place with no keys, or with less than half of the filter's.
    #[serde(default)]
    force: bool,
    /// Which rebuild is meant. Whoever says so may ask again.
    id: Option<String>,
}

/// A body that may be left out.
async fn optional<T: Default + serde::de::DeserializeOwned>(request: Request) -> Result<T, Fault> {
    let body = super::body(request).await?;
    if body.trim_ascii().is_empty() { Ok(T::default()) } else { super::object(&body) }
}

/// The rebuild of a filter.
pub(super) async fn begun(caller: &Caller, filter: &Handle) -> Result<Arc<Handle>, Fault> {
    let none = || Fault::not_found("no rebuild of this filter was begun");
    caller.node.engine.rebuild_of(filter).await?.ok_or_else(none)
}

/// `POST /v1/filters/{name}/rebuild`
pub(super) async fn start(
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Reply<impl IntoResponse> {
    let filter = caller.filter(Id::UmbelRebuildStart, &name).await?;
    let New { capacity, error, kind, layout, retain } = optional(request).await?;
    let mut asked = Refill { capacity, error, retain, ..Refill::default() };
    for (option, value) in [("kind", kind), ("layout", layout)] {
        if let Some(value) = value {
            set_refill(&mut asked, option, &value).map_err(Fault::invalid)?;
        }
    }
    let of = Arc::clone(&filter);
    let begin = |node: Arc<Node>| async move { rebuild::begin(&node, &of, &asked).await };
    match beside(&caller.node, begin).await {
        Ok((progress, is_resumed)) => {
            let status = if is_resumed { StatusCode::OK } else { StatusCode::CREATED };
            Ok((status, Json(shown(&progress))))
        }
        Err(refusal) => match begun(&caller, &filter).await {
            Ok(_) => Err(Fault::from(refusal).into_conflict()),
            Err(_) => Err(refusal.into()),
        },
    }
}

/// `GET /v1/filters/{name}/rebuild`
pub(super) async fn status(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelRebuildStatus, &name).await?;
    let rebuild = begun(&caller, &filter).await?;
    Ok(Json(shown(&rebuild::progress(&caller.node, &filter, &rebuild).await?)))
}

/// `POST /v1/filters/{name}/rebuild/finish`
pub(super) async fn finish(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let filter = caller.filter(Id::UmbelRebuildFinish, &name).await?;
    let Finish { force, id } = optional(request).await?;
    if id.as_ref() != Some(&rebuild::id_of(&filter)) {
        begun(&caller, &filter).await?;
    }
    let finish = |node: Arc<Node>| async move { rebuild::finish(&node, &filter, id.as_deref(), force).await };
    let finished =
        beside(&caller.node, finish).await.map_err(|refusal| Fault::from(refusal).into_conflict())?;
    filters::described(&caller, &finished).await
}

/// `DELETE /v1/filters/{name}/rebuild`
pub(super) async fn abort(caller: Caller, Path(name): Path<String>) -> Reply<StatusCode> {
    let filter = caller.filter(Id::UmbelRebuildAbort, &name).await?;
    begun(&caller, &filter).await?;
    caller.node.engine.abort_rebuild(&filter).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(progress: &Progress) -> Value {
    json!({
        "id": progress.id,
        "state": progress.state(),
        "failed": progress.failed,
        "began_ms": progress.began_ms,
        "items": progress.items,
        "filter_items": progress.filter_items,
        "capacity": progress.capacity,
        "error": progress.error,
        "kind": progress.kind.to_string(),
        "layout": progress.layout.to_string(),
        "retain": progress.retain,
        "bytes": progress.bytes,
        "fill": progress.fill,
    })
}
