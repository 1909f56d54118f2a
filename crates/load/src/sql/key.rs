//! Which columns order the rows.

use super::statement::Column;
use super::value::Row;
use crate::limits::KEY_COLUMNS_MAX;
use crate::{Error, Result};

/// Columns in which no two rows are alike, as the catalog says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UniqueKey {
    pub(super) columns: Vec<Column>,
    /// Whether none of them may be NULL. Rows with NULL are alike for nobody, and are behind no value.
    pub(super) is_whole: bool,
}

/// Puts rows of a catalog together: the index, a column of it, whether that is never NULL; an index's rows one after another.
#[derive(Debug, Default)]
pub(super) struct Keys {
    found: Vec<UniqueKey>,
    index: Option<String>,
}

impl Keys {
    pub(super) fn take(&mut self, row: &Row) {
        let Some((index, column)) = row.word(0).zip(row.word(1)) else { return };
        let is_whole = row.number(2) == Some(1);
        match self.found.last_mut().filter(|_| self.index.as_deref() == Some(index)) {
            Some(key) => {
                key.columns.push(Column::plain(column));
                key.is_whole &= is_whole;
            }
            None => self.found.push(UniqueKey { columns: vec![Column::plain(column)], is_whole }),
        }
        self.index = Some(index.to_owned());
    }

    pub(super) fn found(self) -> Vec<UniqueKey> {
        self.found
    }
}

/// The columns that order a table's rows: those that the user names, if they do, or the first key that fits.
pub(super) fn choose(asked: &[String], unique: &[UniqueKey], table: &str) -> Result<Vec<Column>> {
    let names = |key: &UniqueKey| key.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    if asked.is_empty() {
        let whole = unique.iter().find(|key| key.is_whole && key.columns.len() <= KEY_COLUMNS_MAX);
        return whole.map(|key| key.columns.clone()).ok_or_else(|| {
            Error::Invalid(format!(
                "{table} has no primary key, and no unique one without NULL: rows are read in the order of one. \
                 Name columns that differ in every two rows with --query and --key"
            ))
        });
    }
    let fits = |key: &&UniqueKey| key.is_whole && names(key).iter().all(|name| asked.contains(name));
    if unique.iter().find(fits).is_some() {
        return Ok(asked.iter().map(Column::plain).collect());
    }
    let known: Vec<_> = unique.iter().filter(|key| key.is_whole).map(|key| names(key).join(",")).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join("; ") };
    Err(Error::Invalid(format!(
        "{} is no unique key of {table} without NULL, so rows would be missed; there are: {known}",
        asked.join(",")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(rows: &[(&str, &str, i64)]) -> Vec<UniqueKey> {
        let mut keys = Keys::default();
        for (index, column, is_whole) in rows {
            let mut row = Row::default();
            row.text(index.as_bytes());
            row.text(column.as_bytes());
            row.int(*is_whole);
            keys.take(&row);
        }
        keys.found()
    }

    fn chosen(asked: &[&str], unique: &[UniqueKey]) -> Result<String> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        let columns = choose(&asked, unique, "t")?;
        Ok(columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn the_first_key_without_null_is_taken_unless_another_is_named() {
        let unique = keys(&[
            ("n", "maybe", 0),
            ("p", "a", 1),
            ("p", "b", 1),
            ("u", "mail", 1),
            ("w", "x", 1),
            ("w", "y", 0),
        ]);
        assert_eq!(unique.len(), 4);
        assert_eq!(chosen(&[], &unique).unwrap(), "a,b");
        assert_eq!(chosen(&["mail"], &unique).unwrap(), "mail");
        assert_eq!(chosen(&["time", "mail"], &unique).unwrap(), "time,mail");
        for bad in [&["a"][..], &["maybe"], &["x", "y"], &["nothing"]] {
            let said = chosen(bad, &unique).unwrap_err().to_string();
            assert!(said.contains("a,b; mail"), "{said}");
        }
        assert!(chosen(&[], &keys(&[("n", "maybe", 0)])).is_err());
    }
}
