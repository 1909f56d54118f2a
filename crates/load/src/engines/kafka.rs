//! A topic of Kafka: the messages that its partitions had when they were counted.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::metadata::{MetadataPartition, MetadataTopic};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Message, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use umbel_core::url::Url;

use super::{MessagePart, Messages, of_engine};
use crate::files::picker::Picker;
use crate::{Batch, Bookmark, Cursor, Error, Part, Result, Source};

/// Nobody joins the group, but a consumer has to name one. What is gone before it was read is not passed over in silence. Memory is
/// bounded for each partition that is read.
const SETTINGS: [(&str, &str); 6] = [
    ("group.id", "umbel-load"),
    ("enable.auto.commit", "false"),
    ("auto.offset.reset", "error"),
    ("enable.partition.eof", "true"),
    ("check.crcs", "true"),
    ("queued.max.messages.kbytes", "8192"),
];
/// How long it is waited for a message before it is looked whether the time is over.
const POLL: Duration = Duration::from_millis(200);

/// A topic.
pub(super) struct Topic {
    url: Url,
    topic: String,
    timeout: Duration,
    messages: Messages,
}

/// A part, as checkpoints have it: the messages `from..to` of a partition.
#[derive(Serialize, Deserialize)]
struct Bounds {
    partition: i32,
    from: i64,
    to: i64,
}

impl Topic {
    pub(super) fn open(url: Url, messages: Messages) -> Result<Self> {
        url.allow(&["ca", "cert", "config", "key", "sasl", "timeout_ms", "tls"]).map_err(of_engine)?;
        let (topic, timeout) = (url.path_or(""), url.timeout().map_err(of_engine)?);
        if topic.is_empty() {
            return Err(Error::Invalid(format!("{url} names no topic, as kafka://host/topic does")));
        }
        Ok(Self { url, topic, timeout, messages })
    }

    fn consumer(&self) -> Result<BaseConsumer> {
        umbel_adapters::connect::kafka_consumer(&self.url, &SETTINGS).map_err(of_engine)
    }

    fn wrong(&self, error: &KafkaError) -> Error {
        sorted(&self.url.to_string(), error)
    }

    fn partitions(&self, consumer: &BaseConsumer) -> Result<Vec<i32>> {
        let metadata = consumer.fetch_metadata(Some(&self.topic), self.timeout);
        let metadata = metadata.map_err(|error| self.wrong(&error))?;
        let topic = metadata.topics().first();
        let found: Vec<i32> =
            topic.into_iter().flat_map(MetadataTopic::partitions).map(MetadataPartition::id).collect();
        if found.is_empty() {
            return Err(Error::Invalid(format!("{}: there is no topic {:?}", self.url, self.topic)));
        }
        Ok(found)
    }
}

/// What the caller can do about it.
fn sorted(name: &str, error: &KafkaError) -> Error {
    use RDKafkaErrorCode as Code;
    let message = format!("{name}: {error}");
    match error.rdkafka_error_code() {
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => Error::Corrupt(format!(
            "{name}: messages that were to be read are gone, by the topic's retention or because it is another one: begin anew"
        )),
        Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::TopicAuthorizationFailed) => {
            Error::Invalid(message)
        }
        _ => Error::Retry(message),
    }
}

impl Source for Topic {
    fn name(&self) -> String {
        self.url.to_string()
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.url, self.messages)
    }

    fn parts(&self, _: usize) -> Result<Vec<Part>> {
        let consumer = self.consumer()?;
        let mut parts = Vec::new();
        for partition in self.partitions(&consumer)? {
            let ends = consumer.fetch_watermarks(&self.topic, partition, self.timeout);
            let (from, to) = ends.map_err(|error| self.wrong(&error))?;
            if from >= to {
                continue;
            }
            let bounds = serde_json::to_string(&Bounds { partition, from, to })
                .map_err(|error| Error::Invalid(error.to_string()))?;
            let name = format!("{} [partition {partition}]", self.name());
            // Some numbers may have no message: those that were compacted, and marks of transactions.
            parts.push(Part { name, bounds, bytes: None, rows: Some(from.abs_diff(to)) });
        }
        Ok(parts)
    }

    fn open(&self, part: &Part, after: Option<&Bookmark>) -> Result<Box<dyn Cursor>> {
        let damaged = |why: &str| Error::Corrupt(format!("{}: {why}", part.name));
        let bounds: Bounds =
            serde_json::from_str(&part.bounds).map_err(|_| damaged("this is no part of a topic"))?;
        let next = match after {
            None => bounds.from,
            Some(bookmark) => bookmark
                .as_str()
                .parse()
                .ok()
                .filter(|next| (bounds.from..=bounds.to).contains(next))
                .ok_or_else(|| damaged("the bookmark is no place in it"))?,
        };
        let consumer = self.consumer()?;
        let mut place = TopicPartitionList::new();
        place
            .add_partition_offset(&self.topic, bounds.partition, Offset::Offset(next))
            .and_then(|()| consumer.assign(&place))
            .map_err(|error| self.wrong(&error))?;
        let picker = self.messages.field.clone().map(|field| Picker::new(field, after.is_some()));
        let (name, part) = (part.name.clone(), self.messages.part);
        Ok(Box::new(Read { consumer, picker, part, next, to: bounds.to, timeout: self.timeout, name }))
    }
}

/// Reads a partition.
struct Read {
    consumer: BaseConsumer,
    picker: Option<Picker>,
    part: MessagePart,
    /// The number of the next message.
    next: i64,
    to: i64,
    timeout: Duration,
    name: String,
}

impl Cursor for Read {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        let mut end = Instant::now() + self.timeout;
        while !batch.is_full() && self.next < self.to {
            let message = match self.consumer.poll(POLL) {
                Some(Ok(message)) => message,
                // There are no more, although there are more numbers: the last ones have no message.
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    self.next = self.to;
                    break;
                }
                Some(Err(error)) => return Err(sorted(&self.name, &error)),
                None if Instant::now() < end => continue,
                None => return Err(Error::Retry(format!("{}: no message in time", self.name))),
            };
            end = Instant::now() + self.timeout;
            // What came behind the end that was seen is no part of this.
            if message.offset() >= self.to {
                self.next = self.to;
                break;
            }
            take(&message, self.part, self.picker.as_mut(), batch).map_err(|error| {
                Error::Invalid(format!("{}: message {}: {error}", self.name, message.offset()))
            })?;
            self.next = message.offset() + 1;
        }
        if let Some(picker) = &self.picker {
            picker.check(&self.name)?;
        }
        Bookmark::behind(batch, self.next)
    }
}

/// Puts the key of a message into a batch. A part that is not there is counted as one that has none.
fn take(
    message: &BorrowedMessage<'_>,
    part: MessagePart,
    picker: Option<&mut Picker>,
    batch: &mut Batch,
) -> Result<()> {
    let bytes = match part {
        MessagePart::Key => message.key(),
        MessagePart::Value => message.payload(),
    };
    match (bytes, picker) {
        (None, _) => {
            batch.skip();
            Ok(())
        }
        (Some(bytes), Some(picker)) => picker.pick(bytes, batch),
        (Some(bytes), None) => batch.push(bytes),
    }
}
