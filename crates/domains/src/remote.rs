//! Filters of domains that are asked over the network, because they are not copied here or the copy is too old to say.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use umbel_client::Server;
use umbel_client::limits::REQUEST_KEYS_MAX;
use umbel_core::engine::{Answer, Consistency};

use crate::limits::DEADLINE_MAX;
use crate::{EngineFilter, Error, Result};

/// A domain's filter somewhere else.
#[async_trait]
pub trait Remote: Debug + Send + Sync + 'static {
    /// Asks for keys. Whoever calls it gives up when its own time is over.
    async fn ask(&self, keys: &[&[u8]]) -> Result<Told>;
}

/// What a domain said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// For each key, in order.
    pub answers: Vec<Answer>,
    /// How old that is at most; none if it did not say.
    pub age: Option<Duration>,
}

/// An engine in this process can do more if it may wait: load a filter that is on disk, and ask other nodes.
#[async_trait]
impl Remote for EngineFilter {
    async fn ask(&self, keys: &[&[u8]]) -> Result<Told> {
        let name = &self.name;
        let filter = self.engine.find(name).await?;
        let filter = filter.ok_or_else(|| Error::Retry(format!("there is no filter {name}")))?;
        let keys: Vec<_> = keys.iter().map(|key| filter.hasher().fingerprint(key)).collect();
        let told = self.engine.look(&filter, &keys, None, Consistency::Current).await?;
        Ok(Told { answers: told.answers, age: Some(told.age) })
    }
}

/// A filter of a server, asked by HTTP.
#[derive(Debug)]
pub struct ServerFilter {
    pub(crate) server: Server,
    name: String,
}

impl ServerFilter {
    /// A filter of that name.
    pub fn new(server: Server, filter: &str) -> Self {
        Self { server, name: filter.to_owned() }
    }

    /// The path of something that is done with its keys.
    pub(crate) fn path(&self, what: &str) -> String {
        Server::path(&self.name, what)
    }
}

#[async_trait]
impl Remote for ServerFilter {
    async fn ask(&self, keys: &[&[u8]]) -> Result<Told> {
        let mut all = Told { answers: Vec::with_capacity(keys.len()), age: Some(Duration::ZERO) };
        for keys in keys.chunks(REQUEST_KEYS_MAX) {
            let written: Vec<Value> = keys.iter().map(|key| written(key)).collect();
            let question = json!({ "keys": written, "read": "any" });
            let reply = self.server.post(self.path("check"), &question, DEADLINE_MAX).await?;
            let told = read(&reply, keys.len())?;
            all.answers.extend(told.answers);
            all.age = all.age.zip(told.age).map(|(one, other)| one.max(other));
        }
        Ok(all)
    }
}

/// A key as the API takes it: text, or bytes in base64.
pub(crate) fn written(key: &[u8]) -> Value {
    match std::str::from_utf8(key) {
        Ok(text) => text.into(),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(key) }),
    }
}

/// What was written so.
pub(crate) fn key_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(object) => BASE64_STANDARD.decode(object.get("base64")?.as_str()?).ok(),
        _ => None,
    }
}

/// Reads answers for so many keys.
fn read(reply: &Value, keys: usize) -> Result<Told> {
    let wrong = || Error::Corrupt(format!("an answer that is none for {keys} keys"));
    let words = reply["answers"].as_array().filter(|words| words.len() == keys).ok_or_else(wrong)?;
    let answer = |word: &Value| match word.as_str() {
        Some("absent") => Ok(Answer::Absent),
        Some("maybe") => Ok(Answer::Maybe),
        Some("unknown") => Ok(Answer::Unknown),
        _ => Err(wrong()),
    };
    let answers = words.iter().map(answer).collect::<Result<_>>()?;
    Ok(Told { answers, age: reply["age_ms"].as_u64().map(Duration::from_millis) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_none() {
        let reply = json!({ "answers": ["absent", "maybe", "unknown"], "age_ms": 7 });
        let answers = vec![Answer::Absent, Answer::Maybe, Answer::Unknown];
        assert_eq!(read(&reply, 3).unwrap(), Told { answers, age: Some(Duration::from_millis(7)) });
        let others =
            [json!({}), json!({ "answers": ["no"] }), json!({ "answers": [true] }), json!([]), json!("x")];
        assert!(others.iter().all(|other| read(other, 1).is_err()) && read(&reply, 2).is_err());
        assert_eq!(read(&json!({ "answers": [] }), 0).unwrap().age, None);
    }

    #[test]
    fn keys_that_are_no_text_are_written_too() {
        assert_eq!(written("é\"".as_bytes()), json!("é\""));
        assert_eq!(written(&[0xff, 0]), json!({ "base64": "/wA=" }));
        assert_eq!(key_of(&json!({ "base64": "/wA=" })), Some(vec![0xff, 0]));
        assert!([json!(1), json!({}), json!({ "base64": "?" })].iter().all(|other| key_of(other).is_none()));
    }
}
