//! Tells the centre how this replica is, and hears which others there are and what it is to serve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hyper::Method;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use umbel_core::engine::Token;

use crate::backoff::jitter;
use crate::http::Ask;
use crate::limits::HEARTBEAT;
use crate::shared::{Live, Shared, lock};
use crate::status::Refused;
use crate::{Error, Result};

/// What this replica says of itself.
#[derive(Serialize)]
struct Beat<'a> {
    /// A number of this process, and of this word in it: words that come late are passed over.
    run: u64,
    sequence: u64,
    strategy: &'a str,
    version: Option<u64>,
    token: String,
    digest: String,
    age_ms: u64,
    staged: Option<u64>,
    spooled: u64,
    labels: &'a BTreeMap<String, String>,
    address: Option<String>,
    probed: Option<Probed>,
    /// What it was last told to serve, 0 for nothing: it stays at that, whatever its strategy.
    told: u64,
}

/// What it is told.
#[derive(Deserialize)]
pub(crate) struct Orders {
    /// The version to answer from.
    #[serde(default)]
    pub(crate) serve: Option<u64>,
    /// A version to have ready.
    #[serde(default)]
    pub(crate) stage: Option<u64>,
    /// How long a strong replica may answer, from when it asked.
    #[serde(default)]
    pub(crate) lease_ms: u64,
    /// Keys that a version in a rollout is tried with.
    #[serde(default)]
    probes: Option<Probes>,
    /// The version of the last rollout, if it was taken back.
    #[serde(default)]
    refused: Option<Refused>,
    #[serde(default)]
    peers: Vec<String>,
    #[serde(default)]
    position: Option<String>,
    /// The number of the filter that has the name.
    #[serde(default)]
    filter: Option<String>,
}

impl Orders {
    /// Whether a copy is of the version of that number: versions of every filter are numbered from one.
    pub(crate) fn mean(&self, live: &Live, number: u64) -> bool {
        let filter = live.copy.version().filter;
        live.number() == number && self.filter.as_ref().is_none_or(|named| *named == format!("{filter:016x}"))
    }
}

#[derive(Clone, Deserialize)]
struct Probes {
    /// Which rollout asks.
    id: u64,
    #[serde(default)]
    present: Vec<String>,
    #[serde(default)]
    absent: Vec<String>,
}

/// What they said.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Probed {
    id: u64,
    version: u64,
    missing: u64,
    unexpected: u64,
    /// Which keys these are, by their places.
    missing_at: Vec<u32>,
    unexpected_at: Vec<u32>,
}

/// Beats until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        match beat(&shared, None).await {
            Ok(_) => {}
            // Whatever is wrong with the way to the centre, the follower says so too. A server may know no heartbeats.
            Err(Error::Unreachable(_) | Error::Refused { status: 404 | 405 | 500.., .. }) => {}
            Err(error) => shared.fail(&error),
        }
        let pause = jitter(HEARTBEAT, &*shared.options.random);
        let _sooner = timeout(pause, shared.beat.notified()).await;
    }
}

/// Asks what this replica is to do; none if the server does not tell now, or knows no heartbeats.
pub(crate) async fn orders(shared: &Shared) -> Result<Option<Orders>> {
    match beat(shared, None).await {
        Ok(orders) => Ok(Some(orders)),
        Err(Error::Refused { status: 404 | 405 | 500.., .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says that this replica ends and does not come back under its name.
pub(crate) async fn leave(shared: &Shared) -> Result<()> {
    let path = shared.sources.path(&format!("replicas/{}?run={}", shared.id, shared.run));
    shared
        .sources
        .ask(&Ask::with_body(Method::DELETE, path, "application/json", Bytes::new()))
        .await
        .map(drop)
}

/// Tells the centre how this replica is, and which version it has ready besides; gives what it is to do.
pub(crate) async fn beat(shared: &Shared, staged: Option<u64>) -> Result<Orders> {
    // Together: what it answers from is what it says although it was told that.
    let (told, live) = {
        let _alone = lock(&shared.holding);
        (shared.told(), shared.live().filter(|_| shared.answers()))
    };
    let beat = Beat {
        run: shared.run,
        sequence: shared.beats.fetch_add(1, Ordering::Relaxed),
        strategy: shared.options.strategy_name(),
        version: live.as_ref().map(|live| live.number()),
        token: live.as_ref().map(|live| live.copy.token().to_string()).unwrap_or_default(),
        digest: live.as_ref().map(|live| live.digest.to_string()).unwrap_or_default(),
        age_ms: shared.age().map_or(u64::MAX, |age| age.as_millis() as u64),
        staged,
        spooled: shared.counters.spooled_keys.load(Ordering::Relaxed) as u64,
        labels: &shared.options.labels,
        address: lock(&shared.address).clone(),
        probed: lock(&shared.probed).clone(),
        told,
    };
    let body = serde_json::to_vec(&beat).map_err(|error| Error::Invalid(error.to_string()))?;
    let path = shared.sources.path(&format!("replicas/{}", shared.id));
    let ask = Ask::with_body(Method::PUT, path, "application/json", body.into());
    let orders: Orders = shared.sources.ask(&ask).await?.json().await?;
    shared.sources.tell_peers(orders.peers.iter().map(String::as_str));
    let centre = orders.position.as_deref().and_then(|text| text.parse::<Token>().ok());
    if let Some(centre) = centre {
        *lock(&shared.centre) = Some(centre);
    }
    let serve = orders.serve.unwrap_or(0);
    let before = {
        let _alone = lock(&shared.holding);
        shared.serve.swap(serve, Ordering::AcqRel)
    };
    if before != serve {
        shared.look.notify_one();
    }
    lock(&shared.refused).clone_from(&orders.refused);
    *lock(&shared.probed) = orders.probes.as_ref().and_then(|probes| probe(shared, probes));
    Ok(orders)
}

/// Tries the keys of a rollout on the copy that answers.
fn probe(shared: &Shared, probes: &Probes) -> Option<Probed> {
    // One that follows the log has the version when it is held at it.
    let live = shared.live().filter(|live| live.is_as_published())?;
    let has = |key: &String| live.copy.contains(live.copy.hasher().fingerprint(key.as_bytes()));
    let places = |keys: &[String], are_there: bool| -> Vec<u32> {
        keys.iter().zip(0..).filter(|(key, _)| has(key) == are_there).map(|(_, place)| place).collect()
    };
    let (missing_at, unexpected_at) = (places(&probes.present, false), places(&probes.absent, true));
    let (missing, unexpected) = (missing_at.len() as u64, unexpected_at.len() as u64);
    Some(Probed { id: probes.id, version: live.number(), missing, unexpected, missing_at, unexpected_at })
}
