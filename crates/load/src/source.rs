//! The seam: a place with keys.

use crate::limits::BOOKMARK_BYTES_MAX;
use crate::{Batch, Error, Result};

/// A place in a part: everything before it was read. It is text that only the source that gave it understands, and stays
/// valid in other processes, as long as the part itself is what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark(String);

impl Bookmark {
    /// A bookmark from what a source wrote.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.len() > BOOKMARK_BYTES_MAX {
            let length = text.len();
            return Err(Error::Invalid(format!(
                "a bookmark of {length} bytes; the most is {BOOKMARK_BYTES_MAX}: its key is too long to go on from"
            )));
        }
        Ok(Self(text))
    }

    /// The place behind what a batch has. None if it has nothing: then there is no more.
    pub(crate) fn behind(batch: &Batch, place: impl std::fmt::Display) -> Result<Option<Self>> {
        if batch.is_empty() { Ok(None) } else { Self::new(place.to_string()).map(Some) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A piece of a source that is read from its beginning to its end, by one reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What people are told: the path of a file, a range of keys.
    pub name: String,
    /// What it is, for the source that made it.
    pub bounds: String,
    /// How many bytes there are to be read, where that is known.
    pub bytes: Option<u64>,
    /// About how many rows there are, where the source knows without reading them.
    pub rows: Option<u64>,
}

/// A place with keys: a table, some files, a stream.
///
/// ```text
///  part 0  [ read ......... | not read yet .... ]
///  part 1  [ read ... | not read yet .......... ]
///                     ^ bookmark: `open` goes on here, in this process or in the next
/// ```
///
/// - All parts together have every key that was there when [`parts`](Self::parts) was called. They may be read at the same
///   time and in any order; a key that stands in two of them is no error.
/// - Rows that come while the source is read may be seen or not; those behind the end of an open part are (see
///   [`tail`](Self::tail)).
/// - Memory is bounded by a few batches for each open cursor, whatever the source holds.
pub trait Source: Send + Sync {
    /// What people are told, without secrets.
    fn name(&self) -> String;

    /// What bookmarks depend on: while this stays the same, a bookmark means the same. It holds no secrets.
    fn identity(&self) -> String;

    /// The parts to read, about as many as are wanted, if it can be split.
    fn parts(&self, wanted: usize) -> Result<Vec<Part>>;

    /// Reads a part, from its beginning or from a bookmark. An error that says [`Error::Corrupt`] means that the bookmark
    /// does not fit the part any more.
    fn open(&self, part: &Part, after: Option<&Bookmark>) -> Result<Box<dyn Cursor>>;

    /// Whether a bookmark leads anywhere. That of standard input does not.
    fn is_resumable(&self) -> bool {
        true
    }

    /// The part that may have grown at its end while all were read, if there is one: it is read once more from its last
    /// bookmark.
    fn tail<'a>(&self, parts: &'a [Part]) -> Option<&'a Part> {
        let _ = parts;
        None
    }
}

/// Reads one part.
pub trait Cursor: Send {
    /// Puts the next keys into an empty batch, and gives the place behind them. None when there are no more: then the batch
    /// stays empty. After [`Error::Retry`] the cursor is of no use any more; the part is opened again at the last bookmark.
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>>;
}
