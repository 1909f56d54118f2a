//! Answers that several servers keep together, in a store between them.
//!
//! An answer is as old as the store's own clock says, which all of them share: it has the time at which whoever fetched it began. What keeps an
//! answer in memory from being given too late holds for these as well. They end with their time; they are held against the filters here; and
//! none is taken that is older than the last change of its key which this process was told of, whether the store has heard of that or not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use umbel_core::clock::Clock;
use umbel_filter::Fingerprint;

use crate::limits::{SHARED_BYTES_MAX, SHARED_FAILED_REST, SHARED_WAIT_MAX, SHARED_WRITES_MAX};
use crate::remote::{key_of, written};
use crate::source::{Record, record_of, record_written};
use crate::{Error, Result};

/// How answers are written; others are not read.
const VERSION: u64 = 1; // persisted

/// Where several servers keep answers: bytes under a name, for a time. Whatever it loses is fetched again.
#[async_trait]
pub trait SharedAnswers: fmt::Debug + Send + Sync + 'static {
    /// The store's time, since whenever, and what is kept under a name.
    async fn get(&self, name: &str) -> Result<(Duration, Option<Vec<u8>>)>;

    /// Keeps something for so long.
    async fn put(&self, name: &str, bytes: Vec<u8>, time: Duration) -> Result<()>;

    /// Forgets something.
    async fn remove(&self, name: &str) -> Result<()>;
}

/// An answer as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    /// The store's time before it was fetched.
    pub(super) born: Duration,
    pub(super) key: Vec<u8>,
    pub(super) record: Option<(Arc<str>, Arc<Record>)>,
    pub(super) refuted: Vec<Arc<str>>,
}

impl Written {
    /// None if it is too much, or nothing that can be written.
    fn encode(&self) -> Option<Vec<u8>> {
        let record = match &self.record {
            Some((domain, record)) if record.bytes() <= SHARED_BYTES_MAX => {
                json!({ "domain": &**domain, "record": record_written(record)? })
            }
            Some(_) => return None,
            None => Json::Null,
        };
        let refuted: Vec<&str> = self.refuted.iter().map(|domain| &**domain).collect();
        let born = u64::try_from(self.born.as_micros()).ok()?;
        let key = written(&self.key);
        let all = json!({ "v": VERSION, "born_us": born, "key": key, "found": record, "refuted": refuted });
        serde_json::to_vec(&all).ok()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        // Bytes take more room as text.
        if bytes.len() > 8 * SHARED_BYTES_MAX {
            return None;
        }
        let all: Json = serde_json::from_slice(bytes).ok()?;
        if all["v"] != VERSION {
            return None;
        }
        let record = match &all["found"] {
            Json::Null => None,
            found => Some((Arc::from(found["domain"].as_str()?), Arc::new(record_of(&found["record"])?))),
        };
        let refuted = all["refuted"].as_array()?.iter().map(|domain| domain.as_str().map(Arc::from));
        Some(Self {
            born: Duration::from_micros(all["born_us"].as_u64()?),
            key: key_of(&all["key"])?,
            record,
            refuted: refuted.collect::<Option<_>>()?,
        })
    }
}

/// What was found in the store.
#[derive(Debug)]
pub(super) struct Seen {
    /// The store's time before anything is fetched.
    pub(super) time: Duration,
    /// An answer to the same key, and how old it is.
    pub(super) answer: Option<(Written, Duration)>,
}

/// The store, as lookups use it: never for long, and not at all for a while after it failed.
pub(super) struct Shared {
    store: Arc<dyn SharedAnswers>,
    /// What names begin with: those of other catalogs begin otherwise.
    prefix: String,
    runtime: Handle,
    clock: Arc<dyn Clock>,
    /// When it may be asked again, in microseconds.
    rests_until: AtomicU64,
    /// Writes under way.
    writes: Arc<Semaphore>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("store", &self.store)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(
        store: Arc<dyn SharedAnswers>,
        catalog: &str,
        runtime: Handle,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let writes = Arc::new(Semaphore::new(SHARED_WRITES_MAX));
        let prefix = format!("{catalog}:");
        Self { store, prefix, runtime, clock, rests_until: AtomicU64::new(0), writes }
    }

    fn name(&self, fingerprint: Fingerprint) -> String {
        format!("{}{:016x}{:016x}", self.prefix, fingerprint.first, fingerprint.second)
    }

    /// What the store has; none if it does not say so at once.
    pub(super) async fn get(&self, fingerprint: Fingerprint, key: &[u8]) -> Option<Seen> {
        let now = self.clock.now().as_micros() as u64;
        if now < self.rests_until.load(Ordering::Relaxed) {
            return None;
        }
        let name = self.name(fingerprint);
        let told = timeout(SHARED_WAIT_MAX, self.store.get(&name)).await;
        let told = told.unwrap_or_else(|_| Err(Error::Retry("no answer in time".into())));
        let (time, bytes) = match told {
            Ok(told) => told,
            Err(error) => {
                tracing::debug!(%error, "shared answers cannot be read");
                self.rests_until.store(now + SHARED_FAILED_REST.as_micros() as u64, Ordering::Relaxed);
                return None;
            }
        };
        // Other keys may have the same name, if somebody makes them so.
        let answer = bytes.as_deref().and_then(Written::decode).filter(|answer| answer.key == key);
        // One from the future was written before the store's clock was put back: nobody knows how old it is.
        let answer = answer.and_then(|answer| Some((time.checked_sub(answer.born)?, answer)));
        Some(Seen { time, answer: answer.map(|(age, answer)| (answer, age)) })
    }

    /// Lets others have an answer for so long, if that is soon done. Nobody waits for it.
    pub(super) fn put(&self, fingerprint: Fingerprint, answer: &Written, time: Duration) {
        let Some(bytes) = answer.encode().filter(|_| time >= Duration::from_millis(1)) else { return };
        let (store, name) = (Arc::clone(&self.store), self.name(fingerprint));
        self.soon(async move { store.put(&name, bytes, time).await });
    }

    /// Others may still have it for a while, and so may the store if it is away: this process does not believe it any more.
    pub(super) fn remove(&self, fingerprint: Fingerprint) {
        let (store, name) = (Arc::clone(&self.store), self.name(fingerprint));
        self.soon(async move { store.remove(&name).await });
    }

    fn soon(&self, work: impl Future<Output = Result<()>> + Send + 'static) {
        // Too many that wait mean that the store is slow, and it is only a convenience.
        let Ok(turn) = Arc::clone(&self.writes).try_acquire_owned() else { return };
        self.runtime.spawn(async move {
            if let Err(error) = work.await {
                tracing::debug!(%error, "shared answers cannot be written");
            }
            drop(turn);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Value};

    #[test]
    fn answers_come_back_as_they_were_written() {
        let row = [
            Value::Null,
            Value::Int(-7),
            Value::Uint(u64::MAX),
            Value::Real(2.0),
            Value::Text("é\"".into()),
            Value::Bytes(vec![0xff, 0]),
        ];
        let row = row.map(|value| Field { column: "c".into(), value }).to_vec();
        let body = |bytes: &'static [u8]| Record::Body { kind: Some("a/b".into()), bytes: bytes.into() };
        for record in [Some(Record::Row(row)), Some(body(b"text")), Some(body(b"\xff\0")), None] {
            let answer = Written {
                born: Duration::from_micros(1_700_000_000_123_456),
                key: vec![0, 0xff],
                record: record.map(|record| ("south".into(), Arc::new(record))),
                refuted: vec!["north".into(), "east".into()],
            };
            let bytes = answer.encode().unwrap();
            assert_eq!(Written::decode(&bytes), Some(answer));
            assert!((0..bytes.len()).all(|length| Written::decode(&bytes[..length]).is_none()));
        }
    }

    #[test]
    fn what_cannot_be_written_is_not() {
        let answer = |record| Written {
            born: Duration::ZERO,
            key: vec![],
            record: Some(("south".into(), Arc::new(record))),
            refuted: vec![],
        };
        let large = Record::Body { kind: None, bytes: vec![0; SHARED_BYTES_MAX + 1].into() };
        assert_eq!(answer(large).encode(), None);
        let nan = Record::Row(vec![Field { column: "c".into(), value: Value::Real(f64::NAN) }]);
        assert_eq!(answer(nan).encode(), None);
        for other in ["", "{}", "[]", r#"{"v":2,"born_us":1,"key":"a","found":null,"refuted":[]}"#] {
            assert_eq!(Written::decode(other.as_bytes()), None, "{other}");
        }
    }
}
