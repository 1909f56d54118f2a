//! Why a filter answers as it does: where a key lies in it.

use axum::Json;
use axum::extract::{Path, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use umbel_core::engine::Answer;
use umbel_filter::{Geometry, Placement, Touched, TouchedLine};

use super::caller::Caller;
use super::fault::Reply;
use super::keys::Key;
use crate::commands::table::Id;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    key: Key,
}

/// `POST /v1/filters/{name}/explain`
pub(super) async fn explain(caller: Caller, Path(name): Path<String>, request: Request) -> Reply {
    let filter = caller.filter(Id::UmbelExists, &name).await?;
    let Asked { key } = super::json(request).await?;
    let key = filter.hasher().fingerprint(&key.bytes()?);
    let engine = &caller.node.engine;
    let answers = engine.contains(&filter, &[key], None).await?;
    let answer = answers.first().copied().unwrap_or(Answer::Unknown);
    let slot = filter.slot(key);
    let partitions = engine.partitions();
    let partition = u32::from(slot) % partitions.max(1);
    let hosts = caller.node.cluster.as_ref().map(|nodes| {
        let view = nodes.membership().view();
        view.hosts(partition).map(|node| node.name.clone()).collect::<Vec<_>>()
    });
    // A window has its keys in other filters, and another node's arrays are not here.
    let projection = filter.projection(slot).filter(|_| !filter.is_window());
    let arrays: Option<Vec<Value>> = projection.as_ref().map(|projection| {
        projection.filters().flat_map(|filter| filter.placements(key)).map(|array| shown(&array)).collect()
    });
    Ok(Json(json!({
        "answer": answer.word(),
        "fingerprint": format!("{:016x}{:016x}", key.first, key.second),
        "slot": slot,
        "slots": engine.settings().slots,
        "partition": partition,
        "partitions": partitions,
        "sharded": filter.slots().count() > 1,
        "hosts": hosts,
        "generation": projection.as_ref().map(|projection| projection.generation()),
        "arrays": arrays,
    })))
}

fn shown(array: &Placement) -> Value {
    let bytes = u64::try_from(array.geometry.bytes()).unwrap_or(u64::MAX);
    match (&array.touched, array.geometry) {
        (Touched::Lines(lines), Geometry::Blocked { cell_bits, banks, lines: each }) => json!({
            "layout": "blocked",
            "maybe": array.is_maybe(),
            "bytes": bytes,
            "cell_bits": cell_bits,
            "banks": banks,
            "lines": each,
            "touched": lines.iter().enumerate().map(|(bank, line)| of_line(bank as u64, each, line)).collect::<Vec<_>>(),
        }),
        (Touched::Bits(positions), Geometry::Classic { bits, hashes }) => json!({
            "layout": "classic",
            "maybe": array.is_maybe(),
            "bytes": bytes,
            "bits": bits,
            "hashes": hashes,
            "touched": positions.iter().map(|(position, is_set)| json!({ "position": position, "set": is_set })).collect::<Vec<_>>(),
        }),
        // Lines are of blocked arrays and bits of classic ones.
        _ => Value::Null,
    }
}

fn of_line(bank: u64, lines: u64, line: &TouchedLine) -> Value {
    json!({
        "bank": bank,
        "line": line.line - bank * lines,
        "words": line.words.map(|word| format!("{word:016x}")),
        "cells": line.cells,
    })
}
