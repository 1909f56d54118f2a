//! Connections to other nodes, and what is counted of them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use thread_local::ThreadLocal;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot, watch};
use umbel_core::Error;
use umbel_core::clock::Clock;
use umbel_core::cluster::{Instance, Record, View};
use umbel_core::engine::Applied;

use super::link::{Call, Failure, Link, Outcome, Request};
use super::wire;
use crate::metrics::{Counts, Histogram, Kind, Page};

/// Connections for what waits for the log: on one of them, whoever comes later waits for those before, and goes with all others that wait.
const FOR_SUBMITS: usize = 4;
/// Requests for one of them that wait, and how many bytes of entries go together.
const SUBMITS_WAITING_MAX: usize = 16 << 10;
const TOGETHER_BYTES: usize = 4 << 20;
/// How long an append may take.
const SUBMIT_TIME: Duration = Duration::from_secs(10);
/// Connections for what reads the log or the archive. What waits for the log at one node may have to ask another one for this, so it must not
/// stand behind what waits there.
const FOR_READS: usize = 2;
/// Peers that have samples of their own, the first by name.
const PEERS_SHOWN_MAX: usize = 256;
/// Whoever did not answer is asked last for so long.
const AVOIDED_FOR: Duration = Duration::from_secs(1);
const UNREACHED: &str = "it has not answered for longer than its lease";

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// What is answered from memory.
    Lookup,
    /// What reads the log or the archive, and waits for nobody else.
    Read,
    /// What reads much of them.
    Bulk,
    /// What waits for others, over a connection of its own.
    Alone,
}

/// Where a connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// In the event loop that asks first, if it is one.
    Here,
    /// In the runtime for all that may be asked from anywhere.
    Runtime,
}

/// All other nodes that were ever asked and live still.
#[derive(Debug)]
pub(super) struct Peers {
    to: Arc<Way>,
    peers: RwLock<BTreeMap<(String, u64), Arc<Peer>>>,
}

/// What it takes to reach a node.
#[derive(Debug)]
struct Way {
    runtime: Handle,
    clock: Arc<dyn Clock>,
    hello: Vec<u8>,
}

/// Another node.
#[derive(Debug)]
pub(super) struct Peer {
    about: Arc<About>,
    /// One for each thread that asks. That of an event loop lives in it: neither request nor answer wakes another thread.
    lookups: ThreadLocal<RwLock<Option<Link>>>,
    reads: [RwLock<Option<Link>>; FOR_READS],
    /// For what is large and may wait: one after the other.
    bulk: RwLock<Option<Link>>,
    submits: [OnceLock<mpsc::Sender<Submit>>; FOR_SUBMITS],
    /// A connection of its own, so that an answer is not late because others are.
    pings: RwLock<Option<Link>>,
    next: AtomicUsize,
}

/// Entries on their way, and who waits for what comes of them.
#[derive(Debug)]
struct Submit {
    entries: Vec<(u32, Bytes)>,
    answer: oneshot::Sender<Result<Vec<Applied>, Failure>>,
}

/// Where a node is, and what is counted of it.
#[derive(Debug)]
struct About {
    name: String,
    address: Arc<str>,
    /// When it last did not answer, in nanoseconds of the clock; 0 if it did since.
    failed: AtomicU64,
    /// It has not answered pings for longer than a lease: what waits for it is told at once, and nothing is sent to it.
    unreached: watch::Sender<bool>,
    requests: AtomicU64,
    errors: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
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
        Self { to: Arc::new(Way { runtime, clock, hello }), peers: RwLock::default() }
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
        self.has_failed(&peer.about)
    }

    /// Whether it has not answered pings for longer than a lease.
    pub(super) fn is_unreached(&self, peer: &Peer) -> bool {
        *peer.about.unreached.borrow()
    }

    /// Says which processes have not answered pings for longer than a lease, of all that are known.
    pub(super) fn mark_unreached(&self, unreached: &BTreeSet<Instance>) {
        for (instance, peer) in self.peers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            let is_unreached = unreached.contains(instance);
            let replace = |before: &mut bool| std::mem::replace(before, is_unreached) != is_unreached;
            peer.about.unreached.send_if_modified(replace);
        }
    }

    /// Whether a node answers in time.
    pub(super) async fn ping(&self, peer: &Peer, time: Duration) -> bool {
        let (answer, waits) = oneshot::channel();
        let request = Request::Frame(wire::frame(&[b"PING", b""]));
        let sent = self.to.hand_over(&peer.about, &peer.pings, Home::Runtime, Call { request, time, answer });
        if sent.is_err() {
            return false;
        }
        // A connection that is still being made counts as no answer.
        matches!(tokio::time::timeout(time, waits).await, Ok(Ok(Ok(_))))
    }

    fn has_failed(&self, about: &About) -> bool {
        if *about.unreached.borrow() {
            return true;
        }
        let failed = about.failed.load(Ordering::Relaxed);
        failed != 0 && self.to.clock.now().saturating_sub(Duration::from_nanos(failed)) < AVOIDED_FOR
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
        let own = RwLock::default();
        let place = match errand {
            Errand::Alone => &own,
            Errand::Lookup => peer.lookups.get_or_default(),
            Errand::Read => &peer.reads[peer.next.fetch_add(1, Ordering::Relaxed) % FOR_READS],
            Errand::Bulk => &peer.bulk,
        };
        let home = if errand == Errand::Lookup { Home::Here } else { Home::Runtime };
        let request = Request::Frame(wire::frame(&[command.as_bytes(), payload]));
        self.to.ask(&peer.about, place, home, request, time).await
    }

    /// Looks keys of a filter up at a node, together with those of others that wait for the same.
    pub(super) async fn look_up(&self, peer: &Peer, filter: u64, keys: Vec<u8>, time: Duration) -> Outcome {
        let (place, request) = (peer.lookups.get_or_default(), Request::Keys { filter, keys });
        self.to.ask(&peer.about, place, Home::Here, request, time).await
    }

    /// Lets a node append entries, together with those of others that wait for the same.
    pub(super) async fn submit(
        &self,
        peer: &Peer,
        entries: Vec<(u32, Bytes)>,
    ) -> Result<Vec<Applied>, Failure> {
        let number = peer.next.fetch_add(1, Ordering::Relaxed) % FOR_SUBMITS;
        let queue = peer.submits[number].get_or_init(|| {
            let (calls, queue) = mpsc::channel(SUBMITS_WAITING_MAX);
            let (to, about) = (Arc::clone(&self.to), Arc::clone(&peer.about));
            self.to.runtime.spawn(async move { to.submit_all(&about, queue).await });
            calls
        });
        let (answer, waits) = oneshot::channel();
        if queue.try_send(Submit { entries, answer }).is_err() {
            return Err(Failure::Unsent(format!("node {}: too many requests wait for it", peer.about.name)));
        }
        waits.await.unwrap_or_else(|_| Err(Failure::Lost("this node ends".into())))
    }

    /// What is counted of all of them.
    pub(super) fn collect(&self, page: &mut Page) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        // One that was started again is the same to whoever looks.
        let by_name: BTreeMap<&str, &About> =
            peers.values().map(|peer| (peer.about.name.as_str(), &*peer.about)).collect();
        let by_name: Vec<(&str, &About)> = by_name.into_iter().take(PEERS_SHOWN_MAX).collect();
        let mut counter = |name, help, value: &dyn Fn(&About) -> u64| {
            let mut family = page.family(name, Kind::Counter, help);
            by_name.iter().for_each(|(name, peer)| _ = family.sample(&[("peer", name)], value(peer)));
        };
        counter("umbel_peer_requests_total", "Requests to another node.", &|peer| {
            peer.requests.load(Ordering::Relaxed)
        });
        counter("umbel_peer_errors_total", "Requests that another node did not do.", &|peer| {
            peer.errors.load(Ordering::Relaxed)
        });
        counter("umbel_peer_sent_bytes_total", "Bytes of requests to another node.", &|peer| {
            peer.sent_bytes.load(Ordering::Relaxed)
        });
        counter("umbel_peer_received_bytes_total", "Bytes of another node's answers.", &|peer| {
            peer.received_bytes.load(Ordering::Relaxed)
        });
        let mut family = page.family(
            "umbel_peer_avoided",
            Kind::Gauge,
            "Whether another node did not answer a moment ago.",
        );
        for (name, peer) in &by_name {
            family.sample(&[("peer", name)], u64::from(self.has_failed(peer)));
        }
        let mut family = page.family("umbel_peer_seconds", Kind::Histogram, "How long another node took.");
        for (name, peer) in &by_name {
            let mut counts = Counts::default();
            counts.add(&peer.took);
            family.histogram(&[("peer", name)], &counts);
        }
    }
}

impl Way {
    /// Asks a node over the connection that has this place.
    async fn ask(
        &self,
        about: &About,
        place: &RwLock<Option<Link>>,
        home: Home,
        request: Request,
        time: Duration,
    ) -> Outcome {
        let began = self.clock.now();
        let (answer, waits) = oneshot::channel();
        about.requests.fetch_add(1, Ordering::Relaxed);
        about.sent_bytes.fetch_add(request.len() as u64, Ordering::Relaxed);
        let ended = || Err(Failure::Lost("the connection has ended".into()));
        let outcome = if *about.unreached.borrow() {
            Err(Failure::Unsent(UNREACHED.into()))
        } else if let Err(why) = self.hand_over(about, place, home, Call { request, time, answer }) {
            Err(Failure::Unsent(why.to_owned()))
        } else if home == Home::Here {
            // What is answered from memory is not waited for so long that it would matter.
            waits.await.unwrap_or_else(|_| ended())
        } else {
            let mut unreached = about.unreached.subscribe();
            let cut = pin!(unreached.wait_for(|is_unreached| *is_unreached));
            match select(waits, cut).await {
                Either::Left((answered, _)) => answered.unwrap_or_else(|_| ended()),
                Either::Right(_) => Err(Failure::Lost(UNREACHED.into())),
            }
        };
        let now = self.clock.now();
        about.took.record(1, now.saturating_sub(began));
        match &outcome {
            Ok(bytes) => {
                about.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                about.failed.store(0, Ordering::Relaxed);
            }
            Err(failure) => {
                about.errors.fetch_add(1, Ordering::Relaxed);
                if !matches!(failure, Failure::Refused(_)) {
                    about.failed.store((now.as_nanos() as u64).max(1), Ordering::Relaxed);
                }
            }
        }
        outcome.map_err(|failure| match failure {
            Failure::Unsent(why) => Failure::Unsent(format!("node {}: {why}", about.name)),
            Failure::Lost(why) => Failure::Lost(format!("node {}: {why}", about.name)),
            refused => refused,
        })
    }

    fn hand_over(
        &self,
        about: &About,
        place: &RwLock<Option<Link>>,
        home: Home,
        call: Call,
    ) -> Result<(), &'static str> {
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
            let runtime = self.runtime_at(home);
            *place = Some(Link::open(&runtime, Arc::clone(&about.address), self.hello.clone()));
        }
        let sent = place.as_ref().map(|link| link.send(call));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err("the connection has ended") }
    }

    fn runtime_at(&self, home: Home) -> Handle {
        let own = || Handle::try_current().ok();
        // The threads of one that has several take tasks from each other anyway.
        let is_of_this_thread = |handle: &Handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
        let own = if home == Home::Here { own().filter(is_of_this_thread) } else { None };
        own.unwrap_or_else(|| self.runtime.clone())
    }

    /// Sends what waits, all of it together, and then what came meanwhile.
    async fn submit_all(&self, about: &About, mut queue: mpsc::Receiver<Submit>) {
        let place = RwLock::new(None);
        let (mut waiting, mut next) = (Vec::new(), None);
        loop {
            let Some(first) = (match next.take() {
                Some(next) => Some(next),
                None => queue.recv().await,
            }) else {
                return;
            };
            let size =
                |submit: &Submit| submit.entries.iter().map(|(_, entry)| entry.len() + 8).sum::<usize>();
            let mut bytes = size(&first);
            waiting.push(first);
            while let Ok(submit) = queue.try_recv() {
                bytes += size(&submit);
                if bytes > TOGETHER_BYTES {
                    next = Some(submit);
                    break;
                }
                waiting.push(submit);
            }
            // Whoever has gone is not waiting for an answer, and nothing was promised to it.
            waiting.retain(|submit| !submit.answer.is_closed());
            let entries: Vec<&(u32, Bytes)> = waiting.iter().flat_map(|submit| &submit.entries).collect();
            if entries.is_empty() {
                waiting.clear();
                continue;
            }
            let payload = wire::put_entries(entries.into_iter());
            let request = Request::Frame(wire::frame(&[b"SUBMIT", &payload]));
            let answer = self.ask(about, &place, Home::Runtime, request, SUBMIT_TIME).await;
            let applied = answer.and_then(|bytes| wire::applied(&bytes).map_err(Failure::Refused));
            answer_all(waiting.drain(..), applied);
        }
    }
}

/// Gives each its part of what came of all.
fn answer_all(waiting: impl ExactSizeIterator<Item = Submit>, applied: Result<Vec<Applied>, Failure>) {
    let waiting: Vec<Submit> = waiting.collect();
    let count: usize = waiting.iter().map(|submit| submit.entries.len()).sum();
    let wrong = || {
        Failure::Refused(Error::Corrupt("a node answered for more or fewer entries than it was sent".into()))
    };
    let applied = applied.and_then(|all| if all.len() == count { Ok(all) } else { Err(wrong()) });
    let mut applied = applied.map(Vec::into_iter);
    for Submit { entries, answer } in waiting {
        let own = match &mut applied {
            Ok(applied) => Ok(applied.by_ref().take(entries.len()).collect()),
            Err(failure) => Err(failure.clone()),
        };
        // Nobody may be waiting any more.
        let _ = answer.send(own);
    }
}

impl Peer {
    fn new(record: &Record) -> Self {
        let about = About {
            name: record.name.clone(),
            address: record.address.as_str().into(),
            failed: AtomicU64::new(0),
            unreached: watch::Sender::new(false),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            took: Histogram::default(),
        };
        Self {
            about: Arc::new(about),
            lookups: ThreadLocal::new(),
            reads: Default::default(),
            bulk: Default::default(),
            submits: Default::default(),
            pings: RwLock::default(),
            next: AtomicUsize::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_core::Position;

    use super::*;

    #[test]
    fn each_gets_what_came_of_its_own() {
        let submit = |entries: usize| {
            let (answer, waits) = oneshot::channel();
            (Submit { entries: vec![(0, Bytes::new()); entries], answer }, waits)
        };
        let all = |count: u128| {
            let applied = |n| Applied { position: Position::from_number(n), ..Applied::default() };
            Ok((0..count).map(applied).collect::<Vec<_>>())
        };
        let ((one, mut first), (two, mut second)) = (submit(1), submit(2));
        answer_all(vec![one, two].into_iter(), all(3));
        let numbers = |waits: &mut oneshot::Receiver<Result<Vec<Applied>, Failure>>| {
            let applied = waits.try_recv().expect("an answer").expect("a good one");
            applied.iter().map(|applied| applied.position.number()).collect::<Vec<_>>()
        };
        assert_eq!((numbers(&mut first), numbers(&mut second)), (vec![0], vec![1, 2]));
        // Too few answers are nobody's.
        let ((one, mut first), (two, mut second)) = (submit(1), submit(2));
        answer_all(vec![one, two].into_iter(), all(2));
        for waits in [&mut first, &mut second] {
            assert!(matches!(waits.try_recv(), Ok(Err(Failure::Refused(Error::Corrupt(_))))));
        }
    }
}
