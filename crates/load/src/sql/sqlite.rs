//! SQLite, read where it is.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};

use super::key::{Keys, UniqueKey};
use super::statement::{Column, Dialect};
use super::value::{Row, Value};
use super::{Connect, Database};
use crate::{Error, Result};

/// How long it is waited for others who write.
const BUSY: Duration = Duration::from_secs(10);
/// What SQLite calls the number of a row; the first that is no column of the table is taken.
const ROW_NUMBERS: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// A database file.
pub(super) struct File {
    path: PathBuf,
}

impl File {
    pub(super) fn new(path: &str) -> Result<Self> {
        // SQLite would look for an empty name in memory.
        if path.is_empty() {
            return Err(Error::Invalid("sqlite: names no file, as sqlite:shop.db does".into()));
        }
        Ok(Self { path: path.into() })
    }
}

impl Connect for File {
    fn connect(&self) -> Result<Box<dyn Database>> {
        let name = self.path.display().to_string();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| wrong(&name, &error))?;
        connection.busy_timeout(BUSY).map_err(|error| wrong(&name, &error))?;
        Ok(Box::new(Open { connection, name }))
    }
}

struct Open {
    connection: Connection,
    name: String,
}

fn wrong(name: &str, error: &rusqlite::Error) -> Error {
    let message = format!("{name}: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Retry(message),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Corrupt(message),
        _ => Error::Invalid(message),
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(number) => ValueRef::Integer(*number),
            // No number of SQLite's is so large, so none was read.
            Self::Uint(_) => ValueRef::Integer(i64::MAX),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl Open {
    /// The name that numbers the rows, if they have numbers: not in views, nor in tables without.
    fn row_number(&self, schema: &str, table: &str, columns: &[String]) -> Option<&'static str> {
        let free = |name: &&&str| !columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        let name = ROW_NUMBERS.iter().find(free)?;
        let quoted = |name: &str| super::statement::quoted(Dialect::Sqlite, name).ok();
        // Not quoted: SQLite takes a quoted name that it does not know for a text.
        let text = format!("SELECT {name} FROM {}.{} LIMIT 0", quoted(schema)?, quoted(table)?);
        self.connection.prepare(&text).ok().map(|_| *name)
    }
}

impl Database for Open {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn columns(&mut self, empty: &str) -> Result<Vec<Column>> {
        let statement = self.connection.prepare(empty).map_err(|error| wrong(&self.name, &error))?;
        Ok(statement.column_names().map(Column::plain).collect())
    }

    fn unique(&mut self, schema: Option<&str>, table: &str) -> Result<Vec<UniqueKey>> {
        let schema = schema.unwrap_or("main");
        let names = [table, schema].map(|name| Value::Text(name.to_owned()));
        let (mut columns, mut whole) = (Vec::new(), Vec::new());
        let (mut primary, mut types) = (Vec::new(), Vec::new());
        let text = "SELECT name, \"notnull\", pk, type FROM pragma_table_info(?1, ?2)";
        self.catalog(text, &names, &mut |row| {
            let name = row.word(0).unwrap_or_default().to_owned();
            if row.number(1) == Some(1) {
                whole.push(name.clone());
            }
            if let Some(place) = row.number(2).filter(|place| *place > 0) {
                primary.push((place, name.clone()));
                types.push(row.word(3).unwrap_or_default().to_ascii_uppercase());
            }
            columns.push(name);
        })?;
        primary.sort();
        let number = self.row_number(schema, table, &columns);
        let mut found = Vec::new();
        let is_number = number.is_some() && primary.len() == 1 && types[0] == "INTEGER";
        // Other primary keys may have NULL where rows have numbers, an oversight that SQLite keeps for the sake of old files.
        if !primary.is_empty() && (is_number || number.is_none()) {
            let names = primary.iter().map(|(_, name)| Column::plain(name));
            found.push(UniqueKey { columns: names.collect(), is_whole: true });
        }
        if let Some(name) = number.filter(|_| !is_number) {
            let column = Column { is_special: true, ..Column::plain(name) };
            found.push(UniqueKey { columns: vec![column], is_whole: true });
        }
        let text = "SELECT l.name, i.name FROM pragma_index_list(?1, ?2) AS l, pragma_index_info(l.name, ?2) AS i \
                    WHERE l.\"unique\" AND NOT l.partial ORDER BY l.seq, i.seqno";
        let mut rows = Vec::new();
        // An index of an expression has no name there, and is none to us.
        self.catalog(text, &names, &mut |row| {
            rows.push((row.word(0).unwrap_or_default().to_owned(), row.word(1).map(str::to_owned)));
        })?;
        let mut keys = Keys::default();
        for (index, column) in &rows {
            let mut row = Row::default();
            row.text(index.as_bytes());
            row.text(column.as_deref().unwrap_or("an expression").as_bytes());
            row.int(i64::from(column.as_ref().is_some_and(|column| whole.contains(column))));
            keys.take(&row);
        }
        found.extend(keys.found());
        Ok(found)
    }

    fn about_rows(&mut self, schema: Option<&str>, table: &str) -> Result<Option<u64>> {
        let quoted = |name: &str| super::statement::quoted(Dialect::Sqlite, name);
        let text = format!("SELECT count(*) FROM {}.{}", quoted(schema.unwrap_or("main"))?, quoted(table)?);
        let mut count = None;
        self.catalog(&text, &[], &mut |row| {
            count = row.number(0).and_then(|count| u64::try_from(count).ok());
        })?;
        Ok(count)
    }

    fn rows(
        &mut self,
        statement: &str,
        values: &[Value],
        each: &mut dyn FnMut(&mut Row) -> Result<bool>,
    ) -> Result<()> {
        let name = &self.name;
        let failed = |error: rusqlite::Error| wrong(name, &error);
        let mut statement = self.connection.prepare(statement).map_err(failed)?;
        let columns = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(values)).map_err(failed)?;
        let mut row = Row::default();
        while let Some(found) = rows.next().map_err(failed)? {
            row.clear();
            for column in 0..columns {
                match found.get_ref(column).map_err(failed)? {
                    ValueRef::Null => row.null(),
                    ValueRef::Integer(number) => row.int(number),
                    ValueRef::Real(number) => row.real(number),
                    ValueRef::Text(text) => row.text(text),
                    ValueRef::Blob(bytes) => row.blob(bytes),
                }
            }
            if !each(&mut row)? {
                break;
            }
        }
        Ok(())
    }
}
