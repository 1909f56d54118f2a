use async_trait::async_trait;
use serde_json::{Value as Json, json};
use umbel_client::{Server, escaped};

use super::{Record, Source, record_of};
use crate::limits::{DEADLINE_MAX, KEY_BYTES_MAX};
use crate::remote::written;
use crate::{Error, Result};

/// Records of a domain that its own server fetches: where they are, and with which password, is the domain's own affair.
#[derive(Debug)]
pub struct PeerRecords {
    server: Server,
    path: String,
}

impl PeerRecords {
    /// Records of a catalog, as the server of a domain calls it.
    pub fn new(server: Server, catalog: &str) -> Self {
        Self { server, path: format!("/v1/lookup/{}", escaped(catalog)) }
    }
}

#[async_trait]
impl Source for PeerRecords {
    async fn fetch(&self, key: &[u8]) -> Result<Option<Record>> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::Invalid(format!("a key of {} bytes; at most {KEY_BYTES_MAX}", key.len())));
        }
        let question = json!({ "key": written(key), "fetch": true, "local": true });
        let told = self.server.post(self.path.clone(), &question, DEADLINE_MAX).await?;
        read(&told)
    }
}

/// What a server says of its own domain. No record is one only if it is certain that there is none.
fn read(told: &Json) -> Result<Option<Record>> {
    let corrupt = || Error::Corrupt("an answer of another domain that is no record".into());
    match (&told["record"], told["absent"].as_bool()) {
        (Json::Null, Some(true)) => Ok(None),
        (Json::Null, Some(false)) => {
            let failed =
                told["steps"].as_array().into_iter().flatten().find_map(|step| step["failed"].as_str());
            Err(Error::Retry(match failed {
                Some(why) => format!("the domain cannot fetch it: {why}"),
                None => "the domain does not know, or names no source".into(),
            }))
        }
        (record, _) => record_of(record).map(Some).ok_or_else(corrupt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    #[test]
    fn records_are_read_and_nothing_else() {
        let told = json!({ "absent": false, "record": { "domain": "south", "fields": [
            { "column": "a", "value": "text" }, { "column": "b", "value": -7 }, { "column": "c", "value": u64::MAX },
            { "column": "d", "value": 0.5 }, { "column": "e", "value": null }, { "column": "f", "value": { "base64": "/wA=" } },
        ] } });
        let values = [
            Value::Text("text".into()),
            Value::Int(-7),
            Value::Uint(u64::MAX),
            Value::Real(0.5),
            Value::Null,
            Value::Bytes(vec![0xff, 0]),
        ];
        let Record::Row(fields) = read(&told).unwrap().unwrap() else { panic!("a row") };
        assert_eq!(fields.into_iter().map(|field| field.value).collect::<Vec<_>>(), values);
        let body = json!({ "record": { "domain": "south", "type": "text/plain", "body": "hello" } });
        let expected = Record::Body { kind: Some("text/plain".into()), bytes: "hello".into() };
        assert_eq!(read(&body).unwrap(), Some(expected));
        assert_eq!(read(&json!({ "absent": true, "record": null })).unwrap(), None);
        let unknown = json!({ "absent": false, "record": null, "steps": [{ "failed": "no route" }] });
        assert!(read(&unknown).unwrap_err().to_string().contains("no route"));
        for bad in [
            json!({}),
            json!([]),
            json!({ "record": {} }),
            json!({ "record": { "body": 1 } }),
            json!({ "absent": 1 }),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
