//! The nodes of a cluster, and what does not work there yet.

use axum::Json;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Api;
use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;

/// What is made of whole filters, behind their names in a path. Nodes have parts of them.
const OF_WHOLE_FILTERS: [&str; 9] =
    ["versions", "current", "chunks", "snapshot", "feed", "notices", "switch", "rollout", "schedule"];

/// Refuses what needs whole filters where other nodes have parts of them.
pub(super) async fn checked(State(api): State<Api>, request: Request, next: Next) -> Response {
    let kind = request.uri().path().strip_prefix("/v1/filters/").and_then(|rest| rest.split('/').nth(1));
    if let Some(kind) = kind.filter(|kind| OF_WHOLE_FILTERS.contains(kind)) {
        let is_clustered = api.0.node().is_ok_and(|node| node.cluster.is_some());
        if is_clustered {
            return Fault::invalid(format!("{kind} of filters do not work on a cluster yet")).into_response();
        }
    }
    next.run(request).await
}

/// `GET /v1/cluster`
pub(super) async fn nodes(caller: Caller) -> Reply {
    caller.may(Id::UmbelNodeList, &[])?;
    let Some(nodes) = &caller.node.cluster else {
        return Err(Fault::not_found("this server is no node of a cluster"));
    };
    let (membership, view) = (nodes.membership(), nodes.membership().view());
    let first = |name: &str| {
        let all = 0..view.partitions();
        all.filter(|partition| view.first(*partition).is_some_and(|node| node.name == name)).count()
    };
    let described = |node: &umbel_core::cluster::Record| {
        json!({
            "name": node.name,
            "address": node.address,
            "zone": node.zone,
            "weight": node.weight,
            "leaving": node.leaving,
            "serves": node.serves.len(),
            "first": first(&node.name),
            "wanted": view.wanted(&node.name).len(),
        })
    };
    let all: Vec<Value> = view.nodes().iter().map(described).collect();
    Ok(Json(json!({
        "cluster": nodes.cluster(),
        "node": membership.name(),
        "partitions": view.partitions(),
        "copies": view.copies(),
        "settled": view.is_settled(),
        "nodes": all,
    })))
}
