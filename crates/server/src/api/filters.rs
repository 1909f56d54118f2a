//! Filters: made, listed, described, changed, dropped.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, Request};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use umbel_core::engine::Handle;

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::commands::table::Id;
use crate::growth::{Pace, factor, fitting, seconds};
use crate::making::Making;
use crate::names::{name_of, shown};
use crate::work::beside;

/// Filters on a page of the list, if nobody says, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    name: String,
    capacity: u64,
    error: f64,
    kind: Option<String>,
    family: Option<String>,
    layout: Option<String>,
    /// How many times larger it becomes when it is full; 1 if it takes no more then.
    growth: Option<f64>,
    grow_at_percent: Option<u8>,
    retain: Option<bool>,
    shards: Option<String>,
    expire_seconds: Option<u64>,
    window: Option<String>,
    buckets: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    capacity: Option<u64>,
    /// Takes the room away that its keys do not need.
    #[serde(default)]
    fit: bool,
    error: Option<f64>,
    /// How many times larger it becomes when it is full; 1 if it takes no more then.
    growth: Option<f64>,
    /// How full it is when it begins to grow; 0 as all filters are.
    grow_at_percent: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sources {
    from: Vec<String>,
}

/// `GET /v1/filters`
pub(super) async fn list(caller: Caller, page: Result<Query<Page>, QueryFault>) -> Reply {
    let Query(page) = page.map_err(|rejection| Fault::invalid(rejection.body_text()))?;
    caller.may(Id::UmbelList, &[])?;
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Fault::invalid(format!("limit is 1 to {PAGE_MAX}")));
    }
    let filters = caller.node.engine.find_all().await?;
    let mut wanted = filters.iter().filter_map(|filter| {
        let name = name(filter);
        let is_wanted =
            name.starts_with(&page.prefix) && page.after.as_ref().is_none_or(|after| name > *after);
        (is_wanted && caller.sees(&name)).then_some((name, filter))
    });
    let found: Vec<_> = wanted.by_ref().take(limit).collect();
    let next = wanted.next().and(found.last()).map(|(name, _)| name.clone());
    let filters: Vec<_> = found.iter().map(|(_, filter)| Arc::clone(filter)).collect();
    let items = caller.node.items_of(&filters).await?;
    let described = filters.iter().zip(items).map(|(filter, items)| with_items(&caller, filter, items));
    let described: Vec<Value> = described.collect();
    Ok(Json(json!({ "filters": described, "next": next })))
}

type QueryFault = axum::extract::rejection::QueryRejection;

/// `POST /v1/filters`
pub(super) async fn create(caller: Caller, request: Request) -> Reply<impl IntoResponse> {
    let new: New = super::json(request).await?;
    caller.may(Id::UmbelCreate, &[&new.name])?;
    if new.name.is_empty() {
        return Err(Fault::invalid("a filter needs a name"));
    }
    let mut making = Making::new(new.capacity, new.error, caller.node.defaults());
    let options = [
        ("kind", new.kind),
        ("family", new.family),
        ("layout", new.layout),
        ("growat", new.grow_at_percent.map(|percent| percent.to_string())),
        ("retain", new.retain.map(|retain| retain.to_string())),
        ("shards", new.shards),
        ("expire", new.expire_seconds.map(|seconds| seconds.to_string())),
        ("window", new.window),
        ("buckets", new.buckets.map(|buckets| buckets.to_string())),
    ];
    for (option, value) in options {
        if let Some(value) = value {
            making.set(option, &value).map_err(Fault::invalid)?;
        }
    }
    match new.growth {
        Some(1.0) => making.is_fixed(),
        Some(growth) => making.set("expansion", &growth.to_string()).map_err(Fault::invalid)?,
        None => {}
    }
    let name = name_of(new.name.as_bytes());
    let made = making.finish(&name).map_err(Fault::invalid)?;
    match caller.node.engine.create(made).await {
        Ok(filter) => {
            let location = format!("/v1/filters/{}", escaped(&new.name));
            Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(description(&caller, &filter))))
        }
        // Where it is not known whether it was made, it may be its own that is there.
        Err(error @ umbel_core::Error::Invalid(_)) => match caller.node.filter_again(&name).await? {
            Some(_) => Err(Fault::conflict(format!("there is a filter {} already", new.name.escape_debug()))),
            None => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// A name as it stands in a path.
pub(super) fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let each = name.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}

/// `GET /v1/filters/{name}`
pub(super) async fn describe(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelStats, &name).await?;
    described(&caller, &filter).await
}

/// What a filter is.
pub(super) async fn described(caller: &Caller, filter: &Arc<Handle>) -> Reply {
    let items = caller.node.counts_of(filter).await?.items;
    Ok(Json(with_items(caller, filter, items)))
}

/// `GET /v1/filters/{name}/growth`
pub(super) async fn growth(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelGrowth, &name).await?;
    let items = caller.node.counts_of(&filter).await?.items;
    Ok(Json(caller.node.growths.tell(&caller.node, &filter, items).await?.json()))
}

/// `DELETE /v1/filters/{name}`
pub(super) async fn drop(caller: Caller, Path(name): Path<String>) -> Reply<StatusCode> {
    let filter = caller.filter(Id::Del, &name).await?;
    caller.node.engine.drop_filter(&filter).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/filters/{name}/resize`
pub(super) async fn resize(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let filter = caller.filter(Id::UmbelResize, &name).await?;
    let size: Size = super::json(request).await?;
    let spec = filter.definition().spec;
    if size.fit && size.capacity.is_some() {
        return Err(Fault::invalid("capacity and fit both name a size: give one of them"));
    }
    let items = caller.node.counts_of(&filter).await?.items;
    let same = if size.fit { fitting(&filter, items) } else { spec.capacity };
    let (capacity, error) = (size.capacity.unwrap_or(same), size.error.unwrap_or(spec.error));
    if items > capacity {
        return Err(Fault::conflict(format!(
            "the filter holds {items} items: a capacity of {capacity} is too small"
        )));
    }
    let mut pace = Pace::default();
    if let Some(growth) = size.growth {
        pace.set_factor(&growth.to_string()).map_err(Fault::invalid)?;
    }
    match size.grow_at_percent {
        Some(0) => pace.set_threshold("default").map_err(Fault::invalid)?,
        Some(percent) => pace.set_threshold(&percent.to_string()).map_err(Fault::invalid)?,
        None => {}
    }
    pace.apply(&caller.node, &filter).await?;
    let is_same = capacity == spec.capacity && size.error.is_none();
    if is_same && (size.fit || pace.is_some() && size.capacity.is_none()) {
        return described(&caller, &filter).await;
    }
    let resized = Arc::clone(&filter);
    beside(&caller.node, |node| async move { node.engine.resize(&resized, capacity, error).await }).await?;
    caller.node.growths.look(&caller.node).await;
    Ok(Json(description(&caller, &filter)))
}

/// `POST /v1/filters/{name}/merge`
pub(super) async fn merge(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let into = caller.filter(Id::UmbelMerge, &name).await?;
    let sources: Sources = super::json(request).await?;
    let mut from = Vec::with_capacity(sources.from.len());
    for name in &sources.from {
        caller.may(Id::UmbelStats, &[name])?;
        let found = caller.node.filter(&name_of(name.as_bytes())).await?;
        let missing = || Fault::invalid(format!("there is no filter {} to merge", name.escape_debug()));
        from.push(found.ok_or_else(missing)?);
    }
    let added = beside(&caller.node, |node| async move { node.engine.merge(&into, &from).await }).await?;
    Ok(Json(json!({ "added": added })))
}

/// `POST /v1/filters/{name}/clear`
pub(super) async fn clear(caller: Caller, Path(name): Path<String>) -> Reply {
    let filter = caller.filter(Id::UmbelClear, &name).await?;
    caller.node.engine.clear(&filter).await?;
    Ok(Json(description(&caller, &filter)))
}

fn name(filter: &Handle) -> String {
    shown(&filter.definition().name)
}

/// A description with the items of all nodes.
fn with_items(caller: &Caller, filter: &Handle, items: u64) -> Value {
    let mut described = description(caller, filter);
    described["items"] = items.into();
    described
}

fn description(caller: &Caller, filter: &Handle) -> Value {
    let (stats, definition) = (filter.stats(), filter.definition());
    let forecast = caller.node.growths.forecast(&caller.node, filter, filter.items_everywhere());
    json!({
        "name": name(filter),
        "kind": definition.spec.kind.to_string(),
        "layout": definition.spec.layout.to_string(),
        "family": definition.spec.family.to_string(),
        "capacity": definition.spec.capacity,
        "error": definition.spec.error,
        "growth": factor(definition.growth),
        "grow_at_percent": definition.grow_at.map_or(caller.node.engine.settings().grow_at_percent, u32::from),
        "retain": definition.retain,
        "expires_ms": definition.expires,
        "window_ms": definition.window.map(|window| window.length_ms),
        "buckets": definition.window.map(|window| window.buckets),
        "items": stats.items,
        "bytes": stats.bytes,
        "fill": stats.fill,
        "estimated_error": stats.estimated_error,
        "generation": stats.generation,
        "shards": stats.shards,
        "layers": stats.layers,
        "is_resident": stats.is_resident,
        "is_growing": stats.is_growing,
        "adds_per_second": caller.node.rates.adds_per_second(filter.id()),
        "items_per_second": forecast.map(|forecast| forecast.rate.median),
        "full_in_seconds": forecast.and_then(|forecast| seconds(forecast.full)),
    })
}
