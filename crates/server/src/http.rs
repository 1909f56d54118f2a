//! The HTTP door, and health.
//!
//! | path | answers |
//! | --- | --- |
//! | `/healthz` | 200 while the process lives |
//! | `/readyz` | 200 if it serves, or 503 and the reason |
//!
//! Unauthenticated clients may reach this port, so everything about a connection has a limit: how many there are, how long a request
//! may take to come, how long it may be, and how long its answer may take to go.
//!
//! When all connections are taken, some more are accepted, for a short time each: they get health and metrics, and a 503 for anything else.
//! So a monitor sees a busy server as busy, and not as gone.

mod framing;
mod patience;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::acceptor::log_not_accepted;
use crate::api::Peer;
use crate::tls::Tls;
use patience::{Patient, patient_body};

/// What the door asks the node.
pub trait Node: Send + Sync + 'static {
    /// Whether requests are served; if not, why: recovering, or a log that is closed.
    fn ready(&self) -> Result<(), String>;
}

/// A closure is a node, too.
impl<F: Fn() -> Result<(), String> + Send + Sync + 'static> Node for F {
    fn ready(&self) -> Result<(), String> {
        self()
    }
}

/// What a connection may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// Connections beyond these, for health and metrics alone.
    pub reserved_max: usize,
    /// The head of a request has to be there within this time, the first and every next one.
    pub head_timeout: Duration,
    /// A client that sends no more of its body for so long, or reads no more of an answer, is cut off.
    pub stall_timeout: Duration,
    /// The head of a request.
    pub head_bytes_max: usize,
    /// The body of a request that is not taken as it comes.
    pub body_bytes_max: usize,
    /// After a stop signal, answers under way get this long.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            reserved_max: 32,
            head_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            head_bytes_max: 16 << 10,
            body_bytes_max: 1 << 20,
            stop_timeout: Duration::from_secs(5),
        }
    }
}

/// Paths that have connections of their own.
const RESERVED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// The head of a request over one of these has to be there within this time.
const RESERVED_HEAD_TIME: Duration = Duration::from_secs(1);

/// The paths above. Others can be merged with it.
pub fn router(node: Arc<dyn Node>) -> Router {
    Router::new().route("/healthz", get(async || "alive\n")).route("/readyz", get(ready)).with_state(node)
}

async fn ready(State(node): State<Arc<dyn Node>>) -> impl IntoResponse {
    match node.ready() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Answers a request over a reserved connection, which ends after it.
async fn reserved(request: Request, next: Next) -> Response {
    let mut response = if RESERVED.contains(&request.uri().path()) {
        next.run(request).await
    } else {
        let why =
            json!({ "code": "unavailable", "message": "as many connections are open as may be; try again" });
        (StatusCode::SERVICE_UNAVAILABLE, axum::Json(json!({ "error": why }))).into_response()
    };
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The right to have a connection open.
struct Place {
    _permit: OwnedSemaphorePermit,
    is_reserved: bool,
}

/// The places of a door.
struct Places {
    all: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
}

impl Places {
    fn new(limits: &Limits) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { all: places(limits.connections_max), reserved: places(limits.reserved_max) }
    }

    /// Waits for a place, a reserved one only if there is no other. `None` never happens: the semaphores stay open.
    async fn take(&self) -> Option<Place> {
        let (permit, is_reserved) = tokio::select! {
            biased;
            permit = Arc::clone(&self.all).acquire_owned() => (permit, false),
            permit = Arc::clone(&self.reserved).acquire_owned() => (permit, true),
        };
        Some(Place { _permit: permit.ok()?, is_reserved })
    }

    /// Exchanges a reserved place for another one, if one is free by the time a connection has come.
    fn exchange(&self, place: Place) -> Place {
        if !place.is_reserved {
            return place;
        }
        match Arc::clone(&self.all).try_acquire_owned() {
            Ok(permit) => Place { _permit: permit, is_reserved: false },
            Err(_) => place,
        }
    }
}

/// Serves `router` on `listener`, over TLS if there are certificates, until `stop` is done, then lets answers that are under way end.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let patience = limits.stall_timeout;
    let patient = move |request: Request| async move { request.map(|body| patient_body(body, patience)) };
    let router =
        router.layer(DefaultBodyLimit::max(limits.body_bytes_max)).layer(middleware::map_request(patient));
    let places = Places::new(&limits);
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        // A place first: who finds none waits in the system's queue, where it costs nothing here.
        let place = tokio::select! {
            () = &mut stop => break,
            place = places.take() => place,
        };
        let Some(place) = place else { break };
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or a client that has gone: neither is a reason to end, nor to spin.
                log_not_accepted(&error);
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let place = places.exchange(place);
        let (mut router, mut limits) = (router.clone().layer(Extension(Peer(peer))), limits.clone());
        if place.is_reserved {
            router = router.layer(middleware::from_fn(reserved));
            limits.head_timeout = limits.head_timeout.min(RESERVED_HEAD_TIME);
        }
        let (acceptor, stopped) = (tls.as_deref().map(Tls::acceptor), stopped.clone());
        connections.spawn(async move {
            match acceptor {
                None => connection(stream, router, limits, stopped).await,
                // Whoever says too little of who it is takes a place no longer than one who says nothing.
                Some(acceptor) => match timeout(limits.head_timeout, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, router, limits, stopped).await,
                    Ok(Err(error)) => tracing::debug!(%error, "no TLS with an HTTP client"),
                    Err(_) => tracing::debug!("no TLS with an HTTP client in time"),
                },
            }
            drop(place);
        });
    }
    drop(listener);
    let _told = stopping.send(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _late = timeout(limits.stop_timeout, ended).await;
    Ok(())
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head_bytes_max.max(8192))
        .half_close(false);
    let stream = Patient::new(stream, limits.stall_timeout);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(served);
    let conversation = async {
        tokio::select! {
            outcome = &mut served => return outcome,
            _ = stopped.wait_for(|stopped| *stopped) => served.as_mut().graceful_shutdown(),
        }
        served.await
    };
    if let Err(error) = conversation.await {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}
