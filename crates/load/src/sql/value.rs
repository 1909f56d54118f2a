//! Values of keys, rows as they come, and how bookmarks write values.

use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::limits::KEY_COLUMNS_MAX;
use crate::{Batch, Bookmark, Error, Result};

/// A value that rows are ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Int(i64),
    /// Beyond what the other one can hold.
    Uint(u64),
    Text(String),
    Blob(Vec<u8>),
}

/// As a bookmark has it.
#[derive(Serialize, Deserialize)]
enum Written {
    #[serde(rename = "i")]
    Int(i64),
    #[serde(rename = "u")]
    Uint(u64),
    #[serde(rename = "t")]
    Text(String),
    #[serde(rename = "b")]
    Blob(String),
}

/// Writes a key.
pub(super) fn encode(key: &[Value]) -> Result<Bookmark> {
    let written: Vec<Written> = key
        .iter()
        .map(|value| match value {
            Value::Int(number) => Written::Int(*number),
            Value::Uint(number) => Written::Uint(*number),
            Value::Text(text) => Written::Text(text.clone()),
            Value::Blob(bytes) => Written::Blob(BASE64_STANDARD.encode(bytes)),
        })
        .collect();
    Bookmark::new(serde_json::to_string(&written).map_err(|error| Error::Invalid(error.to_string()))?)
}

/// Reads a key of so many columns.
pub(super) fn decode(text: &str, columns: usize) -> Result<Vec<Value>> {
    let wrong = || Error::Corrupt(format!("{text:?} is no key of {columns} columns"));
    let written: Vec<Written> = serde_json::from_str(text).map_err(|_| wrong())?;
    if written.len() != columns || columns > KEY_COLUMNS_MAX {
        return Err(wrong());
    }
    let value = |written| {
        Ok(match written {
            Written::Int(number) => Value::Int(number),
            Written::Uint(number) => Value::Uint(number),
            Written::Text(text) => Value::Text(text),
            Written::Blob(text) => Value::Blob(BASE64_STANDARD.decode(text).map_err(|_| wrong())?),
        })
    };
    written.into_iter().map(value).collect()
}

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Int(i64),
    Uint(u64),
    Real(f64),
    Text(Range<usize>),
    Blob(Range<usize>),
}

/// A value of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A whole number beyond what the other one can hold.
    Uint(u64),
    /// A number.
    Real(f64),
    /// Text; other types of a database come as text, too.
    Text(String),
    /// Bytes that are no text.
    Bytes(Vec<u8>),
}

impl Datum {
    /// Whether a load would add this key to a filter for it.
    pub fn is_key(&self, key: &[u8]) -> bool {
        match self {
            Self::Null => false,
            Self::Int(number) => number.to_string().as_bytes() == key,
            Self::Uint(number) => number.to_string().as_bytes() == key,
            Self::Real(number) => number.to_string().as_bytes() == key,
            Self::Text(text) => text.as_bytes() == key,
            Self::Bytes(bytes) => bytes == key,
        }
    }
}

/// A row: first the columns that order it, then those of the filter's key. Its memory is used for one row after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// Numbers of the filter's key as text.
    text: Vec<u8>,
}

impl Row {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.cells.clear();
    }

    pub(super) fn null(&mut self) {
        self.cells.push(Cell::Null);
    }

    pub(super) fn int(&mut self, number: i64) {
        self.cells.push(Cell::Int(number));
    }

    pub(super) fn uint(&mut self, number: u64) {
        self.cells.push(i64::try_from(number).map_or(Cell::Uint(number), Cell::Int));
    }

    pub(super) fn real(&mut self, number: f64) {
        self.cells.push(Cell::Real(number));
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        let range = self.put(text);
        self.cells.push(Cell::Text(range));
    }

    pub(super) fn blob(&mut self, bytes: &[u8]) {
        let range = self.put(bytes);
        self.cells.push(Cell::Blob(range));
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// The first columns as values that can be asked for again.
    pub(super) fn key(&self, columns: usize) -> Result<Vec<Value>> {
        let value = |cell: &Cell| {
            match cell {
            Cell::Int(number) => Ok(Value::Int(*number)),
            Cell::Uint(number) => Ok(Value::Uint(*number)),
            Cell::Text(range) => match String::from_utf8(self.bytes[range.clone()].to_vec()) {
                Ok(text) => Ok(Value::Text(text)),
                Err(error) => Ok(Value::Blob(error.into_bytes())),
            },
            Cell::Blob(range) => Ok(Value::Blob(self.bytes[range.clone()].to_vec())),
            Cell::Null => Err(Error::Invalid("a row has NULL in a column of --key: others order the rows".into())),
            Cell::Real(_) => Err(Error::Invalid(
                "a column of --key has floating point numbers: rows are ordered by whole numbers, text or bytes".into(),
            )),
        }
        };
        let cells =
            self.cells.get(..columns).ok_or_else(|| Error::Invalid("a row with too few columns".into()))?;
        cells.iter().map(value).collect()
    }

    /// All values, for whoever wants the record itself.
    pub(super) fn data(&self) -> Vec<Datum> {
        let datum = |cell: &Cell| match cell {
            Cell::Null => Datum::Null,
            Cell::Int(number) => Datum::Int(*number),
            Cell::Uint(number) => Datum::Uint(*number),
            Cell::Real(number) => Datum::Real(*number),
            Cell::Blob(range) => Datum::Bytes(self.bytes[range.clone()].to_vec()),
            Cell::Text(range) => match String::from_utf8(self.bytes[range.clone()].to_vec()) {
                Ok(text) => Datum::Text(text),
                Err(error) => Datum::Bytes(error.into_bytes()),
            },
        };
        self.cells.iter().map(datum).collect()
    }

    /// How many bytes its values have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + self.cells.len() * size_of::<Cell>()
    }

    /// Whether both have the same values in the first columns.
    pub(super) fn same_key(&self, other: &Self, columns: usize) -> bool {
        let bytes = |row: &'_ Self, number: usize| match row.cells.get(number) {
            Some(Cell::Text(range) | Cell::Blob(range)) => Some(row.bytes[range.clone()].to_vec()),
            _ => None,
        };
        (0..columns).all(|number| match (self.cells.get(number), other.cells.get(number)) {
            (Some(Cell::Text(one) | Cell::Blob(one)), Some(Cell::Text(two) | Cell::Blob(two))) => {
                self.bytes[one.clone()] == other.bytes[two.clone()]
            }
            (one, two) => one == two && bytes(self, number) == bytes(other, number),
        })
    }

    /// A whole number of some column, for catalogs.
    pub(super) fn number(&self, column: usize) -> Option<i64> {
        match self.cells.get(column)? {
            Cell::Int(number) => Some(*number),
            Cell::Real(number) => Some(*number as i64),
            Cell::Text(range) => std::str::from_utf8(&self.bytes[range.clone()]).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The text of some column, for catalogs.
    pub(super) fn word(&self, column: usize) -> Option<&str> {
        match self.cells.get(column)? {
            Cell::Text(range) | Cell::Blob(range) => std::str::from_utf8(&self.bytes[range.clone()]).ok(),
            _ => None,
        }
    }

    /// Puts what stands behind the first columns into a batch, as one key.
    pub(super) fn push_into(&mut self, batch: &mut Batch, columns: usize, separator: &str) -> Result<()> {
        self.text.clear();
        // Numbers are added as people write them.
        let mut ranges = [const { 0..0 }; KEY_COLUMNS_MAX];
        for (cell, range) in self.cells.iter().skip(columns).zip(&mut ranges) {
            let start = self.text.len();
            match cell {
                Cell::Int(number) => self.text.extend_from_slice(number.to_string().as_bytes()),
                Cell::Uint(number) => self.text.extend_from_slice(number.to_string().as_bytes()),
                Cell::Real(number) => self.text.extend_from_slice(number.to_string().as_bytes()),
                Cell::Null | Cell::Text(_) | Cell::Blob(_) => {}
            }
            *range = start..self.text.len();
        }
        let cells = self.cells.iter().skip(columns).zip(&ranges);
        let parts = cells.map(|(cell, range)| match cell {
            Cell::Null => None,
            Cell::Text(range) | Cell::Blob(range) => Some(&self.bytes[range.clone()]),
            Cell::Int(_) | Cell::Uint(_) | Cell::Real(_) => Some(&self.text[range.clone()]),
        });
        batch.push_joined(parts, separator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_bookmarks() {
        let key = vec![
            Value::Int(i64::MIN),
            Value::Uint(u64::MAX),
            Value::Text("é\"\n".into()),
            Value::Blob(vec![0, 255]),
        ];
        let bookmark = encode(&key).unwrap();
        assert_eq!(decode(bookmark.as_str(), 4).unwrap(), key);
        for (bad, columns) in [(bookmark.as_str(), 3), ("", 0), ("[1]", 1), (r#"[{"b":"!"}]"#, 1), ("[]", 1)]
        {
            assert!(matches!(decode(bad, columns), Err(Error::Corrupt(_))), "{bad}");
        }
    }

    #[test]
    fn rows_become_keys() {
        let (mut row, mut batch) = (Row::default(), Batch::default());
        row.int(5);
        row.text(b"a");
        row.real(1.5);
        row.push_into(&mut batch, 1, "/").unwrap();
        let before = row.clone();
        row.clear();
        row.int(5);
        row.null();
        row.push_into(&mut batch, 1, "/").unwrap();
        row.clear();
        row.uint(u64::MAX);
        row.uint(7);
        row.push_into(&mut batch, 1, "/").unwrap();
        assert_eq!(batch.keys().collect::<Vec<_>>(), [&b"a/1.5"[..], b"7"]);
        assert_eq!(batch.nulls(), 1);
        assert_eq!(before.key(2).unwrap(), [Value::Int(5), Value::Text("a".into())]);
        assert!(before.key(3).is_err() && before.key(4).is_err());
        assert!(!before.same_key(&row, 1) && before.same_key(&before.clone(), 3));
    }
}
