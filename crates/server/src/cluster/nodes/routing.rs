//! Where requests go: to the first hosts of their partitions, all at once, and again if these have changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::watch;
use umbel_core::cluster::{Membership, Record, View};
use umbel_core::engine::{Answer, Engine, NO_LEASE, OVERDUE_TICKS};
use umbel_core::{Error, Result};

use super::Nodes;
use crate::cluster::DOWN;
use crate::cluster::link::Failure;
use crate::cluster::peers::{Errand, Peer};
use crate::cluster::wire;
use crate::sync::Notice;

/// How long a request is tried again while hosts change: a lease has to end meanwhile, and all have to know of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
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

/// Who is asked.
#[derive(Clone)]
pub(super) enum Place {
    Here(Arc<Engine>),
    There(Arc<Peer>),
}

/// Requests for one place, by their numbers.
type Group = (Place, Vec<u32>);

/// For how long this node's lease has been over, as seen by a request that waits.
pub(super) struct Overdue {
    counts: watch::Receiver<u64>,
    began: u64,
}

impl Overdue {
    pub(super) fn since_now(membership: &Membership) -> Self {
        let counts = membership.overdue();
        let began = *counts.borrow();
        Self { counts, began }
    }

    /// Whether the lease was over for so long of the request's time that it should not wait any longer.
    pub(super) fn is_long(&self) -> bool {
        *self.counts.borrow() >= self.began + OVERDUE_TICKS
    }
}

/// Whether requests may be sent again of which it is not known what became of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Never,
    Always,
}

/// What the nodes of a view are to this one: found once, and asked for by every request.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) view: Arc<View>,
    /// Of each node of the view, in its order, how it is reached; none for this one.
    peers: Vec<Option<Arc<Peer>>>,
}

impl Nodes {
    /// The routes of the view on which this node acts.
    pub(super) fn routes(&self) -> Arc<Routes> {
        self.routes_of(self.membership.view())
    }

    /// The routes of a view.
    pub(super) fn routes_of(&self, view: Arc<View>) -> Arc<Routes> {
        if let Some(known) = &*self.routes.load()
            && Arc::ptr_eq(&known.view, &view)
        {
            return Arc::clone(known);
        }
        let name = self.membership.name();
        let peer = |node: &Record| (node.name != name).then(|| self.peers.of(node, &view));
        let peers = view.nodes().iter().map(peer).collect();
        let routes = Arc::new(Routes { view, peers });
        self.routes.store(Some(Arc::clone(&routes)));
        routes
    }

    /// The node that answers for a partition, by its number. Reads pass over one that did not answer a moment ago, if another one has it:
    /// that one reads the log to its end before it answers. A node whose lease is over leaves everything to other hosts: it may be cut off
    /// from the log as well, and they can find out who leads.
    pub(super) fn host(&self, routes: &Routes, partition: u32, reads: bool) -> Result<u16> {
        let hosts = routes.view.host_numbers(partition);
        let first = hosts.first().copied().ok_or_else(|| down(partition))?;
        let has_lease = self.membership.is_valid();
        if !reads && has_lease {
            return Ok(first);
        }
        let is_good = |number: &&u16| match routes.peers.get(usize::from(**number)) {
            Some(Some(peer)) => !self.peers.is_avoided(peer),
            _ => has_lease,
        };
        Ok(hosts.iter().find(is_good).copied().unwrap_or(first))
    }

    /// Whether a place has not answered pings for longer than a lease.
    fn is_unreached(&self, place: &Place) -> bool {
        matches!(place, Place::There(peer) if self.peers.is_unreached(peer))
    }

    pub(super) fn place_of(&self, routes: &Routes, number: u16) -> Result<Place> {
        match routes.peers.get(usize::from(number)) {
            Some(Some(peer)) => Ok(Place::There(Arc::clone(peer))),
            _ => self.here().map(Place::Here),
        }
    }

    /// Requests by the place that they go to.
    fn group(
        &self,
        routes: &Routes,
        left: impl ExactSizeIterator<Item = u32>,
        partition: impl Fn(usize) -> u32,
        reads: bool,
    ) -> Result<Vec<Group>> {
        let room = left.len() / 2;
        let mut groups: Vec<Group> = Vec::new();
        // Of each node, and of each partition that was met, its group.
        let mut of_node: Vec<Option<usize>> = vec![None; routes.peers.len()];
        let mut of_partition: Vec<Option<usize>> = vec![None; routes.view.partitions() as usize];
        for request in left {
            let number = partition(request as usize);
            let known = of_partition.get_mut(number as usize).ok_or_else(|| down(number))?;
            let group = match *known {
                Some(group) => group,
                None => {
                    let host = self.host(routes, number, reads)?;
                    let of_host = of_node.get_mut(usize::from(host)).ok_or_else(|| down(number))?;
                    let group = match *of_host {
                        Some(group) => group,
                        None => {
                            groups.push((self.place_of(routes, host)?, Vec::with_capacity(room)));
                            *of_host.insert(groups.len() - 1)
                        }
                    };
                    *known.insert(group)
                }
            };
            groups[group].1.push(request);
        }
        Ok(groups)
    }

    /// Sends requests to where they belong until each has an answer, or time is over.
    pub(super) async fn everywhere<T, F>(
        &self,
        count: usize,
        partition: impl Fn(usize) -> u32,
        reads: bool,
        repeat: Repeat,
        send: impl Fn(Place, Vec<u32>) -> F,
    ) -> Result<Vec<T>>
    where
        F: Future<Output = (Vec<u32>, Result<Vec<T>, Failure>)>,
    {
        let (end, overdue) = (self.clock.now() + PATIENCE, Overdue::since_now(&self.membership));
        let mut answers: Vec<Option<T>> = (0..count).map(|_| None).collect();
        let mut left: Option<Vec<u32>> = None;
        loop {
            let routes = self.routes();
            let groups = match &left {
                None => self.group(&routes, 0..count as u32, &partition, reads)?,
                Some(left) => self.group(&routes, left.iter().copied(), &partition, reads)?,
            };
            let unreached: Vec<bool> = groups.iter().map(|(place, _)| self.is_unreached(place)).collect();
            let sent = groups.into_iter().map(|(place, requests)| send(place, requests));
            let (mut again, mut why) = (Vec::new(), String::new());
            let mut is_cut = false;
            for ((requests, outcome), unreached) in join_all(sent).await.into_iter().zip(unreached) {
                is_cut |= unreached && outcome.is_err();
                match outcome {
                    Ok(all) if all.len() == requests.len() => {
                        requests
                            .iter()
                            .zip(all)
                            .for_each(|(request, answer)| answers[*request as usize] = Some(answer));
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
            // All nodes know which of them reach each other, and there is no other host to ask.
            if is_cut && self.membership.settled_view().is_some() {
                return Err(Error::Retry(format!("{why}; ask another node")));
            }
            if overdue.is_long() {
                return Err(Error::Retry(format!("{why}; {NO_LEASE}")));
            }
            if self.clock.now() >= end {
                return Err(Error::Retry(why));
            }
            again.sort_unstable();
            left = Some(again);
            self.wait(&routes).await;
        }
    }

    /// Sends one question to where its partition is, until there is an answer or time is over.
    pub(super) async fn one<T, F>(&self, partition: u32, send: impl Fn(Place) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let send = &send;
        let send = |place: Place, numbers: Vec<u32>| async move {
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
        let send = |place: Place, numbers: Vec<u32>| async move {
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

    /// Why something is to be sent again, or the error that its sender gets (rule A3).
    pub(super) fn may_repeat(&self, failure: Failure, repeat: Repeat) -> Result<String> {
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

    /// Waits until hosts are others than by these routes, but not for long.
    pub(super) async fn wait(&self, routes: &Routes) {
        let mut changes = self.membership.changes();
        if !Arc::ptr_eq(&routes.view, &self.membership.view()) {
            return;
        }
        self.membership.wake();
        // Whoever waits may be where there are no timers.
        let waiting = async move { _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await };
        let _ = self.runtime.spawn(waiting).await;
    }

    /// Asks one node, and reads its answer.
    pub(super) async fn ask<T>(
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
}

impl Nodes {
    /// Looks keys of a filter up at one node, with those of others that wait for it.
    pub(super) async fn look_up(
        &self,
        peer: &Peer,
        filter: u64,
        keys: Vec<u8>,
    ) -> Result<Vec<Answer>, Failure> {
        let answer = self.peers.look_up(peer, filter, keys, LOOKUP_TIME).await?;
        wire::answers(&answer).map_err(Failure::Refused)
    }
}

fn down(partition: u32) -> Error {
    Error::Retry(format!("{DOWN} slot {partition} and others of partition {partition} have no live host"))
}
