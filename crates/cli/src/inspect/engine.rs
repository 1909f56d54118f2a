//! The files of an engine.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;
use serde_json::json;
use umbel_core::archive::{self, RunReport};
use umbel_core::blobs::FolderStore;
use umbel_core::disk::RealDisk;
use umbel_core::engine::{self, ArraysReport, BlobReport};
use umbel_core::log::{self, SegmentReport};
use umbel_core::registry::{self, Listing, Versioned};
use umbel_core::version::{self, Version};

use super::Outcome;
use crate::report::Report;
use crate::units::{bytes, grouped};

/// What a file of an engine holds.
pub(super) enum Content {
    Segment(SegmentReport),
    Registry(Listing),
    Blob(BlobReport),
    Arrays(ArraysReport),
    Run(RunReport),
    Version(Box<Version>),
}

/// Reads a file that begins like this, if it is one of an engine.
pub(super) fn open(path: &Path, start: [u8; 8]) -> Outcome<Option<Content>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Some(match start {
        log::SEGMENT_MAGIC => Content::Segment(log::inspect(&RealDisk, path)?),
        registry::FILE_MAGIC => Content::Registry(registry::inspect(&RealDisk, path)?),
        engine::MANIFEST_MAGIC
        | engine::TRIMMED_MAGIC
        | engine::DEPLOYMENT_MAGIC
        | engine::DEPLOYMENT_ID_MAGIC => Content::Blob(engine::inspect(&std::fs::read(path)?, &name)?),
        engine::ARRAYS_MAGIC => {
            let input = BufReader::with_capacity(1 << 20, File::open(path)?);
            Content::Arrays(engine::inspect_arrays(input, &name)?)
        }
        engine::PLACED_MAGIC => {
            Content::Version(Box::new(engine::placed_version(&std::fs::read(path)?, &name)?))
        }
        version::MAGIC => Content::Version(Box::new(Version::decode(&std::fs::read(path)?, &name)?)),
        archive::MAGIC => {
            let folder = path.parent().unwrap_or(Path::new("."));
            let store: Arc<dyn ObjectStore> = Arc::new(FolderStore::new(Arc::new(RealDisk), folder));
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            let inside = object_store::path::Path::from(&*name);
            Content::Run(runtime.block_on(archive::inspect(&store, inside))?)
        }
        _ => return Ok(None),
    }))
}

pub(super) fn describe(report: &mut Report, content: &Content) {
    match content {
        Content::Segment(segment) => segment_lines(report, segment),
        Content::Registry(listing) => registry_lines(report, listing),
        Content::Blob(blob) => blob_lines(report, blob),
        Content::Arrays(arrays) => arrays_lines(report, arrays),
        Content::Run(run) => run_lines(report, run),
        Content::Version(version) => version_lines(report, version),
    }
}

fn blob_lines(report: &mut Report, blob: &BlobReport) {
    match blob {
        BlobReport::Manifest { slot, number, position, runs, filters } => {
            report
                .line("format", format!("manifest of slot {slot}, checkpoint {number}, whole"))
                .line("position", position.to_string());
            for filter in filters {
                report.line(
                    "filter",
                    format!(
                        "{:016x} {}: generation {}, {} keys, {} of blocks",
                        filter.id,
                        filter.definition.name,
                        filter.definition.generation,
                        grouped(filter.items.into()),
                        bytes(filter.bytes.into())
                    ),
                );
            }
            runs.iter().for_each(|run| _ = report.line("run", run.as_str()));
            let filter = |filter: &engine::StoredReport| {
                json!({
                    "id": format!("{:016x}", filter.id),
                    "name": filter.definition.name,
                    "generation": filter.definition.generation,
                    "items": filter.items,
                    "bytes": filter.bytes,
                })
            };
            report
                .field("format", "manifest")
                .field("slot", *slot)
                .field("checkpoint", *number)
                .field("position", position.to_string())
                .field("runs", runs.clone())
                .field("filters", filters.iter().map(filter).collect::<Vec<_>>());
        }
        BlobReport::Trimmed { partition, upto, slots } => {
            report
                .line("format", format!("record of trimming partition {partition}, whole"))
                .line("up to", upto.to_string())
                .line("slots", grouped(slots.len() as u128));
            report.field("format", "trimmed").field("partition", *partition).field("upto", upto.to_string());
        }
        BlobReport::Deployment { slots, partitions } => {
            report.line("format", "deployment, whole").line("slots", grouped((*slots).into()));
            report.line("partitions", grouped((*partitions).into()));
            report.field("format", "deployment").field("slots", *slots).field("partitions", *partitions);
        }
        BlobReport::DeploymentId(id) => {
            report.line("format", "id of a deployment, whole").line("id", id.to_string());
            report.field("format", "deployment id").field("id", id.to_string());
        }
        _ => _ = report.line("format", "a blob of a newer kind, whole"),
    }
}

fn arrays_lines(report: &mut Report, arrays: &ArraysReport) {
    let ArraysReport { slot, checkpoint, blocks, .. } = arrays;
    report
        .line("format", format!("arrays of slot {slot}, checkpoint {checkpoint}, whole"))
        .line("bytes", bytes(arrays.bytes.into()));
    for (filter, blocks) in blocks {
        report.line("filter", format!("{filter:016x}: {} blocks", grouped((*blocks).into())));
    }
    report
        .field("format", "arrays")
        .field("slot", *slot)
        .field("checkpoint", *checkpoint)
        .field("blocks", blocks.values().sum::<u64>())
        .field("bytes", arrays.bytes);
}

fn run_lines(report: &mut Report, run: &RunReport) {
    let cover = run.cover;
    let checkpoints = format!("checkpoints {} to {}", cover.low, cover.high);
    report
        .line("format", format!("archive run of slot {}, {checkpoints}, whole", cover.slot))
        .line("bytes", format!("{}, {} of index", bytes(run.bytes.into()), bytes(run.index_bytes as u128)));
    for section in &run.sections {
        let counted = if section.counted { ", with counts" } else { "" };
        let (records, pages) = (grouped(section.records.into()), grouped(section.pages.into()));
        report.line(
            "filter",
            format!("{:016x}: {records} fingerprints in {pages} pages{counted}", section.filter),
        );
    }
    report
        .field("format", "archive run")
        .field("slot", cover.slot)
        .field("low", cover.low)
        .field("high", cover.high)
        .field("bytes", run.bytes)
        .field("fingerprints", run.sections.iter().map(|section| section.records).sum::<u64>());
}

fn version_lines(report: &mut Report, version: &Version) {
    let chunks = version.chunks().count();
    let items: u64 = version.shards.iter().map(|shard| shard.items).sum();
    report
        .line(
            "format",
            format!(
                "version {} of {:016x} {}, whole",
                version.number, version.filter, version.definition.name
            ),
        )
        .line("digest", version.digest().to_string())
        .line("shards", grouped(version.shards.len() as u128))
        .line("keys", grouped(items.into()))
        .line("chunks", format!("{} that are not zeros", grouped(chunks as u128)));
    report
        .field("format", "version")
        .field("filter", format!("{:016x}", version.filter))
        .field("name", version.definition.name.as_str())
        .field("version", version.number)
        .field("digest", version.digest().to_string())
        .field("shards", version.shards.len())
        .field("items", items)
        .field("chunks", chunks);
}

fn segment_lines(report: &mut Report, segment: &SegmentReport) {
    let state = match &segment.damage {
        Some(damage) => damage.clone(),
        None if segment.closed => "whole, and closed in good order".to_owned(),
        None if segment.finished => "whole, and finished".to_owned(),
        None => "whole as far as it is written".to_owned(),
    };
    report
        .line("format", format!("log segment of partition {}", segment.partition))
        .line("state", &*state)
        .line("offsets", format!("{:x} to {:x}, synced to {:x}", segment.start, segment.end, segment.synced))
        .line("reserved", bytes(segment.reserved.into()))
        .line(
            "entries",
            format!(
                "{}: {} keys added, {} removed",
                grouped(segment.entries.into()),
                grouped(segment.added.into()),
                grouped(segment.removed.into())
            ),
        );
    report
        .field("format", "log segment")
        .field("partition", segment.partition)
        .field("state", state)
        .field("damaged", segment.damage.is_some())
        .field("start", segment.start)
        .field("end", segment.end)
        .field("synced", segment.synced)
        .field("reserved", segment.reserved)
        .field("entries", segment.entries)
        .field("unreadable", segment.unreadable)
        .field("added", segment.added)
        .field("removed", segment.removed);
}

fn registry_lines(report: &mut Report, listing: &Listing) {
    report.line("format", "registry, whole").line("revision", grouped(listing.revision.into()));
    for (name, held) in &listing.entries {
        report.line("name", format!("{name}: {} bytes, version {}", held.value.len(), held.version));
    }
    let name = |(name, held): &(String, Versioned)| serde_json::json!({"name": name, "bytes": held.value.len(), "version": held.version});
    let names: Vec<_> = listing.entries.iter().map(name).collect();
    report.field("format", "registry").field("revision", listing.revision).field("names", names);
}
