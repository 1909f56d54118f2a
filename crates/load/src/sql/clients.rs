//! Databases' own clients by the same addresses, for whoever does more than read. Addresses mean the same everywhere: `tls=true` and its files,
//! and passwords from where a database's own tools look for them.

#[cfg(feature = "mysql")]
use super::mysql::Server as Mysql;
#[cfg(feature = "postgres")]
use super::postgres::Server as Postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::{Error, Result};

/// A connection to the server at `postgres://user@host/database`.
#[cfg(feature = "postgres")]
pub fn postgres(address: &str) -> Result<::postgres::Client> {
    Postgres::new(address)?.open()
}

/// What an error of PostgreSQL means to whoever may try again.
#[cfg(feature = "postgres")]
pub fn of_postgres(error: &::postgres::Error) -> Error {
    super::postgres::wrong(error)
}

/// A connection to the server at `mysql://user@host/database` or `mariadb://`, which is told this before anything else.
#[cfg(feature = "mysql")]
pub fn mysql(address: &str, first: &[&str]) -> Result<::mysql::Conn> {
    Mysql::new(address)?.open(first)
}

/// What an error of MySQL means to whoever may try again.
#[cfg(feature = "mysql")]
pub fn of_mysql(error: &::mysql::Error) -> Error {
    super::mysql::wrong(error)
}
