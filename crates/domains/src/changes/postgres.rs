//! An outbox beside the records, in PostgreSQL.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Row, Transaction};
use umbel_core::random::Random;
use umbel_load::sql::clients;

use super::claim::{self, Statements};
use super::{Batch, Effect, Outbox, check_key, checked_name, session};
use crate::source::Value;
use crate::{Error, Result};

/// What is there for the outbox, in the user's own database. Two that begin at the same time wait for each other.
const TABLES: &str = "
    SELECT pg_advisory_xact_lock(7091204301);
    CREATE TABLE IF NOT EXISTS umbel_outbox (
        number BIGSERIAL PRIMARY KEY, effect BIGINT NOT NULL, \"key\" BYTEA NOT NULL, batch BIGINT);
    CREATE INDEX IF NOT EXISTS umbel_outbox_batch ON umbel_outbox (batch);
    CREATE TABLE IF NOT EXISTS umbel_drain (
        one INTEGER PRIMARY KEY CHECK (one = 1), session BIGINT NOT NULL, batch BIGINT NOT NULL);";
/// How often a record is looked for that comes and goes while it is put.
const TRIES_MAX: usize = 10;

/// A database with an outbox. It waits while it is asked, and so may not be used where tasks are run.
pub struct PostgresOutbox {
    address: String,
    /// One connection, which is made again when it was lost.
    client: Mutex<Option<Client>>,
}

impl fmt::Debug for PostgresOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("PostgresOutbox").finish_non_exhaustive()
    }
}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Self {
        clients::of_postgres(&error).into()
    }
}

impl PostgresOutbox {
    /// The database at `postgres://user@host/database`, which gets the tables of an outbox if it has none.
    pub fn open(address: &str, random: &dyn Random) -> Result<Self> {
        let outbox = Self { address: address.to_owned(), client: Mutex::default() };
        let session = session(random);
        outbox.change(|transaction| {
            transaction.batch_execute(TABLES)?;
            transaction
                .execute("INSERT INTO umbel_drain VALUES (1, $1, 0) ON CONFLICT DO NOTHING", &[&session])?;
            Ok(())
        })?;
        Ok(outbox)
    }

    /// Makes changes in one transaction, all or none of them. Whoever has transactions of their own may use [`PostgresTable`] in them instead.
    pub fn change<T>(&self, work: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut client = self.client();
        let mut current = match client.take().filter(|client| !client.is_closed()) {
            Some(current) => current,
            None => clients::postgres(&self.address)?,
        };
        let mut transaction = current.transaction()?;
        let done = work(&mut transaction);
        // What fails is rolled back with the transaction.
        let done = match done {
            Ok(done) => transaction.commit().map(|()| done).map_err(Error::from),
            Err(error) => transaction.rollback().map_err(Error::from).and(Err(error)),
        };
        *client = Some(current);
        done
    }

    /// How many changes the filter was not told yet, or is being told.
    pub fn waiting(&self) -> Result<u64> {
        self.change(|transaction| claim::waiting(transaction))
    }

    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresOutbox {
    fn drop(&mut self) {
        // The client waits while it ends, which it may not do on a thread that runs tasks.
        if let Some(client) = self.client().take() {
            std::thread::spawn(move || drop(client));
        }
    }
}

impl Outbox for PostgresOutbox {
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

/// The same text with places that have numbers.
fn numbered(text: &str) -> String {
    let mut parts = text.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.enumerate().fold(first, |text, (number, part)| format!("{text}${}{part}", number + 1))
}

/// A whole number of any size.
fn number(row: &Row, column: usize) -> Result<i64> {
    Ok(match row.columns().get(column).map(|column| column.type_().clone()) {
        Some(Type::INT4) => row.try_get::<_, i32>(column)?.into(),
        _ => row.try_get(column)?,
    })
}

impl Statements for Transaction<'_> {
    const LOCKING: &'static str = " FOR UPDATE";

    fn run(&mut self, text: &str, numbers: &[i64]) -> Result<()> {
        let numbers: Vec<&(dyn ToSql + Sync)> = numbers.iter().map(|number| number as _).collect();
        self.execute(&numbered(text), &numbers)?;
        Ok(())
    }

    fn numbers(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, i64)>> {
        let numbers: Vec<&(dyn ToSql + Sync)> = numbers.iter().map(|number| number as _).collect();
        let rows = self.query(&numbered(text), &numbers)?;
        rows.iter().map(|row| Ok((number(row, 0)?, number(row, 1)?))).collect()
    }

    fn bytes(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, Vec<u8>)>> {
        let numbers: Vec<&(dyn ToSql + Sync)> = numbers.iter().map(|number| number as _).collect();
        let rows = self.query(&numbered(text), &numbers)?;
        rows.iter().map(|row| Ok((number(row, 0)?, row.try_get(1)?))).collect()
    }
}

/// A value as text, of whatever type its place is: the database reads it as it would read it in a statement.
#[derive(Debug)]
struct Written(Vec<u8>);

impl ToSql for Written {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        if *kind == Type::BYTEA {
            out.extend_from_slice(b"\\x");
            self.0.iter().for_each(|byte| out.extend_from_slice(format!("{byte:02x}").as_bytes()));
        } else {
            out.extend_from_slice(&self.0);
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

fn value(value: &Value) -> Option<Written> {
    Some(Written(match value {
        Value::Null => return None,
        Value::Int(number) => number.to_string().into_bytes(),
        Value::Uint(number) => number.to_string().into_bytes(),
        Value::Real(number) => number.to_string().into_bytes(),
        Value::Text(text) => text.clone().into_bytes(),
        Value::Bytes(bytes) => bytes.clone(),
    }))
}

/// A table of records, each with a key that no other one has.
#[derive(Clone, Debug)]
pub struct PostgresTable {
    name: String,
    key: String,
}

fn quoted(name: &str) -> Result<String> {
    Ok(format!("\"{}\"", checked_name(name)?.replace('"', "\"\"")))
}

impl PostgresTable {
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
        let mut values = vec![key_value(key)?];
        values.extend(columns.iter().map(|(_, given)| value(given)));
        let set = match names.is_empty() {
            true => format!("{column} = {column}"),
            false => {
                let places =
                    names.iter().enumerate().map(|(number, name)| format!("{name} = ${}", number + 2));
                places.collect::<Vec<_>>().join(", ")
            }
        };
        let update = format!("UPDATE {table} SET {set} WHERE {column} = $1 RETURNING {column}::text");
        let others: String = names.iter().map(|name| format!(", {name}")).collect();
        let places: String = (0..names.len()).map(|number| format!(", ${}", number + 2)).collect();
        let insert = format!(
            "INSERT INTO {table} ({column}{others}) VALUES ($1{places}) ON CONFLICT DO NOTHING RETURNING {column}::text"
        );
        for _ in 0..TRIES_MAX {
            if note(transaction, &update, &values, Effect::Changed)? > 0 {
                return Ok(Effect::Changed);
            }
            // Somebody else may have added it since then; that one is there to be changed as soon as it is seen.
            if note(transaction, &insert, &values, Effect::Added)? > 0 {
                return Ok(Effect::Added);
            }
        }
        Err(Error::Retry("a record that others add and erase at the same time".into()))
    }

    /// Erases a record; whether there was one.
    pub fn erase(&self, transaction: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let Self { name: table, key: column } = self;
        let delete = format!("DELETE FROM {table} WHERE {column} = $1 RETURNING {column}::text");
        Ok(note(transaction, &delete, &[key_value(key)?], Effect::Erased)? > 0)
    }
}

fn key_value(key: &[u8]) -> Result<Option<Written>> {
    check_key(key)?;
    Ok(Some(Written(key.to_vec())))
}

/// Runs a statement that gives the keys of the rows that it touched, and notes them as the table has them: that may be another text than was
/// asked with, as 7 is for `07`.
fn note(
    transaction: &mut Transaction<'_>,
    text: &str,
    values: &[Option<Written>],
    effect: Effect,
) -> Result<usize> {
    let statement = transaction.prepare(text)?;
    let is_bytes = statement.params().first() == Some(&Type::BYTEA);
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
    let rows = transaction.query(&statement, &values)?;
    for row in &rows {
        let key: Option<&str> = row.try_get(0)?;
        let key = key.ok_or_else(|| Error::Invalid("a record without a key".into()))?;
        let noted = "INSERT INTO umbel_outbox (effect, \"key\") VALUES ($1, $2)";
        let key = if is_bytes { unhexed(key)? } else { key.as_bytes().to_vec() };
        transaction.execute(noted, &[&i64::from(effect as i8), &key])?;
    }
    Ok(rows.len())
}

/// Bytes as the database writes them: `\\x00ff`.
fn unhexed(text: &str) -> Result<Vec<u8>> {
    let wrong = || Error::Corrupt("bytes that are not written as \\x00ff: bytea_output has to be hex".into());
    let digits = text.strip_prefix("\\x").map(str::as_bytes).filter(|digits| digits.len() % 2 == 0);
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.ok_or_else(wrong)?.chunks_exact(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect::<Option<_>>().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_get_numbers_and_bytes_are_read() {
        assert_eq!(numbered("a = ? AND b <= ?"), "a = $1 AND b <= $2");
        assert_eq!(numbered("nothing"), "nothing");
        assert_eq!(unhexed("\\x00fF").unwrap(), [0, 255]);
        assert!(["", "00ff", "\\x0", "\\x0g", "\\000"].iter().all(|bad| unhexed(bad).is_err()));
    }
}
