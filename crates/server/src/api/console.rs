//! The server as it is, for people who look at it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;
use crate::console::{Alert, STEP_SECONDS, Sample};

/// How often somebody who listens gets a sign of life, if nothing else.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Whoever listens longer has to come again, with a token that still counts.
const LISTENS_FOR: Duration = Duration::from_secs(600);

/// What the caller may see of a sample.
fn told(caller: &Caller, sample: &Sample) -> Result<Value, Fault> {
    let may = |name: &str| caller.sees(name);
    let unreadable = |error: serde_json::Error| Fault::unavailable(error.to_string());
    let mut told = serde_json::to_value(sample).map_err(unreadable)?;
    let is_seen = |alert: &&Alert| alert.filter.as_deref().is_none_or(may);
    let alerts: Vec<&Alert> = sample.alerts.iter().filter(is_seen).collect();
    let changed: Vec<_> = sample.changed.iter().filter(|moved| may(&moved.name)).collect();
    told["alerts"] = serde_json::to_value(alerts).map_err(unreadable)?;
    told["point"] = serde_json::to_value(caller.node.monitor.newest_point()).map_err(unreadable)?;
    told["changed"] = serde_json::to_value(changed).map_err(unreadable)?;
    Ok(told)
}

/// `GET /v1/overview`
pub(super) async fn overview(caller: Caller) -> Reply {
    caller.may(Id::UmbelList, &[])?;
    let node = &caller.node;
    if node.monitor.newest().is_none() {
        node.monitor.look(node);
    }
    let sample = node.monitor.newest().ok_or_else(|| Fault::unavailable("nothing was looked at yet"))?;
    let mut told = told(&caller, &sample)?;
    let config = node.config.load();
    let catalogs = config.catalogs.iter().map(|catalog| &catalog.name);
    let catalogs: Vec<&String> =
        catalogs.filter(|name| caller.may(Id::UmbelLookup, &[name]).is_ok()).collect();
    told["version"] = env!("CARGO_PKG_VERSION").into();
    told["durability"] = node.durability.as_str().into();
    told["cluster"] = node.cluster.as_ref().map(|nodes| nodes.cluster()).into();
    told["domain"] = node.lookups.get().map(|lookups| lookups.domain()).into();
    told["catalogs"] = json!(catalogs);
    told["step_seconds"] = STEP_SECONDS.into();
    told["history"] =
        serde_json::to_value(node.monitor.points()).map_err(|error| Fault::unavailable(error.to_string()))?;
    Ok(Json(told))
}

/// `GET /v1/filters/{name}/history`
pub(super) async fn history(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelStats, &name).await?;
    let points = caller.node.monitor.points_of(filter.id());
    Ok(Json(json!({ "step_seconds": STEP_SECONDS, "points": points })))
}

/// `GET /v1/console/events`
pub(super) async fn events(caller: Caller) -> Reply<impl IntoResponse> {
    caller.may(Id::UmbelList, &[])?;
    let node = Arc::clone(&caller.node);
    let listener = node.monitor.listen();
    let listener =
        listener.ok_or_else(|| Fault::unavailable("as many pages listen as may; close one of them"))?;
    let until = Instant::now() + LISTENS_FOR;
    let events =
        stream::unfold((listener, node, caller, until), async |(mut listener, node, caller, until)| {
            let next = tokio::select! {
                next = listener.next() => next?,
                () = node.stop.stopped() => return None,
                () = sleep_until(until) => return None,
            };
            let event = sse::Event::default().event("sample").data(told(&caller, &next).ok()?.to_string());
            Some((Ok::<_, Infallible>(event), (listener, node, caller, until)))
        });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)))
}
