//! Writing runs.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};
use umbel_filter::Fingerprint;

use super::footer::{self, Contents, Section};
use super::page::{self, HEAD_BYTES, PAGE_BYTES, Record, page_records, record_bytes};
use super::{Cover, Run, Tally};
use crate::limits::{RUN_PAGES_MAX, RUN_PART_BYTES, RUN_SECTIONS_MAX};
use crate::{Error, Result};

const _: () = assert!(RUN_PART_BYTES.is_multiple_of(PAGE_BYTES), "pages do not cross from part to part");

/// Writes a run from its first record to its last. Nobody sees the run before [`finish`](Self::finish).
///
/// It keeps one part of the upload in memory, and the index. A run that fits in one part is put at once.
/// Whoever gives up calls [`abort`](Self::abort): some stores keep the parts of an upload that was never
/// ended.
#[derive(Debug)]
pub struct RunWriter {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// Sections that are complete, and the index of all pages so far.
    contents: Contents,
    /// The section that is being written; its pages end with the one that is being filled.
    section: Option<Section>,
    /// The last record of that section.
    last: Option<u128>,
    /// Bytes that are not yet sent. Only the last page of them can be incomplete.
    part: Vec<u8>,
    /// Records in the page that is being filled; 0 if there is none.
    page_records: usize,
    /// Bytes that were sent.
    sent: u64,
    upload: Option<Box<dyn MultipartUpload>>,
    /// Set while a part is on its way: if it does not arrive, there is a hole, and the run can never be
    /// finished.
    broken: bool,
}

impl RunWriter {
    /// Begins a run. Nothing goes to the store yet.
    pub fn create(store: &Arc<dyn ObjectStore>, path: Path, cover: Cover) -> Result<Self> {
        if cover.low > cover.high {
            return Err(Error::Invalid(format!("{path}: a run from {} back to {}", cover.low, cover.high)));
        }
        Ok(Self {
            store: store.clone(),
            path,
            contents: Contents::new(cover),
            section: None,
            last: None,
            part: footer::header().to_vec(),
            page_records: 0,
            sent: 0,
            upload: None,
            broken: false,
        })
    }

    /// Begins the section of a filter, with counts or without. Filters come in ascending order. A section
    /// that stays empty is left out.
    pub fn begin(&mut self, filter: u64, counted: bool) -> Result<()> {
        let before = self.section.as_ref().or(self.contents.sections.last());
        if let Some(before) = before.filter(|before| before.filter >= filter) {
            return self.invalid(&format!("filter {filter} after filter {}", before.filter));
        }
        self.end_section();
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
        match self.end().await {
            Ok(bytes) => Ok(Run::new(self.store, self.path, bytes, self.contents)),
            Err(error) => {
                self.abort().await;
                Err(error)
            }
        }
    }

    /// Gives the run up and asks the store to forget what it has of it.
    pub async fn abort(mut self) {
        self.give_up().await;
    }

    /// What cannot be removed is left to the store's own rules: there is nobody who could do more about it.
    async fn give_up(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            let _ = upload.abort().await;
        }
    }

    /// Sends what is left and gives the bytes of the whole.
    async fn end(&mut self) -> Result<u64> {
        self.end_section();
        let footer = self.contents.encode();
        let mut rest = &footer[..];
        while !rest.is_empty() {
            self.send_full_part().await?;
            let (now, later) = rest.split_at(rest.len().min(RUN_PART_BYTES - self.part.len()));
            self.part.extend(now);
            rest = later;
        }
        let bytes = self.sent + self.part.len() as u64;
        let part = std::mem::take(&mut self.part);
        let put = match &mut self.upload {
            None => self.store.put(&self.path, part.into()).await,
            Some(upload) => match upload.put_part(part.into()).await {
                Ok(()) => upload.complete().await,
                Err(error) => Err(error),
            },
        };
        put.map_err(|error| Error::blob(format!("cannot write {}", self.path), &error))?;
        Ok(bytes)
    }

    async fn write<R: Record>(&mut self, records: &[R]) -> Result<()> {
        let counted = self.check(records)?;
        let (full, record_bytes) = (page_records(counted), record_bytes(counted));
        let mut rest = records;
        while let Some(first) = rest.first() {
            if self.page_records == 0 {
                self.send_full_part().await?;
                self.part.resize(self.part.len() + PAGE_BYTES, 0);
                self.contents.index.push(first.key().first);
            }
            let (now, later) = rest.split_at(rest.len().min(full - self.page_records));
            let page = self.part.len() - PAGE_BYTES;
            let place = page + HEAD_BYTES + self.page_records * record_bytes;
            R::encode(now, counted, &mut self.part[place..]);
            self.page_records += now.len();
            self.last = now.last().map(Record::order);
            if let Some(section) = &mut self.section {
                section.records += now.len() as u64;
                section.pages.end = self.contents.index.len() as u64 + 1;
            }
            if self.page_records == full {
                self.seal_page(counted);
            }
            rest = later;
        }
        Ok(())
    }

    /// Whether the section has counts, if all of the records may follow in it.
    fn check<R: Record>(&self, records: &[R]) -> Result<bool> {
        let Some(section) = &self.section else { return self.invalid("records before the first section") };
        if self.broken {
            return self.invalid("records after a failure");
        }
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

    fn end_section(&mut self) {
        let Some(section) = self.section.take() else { return };
        if self.page_records > 0 {
            self.seal_page(section.counted);
        }
        if section.records > 0 {
            self.contents.sections.push(section);
        }
        self.last = None;
    }

    fn seal_page(&mut self, counted: bool) {
        let start = self.part.len() - PAGE_BYTES;
        let number = self.contents.index.len() as u64;
        page::seal(&mut self.part[start..], self.contents.cover, number, counted, self.page_records);
        self.page_records = 0;
    }

    async fn send_full_part(&mut self) -> Result<()> {
        if self.broken {
            return self.invalid("records after a failure");
        }
        if self.part.len() < RUN_PART_BYTES {
            return Ok(());
        }
        self.broken = true;
        if let Err(error) = self.send_part().await {
            self.give_up().await;
            return Err(Error::blob(format!("cannot write {} at byte {}", self.path, self.sent), &error));
        }
        self.broken = false;
        Ok(())
    }

    async fn send_part(&mut self) -> object_store::Result<()> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => self.upload.insert(self.store.put_multipart(&self.path).await?),
        };
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(RUN_PART_BYTES));
        let bytes = part.len() as u64;
        upload.put_part(part.into()).await?;
        self.sent += bytes;
        Ok(())
    }

    fn invalid<T>(&self, why: &str) -> Result<T> {
        Err(Error::Invalid(format!("{} cannot be written: {why}", self.path)))
    }
}
