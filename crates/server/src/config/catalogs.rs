//! What a domain has together with others: tables of the file, because there may be any number of them.
//!
//! ```toml
//! [catalogs.records]
//! filter = "records"
//! strategy = "delta"
//! source = { sql = "sqlite:records.db", table = "records", key = "number" }
//!
//! [domains.south]
//! address = "http://south.example:6381"
//! ```

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use umbel_core::url::Url;

use super::load::plain;
use super::value::{Bytes, Choice, Codec, Engine, File, Named, Number, Period, Web, Word};
use super::{Config, DAY, Error, GIB};
use crate::lookup::WITHIN_MAX;

/// Most connections to a source.
const CONNECTIONS_MAX: u64 = 64;
const CONNECTIONS: u32 = 8;

/// Records of one kind in all domains.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogConfig {
    /// Its name.
    pub name: String,
    /// The filter that knows its keys.
    pub filter: String,
    /// How filters of other domains are known here.
    pub strategy: Following,
    /// How often `pull` asks.
    pub interval: Duration,
    /// A copy that was not confirmed for so long says no more that a key is absent.
    pub stale_after: Duration,
    /// How long a lookup may take if nobody says.
    pub deadline: Duration,
    /// Memory for answers that are kept; 0 is none.
    pub kept_bytes: u64,
    /// Where they are kept together with other servers.
    pub kept_at: Option<Url>,
    /// How long a record is kept.
    pub kept_for: Duration,
    /// How long it is kept that nobody has a record.
    pub absent_for: Duration,
    /// Where this domain's own records are.
    pub source: Option<SourceConfig>,
}

/// How a filter of another domain is known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// A copy that gets every change.
    #[default]
    Delta,
    /// The same, and versions come by themselves.
    Push,
    /// A copy that asks for a new version on a timer.
    Pull,
    /// A copy that is told that there is a new version.
    Notify,
    /// No copy: it is asked over the network.
    Ask,
}

impl Named for Following {
    const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Delta, "delta", "delta"),
        (Self::Push, "push", "push"),
        (Self::Pull, "pull", "pull"),
        (Self::Notify, "notify", "notify"),
        (Self::Ask, "ask", "ask"),
    ];
}

/// Where records are.
#[derive(Clone, PartialEq, Eq)]
pub enum SourceConfig {
    /// In a database.
    Sql {
        /// Its address.
        address: String,
        /// How one is found.
        find: Find,
        /// Most connections to it.
        connections: u32,
    },
    /// At a server of HTTP.
    Http {
        /// The address, with `{key}` where the key goes.
        address: String,
        /// File whose first line is what the server knows us by.
        token_file: Option<PathBuf>,
        /// Authorities that vouch for it, PEM.
        ca: Option<PathBuf>,
    },
}

/// Addresses have passwords in them.
impl fmt::Debug for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql { find, connections, .. } => f
                .debug_struct("Sql")
                .field("find", find)
                .field("connections", connections)
                .finish_non_exhaustive(),
            Self::Http { .. } => f.debug_struct("Http").finish_non_exhaustive(),
        }
    }
}

/// How a record is found in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Find {
    /// The row of a table whose column has the key.
    Row {
        /// The table.
        table: String,
        /// The column.
        key: String,
        /// The columns that are read; all of them if none is named.
        columns: Vec<String>,
    },
    /// A query with `:key` in it.
    Query {
        /// The query.
        text: String,
        /// The column of its rows that has the key.
        key: Option<String>,
    },
}

/// Another domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// Its name.
    pub name: String,
    /// Where it is; empty if the registry says so.
    pub address: String,
    /// File whose first line is what its server knows us by.
    pub token_file: Option<PathBuf>,
    /// Authorities that vouch for it, PEM.
    pub ca: Option<PathBuf>,
    /// How its filters are known here, if not as those of all others.
    pub strategy: Option<Following>,
}

/// Makes an error of what is wrong, with the line in which it is.
type At<'a> = &'a dyn Fn(usize, String) -> Error;

/// A table of the file, read name by name.
struct Reader<'a, 'b> {
    /// As one would write it.
    name: String,
    table: &'a DeTable<'b>,
    offset: usize,
    at: At<'a>,
}

impl<'a, 'b> Reader<'a, 'b> {
    fn open(
        name: String,
        offset: usize,
        value: &'a Spanned<DeValue<'b>>,
        known: &[&str],
        at: At<'a>,
    ) -> Result<Self, Error> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(at(offset, format!("{name} is no table")));
        };
        if let Some(key) = table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
            let what =
                format!("{:?} is nothing that {name} has; there are {}", key.get_ref(), known.join(", "));
            return Err(at(key.span().start, what));
        }
        Ok(Self { name, table, offset, at })
    }

    fn find(&self, name: &str) -> Option<(usize, &'a Spanned<DeValue<'b>>)> {
        let found = self.table.iter().find(|(key, _)| key.get_ref() == name);
        found.map(|(key, value)| (key.span().start, value))
    }

    /// A value, if it is there.
    fn get<T>(&self, name: &str, codec: &impl Codec<T>) -> Result<Option<T>, Error> {
        let Some((offset, value)) = self.find(name) else { return Ok(None) };
        let place = format!("{}.{name}", self.name);
        let text = plain(value.get_ref()).ok_or_else(|| {
            (self.at)(offset, format!("{place} is a table or a date; it must be a plain value"))
        })?;
        let read =
            codec.parse(&text).map_err(|limit| (self.at)(offset, format!("{place} is {text:?}: {limit}")));
        read.map(Some)
    }

    fn or<T>(&self, name: &str, codec: &impl Codec<T>, default: T) -> Result<T, Error> {
        Ok(self.get(name, codec)?.unwrap_or(default))
    }

    /// Text that is not empty, if it is there.
    fn text(&self, name: &str) -> Result<Option<String>, Error> {
        self.get(name, &Text)
    }

    fn fail<T>(&self, what: &str) -> Result<T, Error> {
        Err((self.at)(self.offset, format!("{} {what}", self.name)))
    }
}

/// Any text but none.
struct Text;

impl Codec<String> for Text {
    fn parse(&self, text: &str) -> Result<String, String> {
        if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(text.to_owned()) }
    }

    fn print(&self, value: &String) -> String {
        value.clone()
    }
}

impl Config {
    /// Takes `catalogs` or `domains` of a file.
    pub(super) fn read_domains(
        &mut self,
        kind: &str,
        value: &Spanned<DeValue<'_>>,
        at: At<'_>,
    ) -> Result<(), Error> {
        let DeValue::Table(all) = value.get_ref() else {
            return Err(at(value.span().start, format!("{kind} has to be tables, such as [{kind}.name]")));
        };
        for (key, value) in all {
            let (name, offset) = (key.get_ref().as_ref(), key.span().start);
            let place = format!("{kind}.{name}");
            Word.parse(name).ok().filter(|name: &String| !name.is_empty()).ok_or_else(|| {
                at(offset, format!("{place:?}: letters, digits, dots, dashes and underscores make a name"))
            })?;
            match kind {
                "catalogs" => self.catalogs.push(catalog(name, place, offset, value, at)?),
                _ => self.domains.push(domain(name, place, offset, value, at)?),
            }
        }
        Ok(())
    }

    /// Says what does not go together.
    pub(super) fn check_domain(&self) -> Result<(), Error> {
        let fail = |text: String| Err(Error(text));
        let name = &self.domain;
        if name.is_empty() {
            let alone = ["domain_address", "domain_registry", "domain_lease"];
            let alone = alone.into_iter().find(|setting| self.is_given(setting));
            let tables = [("catalogs", self.catalogs.is_empty()), ("domains", self.domains.is_empty())];
            let tables = tables.into_iter().find(|(_, is_empty)| !is_empty).map(|(name, _)| name);
            return match alone.or(tables) {
                Some(setting) => fail(format!(
                    "{setting} is set, but domain is not: it names this deployment among others"
                )),
                None => Ok(()),
            };
        }
        if self.catalogs.is_empty() {
            return fail(format!(
                "domain is {name}, but the file has no table [catalogs.NAME]: what do the domains have together?"
            ));
        }
        if let Some(itself) = self.domains.iter().find(|other| other.name == *name) {
            return fail(format!("domains.{} is this domain itself; name only others", itself.name));
        }
        if let Some(nowhere) =
            self.domains.iter().find(|other| other.address.is_empty() && self.domain_registry.is_none())
        {
            return fail(format!(
                "domains.{} has no address, and there is no domain_registry that would tell it",
                nowhere.name
            ));
        }
        if self.domain_registry.is_some() {
            self.domain_advertised()?;
        }
        Ok(())
    }

    /// Where other domains reach this one.
    pub fn domain_advertised(&self) -> Result<String, Error> {
        if !self.domain_address.is_empty() {
            return Ok(self.domain_address.clone());
        }
        let address = self.bind.iter().find(|address| !address.is_unspecified());
        match (address, self.http_port) {
            (Some(address), port @ 1..) => {
                Ok(format!("http://{}", std::net::SocketAddr::new(*address, port)))
            }
            _ => Err(Error(
                "bind is every address, or http_port is 0; say with domain_address where other domains reach this one"
                    .into(),
            )),
        }
    }
}

fn catalog(
    name: &str,
    place: String,
    offset: usize,
    value: &Spanned<DeValue<'_>>,
    at: At<'_>,
) -> Result<CatalogConfig, Error> {
    let known = [
        "filter",
        "strategy",
        "interval",
        "stale_after",
        "deadline",
        "kept_bytes",
        "kept_at",
        "kept_for",
        "absent_for",
        "source",
    ];
    let reader = Reader::open(place, offset, value, &known, at)?;
    let (second, millisecond) = (Duration::from_secs(1), Duration::from_millis(1));
    let strategy = reader.or("strategy", &Choice, Following::default())?;
    // Copies that hear every change are confirmed often; the others as often as they ask.
    let stale_after = match strategy {
        Following::Delta | Following::Push | Following::Ask => 2 * second,
        Following::Pull | Following::Notify => 30 * second,
    };
    let catalog = CatalogConfig {
        name: name.to_owned(),
        filter: reader.text("filter")?.unwrap_or_else(|| name.to_owned()),
        strategy,
        interval: reader.or("interval", &Period(10 * millisecond, DAY), 5 * second)?,
        stale_after: reader.or("stale_after", &Period(100 * millisecond, DAY), stale_after)?,
        deadline: reader.or("deadline", &Period(millisecond, WITHIN_MAX), 2 * second)?,
        kept_bytes: reader.or("kept_bytes", &Bytes(0, 64 * GIB), 64 << 20)?,
        kept_at: reader.or("kept_at", &Engine, None)?,
        kept_for: reader.or("kept_for", &Period(Duration::ZERO, DAY), 60 * second)?,
        absent_for: reader.or("absent_for", &Period(Duration::ZERO, DAY), 10 * second)?,
        source: match reader.find("source") {
            Some((offset, value)) => Some(source(format!("{}.source", reader.name), offset, value, at)?),
            None => None,
        },
    };
    if catalog.kept_at.is_some() && catalog.kept_bytes == 0 {
        return reader.fail("has kept_at, and no kept_bytes: what is shared is kept here as well");
    }
    if catalog.strategy == Following::Pull && catalog.stale_after <= 2 * catalog.interval {
        return reader
            .fail("has a stale_after of less than two intervals: its copies would never be believed");
    }
    Ok(catalog)
}

fn source(
    place: String,
    offset: usize,
    value: &Spanned<DeValue<'_>>,
    at: At<'_>,
) -> Result<SourceConfig, Error> {
    let known = ["sql", "table", "key", "columns", "query", "connections", "http", "token_file", "ca"];
    let reader = Reader::open(place, offset, value, &known, at)?;
    let of_sql = ["table", "key", "columns", "query", "connections"];
    match (reader.text("sql")?, reader.text("http")?) {
        (Some(address), None) => {
            if reader.find("token_file").or(reader.find("ca")).is_some() {
                return reader.fail("has sql: token_file and ca are for http");
            }
            let key = reader.text("key")?;
            let columns = reader.text("columns")?.unwrap_or_default();
            let columns: Vec<String> = columns.split_whitespace().map(str::to_owned).collect();
            let find = match (reader.text("table")?, reader.text("query")?, key) {
                (Some(table), None, Some(key)) => Find::Row { table, key, columns },
                (None, Some(text), key) if columns.is_empty() && text.contains(":key") => {
                    Find::Query { text, key }
                }
                (None, Some(_), _) => {
                    return reader.fail("has a query: it has :key in it, and names its columns itself");
                }
                _ => return reader.fail("has sql: it needs table and key, or a query with :key in it"),
            };
            let connections = reader.or("connections", &Number(1, CONNECTIONS_MAX), CONNECTIONS)?;
            Ok(SourceConfig::Sql { address, find, connections })
        }
        (None, Some(address)) => {
            if let Some(name) = of_sql.into_iter().find(|name| reader.find(name).is_some()) {
                return reader.fail(&format!("has http: {name} is for sql"));
            }
            if address.matches("{key}").count() != 1 {
                return reader.fail("has an http address without {key} in it, once");
            }
            let (token_file, ca) = (reader.or("token_file", &File, None)?, reader.or("ca", &File, None)?);
            Ok(SourceConfig::Http { address, token_file, ca })
        }
        _ => reader.fail("names neither sql nor http, or both; records are in one place"),
    }
}

fn domain(
    name: &str,
    place: String,
    offset: usize,
    value: &Spanned<DeValue<'_>>,
    at: At<'_>,
) -> Result<DomainConfig, Error> {
    let reader = Reader::open(place, offset, value, &["address", "token_file", "ca", "strategy"], at)?;
    Ok(DomainConfig {
        name: name.to_owned(),
        address: reader.or("address", &Web, String::new())?,
        token_file: reader.or("token_file", &File, None)?,
        ca: reader.or("ca", &File, None)?,
        strategy: reader.get("strategy", &Choice)?,
    })
}
