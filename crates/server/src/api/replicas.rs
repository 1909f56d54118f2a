//! Replicas: what they say of themselves, what they are told, and notices.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request};
use axum::response::IntoResponse;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::sleep;
use umbel_core::engine::{Handle, Token};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;
use crate::names::name_of;
use crate::node::Node;
use crate::sync::{Beat, Known, heard, replicas_of};

/// How often somebody who listens gets a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// `PUT /v1/filters/{name}/replicas/{id}`
pub(super) async fn heartbeat(
    caller: Caller,
    Path((name, id)): Path<(String, String)>,
    request: Request,
) -> Reply {
    let filter = caller.filter(Id::UmbelExport, &name).await?;
    let beat: Beat = super::json(request).await?;
    let _: Token = beat.token.parse()?;
    let orders = heard(&caller.node, &filter, &id, beat).await?;
    let probes = orders.probes.map(|rollout| {
        let plan = rollout.plan;
        json!({ "id": rollout.began_ms, "present": plan.probe_present, "absent": plan.probe_absent })
    });
    Ok(Json(json!({
        "serve": orders.told.serve,
        "stage": orders.told.stage,
        "lease_ms": orders.lease_ms,
        "probes": probes,
        "peers": orders.peers,
        "position": caller.node.engine.token().to_string(),
        // Whose versions the numbers are of.
        "filter": format!("{:016x}", filter.id()),
    })))
}

/// `GET /v1/filters/{name}/replicas`
pub(super) async fn list(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelStats, &name).await?;
    let node = &caller.node;
    let now = node.now();
    let centre = node.engine.token();
    let mut digests = BTreeMap::new();
    let mut shown = Vec::new();
    for (id, known) in replicas_of(node, filter.id()) {
        if let Some(number) = known.beat.version
            && !digests.contains_key(&number)
        {
            let version = node.engine.version(filter.id(), number).await.ok();
            digests.insert(number, version.map(|version| version.digest().to_string()));
        }
        let digest = known.beat.version.and_then(|number| digests.get(&number).cloned().flatten());
        shown.push(show(&filter, &id, &known, &centre, digest.as_deref(), now));
    }
    Ok(Json(json!({ "replicas": shown, "position": centre.to_string() })))
}

fn show(
    filter: &Handle,
    id: &str,
    known: &Known,
    centre: &Token,
    digest: Option<&str>,
    now: std::time::Instant,
) -> Value {
    let beat = &known.beat;
    let token: Token = beat.token.parse().unwrap_or_default();
    let partitions: Vec<u32> = token.positions().map(|(partition, _)| partition).collect();
    let ahead = |partition: &u32| {
        let (there, here) = (token.position(*partition).number(), centre.position(*partition).number());
        u64::try_from(here.saturating_sub(there)).unwrap_or(u64::MAX)
    };
    let heard_ms = now.saturating_duration_since(known.seen).as_millis() as u64;
    json!({
        "id": id,
        "strategy": beat.strategy,
        "version": beat.version,
        "staged": beat.staged,
        "position": beat.token,
        // Bytes of the log that it has not seen, of all filters together.
        "lag_bytes": partitions.iter().map(ahead).sum::<u64>(),
        "age_ms": beat.age_ms.saturating_add(heard_ms),
        "heard_ms": heard_ms,
        "digest": beat.digest,
        // Whether it has what the centre has under that number; unknown if that was removed.
        "agrees": digest.map(|digest| digest == beat.digest),
        "spooled": beat.spooled,
        "labels": beat.labels,
        "address": beat.address,
        "filter": format!("{:016x}", filter.id()),
    })
}

/// `GET /v1/filters/{name}/notices`
pub(super) async fn notices(caller: Caller, Path(name): Path<String>) -> Reply<impl IntoResponse> {
    let filter = caller.filter(Id::UmbelExport, &name).await?;
    if filter.is_window() {
        return Err(Fault::invalid("a window has no versions to be told of"));
    }
    let listener = caller.node.sync.notices.listen(&caller.node, &filter);
    let named = Named { node: caller.node, name: name_of(name.as_bytes()).into_owned(), filter: filter.id() };
    let events = stream::unfold((listener, named), async |(mut listener, named)| {
        let next = tokio::select! {
            next = listener.next() => next,
            () = named.node.stop.stopped() => return None,
            // Whoever listens has to find out which filter has the name now, if any.
            () = named.is_over() => return None,
        };
        let event = match next {
            Some(notice) => sse::Event::default().event(notice.event.name()).data(
                json!({ "number": notice.number, "digest": notice.digest, "current": notice.current })
                    .to_string(),
            ),
            None => sse::Event::default().event("missed").data("{}"),
        };
        Some((Ok::<_, Infallible>(event), (listener, named)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)))
}

/// A filter that somebody listens to by a name.
struct Named {
    node: Arc<Node>,
    name: String,
    filter: u64,
}

impl Named {
    /// Waits until the name is not this filter's any more.
    async fn is_over(&self) {
        while self.node.engine.filter(&self.name).is_some_and(|holder| holder.id() == self.filter) {
            sleep(SIGN_OF_LIFE).await;
        }
    }
}
