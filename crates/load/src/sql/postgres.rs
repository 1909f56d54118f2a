//! PostgreSQL. Values of keys go to and fro as text, which its types all have, and are made into their type in the statement:
//! so every type that can be ordered can order rows.

use std::time::Duration;

use postgres::config::SslMode;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::{ToSql, Type};
use postgres::{Client, Config, NoTls};
use umbel_client::Trust;

use super::key::{Keys, UniqueKey};
use super::postgres_tls::Tls;
use super::statement::{Column, Dialect, quoted};
use super::value::{Row, Value};
use super::{Connect, Database, trust};
use crate::limits::{SILENCE, SILENCE_PROBE_EVERY, SILENCE_PROBES};
use crate::{Error, Result};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// What the library takes if nobody says: two hours.
const KEEPALIVES_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
/// Nothing is written here, and what is read is written the same everywhere.
const SETUP: &str = "SET default_transaction_read_only = on; SET datestyle = 'ISO'; SET bytea_output = 'hex'";

/// A server.
pub(super) struct Server {
    config: Config,
    /// How to speak to it, if it is to be encrypted.
    tls: Option<Tls>,
}

impl Server {
    pub(super) fn new(address: &str) -> Result<Self> {
        let (address, trust) = trust::split(address)?;
        // What is wrong is said without the address, which may hold a password.
        let mut config: Config =
            address.parse().map_err(|error| Error::Invalid(format!("an address of PostgreSQL: {error}")))?;
        // Where its own tools look for it.
        if let (None, Ok(password)) = (config.get_password(), std::env::var("PGPASSWORD")) {
            config.password(password);
        }
        let is_asked = trust.is_some() || config.get_ssl_mode() == SslMode::Require;
        let tls = match (trust, is_asked) {
            (Some(trust), _) => Some(trust),
            (None, true) => Some(Trust::default()),
            (None, false) => None,
        };
        let tls = tls.map(|trust| trust.config().map(Tls)).transpose();
        let tls = tls.map_err(|error| Error::Invalid(format!("PostgreSQL: {error}")))?;
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, tls })
    }
}

impl Server {
    /// How it is connected to, so that nobody waits without end for a machine that is gone.
    fn patient(&self) -> Config {
        let mut config = self.config.clone();
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        // A machine that is gone says nothing. What the address says itself stays.
        if config.get_keepalives_idle() == KEEPALIVES_IDLE {
            config.keepalives_idle(SILENCE);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(SILENCE_PROBE_EVERY);
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(SILENCE_PROBES);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE + SILENCE_PROBE_EVERY * SILENCE_PROBES);
        }
        config.application_name("umbel");
        config
    }

    pub(super) fn open(&self) -> Result<Client> {
        let config = self.patient();
        let client = match &self.tls {
            Some(tls) => config.connect(tls.clone()),
            None => config.connect(NoTls),
        };
        client.map_err(|error| wrong(&error))
    }
}

impl Connect for Server {
    fn connect(&self) -> Result<Box<dyn Database>> {
        let mut client = self.open()?;
        client.batch_execute(SETUP).map_err(|error| wrong(&error))?;
        Ok(Box::new(Open { client }))
    }
}

struct Open {
    client: Client,
}

/// What an error means to whoever may try again.
pub(super) fn wrong(error: &postgres::Error) -> Error {
    let Some(told) = error.as_db_error() else {
        // Without a word of the server it is the connection, or what we asked of the library.
        let mut why = error.to_string();
        if let Some(cause) = std::error::Error::source(error) {
            why = format!("{why}: {cause}");
        }
        // A certificate that is not to be trusted will not be later.
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
        let is_io = cause.is_some_and(|cause| cause.kind() != std::io::ErrorKind::InvalidData);
        let message = format!("PostgreSQL: {why}");
        return if error.is_closed() || is_io { Error::Retry(message) } else { Error::Invalid(message) };
    };
    let message = format!("PostgreSQL: {} ({})", told.message(), told.code().code());
    // Connections that break, servers that end or start, conflicts with recovery, too many clients.
    let passes = ["08", "57P", "40", "53"];
    if passes.iter().any(|class| told.code().code().starts_with(class)) {
        Error::Retry(message)
    } else {
        Error::Invalid(message)
    }
}

fn parameter(value: &Value) -> Box<dyn ToSql + Sync> {
    match value {
        Value::Int(number) => Box::new(number.to_string()),
        Value::Uint(number) => Box::new(number.to_string()),
        Value::Text(text) => Box::new(text.clone()),
        Value::Blob(bytes) => Box::new(bytes.clone()),
    }
}

/// The name of a table as a value of a catalog's statement.
fn table_name(schema: Option<&str>, table: &str) -> Result<Value> {
    let table = quoted(Dialect::Postgres, table)?;
    let Some(schema) = schema else { return Ok(Value::Text(table)) };
    Ok(Value::Text(format!("{}.{table}", quoted(Dialect::Postgres, schema)?)))
}

impl Database for Open {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn columns(&mut self, empty: &str) -> Result<Vec<Column>> {
        let statement = self.client.prepare(empty).map_err(|error| wrong(&error))?;
        let column = |column: &postgres::Column| {
            let kind = column.type_();
            let cast = format!(
                "{}.{}",
                quoted(Dialect::Postgres, kind.schema())?,
                quoted(Dialect::Postgres, kind.name())?
            );
            let is_bytes = *kind == Type::BYTEA;
            Ok(Column { cast: Some(cast), is_bytes, ..Column::plain(column.name()) })
        };
        statement.columns().iter().map(column).collect()
    }

    fn unique(&mut self, schema: Option<&str>, table: &str) -> Result<Vec<UniqueKey>> {
        let text = "SELECT i.indexrelid::text, a.attname::text, a.attnotnull::int::text \
            FROM pg_catalog.pg_index i \
            CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) \
            JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
            WHERE i.indrelid = pg_catalog.to_regclass($1::text) AND i.indisunique AND i.indisvalid \
            AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts \
            ORDER BY i.indisprimary DESC, i.indexrelid, k.place";
        let mut keys = Keys::default();
        self.catalog(text, &[table_name(schema, table)?], &mut |row| keys.take(row))?;
        Ok(keys.found())
    }

    fn about_rows(&mut self, schema: Option<&str>, table: &str) -> Result<Option<u64>> {
        // What the last ANALYZE found. Of a table that is cut into partitions, that of all of them.
        let text = "SELECT pg_catalog.sum(c.reltuples)::bigint::text FROM pg_catalog.pg_class c \
            WHERE c.oid = pg_catalog.to_regclass($1::text) OR c.oid IN \
            (SELECT relid FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass($1::text)) WHERE isleaf)";
        let mut rows = None;
        self.catalog(text, &[table_name(schema, table)?], &mut |row| {
            rows = row.number(0).and_then(|rows| u64::try_from(rows).ok()).filter(|rows| *rows > 0);
        })?;
        Ok(rows)
    }

    fn rows(
        &mut self,
        statement: &str,
        values: &[Value],
        each: &mut dyn FnMut(&mut Row) -> Result<bool>,
    ) -> Result<()> {
        let values: Vec<_> = values.iter().map(parameter).collect();
        let values = values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        let mut rows = self.client.query_raw(statement, values).map_err(|error| wrong(&error))?;
        let mut row = Row::default();
        while let Some(found) = rows.next().map_err(|error| wrong(&error))? {
            row.clear();
            for (number, column) in found.columns().iter().enumerate() {
                let failed = |error: postgres::Error| wrong(&error);
                if *column.type_() == Type::BYTEA {
                    match found.try_get::<_, Option<&[u8]>>(number).map_err(failed)? {
                        Some(bytes) => row.blob(bytes),
                        None => row.null(),
                    }
                } else if *column.type_() == Type::INT4 {
                    match found.try_get::<_, Option<i32>>(number).map_err(failed)? {
                        Some(value) => row.int(value.into()),
                        None => row.null(),
                    }
                } else {
                    match found.try_get::<_, Option<&str>>(number).map_err(failed)? {
                        Some(text) => row.text(text.as_bytes()),
                        None => row.null(),
                    }
                }
            }
            if !each(&mut row)? {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_waited_for_without_end() {
        let config = Server::new("postgres://me@h/db").unwrap().patient();
        assert!(config.get_keepalives());
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(15));
        assert_eq!(config.get_keepalives_interval(), Some(Duration::from_secs(5)));
        assert_eq!(
            (config.get_keepalives_retries(), config.get_connect_timeout()),
            (Some(3), Some(&CONNECT))
        );
        assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(30)));
        let told = Server::new("postgres://me@h/db?keepalives_idle=7").unwrap().patient();
        assert_eq!(told.get_keepalives_idle(), Duration::from_secs(7));
    }
}
