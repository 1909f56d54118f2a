//! One record by its key, for whoever looks a key up: over connections that only read, as everything here.

use super::marks::written;
use super::statement::{Column, Dialect, Writer};
use super::value::{Datum, Value};
use super::{Connect, Database, Relation, connect_to};
use crate::limits::{ALIKE_ROWS_MAX, KEY_BYTES_MAX, RECORD_BYTES_MAX};
use crate::{Error, Result};

/// How a record is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The row of a table whose column has the key.
    Row {
        /// The table.
        table: Relation,
        /// The column.
        key: String,
        /// The columns that are read; all of them, if none is named.
        columns: Vec<String>,
    },
    /// A query of the user's own, with `:key` where the key goes. It goes there as text, never as a part of the statement.
    Query {
        /// The query.
        text: String,
        /// The column of its rows that has the key. Where it is named, rows with other keys, which the database takes for alike, are
        /// passed over.
        key: Option<String>,
    },
}

/// A record: the names of its columns and their values.
pub type Record = Vec<(String, Datum)>;

/// Records of a database.
pub struct Records {
    connect: Box<dyn Connect>,
    shown: String,
    wanted: Wanted,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records")
            .field("at", &self.shown)
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

impl Records {
    /// Records of the database at an address. Nobody connects yet.
    pub fn new(address: &str, wanted: Wanted) -> Result<Self> {
        let (connect, shown) = connect_to(address)?;
        if let Wanted::Row { table: Relation::Query(_), .. } = wanted {
            return Err(Error::Invalid(format!("{shown}: a query has :key in it, and no column of a table")));
        }
        Ok(Self { connect, shown, wanted })
    }

    /// The address without its secrets.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Connects, and finds out whether what is wanted can be read.
    pub fn open(&self) -> Result<Finder> {
        let mut database = self.connect.connect()?;
        let dialect = database.dialect();
        let (relation, values, key) = match &self.wanted {
            Wanted::Row { table, key, .. } => (table.clone(), 1, Some(key)),
            Wanted::Query { text, key } => {
                let (text, values) = written(dialect, text)?;
                (Relation::Query(text), values, key.as_ref())
            }
        };
        let writer = Writer::new(dialect, &relation)?;
        let known = database.columns(&writer.empty())?;
        let find = |wanted: &String| {
            known.iter().find(|column| column.name == *wanted).cloned().ok_or_else(|| {
                let names: Vec<_> = known.iter().map(|column| column.name.as_str()).collect();
                Error::Invalid(format!(
                    "{}: no column {wanted:?}; there are {}",
                    self.shown,
                    names.join(", ")
                ))
            })
        };
        let key = key.map(find).transpose()?;
        let mut columns = match &self.wanted {
            Wanted::Row { columns, .. } if !columns.is_empty() => {
                columns.iter().map(find).collect::<Result<_>>()?
            }
            _ => known.clone(),
        };
        let names = columns.iter().map(|column: &Column| column.name.clone()).collect();
        let has_key = key.is_some();
        columns.extend(key.clone());
        let by_key = key.as_ref().filter(|_| matches!(self.wanted, Wanted::Row { .. }));
        let text = writer.found(by_key, &columns, ALIKE_ROWS_MAX)?;
        let is_bytes = by_key.is_some_and(|key| key.is_bytes && dialect == Dialect::Postgres);
        Ok(Finder { database, text, values, names, has_key, is_bytes })
    }
}

/// Finds records over one connection.
pub struct Finder {
    database: Box<dyn Database>,
    text: String,
    /// How often the key is handed over.
    values: usize,
    names: Vec<String>,
    /// Whether the key stands behind the columns that are wanted.
    has_key: bool,
    is_bytes: bool,
}

impl Finder {
    /// The record with a key; none if there is none.
    pub fn find(&mut self, key: &[u8]) -> Result<Option<Record>> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::Invalid(format!("a key of {} bytes; at most {KEY_BYTES_MAX}", key.len())));
        }
        let value = match std::str::from_utf8(key) {
            Ok(text) if !self.is_bytes => Value::Text(text.to_owned()),
            _ => Value::Blob(key.to_vec()),
        };
        let (mut found, names, has_key) = (None, &self.names, self.has_key);
        self.database.rows(&self.text, &vec![value; self.values], &mut |row| {
            if row.bytes() > RECORD_BYTES_MAX {
                return Err(Error::Invalid(format!("a record of more than {RECORD_BYTES_MAX} bytes")));
            }
            let mut data = row.data();
            let is_it = !has_key || data.pop().is_some_and(|datum| datum.is_key(key));
            if is_it {
                found = Some(names.iter().cloned().zip(data).collect());
            }
            Ok(!is_it)
        })?;
        Ok(found)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    fn database(name: &str) -> (std::path::PathBuf, String) {
        let path = std::env::temp_dir().join(format!("umbel-record-{name}-{}.db", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE books (number INTEGER PRIMARY KEY, isbn TEXT COLLATE NOCASE UNIQUE, raw BLOB UNIQUE, price REAL);
                 INSERT INTO books VALUES (7, 'abc', x'00ff', 1.5), (8, 'it''s', CAST('text' AS BLOB), NULL);",
            )
            .unwrap();
        let address = format!("sqlite:{}", path.display());
        (path, address)
    }

    fn row(key: &str) -> Wanted {
        Wanted::Row { table: Relation::table("books"), key: key.into(), columns: vec!["price".into()] }
    }

    #[test]
    fn a_record_is_found_by_exactly_its_key() {
        let (path, address) = database("row");
        let price = |price| Some(vec![("price".to_owned(), price)]);
        let mut cases = vec![("number", &b"7"[..], price(Datum::Real(1.5))), ("number", b"07", None)];
        cases.extend([("number", &b"7 OR 1=1"[..], None), ("isbn", b"abc", price(Datum::Real(1.5)))]);
        cases.extend([("isbn", &b"ABC"[..], None), ("isbn", b"it's", price(Datum::Null))]);
        cases.extend([("raw", &[0, 255][..], price(Datum::Real(1.5))), ("raw", b"text", price(Datum::Null))]);
        for (column, key, expected) in cases {
            let mut finder = Records::new(&address, row(column)).unwrap().open().unwrap();
            assert_eq!(finder.find(key).unwrap(), expected, "{column} {key:?}");
        }
        assert!(Records::new(&address, row("nothing")).unwrap().open().is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn queries_take_the_key_as_a_value() {
        let (path, address) = database("query");
        let text = "SELECT price, isbn FROM books WHERE isbn = :key OR number = :key".to_owned();
        let open = |key: Option<&str>| {
            let wanted = Wanted::Query { text: text.clone(), key: key.map(str::to_owned) };
            Records::new(&address, wanted).unwrap().open().unwrap()
        };
        assert_eq!(open(None).find(b"ABC").unwrap().unwrap()[1], ("isbn".into(), Datum::Text("abc".into())));
        assert_eq!(open(Some("isbn")).find(b"ABC").unwrap(), None);
        assert!(open(Some("isbn")).find(b"abc").unwrap().is_some());
        assert_eq!(open(None).find(b"'; DROP TABLE books; --").unwrap(), None);
        assert!(open(None).find(&vec![b'x'; KEY_BYTES_MAX + 1]).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
