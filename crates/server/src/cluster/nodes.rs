//! All nodes as an engine sees them: requests go to the first hosts of their partitions, all at once, and again if these have changed.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::runtime::Handle;
use umbel_core::clock::Clock;
use umbel_core::cluster::{Membership, View};
use umbel_core::engine::{
    Answer, Applied, BlocksFrom, Cluster, Consistency, Engine, PartChanges, PartOf, Publication, Role, Shape,
    Token, Told,
};
use umbel_core::fold::Counts;
use umbel_core::version::VersionShard;
use umbel_core::{Error, Position, Result};
use umbel_filter::Fingerprint;

use super::link::Failure;
use super::peers::{Errand, Peer, Peers};
use super::wire::{changes, looks, parts};
use super::{DOWN, wire};
use crate::digest::Digest;
use crate::metrics::Page;
use crate::sync::Notice;

/// How long a request is tried again while hosts change: a lease has to end meanwhile, and all have to know of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer from memory may take before another host is asked.
const LOOKUP_TIME: Duration = Duration::from_secs(1);
/// How long it may take to read the log or the archive.
const READ_TIME: Duration = Duration::from_secs(10);
/// How long it may take to read much of them.
const BULK_TIME: Duration = Duration::from_secs(60);
/// How long something may take that waits for replicas.
const ALONE_TIME: Duration = Duration::from_secs(700);
/// How long somebody waits at most before it looks again who hosts what.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Bytes of entries in one message.
const ENTRIES_BYTES: usize = 4 << 20;
/// Keys in one message.
const KEYS_MAX: usize = 1 << 20;
/// Parts of a version in one message.
const PARTS_MAX: usize = 16;

/// The other nodes, and this one among them.
pub struct Nodes {
    membership: Arc<Membership>,
    peers: Peers,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    cluster: String,
    secret: Digest,
    /// This node's own engine, which has this.
    engine: OnceLock<Weak<Engine>>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("membership", &self.membership).finish_non_exhaustive()
    }
}

/// Who is asked.
enum Place {
    Here(Arc<Engine>),
    There(Arc<Peer>),
}

/// Requests for one place, by their numbers.
type Group = (Place, Vec<usize>);

/// Whether requests may be sent again of which it is not known what became of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Never,
    Always,
}

impl Nodes {
    /// Nodes that know each other by a secret. Connections live in the runtime.
    pub fn new(
        membership: Arc<Membership>,
        cluster: &str,
        secret: &[u8],
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let peers = Peers::new(runtime.clone(), Arc::clone(&clock), secret, cluster, membership.name());
        let (cluster, secret) = (cluster.to_owned(), Digest::of(secret));
        Self { membership, peers, clock, runtime, cluster, secret, engine: OnceLock::new() }
    }

    /// Whose place in the registry it is.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// What the nodes are together.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// This node's own engine is open.
    pub fn attach(&self, engine: &Arc<Engine>) {
        // There is one.
        let _ = self.engine.set(Arc::downgrade(engine));
    }

    /// Whether somebody is one of the nodes.
    pub(crate) fn knows(&self, secret: &[u8], cluster: &[u8]) -> bool {
        Digest::of(secret) == self.secret && cluster == self.cluster.as_bytes()
    }

    /// Why this node is not ready yet, if so.
    pub fn ready(&self) -> Result<(), String> {
        if let Some(why) = self.membership.lost() {
            return Err(why.to_owned());
        }
        let (view, serves) = (self.membership.view(), self.membership.serves());
        let wanted = view.wanted(self.membership.name());
        let missing = wanted.iter().filter(|partition| !serves.contains(**partition)).count();
        match missing {
            0 => Ok(()),
            missing => Err(format!("{missing} of {} partitions are being taken in", wanted.len())),
        }
    }

    /// What is counted.
    pub fn collect(&self, page: &mut Page) {
        let engine = self.here().ok();
        let hosted = engine.map(|engine| engine.hosted()).unwrap_or_default();
        super::figures::collect(&self.membership, &hosted, page);
        self.peers.collect(page);
    }

    fn here(&self) -> Result<Arc<Engine>> {
        let engine = self.engine.get().and_then(Weak::upgrade);
        engine.ok_or_else(|| Error::Retry("this node is starting or ending".into()))
    }

    /// The node that answers for a partition. Reads pass over one that did not answer a moment ago, if another one has it: that one reads the
    /// log to its end before it answers.
    fn place(&self, view: &View, partition: u32, reads: bool) -> Result<Place> {
        let mut hosts = view.hosts(partition).peekable();
        let place = |name: &str| match view.node(name) {
            Some(node) if node.name != self.membership.name() => Ok(Place::There(self.peers.of(node, view))),
            _ => self.here().map(Place::Here),
        };
        let Some(first) = hosts.peek().map(|node| node.name.clone()) else { return Err(down(partition)) };
        if reads {
            for host in hosts {
                match place(&host.name)? {
                    Place::There(peer) if self.peers.is_avoided(&peer) => {}
                    found => return Ok(found),
                }
            }
        }
        place(&first)
    }

    /// Requests by the place that they go to.
    fn group(&self, left: &[usize], partition: impl Fn(usize) -> u32, reads: bool) -> Result<Vec<Group>> {
        let view = self.membership.view();
        let mut groups: Vec<Group> = Vec::new();
        // Of each partition that was met, its group.
        let mut of_partition: Vec<Option<usize>> = vec![None; view.partitions() as usize];
        for request in left {
            let number = partition(*request);
            let known = of_partition.get_mut(number as usize).ok_or_else(|| down(number))?;
            let index = match *known {
                Some(index) => index,
                None => *known.insert(index_of(&mut groups, self.place(&view, number, reads)?)),
            };
            groups[index].1.push(*request);
        }
        Ok(groups)
    }

    /// Sends requests to where they belong until each has an answer, or time is over.
    async fn everywhere<T, F>(
        &self,
        count: usize,
        partition: impl Fn(usize) -> u32,
        reads: bool,
        repeat: Repeat,
        send: impl Fn(Place, Vec<usize>) -> F,
    ) -> Result<Vec<T>>
    where
        F: Future<Output = (Vec<usize>, Result<Vec<T>, Failure>)>,
    {
        let end = self.clock.now() + PATIENCE;
        let mut answers: Vec<Option<T>> = (0..count).map(|_| None).collect();
        let mut left: Vec<usize> = (0..count).collect();
        loop {
            let mut changes = self.membership.changes();
            let groups = self.group(&left, &partition, reads)?;
            let sent = groups.into_iter().map(|(place, requests)| send(place, requests));
            let (mut again, mut why) = (Vec::new(), String::new());
            for (requests, outcome) in join_all(sent).await {
                match outcome {
                    Ok(all) if all.len() == requests.len() => {
                        requests
                            .iter()
                            .zip(all)
                            .for_each(|(request, answer)| answers[*request] = Some(answer));
                    }
                    Ok(_) => return Err(Error::Corrupt("another node answered something else".into())),
                    Err(failure) => {
                        why = self.may_repeat(failure, repeat)?;
                        again.extend(requests);
                    }
                }
            }
            if again.is_empty() {
                return Ok(answers.into_iter().flatten().collect());
            }
            if self.clock.now() >= end {
                return Err(Error::Retry(why));
            }
            again.sort_unstable();
            left = again;
            self.wait(&mut changes).await;
        }
    }

    /// Sends one question to where its partition is, until there is an answer or time is over.
    async fn one<T, F>(&self, partition: u32, send: impl Fn(Place) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let send = &send;
        let send = |place: Place, numbers: Vec<usize>| async move {
            let answer = send(place).await.map(|answer| vec![answer]);
            (numbers, answer)
        };
        let answers = self.everywhere(1, |_| partition, true, Repeat::Always, send).await?;
        answers.into_iter().next().ok_or_else(|| down(partition))
    }

    /// Lets the first host of the catalog answer a request that is for one node alone. It is sent again if that does no harm.
    pub(crate) async fn pass_on(&self, catalog: u32, request: &[u8], is_harmless: bool) -> Result<Bytes> {
        let (errand, repeat) = match is_harmless {
            true => (Errand::Read, Repeat::Always),
            false => (Errand::Alone, Repeat::Never),
        };
        let send = |place: Place, numbers: Vec<usize>| async move {
            let answer = match &place {
                Place::Here(_) => {
                    let why = "not all nodes know yet that this one looks after replicas";
                    Err(Failure::Refused(Error::Moved(why.into())))
                }
                Place::There(peer) => {
                    let whole = |bytes: &[u8]| Ok(Bytes::copy_from_slice(bytes));
                    self.ask(peer, errand, "PASS", request, whole).await
                }
            };
            (numbers, answer.map(|answer| vec![answer]))
        };
        let answers = self.everywhere(1, |_| catalog, false, repeat, send).await?;
        answers.into_iter().next().ok_or_else(|| down(catalog))
    }

    /// Tells all other nodes of something that their listeners should hear. Who does not get it hears of it at its next heartbeat.
    pub(crate) fn tell_others(self: &Arc<Self>, notice: &Notice) {
        let Ok(payload) = serde_json::to_vec(notice) else { return };
        let (view, payload) = (self.membership.view(), Bytes::from(payload));
        for node in view.nodes().iter().filter(|node| node.name != self.membership.name()) {
            let (nodes, peer, payload) = (Arc::clone(self), self.peers.of(node, &view), payload.clone());
            self.runtime.spawn(async move {
                if let Err(failure) = nodes.ask(&peer, Errand::Read, "NOTICE", &payload, |_| Ok(())).await {
                    tracing::debug!(?failure, "a node was not told of a version");
                }
            });
        }
    }

    /// Why something is to be sent again, or the error that its sender gets.
    fn may_repeat(&self, failure: Failure, repeat: Repeat) -> Result<String> {
        match failure {
            Failure::Unsent(why) | Failure::Refused(Error::Moved(why)) => Ok(why),
            Failure::Lost(why) if repeat == Repeat::Always => Ok(why),
            Failure::Lost(why) => Err(Error::Retry(format!("{why}: it may have been done, or not"))),
            // What ends another node does not end this one.
            Failure::Refused(Error::Closed(why)) if repeat == Repeat::Always => Ok(why),
            Failure::Refused(Error::Closed(why)) => Err(Error::Retry(why)),
            Failure::Refused(error) => Err(error),
        }
    }

    /// Waits until hosts have changed, but not for long.
    async fn wait(&self, changes: &mut tokio::sync::watch::Receiver<u64>) {
        self.membership.wake();
        let mut changes = changes.clone();
        // Whoever waits may be where there are no timers.
        let waiting = async move { _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await };
        let _ = self.runtime.spawn(waiting).await;
    }

    /// Asks one node, and reads its answer.
    async fn ask<T>(
        &self,
        peer: &Peer,
        errand: Errand,
        command: &str,
        payload: &[u8],
        read: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<T, Failure> {
        let time = match errand {
            Errand::Lookup => LOOKUP_TIME,
            Errand::Read => READ_TIME,
            Errand::Bulk => BULK_TIME,
            Errand::Alone => ALONE_TIME,
        };
        let answer = self.peers.ask(peer, errand, command, payload, time).await?;
        read(&answer).map_err(Failure::Refused)
    }

    async fn submit_to(&self, place: &Place, entries: Vec<(u32, Bytes)>) -> Result<Vec<Applied>, Failure> {
        let peer = match place {
            Place::Here(engine) => return engine.submit_for_peer(entries).await.map_err(Failure::Refused),
            Place::There(peer) => peer,
        };
        let mut applied = Vec::with_capacity(entries.len());
        let mut rest = &entries[..];
        // One after another, so that the entries of a partition stay in their order.
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, entry)| {
                bytes += entry.len();
                bytes <= ENTRIES_BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            match self.peers.submit(peer, now.to_vec()).await {
                Ok(some) => applied.extend(some),
                // Some of them are done: whoever sends all of them again must be allowed to.
                Err(Failure::Unsent(why)) if !applied.is_empty() => return Err(Failure::Lost(why)),
                Err(Failure::Refused(Error::Moved(why))) if !applied.is_empty() => {
                    return Err(Failure::Lost(why));
                }
                Err(failure) => return Err(failure),
            }
            rest = later;
        }
        Ok(applied)
    }

    async fn contains_at(
        &self,
        place: &Place,
        filter: u64,
        keys: Vec<(u32, Fingerprint)>,
        after: &Token,
    ) -> Result<Vec<Answer>, Failure> {
        let peer = match place {
            Place::Here(engine) => {
                return engine.contains_for_peer(filter, &keys, after).await.map_err(Failure::Refused);
            }
            Place::There(peer) => peer,
        };
        let asked = keys.chunks(KEYS_MAX).map(|keys| async move {
            let payload = wire::put_question(filter, after, keys.iter());
            self.ask(peer, Errand::Lookup, "ASK", &payload, wire::answers).await
        });
        let mut answers = Vec::with_capacity(keys.len());
        for some in join_all(asked).await {
            answers.extend(some?);
        }
        Ok(answers)
    }

    async fn look_at(
        &self,
        place: &Place,
        filter: u64,
        keys: &[(u32, Fingerprint)],
        after: &Token,
        consistency: Consistency,
    ) -> Result<Told, Failure> {
        let peer = match place {
            Place::Here(engine) => {
                return engine
                    .look_for_peer(filter, keys, after, consistency)
                    .await
                    .map_err(Failure::Refused);
            }
            Place::There(peer) => peer,
        };
        // A barrier reads the log.
        let errand = if consistency == Consistency::Strong { Errand::Read } else { Errand::Lookup };
        let mut all = Told::default();
        for keys in keys.chunks(KEYS_MAX) {
            let payload = looks::put_look(consistency, filter, after, keys.iter());
            let told = self.ask(peer, errand, "LOOK", &payload, looks::told).await?;
            all.answers.extend(told.answers);
            told.position.positions().for_each(|(partition, position)| all.position.see(partition, position));
            all.age = all.age.max(told.age);
        }
        Ok(all)
    }

    async fn publish_at(
        &self,
        place: &Place,
        asked: &[PartOf],
        publication: &Publication,
    ) -> Result<Vec<VersionShard>, Failure> {
        let mut shards = Vec::with_capacity(asked.len());
        for some in asked.chunks(PARTS_MAX) {
            shards.extend(match place {
                Place::Here(engine) => {
                    engine.publish_for_peer(some, publication).await.map_err(Failure::Refused)?
                }
                Place::There(peer) => {
                    let payload = parts::put_publish(some, publication);
                    self.ask(peer, Errand::Bulk, "PUBLISH", &payload, VersionShard::decode_all).await?
                }
            });
        }
        Ok(shards)
    }

    async fn verify_at(
        &self,
        place: &Place,
        filter: u64,
        keys: Vec<(u32, Fingerprint)>,
    ) -> Result<Vec<u64>, Failure> {
        match place {
            Place::Here(engine) => engine.verify_for_peer(filter, &keys).await.map_err(Failure::Refused),
            Place::There(peer) => {
                let mut counts = Vec::with_capacity(keys.len());
                for keys in keys.chunks(KEYS_MAX) {
                    let payload = wire::put_verify(filter, keys.iter());
                    counts.extend(self.ask(peer, Errand::Read, "VERIFY", &payload, wire::numbers).await?);
                }
                Ok(counts)
            }
        }
    }
}

fn down(partition: u32) -> Error {
    Error::Retry(format!("{DOWN} slot {partition} and others of partition {partition} have no live host"))
}

/// The group of a place, made if there is none.
fn index_of(groups: &mut Vec<Group>, place: Place) -> usize {
    let same = |(other, _): &Group| match (other, &place) {
        (Place::Here(_), Place::Here(_)) => true,
        (Place::There(a), Place::There(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    groups.iter().position(same).unwrap_or_else(|| {
        groups.push((place, Vec::new()));
        groups.len() - 1
    })
}

fn picked<T: Copy>(all: &[T], numbers: &[usize]) -> Vec<T> {
    numbers.iter().map(|number| all[*number]).collect()
}

#[async_trait]
impl Cluster for Nodes {
    #[inline]
    fn role(&self, partition: u32) -> Role {
        self.membership.role(partition)
    }

    fn term_as_first(&self, partitions: &mut dyn Iterator<Item = u32>) -> Option<u64> {
        self.membership.term_as_first(partitions)
    }

    fn are_first(&self, partitions: &mut dyn Iterator<Item = u32>) -> Vec<bool> {
        self.membership.are_first(partitions)
    }

    async fn submit(&self, entries: Vec<(u32, Bytes)>, repeatable: bool) -> Result<Vec<Applied>> {
        let repeat = if repeatable { Repeat::Always } else { Repeat::Never };
        let entries = &entries;
        let send = |place: Place, numbers: Vec<usize>| async move {
            let own = numbers.iter().map(|number| entries[*number].clone()).collect();
            let outcome = self.submit_to(&place, own).await;
            (numbers, outcome)
        };
        self.everywhere(entries.len(), |number| entries[number].0, false, repeat, send).await
    }

    async fn contains(&self, filter: u64, keys: &[(u32, Fingerprint)], after: &Token) -> Result<Vec<Answer>> {
        let send = |place: Place, numbers: Vec<usize>| async move {
            let outcome = self.contains_at(&place, filter, picked(keys, &numbers), after).await;
            (numbers, outcome)
        };
        self.everywhere(keys.len(), |number| keys[number].0, true, Repeat::Always, send).await
    }

    async fn look(
        &self,
        filter: u64,
        keys: &[(u32, Fingerprint)],
        after: &Token,
        consistency: Consistency,
    ) -> Result<Told> {
        let send = |place: Place, numbers: Vec<usize>| async move {
            let asked = picked(keys, &numbers);
            let told = self.look_at(&place, filter, &asked, after, consistency).await;
            // Each key with what its answer was given from.
            let each = told.map(|told| {
                let from = |(partition, _): &(u32, Fingerprint)| {
                    (*partition, told.position.position(*partition), told.age)
                };
                told.answers.iter().copied().zip(asked.iter().map(from)).collect::<Vec<_>>()
            });
            (numbers, each)
        };
        let each = self.everywhere(keys.len(), |number| keys[number].0, true, Repeat::Always, send).await?;
        let mut all = Told::default();
        for (answer, (partition, position, age)) in each {
            all.answers.push(answer);
            all.position.see(partition, position);
            all.age = all.age.max(age);
        }
        Ok(all)
    }

    async fn verify(&self, filter: u64, keys: &[(u32, Fingerprint)]) -> Result<Vec<u64>> {
        let send = |place: Place, numbers: Vec<usize>| async move {
            let outcome = self.verify_at(&place, filter, picked(keys, &numbers)).await;
            (numbers, outcome)
        };
        self.everywhere(keys.len(), |number| keys[number].0, true, Repeat::Always, send).await
    }

    async fn reach(&self, partition: u32, position: Position) -> Result<()> {
        let end = self.clock.now() + PATIENCE;
        loop {
            let mut changes = self.membership.changes();
            let view = self.membership.view();
            let mut why = "not all nodes know the same hosts yet".to_owned();
            // While some node may act on an older listing, another one may be the first host by that.
            if view.is_settled() && self.membership.is_valid() {
                let reached = match self.place(&view, partition, false)? {
                    Place::Here(engine) => {
                        engine.reach_for_peer(partition, position).await.map_err(Failure::Refused)
                    }
                    Place::There(peer) => {
                        let payload = wire::put_reach(partition, position);
                        self.ask(&peer, Errand::Read, "REACH", &payload, |_| Ok(())).await
                    }
                };
                match reached {
                    Ok(()) => return Ok(()),
                    Err(failure) => why = self.may_repeat(failure, Repeat::Always)?,
                }
            }
            if self.clock.now() >= end {
                return Err(Error::Retry(format!("partition {partition} of the log: {why}")));
            }
            self.wait(&mut changes).await;
        }
    }

    async fn counts(&self, filter: u64, partitions: &[u32]) -> Result<Vec<Counts>> {
        let send = |place: Place, numbers: Vec<usize>| async move {
            let asked = picked(partitions, &numbers);
            let outcome = match &place {
                Place::Here(engine) => engine.counts_for_peer(filter, &asked).await.map_err(Failure::Refused),
                Place::There(peer) => {
                    let payload = wire::put_count(filter, &asked);
                    self.ask(peer, Errand::Read, "COUNTS", &payload, wire::counts).await
                }
            };
            (numbers, outcome)
        };
        self.everywhere(partitions.len(), |number| partitions[number], true, Repeat::Always, send).await
    }

    async fn keys(&self, part: PartOf, after: Option<Fingerprint>) -> Result<Vec<(Fingerprint, u32)>> {
        let send = |place: Place| async move {
            match place {
                Place::Here(engine) => engine.keys_for_peer(part, after).await.map_err(Failure::Refused),
                Place::There(peer) => {
                    let payload = parts::put_keys(part, after);
                    self.ask(&peer, Errand::Bulk, "KEYS", &payload, parts::page).await
                }
            }
        };
        self.one(part.partition, send).await
    }

    async fn shapes(&self, all: &[PartOf], digested: bool) -> Result<Vec<Shape>> {
        let send = |place: Place, numbers: Vec<usize>| async move {
            let asked = picked(all, &numbers);
            let outcome = match &place {
                Place::Here(engine) => {
                    engine.shapes_for_peer(&asked, digested).await.map_err(Failure::Refused)
                }
                Place::There(peer) => {
                    let payload = parts::put_parts(&asked, digested);
                    self.ask(peer, Errand::Bulk, "SHAPES", &payload, parts::shapes).await
                }
            };
            (numbers, outcome)
        };
        self.everywhere(all.len(), |number| all[number].partition, true, Repeat::Always, send).await
    }

    async fn blocks(&self, part: PartOf, from: BlocksFrom, bytes_max: usize) -> Result<Bytes> {
        let send = |place: Place| async move {
            match place {
                Place::Here(engine) => {
                    engine.blocks_for_peer(part, from, bytes_max).await.map_err(Failure::Refused)
                }
                Place::There(peer) => {
                    let payload = parts::put_blocks(part, from, bytes_max);
                    let whole = |bytes: &[u8]| Ok(Bytes::copy_from_slice(bytes));
                    self.ask(&peer, Errand::Bulk, "BLOCKS", &payload, whole).await
                }
            }
        };
        self.one(part.partition, send).await
    }
    async fn publish(&self, all: &[PartOf], publication: &Publication) -> Result<Vec<VersionShard>> {
        let send = |place: Place, numbers: Vec<usize>| async move {
            let outcome = self.publish_at(&place, &picked(all, &numbers), publication).await;
            (numbers, outcome)
        };
        // Only first hosts make checkpoints, from which versions are made.
        self.everywhere(all.len(), |number| all[number].partition, false, Repeat::Always, send).await
    }

    async fn changes(&self, filter: u64, after: &[(u32, Position)]) -> Result<Vec<PartChanges>> {
        let send = |place: Place, numbers: Vec<usize>| async move {
            let asked = picked(after, &numbers);
            let outcome = match &place {
                Place::Here(engine) => {
                    engine.changes_for_peer(filter, &asked).await.map_err(Failure::Refused)
                }
                Place::There(peer) => {
                    let payload = changes::put_asked(filter, &asked);
                    self.ask(peer, Errand::Read, "CHANGES", &payload, changes::told).await
                }
            };
            (numbers, outcome)
        };
        self.everywhere(after.len(), |number| after[number].0, true, Repeat::Always, send).await
    }
}
