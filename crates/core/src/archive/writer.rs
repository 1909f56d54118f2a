//! Writing runs.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;
use umbel_filter::Fingerprint;

use super::footer::{self, Contents, Section};
use super::page::{self, HEAD_BYTES, PAGE_BYTES, Record, page_records, record_bytes};
use super::{Cover, Run, Tally};
use crate::limits::{RUN_PAGES_MAX, RUN_SECTIONS_MAX};
use crate::upload::Upload;
use crate::{Error, Result};

/// Writes a run from its first record to its last. Nobody sees the run before [`finish`](Self::finish).
///
/// It keeps a page and one part of the upload in memory, and the index. Whoever gives up calls [`abort`](Self::abort).
#[derive(Debug)]
pub struct RunWriter {
    store: Arc<dyn ObjectStore>,
    upload: Upload,
    /// Sections that are complete, and the index of all pages so far.
    contents: Contents,
    /// The section that is being written; its pages end with the one that is being filled.
    section: Option<Section>,
    /// The last record of that section.
    last: Option<u128>,
    /// The page that is being filled.
    page: Vec<u8>,
    /// Records in it.
    page_records: usize,
}

impl RunWriter {
    /// Begins a run. Nothing goes to the store yet.
    pub fn create(store: &Arc<dyn ObjectStore>, path: Path, cover: Cover) -> Result<Self> {
        if cover.low > cover.high {
            return Err(Error::Invalid(format!("{path}: a run from {} back to {}", cover.low, cover.high)));
        }
        Ok(Self {
            store: store.clone(),
            upload: Upload::new(store.clone(), path),
            contents: Contents::new(cover),
            section: None,
            last: None,
            page: vec![0; PAGE_BYTES],
            page_records: 0,
        })
    }

    /// Begins the section of a filter, with counts or without. Filters come in ascending order. A section
    /// that stays empty is left out.
    pub async fn begin(&mut self, filter: u64, counted: bool) -> Result<()> {
        let before = self.section.as_ref().or(self.contents.sections.last());
        if let Some(before) = before.filter(|before| before.filter >= filter) {
            return self.invalid(&format!("filter {filter} after filter {}", before.filter));
        }
        self.end_section().await?;
        if self.contents.sections.len() >= RUN_SECTIONS_MAX {
            return self.invalid(&format!("more than {RUN_SECTIONS_MAX} sections"));
        }
        let next_page = self.contents.index.len() as u64 + 1;
        self.section = Some(Section { filter, counted, records: 0, pages: next_page..next_page });
        Ok(())
    }

    /// Adds fingerprints with their nets, in ascending order and each once. If they are refused, nothing was
    /// added.
    pub async fn push(&mut self, tallies: &[Tally]) -> Result<()> {
        self.write(tallies).await
    }

    /// Adds fingerprints to a section without counts, as [`push`](Self::push) does.
    pub async fn push_keys(&mut self, keys: &[Fingerprint]) -> Result<()> {
        self.write(keys).await
    }

    /// Writes the footer and makes the run visible.
    pub async fn finish(mut self) -> Result<Run> {
        if let Err(error) = self.end().await {
            self.abort().await;
            return Err(error);
        }
        let path = self.upload.path().clone();
        let bytes = self.upload.finish().await?;
        Ok(Run::new(self.store, path, bytes, self.contents))
    }

    /// Gives the run up and asks the store to forget what it has of it.
    pub async fn abort(self) {
        self.upload.abort().await;
    }

    async fn end(&mut self) -> Result<()> {
        self.end_section().await?;
        self.write_header().await?;
        self.upload.write(&self.contents.encode()).await?;
        Ok(())
    }

    /// The header stands before the first page.
    async fn write_header(&mut self) -> Result<()> {
        if self.upload.is_empty() {
            self.upload.write(&footer::header()).await?;
        }
        Ok(())
    }

    async fn write<R: Record>(&mut self, records: &[R]) -> Result<()> {
        let counted = self.check(records)?;
        let (full, record_bytes) = (page_records(counted), record_bytes(counted));
        let mut rest = records;
        while let Some(first) = rest.first() {
            if self.page_records == 0 {
                self.contents.index.push(first.key().first);
            }
            let (now, later) = rest.split_at(rest.len().min(full - self.page_records));
            let place = HEAD_BYTES + self.page_records * record_bytes;
            R::encode(now, counted, &mut self.page[place..]);
            self.page_records += now.len();
            self.last = now.last().map(Record::order);
            if let Some(section) = &mut self.section {
                section.records += now.len() as u64;
                section.pages.end = self.contents.index.len() as u64 + 1;
            }
            if self.page_records == full {
                self.write_page(counted).await?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Whether the section has counts, if all of the records may follow in it.
    fn check<R: Record>(&self, records: &[R]) -> Result<bool> {
        let Some(section) = &self.section else { return self.invalid("records before the first section") };
        let counted = section.counted;
        if let Some(objection) = records.iter().find_map(|record| record.objection(counted)) {
            return self.invalid(objection);
        }
        let follows = records.first().is_none_or(|first| self.last.is_none_or(|last| last < first.order()));
        if !follows || !records.is_sorted_by(|a, b| a.order() < b.order()) {
            return self.invalid("records that do not ascend");
        }
        let records = section.records + records.len() as u64;
        if section.pages.start + records.div_ceil(page_records(counted) as u64) > RUN_PAGES_MAX + 1 {
            return self.invalid(&format!("more than {RUN_PAGES_MAX} pages"));
        }
        Ok(counted)
    }

    async fn end_section(&mut self) -> Result<()> {
        let Some(section) = self.section.take() else { return Ok(()) };
        if self.page_records > 0 {
            self.write_page(section.counted).await?;
        }
        if section.records > 0 {
            self.contents.sections.push(section);
        }
        self.last = None;
        Ok(())
    }

    async fn write_page(&mut self, counted: bool) -> Result<()> {
        let number = self.contents.index.len() as u64;
        page::seal(&mut self.page, self.contents.cover, number, counted, self.page_records);
        self.write_header().await?;
        self.upload.write(&self.page).await?;
        self.page.fill(0);
        self.page_records = 0;
        Ok(())
    }

    fn invalid<T>(&self, why: &str) -> Result<T> {
        Err(Error::Invalid(format!("{} cannot be written: {why}", self.upload.path())))
    }
}
