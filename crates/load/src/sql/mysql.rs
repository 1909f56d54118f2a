//! MySQL and MariaDB.

use std::time::Duration;

use mysql::consts::ColumnType;
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Params};

use super::key::{Keys, UniqueKey};
use super::mysql_tls::Tls;
use super::statement::{Column, Dialect};
use super::value::{Row, Value};
use super::{Connect, Database, trust};
use crate::limits::{ANSWER_MAX, SILENCE, SILENCE_PROBE_EVERY, SILENCE_PROBES};
use crate::{Error, Result};

/// How long a connection may take to come about.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// The character set of what is no text.
const BINARY: u16 = 63;
/// Errors that pass: too many connections, a server that ends, locks that others have, a transaction that gave way.
const PASSING: [u16; 5] = [1040, 1053, 1205, 1213, 1927];

/// A server.
pub(super) struct Server {
    options: Opts,
    /// How to speak to it, if it is to be encrypted.
    tls: Option<Tls>,
}

impl Server {
    pub(super) fn new(address: &str) -> Result<Self> {
        let (address, trust) = trust::split(address)?;
        let rest = address.split_once("://").map_or("", |(_, rest)| rest);
        let wrong = |error| Error::Invalid(format!("an address of MySQL: {error}"));
        let options = Opts::from_url(&format!("mysql://{rest}")).map_err(wrong)?;
        // Where its own tools look for it.
        let password = options.get_pass().map(str::to_owned).or_else(|| std::env::var("MYSQL_PWD").ok());
        let tls = trust.map(|trust| Tls::new(&trust, &options.get_ip_or_hostname(), options.get_tcp_port()));
        Ok(Self { options: patient(options, password), tls: tls.transpose()? })
    }
}

/// Options with which nobody is waited for without end. What the address says itself stays.
fn patient(options: Opts, password: Option<String>) -> Opts {
    let milliseconds = |time: Duration| time.as_millis() as u32;
    let alive = options.get_tcp_keepalive_time_ms().or(Some(milliseconds(SILENCE)));
    let read = options.get_read_timeout().copied().or(Some(ANSWER_MAX));
    let write = options.get_write_timeout().copied().or(Some(ANSWER_MAX));
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let (every, probes) = (
        options.get_tcp_keepalive_probe_interval_secs().or(Some(SILENCE_PROBE_EVERY.as_secs() as u32)),
        options.get_tcp_keepalive_probe_count().or(Some(SILENCE_PROBES)),
    );
    #[cfg(target_os = "linux")]
    let untaken = options
        .get_tcp_user_timeout_ms()
        .or(Some(milliseconds(SILENCE + SILENCE_PROBE_EVERY * SILENCE_PROBES)));
    let builder = OptsBuilder::from_opts(options)
        .pass(password)
        .tcp_connect_timeout(Some(CONNECT))
        .tcp_keepalive_time_ms(alive)
        .read_timeout(read)
        .write_timeout(write);
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let builder = builder.tcp_keepalive_probe_interval_secs(every).tcp_keepalive_probe_count(probes);
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout_ms(untaken);
    builder.into()
}

impl Server {
    /// Connects, and says this before anything else.
    pub(super) fn open(&self, first: &[&str]) -> Result<Conn> {
        let options = OptsBuilder::from_opts(self.options.clone()).init(first.to_vec());
        let Some(tls) = &self.tls else { return Conn::new(options).map_err(|error| wrong(&error)) };
        let tunnel = tls.open()?;
        let options = options.socket(Some(tunnel.socket().display().to_string())).prefer_socket(false);
        Conn::new(options).map_err(|error| match &error {
            // What the server itself says is more than that it then hung up.
            mysql::Error::MySqlError(_) => wrong(&error),
            _ => tunnel.failure().unwrap_or_else(|| wrong(&error)),
        })
    }
}

impl Connect for Server {
    fn connect(&self) -> Result<Box<dyn Database>> {
        let connection = self.open(&["SET SESSION TRANSACTION READ ONLY", "SET time_zone = '+00:00'"])?;
        Ok(Box::new(Open { connection }))
    }
}

struct Open {
    connection: Conn,
}

/// What an error means to whoever may try again.
pub(super) fn wrong(error: &mysql::Error) -> Error {
    let message = format!("MySQL: {error}");
    match error {
        mysql::Error::IoError(_) | mysql::Error::DriverError(_) | mysql::Error::CodecError(_) => {
            Error::Retry(message)
        }
        mysql::Error::MySqlError(told) if PASSING.contains(&told.code) => Error::Retry(message),
        _ => Error::Invalid(message),
    }
}

fn parameter(value: &Value) -> mysql::Value {
    match value {
        Value::Int(number) => mysql::Value::Int(*number),
        Value::Uint(number) => mysql::Value::UInt(*number),
        Value::Text(text) => mysql::Value::Bytes(text.clone().into_bytes()),
        Value::Blob(bytes) => mysql::Value::Bytes(bytes.clone()),
    }
}

/// The name of a table as values of a catalog's statement; an empty schema is the usual one.
fn table_name(schema: Option<&str>, table: &str) -> [Value; 2] {
    [schema.unwrap_or_default(), table].map(|name| Value::Text(name.to_owned()))
}

/// Puts a value into a row. Times are text, which the server compares as times.
fn put(row: &mut Row, value: &mysql::Value, is_binary: bool) {
    use mysql::Value as Got;
    match value {
        Got::NULL => row.null(),
        Got::Int(number) => row.int(*number),
        Got::UInt(number) => row.uint(*number),
        Got::Float(number) => row.real(f64::from(*number)),
        Got::Double(number) => row.real(*number),
        Got::Bytes(bytes) if is_binary => row.blob(bytes),
        Got::Bytes(bytes) => row.text(bytes),
        Got::Date(year, month, day, hour, minute, second, micro) => {
            let mut text = format!("{year:04}-{month:02}-{day:02}");
            if (*hour, *minute, *second, *micro) != (0, 0, 0, 0) {
                text.push_str(&format!(" {hour:02}:{minute:02}:{second:02}"));
            }
            if *micro != 0 {
                text.push_str(&format!(".{micro:06}"));
            }
            row.text(text.as_bytes());
        }
        Got::Time(is_negative, days, hours, minutes, seconds, micro) => {
            let (sign, hours) = (if *is_negative { "-" } else { "" }, u32::from(*hours) + days * 24);
            row.text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}.{micro:06}").as_bytes());
        }
    }
}

impl Database for Open {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn columns(&mut self, empty: &str) -> Result<Vec<Column>> {
        let statement = self.connection.prep(empty).map_err(|error| wrong(&error))?;
        let column = |column: &mysql::Column| {
            // Compared with text, a decimal number would be taken for a float, and be another one.
            let is_decimal = column.column_type() == ColumnType::MYSQL_TYPE_NEWDECIMAL;
            let cast = is_decimal.then(|| "DECIMAL(65,30)".to_owned());
            Column { cast, ..Column::plain(column.name_str()) }
        };
        Ok(statement.columns().iter().map(column).collect())
    }

    fn unique(&mut self, schema: Option<&str>, table: &str) -> Result<Vec<UniqueKey>> {
        // An index of the beginning of a text is no key.
        let text = "SELECT s.INDEX_NAME, s.COLUMN_NAME, \
            CASE WHEN c.IS_NULLABLE = 'NO' AND s.SUB_PART IS NULL THEN 1 ELSE 0 END \
            FROM information_schema.STATISTICS s JOIN information_schema.COLUMNS c \
            ON c.TABLE_SCHEMA = s.TABLE_SCHEMA AND c.TABLE_NAME = s.TABLE_NAME AND c.COLUMN_NAME = s.COLUMN_NAME \
            WHERE s.TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND s.TABLE_NAME = ? AND s.NON_UNIQUE = 0 \
            ORDER BY s.INDEX_NAME <> 'PRIMARY', s.INDEX_NAME, s.SEQ_IN_INDEX";
        let mut keys = Keys::default();
        self.catalog(text, &table_name(schema, table), &mut |row| keys.take(row))?;
        Ok(keys.found())
    }

    fn about_rows(&mut self, schema: Option<&str>, table: &str) -> Result<Option<u64>> {
        let text = "SELECT TABLE_ROWS FROM information_schema.TABLES \
            WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?";
        let mut rows = None;
        self.catalog(text, &table_name(schema, table), &mut |row| {
            rows = row.number(0).and_then(|rows| u64::try_from(rows).ok());
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
        let values = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
        let rows = self.connection.exec_iter(statement, values).map_err(|error| wrong(&error))?;
        let is_binary: Vec<bool> =
            rows.columns().as_ref().iter().map(|column| column.character_set() == BINARY).collect();
        let mut row = Row::default();
        for found in rows {
            let found = found.map_err(|error| wrong(&error))?;
            row.clear();
            for (number, is_binary) in is_binary.iter().enumerate() {
                match found.as_ref(number) {
                    Some(value) => put(&mut row, value, *is_binary),
                    None => row.null(),
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
        let server = Server::new("mysql://me@h/db").unwrap().options;
        assert_eq!(
            (server.get_read_timeout(), server.get_write_timeout()),
            (Some(&ANSWER_MAX), Some(&ANSWER_MAX))
        );
        assert_eq!(server.get_tcp_keepalive_time_ms(), Some(15_000));
        #[cfg(target_os = "linux")]
        {
            assert_eq!(server.get_tcp_keepalive_probe_interval_secs(), Some(5));
            assert_eq!(
                (server.get_tcp_keepalive_probe_count(), server.get_tcp_user_timeout_ms()),
                (Some(3), Some(30_000))
            );
        }
        let told = Server::new("mysql://me@h/db?tcp_keepalive_time_ms=7000").unwrap().options;
        assert_eq!(told.get_tcp_keepalive_time_ms(), Some(7_000));
    }

    /// A server that is there and says nothing, which no question of the system's finds out.
    #[test]
    fn a_server_that_says_nothing_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut server = Server::new(&format!("mysql://me@{}/db", listener.local_addr().unwrap())).unwrap();
        let soon = Some(Duration::from_millis(200));
        server.options = OptsBuilder::from_opts(server.options).read_timeout(soon).into();
        let begun = std::time::Instant::now();
        assert!(matches!(server.open(&[]), Err(Error::Retry(_))));
        assert!(begun.elapsed() < CONNECT);
    }
}
