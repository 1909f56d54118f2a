//! Replicas: what they say of themselves, what they are told, and notices.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use umbel_core::engine::{Handle, Token};
use umbel_core::version::Version;

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;
use crate::names::name_of;
use crate::node::Node;
use crate::sync::members::Member;
use crate::sync::{Beat, Known, forget as forgotten, heard, replicas_of, rollout};

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
        "refused": orders.refused.map(|rollout| json!({ "version": rollout.target, "why": rollout.why })),
        "peers": orders.peers,
        "position": caller.node.engine.token().to_string(),
        // Whose versions the numbers are of.
        "filter": format!("{:016x}", filter.id()),
    })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leaving {
    /// The number of the replica's process, if it is the replica itself that leaves.
    run: Option<u64>,
}

/// `DELETE /v1/filters/{name}/replicas/{id}`
pub(super) async fn forget(
    caller: Caller,
    Path((name, id)): Path<(String, String)>,
    leaving: Result<Query<Leaving>, QueryRejection>,
) -> Reply<StatusCode> {
    let Query(Leaving { run }) = leaving.map_err(|rejection| Fault::invalid(rejection.body_text()))?;
    // A replica may leave by the right that it reports by. To forget another one changes what a majority is.
    let filter = caller.filter(Id::UmbelExport, &name).await?;
    if !run.is_some_and(|run| caller.node.sync.replicas.is_run(filter.id(), &id, run)) {
        caller.filter(Id::UmbelResize, &name).await?;
    }
    if !forgotten(&caller.node, &filter, &id, run).await? {
        return Err(Fault::not_found(format!("no replica {} of this filter is known", id.escape_debug())));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/filters/{name}/replicas`
pub(super) async fn list(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelStats, &name).await?;
    let node = &caller.node;
    let (now, centre) = (node.now(), node.engine.token());
    let current = node.releases.current(filter.id()).await?;
    let registered = node.sync.members.of(node, &filter).await?;
    let mut serves = rollout::serves(node, filter.id()).await?;
    // It is only shown: without it the rest is as true.
    let items = node.counts_of(&filter).await.ok().map(|counts| counts.items);
    let mut versions = BTreeMap::new();
    let mut shown = Vec::new();
    let heard = replicas_of(node, filter.id());
    for (id, known) in &heard {
        let serve = if known.is_strong() { current.strong } else { serves.remove(id).flatten() };
        for number in known.beat.version.into_iter().chain(serve) {
            if let Entry::Vacant(entry) = versions.entry(number) {
                // One that was removed meanwhile is compared with nothing.
                entry.insert(node.engine.version(filter.id(), number).await.ok());
            }
        }
        let version_of = |number: Option<u64>| versions.get(&number?).and_then(Option::as_ref);
        let (has, serve) = (version_of(known.beat.version), serve.map(|number| (number, version_of(serve))));
        shown.push(show(&filter, id, known, &Compared { centre: &centre, has, serve, items, now }));
    }
    for (id, member) in registered.iter().filter(|(id, _)| !heard.contains_key(*id)) {
        shown.push(show_silent(&filter, id, member, current.strong));
    }
    Ok(Json(json!({
        "replicas": shown,
        "position": centre.to_string(),
        "pinned": current.version,
        "strong": current.strong,
        "registered": registered.len(),
    })))
}

/// What a replica is compared with.
struct Compared<'a> {
    centre: &'a Token,
    /// The version that it answers from, if it is still there.
    has: Option<&'a Version>,
    /// The version that it is to answer from, if it is to stay at one.
    serve: Option<(u64, Option<&'a Version>)>,
    /// The items of the filter now.
    items: Option<u64>,
    now: Instant,
}

/// How a replica stands to what it is told: `follows` the newest version or the log, is `held` at a version, is `moving` to it,
/// `cannot_be_held` because of its release; or, of strong ones, `answers` or `waits` for leave to do so.
fn state_of(known: &Known, compared: &Compared<'_>) -> &'static str {
    let beat = &known.beat;
    let Some((number, version)) = compared.serve else {
        return if known.is_strong() { "waits" } else { "follows" };
    };
    let is_at = version.map_or(beat.version == Some(number) && !beat.is_stream(), |version| {
        beat.is_at(number, &version.token())
    });
    match (known.is_strong(), is_at) {
        (true, true) => "answers",
        (true, false) => "waits",
        (false, true) => "held",
        (false, false) if beat.can_be_held() => "moving",
        (false, false) => "cannot_be_held",
    }
}

fn show(filter: &Handle, id: &str, known: &Known, compared: &Compared<'_>) -> Value {
    let Compared { centre, has, serve, items, now } = compared;
    let beat = &known.beat;
    let token: Token = beat.token.parse().unwrap_or_default();
    let partitions: Vec<u32> = token.positions().map(|(partition, _)| partition).collect();
    let ahead = |partition: &u32| {
        let (there, here) = (token.position(*partition).number(), centre.position(*partition).number());
        u64::try_from(here.saturating_sub(there)).unwrap_or(u64::MAX)
    };
    let heard_ms = now.saturating_duration_since(known.seen).as_millis() as u64;
    let state = state_of(known, compared);
    // One that follows the log has more than the version that it began with.
    let is_at_version = !beat.is_stream() || state == "held";
    let has_items = has.map(|version| version.shards.iter().map(|shard| shard.items).sum::<u64>());
    let lacks = items.zip(has_items).filter(|_| is_at_version).map(|(now, then)| now.saturating_sub(then));
    let is_as_told = !matches!(state, "moving" | "cannot_be_held");
    json!({
        "id": id,
        "strategy": beat.strategy,
        "state": state,
        "version": beat.version,
        "serve": serve.map(|(number, _)| number),
        "staged": beat.staged,
        "position": beat.token,
        // Bytes of the log that it has not seen, of all filters together.
        "lag_bytes": partitions.iter().map(ahead).sum::<u64>(),
        // Items that the filter has and the version that it answers from has not; unknown if it follows the log.
        "lacks_items": lacks,
        "age_ms": beat.age_ms.saturating_add(heard_ms),
        "heard_ms": heard_ms,
        "digest": beat.digest,
        // Whether its version is that of the server under this number, and the one that it is to have; unknown if that was removed.
        "agrees": has.map(|version| version.digest().to_string() == beat.digest && is_as_told),
        "spooled": beat.spooled,
        "labels": beat.labels,
        "address": beat.address,
        "filter": format!("{:016x}", filter.id()),
    })
}

/// A registered strong replica that is not heard of: it counts for a majority until it is forgotten.
fn show_silent(filter: &Handle, id: &str, member: &Member, serve: Option<u64>) -> Value {
    json!({
        "id": id,
        "strategy": "strong",
        "state": "silent",
        "version": null,
        "serve": serve,
        "staged": null,
        "position": "",
        "lag_bytes": 0,
        "lacks_items": null,
        "age_ms": u64::MAX,
        "heard_ms": null,
        "digest": "",
        "agrees": null,
        "spooled": 0,
        "labels": member.labels,
        "address": null,
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
