//! What a node does to be one: it keeps its place, takes in the partitions that it should host, and lets go of others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use umbel_core::clock::Clock;
use umbel_core::cluster::{Joining, Membership, Settings, View};
use umbel_core::random::SystemRandom;
use umbel_core::registry::Registry;
use umbel_core::{Error, Result};

use super::nodes::Nodes;
use super::reachability;
use crate::node::Node;

/// Partitions that are taken in at once: each reads its checkpoints and its log.
const TOGETHER: usize = 4;
/// How long after a failure a partition is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How often hosts are looked at although nobody says that they changed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks at the registry have so much time between them, and more after one that failed.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);
/// How often requests that wait are told that the lease is over.
const OVERDUE_TICK: Duration = Duration::from_millis(100);

/// Takes a node's place, if need be when the lease of one that was killed has ended.
pub async fn join(
    settings: Settings,
    registry: Arc<dyn Registry>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<Membership>> {
    let end = Instant::now() + settings.lease * 2 + Duration::from_secs(2);
    let mut is_told = false;
    loop {
        let random = SystemRandom::default();
        let joining = Membership::join(settings.clone(), Arc::clone(&registry), Arc::clone(&clock), &random);
        match joining.await {
            Ok(Joining::Joined(membership)) => return Ok(membership),
            Ok(Joining::Taken(other)) if Instant::now() > end => {
                return Err(Error::Invalid(format!(
                    "another node is called {}, at {}, and keeps its lease alive; every node needs a name of its own",
                    other.name, other.address
                )));
            }
            Err(error) if Instant::now() > end || !matches!(error, Error::Retry(_)) => return Err(error),
            Ok(Joining::Taken(other)) if !std::mem::replace(&mut is_told, true) => {
                tracing::info!(
                    "a node called {} has its place, or was killed just now; waiting for its lease to end",
                    other.name
                );
            }
            _ => {}
        }
        sleep(PAUSE_AFTER_FAILURE).await;
    }
}

/// Keeps a node's place, and acts on what others say; comes back with the reason when the place is lost.
pub async fn keep_place(membership: Arc<Membership>) -> String {
    let lease = membership.settings().lease;
    let alive = async {
        loop {
            sleep(lease / 3).await;
            match timeout(lease / 3, membership.keep_alive()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease of this node was not kept alive"),
                Err(_) => tracing::warn!("the registry does not answer: the lease of this node may end"),
            }
        }
    };
    let look = async {
        loop {
            let is_hinted = tokio::select! {
                changed = membership.changed() => changed.is_ok(),
                () = membership.woken() => true,
                () = sleep(lease / 2) => true,
            };
            let looked = timeout(lease, membership.look()).await;
            if let Some(why) = membership.lost() {
                return why.to_owned();
            }
            let is_good = match looked {
                Ok(Ok(())) => is_hinted,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the other nodes are not known");
                    false
                }
                Err(_) => false,
            };
            sleep(if is_good { PAUSE } else { PAUSE_AFTER_FAILURE }).await;
        }
    };
    let overdue = async {
        loop {
            sleep(OVERDUE_TICK).await;
            if !membership.is_valid() {
                membership.count_overdue();
            }
        }
    };
    tokio::select! {
        why = look => why,
        () = alive => String::new(),
        () = overdue => String::new(),
    }
}

/// What is hosted here, and what is on its way in or out.
#[derive(Debug, Default)]
struct Hosted {
    here: BTreeSet<u32>,
    coming: BTreeSet<u32>,
    /// Those that others are not told of any more, and until when they are kept all the same.
    going: BTreeMap<u32, Duration>,
    /// Those that could not be taken in, and when they are tried again.
    failed: BTreeMap<u32, Duration>,
}

/// What is to be done next.
#[derive(Debug, Default, PartialEq, Eq)]
struct Steps {
    take: Vec<u32>,
    /// To be said: whether a partition is served here.
    say: Vec<(u32, bool)>,
    release: Vec<u32>,
}

impl Hosted {
    fn plan(&mut self, view: &View, me: &str, catalog: u32, now: Duration, lease: Duration) -> Steps {
        let mut steps = Steps::default();
        let mut wanted: BTreeSet<u32> = view.wanted(me).into_iter().collect();
        wanted.insert(catalog);
        let missing = wanted.difference(&self.here).copied();
        let mut missing: Vec<u32> = missing
            .filter(|partition| !self.coming.contains(partition))
            .filter(|partition| self.failed.get(partition).is_none_or(|again| *again <= now))
            .collect();
        // What nobody has comes first.
        missing.sort_by_key(|partition| view.hosts(*partition).len());
        missing.truncate(TOGETHER.saturating_sub(self.coming.len()));
        self.coming.extend(&missing);
        steps.take = missing;
        for partition in self.here.clone() {
            let may_go = !wanted.contains(&partition) && view.may_release(me, partition);
            match self.going.get(&partition).copied() {
                None if may_go && view.is_settled() => {
                    self.going.insert(partition, now + lease);
                    steps.say.push((partition, false));
                }
                None => {}
                Some(_) if !may_go => {
                    self.going.remove(&partition);
                    steps.say.push((partition, true));
                }
                Some(end) => {
                    let is_told = view.node(me).is_some_and(|node| !node.serves.contains(partition));
                    if view.is_settled() && is_told || now >= end {
                        self.going.remove(&partition);
                        self.here.remove(&partition);
                        steps.release.push(partition);
                    }
                }
            }
        }
        steps
    }
}

/// Takes partitions in and lets go of them, as the nodes come and go, for as long as the server runs.
pub async fn host(node: Arc<Node>, nodes: Arc<Nodes>, clock: Arc<dyn Clock>) {
    let membership = nodes.membership();
    let (catalog, lease) = (node.engine.catalog(), membership.settings().lease);
    let mut hosted = Hosted { here: BTreeSet::from([catalog]), ..Hosted::default() };
    membership.serve(catalog, true);
    let mut coming: JoinSet<(u32, Result<()>)> = JoinSet::new();
    // It ends with this function.
    let mut watching = JoinSet::new();
    watching.spawn(reachability::watch(Arc::clone(&nodes), Arc::clone(&clock)));
    loop {
        let mut changes = membership.changes();
        let steps = hosted.plan(&membership.view(), membership.name(), catalog, clock.now(), lease);
        steps.say.iter().for_each(|(partition, serves)| membership.serve(*partition, *serves));
        for partition in steps.take {
            let (engine, work) = (Arc::clone(&node.engine), node.work.handle());
            coming.spawn(async move {
                let taken = async move { engine.host(partition).await };
                let ended = || Err(Error::Retry("the server is ending".into()));
                let Some(work) = work else { return (partition, ended()) };
                (partition, work.spawn(taken).await.unwrap_or_else(|_| ended()))
            });
        }
        for partition in steps.release {
            match node.engine.release(partition).await {
                Ok(()) => tracing::info!("partition {partition} is with other nodes"),
                Err(error) => tracing::warn!(%error, "partition {partition} was not let go"),
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            Some(Ok((partition, taken))) = coming.join_next() => {
                hosted.coming.remove(&partition);
                match taken {
                    Ok(()) => {
                        tracing::info!("partition {partition} is served here");
                        hosted.failed.remove(&partition);
                        hosted.here.insert(partition);
                        membership.serve(partition, true);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "partition {partition} could not be taken in");
                        hosted.failed.insert(partition, clock.now() + TRY_AGAIN);
                        if let Error::Closed(why) = error {
                            node.fail(why);
                        }
                    }
                }
            }
            () = sleep(LOOK_EVERY) => {}
            () = node.stop.stopped() => return,
        }
    }
}

/// Gives the place up, when others serve all that is served here, or after some time.
pub async fn leave(nodes: &Nodes, most: Duration) -> Result<()> {
    let membership = nodes.membership();
    membership.leave();
    let others_have_it = || {
        let (view, me) = (membership.view(), membership.name());
        let others = |node: &&umbel_core::cluster::Record| node.name != me;
        let has_heirs = view.nodes().iter().filter(others).any(|node| !node.leaving);
        let is_known = view.is_settled() && view.node(me).is_none_or(|node| node.leaving);
        let has_other = |partition: u32| view.hosts(partition).any(|node| node.name != me);
        !has_heirs || is_known && membership.serves().iter().all(has_other)
    };
    let wait = async {
        let mut changes = membership.changes();
        while !others_have_it() {
            let _ = timeout(LOOK_EVERY, changes.changed()).await;
        }
    };
    if timeout(most, wait).await.is_err() {
        tracing::warn!(
            "this node ends although others do not serve all that it does: they will read it from the log"
        );
    }
    membership.end().await
}

#[cfg(test)]
mod tests {
    use umbel_core::cluster::Record;

    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    fn view(nodes: &[(&str, bool, &[u32])]) -> View {
        let record = |(name, leaving, serves): &(&str, bool, &[u32]), view| Record {
            name: (*name).to_owned(),
            instance: 1,
            address: "h:1".into(),
            zone: String::new(),
            weight: 100,
            leaving: *leaving,
            serves: serves.iter().copied().collect(),
            unreached: BTreeSet::new(),
            view,
        };
        let made = |view| View::new(nodes.iter().map(|node| record(node, view)).collect(), 8, 2, 1, None);
        let digest = made(0).expect("right nodes").digest();
        made(digest).expect("right nodes")
    }

    #[test]
    fn what_is_missing_is_taken_in_a_few_at_a_time() {
        let alone = view(&[("a", false, &[])]);
        let mut hosted = Hosted { here: BTreeSet::from([3]), ..Hosted::default() };
        let now = Duration::from_secs(100);
        let steps = hosted.plan(&alone, "a", 3, now, LEASE);
        assert_eq!(steps.take, [0, 1, 2, 4]);
        assert_eq!(hosted.plan(&alone, "a", 3, now, LEASE), Steps::default());
        // One comes, one fails and waits.
        hosted.coming.remove(&0);
        hosted.here.insert(0);
        hosted.coming.remove(&1);
        hosted.failed.insert(1, now + TRY_AGAIN);
        assert_eq!(hosted.plan(&alone, "a", 3, now, LEASE).take, [5, 6]);
        hosted.coming.clear();
        assert!(hosted.plan(&alone, "a", 3, now + TRY_AGAIN, LEASE).take.contains(&1));
    }

    #[test]
    fn what_others_have_is_let_go_when_all_know_it() {
        let everything: Vec<u32> = (0..8).collect();
        let now = Duration::from_secs(100);
        let hosted = || Hosted { here: everything.iter().copied().collect(), ..Hosted::default() };
        // Nobody else has it yet.
        let alone = view(&[("a", true, &everything), ("b", false, &[])]);
        assert_eq!(hosted().plan(&alone, "a", 0, now, LEASE), Steps::default());
        let both = view(&[("a", true, &everything), ("b", false, &everything)]);
        let mut leaving = hosted();
        let steps = leaving.plan(&both, "a", 0, now, LEASE);
        assert_eq!(steps.say, (1..8).map(|partition| (partition, false)).collect::<Vec<_>>());
        assert!(steps.release.is_empty());
        // It is kept until all know that it is not asked any more.
        assert_eq!(leaving.plan(&both, "a", 0, now, LEASE), Steps::default());
        let told = view(&[("a", true, &[0]), ("b", false, &everything)]);
        assert_eq!(leaving.plan(&told, "a", 0, now, LEASE).release, (1..8).collect::<Vec<_>>());
        assert_eq!(leaving.here, BTreeSet::from([0]));
        // Or until nobody waits for an answer any more.
        let mut late = hosted();
        late.plan(&both, "a", 0, now, LEASE);
        assert_eq!(late.plan(&both, "a", 0, now + LEASE, LEASE).release.len(), 7);
        // If the others lose it meanwhile, it stays.
        let mut back = hosted();
        back.plan(&both, "a", 0, now, LEASE);
        let steps = back.plan(&alone, "a", 0, now, LEASE);
        assert_eq!(steps.say, (1..8).map(|partition| (partition, true)).collect::<Vec<_>>());
        assert!(back.going.is_empty() && back.here.len() == 8);
    }
}
