//! An outbox beside the records, in SQLite.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::types::{Value as Stored, ValueRef};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params_from_iter};
use umbel_core::random::Random;

use super::claim::{self, Statements};
use super::{Batch, Effect, Outbox, check_key, checked_name, session};
use crate::source::Value;
use crate::{Error, Result};

/// How long it is waited for others who write.
const BUSY: Duration = Duration::from_secs(10);
/// What is there for the outbox, in the user's own database.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS umbel_outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT, effect INTEGER NOT NULL, key BLOB NOT NULL, batch INTEGER);
    CREATE INDEX IF NOT EXISTS umbel_outbox_batch ON umbel_outbox (batch);
    CREATE TABLE IF NOT EXISTS umbel_drain (
        one INTEGER PRIMARY KEY CHECK (one = 1), session INTEGER NOT NULL, batch INTEGER NOT NULL);";

/// A database with an outbox, over one connection.
pub struct SqliteOutbox {
    connection: Mutex<Connection>,
}

impl fmt::Debug for SqliteOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOutbox").finish_non_exhaustive()
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let why = format!("SQLite: {error}");
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(why),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull) => {
                Self::Retry(why)
            }
            _ => Self::Invalid(why),
        }
    }
}

impl SqliteOutbox {
    /// The database in a file, which gets the tables of an outbox if it has none.
    pub fn open(path: &Path, random: &dyn Random) -> Result<Self> {
        Self::of(Connection::open(path)?, random)
    }

    /// The same over a connection that somebody has made.
    pub fn of(mut connection: Connection, random: &dyn Random) -> Result<Self> {
        connection.busy_timeout(BUSY)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(TABLES)?;
        transaction.execute("INSERT OR IGNORE INTO umbel_drain VALUES (1, ?1, 0)", [session(random)])?;
        transaction.commit()?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes changes in one transaction, all or none of them. Whoever has transactions of their own may use [`Table`] in them instead.
    pub fn change<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    /// How many changes the filter was not told yet, or is being told.
    pub fn waiting(&self) -> Result<u64> {
        claim::waiting(&mut &*self.connection())
    }
}

/// A connection, or a transaction of it.
impl Statements for &Connection {
    /// A transaction that writes is alone anyway.
    const LOCKING: &'static str = "";

    fn run(&mut self, text: &str, numbers: &[i64]) -> Result<()> {
        self.execute(text, params_from_iter(numbers))?;
        Ok(())
    }

    fn numbers(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, i64)>> {
        let mut statement = self.prepare(text)?;
        let rows = statement.query_map(params_from_iter(numbers), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn bytes(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, Vec<u8>)>> {
        let mut statement = self.prepare(text)?;
        let rows = statement.query_map(params_from_iter(numbers), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Outbox for SqliteOutbox {
    fn claim(&self) -> Result<Option<Batch>> {
        if (&*self.connection()).numbers(claim::ANY, &[])?.is_empty() {
            return Ok(None);
        }
        self.change(|transaction| claim::claim(&mut &**transaction))
    }

    fn finish(&self, number: u64) -> Result<()> {
        claim::finish(&mut &*self.connection(), number)
    }
}

/// A table of records, each with a key that no other one has.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    key: String,
}

fn quoted(name: &str) -> Result<String> {
    Ok(format!("\"{}\"", checked_name(name)?.replace('"', "\"\"")))
}

fn stored(value: &Value) -> Result<Stored> {
    Ok(match value {
        Value::Null => Stored::Null,
        Value::Int(number) => Stored::Integer(*number),
        Value::Uint(number) => {
            let number = i64::try_from(*number);
            Stored::Integer(
                number.map_err(|_| Error::Invalid("a number that SQLite has no room for".into()))?,
            )
        }
        Value::Real(number) => Stored::Real(*number),
        Value::Text(text) => Stored::Text(text.clone()),
        Value::Bytes(bytes) => Stored::Blob(bytes.clone()),
    })
}

impl Table {
    /// A table, and the column that has the key.
    pub fn new(name: &str, key: &str) -> Result<Self> {
        Ok(Self { name: quoted(name)?, key: quoted(key)? })
    }

    /// Adds a record, or gives one that is there other values; the outbox has it in the same transaction. Says which of both it was.
    pub fn put(
        &self,
        transaction: &Transaction<'_>,
        key: &[u8],
        columns: &[(&str, Value)],
    ) -> Result<Effect> {
        let Self { name: table, key: column } = self;
        let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect::<Result<_>>()?;
        let mut values = vec![key_value(key)?];
        values.extend(columns.iter().map(|(_, value)| stored(value)).collect::<Result<Vec<_>>>()?);
        let places = names.iter().enumerate().map(|(number, name)| format!("{name} = ?{}", number + 2));
        let set = if names.is_empty() {
            format!("{column} = {column}")
        } else {
            places.collect::<Vec<_>>().join(", ")
        };
        let update = format!("UPDATE {table} SET {set} WHERE {} RETURNING {column}", self.is_key());
        if run(transaction, &update, &values, Effect::Changed)? > 0 {
            return Ok(Effect::Changed);
        }
        let others: String = names.iter().map(|name| format!(", {name}")).collect();
        let places: String = (0..names.len()).map(|number| format!(", ?{}", number + 2)).collect();
        let insert = format!("INSERT INTO {table} ({column}{others}) VALUES (?1{places}) RETURNING {column}");
        run(transaction, &insert, &values, Effect::Added)?;
        Ok(Effect::Added)
    }

    /// Erases a record; whether there was one.
    pub fn erase(&self, transaction: &Transaction<'_>, key: &[u8]) -> Result<bool> {
        let Self { name: table, key: column } = self;
        let delete = format!("DELETE FROM {table} WHERE {} RETURNING {column}", self.is_key());
        Ok(run(transaction, &delete, &[key_value(key)?], Effect::Erased)? > 0)
    }

    /// Text and bytes are never alike in SQLite, and a column may hold either.
    fn is_key(&self) -> String {
        format!("{} IN (?1, CAST(?1 AS BLOB))", self.key)
    }
}

fn key_value(key: &[u8]) -> Result<Stored> {
    check_key(key)?;
    Ok(match std::str::from_utf8(key) {
        Ok(text) => Stored::Text(text.to_owned()),
        Err(_) => Stored::Blob(key.to_vec()),
    })
}

/// Runs a statement that gives the keys of the rows that it touched, and notes them as the table has them: that may be another text than was
/// asked with, as 7 is for `07`.
fn run(transaction: &Transaction<'_>, text: &str, values: &[Stored], effect: Effect) -> Result<usize> {
    let mut keys = Vec::new();
    let mut statement = transaction.prepare(text)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        keys.push(match row.get_ref(0)? {
            ValueRef::Integer(number) => number.to_string().into_bytes(),
            ValueRef::Real(number) => number.to_string().into_bytes(),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.to_vec(),
            ValueRef::Null => return Err(Error::Invalid("a record without a key".into())),
        });
    }
    let mut note = transaction.prepare("INSERT INTO umbel_outbox (effect, key) VALUES (?1, ?2)")?;
    for key in &keys {
        note.execute((effect as i8, key))?;
    }
    Ok(keys.len())
}
