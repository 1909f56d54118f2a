//! An outbox beside the records, in MySQL and MariaDB.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use mysql::prelude::Queryable;
use mysql::{Conn, Params, Transaction, TxOpts, Value as Stored};
use umbel_core::random::Random;
use umbel_load::sql::clients;

use super::claim::{self, Statements};
use super::{Batch, Effect, Outbox, check_key, checked_name, session};
use crate::source::Value;
use crate::{Error, Result};

/// What is there for the outbox, in the user's own database.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS umbel_outbox (number BIGINT AUTO_INCREMENT PRIMARY KEY, effect BIGINT NOT NULL, \
     `key` MEDIUMBLOB NOT NULL, batch BIGINT, INDEX umbel_outbox_batch (batch)) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS umbel_drain (one INTEGER PRIMARY KEY CHECK (one = 1), session BIGINT NOT NULL, \
     batch BIGINT NOT NULL) ENGINE = InnoDB",
];
/// The error of a key that is there already.
const DUPLICATE: u16 = 1062;
/// How often a record is looked for that comes and goes while it is put.
const TRIES_MAX: usize = 10;
/// Names stand in double quotes, and who claims locks nothing that others are about to add.
const SETUP: [&str; 2] = [
    "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
];

/// A database with an outbox. It waits while it is asked.
pub struct MysqlOutbox {
    address: String,
    /// One connection, which is made again when it was lost.
    connection: Mutex<Option<Conn>>,
}

impl fmt::Debug for MysqlOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("MysqlOutbox").finish_non_exhaustive()
    }
}

impl From<mysql::Error> for Error {
    fn from(error: mysql::Error) -> Self {
        clients::of_mysql(&error).into()
    }
}

impl MysqlOutbox {
    /// The database at `mysql://user@host/database`, which gets the tables of an outbox if it has none.
    pub fn open(address: &str, random: &dyn Random) -> Result<Self> {
        let outbox = Self { address: address.to_owned(), connection: Mutex::default() };
        let mut connection = clients::mysql(address, &SETUP)?;
        // Each of these is a transaction of its own here, and may be done again.
        TABLES.iter().try_for_each(|table| connection.query_drop(table))?;
        connection.exec_drop("INSERT IGNORE INTO umbel_drain VALUES (1, ?, 0)", (session(random),))?;
        *outbox.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        Ok(outbox)
    }

    /// Makes changes in one transaction, all or none of them. Whoever has transactions of their own may use [`MysqlTable`] in them instead. Two
    /// that put new records at the same time may get into each other's way; then one of them fails and can be tried again.
    pub fn change<T>(&self, work: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => clients::mysql(&self.address, &SETUP)?,
        };
        let mut transaction = connection.start_transaction(TxOpts::default())?;
        let done = work(&mut transaction)?;
        transaction.commit()?;
        // One that fails on the way is not used again: nobody knows whether the connection or the work failed.
        *kept = Some(connection);
        Ok(done)
    }

    /// How many changes the filter was not told yet, or is being told.
    pub fn waiting(&self) -> Result<u64> {
        self.change(|transaction| claim::waiting(transaction))
    }
}

impl Outbox for MysqlOutbox {
    fn claim(&self) -> Result<Option<Batch>> {
        self.change(|transaction| match transaction.numbers(claim::ANY, &[])?.is_empty() {
            true => Ok(None),
            false => claim::claim(transaction),
        })
    }

    fn finish(&self, number: u64) -> Result<()> {
        self.change(|transaction| claim::finish(transaction, number))
    }
}

fn places(numbers: &[i64]) -> Params {
    match numbers.is_empty() {
        true => Params::Empty,
        false => Params::Positional(numbers.iter().map(|number| Stored::Int(*number)).collect()),
    }
}

impl Statements for Transaction<'_> {
    const LOCKING: &'static str = " FOR UPDATE";

    fn run(&mut self, text: &str, numbers: &[i64]) -> Result<()> {
        Ok(self.exec_drop(text, places(numbers))?)
    }

    fn numbers(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, i64)>> {
        Ok(self.exec(text, places(numbers))?)
    }

    fn bytes(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, Vec<u8>)>> {
        Ok(self.exec(text, places(numbers))?)
    }
}

/// A table of records, each with a key that no other one has.
#[derive(Clone, Debug)]
pub struct MysqlTable {
    name: String,
    key: String,
}

/// In the way that a connection need not be told of.
fn quoted(name: &str) -> Result<String> {
    Ok(format!("`{}`", checked_name(name)?.replace('`', "``")))
}

fn stored(value: &Value) -> Stored {
    match value {
        Value::Null => Stored::NULL,
        Value::Int(number) => Stored::Int(*number),
        Value::Uint(number) => Stored::UInt(*number),
        Value::Real(number) => Stored::Double(*number),
        Value::Text(text) => Stored::Bytes(text.clone().into_bytes()),
        Value::Bytes(bytes) => Stored::Bytes(bytes.clone()),
    }
}

impl MysqlTable {
    /// A table, and the column that has the key.
    pub fn new(name: &str, key: &str) -> Result<Self> {
        Ok(Self { name: quoted(name)?, key: quoted(key)? })
    }

    /// Adds a record, or gives one that is there other values; the outbox has it in the same transaction. Says which of both it was.
    pub fn put(
        &self,
        transaction: &mut Transaction<'_>,
        key: &[u8],
        columns: &[(&str, Value)],
    ) -> Result<Effect> {
        let Self { name: table, key: column } = self;
        let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect::<Result<_>>()?;
        let given: Vec<Stored> = columns.iter().map(|(_, value)| stored(value)).collect();
        let set: Vec<String> = names.iter().map(|name| format!("{name} = ?")).collect();
        let update = format!("UPDATE {table} SET {} WHERE {column} = ?", set.join(", "));
        let others: String = names.iter().map(|name| format!(", {name}")).collect();
        let places: String = names.iter().map(|_| ", ?").collect();
        let insert = format!("INSERT INTO {table} ({column}{others}) VALUES (?{places})");
        let value = Stored::Bytes(key.to_vec());
        for _ in 0..TRIES_MAX {
            let there = self.keys(transaction, key)?;
            if !there.is_empty() {
                if !names.is_empty() {
                    let values = given.iter().cloned().chain([value]).collect();
                    transaction.exec_drop(update, Params::Positional(values))?;
                }
                note(transaction, &there, Effect::Changed)?;
                return Ok(Effect::Changed);
            }
            let values = [value.clone()].into_iter().chain(given.iter().cloned()).collect();
            match transaction.exec_drop(&insert, Params::Positional(values)) {
                Ok(()) => {
                    let there = self.keys(transaction, key)?;
                    note(transaction, &there, Effect::Added)?;
                    return Ok(Effect::Added);
                }
                // Somebody else has added it since then.
                Err(mysql::Error::MySqlError(told)) if told.code == DUPLICATE => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Retry("a record that others add and erase at the same time".into()))
    }

    /// Erases a record; whether there was one.
    pub fn erase(&self, transaction: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let there = self.keys(transaction, key)?;
        // Only what is ours by now: others may add it at this moment.
        if there.is_empty() {
            return Ok(false);
        }
        let delete = format!("DELETE FROM {} WHERE {} = ?", self.name, self.key);
        transaction.exec_drop(delete, (key,))?;
        note(transaction, &there, Effect::Erased)?;
        Ok(true)
    }

    /// The keys that the database takes for this one, as the table has them, and nobody else until the transaction ends: that may be another
    /// text than was asked with, as 7 is for `07`.
    fn keys(&self, transaction: &mut Transaction<'_>, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        check_key(key)?;
        let Self { name: table, key: column } = self;
        let found: Vec<Stored> = transaction
            .exec(format!("SELECT {column} FROM {table} WHERE {column} = ? FOR UPDATE"), (key,))?;
        let bytes = |stored| {
            Ok(match stored {
                Stored::Bytes(bytes) => bytes,
                Stored::Int(number) => number.to_string().into_bytes(),
                Stored::UInt(number) => number.to_string().into_bytes(),
                other => {
                    return Err(Error::Invalid(format!("a key that is no number, text or bytes: {other:?}")));
                }
            })
        };
        found.into_iter().map(bytes).collect()
    }
}

/// Notes keys in the outbox.
fn note(transaction: &mut Transaction<'_>, keys: &[Vec<u8>], effect: Effect) -> Result<()> {
    let noted = "INSERT INTO umbel_outbox (effect, `key`) VALUES (?, ?)";
    keys.iter().try_for_each(|key| Ok(transaction.exec_drop(noted, (i64::from(effect as i8), key))?))
}
