//! Chunks of versions, by their names.

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use umbel_core::version::ChunkId;

use super::caller::Caller;
use super::download::{Download, Plan};
use super::encoding::Coding;
use super::fault::{Fault, Reply};
use super::versions::versioned;
use crate::commands::table::Id;

/// `GET /v1/filters/{name}/chunks/{id}`
///
/// The name of a chunk is the digest of its content. Whoever knows it was given a version that has it, or has the content; so it is not
/// looked up which filter it belongs to.
pub(super) async fn get(
    caller: Caller,
    Path((name, id)): Path<(String, String)>,
    request: HeaderMap,
) -> Reply<Response> {
    let filter = versioned(&caller, Id::UmbelExport, &name).await?;
    let id: ChunkId = id.parse()?;
    let chunk = caller.node.engine.chunk(filter.id(), id).await?;
    // Its filter is still there, which whoever has a copy of it has to know.
    let none = || Fault::of(StatusCode::NOT_FOUND, "no_chunk", format!("there is no chunk {id}"));
    let chunk = chunk.ok_or_else(none)?;
    let length = chunk.len() as u64;
    let mut download = Download::new("application/octet-stream", &id.to_string(), true);
    let plan = download.plan(&request, length);
    if download.is_known(&request) {
        return Ok(download.not_modified());
    }
    Ok(match plan {
        Plan::Outside => Download::outside(length),
        Plan::Part(part) => {
            let bytes = chunk.slice(part.start as usize..part.end as usize);
            download.part(&part, length, bytes)
        }
        Plan::Whole(coding) => match coding.and_then(|coding| Some((coding, smaller(coding, &chunk)?))) {
            Some((coding, bytes)) => download.encoded(Some(coding), bytes),
            None => download.encoded(None, chunk),
        },
    })
}

/// The bytes compressed, if that is worth it.
fn smaller(coding: Coding, bytes: &Bytes) -> Option<Vec<u8>> {
    let mut encoded = Vec::new();
    coding.write(&mut encoded, |out| out.write_all(bytes)).ok()?;
    (encoded.len() < bytes.len()).then_some(encoded)
}
