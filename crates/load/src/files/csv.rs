//! Columns of CSV.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::{ByteRecord, ReaderBuilder};

use super::Csv;
use super::opened::{Opened, PIECE_BYTES, Taken};
use crate::limits::RECORD_BYTES_MAX;
use crate::{Batch, Bookmark, Cursor, Error, Result};

/// Lets no record become longer than it may: a quote that is never closed would take the whole file into memory.
struct Bounded {
    inner: Box<dyn Read + Send>,
    left: Arc<AtomicU64>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other(format!(
                "a record of more than {RECORD_BYTES_MAX} bytes; is a quote never closed?"
            )));
        }
        let count = self.inner.read(buffer)?;
        self.left.store(left.saturating_sub(count as u64), Ordering::Relaxed);
        Ok(count)
    }
}

pub(super) struct Records {
    reader: csv::Reader<Bounded>,
    record: ByteRecord,
    columns: Vec<usize>,
    separator: String,
    left: Arc<AtomicU64>,
    /// Where the reader's first byte is in the file.
    begin: u64,
    taken: Taken,
    name: String,
}

impl Records {
    /// Records from the beginning; or those from a place on in the same file, which was opened once more for that.
    pub(super) fn open(
        opened: Opened,
        csv: &Csv,
        resumed: Option<(Opened, u64)>,
        name: String,
    ) -> Result<Self> {
        let (bytes, mut taken) = opened.from(0, &name)?;
        let mut begin = 0;
        let (mut reader, mut left) = reader_of(bytes, csv.delimiter);
        let mut record = ByteRecord::new();
        let columns = if csv.has_header {
            reader.read_byte_record(&mut record).map_err(|error| damaged(&name, &error))?;
            left.store(RECORD_BYTES_MAX as u64, Ordering::Relaxed);
            named(&record, &csv.columns, &name)?
        } else {
            csv.columns.iter().map(|column| numbered(column, &name)).collect::<Result<_>>()?
        };
        if let Some((opened, at)) = resumed {
            let bytes;
            (bytes, taken) = opened.from(at, &name)?;
            begin = at;
            (reader, left) = reader_of(bytes, csv.delimiter);
        }
        Ok(Self { reader, record, columns, separator: csv.separator.clone(), left, begin, taken, name })
    }

    fn at(&self) -> u64 {
        self.begin + self.reader.position().byte()
    }

    fn read(&mut self) -> Result<bool> {
        let found = self.reader.read_byte_record(&mut self.record);
        self.left.store(RECORD_BYTES_MAX as u64, Ordering::Relaxed);
        found.map_err(|error| damaged(&self.name, &error))
    }
}

fn reader_of(reader: Box<dyn Read + Send>, delimiter: u8) -> (csv::Reader<Bounded>, Arc<AtomicU64>) {
    let left = Arc::new(AtomicU64::new(RECORD_BYTES_MAX as u64));
    let bounded = Bounded { inner: reader, left: Arc::clone(&left) };
    let reader = ReaderBuilder::new()
        .has_headers(false)
        .delimiter(delimiter)
        // A record that is too short has no value there, which is counted.
        .flexible(true)
        .buffer_capacity(PIECE_BYTES)
        .from_reader(bounded);
    (reader, left)
}

fn damaged(name: &str, error: &csv::Error) -> Error {
    match error.kind() {
        csv::ErrorKind::Io(error) => Error::reading(Error::Corrupt, name, error),
        _ => Error::Corrupt(format!("{name}: {error}")),
    }
}

/// Numbers of columns by their names in the first record.
fn named(header: &ByteRecord, columns: &[String], name: &str) -> Result<Vec<usize>> {
    // What some programs write before the first byte is no part of its name.
    let clean = |field: &[u8]| field.strip_prefix("\u{feff}".as_bytes()).unwrap_or(field).to_vec();
    let names: Vec<Vec<u8>> = header.iter().map(clean).collect();
    let number = |column: &String| {
        names.iter().position(|name| name == column.as_bytes()).ok_or_else(|| {
            let known: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            Error::Invalid(format!("{name}: there is no column {column:?}; there are {}", known.join(", ")))
        })
    };
    columns.iter().map(number).collect()
}

/// A number from 1, as people count columns.
fn numbered(column: &str, name: &str) -> Result<usize> {
    column.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).ok_or_else(|| {
        Error::Invalid(format!("{name}: without a header, columns are numbers from 1, not {column:?}"))
    })
}

impl Cursor for Records {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        while !batch.is_full() && self.read()? {
            let record = &self.record;
            // An empty field is how CSV writes that there is none.
            let value = |column: &usize| record.get(*column).filter(|value| !value.is_empty());
            if let Err(error) = batch.push_joined(self.columns.iter().map(value), &self.separator) {
                let line = self.record.position().map_or(0, csv::Position::line);
                return Err(Error::Invalid(format!("{}, line {line}: {error}", self.name)));
            }
        }
        batch.consumed(self.taken.more(self.reader.position().byte()));
        Bookmark::behind(batch, self.at())
    }
}
