//! What a filter would take, before anybody makes it: the arithmetic of `umbel plan`.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde::Deserialize;
use serde_json::json;
use umbel_core::ring::members_needed;
use umbel_filter::{Geometry, Layout, Plan, Spec};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::making::{kind, layout};

const SHARDS: u32 = 256;
const COPIES_MAX: u32 = 16;
const NODE_MEMORY: u64 = 64 << 30;
const NODE_SHARE: f64 = 0.8;
/// Points of the plot of errors against how full it is, which ends beyond what it is made for.
const POINTS: u32 = 40;
const FULLEST: f64 = 1.6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    capacity: u64,
    error: f64,
    kind: Option<String>,
    layout: Option<String>,
    shards: Option<u32>,
    copies: Option<u32>,
    node_memory_bytes: Option<u64>,
    node_share: Option<f64>,
}

/// `GET /v1/plan`
pub(super) async fn plan(_caller: Caller, wanted: Result<Query<Wanted>, QueryRejection>) -> Reply {
    let Query(wanted) = wanted.map_err(|error| Fault::invalid(error.body_text()))?;
    let name = wanted.layout.as_deref().unwrap_or("blocked");
    let layout = match layout(name, 1) {
        // Its first link, as large as all of it.
        Some(Layout::RedisBloom { .. }) => Layout::RedisBloom { expansion: None },
        Some(layout) => layout,
        None => return Err(Fault::invalid(format!("layout {name}"))),
    };
    let name = wanted.kind.as_deref().unwrap_or("bloom");
    let kind = kind(name).ok_or_else(|| Fault::invalid(format!("kind {name}")))?;
    let spec = Spec::hosted(layout, wanted.capacity, wanted.error).kind(kind);
    let (copies, share) = (wanted.copies.unwrap_or(1), wanted.node_share.unwrap_or(NODE_SHARE));
    let is_possible = (1..=COPIES_MAX).contains(&copies) && share > 0.0 && share <= 1.0;
    if !is_possible {
        return Err(Fault::invalid(format!(
            "copies are 1 to {COPIES_MAX}, and node_share is over 0 and up to 1"
        )));
    }
    let shards = wanted.shards.unwrap_or(SHARDS);
    let plan = Plan::new(&spec, shards).map_err(|error| Fault::invalid(error.to_string()))?;
    let geometry = &plan.geometry;
    let memory = wanted.node_memory_bytes.unwrap_or(NODE_MEMORY);
    // Shards are not divided among machines.
    let shards_a_node = (memory as f64 * share) as u128 / geometry.bytes();
    let nodes = members_needed(shards.into(), copies.into(), shards_a_node);
    let lines = match *geometry {
        Geometry::Blocked { banks, .. } => Some(banks),
        Geometry::Classic { .. } => None,
    };
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let curve = (0..=POINTS).map(|point| {
        let filled = FULLEST * f64::from(point) / f64::from(POINTS);
        let error = geometry.error_with_shards(filled * wanted.capacity as f64, shards);
        json!({ "filled": filled, "error": error })
    });
    let curve: Vec<_> = curve.collect();
    Ok(Json(json!({
        "capacity": wanted.capacity,
        "error": wanted.error,
        "kind": spec.kind.to_string(),
        "layout": spec.layout.to_string(),
        "expected_error": plan.expected_error(),
        "bits": whole(geometry.bits().saturating_mul(shards.into())),
        "bits_per_key": plan.bits_per_key(),
        "classic_bits_per_key": plan.classic_bits_per_key(),
        "hashes": geometry.hashes(),
        "lines_per_key": lines,
        "bytes": whole(plan.bytes()),
        "shards": shards,
        "shard_bytes": whole(geometry.bytes()),
        "copies": copies,
        "node_memory_bytes": memory,
        "node_share": share,
        "nodes": nodes.map(whole),
        "curve": curve,
    })))
}
