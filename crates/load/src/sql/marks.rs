//! Where the key goes in a query of the user's own: `:key`.

use super::statement::Dialect;
use crate::limits::MARKS_MAX;
use crate::{Error, Result};

const MARK: &str = ":key";

/// The query as its database writes it, and how many values it takes. Quoted parts are left as they are.
pub(super) fn written(dialect: Dialect, query: &str) -> Result<(String, usize)> {
    let (mut text, mut marks, mut quote, mut last) = (String::with_capacity(query.len() + 16), 0, None, ' ');
    let mut rest = query;
    while let Some(letter) = rest.chars().next() {
        let behind = rest.strip_prefix(MARK).filter(|behind| {
            let goes_on = |letter: char| letter.is_alphanumeric() || letter == '_';
            // `::key` is a type of PostgreSQL's.
            quote.is_none() && last != ':' && !behind.starts_with(goes_on)
        });
        if let Some(behind) = behind {
            marks += 1;
            text.push_str(match dialect {
                Dialect::Sqlite => "?1",
                Dialect::Mysql => "?",
                Dialect::Postgres => "$1::text",
            });
            (rest, last) = (behind, 'y');
            continue;
        }
        match quote {
            Some(open) if open == letter => quote = None,
            None if matches!(letter, '\'' | '"' | '`') => quote = Some(letter),
            _ => {}
        }
        text.push(letter);
        (rest, last) = (&rest[letter.len_utf8()..], letter);
    }
    if !(1..=MARKS_MAX).contains(&marks) {
        return Err(Error::Invalid(format!(
            "a query with {marks} places for the key; it is written {MARK}, 1 to {MARKS_MAX} times"
        )));
    }
    // The others number their places, and one value is enough for all.
    Ok((text, if dialect == Dialect::Mysql { marks } else { 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_where_they_are_meant() {
        let query = "SELECT ':key', \":key\", `:key`, a::key, :keys FROM t WHERE a = :key OR b = lower(:key)";
        for (dialect, first, places) in
            [(Dialect::Sqlite, "?1", 1), (Dialect::Mysql, "?", 2), (Dialect::Postgres, "$1::text", 1)]
        {
            let (text, values) = written(dialect, query).unwrap();
            let expected = format!("a = {first} OR b = lower({first})");
            assert!(
                text.ends_with(&expected)
                    && text.starts_with("SELECT ':key', \":key\", `:key`, a::key, :keys"),
                "{text}"
            );
            assert_eq!(values, places);
        }
        let too_many = "x = :key ".repeat(MARKS_MAX + 1);
        for bad in ["SELECT 1", "SELECT ':key'", "", &too_many] {
            assert!(written(Dialect::Sqlite, bad).is_err());
        }
    }
}
