//! The clients of a log in Kafka, and the replacement of those that are stuck.
//!
//! A client of librdkafka can lose the way to a cluster that is there: when brokers come back from a pause, one of them may answer that
//! there is no broker yet, and the client drops all that it knows and never asks again (confluentinc/librdkafka#5301; seen with 2.12.1).
//! Its errors are those of a cluster that is away, so they tell nothing. A client that does work tells: one that fails where a new one
//! gets an answer to the same question is stuck, and is replaced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::{FutureProducer, Producer, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;
use umbel_core::Result;

use super::{Trouble, blocking, consumer, failed, lock, producer};

/// How long a client has for the question by which it is judged.
const QUESTION: Duration = Duration::from_secs(1);
/// Pause between two checks while some client is suspected.
const CHECK_PAUSE: Duration = Duration::from_millis(200);
/// A client is not replaced before it is this old, so that clients are not created faster than this, whatever fails.
const AGE_MIN: Duration = Duration::from_secs(1);
/// An operation that takes longer makes its client suspected, though it may yet succeed.
pub(super) const SLOW: Duration = Duration::from_secs(1);

/// Why a client is suspected of being stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspicion {
    /// An operation has no answer yet.
    Slow,
    /// An operation failed.
    Failed,
}

/// A client that can be replaced while it is in use.
pub(super) struct Replaceable<T>(Mutex<Current<T>>);

struct Current<T> {
    client: Arc<T>,
    created: Instant,
    suspected: Option<(Suspicion, u32)>,
}

impl<T> Current<T> {
    fn new(client: T) -> Self {
        Self { client: Arc::new(client), created: Instant::now(), suspected: None }
    }
}

impl<T> Replaceable<T> {
    fn new(client: T) -> Self {
        Self(Mutex::new(Current::new(client)))
    }

    pub(super) fn get(&self) -> Arc<T> {
        Arc::clone(&lock(&self.0).client)
    }

    /// An operation of this client succeeded.
    pub(super) fn succeeded(&self, client: &Arc<T>) {
        let mut current = lock(&self.0);
        if Arc::ptr_eq(&current.client, client) {
            current.suspected = None;
        }
    }

    /// Marks this client, because of an operation on a partition; false if it was replaced meanwhile.
    fn suspect(&self, client: &Arc<T>, suspicion: Suspicion, partition: u32) -> bool {
        let mut current = lock(&self.0);
        if !Arc::ptr_eq(&current.client, client) {
            return false;
        }
        current.suspected = current.suspected.max(Some((suspicion, partition)));
        true
    }

    fn suspected(&self) -> Option<(Arc<T>, Suspicion, u32)> {
        let current = lock(&self.0);
        let (suspicion, partition) = current.suspected?;
        Some((Arc::clone(&current.client), suspicion, partition))
    }

    /// Puts another client in the place of a stuck one; false if that is too young.
    fn replace(&self, stuck: &Arc<T>, create: impl FnOnce() -> Result<T>) -> Result<bool> {
        let mut current = lock(&self.0);
        if !Arc::ptr_eq(&current.client, stuck) || current.created.elapsed() < AGE_MIN {
            return Ok(false);
        }
        *current = Current::new(create()?);
        Ok(true)
    }
}

/// All clients of a log but those that read, which replace themselves.
pub(super) struct Clients {
    pub(super) config: ClientConfig,
    pub(super) topic: String,
    pub(super) timeout: Duration,
    pub(super) producer: Replaceable<FutureProducer<Trouble>>,
    pub(super) admin: Replaceable<AdminClient<DefaultClientContext>>,
    /// Asks where partitions begin and end, and reads nothing: a reader's connection answers only after the messages that it waits for
    /// already, and a question for an end may hold up others.
    pub(super) asker: Replaceable<BaseConsumer>,
    /// Grows when a client was found to be stuck. Readers that are older are replaced before they are used again.
    generation: AtomicU64,
    suspected: Arc<Notify>,
}

impl Clients {
    /// Takes clients that were just created.
    pub(super) fn new(
        config: ClientConfig,
        topic: String,
        timeout: Duration,
        producer: FutureProducer<Trouble>,
        admin: AdminClient<DefaultClientContext>,
        asker: BaseConsumer,
    ) -> Arc<Self> {
        let clients = Arc::new(Self {
            config,
            topic,
            timeout,
            producer: Replaceable::new(producer),
            admin: Replaceable::new(admin),
            asker: Replaceable::new(asker),
            generation: AtomicU64::new(0),
            suspected: Arc::default(),
        });
        tokio::spawn(replace_stuck(Arc::downgrade(&clients), Arc::clone(&clients.suspected)));
        clients
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Has a client checked, because of an operation on a partition.
    pub(super) fn suspect<T>(
        &self,
        which: &Replaceable<T>,
        client: &Arc<T>,
        suspicion: Suspicion,
        partition: u32,
    ) {
        if which.suspect(client, suspicion, partition) {
            self.suspected.notify_one();
        }
    }

    /// The producer. One that had a fatal error is replaced at once: it refuses everything.
    pub(super) fn producer(&self) -> Result<Arc<FutureProducer<Trouble>>> {
        let current = self.producer.get();
        if current.client().fatal_error().is_some() {
            self.producer.replace(&current, || self.create_producer())?;
        }
        Ok(self.producer.get())
    }

    fn create_producer(&self) -> Result<FutureProducer<Trouble>> {
        let created = producer(&self.config, self.timeout, Trouble::default());
        created.map_err(|error| failed("cannot create another producer", &error))
    }

    pub(super) fn create_consumer(&self) -> Result<BaseConsumer> {
        consumer(&self.config).map_err(|error| failed("cannot create another consumer", &error))
    }

    /// Asks the question by which clients are judged. All of them can be asked it, and it needs the leader of the partition.
    fn ask(&self, client: &impl Asked, partition: u32) -> KafkaResult<()> {
        client.bounds(&self.topic, partition as i32, QUESTION)
    }

    /// Replaces those of the suspected clients that fail where a new one does not. Returns whether any is still suspected.
    fn replace_stuck(&self) -> Result<bool> {
        let producer = self.producer.suspected();
        let (admin, asker) = (self.admin.suspected(), self.asker.suspected());
        let partitions = [
            producer.as_ref().map(|found| found.2),
            admin.as_ref().map(|found| found.2),
            asker.as_ref().map(|found| found.2),
        ];
        let Some(partition) = partitions.into_iter().flatten().next() else { return Ok(false) };
        let new = self.create_consumer()?;
        if self.ask(&new, partition).is_err() {
            // The cluster, or this partition, is away for every client.
            return Ok(true);
        }
        let mut replaced = false;
        if let Some((stuck, _, partition)) = asker
            && self.is_stuck(&self.asker, &stuck, Suspicion::Failed, partition)
        {
            replaced |= self.asker.replace(&stuck, || Ok(new))?;
            release(stuck);
        }
        if let Some((stuck, suspicion, partition)) = producer
            && self.is_stuck(&self.producer, &stuck, suspicion, partition)
            && self.producer.replace(&stuck, || self.create_producer())?
        {
            // What it has not sent will not be appended, and what it has sent may be: its appends end now, with an error that says so.
            // The new producer has an identity of its own, so it neither waits for the old one nor repeats what that one sent.
            stuck.purge(PurgeConfig::default().queue().inflight());
            release(stuck);
            replaced = true;
        }
        if let Some((stuck, _, partition)) = admin
            && self.is_stuck(&self.admin, &stuck, Suspicion::Failed, partition)
        {
            let create = || {
                let created = self.config.create();
                created.map_err(|error| failed("cannot create another client for administration", &error))
            };
            replaced |= self.admin.replace(&stuck, create)?;
            release(stuck);
        }
        if replaced {
            self.generation.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(topic = self.topic, "clients of Kafka were stuck, and are replaced by new ones");
        }
        Ok(self.producer.suspected().is_some()
            || self.admin.suspected().is_some()
            || self.asker.suspected().is_some())
    }

    /// Whether a client does not get the answer that a new one got just now.
    fn is_stuck<T: Asked>(
        &self,
        which: &Replaceable<T>,
        client: &Arc<T>,
        suspicion: Suspicion,
        partition: u32,
    ) -> bool {
        match self.ask(&**client, partition) {
            Ok(()) => {
                which.succeeded(client);
                false
            }
            // The broker takes the requests of a connection one after another: the question may wait behind a slow append.
            Err(error) => suspicion == Suspicion::Failed || !is_timeout(&error),
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.suspected.notify_one();
    }
}

fn is_timeout(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{OperationTimedOut, RequestTimedOut};
    matches!(error.rdkafka_error_code(), Some(OperationTimedOut | RequestTimedOut))
}

/// Drops a client on a thread of its own: it waits for its threads and for operations under way.
fn release<T: Send + Sync + 'static>(client: Arc<T>) {
    std::thread::spawn(move || drop(client));
}

/// A client that can be asked for the bounds of a partition.
trait Asked {
    fn bounds(&self, topic: &str, partition: i32, timeout: Duration) -> KafkaResult<()>;
}

impl Asked for BaseConsumer {
    fn bounds(&self, topic: &str, partition: i32, timeout: Duration) -> KafkaResult<()> {
        self.client().fetch_watermarks(topic, partition, timeout).map(drop)
    }
}

impl Asked for FutureProducer<Trouble> {
    fn bounds(&self, topic: &str, partition: i32, timeout: Duration) -> KafkaResult<()> {
        self.client().fetch_watermarks(topic, partition, timeout).map(drop)
    }
}

impl Asked for AdminClient<DefaultClientContext> {
    fn bounds(&self, topic: &str, partition: i32, timeout: Duration) -> KafkaResult<()> {
        self.inner().fetch_watermarks(topic, partition, timeout).map(drop)
    }
}

/// Checks clients while any is suspected, until the log is dropped.
async fn replace_stuck(clients: Weak<Clients>, suspected: Arc<Notify>) {
    loop {
        suspected.notified().await;
        loop {
            let Some(clients) = clients.upgrade() else { return };
            let checked = blocking(move || clients.replace_stuck()).await;
            tokio::time::sleep(CHECK_PAUSE).await;
            match checked {
                Ok(true) | Err(_) => {}
                Ok(false) => break,
            }
        }
    }
}
