//! The text of statements. Names are quoted, and values are never in it.

use super::Relation;
use crate::{Error, Result};

/// How a database writes what others write otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

/// A column as statements have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    /// What a text has to be made into before it is compared with the column, where it goes to and fro as text.
    pub(super) cast: Option<String>,
    /// Whether its values are bytes, which no text can stand for.
    pub(super) is_bytes: bool,
    /// Whether it is a name of the database's own, which is not quoted.
    pub(super) is_special: bool,
}

impl Column {
    pub(super) fn plain(name: impl Into<String>) -> Self {
        Self { name: name.into(), cast: None, is_bytes: false, is_special: false }
    }
}

/// What the relation is called in statements.
const ROWS: &str = "umbel_rows";

/// A statement and, for each of its places, which value of which bound goes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) places: Vec<(Bound, usize)>,
}

/// The ends of a range: rows behind the first, up to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    After,
    UpTo,
    /// A guess that the first column is not below.
    Least,
}

/// Writes statements about one relation.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    dialect: Dialect,
    from: String,
}

/// Which rows are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub(super) has_after: bool,
    pub(super) has_up_to: bool,
    pub(super) has_least: bool,
    pub(super) is_backwards: bool,
    pub(super) limit: usize,
}

/// A name as a statement has it.
pub(super) fn quoted(dialect: Dialect, name: &str) -> Result<String> {
    if name.is_empty() || name.contains('\0') {
        return Err(Error::Invalid(format!("{name:?} is no name of a table or column")));
    }
    let quote = if dialect == Dialect::Mysql { '`' } else { '"' };
    Ok(format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}"))))
}

impl Writer {
    pub(super) fn new(dialect: Dialect, relation: &Relation) -> Result<Self> {
        let from = match relation {
            Relation::Table { schema: None, name } => format!("{} AS {ROWS}", quoted(dialect, name)?),
            Relation::Table { schema: Some(schema), name } => {
                format!("{}.{} AS {ROWS}", quoted(dialect, schema)?, quoted(dialect, name)?)
            }
            // A comment at its end must not swallow the bracket.
            Relation::Query(text) => format!("({}\n) AS {ROWS}", text.trim().trim_end_matches(';')),
        };
        Ok(Self { dialect, from })
    }

    /// A statement that gives columns and no rows.
    pub(super) fn empty(&self) -> String {
        format!("SELECT * FROM {} LIMIT 0", self.from)
    }

    /// Whether a row has NULL in one of these columns.
    pub(super) fn any_null(&self, columns: &[Column]) -> Result<String> {
        let each = columns.iter().map(|column| Ok(format!("{} IS NULL", self.name(column)?)));
        let each: Vec<String> = each.collect::<Result<_>>()?;
        Ok(format!("SELECT 1 FROM {} WHERE {} LIMIT 1", self.from, each.join(" OR ")))
    }

    /// Some rows with these columns; where a value is given, only those whose key is that value, for which there is one place.
    pub(super) fn found(&self, key: Option<&Column>, columns: &[Column], limit: usize) -> Result<String> {
        let selected: Vec<String> =
            columns.iter().map(|column| self.selected(column)).collect::<Result<_>>()?;
        let mut text = format!("SELECT {} FROM {}", selected.join(", "), self.from);
        if let Some(key) = key {
            let name = self.name(key)?;
            match self.dialect {
                // Text and bytes are never alike there, and a column may hold either.
                Dialect::Sqlite => text.push_str(&format!(" WHERE {name} IN (?1, CAST(?1 AS BLOB))")),
                _ => {
                    let place = self.place(&mut Vec::new(), Bound::Least, 0, key);
                    text.push_str(&format!(" WHERE {name} = {place}"));
                }
            }
        }
        text.push_str(&format!(" LIMIT {limit}"));
        Ok(text)
    }

    /// The rows of a range, in their order: the key's columns and then the others.
    pub(super) fn rows(&self, key: &[Column], others: &[Column], range: Range) -> Result<Statement> {
        let names: Vec<String> = key.iter().map(|column| self.name(column)).collect::<Result<_>>()?;
        let selected = key.iter().chain(others).map(|column| self.selected(column));
        let selected: Vec<String> = selected.collect::<Result<_>>()?;
        let (mut places, mut conditions) = (Vec::new(), Vec::new());
        if range.has_least {
            let place = self.place(&mut places, Bound::Least, 0, &key[0]);
            conditions.push(format!("{} >= {place}", names[0]));
        }
        if range.has_after {
            conditions.push(self.compared(key, &names, Bound::After, &mut places));
        }
        if range.has_up_to {
            conditions.push(self.compared(key, &names, Bound::UpTo, &mut places));
        }
        let mut text = format!("SELECT {} FROM {}", selected.join(", "), self.from);
        if !conditions.is_empty() {
            text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        let order = if range.is_backwards { " DESC" } else { "" };
        let ordered: Vec<String> = names.iter().map(|name| format!("{name}{order}")).collect();
        text.push_str(&format!(" ORDER BY {} LIMIT {}", ordered.join(", "), range.limit));
        Ok(Statement { text, places })
    }

    /// With the relation before it: `ORDER BY` would take a bare name for what is selected under it, which may be its text.
    fn name(&self, column: &Column) -> Result<String> {
        let name = if column.is_special { column.name.clone() } else { quoted(self.dialect, &column.name)? };
        Ok(format!("{ROWS}.{name}"))
    }

    fn selected(&self, column: &Column) -> Result<String> {
        let name = self.name(column)?;
        let is_text = self.dialect == Dialect::Postgres && column.cast.is_some() && !column.is_bytes;
        Ok(if is_text { format!("{name}::text") } else { name })
    }

    fn place(&self, places: &mut Vec<(Bound, usize)>, bound: Bound, column: usize, of: &Column) -> String {
        places.push((bound, column));
        match (self.dialect, &of.cast) {
            (Dialect::Postgres, Some(cast)) if !of.is_bytes => format!("(${}::text)::{cast}", places.len()),
            (Dialect::Postgres, _) => format!("${}", places.len()),
            (Dialect::Mysql, Some(cast)) => format!("CAST(? AS {cast})"),
            (Dialect::Sqlite | Dialect::Mysql, _) => "?".into(),
        }
    }

    /// All columns of the key against one end of the range.
    fn compared(
        &self,
        key: &[Column],
        names: &[String],
        bound: Bound,
        places: &mut Vec<(Bound, usize)>,
    ) -> String {
        let (sign, or_equal) = if bound == Bound::After { (">", "") } else { ("<", "=") };
        if self.dialect != Dialect::Mysql || key.len() == 1 {
            let marks: Vec<_> = key
                .iter()
                .enumerate()
                .map(|(number, column)| self.place(places, bound, number, column))
                .collect();
            return match key.len() {
                1 => format!("{} {sign}{or_equal} {}", names[0], marks[0]),
                _ => format!("({}) {sign}{or_equal} ({})", names.join(", "), marks.join(", ")),
            };
        }
        // MySQL finds no range of an index in rows that are compared as a whole. The first condition gives it one.
        let first = self.place(places, bound, 0, &key[0]);
        let mut text = format!("{} {sign}= {first} AND (", names[0]);
        for last in 0..key.len() {
            if last > 0 {
                text.push_str(" OR ");
            }
            text.push('(');
            for number in 0..last {
                let mark = self.place(places, bound, number, &key[number]);
                text.push_str(&format!("{} = {mark} AND ", names[number]));
            }
            let mark = self.place(places, bound, last, &key[last]);
            let or_equal = if last + 1 == key.len() { or_equal } else { "" };
            text.push_str(&format!("{} {sign}{or_equal} {mark})", names[last]));
        }
        text.push(')');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range() -> Range {
        Range { has_after: true, has_up_to: true, limit: 5, ..Range::default() }
    }

    #[test]
    fn names_cannot_get_out_of_their_quotes() {
        assert_eq!(quoted(Dialect::Sqlite, "a\"; DROP TABLE x; --").unwrap(), "\"a\"\"; DROP TABLE x; --\"");
        assert_eq!(quoted(Dialect::Mysql, "a`b\"c").unwrap(), "`a``b\"c`");
        assert!(quoted(Dialect::Postgres, "").is_err() && quoted(Dialect::Postgres, "a\0").is_err());
    }

    #[test]
    fn each_database_gets_the_statement_that_it_can_use_an_index_for() {
        let relation = Relation::table("shop.urls");
        let key = [Column::plain("tenant"), Column::plain("id")];
        let url = [Column::plain("url")];
        let text = |dialect: Dialect, key: &[Column], range: Range| {
            Writer::new(dialect, &relation).unwrap().rows(key, &url, range).unwrap()
        };
        let made = text(Dialect::Sqlite, &key, range());
        assert_eq!(
            made.text.replace("umbel_rows.", "r."),
            "SELECT r.\"tenant\", r.\"id\", r.\"url\" FROM \"shop\".\"urls\" AS umbel_rows WHERE (r.\"tenant\", r.\"id\") > (?, ?) \
             AND (r.\"tenant\", r.\"id\") <= (?, ?) ORDER BY r.\"tenant\", r.\"id\" LIMIT 5"
        );
        use Bound::{After, UpTo};
        assert_eq!(made.places, [(After, 0), (After, 1), (UpTo, 0), (UpTo, 1)]);
        let made = text(Dialect::Mysql, &key, Range { has_up_to: false, ..range() });
        assert_eq!(
            made.text.replace("umbel_rows.", "r."),
            "SELECT r.`tenant`, r.`id`, r.`url` FROM `shop`.`urls` AS umbel_rows WHERE r.`tenant` >= ? AND ((r.`tenant` > ?) \
             OR (r.`tenant` = ? AND r.`id` > ?)) ORDER BY r.`tenant`, r.`id` LIMIT 5"
        );
        assert_eq!(made.places, [(After, 0), (After, 0), (After, 0), (After, 1)]);
        let uuid = Column { cast: Some("\"pg_catalog\".\"uuid\"".into()), ..Column::plain("id") };
        let made =
            text(Dialect::Postgres, &[uuid], Range { has_after: false, is_backwards: true, ..range() });
        assert_eq!(
            made.text.replace("umbel_rows.", "r."),
            "SELECT r.\"id\"::text, r.\"url\" FROM \"shop\".\"urls\" AS umbel_rows \
             WHERE r.\"id\" <= ($1::text)::\"pg_catalog\".\"uuid\" ORDER BY r.\"id\" DESC LIMIT 5"
        );
    }

    #[test]
    fn a_query_is_a_table_of_its_own() {
        let relation = Relation::Query(" SELECT id, url FROM urls -- all\n; ".into());
        let writer = Writer::new(Dialect::Sqlite, &relation).unwrap();
        assert_eq!(
            writer.empty(),
            "SELECT * FROM (SELECT id, url FROM urls -- all\n\n) AS umbel_rows LIMIT 0"
        );
        let null = writer.any_null(&[Column::plain("id")]).unwrap();
        assert!(null.ends_with("WHERE umbel_rows.\"id\" IS NULL LIMIT 1"), "{null}");
    }
}
