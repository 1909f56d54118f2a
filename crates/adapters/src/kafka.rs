//! The log in Kafka: a topic, whose partitions are ours.

mod clients;

use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Message, Offset, TopicPartitionList};
use umbel_core::limits::ENTRY_BYTES_MAX;
use umbel_core::log::{Appended, Bounds, Log, Record, check_entries};
use umbel_core::{Error, Position, Result};

use crate::access::{Access, Convention};
use crate::pack::{self, Sent, pack, unpack};
use crate::{About, Durability, Opened, Url};
use clients::{Clients, SLOW, Suspicion};

const PARTITIONS: u32 = 16;
/// Largest message: a largest entry, and what Kafka puts around it.
const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX + (64 << 10);
/// Consumers for reading; a partition always has the same one, which goes on where it was.
const READERS: usize = 8;
/// The key of a message that holds many entries; others have none.
const MANY: &[u8] = b"many";
/// How long a system takes to write what Kafka leaves to it.
const WRITEBACK: Duration = Duration::from_secs(30);
/// Pause before a partition without a leader is asked again.
const LEADER_PAUSE: Duration = Duration::from_millis(50);
/// Silence after which a reader is replaced, if there are messages that it does not get. It doubles as long as that does not help.
const SILENCE: Duration = Duration::from_secs(1);

/// A log in a topic.
///
/// The producer is idempotent and waits for all replicas in sync. A batch is one message as far as it fits; one that does not may
/// have entries of others between its messages.
struct KafkaLog {
    partitions: u32,
    clients: Arc<Clients>,
    readers: Arc<Vec<Mutex<Reader>>>,
}

/// What the client said of its last trouble. Errors say only that there is some.
#[derive(Clone, Default)]
struct Trouble(Arc<Mutex<String>>);

impl ClientContext for Trouble {
    fn error(&self, _: KafkaError, reason: &str) {
        reason.clone_into(&mut lock(&self.0));
    }
}

struct Reader {
    consumer: BaseConsumer,
    created: Instant,
    /// That of the clients when it was created.
    generation: u64,
    /// Whether its last read failed.
    has_failed: bool,
    /// How long it may be silent before it is replaced.
    patience: Duration,
    /// Whether it has a connection to whoever leads a partition.
    is_connected: bool,
    /// The partition and the offset that come next without asking for another place.
    next: Option<(u32, i64)>,
}

impl fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration may hold a password.
        f.debug_struct("KafkaLog").field("topic", &self.clients.topic).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(doing: &str, error: &KafkaError) -> Error {
    Error::Retry(format!("{doing}: {error}"))
}

/// Whether no broker leads a partition for the moment: it was just made, and its broker does not know yet that it leads it, or brokers
/// are about to change places. The client itself says so too, of a partition that was without a broker when it last heard of it.
fn is_without_leader(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{
        LeaderNotAvailable, NotLeaderForPartition, UnknownPartition, UnknownTopic, UnknownTopicOrPartition,
    };
    let passing =
        [LeaderNotAvailable, NotLeaderForPartition, UnknownPartition, UnknownTopic, UnknownTopicOrPartition];
    error.rdkafka_error_code().is_some_and(|code| passing.contains(&code))
}

/// Does what waits for Kafka where it holds up nobody else.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Retry(format!("work on Kafka was given up: {error}")))?
}

/// What a client is told that comes to the servers of a URL, as somebody who may.
pub(crate) fn configuration(url: &Url) -> Result<ClientConfig> {
    let timeout = url.timeout()?.as_millis();
    let access = Access::of(url, Convention::default())?;
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", url.hosts_with_port(9092).join(","))
        .set("client.id", "umbel")
        .set("socket.timeout.ms", timeout.to_string())
        .set("socket.keepalive.enable", "true")
        .set("reconnect.backoff.max.ms", "1000")
        .set("message.max.bytes", (2 * MESSAGE_BYTES_MAX).to_string());
    if let Some(file) = url.parameter("config") {
        for (name, value) in properties(file)? {
            config.set(name, value);
        }
    }
    let security = match (&access.tls, &access.credentials) {
        (None, None) => None,
        (None, Some(_)) => Some("sasl_plaintext"),
        (Some(_), None) => Some("ssl"),
        (Some(_), Some(_)) => Some("sasl_ssl"),
    };
    if let Some(security) = security {
        config.set("security.protocol", security);
    }
    if let Some((user, password)) = access.credentials {
        config.set("sasl.mechanisms", url.parameter("sasl").unwrap_or("PLAIN"));
        config.set("sasl.username", user).set("sasl.password", password);
    }
    if let Some(files) = access.tls {
        let mut set = |name: &str, file: &Path| {
            let no_text = || Error::Invalid(format!("{url}: {} is no text", file.display()));
            config.set(name, file.to_str().ok_or_else(no_text)?);
            Ok::<_, Error>(())
        };
        if let Some(authority) = &files.authority {
            set("ssl.ca.location", authority)?;
        }
        if let Some((cert, key)) = &files.identity {
            set("ssl.certificate.location", cert)?;
            set("ssl.key.location", key)?;
        }
    }
    let security = config.get("security.protocol").unwrap_or_default().to_ascii_lowercase();
    if security.ends_with("ssl") && !cfg!(feature = "kafka-tls") {
        return Err(Error::Invalid(format!(
            "{url}: this build lacks TLS for Kafka; rebuild with --features kafka-tls"
        )));
    }
    Ok(config)
}

/// Settings of the client in a file, a `name=value` in each line, as Kafka's own tools and kcat have them: who we are and whom we
/// trust, and nothing else. What they are set to may be a secret, and is not repeated.
fn properties(file: &str) -> Result<Vec<(String, String)>> {
    let invalid = |why: String| Error::Invalid(format!("settings of Kafka's client in {file}: {why}"));
    let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
    let mut settings = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| invalid(format!("line {number} has no =")))?;
        let name = name.trim();
        if name != "security.protocol" && !name.starts_with("sasl.") && !name.starts_with("ssl.") {
            return Err(invalid(format!(
                "line {number} is not about security.protocol, sasl.* or ssl.*; the rest is up to Umbel"
            )));
        }
        settings.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(settings)
}

/// Why there is no client with these settings, without what they are set to.
pub(crate) fn refused(url: &Url, error: &KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, _, name, _) => {
            Error::Invalid(format!("cannot open {url}: its client does not take what {name} is set to"))
        }
        error => Error::Invalid(format!("cannot open {url}: {error}")),
    }
}

fn producer(
    config: &ClientConfig,
    timeout: Duration,
    trouble: Trouble,
) -> Result<FutureProducer<Trouble>, KafkaError> {
    config
        .clone()
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("compression.type", "lz4")
        .set("linger.ms", "0")
        .set("message.timeout.ms", timeout.as_millis().to_string())
        .create_with_context(trouble)
}

fn consumer(config: &ClientConfig) -> Result<BaseConsumer, KafkaError> {
    config
        .clone()
        // Nobody joins the group, but a consumer has to name one.
        .set("group.id", "umbel")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true")
        .set("fetch.wait.max.ms", "50")
        .set("fetch.error.backoff.ms", "50")
        .set("queued.max.messages.kbytes", "8192")
        .set("fetch.message.max.bytes", MESSAGE_BYTES_MAX.to_string())
        .create()
}

/// Opens `kafka://user:password@host:port,host:port/topic?partitions=256&replicas=3&tls=true&sasl=SCRAM-SHA-512`; `config` may name
/// a file with more.
pub(crate) async fn open_log(url: &Url) -> Result<Opened<dyn Log>> {
    url.allow(&["ca", "cert", "config", "key", "partitions", "replicas", "sasl", "timeout_ms", "tls"])?;
    let timeout = url.timeout()?;
    let topic = url.path_or("umbel");
    let config = configuration(url)?;
    let doing = format!("cannot open {url}");
    let invalid = |error: KafkaError| refused(url, &error);
    let admin: AdminClient<_> = config.create().map_err(invalid)?;
    let readers: Result<Vec<_>, _> =
        (0..READERS).map(|_| Ok(Mutex::new(Reader::new(consumer(&config)?)))).collect();
    let readers = Arc::new(readers.map_err(invalid)?);
    let asker = consumer(&config).map_err(invalid)?;
    let trouble = Trouble::default();
    let producer = producer(&config, timeout, trouble.clone()).map_err(invalid)?;
    let wanted = url.partitions()?;
    let (mut asker, mut found) = count(asker, &trouble, &topic, timeout).await?;
    if found == 0 {
        let partitions = wanted.unwrap_or(PARTITIONS) as i32;
        let replicas = url.number("replicas", 1, 15)?.map_or(-1, |replicas| replicas as i32);
        let bytes = MESSAGE_BYTES_MAX.to_string();
        // Entries go when they are archived, and not by age or size.
        let new = NewTopic::new(&topic, partitions, TopicReplication::Fixed(replicas))
            .set("max.message.bytes", &bytes)
            .set("retention.ms", "-1")
            .set("retention.bytes", "-1")
            .set("cleanup.policy", "delete");
        let options = AdminOptions::new().operation_timeout(Some(timeout)).request_timeout(Some(timeout));
        let made = admin.create_topics([&new], &options).await.map_err(|error| failed(&doing, &error))?;
        for outcome in made {
            match outcome {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(Error::Invalid(format!("{doing}: {code}"))),
            }
        }
        let end = Instant::now() + timeout;
        while found == 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
            (asker, found) = count(asker, &trouble, &topic, timeout).await?;
        }
        if found == 0 {
            return Err(Error::Retry(format!("{doing}: the topic was made, but is not seen yet")));
        }
    }
    if wanted.is_some_and(|wanted| wanted != found) {
        return Err(Error::Invalid(format!("the log at {url} has {found} partitions")));
    }
    let about = about(url, &admin, &topic, timeout).await?;
    let clients = Clients::new(config, topic, timeout, producer, admin, asker);
    let log = KafkaLog { partitions: found, clients, readers };
    Ok(Opened { plane: Arc::new(log), about })
}

/// How many partitions a topic has; none if there is no such topic. A consumer asks: if a producer did, some brokers would make the topic,
/// and not as we want it.
async fn count(
    asker: BaseConsumer,
    trouble: &Trouble,
    topic: &str,
    timeout: Duration,
) -> Result<(BaseConsumer, u32)> {
    let (trouble, topic) = (trouble.clone(), topic.to_owned());
    blocking(move || {
        let metadata = asker.fetch_metadata(Some(&topic), timeout);
        let metadata = metadata.map_err(|error| {
            let trouble = lock(&trouble.0);
            let colon = if trouble.is_empty() { "" } else { ": " };
            Error::Retry(format!("cannot read what topics there are: {error}{colon}{trouble}"))
        })?;
        let found = metadata.topics().first().map_or(0, |topic| topic.partitions().len() as u32);
        drop(metadata);
        Ok((asker, found))
    })
    .await
}

/// The topic's settings, if this client may read them. The broker that is asked may not know of a new topic yet, or not answer for it
/// while brokers still find each other.
async fn settings(
    admin: &AdminClient<DefaultClientContext>,
    topic: &str,
    timeout: Duration,
) -> Result<Option<ConfigResource>> {
    use RDKafkaErrorCode::{ClusterAuthorizationFailed, TopicAuthorizationFailed};
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let end = Instant::now() + timeout;
    loop {
        let described = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options).await;
        let described = described.map_err(|error| failed("cannot read the topic's settings", &error))?;
        match described.into_iter().next() {
            Some(Ok(found)) if found.get("min.insync.replicas").is_some() => return Ok(Some(found)),
            Some(Err(TopicAuthorizationFailed | ClusterAuthorizationFailed)) => return Ok(None),
            found if Instant::now() >= end => return Ok(found.and_then(Result::ok)),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What the topic's settings make of an acknowledgement.
async fn about(
    url: &Url,
    admin: &AdminClient<DefaultClientContext>,
    topic: &str,
    timeout: Duration,
) -> Result<About> {
    let settings = settings(admin, topic, timeout).await?;
    let setting = |name: &str| settings.as_ref()?.get(name)?.value.clone();
    let bytes = setting("max.message.bytes").and_then(|text| text.parse::<usize>().ok());
    if let Some(bytes) = bytes.filter(|bytes| *bytes < MESSAGE_BYTES_MAX) {
        return Err(Error::Invalid(format!(
            "{url} takes messages of {bytes} bytes; set max.message.bytes to {MESSAGE_BYTES_MAX}"
        )));
    }
    let in_sync = setting("min.insync.replicas").and_then(|text| text.parse::<u32>().ok());
    let mut lacks = Vec::new();
    if in_sync.is_none() {
        lacks.push("it does not say what its topic's settings are");
    } else if in_sync < Some(2) {
        lacks.push("min.insync.replicas is 1, and Kafka leaves it to the system when to write");
    }
    if setting("retention.ms").is_some_and(|text| text != "-1")
        || setting("retention.bytes").is_some_and(|text| text != "-1")
    {
        lacks.push("its retention may take entries before they are archived");
    }
    let durability = match in_sync {
        None => Durability::Unknown,
        Some(..2) => Durability::Window(WRITEBACK),
        Some(in_sync) => Durability::Replicated(in_sync),
    };
    Ok(About { engine: "Kafka", version: String::new(), durability, lacks: lacks.join("; ") })
}

impl KafkaLog {
    fn check(&self, partition: u32) -> Result<()> {
        if partition < self.partitions {
            return Ok(());
        }
        Err(Error::Invalid(format!("partition {partition} of a log of {}", self.partitions)))
    }

    /// How many messages of a partition are gone, and how many there were ever.
    async fn ends(&self, partition: u32) -> Result<(u64, u64)> {
        let clients = Arc::clone(&self.clients);
        blocking(move || {
            let end = Instant::now() + clients.timeout;
            loop {
                let asker = clients.asker.get();
                let left = end.saturating_duration_since(Instant::now());
                match asker.fetch_watermarks(&clients.topic, partition as i32, left) {
                    Ok((low, high)) => {
                        clients.asker.succeeded(&asker);
                        return Ok((low.max(0) as u64, high.max(0) as u64));
                    }
                    Err(error) => {
                        clients.suspect(&clients.asker, &asker, Suspicion::Failed, partition);
                        if !is_without_leader(&error) || Instant::now() >= end {
                            return Err(failed("cannot read the bounds", &error));
                        }
                        std::thread::sleep(LEADER_PAUSE);
                    }
                }
            }
        })
        .await
    }

    /// Where the messages of a batch are, when all of them are there.
    async fn send(
        &self,
        producer: &FutureProducer<Trouble>,
        partition: u32,
        entries: &[Bytes],
    ) -> Result<Vec<Sent>> {
        let doing = "cannot append";
        let mut sent = Vec::new();
        for message in pack(entries, ENTRY_BYTES_MAX) {
            let mut record = FutureRecord::<[u8], [u8]>::to(&self.clients.topic)
                .partition(partition as i32)
                .payload(&message.payload);
            if message.is_many {
                record = record.key(MANY);
            }
            let delivered = producer.send_result(record).map_err(|(error, _)| failed(doing, &error))?;
            sent.push((message.count, delivered));
        }
        let mut messages = Vec::with_capacity(sent.len());
        for (count, delivered) in sent {
            let delivered = delivered.await.map_err(|_| Error::Retry(format!("{doing}: it was given up")))?;
            let delivered = delivered.map_err(|(error, _)| match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {
                    Error::Retry(format!(
                        "{doing}: the client was stuck and is replaced; the entries may be in the log or not"
                    ))
                }
                _ => failed(doing, &error),
            })?;
            messages.push(Sent::among_entries(delivered.offset as u64 + 1, count));
        }
        Ok(messages)
    }
}

impl Reader {
    fn new(consumer: BaseConsumer) -> Self {
        Self {
            consumer,
            created: Instant::now(),
            generation: 0,
            has_failed: false,
            patience: SILENCE,
            is_connected: false,
            next: None,
        }
    }

    /// Makes the connection over which a partition is read. Its first question makes it at once; whoever only waits for messages
    /// waits until the client comes to it, a second or so.
    fn connect(&mut self, topic: &str, partition: u32, timeout: Duration) -> Result<()> {
        // Not longer: a client that is stuck says so forever, and is replaced before the next read.
        let end = Instant::now() + timeout.min(SILENCE);
        while !self.is_connected {
            match self.consumer.fetch_watermarks(topic, partition as i32, timeout) {
                Ok(_) => self.is_connected = true,
                Err(error) if is_without_leader(&error) && Instant::now() < end => {
                    std::thread::sleep(LEADER_PAUSE);
                }
                Err(error) => return Err(failed("cannot read the log", &error)),
            }
        }
        Ok(())
    }

    /// Takes another consumer, which knows nothing of what the old one did. It reads the same: a read names its place.
    fn replace(&mut self, clients: &Clients) -> Result<()> {
        let consumer = std::mem::replace(&mut self.consumer, clients.create_consumer()?);
        // It waits for its threads.
        std::thread::spawn(move || drop(consumer));
        (self.created, self.generation) = (Instant::now(), clients.generation());
        (self.has_failed, self.is_connected, self.next) = (false, false, None);
        Ok(())
    }

    /// Entries behind a position. A consumer that failed, or is older than clients that were found to be stuck, is replaced before.
    fn read(
        &mut self,
        clients: &Clients,
        partition: u32,
        after: Position,
        high: u64,
        bytes_max: usize,
    ) -> Result<Vec<Record>> {
        if self.generation != clients.generation() || self.has_failed && self.created.elapsed() >= SILENCE {
            self.replace(clients)?;
        }
        let records = self.read_on(clients, partition, after, high, bytes_max);
        self.has_failed = records.is_err();
        if !self.has_failed {
            self.patience = SILENCE;
        }
        records
    }

    /// Entries behind a position, of a partition that has so many messages by now.
    fn read_on(
        &mut self,
        clients: &Clients,
        partition: u32,
        after: Position,
        high: u64,
        bytes_max: usize,
    ) -> Result<Vec<Record>> {
        let (topic, timeout) = (&*clients.topic, clients.timeout);
        // Messages are numbered from 1, and Kafka's from 0.
        let mut next = pack::whole_message(after) as i64;
        let mut records: Vec<Record> = Vec::new();
        let mut bytes = 0;
        let mut heard = Instant::now();
        let end = heard + timeout;
        while (next as u64) < high {
            self.connect(topic, partition, end.saturating_duration_since(Instant::now()))?;
            if self.next != Some((partition, next)) {
                let mut place = TopicPartitionList::new();
                let assigned = place
                    .add_partition_offset(topic, partition as i32, Offset::Offset(next))
                    .and_then(|()| self.consumer.assign(&place));
                assigned.map_err(|error| failed("cannot read the log", &error))?;
            }
            self.next = None;
            let silent = heard + self.patience;
            let left = silent.min(end).saturating_duration_since(Instant::now());
            let polled = self.consumer.poll(left);
            if !matches!(polled, Some(Ok(_))) && records.is_empty() && (silent..end).contains(&Instant::now())
            {
                // Another client has just said that there are more messages: this one is stuck, or slow, and then the next one gets more
                // time.
                drop(polled);
                self.patience = (2 * self.patience).min(timeout);
                self.replace(clients)?;
                heard = Instant::now();
                continue;
            }
            let message = match polled {
                Some(Ok(message)) => message,
                Some(Err(_)) if Instant::now() < end => {
                    // It may be one of a connection that is made again: this place is asked for once more.
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                Some(Err(error)) => return Err(failed("cannot read the log", &error)),
                None if records.is_empty() => {
                    return Err(Error::Retry("cannot read the log: no answer in time".into()));
                }
                None => return Ok(records),
            };
            if message.partition() != partition as i32 || message.offset() != next {
                if message.partition() == partition as i32 && message.offset() > next {
                    return Err(Error::Corrupt(format!(
                        "partition {partition} of {topic} goes on with {} after {next}",
                        message.offset()
                    )));
                }
                continue;
            }
            let payload = Bytes::copy_from_slice(message.payload().unwrap_or_default());
            let found = unpack(message.key() == Some(MANY), &payload)?;
            heard = Instant::now();
            next += 1;
            self.next = Some((partition, next));
            for (position, entry) in pack::positions(next as u64, found.len() as u32).zip(found) {
                if position <= after {
                    continue;
                }
                bytes += entry.len();
                if bytes > bytes_max && !records.is_empty() {
                    return Ok(records);
                }
                records.push(Record { position, entry });
            }
        }
        Ok(records)
    }
}

#[async_trait]
impl Log for KafkaLog {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        self.check(partition)?;
        check_entries(&entries)?;
        let producer = self.clients.producer()?;
        let suspect = |suspicion| {
            self.clients.suspect(&self.clients.producer, &producer, suspicion, partition);
        };
        let messages = {
            let mut sending = pin!(self.send(&producer, partition, &entries));
            match tokio::time::timeout(SLOW, &mut sending).await {
                Ok(messages) => messages,
                Err(_) => {
                    suspect(Suspicion::Slow);
                    sending.await
                }
            }
        };
        match &messages {
            Ok(_) => self.clients.producer.succeeded(&producer),
            Err(_) => suspect(Suspicion::Failed),
        }
        let messages = messages?;
        Ok(pack::appended(&messages, read))
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        self.check(partition)?;
        let (low, high) = self.ends(partition).await?;
        let (oldest, tail) = (pack::behind(low), pack::behind(high));
        if after < oldest {
            return Err(Error::Trimmed { oldest });
        }
        if after > tail {
            return Err(Error::Invalid(format!("position {after} is behind the end of the log, {tail}")));
        }
        if after == tail {
            return Ok(Vec::new());
        }
        let (readers, clients) = (Arc::clone(&self.readers), Arc::clone(&self.clients));
        blocking(move || match readers.get(partition as usize % READERS) {
            Some(reader) => lock(reader).read(&clients, partition, after, high, bytes_max),
            None => Err(Error::Closed("a log without readers".into())),
        })
        .await
    }

    async fn holds(&self, partition: u32, position: Position) -> Result<bool> {
        Ok(position <= self.bounds(partition).await?.tail)
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        self.check(partition)?;
        let (low, high) = self.ends(partition).await?;
        Ok(Bounds { oldest: pack::behind(low), tail: pack::behind(high) })
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        let bounds = self.bounds(partition).await?;
        let doing = "cannot trim";
        let upto = pack::whole_message(upto.min(bounds.tail));
        if pack::behind(upto) <= bounds.oldest {
            return Ok(());
        }
        let mut place = TopicPartitionList::new();
        let added =
            place.add_partition_offset(&self.clients.topic, partition as i32, Offset::Offset(upto as i64));
        added.map_err(|error| failed(doing, &error))?;
        let timeout = Some(self.clients.timeout);
        let options = AdminOptions::new().operation_timeout(timeout).request_timeout(timeout);
        let admin = self.clients.admin.get();
        let trimmed = admin.delete_records(&place, &options).await;
        let trimmed = trimmed.map_err(|error| {
            self.clients.suspect(&self.clients.admin, &admin, Suspicion::Failed, partition);
            failed(doing, &error)
        })?;
        self.clients.admin.succeeded(&admin);
        for element in trimmed.elements() {
            element.error().map_err(|error| failed(doing, &error))?;
        }
        Ok(())
    }
}
