//! Runs, opened.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::footer::{self, Contents, NoRun};
use super::page::{self, Expected, PAGE_BYTES};
use super::scan::Cursor;
use super::{Cover, Scan, Tally};
use crate::{Error, Result};

/// How much of a run's end is read before the size of its footer is known: small runs need no second read.
const FOOTER_GUESS_BYTES: u64 = 64 << 10;

/// An immutable blob with fingerprints of one slot. Clones share everything, and are cheap.
///
/// What it holds in memory is its footer: where each filter's pages are, and the first word of each page.
#[derive(Clone)]
pub struct Run {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn ObjectStore>,
    path: Path,
    bytes: u64,
    contents: Contents,
}

impl Run {
    pub(super) fn new(store: Arc<dyn ObjectStore>, path: Path, bytes: u64, contents: Contents) -> Self {
        Self { inner: Arc::new(Inner { store, path, bytes, contents }) }
    }

    /// Opens a run: reads its header and its footer, and no page.
    pub async fn open(store: &Arc<dyn ObjectStore>, path: Path) -> Result<Self> {
        let head = store.head(&path).await;
        let bytes = head.map_err(|error| Error::blob(format!("cannot open {path}"), &error))?.size;
        let no_run = |no_run| corrupt(&path, no_run);
        if bytes < footer::run_bytes_min() || bytes > footer::run_bytes_max() {
            return Err(no_run((bytes, "it is shorter or longer than any run")));
        }
        let guess = bytes - FOOTER_GUESS_BYTES.min(bytes - PAGE_BYTES as u64);
        let [header, end] = read(store, &path, [0..PAGE_BYTES as u64, guess..bytes]).await?;
        footer::check_header(&header).map_err(no_run)?;
        let start = footer::find_footer(&end, bytes).map_err(no_run)?;
        let contents = if start >= guess {
            Contents::decode(&end[(start - guess) as usize..], start)
        } else {
            let rest = start..bytes;
            let [footer] = read(store, &path, [rest]).await?;
            Contents::decode(&footer, start)
        };
        Ok(Self::new(store.clone(), path.clone(), bytes, contents.map_err(no_run)?))
    }

    /// The name of the blob.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// What it stands for.
    pub fn cover(&self) -> Cover {
        self.inner.contents.cover
    }

    /// The first checkpoint that it covers.
    pub fn low(&self) -> u64 {
        self.cover().low
    }

    /// The last checkpoint that it covers.
    pub fn high(&self) -> u64 {
        self.cover().high
    }

    /// The slot that it belongs to.
    pub fn slot(&self) -> u16 {
        self.cover().slot
    }

    /// Bytes of the blob.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Memory that the run takes while it is open.
    pub fn index_bytes(&self) -> usize {
        size_of_val(&self.inner.contents.index[..]) + size_of_val(&self.inner.contents.sections[..])
    }

    /// How many fingerprints of a filter it holds.
    pub fn records(&self, filter: u64) -> u64 {
        self.contents().section(filter).map_or(0, |section| section.records)
    }

    /// The filters that it holds something of, in order: their ids, whether there are counts, and how many
    /// fingerprints there are.
    pub fn filters(&self) -> impl Iterator<Item = (u64, bool, u64)> {
        let sections = self.contents().sections.iter();
        sections.map(|section| (section.filter, section.counted, section.records))
    }

    /// Reads all fingerprints of a filter in order.
    pub fn scan(&self, filter: u64) -> Scan {
        Scan::new(Cursor::new(self, filter))
    }

    /// Reads everything back from the store and compares: both ends, every checksum, the order and number of
    /// records, and the index.
    pub async fn verify(&self) -> Result<()> {
        let again = Self::open(&self.inner.store, self.path().clone()).await?;
        if again.contents() != self.contents() {
            let at = self.contents().footer_start();
            return Err(self.corrupt((at, "a footer that is not the one that was written")));
        }
        let mut tallies = Vec::<Tally>::new();
        for (filter, _, records) in self.filters() {
            let mut cursor = Cursor::new(&again, filter);
            let mut seen = 0;
            while cursor.fill(&mut tallies).await? {
                seen += tallies.len() as u64;
            }
            debug_assert_eq!(seen, records, "every page was checked for its number of records");
        }
        Ok(())
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.inner.contents
    }

    /// Reads pages that follow each other.
    pub(super) async fn read_pages(&self, pages: Range<u64>) -> Result<Bytes> {
        let range = pages.start * PAGE_BYTES as u64..pages.end * PAGE_BYTES as u64;
        let [bytes] = read(&self.inner.store, self.path(), [range]).await?;
        Ok(bytes)
    }

    /// Reads single pages, given in order.
    pub(super) async fn read_each(&self, pages: &[u64]) -> Result<Vec<Bytes>> {
        let range = |page: &u64| page * PAGE_BYTES as u64..(page + 1) * PAGE_BYTES as u64;
        let ranges: Vec<_> = pages.iter().map(range).collect();
        read_all(&self.inner.store, self.path(), &ranges).await
    }

    /// The records of a page that was read, checked.
    pub(super) fn open_page<'a>(
        &self,
        page: &'a [u8],
        section: &footer::Section,
        at: usize,
    ) -> Result<&'a [u8]> {
        let number = section.pages.start + at as u64;
        let expected = Expected {
            cover: self.cover(),
            number,
            counted: section.counted,
            records: section.records_of(at),
            first: self.contents().index_of(section)[at],
        };
        page::open(page, &expected).map_err(|why| self.corrupt((number * PAGE_BYTES as u64, why)))
    }

    pub(super) fn corrupt(&self, no_run: NoRun) -> Error {
        corrupt(self.path(), no_run)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The index would fill screens.
        f.debug_struct("Run")
            .field("path", &self.inner.path)
            .field("bytes", &self.inner.bytes)
            .field("cover", &self.inner.contents.cover)
            .field("sections", &self.inner.contents.sections.len())
            .finish_non_exhaustive()
    }
}

fn corrupt(path: &Path, (at, why): NoRun) -> Error {
    Error::Corrupt(format!("{path} at byte {at}: {why}"))
}

async fn read<const N: usize>(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    ranges: [Range<u64>; N],
) -> Result<[Bytes; N]> {
    let parts = read_all(store, path, &ranges).await?;
    parts.try_into().map_err(|_| corrupt(path, (0, "it was not read as asked")))
}

/// Reads ranges of a blob and makes sure that all of each was there.
async fn read_all(store: &Arc<dyn ObjectStore>, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let start = ranges.first().map_or(0, |range| range.start);
    let parts = store.get_ranges(path, ranges).await;
    let parts = parts.map_err(|error| Error::blob(format!("cannot read {path} at byte {start}"), &error))?;
    let whole = parts.len() == ranges.len()
        && parts.iter().zip(ranges).all(|(part, range)| part.len() as u64 == range.end - range.start);
    if !whole {
        return Err(corrupt(path, (start, "it is shorter than it was")));
    }
    Ok(parts)
}
