//! A whole filter as a file, for programs in other languages.
//!
//! The filter is there once, as an array. Its file is written twice from it, and held nowhere: once to know how long it is and what its
//! tag is, and once to the client, piece by piece, as fast as that one reads.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::sync::mpsc;
use umbel_core::budget::Reservation;
use umbel_core::engine::Handle;
use umbel_core::version::Version;
use umbel_core::{Error, Result};
use umbel_filter::Filter;
use umbel_filter::format::native;
use xxhash_rust::xxh3::Xxh3Default;

use super::caller::Caller;
use super::download::{Download, Plan};
use super::encoding::Coding;
use super::fault::{Fault, Reply};
use super::filters::escaped;
use super::versions::{numbered, versioned, with};
use crate::commands::table::Id;
use crate::files::Format;
use crate::node::Node;

/// Bytes that go to a connection at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for a connection.
const PIECES_MAX: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    format: Option<String>,
    version: Option<u64>,
}

/// A filter that is to be written.
struct Snapshot {
    filter: Filter,
    format: Format,
    /// It counts as long as somebody reads it.
    _memory: Reservation,
}

/// `GET /v1/filters/{name}/snapshot`
pub(super) async fn get(
    caller: Caller,
    Path(name): Path<String>,
    asked: std::result::Result<Query<Asked>, QueryRejection>,
    request: HeaderMap,
) -> Reply<Response> {
    let Query(asked) = asked.map_err(|rejection| Fault::invalid(rejection.body_text()))?;
    let filter = versioned(&caller, Id::UmbelExport, &name).await?;
    let format = asked.format.as_deref().unwrap_or("native");
    // Redisson keeps what belongs to a filter in several places, so there is no one file of it.
    let format = Format::named(format).filter(|format| *format != Format::Redisson);
    let format = format.ok_or_else(|| Fault::invalid("format is native, guava or redisbloom"))?;
    let (snapshot, length, mut download) = match asked.version {
        None => {
            let taken = move |node: Arc<Node>, filter| async move {
                let snapshot = Snapshot::of(&node, &filter, format).await?;
                let measured = snapshot.measured()?;
                Ok((snapshot, measured))
            };
            let (snapshot, measured) = with(&caller, &name, &filter, taken).await?;
            let tag = format!("{:032x}-{}", measured.digest, format.name());
            (snapshot, measured.length, download(&name, format, &tag, false))
        }
        Some(number) => {
            let version = numbered(&caller, &filter, number).await?;
            let tag = format!("{}-{}", version.digest(), format.name());
            let download = download(&name, format, &tag, true);
            if download.is_known(&request) {
                return Ok(download.not_modified());
            }
            let taken = move |node: Arc<Node>, _| async move {
                let snapshot = Snapshot::of_version(&node, &version, format).await?;
                let length = snapshot.measured()?.length;
                Ok((snapshot, length))
            };
            let (snapshot, length) = with(&caller, &name, &filter, taken).await?;
            (snapshot, length, download)
        }
    };
    let plan = download.plan(&request, length);
    if download.is_known(&request) {
        return Ok(download.not_modified());
    }
    Ok(match plan {
        Plan::Outside => Download::outside(length),
        Plan::Part(part) => {
            download.set(header::CONTENT_LENGTH, &(part.end - part.start).to_string());
            download.part(&part, length, snapshot.body(part.clone(), None))
        }
        Plan::Whole(coding) => {
            if coding.is_none() {
                download.set(header::CONTENT_LENGTH, &length.to_string());
            }
            download.encoded(coding, snapshot.body(0..length, coding))
        }
    })
}

fn download(name: &str, format: Format, tag: &str, never_changes: bool) -> Download {
    let mut download = Download::new("application/octet-stream", tag, never_changes);
    let plain = |byte: char| if byte.is_ascii_alphanumeric() || "-._".contains(byte) { byte } else { '_' };
    let simple: String = name.chars().map(plain).collect();
    let (full, kind) = (escaped(name), format.name());
    let file = format!("attachment; filename=\"{simple}.{kind}\"; filename*=UTF-8''{full}.{kind}");
    download.set(header::CONTENT_DISPOSITION, &file);
    download
}

/// What a file is, without it.
struct Measured {
    length: u64,
    digest: u128,
}

impl Snapshot {
    /// A filter as it is now.
    async fn of(node: &Node, filter: &Arc<Handle>, format: Format) -> Result<Self> {
        let definition = filter.definition();
        let filter = node.engine.project(filter, format.spec(definition.spec)).await?;
        let memory = node.engine.budget().reserve(filter.bytes(), &definition.name)?;
        Ok(Self { filter, format, _memory: memory })
    }

    /// A filter as it was, from the chunks of a version.
    async fn of_version(node: &Node, version: &Version, format: Format) -> Result<Self> {
        let (number, spec) = (version.number, &version.definition.spec);
        if !format.holds(spec.layout) {
            return Err(Error::Invalid(format!(
                "version {number} has the layout {}: there is no {} file of it, only of the filter as it is now",
                spec.layout,
                format.name()
            )));
        }
        let mut layers = version.shards.iter().flat_map(|shard| &shard.layers);
        let (Some(layer), None) = (layers.next(), layers.next()) else {
            let arrays = 2 + layers.count();
            return Err(Error::Invalid(format!(
                "version {number} has {arrays} arrays, and a file has one: take the version and its chunks, or a snapshot of the \
                 filter as it is now"
            )));
        };
        let settings = node.engine.settings();
        let damaged = |error: umbel_filter::Error| Error::Corrupt(format!("version {number}: {error}"));
        let outline = native::Reader::open(&layer.outline[..], &settings.limits).map_err(damaged)?;
        let bytes: u128 = outline.parts().iter().map(|part| part.geometry.bytes()).sum();
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let memory = node.engine.budget().reserve(bytes, &version.definition.name)?;
        let mut filter = layer.empty(settings.secret.as_ref(), &settings.limits)?;
        for (place, id) in layer.chunks.iter().enumerate() {
            let Some(id) = id else { continue };
            let chunk = node.engine.chunk(version.filter, *id).await?;
            let gone = || Error::Retry(format!("version {number} is being removed"));
            layer.fill(&mut filter, place, &chunk.ok_or_else(gone)?)?;
        }
        Ok(Self { filter, format, _memory: memory })
    }

    fn measured(&self) -> Result<Measured> {
        let mut measure = Measure { length: 0, digest: Xxh3Default::new() };
        // A filter that this format has no room for.
        self.format.write(&self.filter, &mut measure).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Measured { length: measure.length, digest: measure.digest.digest128() })
    }

    /// A part of the file, or all of it compressed. It is written by a thread of its own that waits for the client.
    fn body(self, part: Range<u64>, coding: Option<Coding>) -> Body {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        tokio::task::spawn_blocking(move || {
            let left = if coding.is_some() { u64::MAX } else { part.end - part.start };
            let mut out = Pieces { sender, piece: Vec::new(), skip: part.start, left };
            let written = match coding {
                None => self.write(&mut out),
                Some(coding) => coding.write(&mut out, |out| self.write(out)),
            };
            match written.and_then(|()| out.flush()) {
                Ok(()) => {}
                Err(_) if out.left == 0 => {}
                // The client is told by an answer that does not end well. It may also be the one that went away.
                Err(error) => _ = out.sender.blocking_send(Err(error)),
            }
        });
        let next = |mut pieces: mpsc::Receiver<io::Result<Bytes>>| async move {
            let piece = pieces.recv().await?;
            Some((piece, pieces))
        };
        Body::from_stream(unfold(pieces, next))
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.format.write(&self.filter, out).map_err(io::Error::other)
    }
}

/// Measures what is written and keeps nothing.
struct Measure {
    length: u64,
    digest: Xxh3Default,
}

impl Write for Measure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len() as u64;
        self.digest.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands what is written to a connection, less what nobody asked for.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
    skip: u64,
    left: u64,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = self.skip.min(bytes.len() as u64);
        self.skip -= skipped;
        let wanted = &bytes[skipped as usize..];
        let wanted = &wanted[..self.left.min(wanted.len() as u64) as usize];
        self.left -= wanted.len() as u64;
        self.piece.extend_from_slice(wanted);
        if self.piece.len() >= PIECE_BYTES || self.left == 0 {
            self.flush()?;
        }
        if self.left == 0 && (skipped as usize) + wanted.len() < bytes.len() {
            // Nobody wants what comes now.
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece).into();
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
