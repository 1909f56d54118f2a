//! Where requests go: to the first hosts of their partitions, all at once, and again if these have changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use umbel_core::cluster::View;
use umbel_core::engine::Engine;
use umbel_core::{Error, Result};

use super::Nodes;
use crate::cluster::DOWN;
use crate::cluster::link::Failure;
use crate::cluster::peers::{Errand, Peer};
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
pub(super) enum Place {
    Here(Arc<Engine>),
    There(Arc<Peer>),
}

/// Requests for one place, by their numbers.
type Group = (Place, Vec<usize>);

/// Whether requests may be sent again of which it is not known what became of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Never,
    Always,
}

impl Nodes {
    /// The node that answers for a partition. Reads pass over one that did not answer a moment ago, if another one has it: that one reads the
    /// log to its end before it answers.
    pub(super) fn place(&self, view: &View, partition: u32, reads: bool) -> Result<Place> {
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
    pub(super) async fn everywhere<T, F>(
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
    pub(super) async fn one<T, F>(&self, partition: u32, send: impl Fn(Place) -> F) -> Result<T>
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

    /// Waits until hosts have changed, but not for long.
    pub(super) async fn wait(&self, changes: &mut tokio::sync::watch::Receiver<u64>) {
        self.membership.wake();
        let mut changes = changes.clone();
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
