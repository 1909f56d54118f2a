//! The two ends of a run: its header, and the footer that lists sections and index. Nothing here reads or
//! writes blobs. `docs/formats.md` draws them.

use std::ops::Range;

use super::Cover;
use super::page::{PAGE_BYTES, page_records, record_bytes};
use crate::limits::{RUN_PAGES_MAX, RUN_SECTIONS_MAX};

/// The first bytes of a run, and its last.
pub const MAGIC: [u8; 8] = *b"\x89UMBRUN\n";
pub(crate) const VERSION: u16 = 1;
const FIXED_BYTES: usize = 32;
const SECTION_BYTES: usize = 32;
const INDEX_BYTES: usize = 8;
/// Bytes behind the index: the footer's length, its checksum, and the magic.
pub(super) const TAIL_BYTES: usize = 16;

/// Why bytes are no run, and at which byte of the run it shows.
pub(super) type NoRun = (u64, &'static str);

/// The fingerprints of one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) filter: u64,
    pub(super) counted: bool,
    pub(super) records: u64,
    /// Its pages, by their numbers in the run.
    pub(super) pages: Range<u64>,
}

impl Section {
    /// Records in one of its pages, counted from its first.
    pub(super) fn records_of(&self, page: usize) -> usize {
        let full = page_records(self.counted);
        let before = page as u64 * full as u64;
        self.records.saturating_sub(before).min(full as u64) as usize
    }
}

/// What the footer tells, less what follows from it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) cover: Cover,
    /// Ascending by filter; their pages follow each other from page 1 on, and none is empty.
    pub(super) sections: Vec<Section>,
    /// For each page from page 1 on, the first word of its first record.
    pub(super) index: Vec<u64>,
}

impl Contents {
    pub(super) fn new(cover: Cover) -> Self {
        Self { cover, sections: Vec::new(), index: Vec::new() }
    }

    /// The section of a filter.
    pub(super) fn section(&self, filter: u64) -> Option<&Section> {
        let at = self.sections.binary_search_by_key(&filter, |section| section.filter).ok()?;
        self.sections.get(at)
    }

    /// The part of the index that belongs to a section.
    pub(super) fn index_of(&self, section: &Section) -> &[u64] {
        &self.index[section.pages.start as usize - 1..section.pages.end as usize - 1]
    }

    /// Where the footer begins.
    pub(super) fn footer_start(&self) -> u64 {
        (self.index.len() as u64 + 1) * PAGE_BYTES as u64
    }

    /// Everything behind the last page.
    pub(super) fn encode(&self) -> Vec<u8> {
        let length = footer_bytes(self.sections.len() as u64, self.index.len() as u64);
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.cover.slot.to_le_bytes());
        bytes.extend((self.sections.len() as u32).to_le_bytes());
        bytes.extend(self.cover.low.to_le_bytes());
        bytes.extend(self.cover.high.to_le_bytes());
        debug_assert_eq!(bytes.len(), FIXED_BYTES);
        for section in &self.sections {
            bytes.extend(section.filter.to_le_bytes());
            bytes.extend(section.records.to_le_bytes());
            bytes.extend(section.pages.start.to_le_bytes());
            bytes.extend(((section.pages.end - section.pages.start) as u32).to_le_bytes());
            bytes.extend([record_bytes(section.counted) as u8, 0, 0, 0]);
        }
        for first in &self.index {
            bytes.extend(first.to_le_bytes());
        }
        bytes.extend((length as u32).to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.extend(MAGIC);
        debug_assert_eq!(bytes.len() as u64, length);
        bytes
    }

    /// Reads what [`encode`](Self::encode) gave; `start` is where it begins in the run.
    ///
    /// Memory is taken only for what the bytes themselves can hold.
    pub(super) fn decode(bytes: &[u8], start: u64) -> Result<Self, NoRun> {
        let at = |place: usize| start + place as u64;
        if bytes.len() < FIXED_BYTES + TAIL_BYTES {
            return Err((start, "a footer that is shorter than any"));
        }
        let index_end = bytes.len() - TAIL_BYTES;
        let (content, sum) = bytes[..bytes.len() - MAGIC.len()].split_at(index_end + 4);
        if crc32c::crc32c(content).to_le_bytes() != sum {
            return Err((start, "a footer whose checksum does not match"));
        }
        if content[..8] != MAGIC || content[8..10] != VERSION.to_le_bytes() {
            return Err((start, "a footer that does not begin as one of this version does"));
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| content[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| content[at + i]));
        let cover =
            Cover { slot: u16::from_le_bytes([content[10], content[11]]), low: long(16), high: long(24) };
        if cover.low > cover.high {
            return Err((at(16), "a footer that covers less than nothing"));
        }
        let pages = (start / PAGE_BYTES as u64).saturating_sub(1);
        let count = u64::from(word(12));
        if !start.is_multiple_of(PAGE_BYTES as u64)
            || pages > RUN_PAGES_MAX
            || count > pages.min(RUN_SECTIONS_MAX as u64)
            || footer_bytes(count, pages) != bytes.len() as u64
        {
            return Err((at(12), "a footer whose length does not fit its sections and pages"));
        }
        let index_start = FIXED_BYTES + count as usize * SECTION_BYTES;
        let index = content[index_start..index_end].as_chunks().0;
        let mut contents = Self {
            cover,
            sections: Vec::with_capacity(count as usize),
            index: index.iter().map(|first| u64::from_le_bytes(*first)).collect(),
        };
        let mut next_page = 1;
        for place in (FIXED_BYTES..index_start).step_by(SECTION_BYTES) {
            let counted = match content[place + 28..place + 32] {
                [20, 0, 0, 0] => true,
                [16, 0, 0, 0] => false,
                _ => return Err((at(place + 28), "a section with records of an unknown kind")),
            };
            let (records, first_page) = (long(place + 8), long(place + 16));
            let pages = u64::from(word(place + 24));
            let filter = long(place);
            if contents.sections.last().is_some_and(|last| last.filter >= filter) {
                return Err((at(place), "a section out of order"));
            }
            if first_page != next_page || pages == 0 || pages > contents.index.len() as u64 + 1 - first_page {
                return Err((at(place + 16), "a section whose pages do not follow those before it"));
            }
            if records.div_ceil(page_records(counted) as u64) != pages {
                return Err((at(place + 8), "a section whose records do not fill its pages"));
            }
            next_page += pages;
            let section = Section { filter, counted, records, pages: first_page..next_page };
            if !contents.index_of(&section).is_sorted() {
                return Err((at(index_start), "an index that is not in order"));
            }
            contents.sections.push(section);
        }
        if next_page != contents.index.len() as u64 + 1 {
            return Err((at(12), "pages that belong to no section"));
        }
        Ok(contents)
    }
}

fn footer_bytes(sections: u64, pages: u64) -> u64 {
    FIXED_BYTES as u64 + sections * SECTION_BYTES as u64 + pages * INDEX_BYTES as u64 + TAIL_BYTES as u64
}

/// Bytes of the smallest run: it holds nothing.
pub(super) fn run_bytes_min() -> u64 {
    PAGE_BYTES as u64 + footer_bytes(0, 0)
}

/// Bytes of the largest run.
pub(super) fn run_bytes_max() -> u64 {
    (RUN_PAGES_MAX + 1) * PAGE_BYTES as u64 + footer_bytes(RUN_SECTIONS_MAX as u64, RUN_PAGES_MAX)
}

/// Where the footer of a run of `run_bytes` begins, as its last bytes say.
pub(super) fn find_footer(tail: &[u8], run_bytes: u64) -> Result<u64, NoRun> {
    let tail_start = run_bytes.saturating_sub(TAIL_BYTES as u64);
    let Some(tail) = tail.last_chunk::<TAIL_BYTES>().filter(|tail| tail[8..] == MAGIC) else {
        return Err((tail_start, "it does not end as a run does"));
    };
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    let start = run_bytes.saturating_sub(length);
    let pages = (start / PAGE_BYTES as u64).saturating_sub(1);
    // Every section has a page at least: a footer of more bytes is none, and is not read.
    if start < PAGE_BYTES as u64 || length < footer_bytes(0, pages) || length > footer_bytes(pages, pages) {
        return Err((tail_start, "a footer of an impossible length"));
    }
    Ok(start)
}

/// Page 0 of every run.
pub(super) fn header() -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page[..8].copy_from_slice(&MAGIC);
    page[8..10].copy_from_slice(&VERSION.to_le_bytes());
    let sum = crc32c::crc32c(&page[..PAGE_BYTES - 4]);
    page[PAGE_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    page
}

/// Checks page 0.
pub(super) fn check_header(page: &[u8]) -> Result<(), NoRun> {
    if !page.starts_with(&MAGIC) {
        return Err((0, "it does not begin as a run does"));
    }
    // Nothing in the header differs between runs of one version.
    if page[8..10] != VERSION.to_le_bytes() {
        return Err((8, "it has another version"));
    }
    if page != header() {
        return Err((0, "a header whose checksum or reserved bytes are wrong"));
    }
    Ok(())
}
