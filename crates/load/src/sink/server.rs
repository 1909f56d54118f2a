//! A filter of a server, over HTTP.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use umbel_client::Server;
use umbel_filter::{Family, Hasher};

use super::{Packed, Sink, Who};
use crate::{Batch, Error, Result};

/// How long an add may take: a filter that changes its size may keep it waiting.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take until a filter has another's place: the keys of large ones are moved.
const SWITCH_TIME: Duration = Duration::from_secs(3600);
const FINGERPRINTS: &str = "application/vnd.umbel.fingerprints";
const JSON: &str = "application/json";

/// What a server says of a filter, as far as a load depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// What it is made for.
    pub capacity: u64,
    /// Its error rate up to there.
    pub error: f64,
    /// What it holds.
    pub items: u64,
    /// How many times larger it becomes when it is full; none if it takes no more then.
    pub growth: Option<f64>,
    /// How full it is, in percent, when it does.
    pub grows_at: u8,
    /// Whether a key that is added twice is in it twice.
    pub counts: bool,
    /// How its keys are hashed.
    pub family: Family,
    /// What kind of filter it is, in the server's word.
    pub kind: String,
    /// Whether it forgets: its keys are those of a window of time.
    pub is_window: bool,
}

impl Facts {
    fn read(told: &Value) -> Option<Self> {
        let growth = told["growth"].as_f64()?;
        let kind = told["kind"].as_str()?.to_owned();
        Some(Self {
            capacity: told["capacity"].as_u64()?,
            error: told["error"].as_f64()?,
            items: told["items"].as_u64()?,
            growth: (growth > 1.0).then_some(growth),
            grows_at: u8::try_from(told["grow_at_percent"].as_u64()?).ok()?,
            counts: kind != "bloom",
            family: told["family"].as_str()?.parse().ok()?,
            kind,
            is_window: told["window_ms"].is_u64(),
        })
    }
}

/// What a server says of a filter that is being filled anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Its number.
    pub id: String,
    /// Why it cannot be finished, if so.
    pub failed: Option<String>,
    /// What it is made for.
    pub capacity: u64,
    /// What it holds.
    pub items: u64,
}

impl Rebuild {
    fn read(told: &Value) -> Result<Self> {
        let found = || {
            Some(Self {
                id: told["id"].as_str()?.to_owned(),
                failed: told["failed"].as_str().map(str::to_owned),
                capacity: told["capacity"].as_u64()?,
                items: told["items"].as_u64()?,
            })
        };
        found().ok_or_else(|| Error::Invalid("a server that describes a rebuild otherwise".into()))
    }
}

/// A filter that keys are added to.
pub struct ServerSink {
    server: Server,
    runtime: Runtime,
    filter: String,
    /// Where keys go: into the filter, or into the one that is to take its place.
    door: &'static str,
    /// Hashes here, so that 16 bytes of each key travel; none where the server alone knows the secret.
    hasher: Option<Hasher>,
}

impl ServerSink {
    /// A filter of a server. It need not exist before it is asked for anything.
    pub fn new(server: Server, filter: &str) -> Result<Self> {
        // Lanes wait in threads of their own; this one only moves their bytes.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| Error::Invalid(format!("no thread for the network: {error}")))?;
        Ok(Self { server, runtime, filter: filter.to_owned(), door: "add", hasher: None })
    }

    /// What the filter is; none if there is none.
    pub fn facts(&mut self) -> Result<Option<Facts>> {
        let told = self.runtime.block_on(self.server.get(Server::path(&self.filter, "")));
        let told = match told {
            Ok(told) => told,
            Err(umbel_client::Error::Refused { status: 404, .. }) => return Ok(None),
            Err(error) => return Err(sorted(error)),
        };
        let facts = Facts::read(&told).ok_or_else(|| self.otherwise())?;
        self.hasher = Hasher::new(facts.family, None).ok();
        Ok(Some(facts))
    }

    /// Makes the filter.
    pub fn create(&self, capacity: u64, error: f64, kind: &str) -> Result<()> {
        let body = json!({ "name": self.filter, "capacity": capacity, "error": error, "kind": kind });
        self.ask(self.server.post("/v1/filters", &body, PATIENCE)).map(drop)
    }

    /// Gives the filter room for so many keys. It answers meanwhile, and that may take long.
    pub fn resize(&self, capacity: u64) -> Result<()> {
        let path = Server::path(&self.filter, "resize");
        let whole_day = Duration::from_secs(86_400);
        self.ask(self.server.post(path, &json!({ "capacity": capacity }), whole_day)).map(drop)
    }

    /// The rebuild of the filter that was begun, if there is one.
    pub fn rebuild(&self) -> Result<Option<Rebuild>> {
        let told = self.runtime.block_on(self.server.get(Server::path(&self.filter, "rebuild")));
        match told {
            Ok(told) => Rebuild::read(&told).map(Some),
            Err(umbel_client::Error::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(sorted(error)),
        }
    }

    /// Begins to fill the filter anew, in another size if one is named.
    pub fn begin_rebuild(&self, capacity: Option<u64>, error: Option<f64>) -> Result<Rebuild> {
        let path = Server::path(&self.filter, "rebuild");
        let body = json!({ "capacity": capacity, "error": error });
        Rebuild::read(&self.ask(self.server.post(path, &body, PATIENCE))?)
    }

    /// From now on, keys go into the filter that is being built.
    pub fn fill_rebuild(&mut self) {
        self.door = "rebuild/add";
    }

    /// Lets what was built take the filter's place, and says what it is then. `force`: although it has no keys, or far fewer.
    pub fn finish_rebuild(&self, rebuild: &Rebuild, force: bool) -> Result<Facts> {
        let path = Server::path(&self.filter, "rebuild/finish");
        let body = json!({ "id": rebuild.id, "force": force });
        let told = self.ask(self.server.post(path, &body, SWITCH_TIME))?;
        Facts::read(&told).ok_or_else(|| self.otherwise())
    }

    /// Gives a rebuild up; the filter is as it was.
    pub fn abort_rebuild(&self) -> Result<()> {
        self.ask(self.server.delete(Server::path(&self.filter, "rebuild"))).map(drop)
    }

    fn otherwise(&self) -> Error {
        Error::Invalid(format!("a server that describes {} otherwise", self.filter))
    }

    fn ask(&self, asked: impl Future<Output = umbel_client::Result<Value>>) -> Result<Value> {
        self.runtime.block_on(asked).map_err(sorted)
    }
}

/// What the caller can do about it.
fn sorted(error: umbel_client::Error) -> Error {
    use umbel_client::Error as Client;
    match error {
        // What was damaged on its way is sent again; the session sees to it that it counts once.
        Client::Unreachable(_) | Client::Corrupt(_) => Error::Retry(error.to_string()),
        Client::Refused { status: 429 | 500.., .. } => Error::Retry(error.to_string()),
        other => Error::Invalid(other.to_string()),
    }
}

impl Sink for ServerSink {
    fn form(&self) -> String {
        match &self.hasher {
            Some(hasher) => format!("fingerprints {}", hasher.family()),
            None => "json".into(),
        }
    }

    fn pack(&self, batch: &Batch) -> Result<Packed> {
        let keys = batch.len() as u64;
        let Some(hasher) = &self.hasher else {
            let each = batch.keys().map(|key| match std::str::from_utf8(key) {
                Ok(text) => Value::from(text),
                Err(_) => json!({ "base64": BASE64_STANDARD.encode(key) }),
            });
            let text = Value::from_iter(each).to_string();
            return Ok(Packed { keys, bytes: Bytes::from(text) });
        };
        let mut bytes = Vec::with_capacity(batch.len() * 16);
        batch.keys().for_each(|key| bytes.extend(hasher.fingerprint(key).to_bytes()));
        Ok(Packed { keys, bytes: bytes.into() })
    }

    fn send(&self, who: Who, packed: &Packed) -> Result<u64> {
        let Who { session, sequence } = who;
        let path = Server::path(&self.filter, self.door);
        let told = if self.hasher.is_some() {
            let path = format!("{path}?session={session}&sequence={sequence}");
            self.ask(self.server.post_bytes(path, FINGERPRINTS, packed.bytes.clone(), PATIENCE))?
        } else {
            let head = format!("{{\"session\":{session},\"sequence\":{sequence},\"keys\":");
            let body = [head.as_bytes(), &packed.bytes, b"}"].concat();
            self.ask(self.server.post_bytes(path, JSON, body.into(), PATIENCE))?
        };
        if let Some(why) = told["refused"].as_str() {
            return Err(Error::Full(why.to_owned()));
        }
        told["added"].as_u64().ok_or_else(|| Error::Invalid("a server that answers otherwise".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashed_here_unless_the_server_alone_can() {
        let server = Server::new("http://127.0.0.1:1", None).unwrap();
        let mut sink = ServerSink::new(server, "urls").unwrap();
        let mut batch = Batch::default();
        batch.push("a\"é".as_bytes()).unwrap();
        batch.push(b"\xff").unwrap();
        let packed = sink.pack(&batch).unwrap();
        assert_eq!((&packed.bytes[..], packed.keys), ("[\"a\\\"é\",{\"base64\":\"/w==\"}]".as_bytes(), 2));
        sink.hasher = Hasher::new(Family::Xxh3, None).ok();
        let hasher = Hasher::new(Family::Xxh3, None).unwrap();
        let expected =
            [hasher.fingerprint("a\"é".as_bytes()).to_bytes(), hasher.fingerprint(b"\xff").to_bytes()];
        assert_eq!(sink.pack(&batch).unwrap().bytes, expected.concat());
        assert_eq!(sink.form(), "fingerprints xxh3");
    }

    #[test]
    fn a_filter_is_understood_as_the_server_describes_it() {
        let told = json!({ "capacity": 1000, "error": 0.01, "items": 3, "growth": 2.0, "grow_at_percent": 80,
            "kind": "bloom", "family": "murmur3", "window_ms": null });
        let facts = Facts::read(&told).unwrap();
        assert_eq!((facts.growth, facts.counts, facts.is_window), (Some(2.0), false, false));
        let mut fixed = told.clone();
        (fixed["growth"], fixed["kind"]) = (1.0.into(), "counting8".into());
        let facts = Facts::read(&fixed).unwrap();
        assert_eq!((facts.growth, facts.counts), (None, true));
        for missing in ["capacity", "error", "items", "growth", "grow_at_percent", "kind", "family"] {
            let mut told = told.clone();
            told[missing] = Value::Null;
            assert!(Facts::read(&told).is_none(), "{missing}");
        }
    }
}
