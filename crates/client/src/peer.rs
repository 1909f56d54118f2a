//! Chunks and versions for other replicas, over HTTP, at the paths that a server has them at.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use umbel_core::version::ChunkId;

use crate::limits::PEER_CONNECTIONS_MAX;
use crate::shared::{Live, Shared, blocking, lock};
use crate::{Error, Result};

/// How long a head may take to come, and a connection may last: others are waiting.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Listens, and serves until it is aborted.
pub(crate) async fn serve(shared: Arc<Shared>, address: SocketAddr) -> Result<(SocketAddr, JoinHandle<()>)> {
    let failed = |error| Error::Invalid(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let reachable = (!bound.ip().is_unspecified()).then(|| format!("http://{bound}"));
    *lock(&shared.address) = shared.options.advertised.clone().or(reachable);
    shared.beat.notify_one();
    Ok((bound, tokio::spawn(accept(shared, listener))))
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(PEER_CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // A place first: who finds none waits in the system's queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "no connection from another replica");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&shared), request));
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, served).await {
                tracing::debug!(%error, "a connection from another replica ended");
            }
            drop(place);
        });
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(refusal(StatusCode::METHOD_NOT_ALLOWED, "method", "a replica takes nothing"));
    }
    let root = shared.sources.path("");
    let path = request.uri().path().strip_prefix(&root).map(str::to_owned);
    let known = request.headers().get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let looked = blocking(move || {
        let live = shared.live().filter(|_| !shared.is_gone())?;
        match path?.split_once('/')? {
            ("chunks", id) => chunk(&shared, &live, id.parse().ok()?),
            ("versions", name) => version(&live, name, known.as_deref()),
            _ => None,
        }
    });
    let none = || refusal(StatusCode::NOT_FOUND, "not_found", "this replica does not have it");
    Ok(looked.await.ok().flatten().unwrap_or_else(none))
}

/// Only chunks of this filter: whoever knows the names of others has no right to them here.
fn chunk(shared: &Shared, live: &Live, id: ChunkId) -> Option<Answer> {
    let version = live.copy.version();
    let has = version.chunks().any(|chunk| chunk == id);
    let before =
        || lock(&shared.previous).as_ref().is_some_and(|before| before.chunks().any(|chunk| chunk == id));
    if !has && !before() {
        return None;
    }
    let kept = shared.store.as_ref().and_then(|store| store.chunk(id));
    let bytes = kept.or_else(|| live.copy.chunk(id))?;
    Response::builder()
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(ETAG, format!("\"{id}\""))
        .header(CACHE_CONTROL, "public, max-age=31536000, immutable")
        .body(Full::new(bytes))
        .ok()
}

fn version(live: &Live, name: &str, known: Option<&str>) -> Option<Answer> {
    let number = live.number();
    let wanted = matches!(name, "current" | "latest") || name.parse() == Ok(number);
    if !wanted {
        return None;
    }
    let tag = format!("\"{}-{number}\"", live.digest);
    let head = Response::builder().header(ETAG, &tag).header(CACHE_CONTROL, "no-cache");
    if known == Some(&*tag) {
        return head.status(StatusCode::NOT_MODIFIED).body(Full::default()).ok();
    }
    head.header(CONTENT_TYPE, "application/vnd.umbel.version")
        .header("umbel-version", number)
        .header("umbel-digest", live.digest.to_string())
        .body(Full::new(live.copy.version().encode().ok()?.into()))
        .ok()
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Answer {
    let body = serde_json::json!({ "error": { "code": code, "message": message } }).to_string();
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer
}
