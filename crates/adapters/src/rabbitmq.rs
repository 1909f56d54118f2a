//! The log in RabbitMQ: a stream for each partition, over AMQP.
//!
//! A confirm does not say where in the stream a message is. So every partition that is used has a follower, which reads the stream
//! as it grows and tells where each message of ours came to stand.

mod follower;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::QueueDeclareOptions;
use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties, Consumer, DefaultConnectionBuilder, ErrorKind};
use tokio::sync::Mutex;
use tokio::time::timeout;
use umbel_core::limits::ENTRY_BYTES_MAX;
use umbel_core::log::{Appended, Bounds, Log, Record, check_entries};
use umbel_core::{Error, Position, Result};

use crate::access::{Access, Convention, Tls};
use crate::pack::{self, Sent, pack, unpack};
use crate::{About, Durability, Opened, Url};
use follower::{Follower, From, Kind, Place, consume, failed, place_of, seen_by, tail_by};

const PARTITIONS: u32 = 16;
/// What AMQP calls it: PRECONDITION_FAILED, NOT_IMPLEMENTED, INTERNAL_ERROR.
const NO_STREAMS: [u16; 3] = [406, 540, 541];
/// How long a system takes to write what RabbitMQ leaves to it.
const WRITEBACK: Duration = Duration::from_secs(30);

/// Marks in a row after which they are leapt over, and messages that need no leap.
const LEAP: u64 = 2048;

/// A log of stream queues.
///
/// A batch is one message as far as it fits; one that does not may have entries of others between its messages. What others append
/// is seen when the follower has read it. Nobody says where a stream ends: whoever has to know it puts a mark there and waits for it,
/// and so sees all that was there before. `bounds` does, and `read` before it says that there is nothing more.
///
/// AMQP cannot cut the beginning off a stream: `trim` keeps everything. What a retention of RabbitMQ's own takes away is seen, and an
/// engine that needed it says so.
struct RabbitLog {
    uri: AMQPUri,
    tls: Option<Tls>,
    name: String,
    partitions: u32,
    timeout: Duration,
    session: Mutex<Option<Arc<Session>>>,
}

/// A connection and what depends on it. All of it is given up together when a part fails.
struct Session {
    connection: Connection,
    followers: Mutex<HashMap<String, Following>>,
}

/// The follower of a queue, when there is one; whoever makes it keeps only those waiting who want the same.
type Following = Arc<Mutex<Option<Arc<Follower>>>>;

impl fmt::Debug for RabbitLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address holds the password.
        f.debug_struct("RabbitLog").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Opens `rabbitmq://user:password@host:port/name?partitions=16&vhost=/`.
pub(crate) async fn open_log(url: &Url) -> Result<Opened<dyn Log>> {
    url.allow(&["ca", "cert", "key", "partitions", "timeout_ms", "tls", "vhost"])?;
    // Its tools read files of their own, which no client does.
    let access = Access::of(url, Convention::default())?;
    let hosts = url.hosts_with_port(if access.tls.is_some() { 5671 } else { 5672 });
    let [host] = &hosts[..] else {
        return Err(Error::Invalid(format!("{url} names {} hosts; a RabbitMQ is one", hosts.len())));
    };
    let (host, port) = host.rsplit_once(':').unwrap_or((host, "5672"));
    let (username, password) = access.credentials.unwrap_or_else(|| ("guest".into(), "guest".into()));
    let timeout = url.timeout()?;
    let uri = AMQPUri {
        scheme: if access.tls.is_some() { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo { username, password },
            host: host.to_owned(),
            port: port.parse().map_err(|_| Error::Invalid(format!("{url} has no port that is a number")))?,
        },
        vhost: url.parameter("vhost").unwrap_or("/").to_owned(),
        query: AMQPQueryString {
            heartbeat: Some(10),
            connection_timeout: Some(timeout.as_millis() as u64),
            ..AMQPQueryString::default()
        },
    };
    let name = url.path_or("umbel");
    let mut log = RabbitLog { uri, tls: access.tls, name, partitions: 0, timeout, session: Mutex::default() };
    log.partitions = log.agree(url.partitions()?.unwrap_or(PARTITIONS)).await?;
    if url.partitions()?.is_some_and(|wanted| wanted != log.partitions) {
        return Err(Error::Invalid(format!("the log at {url} has {} partitions", log.partitions)));
    }
    let about = About {
        engine: "RabbitMQ streams",
        version: String::new(),
        durability: Durability::Window(WRITEBACK),
        lacks: "it leaves it to the system when to write; streams cannot be trimmed over AMQP, so a policy has to \
                (max-length-bytes)"
            .into(),
    };
    Ok(Opened { plane: Arc::new(log), about })
}

impl RabbitLog {
    fn queue(&self, partition: u32) -> Result<String> {
        if partition >= self.partitions {
            return Err(Error::Invalid(format!("partition {partition} of a log of {}", self.partitions)));
        }
        Ok(format!("{}.{partition}", self.name))
    }

    /// The number of partitions, which a stream of its own says; the first who opens the log decides.
    async fn agree(&self, wanted: u32) -> Result<u32> {
        let queue = format!("{}.partitions", self.name);
        let mut said = self.read_queue(&queue, Position::START, 1).await?;
        if said.is_empty() {
            let number = Bytes::copy_from_slice(&wanted.to_le_bytes());
            self.append_queue(&queue, vec![number], Position::START).await?;
            said = self.read_queue(&queue, Position::START, 1).await?;
        }
        let first = said.first().and_then(|record| record.entry.first_chunk());
        let first =
            first.ok_or_else(|| Error::Corrupt(format!("{queue} does not say how many there are")))?;
        Ok(u32::from_le_bytes(*first))
    }

    async fn session(&self) -> Result<Arc<Session>> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| session.connection.status().connected()) {
            return Ok(Arc::clone(session));
        }
        let properties = ConnectionProperties::default().with_connection_name("umbel".into());
        let mut files = OwnedTLSConfig::default();
        if let Some(tls) = &self.tls {
            files.cert_chain = tls.authority_pem()?;
            let identity = tls.identity_pem()?;
            files.identity = identity
                .map(|(cert, key)| OwnedIdentity::PKCS8 { pem: cert.into_bytes(), key: key.into_bytes() });
        }
        let doing = "cannot connect to RabbitMQ";
        let builder = DefaultConnectionBuilder::new().map_err(|error| failed(doing, &error))?;
        let builder = builder.with_uri(self.uri.clone()).with_properties(properties).with_tls_config(files);
        let connection = self.within(doing, builder.connect()).await?;
        Ok(Arc::clone(session.insert(Arc::new(Session { connection, followers: Mutex::default() }))))
    }

    /// What a request comes to, if it comes in time.
    async fn within<T>(&self, doing: &str, request: impl Future<Output = lapin::Result<T>>) -> Result<T> {
        match timeout(self.timeout, request).await {
            Ok(outcome) => outcome.map_err(|error| failed(doing, &error)),
            Err(_) => {
                let seconds = self.timeout.as_secs_f64();
                Err(Error::Retry(format!("{doing}: RabbitMQ did not answer within {seconds} s")))
            }
        }
    }

    /// The follower of a queue, which is made if it is not there. That may take long, and others need not wait for it.
    async fn follower(&self, session: &Session, queue: &str) -> Result<Arc<Follower>> {
        let place = Arc::clone(session.followers.lock().await.entry(queue.to_owned()).or_default());
        let mut place = place.lock().await;
        if let Some(follower) = place.as_ref().filter(|follower| follower.is_alive()) {
            return Ok(Arc::clone(follower));
        }
        let declare = async {
            let channel = session.connection.create_channel().await?;
            let mut arguments = FieldTable::default();
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("stream".into()));
            channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await?;
            channel.close(200, "done".into()).await
        };
        let doing = "cannot make a stream";
        match timeout(self.timeout, declare).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(not_made(queue, &error)),
            Err(_) => return Err(Error::Retry(format!("{doing}: RabbitMQ did not answer in time"))),
        }
        let follower = Follower::start(&session.connection, queue, self.timeout).await?;
        Ok(Arc::clone(place.insert(follower)))
    }

    /// Does something with a queue; if it fails, begins with a new connection next time.
    async fn with<T>(
        &self,
        queue: &str,
        work: impl AsyncFnOnce(&Session, &Follower) -> Result<T>,
    ) -> Result<T> {
        let session = self.session().await?;
        let outcome = match self.follower(&session, queue).await {
            Ok(follower) => work(&session, &follower).await,
            Err(error) => Err(error),
        };
        if matches!(outcome, Err(Error::Retry(_))) {
            let mut current = self.session.lock().await;
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &session)) {
                *current = None;
            }
        }
        outcome
    }

    async fn append_queue(&self, queue: &str, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        self.with(queue, async |_, follower| {
            let append = async {
                let mut sent = Vec::new();
                for message in pack(&entries, ENTRY_BYTES_MAX) {
                    let kind = if message.is_many { Kind::Many } else { Kind::One };
                    sent.push((message.count, follower.publish(kind, &message.payload).await?));
                }
                let mut messages = Vec::with_capacity(sent.len());
                for (count, published) in sent {
                    let Place { number, before } = published.place().await?;
                    messages.push(Sent { number, count, before });
                }
                Ok(pack::appended(&messages, read))
            };
            in_time(self.timeout, queue, append).await
        })
        .await
    }

    async fn read_queue(&self, queue: &str, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        self.with(queue, async |session, follower| {
            let first = pack::whole_message(after);
            if first >= follower.tail() {
                // So it seems; what others appended may not have come here yet.
                in_time(self.timeout, queue, follower.mark()).await?;
            }
            let tail = follower.tail();
            if after > pack::behind(tail.max(follower.last())) {
                let tail = pack::behind(tail);
                return Err(Error::Invalid(format!("position {after} is behind the end of the log, {tail}")));
            }
            let mut records: Vec<Record> = Vec::new();
            if first >= tail {
                return Ok(records);
            }
            let reading = |from| in_time(self.timeout, queue, consume(&session.connection, queue, from));
            let (mut channel, mut consumer) = reading(From::Offset(first)).await?;
            let mut bytes = 0;
            let mut next = first + 1;
            let mut marks = 0;
            while next <= tail {
                // However many marks there are before the next entry: it is waited for as long as something comes.
                let Some(delivery) = in_time(self.timeout, queue, taken(&mut consumer)).await? else {
                    if records.is_empty() {
                        return Err(Error::Retry("cannot read the log: it was cut off".into()));
                    }
                    break;
                };
                let place = place_of(&delivery)?;
                // A stream is read by chunks, which may begin before what was asked for.
                if place < next {
                    continue;
                }
                let kind = Kind::of(&delivery)?;
                // What a retention took away may have been marks, and nothing else.
                if place > next && tail_by(&delivery, place).is_none_or(|known| known >= next) {
                    return Err(Error::Trimmed { oldest: pack::behind(place - 1) });
                }
                next = place + 1;
                if kind == Kind::Mark {
                    marks += 1;
                    // Where nothing was added for long, there are more of them than anybody wants to read.
                    if marks == LEAP && records.is_empty() && tail - place > LEAP {
                        let past = self.past_marks(session, queue, first, place, tail).await?;
                        (channel, consumer) = reading(From::Offset(past)).await?;
                        next = past + 1;
                    }
                    continue;
                }
                let found = unpack(kind == Kind::Many, &delivery.data.into())?;
                for (position, entry) in pack::positions(place, found.len() as u32).zip(found) {
                    if position <= after {
                        continue;
                    }
                    bytes += entry.len();
                    if bytes > bytes_max && !records.is_empty() {
                        next = u64::MAX;
                        break;
                    }
                    records.push(Record { position, entry });
                }
            }
            // What is left of it is not waited for.
            let _ = timeout(self.timeout, channel.close(200, "done".into())).await;
            Ok(records)
        })
        .await
    }
}

impl RabbitLog {
    /// A message behind `from` up to which there are no entries after the message `first`, near the next that has some. That is `tail` or
    /// one before it. Every mark says what its writer had seen, so the stream is halved until it is short.
    async fn past_marks(
        &self,
        session: &Session,
        queue: &str,
        first: u64,
        from: u64,
        tail: u64,
    ) -> Result<u64> {
        let (mut without, mut with) = (from, tail);
        while with - without > LEAP {
            let middle = without + (with - without) / 2;
            let reading = consume(&session.connection, queue, From::Offset(middle));
            let (_channel, mut consumer) = in_time(self.timeout, queue, reading).await?;
            let before = (without, with);
            for _ in 0..LEAP {
                let Some(delivery) = in_time(self.timeout, queue, taken(&mut consumer)).await? else { break };
                let place = place_of(&delivery)?;
                if place <= middle {
                    continue;
                }
                match seen_by(&delivery) {
                    _ if Kind::of(&delivery)? != Kind::Mark => with = with.min(place),
                    Some((newest, _)) if newest > first => with = with.min(newest),
                    Some((_, upto)) => without = without.max(upto),
                    None => continue,
                }
                break;
            }
            if (without, with) == before {
                break;
            }
        }
        Ok(without)
    }
}

/// What something comes to that RabbitMQ has to answer, if it does in time.
async fn in_time<T>(limit: Duration, queue: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::Retry(format!("{queue}: RabbitMQ did not answer in time"))),
    }
}

/// The next message of a stream, which may send more for it.
async fn taken(consumer: &mut Consumer) -> Result<Option<Delivery>> {
    let taken = async {
        let Some(delivery) = consumer.next().await.transpose()? else { return Ok(None) };
        delivery.ack(Default::default()).await?;
        Ok(Some(delivery))
    };
    taken.await.map_err(|error| failed("cannot read the log", &error))
}

/// Why there is no stream. A server that does not know what one is refuses its arguments.
fn not_made(queue: &str, error: &lapin::Error) -> Error {
    match error.kind() {
        ErrorKind::ProtocolError(why) if why.get_message().as_str().contains("inequivalent arg") => {
            Error::Invalid(format!("RabbitMQ has a queue {queue} that is no stream"))
        }
        ErrorKind::ProtocolError(why) if NO_STREAMS.contains(&why.get_id()) => Error::Invalid(format!(
            "this RabbitMQ has no streams: it is older than 3.9, or its feature flag stream_queue is off ({why})"
        )),
        _ => failed("cannot make a stream", error),
    }
}

#[async_trait]
impl Log for RabbitLog {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        let queue = self.queue(partition)?;
        check_entries(&entries)?;
        if entries.is_empty() {
            return Ok(Appended::default());
        }
        self.append_queue(&queue, entries, read).await
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        self.read_queue(&self.queue(partition)?, after, bytes_max).await
    }

    async fn holds(&self, partition: u32, position: Position) -> Result<bool> {
        Ok(position <= self.bounds(partition).await?.tail)
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        let queue = self.queue(partition)?;
        self.with(&queue, async |session, follower| {
            let oldest = async {
                // With it the stream has a message at least.
                follower.mark().await?;
                let (channel, mut consumer) = consume(&session.connection, &queue, From::First).await?;
                match consumer.next().await {
                    Some(Ok(first)) => Ok((channel, place_of(&first)?)),
                    Some(Err(error)) => Err(failed("cannot read the bounds", &error)),
                    None => Err(Error::Retry("cannot read the bounds: the connection was lost".into())),
                }
            };
            let (channel, first) = in_time(self.timeout, &queue, oldest).await?;
            // What is left of it is not waited for.
            let _ = timeout(self.timeout, channel.close(200, "done".into())).await;
            let tail = pack::behind(follower.tail());
            Ok(Bounds { oldest: pack::behind(first - 1).min(tail), tail })
        })
        .await
    }

    async fn trim(&self, partition: u32, _upto: Position) -> Result<()> {
        self.queue(partition).map(drop)
    }
}
