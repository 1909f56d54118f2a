//! Engines that have keys and are no databases of tables.
//!
//! | file | subject |
//! | --- | --- |
//! | `engines/redis.rs` | names of keys by SCAN, members of a set by SSCAN |
//! | `engines/kafka.rs` | messages of a topic, partition by partition |
//!
//! Addresses, passwords and certificates are as for the planes.

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "redis")]
mod redis;

use umbel_core::url::Url;

use crate::{Error, Result, Source};

/// What is read of a Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The set whose members are read; else the names of all keys are.
    pub set: Option<String>,
    /// What names or members have to fit, as SCAN reads it.
    pub pattern: Option<String>,
}

/// What is read of a topic of Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    /// Which part of a message.
    pub part: MessagePart,
    /// The names on the way to a field, if that part is an object of JSON.
    pub field: Option<Vec<String>>,
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// What decides on its partition, mostly.
    Key,
    /// What it says.
    Value,
}

/// Whether an address is that of a Redis, a Kafka, or neither.
pub fn scheme(address: &str) -> Option<&'static str> {
    ["redis", "kafka"]
        .into_iter()
        .find(|scheme| address.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://")))
}

/// Keys of a Redis: `redis://user:password@host:port/database`. The masters of a cluster are all named, with commas.
pub fn open_redis(address: &str, names: Names) -> Result<Box<dyn Source>> {
    let url = parse(address)?;
    #[cfg(feature = "redis")]
    return Ok(Box::new(redis::Keys::open(url, names)?));
    #[cfg(not(feature = "redis"))]
    {
        drop(names);
        Err(lacks(&url, "Redis", "redis"))
    }
}

/// Messages of a Kafka: `kafka://host:port,host:port/topic`, those that it has when it is asked for its parts.
pub fn open_kafka(address: &str, messages: Messages) -> Result<Box<dyn Source>> {
    let url = parse(address)?;
    #[cfg(feature = "kafka")]
    return Ok(Box::new(kafka::Topic::open(url, messages)?));
    #[cfg(not(feature = "kafka"))]
    {
        drop(messages);
        Err(lacks(&url, "Kafka", "kafka"))
    }
}

fn parse(address: &str) -> Result<Url> {
    Url::parse(address).map_err(of_engine)
}

/// What the caller can do about an error of an engine.
pub(crate) fn of_engine(error: umbel_core::Error) -> Error {
    match error {
        umbel_core::Error::Retry(why) => Error::Retry(why),
        umbel_core::Error::Corrupt(why) => Error::Corrupt(why),
        other => Error::Invalid(other.to_string()),
    }
}

#[cfg(not(all(feature = "kafka", feature = "redis")))]
fn lacks(url: &Url, what: &str, feature: &str) -> Error {
    Error::Invalid(format!("{url}: this build lacks {what}; rebuild with --features {feature}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_files() {
        assert_eq!((scheme("redis://h"), scheme("kafka://h/t")), (Some("redis"), Some("kafka")));
        for file in ["", "redis", "redis:", "kafka:/x", "kafka.txt", "rediss://h", "postgres://h"] {
            assert_eq!(scheme(file), None, "{file}");
        }
    }

    #[test]
    fn a_wrong_address_is_told_without_its_password() {
        let said = open_redis("redis://me:hunter2@", Names::default()).err().unwrap().to_string();
        assert!(said.contains("host") && !said.contains("hunter2"), "{said}");
    }
}
