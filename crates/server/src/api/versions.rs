//! Versions of a filter: listed, made, fetched, pinned.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use umbel_core::engine::{Current, Handle, Pin, Token};
use umbel_core::version::Version;
use umbel_filter::format::native;

use super::caller::Caller;
use super::download::Download;
use super::fault::{Fault, Reply};
use super::filters::escaped;
use crate::commands::table::Id;
use crate::names::name_of;
use crate::node::Node;
use crate::releases::{self, Wanted};
use crate::sync::{Event, Notice, tell_all};
use crate::work::beside;

const CONTENT_TYPE: &str = "application/vnd.umbel.version";
const VERSION: HeaderName = HeaderName::from_static("umbel-version");
const DIGEST: HeaderName = HeaderName::from_static("umbel-digest");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Age {
    max_age_ms: Option<u64>,
    at_least: Option<String>,
}

/// A version to pin. That it is null has to be said; that nothing is expected has not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pinned {
    #[serde(deserialize_with = "number_or_null")]
    version: Option<u64>,
    #[serde(default, deserialize_with = "said")]
    expected: Option<Option<u64>>,
}

fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Option::deserialize(from)
}

fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A filter that has versions, if the user may do that to it.
pub(super) async fn versioned(caller: &Caller, id: Id, name: &str) -> Result<Arc<Handle>, Fault> {
    let filter = caller.filter(id, name).await?;
    if filter.definition().window.is_some() {
        return Err(Fault::invalid(format!(
            "the filter {} is a window: it forgets by itself, and there are no versions of it",
            name.escape_debug()
        )));
    }
    Ok(filter)
}

/// Does something with a filter beside the threads for requests. That the filter is gone meanwhile is said before anything else.
pub(super) async fn with<T, F>(
    caller: &Caller,
    name: &str,
    filter: &Arc<Handle>,
    work: impl FnOnce(Arc<Node>, Arc<Handle>) -> F,
) -> Result<T, Fault>
where
    T: Send + 'static,
    F: Future<Output = umbel_core::Result<T>> + Send + 'static,
{
    let used = Arc::clone(filter);
    // The error is an answer here, so that its kind is not lost on the way.
    let outcome = beside(&caller.node, |node| {
        let work = work(node, used);
        async move { Ok(work.await) }
    });
    outcome.await?.map_err(|error| match caller.node.engine.filter(&name_of(name.as_bytes())) {
        Some(there) if there.id() == filter.id() => error.into(),
        _ => Fault::no_filter(name),
    })
}

fn no_version(message: impl Into<String>) -> Fault {
    Fault::of(StatusCode::NOT_FOUND, "no_version", message)
}

/// A version that has a number.
pub(super) async fn numbered(caller: &Caller, filter: &Handle, number: u64) -> Result<Version, Fault> {
    let found = releases::version(&caller.node, filter.id(), number).await?;
    found.ok_or_else(|| no_version(format!("there is no version {number}")))
}

/// `GET /v1/filters/{name}/versions`
pub(super) async fn list(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = versioned(&caller, Id::UmbelExport, &name).await?;
    let Current { version: pinned, strong, .. } = caller.node.releases.current(filter.id()).await?;
    let numbers = caller.node.engine.versions(filter.id()).await?;
    let current = pinned.or(numbers.last().copied());
    let mut versions = Vec::with_capacity(numbers.len());
    for number in numbers {
        // One that was removed meanwhile is not there.
        if let Some(version) = releases::version(&caller.node, filter.id(), number).await? {
            versions.push(shown(&caller.node, &version, current)?);
        }
    }
    let pinned = pinned.is_some();
    Ok(Json(json!({ "versions": versions, "current": current, "pinned": pinned, "strong": strong })))
}

/// `POST /v1/filters/{name}/versions`
pub(super) async fn publish(
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Reply<impl IntoResponse> {
    let filter = versioned(&caller, Id::UmbelResize, &name).await?;
    let body = super::body(request).await?;
    if !body.trim_ascii().is_empty() {
        let Nothing {} = super::object(&body)?;
    }
    let publish = |node: Arc<Node>, filter| async move { node.releases.make(&node, &filter, None).await };
    let published = with(&caller, &name, &filter, publish).await?;
    let number = published.version.number;
    let current = caller.node.releases.pinned(filter.id()).await?.unwrap_or(number);
    if published.is_new {
        let notice = Notice::of(&published.version, Event::Version, current == number);
        tell_all(&caller.node, notice);
    }
    let status = if published.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = format!("/v1/filters/{}/versions/{number}", escaped(&name));
    let shown = shown(&caller.node, &published.version, Some(current))?;
    Ok((status, [(header::LOCATION, location)], Json(shown)))
}

/// `GET /v1/filters/{name}/versions/{latest, current or a number}`
pub(super) async fn get(
    caller: Caller,
    Path((name, which)): Path<(String, String)>,
    age: Result<Query<Age>, QueryRejection>,
    request: HeaderMap,
) -> Reply<Response> {
    let Query(age) = age.map_err(|rejection| Fault::invalid(rejection.body_text()))?;
    let filter = versioned(&caller, Id::UmbelExport, &name).await?;
    let at_least: Option<Token> = age.at_least.map(|text| text.parse()).transpose()?;
    let wanted = Wanted { max_age_ms: age.max_age_ms, at_least };
    let pinned = match &which[..] {
        "current" => caller.node.releases.pinned(filter.id()).await?,
        "latest" => None,
        number => {
            if wanted.max_age_ms.is_some() || wanted.at_least.is_some() {
                return Err(Fault::invalid("a version that has a number does not become newer"));
            }
            Some(number_of(number)?)
        }
    };
    let version = match pinned {
        Some(number) => numbered(&caller, &filter, number).await?,
        None => {
            // To look takes little. To publish may take long, and goes on if the client does not wait.
            let newest = if wanted.is_anything() {
                caller.node.releases.newest(&caller.node, &filter, &wanted).await?
            } else {
                let newest = |node: Arc<Node>, filter| async move {
                    node.releases.newest(&node, &filter, &wanted).await
                };
                with(&caller, &name, &filter, newest).await?
            };
            newest.ok_or_else(|| no_version("nobody has made a version of this filter yet"))?
        }
    };
    let digest = version.digest().to_string();
    let never_changes = which != "latest" && which != "current";
    let mut download = Download::new(CONTENT_TYPE, &format!("{digest}-{}", version.number), never_changes);
    download.set(VERSION, &version.number.to_string());
    download.set(DIGEST, &digest);
    if download.is_known(&request) {
        return Ok(download.not_modified());
    }
    Ok(download.whole(version.encode()?))
}

fn number_of(text: &str) -> Result<u64, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| Fault::invalid("a version is latest, current or a number"))
}

/// `PUT /v1/filters/{name}/current`
pub(super) async fn pin(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let filter = versioned(&caller, Id::UmbelResize, &name).await?;
    let Pinned { version, expected } = super::json(request).await?;
    match caller.node.releases.set(&caller.node, filter.id(), version, expected).await? {
        Pin::Done(current) => {
            let newest = caller.node.engine.versions(filter.id()).await?.last().copied();
            let serving = current.version.or(newest);
            if let Some(number) = serving {
                let version = numbered(&caller, &filter, number).await?;
                tell_all(&caller.node, Notice::of(&version, Event::Hold, true));
            }
            Ok(Json(json!({
                "current": serving,
                "pinned": current.version.is_some(),
                "previous": current.previous,
                // Strong replicas do not follow the pin: they switch together.
                "strong": current.strong,
            })))
        }
        Pin::Conflict(current) => Err(Fault::conflict(match current.version {
            Some(version) => format!("version {version} is pinned"),
            None => "no version is pinned: the newest one is current".to_owned(),
        })),
        Pin::NoVersion => {
            Err(no_version(format!("there is no version {} to pin", version.unwrap_or_default())))
        }
    }
}

fn shown(node: &Node, version: &Version, current: Option<u64>) -> Result<Value, Fault> {
    let damaged = |error: umbel_filter::Error| umbel_core::Error::Corrupt(format!("a version: {error}"));
    let mut bytes = 0;
    for layer in version.shards.iter().flat_map(|shard| &shard.layers) {
        let outline = native::Reader::open(&layer.outline[..], &node.engine.settings().limits);
        bytes += outline.map_err(damaged)?.parts().iter().map(|part| part.geometry.bytes()).sum::<u128>();
    }
    Ok(json!({
        "number": version.number,
        "made_ms": version.made_ms,
        "digest": version.digest().to_string(),
        "items": version.shards.iter().map(|shard| shard.items).sum::<u64>(),
        "bytes": u64::try_from(bytes).unwrap_or(u64::MAX),
        "current": current == Some(version.number),
    }))
}
