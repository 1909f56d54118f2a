//! The log in NATS JetStream: a stream for each partition.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{ContextBuilder, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DirectGetErrorKind, StorageType, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use umbel_core::limits::ENTRY_BYTES_MAX;
use umbel_core::log::{Appended, Bounds, Log, Record, check_entries};
use umbel_core::{Error, Position, Result};

use crate::access::{Access, Convention};
use crate::pack::{self, Sent, pack, unpack};
use crate::{About, Durability, Opened, Url};

/// What NATS's own command is told by.
const NATS: Convention = Convention {
    ca: "NATS_CA",
    cert: "NATS_CERT",
    key: "NATS_KEY",
    user: "NATS_USER",
    password: "NATS_PASSWORD",
};
/// The same for the file that has everything.
const NATS_CREDS: &str = "NATS_CREDS";

const PARTITIONS: u32 = 16;
/// Messages that are asked for at a time.
const READS: usize = 16;
/// How often NATS syncs if nobody told it otherwise.
const SYNC: Duration = Duration::from_secs(120);
/// Most that is read of what a monitor says.
const MONITOR_BYTES_MAX: u64 = 1 << 20;
/// What the description of a stream begins with.
const DESCRIPTION: &str = "log of Umbel, partitions: ";

/// A log of streams.
///
/// A batch is one message as far as it fits. One that does not may have entries of others between its messages.
struct NatsLog {
    context: Context,
    name: String,
    partitions: Vec<Partition>,
    message_bytes_max: usize,
    timeout: Duration,
    disconnects: watch::Receiver<u64>,
}

struct Partition {
    stream: Stream<()>,
    /// Held while messages are sent, so that those of one batch follow each other.
    sending: Mutex<()>,
}

impl fmt::Debug for NatsLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsLog").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Connects; the count grows with each connection that is lost.
async fn connect(url: &Url, time: Duration) -> Result<(Client, watch::Receiver<u64>)> {
    let access = Access::of(url, NATS)?;
    let (count, disconnects) = watch::channel(0);
    let mut options = ConnectOptions::new()
        .event_callback(move |event| {
            if matches!(event, Event::Disconnected) {
                count.send_modify(|count| *count += 1);
            }
            std::future::ready(())
        })
        .connection_timeout(time)
        .request_timeout(Some(time))
        .ping_interval(Duration::from_secs(5))
        .require_tls(url.tls()?)
        // It stays with the hosts that were named: others may not be reached from here.
        .ignore_discovered_servers()
        .name("umbel");
    if let Some(files) = access.tls {
        if let Some(authority) = files.authority {
            options = options.add_root_certificates(authority);
        }
        if let Some((cert, key)) = files.identity {
            options = options.add_client_certificate(cert, key);
        }
    }
    let file = url.parameter("credentials").map(str::to_owned).or_else(|| std::env::var(NATS_CREDS).ok());
    if let Some(file) = file.filter(|file| !file.is_empty()) {
        let read = std::fs::read_to_string(file);
        let text =
            read.map_err(|error| Error::Invalid(format!("cannot read the credentials of {url}: {error}")))?;
        let loaded = options.credentials(&text);
        options =
            loaded.map_err(|_| Error::Invalid(format!("the file of credentials of {url} holds none")))?;
    }
    match access.credentials {
        Some((token, password)) if password.is_empty() => options = options.token(token),
        Some((user, password)) => options = options.user_and_password(user, password),
        None => {}
    }
    let hosts: Vec<_> = url.hosts_with_port(4222).iter().map(|host| format!("nats://{host}")).collect();
    let connecting = timeout(time, options.connect(hosts)).await;
    let connected = connecting.map_err(|_| Error::Retry(format!("cannot open {url}: no answer in time")))?;
    let client = connected.map_err(|error| match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            Error::Invalid(format!("cannot open {url}: {error}"))
        }
        _ => Error::Retry(format!("cannot open {url}: {error}")),
    })?;
    Ok((client, disconnects))
}

/// Opens `nats://user:password@host:port,host:port/name?partitions=16&replicas=3`; `credentials` may name a file, `monitor` the port
/// on which the server says how it is set up.
pub(crate) async fn open_log(url: &Url) -> Result<Opened<dyn Log>> {
    url.allow(&[
        "ca",
        "cert",
        "credentials",
        "key",
        "monitor",
        "partitions",
        "replicas",
        "timeout_ms",
        "tls",
    ])?;
    let name = url.path_or("umbel");
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
        return Err(Error::Invalid(format!("{url}: a stream's name has letters, digits, - and _ only")));
    }
    let timeout = url.timeout()?;
    let (client, disconnects) = connect(url, timeout).await?;
    let info = client.server_info();
    if info.max_payload < ENTRY_BYTES_MAX {
        let bytes = info.max_payload;
        return Err(Error::Invalid(format!(
            "{url} takes {bytes} bytes (max_payload), less than an entry may have"
        )));
    }
    let context = ContextBuilder::new().timeout(timeout).ack_timeout(timeout).build(client);
    if let Err(error) = context.query_account().await {
        return Err(Error::Retry(format!("{url} has no JetStream, or it does not answer: {error}")));
    }
    let wanted = url.partitions()?;
    let replicas = url.number("replicas", 1, 5)?.unwrap_or(1) as usize;
    let (partitions, replicas) = make(url, &context, &name, wanted, replicas).await?;
    let mut streams = Vec::new();
    for partition in 0..partitions {
        let stream = context.get_stream_no_info(stream_name(&name, partition)).await;
        let stream = stream.map_err(|error| Error::Retry(format!("cannot open {url}: {error}")))?;
        streams.push(Partition { stream, sending: Mutex::default() });
    }
    let (sync, lacks) = match url.number("monitor", 1, u64::from(u16::MAX))? {
        None => (
            Some(SYNC),
            "whether it syncs every write it tells its monitor only: name its port, monitor=8222".into(),
        ),
        Some(port) => match syncs(url, port as u16, timeout).await {
            Ok(None) => (None, String::new()),
            Ok(Some(time)) => (Some(time), "`sync_interval: always` is not set".into()),
            Err(why) => (Some(SYNC), format!("its monitor does not say whether it syncs every write: {why}")),
        },
    };
    let durability = match sync {
        None => Durability::Synced,
        Some(_) if replicas > 1 => Durability::Replicated(replicas as u32),
        Some(time) => Durability::Window(time),
    };
    let about = About { engine: "NATS JetStream", version: info.version.clone(), durability, lacks };
    let message_bytes_max = info.max_payload;
    let log = NatsLog { context, name, partitions: streams, message_bytes_max, timeout, disconnects };
    Ok(Opened { plane: Arc::new(log), about })
}

/// How long what is acknowledged may wait for the disk, as the monitors of the servers say; nothing if it does not wait. The laziest
/// of them counts.
async fn syncs(url: &Url, port: u16, time: Duration) -> Result<Option<Duration>, String> {
    let mut longest = None;
    for host in url.hosts_with_port(port) {
        let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name);
        let asked = timeout(time, ask_monitor(name, port)).await;
        let said = asked.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
        let config = &said["jetstream"]["config"];
        if config["sync_always"] != true {
            let nanos = config["sync_interval"].as_u64();
            longest = longest.max(Some(nanos.map_or(SYNC, Duration::from_nanos)));
        }
    }
    Ok(longest)
}

/// What a server's monitor says of it.
async fn ask_monitor(host: &str, port: u16) -> std::io::Result<serde_json::Value> {
    let mut socket = tokio::net::TcpStream::connect((host, port)).await?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut said = Vec::new();
    socket.take(MONITOR_BYTES_MAX).read_to_end(&mut said).await?;
    let body = said.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |head| head + 4);
    Ok(serde_json::from_slice(&said[body..])?)
}

fn stream_name(name: &str, partition: u32) -> String {
    format!("{name}-{partition}")
}

/// Makes the streams if they are not there, and says how many there are and how often each is kept.
async fn make(
    url: &Url,
    context: &Context,
    name: &str,
    wanted: Option<u32>,
    replicas: usize,
) -> Result<(u32, usize)> {
    use async_nats::jetstream::context::GetStreamErrorKind;
    let failed = |error: &dyn fmt::Display| Error::Retry(format!("cannot open {url}: {error}"));
    match context.get_stream(stream_name(name, 0)).await {
        Ok(stream) => {
            let config = &stream.cached_info().config;
            let text = config.description.as_deref().and_then(|text| text.strip_prefix(DESCRIPTION));
            let Some(partitions) = text.and_then(|text| text.parse().ok()) else {
                return Err(Error::Invalid(format!("{url} is a stream, but not of Umbel")));
            };
            if wanted.is_some_and(|wanted| wanted != partitions) {
                return Err(Error::Invalid(format!("the log at {url} has {partitions} partitions")));
            }
            return Ok((partitions, config.num_replicas));
        }
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {}
            _ => return Err(failed(&error)),
        },
    }
    let partitions = wanted.unwrap_or(PARTITIONS);
    // The first one comes last: if it is there, all are.
    for partition in (0..partitions).rev() {
        let config = Config {
            name: stream_name(name, partition),
            subjects: vec![format!("{name}.{partition}.*")],
            storage: StorageType::File,
            num_replicas: replicas,
            allow_direct: true,
            description: Some(format!("{DESCRIPTION}{partitions}")),
            ..Config::default()
        };
        context.create_stream(config).await.map_err(|error| failed(&error))?;
    }
    Ok((partitions, replicas))
}

impl NatsLog {
    fn partition(&self, number: u32) -> Result<&Partition> {
        self.partitions.get(number as usize).ok_or_else(|| {
            Error::Invalid(format!("partition {number} of a log of {}", self.partitions.len()))
        })
    }

    /// Waits for an answer, as long as it can come: not longer than `timeout`, nor after the connection was lost on which it was asked for.
    async fn answer<T>(&self, asked: impl Future<Output = T>) -> Result<T, &'static str> {
        let mut disconnects = self.disconnects.clone();
        disconnects.mark_unchanged();
        tokio::select! {
            biased;
            answer = timeout(self.timeout, asked) => answer.map_err(|_| "no answer in time"),
            Ok(()) = disconnects.changed() => Err("the connection was lost"),
        }
    }

    /// The first message and the last.
    async fn ends(&self, partition: &Partition) -> Result<(u64, u64)> {
        let asked = self.answer(partition.stream.get_info()).await;
        let info = asked.map_err(|why| Error::Retry(format!("cannot read the bounds: {why}")))?;
        let state = info.map_err(|error| Error::Retry(format!("cannot read the bounds: {error}")))?.state;
        // One that never had a message begins with 0.
        Ok((state.first_sequence.max(1), state.last_sequence))
    }
}

#[async_trait]
impl Log for NatsLog {
    fn partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        let place = self.partition(partition)?;
        check_entries(&entries)?;
        let failed = |error: &dyn fmt::Display| Error::Retry(format!("cannot append: {error}"));
        let mut sent = Vec::new();
        let mut disconnects = self.disconnects.clone();
        {
            let _sending = place.sending.lock().await;
            disconnects.mark_unchanged();
            for message in pack(&entries, self.message_bytes_max) {
                let subject =
                    format!("{}.{partition}.{}", self.name, if message.is_many { "many" } else { "one" });
                let publish = PublishMessage::build().payload(message.payload);
                let sending = timeout(self.timeout, self.context.send_publish(subject, publish)).await;
                let acknowledged = sending.map_err(|_| failed(&"it cannot be sent in time"))?;
                let acknowledged = acknowledged.map_err(|error| match error.kind() {
                    PublishErrorKind::MaxPayloadExceeded => Error::Invalid(format!("cannot append: {error}")),
                    _ => failed(&error),
                })?;
                sent.push((message.count, acknowledged));
            }
        }
        let mut messages = Vec::with_capacity(sent.len());
        for (count, acknowledged) in sent {
            // What was sent on a connection that was lost is in the stream, or not: no acknowledgement comes any more.
            let acknowledged = tokio::select! {
                biased;
                acknowledged = acknowledged.into_future() => acknowledged.map_err(|error| failed(&error))?,
                Ok(()) = disconnects.changed() => {
                    return Err(failed(&"the connection was lost; it may have been done, or not"));
                }
            };
            messages.push(Sent::among_entries(acknowledged.sequence, count));
        }
        Ok(pack::appended(&messages, read))
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        let place = self.partition(partition)?;
        let (first, last) = self.ends(place).await?;
        if after < pack::behind(first - 1) {
            return Err(Error::Trimmed { oldest: pack::behind(first - 1) });
        }
        if after > pack::behind(last) {
            let tail = pack::behind(last);
            return Err(Error::Invalid(format!("position {after} is behind the end of the log, {tail}")));
        }
        let reads = (pack::whole_message(after) + 1..=last).map(|sequence| async move {
            (sequence, self.answer(async { place.stream.direct_get(sequence).await }).await)
        });
        let mut reads = stream::iter(reads).buffered(READS);
        let mut records: Vec<Record> = Vec::new();
        let mut bytes = 0;
        while let Some((sequence, outcome)) = reads.next().await {
            let message = match outcome {
                Ok(Ok(message)) => message,
                // A server that is behind the others. What it lacks is given when it has it; what follows has to wait.
                Ok(Err(error)) if error.kind() == DirectGetErrorKind::NotFound && !records.is_empty() => {
                    break;
                }
                Ok(Err(error)) => {
                    return Err(Error::Retry(format!("cannot read message {sequence}: {error}")));
                }
                Err(why) => return Err(Error::Retry(format!("cannot read message {sequence}: {why}"))),
            };
            let found = unpack(message.subject.ends_with(".many"), &message.payload)?;
            for (position, entry) in pack::positions(sequence, found.len() as u32).zip(found) {
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

    async fn holds(&self, partition: u32, position: Position) -> Result<bool> {
        let (_, last) = self.ends(self.partition(partition)?).await?;
        Ok(position <= pack::behind(last))
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        let (first, last) = self.ends(self.partition(partition)?).await?;
        Ok(Bounds { oldest: pack::behind(first - 1), tail: pack::behind(last) })
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        let place = self.partition(partition)?;
        let (first, last) = self.ends(place).await?;
        let upto = pack::whole_message(upto).min(last);
        if upto < first {
            return Ok(());
        }
        let trimming = self.answer(async { place.stream.purge().sequence(upto + 1).await }).await;
        let trimmed = trimming.map_err(|why| Error::Retry(format!("cannot trim: {why}")))?;
        trimmed.map(drop).map_err(|error| Error::Retry(format!("cannot trim: {error}")))
    }
}
