//! Tables and queries, read by ranges of a unique key: `WHERE k > last ORDER BY k LIMIT n`, never by OFFSET.
//!
//! | file | subject |
//! | --- | --- |
//! | `sql/statement.rs` | the text of statements: quoted names and places for values, nothing else |
//! | `sql/value.rs` | values of keys, and how bookmarks write them |
//! | `sql/key.rs` | which columns order the rows |
//! | `sql/split.rs` | where a table may be cut |
//! | `sql/source.rs` | the source: parts, cursors |
//! | `sql/record.rs`, `marks.rs` | one record by its key, for whoever looks a key up |
//! | `sql/clients.rs` | databases' own clients by the same addresses |
//! | `sql/trust.rs`, `postgres_tls.rs`, `mysql_tls.rs` | connections that are encrypted |
//! | `sql/sqlite.rs`, `postgres.rs`, `mysql.rs` | one for each database: rows and catalogs |

pub mod clients;
mod key;
mod marks;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "mysql")]
mod mysql_tls;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_tls;
mod record;
mod source;
mod split;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod trust;
mod value;

use umbel_core::url::Url;

use crate::{Error, Result};

use key::UniqueKey;
pub use record::{Finder, Record, Records, Wanted};
pub use source::SqlSource;
use statement::{Column, Dialect};
pub use value::Datum;
use value::{Row, Value};

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// A table, perhaps of another schema.
    Table {
        /// The schema, if it is not the usual one.
        schema: Option<String>,
        /// Its name.
        name: String,
    },
    /// A statement of the user's own that gives rows.
    Query(String),
}

impl Relation {
    /// A table by the name that people write: `urls` or `shop.urls`.
    pub fn table(name: &str) -> Self {
        match name.split_once('.') {
            Some((schema, name)) => Self::Table { schema: Some(schema.to_owned()), name: name.to_owned() },
            None => Self::Table { schema: None, name: name.to_owned() },
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Table { schema: Some(schema), name } => format!("{schema}.{name}"),
            Self::Table { schema: None, name } => name.clone(),
            Self::Query(_) => "a query".into(),
        }
    }
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Where rows come from.
    pub relation: Relation,
    /// The columns that make a key for the filter.
    pub columns: Vec<String>,
    /// What stands between the values of several columns.
    pub separator: String,
    /// The columns that order the rows and differ in every two of them; found out, unless it is a query.
    pub key: Vec<String>,
}

/// A connection to a database: what differs between them, and no more.
trait Database: Send {
    /// How it writes statements.
    fn dialect(&self) -> Dialect;

    /// The columns of a relation, from a statement that gives no rows of it.
    fn columns(&mut self, empty: &str) -> Result<Vec<Column>>;

    /// The unique keys of a table, with the one that it calls primary first.
    fn unique(&mut self, schema: Option<&str>, table: &str) -> Result<Vec<UniqueKey>>;

    /// About how many rows a table has, if it is known without counting.
    fn about_rows(&mut self, schema: Option<&str>, table: &str) -> Result<Option<u64>>;

    /// Hands rows to `each` as they come, until that has enough.
    fn rows(
        &mut self,
        statement: &str,
        values: &[Value],
        each: &mut dyn FnMut(&mut Row) -> Result<bool>,
    ) -> Result<()>;

    /// Hands all rows that a catalog has to `each`.
    fn catalog(&mut self, statement: &str, values: &[Value], each: &mut dyn FnMut(&Row)) -> Result<()> {
        self.rows(statement, values, &mut |row| {
            each(row);
            Ok(true)
        })
    }
}

/// Makes connections to one database.
trait Connect: Send + Sync {
    fn connect(&self) -> Result<Box<dyn Database>>;
}

/// Whether an address is that of a database.
pub fn is_address(text: &str) -> bool {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    matches!(scheme, "sqlite" | "postgres" | "postgresql" | "mysql" | "mariadb")
}

/// The database at an address, and the address without its secrets.
fn connect_to(address: &str) -> Result<(Box<dyn Connect>, String)> {
    let shown =
        |scheme: &str| Url::parse(address).map_or_else(|_| format!("{scheme}://"), |url| url.to_string());
    match address.split_once(':') {
        Some(("sqlite", path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            #[cfg(feature = "sqlite")]
            return Ok((Box::new(sqlite::File::new(path)?), format!("sqlite:{path}")));
            #[cfg(not(feature = "sqlite"))]
            Err(lacks("SQLite", "sqlite", path))
        }
        Some((scheme @ ("postgres" | "postgresql"), _)) => {
            #[cfg(feature = "postgres")]
            return Ok((Box::new(postgres::Server::new(address)?), shown(scheme)));
            #[cfg(not(feature = "postgres"))]
            Err(lacks("PostgreSQL", "postgres", &shown(scheme)))
        }
        Some((scheme @ ("mysql" | "mariadb"), _)) => {
            #[cfg(feature = "mysql")]
            return Ok((Box::new(mysql::Server::new(address)?), shown(scheme)));
            #[cfg(not(feature = "mysql"))]
            Err(lacks("MySQL and MariaDB", "mysql", &shown(scheme)))
        }
        _ => Err(Error::Invalid(
            "a database is sqlite:FILE, postgres://user@host/database or mysql://user@host/database".into(),
        )),
    }
}

#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
fn lacks(what: &str, feature: &str, shown: &str) -> Error {
    Error::Invalid(format!("{shown}: this build lacks {what}; rebuild with --features {feature}"))
}
