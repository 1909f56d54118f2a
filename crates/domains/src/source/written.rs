//! Records in JSON, as servers tell them to each other.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value as Json, json};

use super::{Field, Record, Value};
use crate::remote::{key_of, written};

/// A record in JSON; none if it has a number that is none there.
pub(crate) fn record_written(record: &Record) -> Option<Json> {
    let field = |Field { column, value }: &Field| {
        let value = match value {
            Value::Null => Json::Null,
            Value::Int(number) => json!(number),
            Value::Uint(number) => json!(number),
            Value::Real(number) => json!(Some(*number).filter(|number| number.is_finite())?),
            Value::Text(text) => json!(text),
            // Not as a key, of which bytes that are text come back as text.
            Value::Bytes(bytes) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
        };
        Some(json!({ "column": column, "value": value }))
    };
    Some(match record {
        Record::Row(fields) => json!({ "fields": fields.iter().map(field).collect::<Option<Vec<_>>>()? }),
        Record::Body { kind, bytes } => json!({ "type": kind, "body": written(bytes) }),
    })
}

/// A record as servers write it in JSON; none if it is none.
pub(crate) fn record_of(record: &Json) -> Option<Record> {
    if let Some(fields) = record["fields"].as_array() {
        let field = |field: &Json| {
            Some(Field { column: field["column"].as_str()?.to_owned(), value: value_of(&field["value"])? })
        };
        return Some(Record::Row(fields.iter().map(field).collect::<Option<_>>()?));
    }
    let bytes = key_of(&record["body"])?;
    Some(Record::Body { kind: record["type"].as_str().map(str::to_owned), bytes: bytes.into() })
}

fn value_of(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => Value::Null,
        Json::String(text) => Value::Text(text.clone()),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::Uint(number),
            (None, None) => Value::Real(number.as_f64()?),
        },
        Json::Object(_) => Value::Bytes(key_of(value)?),
        Json::Bool(_) | Json::Array(_) => return None,
    })
}
