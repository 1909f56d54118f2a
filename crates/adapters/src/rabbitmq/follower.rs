//! Reads a stream as it grows, and tells where messages came to stand.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Consumer, PublisherConfirm};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use umbel_core::{Error, Result};

/// Messages that are sent ahead of what was acknowledged.
const AHEAD: u16 = 64;
/// The header of a mark that says what the newest message with entries was, of all up to another one.
const TAIL: &str = "tail";
const UPTO: &str = "upto";

pub(super) fn failed(doing: &str, error: &lapin::Error) -> Error {
    Error::Retry(format!("{doing}: {error}"))
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It holds one entry.
    One,
    /// It holds many entries.
    Many,
    /// It holds none: somebody wanted to know how far the stream goes.
    Mark,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::One => "one", // persisted, as all names here
            Self::Many => "many",
            Self::Mark => "mark",
        }
    }

    pub(super) fn of(delivery: &Delivery) -> Result<Self> {
        let name = delivery.properties.kind().as_ref().map(ShortString::as_str);
        let kind = [Self::One, Self::Many, Self::Mark].into_iter().find(|kind| name == Some(kind.name()));
        kind.ok_or_else(|| Error::Corrupt(format!("a message in {} that is not ours", delivery.routing_key)))
    }
}

fn header(delivery: &Delivery, name: &str) -> Option<u64> {
    match delivery.properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongLongInt(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// The number of a message in its stream, from 1.
pub(super) fn place_of(delivery: &Delivery) -> Result<u64> {
    let offset = header(delivery, "x-stream-offset");
    offset.map(|offset| offset + 1).ok_or_else(|| Error::Corrupt("a message without its offset".into()))
}

/// What the writer of a mark had seen: the newest message with entries, of all up to another one.
pub(super) fn seen_by(mark: &Delivery) -> Option<(u64, u64)> {
    Some((header(mark, TAIL)?, header(mark, UPTO)?))
}

/// What a mark says of the newest message with entries before it, if it is a mark and knows it. If something came between, whoever set
/// the mark had not seen it.
pub(super) fn tail_by(mark: &Delivery, number: u64) -> Option<u64> {
    seen_by(mark).filter(|(_, upto)| *upto == number - 1).map(|(newest, _)| newest)
}

/// Where reading begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// With the oldest that is there, and one message at a time: who wants to know which that is needs no more.
    First,
    /// With what came last, and perhaps a little before.
    Last,
    /// With the message of this offset.
    Offset(u64),
}

/// Reads a stream from a place on.
pub(super) async fn consume(connection: &Connection, queue: &str, from: From) -> Result<(Channel, Consumer)> {
    let doing = "cannot read a stream";
    let begin = async {
        let channel = connection.create_channel().await?;
        let ahead = if matches!(from, From::First) { 1 } else { AHEAD };
        channel.basic_qos(ahead, BasicQosOptions::default()).await?;
        let from = match from {
            From::First => AMQPValue::LongString("first".into()),
            From::Last => AMQPValue::LongString("last".into()),
            From::Offset(offset) => AMQPValue::LongLongInt(i64::try_from(offset).unwrap_or(i64::MAX)),
        };
        let mut arguments = FieldTable::default();
        arguments.insert("x-stream-offset".into(), from);
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(queue.into(), "umbel".into(), options, arguments).await?;
        Ok((channel, consumer))
    };
    begin.await.map_err(|error| failed(doing, &error))
}

/// Follows one stream, and publishes to it.
pub(super) struct Follower {
    channel: Channel,
    queue: String,
    /// Tells this process's messages from those of others.
    prefix: String,
    count: AtomicU64,
    seen: Arc<Seen>,
    following: AbortHandle,
}

/// Its channel would keep the connection open, of which nobody knows any more.
impl Drop for Follower {
    fn drop(&mut self) {
        self.following.abort();
    }
}

#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest message with entries, if it is known.
    tail: Option<u64>,
    /// The newest message.
    last: u64,
    /// Who waits for which of their messages.
    waiting: HashMap<String, oneshot::Sender<Place>>,
}

/// Where a message came to stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its number in the stream.
    pub(super) number: u64,
    /// The number of the last message before it that has entries, if that is known; 0 if there is none.
    pub(super) before: Option<u64>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, delivery: &Delivery) -> Result<()> {
        let number = place_of(delivery)?;
        let kind = Kind::of(delivery)?;
        let mut state = self.lock();
        state.last = state.last.max(number);
        let before = state.tail;
        let tail = match kind {
            Kind::One | Kind::Many => Some(number),
            Kind::Mark => tail_by(delivery, number),
        };
        state.tail = state.tail.max(tail);
        let id = delivery.properties.message_id().as_ref().map(ShortString::as_str);
        if let Some(waiting) = id.and_then(|id| state.waiting.remove(id)) {
            // Nobody may be waiting any more.
            let _ = waiting.send(Place { number, before });
        }
        Ok(())
    }

    /// Nobody will be told anything any more.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.lock().waiting.clear();
    }
}

/// A message that is on its way.
pub(super) struct Published {
    confirm: PublisherConfirm,
    seen: oneshot::Receiver<Place>,
}

impl Published {
    /// Where it stands, once it is confirmed and was read back.
    pub(super) async fn place(self) -> Result<Place> {
        let doing = "cannot append";
        match self.confirm.await.map_err(|error| failed(doing, &error))? {
            Confirmation::Ack(None) => {}
            _ => return Err(Error::Retry(format!("{doing}: RabbitMQ did not take it"))),
        }
        self.seen.await.map_err(|_| Error::Retry(format!("{doing}: the connection was lost")))
    }
}

impl Follower {
    /// Begins to follow, and finds out where the stream ends. That takes as long as it takes, but not if nothing comes for so long.
    pub(super) async fn start(connection: &Connection, queue: &str, patience: Duration) -> Result<Arc<Self>> {
        let follower = Self::begin_marked(connection, queue, From::Last, patience).await?;
        if follower.seen.lock().tail.is_some() {
            return Ok(follower);
        }
        // What came last says nothing: all of it is read. The next one finds a mark that knows.
        let follower = Self::begin_marked(connection, queue, From::Offset(0), patience).await?;
        follower.seen.lock().tail.get_or_insert(0);
        follower.mark_in(patience).await?;
        Ok(follower)
    }

    /// Follows from a place on, and has seen all up to a mark of its own.
    async fn begin_marked(
        connection: &Connection,
        queue: &str,
        from: From,
        patience: Duration,
    ) -> Result<Arc<Self>> {
        let begun = timeout(patience, Self::begin(connection, queue, from)).await;
        let follower =
            begun.map_err(|_| Error::Retry(format!("cannot follow {queue}: no answer in time")))??;
        follower.mark_in(patience).await?;
        Ok(follower)
    }

    async fn begin(connection: &Connection, queue: &str, from: From) -> Result<Arc<Self>> {
        let (reading, mut consumer) = consume(connection, queue, from).await?;
        let opened = async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        };
        let channel = opened.await.map_err(|error| failed("cannot append", &error))?;
        let seen = Arc::new(Seen::default());
        let watched = Arc::downgrade(&seen);
        let following = tokio::spawn(async move {
            while let Some(Ok(delivery)) = consumer.next().await {
                let Some(seen) = watched.upgrade() else { break };
                if seen.see(&delivery).is_err() || delivery.ack(Default::default()).await.is_err() {
                    break;
                }
            }
            if let Some(seen) = watched.upgrade() {
                seen.end();
            }
            // It may be closed already.
            let _ = reading.close(200, "done".into()).await;
        });
        let prefix = format!("{:032x}", fresh());
        let (queue, following) = (queue.to_owned(), following.abort_handle());
        Ok(Arc::new(Self { channel, queue, prefix, count: AtomicU64::new(0), seen, following }))
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.seen.is_over.load(Ordering::SeqCst)
    }

    /// The newest message with entries that was seen; 0 if there is none.
    pub(super) fn tail(&self) -> u64 {
        self.seen.lock().tail.unwrap_or(0)
    }

    /// The newest message that was seen.
    pub(super) fn last(&self) -> u64 {
        self.seen.lock().last
    }

    /// Sends a message.
    pub(super) async fn publish(&self, kind: Kind, payload: &[u8]) -> Result<Published> {
        let id = format!("{}-{}", self.prefix, self.count.fetch_add(1, Ordering::Relaxed));
        let (told, seen) = oneshot::channel();
        let mut properties =
            BasicProperties::default().with_message_id(id.as_str().into()).with_type(kind.name().into());
        {
            let mut state = self.seen.lock();
            if let Some(tail) = state.tail.filter(|_| kind == Kind::Mark) {
                let number = |number| AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX));
                let mut headers = FieldTable::default();
                headers.insert(TAIL.into(), number(tail));
                headers.insert(UPTO.into(), number(state.last));
                properties = properties.with_headers(headers);
            }
            state.waiting.insert(id, told);
        }
        if !self.is_alive() {
            return Err(Error::Retry("cannot append: the connection was lost".into()));
        }
        let options = BasicPublishOptions::default();
        let sent =
            self.channel.basic_publish("".into(), self.queue.as_str().into(), options, payload, properties);
        let confirm = sent.await.map_err(|error| failed("cannot append", &error))?;
        Ok(Published { confirm, seen })
    }

    /// Waits until all that is in the stream now was seen.
    pub(super) async fn mark(&self) -> Result<()> {
        self.publish(Kind::Mark, b"mark").await?.place().await.map(drop)
    }

    /// The same, however much there is to be seen, unless nothing comes for so long.
    async fn mark_in(&self, patience: Duration) -> Result<()> {
        let mut mark = pin!(self.mark());
        let mut seen = self.last();
        loop {
            match timeout(patience, &mut mark).await {
                Ok(outcome) => return outcome,
                Err(_) if self.last() > seen => seen = self.last(),
                Err(_) => return Err(Error::Retry(format!("cannot follow {}: nothing comes", self.queue))),
            }
        }
    }
}

/// A number that no other process has.
fn fresh() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let word = |number: u8| u128::from(RandomState::new().hash_one(number));
    word(1) << 64 | word(2)
}
