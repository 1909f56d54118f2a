//! What a run holds, for people who look into it.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;

use super::{Cover, Run};
use crate::Result;

/// What was found in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport {
    /// The name of the blob.
    pub path: String,
    /// Its slot, and the checkpoints that it covers.
    pub cover: Cover,
    /// Bytes of the blob.
    pub bytes: u64,
    /// Memory that it takes while it is open.
    pub index_bytes: usize,
    /// Its sections, in the order of their filters.
    pub sections: Vec<SectionReport>,
}

/// What was found in a section of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SectionReport {
    /// The filter.
    pub filter: u64,
    /// Whether its fingerprints have counts.
    pub counted: bool,
    /// Fingerprints in it.
    pub records: u64,
    /// Pages that they take.
    pub pages: u64,
}

/// What the footer of a run says.
pub fn describe(run: &Run) -> RunReport {
    let sections = run.contents().sections.iter().map(|section| SectionReport {
        filter: section.filter,
        counted: section.counted,
        records: section.records,
        pages: section.pages.end - section.pages.start,
    });
    RunReport {
        path: run.path().to_string(),
        cover: run.cover(),
        bytes: run.bytes(),
        index_bytes: run.index_bytes(),
        sections: sections.collect(),
    }
}

/// Reads a run from beginning to end, and refuses it if anything in it is damaged.
pub async fn inspect(store: &Arc<dyn ObjectStore>, path: Path) -> Result<RunReport> {
    let run = Run::open(store, path).await?;
    run.verify().await?;
    Ok(describe(&run))
}
