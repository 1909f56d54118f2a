//! Reading a filter's fingerprints from the first to the last.

use umbel_filter::Fingerprint;

use super::footer::Section;
use super::page::{PAGE_BYTES, Record, page_for};
use super::{Run, Tally};
use crate::{Error, Result};

/// Pages that are read at a time, 1 MiB: enough that a request to a store is worth it.
const PAGES_AT_A_TIME: u64 = 256;

/// The fingerprints of one filter in one run, in order, chunk by chunk.
///
/// After an error the same chunk is tried again.
#[derive(Debug)]
pub struct Scan {
    cursor: Cursor,
    tallies: Vec<Tally>,
    keys: Vec<Fingerprint>,
}

impl Scan {
    pub(super) fn new(cursor: Cursor) -> Self {
        Self { cursor, tallies: Vec::new(), keys: Vec::new() }
    }

    /// The next fingerprints with their nets, or nothing at the end.
    pub async fn next(&mut self) -> Result<Option<&[Tally]>> {
        Ok(self.cursor.fill(&mut self.tallies).await?.then_some(&self.tallies[..]))
    }

    /// The next fingerprints of a section without counts, or nothing at the end.
    pub async fn next_keys(&mut self) -> Result<Option<&[Fingerprint]>> {
        if self.cursor.counted() {
            let path = self.cursor.run.path();
            return Err(Error::Invalid(format!(
                "{path}: the section has counts, which bare keys would lose"
            )));
        }
        Ok(self.cursor.fill(&mut self.keys).await?.then_some(&self.keys[..]))
    }
}

/// A place in a section.
#[derive(Debug)]
pub(super) struct Cursor {
    run: Run,
    section: Option<Section>,
    /// The next page, counted from the first of the section.
    page: usize,
    /// The last record before it.
    last: Option<u128>,
}

impl Cursor {
    pub(super) fn new(run: &Run, filter: u64) -> Self {
        Self { run: run.clone(), section: run.contents().section(filter).cloned(), page: 0, last: None }
    }

    /// The same, without the pages whose records all come before a key, or with it.
    pub(super) fn after(run: &Run, filter: u64, key: Fingerprint) -> Self {
        let cursor = Self::new(run, filter);
        let section = cursor.section.as_ref();
        let page = section.map_or(0, |section| page_for(run.contents().index_of(section), key).start);
        Self { page, ..cursor }
    }

    pub(super) fn counted(&self) -> bool {
        self.section.as_ref().is_some_and(|section| section.counted)
    }

    /// Puts the next records in place of those in `out`; false at the end, when there are none.
    pub(super) async fn fill<R: Record>(&mut self, out: &mut Vec<R>) -> Result<bool> {
        out.clear();
        let Some(section) = &self.section else { return Ok(false) };
        let start = section.pages.start + self.page as u64;
        let end = section.pages.end.min(start + PAGES_AT_A_TIME);
        if start == end {
            return Ok(false);
        }
        let chunk = self.run.read_pages(start..end).await?;
        let (pages, _) = chunk.as_chunks::<PAGE_BYTES>();
        let mut last = self.last;
        for (number, page) in (start..end).zip(pages) {
            let corrupt = |why| self.run.corrupt((number * PAGE_BYTES as u64, why));
            let records = self.run.open_page(page, section, (number - section.pages.start) as usize)?;
            let first = out.len();
            R::decode(records, section.counted, out).map_err(corrupt)?;
            let records = &out[first..];
            let follows = records.first().is_some_and(|first| last.is_none_or(|last| last < first.order()));
            if !follows || !records.is_sorted_by(|a, b| a.order() < b.order()) {
                return Err(corrupt("records out of order"));
            }
            last = records.last().map(Record::order);
        }
        self.page += pages.len();
        self.last = last;
        Ok(true)
    }
}
