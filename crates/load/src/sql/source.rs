//! The source: a table in ranges of its key, or a query in one.

use serde::{Deserialize, Serialize};

use super::statement::{Bound, Column, Range, Statement, Writer};
use super::value::{Row, Value, decode, encode};
use super::{Asked, Connect, Database, Relation, connect_to, key, split};
use crate::limits::{BATCH_KEYS_MAX, KEY_COLUMNS_MAX};
use crate::{Batch, Bookmark, Cursor, Error, Part, Result, Source};

/// A range with fewer rows than this is not worth a connection of its own.
const RANGE_ROWS_MIN: u64 = BATCH_KEYS_MAX as u64;

/// A table or a query of a database.
pub struct SqlSource {
    connect: Box<dyn Connect>,
    shown: String,
    asked: Asked,
    key: Vec<Column>,
    others: Vec<Column>,
    writer: Writer,
    rows: Option<u64>,
}

/// A part, as checkpoints have it: keys as bookmarks write them.
#[derive(Serialize, Deserialize)]
struct Bounds {
    after: Option<String>,
    up_to: Option<String>,
}

impl SqlSource {
    /// Connects, and finds out whether what is asked for can be read.
    pub fn open(address: &str, asked: Asked) -> Result<Self> {
        let (connect, shown) = connect_to(address)?;
        let invalid = |why: String| Err(Error::Invalid(format!("{shown}: {why}")));
        if !(1..=KEY_COLUMNS_MAX).contains(&asked.columns.len()) || asked.key.len() > KEY_COLUMNS_MAX {
            return invalid(format!("a key has 1 to {KEY_COLUMNS_MAX} columns"));
        }
        let mut database = connect.connect()?;
        let writer = Writer::new(database.dialect(), &asked.relation)?;
        let known = database.columns(&writer.empty())?;
        let name = asked.relation.name();
        let find = |wanted: &String| {
            known.iter().find(|column| column.name == *wanted).cloned().ok_or_else(|| {
                let names: Vec<_> = known.iter().map(|column| column.name.as_str()).collect();
                Error::Invalid(format!("{name} has no column {wanted:?}; it has {}", names.join(", ")))
            })
        };
        let others: Vec<Column> = asked.columns.iter().map(find).collect::<Result<_>>()?;
        let (key, rows) = match &asked.relation {
            Relation::Query(_) if asked.key.is_empty() => {
                return invalid(
                    "a query needs --key: the columns that order its rows and differ in every two".into(),
                );
            }
            Relation::Query(_) => {
                let key: Vec<Column> = asked.key.iter().map(find).collect::<Result<_>>()?;
                let mut has_null = false;
                database.rows(&writer.any_null(&key)?, &[], &mut |_| {
                    has_null = true;
                    Ok(false)
                })?;
                if has_null {
                    return invalid(format!(
                        "rows have NULL in {}, and would not be read",
                        asked.key.join(", ")
                    ));
                }
                (key, None)
            }
            Relation::Table { schema, name: table } => {
                asked.key.iter().map(find).collect::<Result<Vec<_>>>()?;
                let unique = database.unique(schema.as_deref(), table)?;
                let chosen = key::choose(&asked.key, &unique, &name)?;
                // What the statement says of a column is more than the catalog of keys does.
                let typed = |column: Column| if column.is_special { Ok(column) } else { find(&column.name) };
                let key = chosen.into_iter().map(typed).collect::<Result<_>>()?;
                (key, database.about_rows(schema.as_deref(), table)?)
            }
        };
        Ok(Self { connect, shown, asked, key, others, writer, rows })
    }

    /// One row of the key alone, at one end or behind a guess.
    fn one(
        &self,
        database: &mut dyn Database,
        range: Range,
        values: &Values<'_>,
    ) -> Result<Option<Vec<Value>>> {
        let statement = self.writer.rows(&self.key, &[], Range { limit: 1, ..range })?;
        let mut found = None;
        database.rows(&statement.text, &values.of(&statement), &mut |row| {
            found = Some(row.key(self.key.len())?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// Keys that cut the table into about so many ranges.
    fn cuts(&self, wanted: usize) -> Result<Vec<Vec<Value>>> {
        if wanted < 2 || matches!(self.asked.relation, Relation::Query(_)) {
            return Ok(Vec::new());
        }
        let mut database = self.connect.connect()?;
        let (none, backwards) = (Values::default(), Range { is_backwards: true, ..Range::default() });
        let first = self.one(&mut *database, Range::default(), &none)?;
        let last = self.one(&mut *database, backwards, &none)?;
        let Some((first, last)) = first.zip(last) else { return Ok(Vec::new()) };
        let mut cuts: Vec<Vec<Value>> = Vec::new();
        for guess in split::guesses(&first[0], &last[0], wanted - 1) {
            let least = [guess];
            let after = cuts.last().unwrap_or(&first).clone();
            let range = Range { has_least: true, has_after: true, ..Range::default() };
            let values = Values { after: Some(&after), least: Some(&least), ..Values::default() };
            // A type that does not take the guess is read in one range; so is what lies behind the last row.
            match self.one(&mut *database, range, &values) {
                Ok(Some(cut)) if cut != last => cuts.push(cut),
                Ok(_) | Err(Error::Invalid(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(cuts)
    }
}

/// Values for the places of a statement.
#[derive(Clone, Copy, Debug, Default)]
struct Values<'a> {
    after: Option<&'a [Value]>,
    up_to: Option<&'a [Value]>,
    least: Option<&'a [Value]>,
}

impl Values<'_> {
    fn of(&self, statement: &Statement) -> Vec<Value> {
        let value = |(bound, column): &(Bound, usize)| {
            let values = match bound {
                Bound::After => self.after,
                Bound::UpTo => self.up_to,
                Bound::Least => self.least,
            };
            values.and_then(|values| values.get(*column)).cloned()
        };
        // A statement has places only for bounds that are there.
        statement.places.iter().filter_map(value).collect()
    }
}

impl Source for SqlSource {
    fn name(&self) -> String {
        format!("{} of {}", self.asked.relation.name(), self.shown)
    }

    fn identity(&self) -> String {
        let key: Vec<_> = self.key.iter().map(|column| &column.name).collect();
        format!("{} {:?} by {key:?}", self.shown, self.asked)
    }

    fn parts(&self, wanted: usize) -> Result<Vec<Part>> {
        let most = self.rows.map_or(wanted, |rows| (rows / RANGE_ROWS_MIN).min(wanted as u64) as usize);
        let cuts = self.cuts(most)?;
        let ends: Vec<Option<String>> = cuts
            .iter()
            .map(|cut| encode(cut).map(|text| Some(text.as_str().to_owned())))
            .collect::<Result<_>>()?;
        let count = ends.len() + 1;
        let rows = self.rows.map(|rows| rows.div_ceil(count as u64));
        let part = |number: usize| {
            let after = number.checked_sub(1).and_then(|before| ends[before].clone());
            // The last range is open, so that rows that come while it is read are read too.
            let bounds = Bounds { after, up_to: ends.get(number).cloned().flatten() };
            let bounds = serde_json::to_string(&bounds).map_err(|error| Error::Invalid(error.to_string()))?;
            let name =
                if count == 1 { self.name() } else { format!("{} [{} of {count}]", self.name(), number + 1) };
            Ok(Part { name, bounds, bytes: None, rows })
        };
        (0..count).map(part).collect()
    }

    fn open(&self, part: &Part, after: Option<&Bookmark>) -> Result<Box<dyn Cursor>> {
        let bounds: Bounds = serde_json::from_str(&part.bounds)
            .map_err(|error| Error::Corrupt(format!("a range of {}: {error}", self.name())))?;
        let columns = self.key.len();
        let key = |text: &str| decode(text, columns);
        let after = match after {
            Some(bookmark) => Some(key(bookmark.as_str())?),
            None => bounds.after.as_deref().map(key).transpose()?,
        };
        let up_to = bounds.up_to.as_deref().map(key).transpose()?;
        Ok(Box::new(Rows {
            database: self.connect.connect()?,
            writer: self.writer.clone(),
            key: self.key.clone(),
            others: self.others.clone(),
            separator: self.asked.separator.clone(),
            name: self.name(),
            after,
            up_to,
            last: Row::default(),
        }))
    }

    fn tail<'a>(&self, parts: &'a [Part]) -> Option<&'a Part> {
        parts.last()
    }
}

/// Reads a range, a batch with each statement.
struct Rows {
    database: Box<dyn Database>,
    writer: Writer,
    key: Vec<Column>,
    others: Vec<Column>,
    separator: String,
    name: String,
    after: Option<Vec<Value>>,
    up_to: Option<Vec<Value>>,
    /// The row before the one that has come.
    last: Row,
}

impl Cursor for Rows {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        let range = Range {
            has_after: self.after.is_some(),
            has_up_to: self.up_to.is_some(),
            // One more than is taken: if it has the same key, others may have it too, and would be missed.
            limit: BATCH_KEYS_MAX + 1,
            ..Range::default()
        };
        let statement = self.writer.rows(&self.key, &self.others, range)?;
        let values = Values { after: self.after.as_deref(), up_to: self.up_to.as_deref(), least: None };
        let (columns, separator, last, name) = (self.key.len(), &self.separator, &mut self.last, &self.name);
        let mut is_first = true;
        self.database.rows(&statement.text, &values.of(&statement), &mut |row| {
            if !std::mem::take(&mut is_first) && row.same_key(last, columns) {
                return Err(Error::Invalid(format!(
                    "{name}: two rows have the same --key, so others might be missed: add columns to it"
                )));
            }
            if batch.is_full() {
                return Ok(false);
            }
            row.push_into(batch, columns, separator)
                .map_err(|error| Error::Invalid(format!("{name}: {error}")))?;
            std::mem::swap(row, last);
            Ok(true)
        })?;
        if batch.is_empty() {
            return Ok(None);
        }
        let key = self.last.key(columns)?;
        let bookmark = encode(&key)?;
        self.after = Some(key);
        Ok(Some(bookmark))
    }
}
