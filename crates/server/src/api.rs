//! The HTTP API: filters and their keys as JSON, for everybody who has no Redis client at hand.
//!
//! | path | does |
//! | --- | --- |
//! | `GET, POST /v1/filters` | lists filters, makes one |
//! | `GET, DELETE /v1/filters/{name}` | describes a filter, drops it |
//! | `POST /v1/filters/{name}/add`, `check`, `remove` | keys: a JSON array, or lines of text without limit |
//! | `POST /v1/filters/{name}/verify` | how often keys were added, exactly |
//! | `POST /v1/filters/{name}/resize`, `merge`, `clear` | another size, other filters' keys, no keys |
//! | `GET, POST, DELETE /v1/filters/{name}/rebuild` | how far the filling of a new one is, begins it, gives it up |
//! | `POST /v1/filters/{name}/rebuild/add`, `finish` | keys of its source; it takes the filter's place |
//! | `GET, POST /v1/filters/{name}/versions` | versions of a filter for those who want a copy: lists them, makes one |
//! | `GET /v1/filters/{name}/versions/{latest, current or N}`, `chunks/{id}` | a version, and the chunks that it is made of |
//! | `PUT /v1/filters/{name}/current` | which version is current; the way back after a bad one |
//! | `GET /v1/filters/{name}/snapshot` | a whole filter as a file for other languages |
//! | `GET /v1/filters/{name}/feed` | its changes as they come |
//! | `GET /v1/filters/{name}/notices` | a word when there is a new version |
//! | `GET /v1/filters/{name}/identity` | which filter has the name, and in which deployment |
//! | `GET /v1/filters/{name}/replicas`, `PUT, DELETE …/replicas/{id}` | who has a copy, and what it is told; forgets one that is gone |
//! | `POST /v1/filters/{name}/switch` | a new version that all strong replicas switch to together |
//! | `GET, POST, PUT, DELETE /v1/filters/{name}/rollout` | a version that goes out group by group; held, let go on, sent back |
//! | `GET, PUT, DELETE /v1/filters/{name}/schedule` | when it is built anew |
//! | `POST /v1/filters/{name}/explain` | where a key lies in it, and why it answers so |
//! | `GET /v1/filters/{name}/history` | its last hour |
//! | `GET /v1/overview`, `GET /v1/console/events` | the server as it is, once or every second |
//! | `GET /v1/slowlog`, `GET /v1/settings` | commands that took long; settings in force |
//! | `GET /v1/plan` | what a filter would take |
//! | `GET /v1/cluster` | the nodes, if it is one of several |
//! | `GET /v1/lookup/{catalog}/{key}`, `POST /v1/lookup/{catalog}` | which domains may have a key, or its record |
//! | `GET /v1/lookup/{catalog}/hottest` | the keys that were asked for most often |
//! | `GET, POST /v1/tokens`, `DELETE /v1/tokens/{id}` | who may do what, until when |
//! | `GET /v1/openapi.json` | all of this, for programs |
//!
//! Users and their rights are those of RESP: a request may do what the command that does the same may.

mod caller;
mod chunks;
mod cluster;
mod console;
mod download;
mod encoding;
mod explain;
mod fault;
mod feed;
mod filters;
mod identity;
mod keys;
mod lines;
mod lookup;
mod metrics;
mod plan;
mod ranges;
mod rebuild;
mod replicas;
mod rollouts;
mod seal;
mod settings;
mod snapshot;
mod tokens;
mod versions;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post, put};
use axum::{Extension, Router};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

use crate::metrics::Registry;
use crate::node::Node;
pub use caller::Peer;
pub(crate) use cluster::answer_for;
use fault::Fault;

/// The longest body that is read at once. Keys beyond it come as lines, or in several requests.
const BODY_BYTES_MAX: usize = 16 << 20;

/// The description that is served and tested against.
pub const OPENAPI: &str = include_str!("api/openapi.json");

/// Gives the node once it is there.
pub trait Nodes: Send + Sync + 'static {
    /// The node, or why there is none yet.
    fn node(&self) -> Result<Arc<Node>, String>;
}

/// What all requests share.
#[derive(Clone)]
struct Api(Arc<dyn Nodes>);

/// `/metrics`.
pub fn metrics_router(nodes: Arc<dyn Nodes>, registry: Arc<Registry>) -> Router {
    let router = Router::new().route("/metrics", get(metrics::metrics));
    router.layer(Extension(registry)).with_state(Api(nodes))
}

/// The paths above.
pub fn router(nodes: Arc<dyn Nodes>) -> Router {
    Router::new()
        .route("/v1/openapi.json", get(describe))
        .route("/v1/filters", get(filters::list).post(filters::create))
        .route("/v1/filters/{name}", get(filters::describe).delete(filters::drop))
        .route("/v1/filters/{name}/resize", post(filters::resize))
        .route("/v1/filters/{name}/growth", get(filters::growth))
        .route("/v1/filters/{name}/merge", post(filters::merge))
        .route("/v1/filters/{name}/clear", post(filters::clear))
        .route("/v1/filters/{name}/add", post(keys::add))
        .route("/v1/filters/{name}/remove", post(keys::remove))
        .route("/v1/filters/{name}/check", post(keys::check))
        .route("/v1/filters/{name}/verify", post(keys::verify))
        .route("/v1/filters/{name}/rebuild", get(rebuild::status).post(rebuild::start).delete(rebuild::abort))
        .route("/v1/filters/{name}/rebuild/add", post(keys::fill))
        .route("/v1/filters/{name}/rebuild/finish", post(rebuild::finish))
        .route("/v1/filters/{name}/versions", get(versions::list).post(versions::publish))
        .route("/v1/filters/{name}/versions/{version}", get(versions::get))
        .route("/v1/filters/{name}/current", put(versions::pin))
        .route("/v1/filters/{name}/chunks/{id}", get(chunks::get))
        .route("/v1/filters/{name}/snapshot", get(snapshot::get))
        .route("/v1/filters/{name}/feed", get(feed::feed))
        .route("/v1/filters/{name}/identity", get(identity::identity))
        .route("/v1/filters/{name}/notices", get(replicas::notices))
        .route("/v1/filters/{name}/replicas", get(replicas::list))
        .route("/v1/filters/{name}/replicas/{id}", put(replicas::heartbeat).delete(replicas::forget))
        .route("/v1/filters/{name}/switch", post(rollouts::switch))
        .route(
            "/v1/filters/{name}/rollout",
            get(rollouts::status).post(rollouts::start).put(rollouts::hold).delete(rollouts::abort),
        )
        .route(
            "/v1/filters/{name}/schedule",
            get(rollouts::planned).put(rollouts::plan_rebuilds).delete(rollouts::unplan),
        )
        .route("/v1/filters/{name}/explain", post(explain::explain))
        .route("/v1/filters/{name}/history", get(console::history))
        .route("/v1/overview", get(console::overview))
        .route("/v1/console/events", get(console::events))
        .route("/v1/slowlog", get(settings::slowlog))
        .route("/v1/settings", get(settings::settings))
        .route("/v1/plan", get(plan::plan))
        .route("/v1/cluster", get(cluster::nodes))
        .route("/v1/lookup/{catalog}", post(lookup::ask))
        .route("/v1/lookup/{catalog}/hottest", get(lookup::hottest))
        .route("/v1/lookup/{catalog}/{key}", get(lookup::get))
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .fallback(async || Fault::not_found("there is nothing at this path"))
        .method_not_allowed_fallback(async || Fault::method_not_allowed())
        .layer(axum::middleware::from_fn_with_state(Api(Arc::clone(&nodes)), cluster::checked))
        .layer(axum::middleware::from_fn_with_state(Api(Arc::clone(&nodes)), identity::named))
        .layer(axum::middleware::from_fn(seal::sealed))
        .with_state(Api(nodes))
}

async fn describe() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

/// The body of a request as JSON.
async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Fault> {
    object(&body(request).await?)
}

fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    if !bytes.trim_ascii_start().starts_with(b"{") {
        // Fields have names: an array in their order is not what anybody meant.
        return Err(Fault::invalid("the body: a JSON object is expected"));
    }
    parse(bytes)
}

/// The body of a request.
async fn body(request: Request) -> Result<Vec<u8>, Fault> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length
        .and_then(|length| length.parse::<u64>().ok())
        .is_some_and(|length| length > BODY_BYTES_MAX as u64)
    {
        return Err(Fault::too_large(BODY_BYTES_MAX));
    }
    let (head, body) = request.into_parts();
    let (mut bytes, mut body) = (Vec::new(), body.into_data_stream());
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| Fault::invalid(format!("the body did not come: {error}")))?;
        if bytes.len() + part.len() > BODY_BYTES_MAX {
            return Err(Fault::too_large(BODY_BYTES_MAX));
        }
        bytes.extend_from_slice(&part);
    }
    seal::check_body(&head, &bytes)?;
    Ok(bytes)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|error| Fault::invalid(format!("the body: {error}")))
}
