//! The nodes of a cluster, and what one of them does for all.
//!
//! What is known of replicas is soft, and one node has it: the first host of the catalog. Others pass on to it what replicas say and what
//! is asked of all of them together. When another node takes its place, the next heartbeats tell that one. What stands in the registry, as
//! rollouts and schedules do, any node reads and changes.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use umbel_core::Error;

use super::caller::Caller;
use super::fault::{Fault, Reply};
use super::{Api, BODY_BYTES_MAX, Nodes};
use crate::cluster::PARTITIONS_SHOWN_MAX;
use crate::commands::look::age_ms;
use crate::commands::table::Id;
use crate::node::Node;

/// Whether a request is for the node that knows replicas, by what is behind the name of a filter in its path.
fn is_of_all_replicas(kind: &str, method: &Method) -> bool {
    matches!(kind, "replicas" | "switch") || (kind == "rollout" && method == Method::POST)
}

/// A request that another node passes on.
#[derive(Serialize, Deserialize)]
struct Passed {
    method: String,
    path: String,
    authorization: Option<String>,
    body: String,
}

/// What came of it.
#[derive(Serialize, Deserialize)]
struct Answered {
    status: u16,
    body: String,
}

/// Marks a request that was passed on, and is not to be passed on again.
#[derive(Clone, Copy)]
struct IsPassed;

/// Passes on what another node does for all.
pub(super) async fn checked(State(api): State<Api>, request: Request, next: Next) -> Response {
    let kind = request.uri().path().strip_prefix("/v1/filters/").and_then(|rest| rest.split('/').nth(1));
    let node = api.0.node().ok().filter(|node| node.cluster.is_some());
    let (Some(kind), Some(node)) = (kind, node) else { return next.run(request).await };
    let is_passed = request.extensions().get::<IsPassed>().is_some();
    if !is_of_all_replicas(kind, request.method()) || is_passed || node.engine.term_as_steward().is_some() {
        return next.run(request).await;
    }
    pass_on(&api, &node, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn pass_on(api: &Api, node: &Node, request: Request) -> Reply<Response> {
    let (mut head, body) = request.into_parts();
    // Strangers get no further than here.
    Caller::from_request_parts(&mut head, api).await?;
    let authorization = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let passed = Passed {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        authorization: authorization.map(str::to_owned),
        body: String::new(),
    };
    let is_harmless = head.method != Method::POST;
    let body = super::body(Request::from_parts(head, body)).await?;
    let body = String::from_utf8(body).map_err(|_| Fault::invalid("the body: JSON is text"))?;
    let passed = serde_json::to_vec(&Passed { body, ..passed }).map_err(|error| unreadable(&error))?;
    let nodes =
        node.cluster.as_ref().ok_or_else(|| Fault::not_found("this server is no node of a cluster"))?;
    let answered = nodes.pass_on(node.engine.catalog(), &passed, is_harmless).await?;
    let Answered { status, body } = serde_json::from_slice(&answered).map_err(|error| unreadable(&error))?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn unreadable(error: &serde_json::Error) -> Fault {
    Error::Retry(format!("what nodes say to each other: {error}")).into()
}

/// The node itself, for requests that another one passes on.
struct Here(Arc<Node>);

impl Nodes for Here {
    fn node(&self) -> Result<Arc<Node>, String> {
        Ok(Arc::clone(&self.0))
    }
}

/// Answers a request that another node passed on.
pub(crate) async fn answer_for(node: Arc<Node>, passed: &[u8]) -> umbel_core::Result<Vec<u8>> {
    if node.engine.term_as_steward().is_none() {
        return Err(Error::Moved("another node looks after replicas".into()));
    }
    let invalid = |why: String| Error::Invalid(format!("a request that was passed on: {why}"));
    let passed: Passed = serde_json::from_slice(passed).map_err(|error| invalid(error.to_string()))?;
    let mut request = Request::builder().method(passed.method.as_str()).uri(&passed.path);
    request = request.header(header::CONTENT_TYPE, "application/json").extension(IsPassed);
    if let Some(authorization) = &passed.authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Body::from(passed.body)).map_err(|error| invalid(error.to_string()))?;
    let router = super::router(Arc::new(Here(node)));
    let answer = TowerToHyperService::new(router).call(request).await;
    let (head, body) = answer.map_err(|error| invalid(error.to_string()))?.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| Error::Retry(error.to_string()))?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let answered = Answered { status: head.status.as_u16(), body };
    serde_json::to_vec(&answered).map_err(|error| invalid(error.to_string()))
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
            "isolated": view.is_isolated(&node.name),
            "serves": node.serves.len(),
            "first": first(&node.name),
            "wanted": view.wanted(&node.name).len(),
        })
    };
    let all: Vec<Value> = view.nodes().iter().map(described).collect();
    let hosts = |partition| {
        json!({
            "partition": partition,
            "serving": view.hosts(partition).map(|node| &node.name).collect::<Vec<_>>(),
            "wanted": view.ring_hosts(partition).collect::<Vec<_>>(),
        })
    };
    let hosts: Vec<Value> = (0..view.partitions()).take(PARTITIONS_SHOWN_MAX).map(hosts).collect();
    let here = caller.node.engine.hosted().into_iter().take(PARTITIONS_SHOWN_MAX).map(|one| {
        json!({
            "partition": one.partition,
            "first": one.is_first,
            "age_ms": age_ms(one.age),
            "uncheckpointed_bytes": one.bytes_since_checkpoint,
        })
    });
    let here: Vec<Value> = here.collect();
    Ok(Json(json!({
        "cluster": nodes.cluster(),
        "node": membership.name(),
        "partitions": view.partitions(),
        "copies": view.copies(),
        "settled": view.is_settled(),
        "slots": caller.node.engine.settings().slots,
        "nodes": all,
        "hosts": hosts,
        "here": here,
    })))
}
