//! Where keys come from, as a command is told.

use std::error::Error;

use umbel_load::Source;
use umbel_load::engines::{self, MessagePart, Messages, Names};
use umbel_load::files::{self, Csv, Files, Format};
use umbel_load::sql::{self, Asked, Relation, SqlSource};

/// A source and how keys stand in it. Flatten it into a command's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// Files or patterns of them (packed with gzip or zstd if need be), - for standard input, objects: s3://bucket/folder or a pattern, a database: sqlite:FILE, postgres://user@host/database, mysql://user@host/database, a Redis: redis://host/database, or a topic: kafka://host/topic
    #[arg(required = true, value_name = "SOURCE", env = "UMBEL_SOURCE", hide_env_values = true)]
    source: Vec<String>,
    /// How keys stand in files; else their names say it
    #[arg(long, value_parser = ["lines", "csv", "tsv", "json", "parquet"])]
    format: Option<String>,
    /// The column with the keys, of CSV, Parquet or a table; several with commas are one key together
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    column: Vec<String>,
    /// The field with the keys, of objects of JSON in lines or messages: url, or request.url
    #[arg(long, value_name = "PATH")]
    field: Option<String>,
    /// What stands between the values of several columns in a key
    #[arg(long, default_value = ":", value_name = "TEXT")]
    separator: String,
    /// What stands between fields of CSV
    #[arg(long, value_parser = parse_delimiter, value_name = "CHARACTER")]
    delimiter: Option<u8>,
    /// The first record of CSV is one like the others: --column takes numbers from 1
    #[arg(long)]
    no_header: bool,
    /// The table of a database, perhaps with its schema
    #[arg(long, conflicts_with = "query", value_name = "[SCHEMA.]NAME")]
    table: Option<String>,
    /// A query of a database, in place of a table; it needs --key
    #[arg(long, value_name = "SQL")]
    query: Option<String>,
    /// The columns that order the rows and differ in every two of them; else the table's primary key
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    key: Vec<String>,
    /// The set of Redis whose members are the keys; else they are the names of all its keys
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
    /// What names or members in Redis have to fit, as SCAN reads it
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
    /// What of a message of Kafka is the key, or has it in a --field; else its value
    #[arg(long, value_parser = ["key", "value"], value_name = "PART")]
    message: Option<String>,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ if text == "\\t" => Ok(b'\t'),
        _ => Err("a delimiter is one character of ASCII; \\t is a tabulator".into()),
    }
}

impl Place {
    pub(crate) fn open(&self) -> Result<Box<dyn Source>, Box<dyn Error>> {
        let engine = match &*self.source {
            [address] => engines::scheme(address),
            _ => None,
        };
        self.check(engine)?;
        match (&*self.source, engine) {
            ([address], Some("redis")) => {
                let (set, pattern) = (self.set.clone(), self.pattern.clone());
                Ok(engines::open_redis(address, Names { set, pattern })?)
            }
            ([address], Some(_)) => {
                let is_key = self.message.as_deref() == Some("key");
                let part = if is_key { MessagePart::Key } else { MessagePart::Value };
                let field = self.field.as_deref().map(files::field).transpose()?;
                Ok(engines::open_kafka(address, Messages { part, field })?)
            }
            ([address], None) if sql::is_address(address) => Ok(Box::new(self.database(address)?)),
            _ => Ok(Box::new(Files::new(&self.source, self.file_format()?)?)),
        }
    }

    /// Refuses what is about another kind of source: somebody believes that it is heeded.
    fn check(&self, engine: Option<&str>) -> Result<(), Box<dyn Error>> {
        let is_sql = engine.is_none() && self.source.iter().any(|address| sql::is_address(address));
        if !is_sql && (self.table.is_some() || self.query.is_some() || !self.key.is_empty()) {
            return Err("--table, --query and --key are for databases".into());
        }
        if engine != Some("redis") && (self.set.is_some() || self.pattern.is_some()) {
            return Err("--set and --match are for Redis".into());
        }
        if engine != Some("kafka") && self.message.is_some() {
            return Err("--message is for Kafka".into());
        }
        if engine == Some("redis") && self.field.is_some() {
            return Err("--field is for JSON, in files and in messages".into());
        }
        if engine.is_some() && (self.format.is_some() || !self.column.is_empty()) {
            return Err("--format and --column are for files and tables".into());
        }
        Ok(())
    }

    fn database(&self, address: &str) -> Result<SqlSource, Box<dyn Error>> {
        let relation = match (&self.table, &self.query) {
            (Some(table), _) => Relation::table(table),
            (None, Some(query)) => Relation::Query(query.clone()),
            (None, None) => return Err("a database needs --table or --query".into()),
        };
        if self.column.is_empty() {
            return Err("a table needs --column: which one has the keys?".into());
        }
        let asked = Asked {
            relation,
            columns: self.column.clone(),
            separator: self.separator.clone(),
            key: self.key.clone(),
        };
        Ok(SqlSource::open(address, asked)?)
    }

    fn file_format(&self) -> Result<Format, Box<dyn Error>> {
        let format = self.format.as_deref().unwrap_or_else(|| self.guess());
        let columns = || match &*self.column {
            [] => Err(format!("{format} needs --column: which one has the keys?")),
            columns => Ok(columns.to_vec()),
        };
        Ok(match format {
            "csv" | "tsv" => {
                let usual = if format == "tsv" { b'\t' } else { b',' };
                Format::csv(Csv {
                    columns: columns()?,
                    separator: self.separator.clone(),
                    delimiter: self.delimiter.unwrap_or(usual),
                    has_header: !self.no_header,
                })?
            }
            "json" => {
                Format::json(self.field.as_deref().ok_or("json needs --field: which one has the keys?")?)?
            }
            "parquet" => Format::Parquet { column: columns()?.join(".") },
            _ if !self.column.is_empty() => return Err("lines have no columns; is it --format csv?".into()),
            _ => Format::Lines,
        })
    }

    /// What is asked for says more than names do.
    fn guess(&self) -> &'static str {
        match Format::guess(&self.source[0]) {
            "lines" if self.field.is_some() => "json",
            "lines" if !self.column.is_empty() => "csv",
            format => format,
        }
    }
}
