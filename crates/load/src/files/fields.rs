//! One field of a JSON object, without building the rest of it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Names that are told of an object that lacks the field.
const NAMES_MAX: usize = 20;

/// What an object has in a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A text, or a number or a truth as it is written.
    Text(Cow<'a, str>),
    /// It says that there is nothing.
    Null,
    /// It has no such field, but these.
    Missing(Vec<String>),
}

/// Finds a field by the names on the way to it. If a name stands twice in an object, the last one counts, as in most parsers.
pub(super) fn find<'a>(line: &'a [u8], path: &[String]) -> Result<Found<'a>, String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = Way(path).deserialize(&mut json).and_then(|found| json.end().map(|()| found));
    match found.map_err(|error| error.to_string())? {
        Ok(raw) => text_of(raw, path),
        Err(names) => Ok(Found::Missing(names)),
    }
}

fn text_of<'a>(raw: &'a RawValue, path: &[String]) -> Result<Found<'a>, String> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => {
            let plain = &text[1..text.len() - 1];
            if !plain.contains('\\') {
                return Ok(Found::Text(Cow::Borrowed(plain)));
            }
            serde_json::from_str(text)
                .map(|text: String| Found::Text(Cow::Owned(text)))
                .map_err(|error| error.to_string())
        }
        Some(b'n') => Ok(Found::Null),
        Some(b'{' | b'[') => Err(format!("{} is no text and no number", path.join("."))),
        _ => Ok(Found::Text(Cow::Borrowed(text))),
    }
}

/// Goes along a path; everything beside it is passed over.
struct Way<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Way<'_> {
    type Value = Result<&'de RawValue, Vec<String>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Way<'_> {
    type Value = Result<&'de RawValue, Vec<String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((name, rest)) = self.0.split_first() else {
            return Err(serde::de::Error::custom("a field without a name"));
        };
        let (mut found, mut others) = (None, Vec::new());
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if key.0 != name.as_str() {
                if others.len() < NAMES_MAX {
                    others.push(key.0.into_owned());
                }
                map.next_value::<IgnoredAny>()?;
            } else if rest.is_empty() {
                found = Some(Ok(map.next_value::<&RawValue>()?));
            } else {
                // What is no object has no fields.
                let raw = map.next_value::<&RawValue>()?;
                found = Some(match raw.get().as_bytes().first() {
                    Some(b'{') => {
                        let mut inner = serde_json::Deserializer::from_str(raw.get());
                        Way(rest).deserialize(&mut inner).map_err(serde::de::Error::custom)?
                    }
                    _ => Err(Vec::new()),
                });
            }
        }
        Ok(found.unwrap_or(Err(others)))
    }
}

/// A name that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, path: &str) -> Result<String, String> {
        let path: Vec<_> = path.split('.').map(str::to_owned).collect();
        find(line.as_bytes(), &path).map(|found| match found {
            Found::Text(text) => text.into_owned(),
            Found::Null => "<null>".into(),
            Found::Missing(names) => format!("<missing among {}>", names.join(",")),
        })
    }

    #[test]
    fn fields_are_found_as_a_parser_would() {
        for (line, path, expected) in [
            (r#"{"a": "x", "b": 2}"#, "a", "x"),
            (r#"{"a": "x", "b": 2}"#, "b", "2"),
            (r#"{"b": -1.50e3}"#, "b", "-1.50e3"),
            (r#"{"b": 12345678901234567890123}"#, "b", "12345678901234567890123"),
            (r#"{"a": {"b": {"c": "deep"}}, "c": "shallow"}"#, "a.b.c", "deep"),
            (r#"{"a": "q\"\u00e9\n"}"#, "a", "q\"é\n"),
            (r#"{"\u0061": true}"#, "a", "true"),
            (r#"{"a": 1, "a": 2}"#, "a", "2"),
            (r#"{"a": null}"#, "a", "<null>"),
            (r#"{"a": ""}"#, "a", ""),
            (r#"{"x": 1, "y": 2}"#, "a", "<missing among x,y>"),
            (r#"{"a": 5}"#, "a.b", "<missing among >"),
            (r#" { "a" : "x" } "#, "a", "x"),
        ] {
            assert_eq!(found(line, path).as_deref(), Ok(expected), "{line} {path}");
        }
        for bad in ["", "[]", "{", r#"{"a": 1} x"#, r#"{"a": [1]}"#, r#"{"a": {}}"#, "{'a': 1}", "5"] {
            assert!(found(bad, "a").is_err(), "{bad}");
        }
    }
}
