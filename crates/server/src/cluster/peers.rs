//! Connections to other nodes, and what is counted of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use umbel_core::clock::Clock;
use umbel_core::cluster::{Record, View};

use super::link::{Call, Failure, Link, Outcome};
use super::wire;
use crate::metrics::{Counts, Histogram, Kind, Page};

/// Connections for what is answered from memory.
const FOR_LOOKUPS: usize = 2;
/// Connections for what waits for the log: on one of them, whoever comes later waits for those before.
const FOR_SUBMITS: usize = 4;
/// Connections for what reads the log or the archive. What waits for the log at one node may have to ask another one for this, so it must not
/// stand behind what waits there.
const FOR_READS: usize = 2;
/// Whoever did not answer is asked last for so long.
const AVOIDED_FOR: Duration = Duration::from_secs(1);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// What is answered from memory.
    Lookup,
    /// What waits for the log.
    Submit,
    /// What reads the log or the archive, and waits for nobody else.
    Read,
}

/// All other nodes that were ever asked and live still.
#[derive(Debug)]
pub(super) struct Peers {
    runtime: Handle,
    clock: Arc<dyn Clock>,
    hello: Vec<u8>,
    peers: RwLock<BTreeMap<(String, u64), Arc<Peer>>>,
}

/// Another node.
#[derive(Debug)]
pub(super) struct Peer {
    name: String,
    address: Arc<str>,
    lookups: [RwLock<Option<Link>>; FOR_LOOKUPS],
    submits: [RwLock<Option<Link>>; FOR_SUBMITS],
    reads: [RwLock<Option<Link>>; FOR_READS],
    next: AtomicUsize,
    /// When it last did not answer, in nanoseconds of the clock; 0 if it did since.
    failed: AtomicU64,
    requests: AtomicU64,
    errors: AtomicU64,
    took: Histogram,
}

impl Peers {
    /// `secret` is what all nodes know, `cluster` what they are together, `name` who this one is.
    pub(super) fn new(
        runtime: Handle,
        clock: Arc<dyn Clock>,
        secret: &[u8],
        cluster: &str,
        name: &str,
    ) -> Self {
        let hello = wire::frame(&[b"HELLO", secret, cluster.as_bytes(), name.as_bytes()]);
        Self { runtime, clock, hello, peers: RwLock::default() }
    }

    /// The node of a record.
    pub(super) fn of(&self, record: &Record, view: &View) -> Arc<Peer> {
        let key = (record.name.clone(), record.instance);
        if let Some(peer) = self.peers.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Arc::clone(peer);
        }
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        // Those that are gone are forgotten when another one comes.
        peers.retain(|(name, instance), _| view.node(name).is_some_and(|node| node.instance == *instance));
        let peer = || Arc::new(Peer::new(record));
        Arc::clone(peers.entry(key).or_insert_with(peer))
    }

    /// Whether a node did not answer a moment ago.
    pub(super) fn is_avoided(&self, peer: &Peer) -> bool {
        let failed = peer.failed.load(Ordering::Relaxed);
        failed != 0 && self.clock.now().saturating_sub(Duration::from_nanos(failed)) < AVOIDED_FOR
    }

    /// Asks a node. Whoever waits for the answer may be anywhere.
    pub(super) async fn ask(
        &self,
        peer: &Peer,
        errand: Errand,
        command: &str,
        payload: &[u8],
        time: Duration,
    ) -> Outcome {
        let began = self.clock.now();
        let frame = wire::frame(&[command.as_bytes(), payload]);
        let (answer, waits) = oneshot::channel();
        peer.requests.fetch_add(1, Ordering::Relaxed);
        let outcome = match self.hand_over(peer, errand, Call { frame, time, answer }) {
            Ok(()) => waits.await.unwrap_or_else(|_| Err(Failure::Lost("the connection has ended".into()))),
            Err(why) => Err(Failure::Unsent(why.to_owned())),
        };
        let now = self.clock.now();
        peer.took.record(1, now.saturating_sub(began));
        match &outcome {
            Ok(_) => peer.failed.store(0, Ordering::Relaxed),
            Err(failure) => {
                peer.errors.fetch_add(1, Ordering::Relaxed);
                if !matches!(failure, Failure::Refused(_)) {
                    peer.failed.store((now.as_nanos() as u64).max(1), Ordering::Relaxed);
                }
            }
        }
        outcome.map_err(|failure| match failure {
            Failure::Unsent(why) => Failure::Unsent(format!("node {}: {why}", peer.name)),
            Failure::Lost(why) => Failure::Lost(format!("node {}: {why}", peer.name)),
            refused => refused,
        })
    }

    fn hand_over(&self, peer: &Peer, errand: Errand, call: Call) -> Result<(), &'static str> {
        let number = peer.next.fetch_add(1, Ordering::Relaxed);
        let place = match errand {
            Errand::Lookup => &peer.lookups[number % FOR_LOOKUPS],
            Errand::Submit => &peer.submits[number % FOR_SUBMITS],
            Errand::Read => &peer.reads[number % FOR_READS],
        };
        let there = place.read().unwrap_or_else(PoisonError::into_inner).clone();
        let call = match there {
            Some(link) => match link.send(call) {
                Ok(()) => return Ok(()),
                Err(_) if !link.is_closed() => return Err("too many requests wait for it"),
                Err(call) => call,
            },
            None => call,
        };
        let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_none_or(Link::is_closed) {
            *place = Some(Link::open(&self.runtime, Arc::clone(&peer.address), self.hello.clone()));
        }
        let sent = place.as_ref().map(|link| link.send(call));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err("the connection has ended") }
    }

    /// What is counted of all of them.
    pub(super) fn collect(&self, page: &mut Page) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        // One that was started again is the same to whoever looks.
        let by_name: BTreeMap<&str, &Arc<Peer>> =
            peers.values().map(|peer| (peer.name.as_str(), peer)).collect();
        let mut counter = |name, help, value: &dyn Fn(&Peer) -> u64| {
            let mut family = page.family(name, Kind::Counter, help);
            by_name.iter().for_each(|(name, peer)| _ = family.sample(&[("peer", name)], value(peer)));
        };
        counter("umbel_peer_requests_total", "Requests to another node.", &|peer| {
            peer.requests.load(Ordering::Relaxed)
        });
        counter("umbel_peer_errors_total", "Requests that another node did not do.", &|peer| {
            peer.errors.load(Ordering::Relaxed)
        });
        let mut family = page.family("umbel_peer_seconds", Kind::Histogram, "How long another node took.");
        for (name, peer) in &by_name {
            let mut counts = Counts::default();
            counts.add(&peer.took);
            family.histogram(&[("peer", name)], &counts);
        }
    }
}

impl Peer {
    fn new(record: &Record) -> Self {
        Self {
            name: record.name.clone(),
            address: record.address.as_str().into(),
            lookups: Default::default(),
            submits: Default::default(),
            reads: Default::default(),
            next: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            took: Histogram::default(),
        }
    }
}
