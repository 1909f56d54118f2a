//! A column of a Parquet file: row groups one after another.

use std::collections::VecDeque;

use parquet::basic::{LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;
use parquet::schema::types::ColumnDescPtr;

use crate::{Batch, Bookmark, Cursor, Error, Result};

/// Rows that are read at once.
const ROWS: usize = 1024;

/// A file that can be read, and its name.
pub(super) type File = (Box<dyn FileReader>, String);

/// Row groups in so many pieces: from, and up to.
pub(super) fn pieces(file: File, column: &str, wanted: usize) -> Result<Vec<(u64, u64)>> {
    let file = Opened::new(file, column)?;
    let groups = file.reader.num_row_groups() as u64;
    let count = groups.clamp(1, wanted.max(1) as u64);
    let cut = |number: u64| groups * number / count;
    Ok((0..count).map(|number| (cut(number), cut(number + 1))).collect())
}

pub(super) fn open(
    file: File,
    column: &str,
    from: u64,
    to: u64,
    at: Option<&str>,
) -> Result<Box<dyn Cursor>> {
    let opened = Opened::new(file, column)?;
    let (group, row) = match at {
        None => (from, 0),
        Some(text) => place(text)
            .filter(|(group, _)| (from..=to).contains(group))
            .ok_or_else(|| Error::Corrupt(format!("{}: {text:?} is no place in it", opened.name)))?,
    };
    let mut column = Column { opened, to, group, row: 0, reader: None, waiting: VecDeque::new() };
    column.pass(row)?;
    Ok(Box::new(column))
}

/// A bookmark: the row group, and the row in it.
fn place(text: &str) -> Option<(u64, u64)> {
    let (group, row) = text.split_once('/')?;
    Some((group.parse().ok()?, row.parse().ok()?))
}

struct Opened {
    reader: Box<dyn FileReader>,
    index: usize,
    descriptor: ColumnDescPtr,
    name: String,
}

impl Opened {
    fn new((reader, name): File, column: &str) -> Result<Self> {
        let columns = reader.metadata().file_metadata().schema_descr().columns();
        let found = columns.iter().position(|known| known.path().string() == column);
        let Some(index) = found else {
            let names: Vec<_> = columns.iter().map(|column| column.path().string()).collect();
            return Err(Error::Invalid(format!(
                "{name}: there is no column {column:?}; there are {}",
                names.join(", ")
            )));
        };
        let descriptor = columns[index].clone();
        if descriptor.max_rep_level() > 0 {
            return Err(Error::Invalid(format!(
                "{name}: the column {column:?} has lists, not a value in each row"
            )));
        }
        if !is_readable(&descriptor) {
            let kind = descriptor.physical_type();
            return Err(Error::Invalid(format!(
                "{name}: the column {column:?} has {kind}, not text or whole numbers"
            )));
        }
        Ok(Self { reader, index, descriptor, name })
    }
}

/// Texts, bytes and whole numbers that are nothing else: a decimal or a time would be written otherwise by everybody else.
fn is_readable(column: &ColumnDescPtr) -> bool {
    let plain = match column.logical_type_ref() {
        None => true,
        Some(LogicalType::String | LogicalType::Enum | LogicalType::Json | LogicalType::Bson) => true,
        Some(LogicalType::Uuid | LogicalType::Integer(_)) => true,
        Some(_) => false,
    };
    let kinds = [
        Physical::BYTE_ARRAY,
        Physical::FIXED_LEN_BYTE_ARRAY,
        Physical::INT32,
        Physical::INT64,
        Physical::BOOLEAN,
    ];
    plain && kinds.contains(&column.physical_type())
}

pub(super) fn wrong(name: &str, error: &ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast_ref::<std::io::Error>() {
            Some(cause) => Error::reading(Error::Corrupt, name, cause),
            None => Error::Corrupt(format!("{name}: {cause}")),
        },
        _ => Error::Corrupt(format!("{name}: {error}")),
    }
}

struct Column {
    opened: Opened,
    to: u64,
    group: u64,
    /// Rows of the group that went into batches.
    row: u64,
    reader: Option<ColumnReader>,
    /// Rows behind them that were read already: long values fill a batch before all of them are in it.
    waiting: VecDeque<Option<ByteArray>>,
}

impl Column {
    /// The reader of the group that is read; none behind the last.
    fn reader(&mut self) -> Result<Option<&mut ColumnReader>> {
        if self.group >= self.to.min(self.opened.reader.num_row_groups() as u64) {
            return Ok(None);
        }
        if self.reader.is_none() {
            let opened = &self.opened;
            let group = opened.reader.get_row_group(self.group as usize);
            let reader = group.and_then(|group| group.get_column_reader(opened.index));
            self.reader = Some(reader.map_err(|error| wrong(&opened.name, &error))?);
        }
        Ok(self.reader.as_mut())
    }

    /// Goes to a row of the group.
    fn pass(&mut self, row: u64) -> Result<()> {
        if row == 0 {
            return Ok(());
        }
        let short = format!("{}: row group {} ends before row {row}", self.opened.name, self.group);
        let name = self.opened.name.clone();
        let Some(reader) = self.reader()? else { return Err(Error::Corrupt(short)) };
        let rows = usize::try_from(row).unwrap_or(usize::MAX);
        let passed = match reader {
            ColumnReader::ByteArrayColumnReader(reader) => reader.skip_records(rows),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => reader.skip_records(rows),
            ColumnReader::Int32ColumnReader(reader) => reader.skip_records(rows),
            ColumnReader::Int64ColumnReader(reader) => reader.skip_records(rows),
            ColumnReader::BoolColumnReader(reader) => reader.skip_records(rows),
            _ => Ok(0),
        };
        if passed.map_err(|error| wrong(&name, &error))? < rows {
            return Err(Error::Corrupt(short));
        }
        self.row = row;
        Ok(())
    }
}

/// Reads some rows, those without a value as none.
fn take<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    column: &ColumnDescPtr,
    name: &str,
    key: impl Fn(T::T) -> ByteArray,
) -> Result<VecDeque<Option<ByteArray>>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let whole = column.max_def_level();
    let read = reader.read_records(ROWS, (whole > 0).then_some(&mut levels), None, &mut values);
    let (rows, ..) = read.map_err(|error| wrong(name, &error))?;
    let mut values = values.into_iter().map(key);
    // Only values that are there are among them.
    let is_there = |row: usize| whole == 0 || levels.get(row) == Some(&whole);
    Ok((0..rows).map(|row| if is_there(row) { values.next() } else { None }).collect())
}

fn text(number: impl ToString + Copy) -> ByteArray {
    number.to_string().into_bytes().into()
}

impl Column {
    /// Reads the next rows of the group, or none at its end; false behind the last group.
    fn read(&mut self) -> Result<bool> {
        let (column, name) = (self.opened.descriptor.clone(), self.opened.name.clone());
        let is_unsigned =
            matches!(column.logical_type_ref(), Some(LogicalType::Integer(kind)) if !kind.is_signed);
        let Some(reader) = self.reader()? else { return Ok(false) };
        self.waiting = match reader {
            ColumnReader::ByteArrayColumnReader(reader) => take(reader, &column, &name, |value| value)?,
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                take(reader, &column, &name, ByteArray::from)?
            }
            ColumnReader::Int32ColumnReader(reader) => {
                take(reader, &column, &name, |value| match is_unsigned {
                    true => text(value as u32),
                    false => text(value),
                })?
            }
            ColumnReader::Int64ColumnReader(reader) => {
                take(reader, &column, &name, |value| match is_unsigned {
                    true => text(value as u64),
                    false => text(value),
                })?
            }
            ColumnReader::BoolColumnReader(reader) => take(reader, &column, &name, text)?,
            _ => VecDeque::new(),
        };
        Ok(true)
    }
}

impl Cursor for Column {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        // A row group may have fewer rows than a batch, and a batch that is begun is not ended by it.
        while !batch.is_full() {
            if let Some(value) = self.waiting.pop_front() {
                match value {
                    Some(value) => batch.push(value.data())?,
                    None => batch.skip(),
                }
                self.row += 1;
                continue;
            }
            if !self.read()? {
                break;
            }
            if self.waiting.is_empty() {
                batch.consumed(self.group_bytes());
                (self.group, self.row, self.reader) = (self.group + 1, 0, None);
            }
        }
        Bookmark::behind(batch, format_args!("{}/{}", self.group, self.row))
    }
}

impl Column {
    /// Bytes of the whole row group, of which one column was read.
    fn group_bytes(&self) -> u64 {
        let bytes = self.opened.reader.metadata().row_group(self.group as usize).compressed_size();
        u64::try_from(bytes).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
