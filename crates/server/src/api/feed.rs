//! The feed of a filter: its changes as they come, for those who keep a copy.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use umbel_core::engine::{Handle, Token};
use umbel_core::entry::{Entry, Operation};
use umbel_core::feed::{Frame, Shape};
use umbel_core::version::{ChunkId, Version};
use umbel_core::{Error, Result};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;
use crate::names::shown;
use crate::node::Node;
use crate::sync::Holds;

const CONTENT_TYPE: &str = "application/vnd.umbel.feed";
/// The longest wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often a stream says how far it is, if nothing else happens.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    after: String,
    wait_ms: Option<u64>,
    #[serde(default)]
    follow: bool,
    /// Whether versions come in the stream, too.
    #[serde(default)]
    versions: bool,
    /// The version that the reader has.
    have: Option<u64>,
    /// The shape of the reader's arrays, if changes are to be packed for it.
    shape: Option<String>,
    /// The number of the filter that the reader has a copy of.
    filter: Option<String>,
}

/// `GET /v1/filters/{name}/feed`
pub(super) async fn feed(
    caller: Caller,
    Path(name): Path<String>,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
) -> Reply<Response> {
    let Query(asked) = asked.map_err(|rejection| Fault::invalid(rejection.body_text()))?;
    let filter = caller.filter(Id::UmbelExport, &name).await?;
    if let Some(had) = &asked.filter {
        check_same(&filter, had)?;
    }
    let token: Token = asked.after.parse()?;
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0));
    if wait > WAIT_MAX {
        return Err(Fault::invalid(format!("wait_ms is at most {}", WAIT_MAX.as_millis())));
    }
    if asked.follow && asked.wait_ms.is_some() || !asked.follow && asked.versions {
        return Err(Fault::invalid(
            "wait_ms is for a single answer, versions for one that goes on (follow=true)",
        ));
    }
    let shape = asked.shape.as_deref().map(str::parse).transpose()?;
    let mut follower = Follower::new(Arc::clone(&caller.node), filter, token, shape);
    let body = if asked.follow {
        if asked.versions {
            follower.push_versions(asked.have).await?;
        }
        // What is known to be impossible is said before the stream begins.
        let first = follower.changes().await?;
        Body::from_stream(follower.stream(first))
    } else {
        Body::from(follower.poll(wait).await?)
    };
    let headers = [(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

/// Refuses whoever has a copy of another filter, which had the name before: changes of this one are none of that copy's.
fn check_same(filter: &Handle, had: &str) -> Reply<()> {
    let had = u64::from_str_radix(had, 16).map_err(|_| Fault::invalid("filter is a number of 16 digits"))?;
    if had == filter.id() {
        return Ok(());
    }
    let definition = filter.definition();
    let is_next = definition.mirrors.is_some_and(|mirror| mirror.of == had);
    let (code, why) = match is_next {
        // The copy may answer until its reader has a version of this one.
        true => ("trimmed", "was filled anew"),
        false => ("replaced", "is another one by now"),
    };
    Err(Fault::of(StatusCode::GONE, code, format!("the filter {} {why}", shown(&definition.name))))
}

/// One who follows a filter.
struct Follower {
    node: Arc<Node>,
    filter: Arc<Handle>,
    token: Token,
    /// What the reader's arrays look like: until it is sent a version, after which it may ask anew.
    shape: Option<Shape>,
    /// What the reader has, if it is sent versions.
    chunks: Option<HashSet<ChunkId>>,
    /// A version has to be sent before anything else makes sense: one at or after this place, or the filter as it is now.
    wanted: Option<Option<Token>>,
    /// Chunks of a version that is being sent, last first.
    sending: Option<(Version, Vec<ChunkId>)>,
    gone: bool,
    told: Instant,
    /// Changes of what replicas are held at: a stream ends then, and its reader asks what it is to do.
    holds: Holds,
    is_held: bool,
}

impl Follower {
    fn new(node: Arc<Node>, filter: Arc<Handle>, token: Token, shape: Option<Shape>) -> Self {
        Self {
            holds: node.sync.notices.holds(filter.id()),
            node,
            filter,
            token,
            shape,
            chunks: None,
            wanted: None,
            sending: None,
            gone: false,
            told: Instant::now(),
            is_held: false,
        }
    }

    async fn push_versions(&mut self, have: Option<u64>) -> Result<()> {
        let engine = &self.node.engine;
        let known = match have {
            Some(number) if engine.versions(self.filter.id()).await?.contains(&number) => {
                Some(engine.version(self.filter.id(), number).await?)
            }
            _ => None,
        };
        if known.is_none() {
            self.wanted = Some(Some(Token::default()));
        }
        self.chunks = Some(known.iter().flat_map(Version::chunks).collect());
        Ok(())
    }

    /// The next changes as frames; nothing if there are none.
    async fn changes(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        if self.wanted.is_some() {
            return Ok(out);
        }
        let changes = match self.node.engine.changes(&self.filter, &self.token).await {
            Err(Error::Trimmed { .. }) if self.chunks.is_some() => {
                self.wanted = Some(self.node.now_in_log());
                return Ok(out);
            }
            changes => changes?,
        };
        for (partition, record) in changes.records {
            let entry = Entry::decode(&record.entry)?;
            let operation = &entry.operation;
            self.gone |= *operation == Operation::Drop;
            let stacks = matches!(operation, Operation::Define(_)) && !self.filter.definition().retain;
            if self.chunks.is_some() && (operation.reshapes() || stacks) {
                let wanted = self.wanted.get_or_insert_with(|| Some(Token::default()));
                wanted.iter_mut().for_each(|token| token.see(partition, record.position));
            }
            let frame = match self.shape.and_then(|shape| shape.pack(&entry)) {
                Some(changes) => {
                    Frame::Packed { partition, position: record.position, changes: changes.into() }
                }
                None => Frame::Record { partition, record },
            };
            frame.encode(&mut out);
        }
        self.token = changes.token;
        Ok(out)
    }

    /// Says how far it is.
    fn reached(&mut self, out: &mut Vec<u8>) {
        self.told = Instant::now();
        for (partition, position) in self.token.positions() {
            Frame::Reached { partition, position }.encode(out);
        }
    }

    /// What there is, or will be within a time.
    async fn poll(&mut self, wait: Duration) -> Result<Vec<u8>> {
        let until = Instant::now() + wait;
        loop {
            let before = self.token.clone();
            let mut out = self.changes().await?;
            let moved = self.token != before;
            if !out.is_empty() || (!moved && Instant::now() >= until) {
                self.reached(&mut out);
                return Ok(out);
            }
            if !moved {
                let left = until.saturating_duration_since(Instant::now());
                self.wait(left).await;
            }
        }
    }

    /// Waits for a change, for the end, or for a time.
    async fn wait(&mut self, most: Duration) {
        let change = self.node.moved(&self.filter, &self.token);
        tokio::select! {
            _ = timeout(most, change) => {}
            () = self.holds.next() => self.is_held = true,
            () = self.node.stop.stopped() => {}
        }
    }

    fn stream(self, first: Vec<u8>) -> impl stream::Stream<Item = Result<Bytes>> {
        stream::unfold((self, Some(first)), async |(mut follower, first)| {
            let next = match first {
                Some(first) if !first.is_empty() => Ok(Some(first)),
                _ => follower.next().await,
            };
            next.transpose().map(|frames| (frames.map(Bytes::from), (follower, None)))
        })
    }

    /// What is sent next; nothing when it is over.
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(frames) = self.next_of_version().await? {
                return Ok(Some(frames));
            }
            self.is_held |= self.holds.has_changed();
            if self.gone || self.is_held || self.node.stop.is_stopped() {
                return Ok(None);
            }
            let before = self.token.clone();
            let mut out = self.changes().await?;
            if self.told.elapsed() >= SIGN_OF_LIFE {
                self.reached(&mut out);
            }
            if !out.is_empty() {
                return Ok(Some(out));
            }
            if self.token == before && self.wanted.is_none() {
                self.wait(SIGN_OF_LIFE.saturating_sub(self.told.elapsed())).await;
            }
        }
    }

    /// The next part of a version that the reader needs.
    async fn next_of_version(&mut self) -> Result<Option<Vec<u8>>> {
        let engine = &self.node.engine;
        if let Some(wanted) = self.wanted.take() {
            let version = self.node.releases.publish(&self.node, &self.filter, wanted.as_ref()).await?;
            let had = self.chunks.take().unwrap_or_default();
            let needed: HashSet<ChunkId> = version.chunks().collect();
            self.sending = Some((version, needed.difference(&had).copied().collect()));
            self.chunks = Some(needed);
        }
        let Some((version, chunks)) = &mut self.sending else { return Ok(None) };
        let mut out = Vec::new();
        if let Some(id) = chunks.pop() {
            let chunk = engine.chunk(self.filter.id(), id).await?;
            let chunk = chunk.ok_or_else(|| Error::Retry(format!("the chunk {id} has gone meanwhile")))?;
            Frame::Chunk(chunk).encode(&mut out);
        } else {
            Frame::Version(version.encode()?.into()).encode(&mut out);
            self.token = version.token();
            (self.sending, self.shape) = (None, None);
        }
        Ok(Some(out))
    }
}
