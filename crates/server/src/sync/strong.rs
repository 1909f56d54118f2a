//! Strong publishes: all strong replicas that answer, answer from the same version.
//!
//! ```text
//!  lock --> publish --> stage: a majority has it, verified --> revoke: nobody answers any more --> pin --> serve
//!            '- - - - - - - - - - whatever fails here leaves the old version serving - - - - - - -'
//! ```
//!
//! A strong replica answers while it has a lease. Between the old version and the new one there is a moment in which no lease is
//! out: so nobody can hear the new version from one replica and then the old one from another. The lock and the pin are in the
//! registry; of two who publish, one gets the lock.
//!
//! In a cluster one node gives leases, the first host of the catalog. When another one takes its place, that one sets the guard of a
//! filter's versions before it gives the first lease, so that the one before it pins nothing any more; and it waits out the leases that
//! the one before may have given, as after a restart.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use umbel_core::Error;
use umbel_core::engine::Handle;
use umbel_core::registry::{Lease, lock};
use umbel_core::version::Version;

use super::notices::{Event, Notice};
use super::replicas::{Known, LEASE};
use super::{Told, Trouble};
use crate::node::Node;

/// How often it is looked whether replicas are ready. Their heartbeats are what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the lock outlives one who died.
const LOCK: Duration = Duration::from_secs(10);

/// What strong replicas of a filter are told, besides what to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To have a version ready.
    Stage(u64),
    /// To stop answering.
    Revoke(u64),
}

/// Publishes that are under way.
#[derive(Debug, Default)]
pub(crate) struct Strong(Mutex<Publishes>);

#[derive(Debug, Default)]
struct Publishes {
    phases: HashMap<u64, Phase>,
    /// How often each filter's phase changed.
    turns: HashMap<u64, u64>,
    /// Since when this node looks after replicas.
    watch: Option<Watch>,
    /// Filters whose versions nobody pins who looked after replicas before.
    guarded: HashSet<u64>,
}

/// One node's time of looking after the replicas of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watch {
    term: u64,
    since: std::time::Instant,
}

impl Publishes {
    fn turns(&self, filter: u64) -> u64 {
        self.turns.get(&filter).copied().unwrap_or(0)
    }

    fn set(&mut self, filter: u64, phase: Option<Phase>) {
        *self.turns.entry(filter).or_default() += 1;
        match phase {
            Some(phase) => _ = self.phases.insert(filter, phase),
            None => _ = self.phases.remove(&filter),
        }
    }
}

/// What is asked of a strong publish.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Which replicas a majority is needed of: those with these labels.
    pub(crate) group: BTreeMap<String, String>,
    /// How long it may take until they have it.
    pub(crate) timeout: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Switched {
    pub(crate) version: Version,
    pub(crate) acknowledged: usize,
    pub(crate) registered: usize,
}

impl Strong {
    fn lock(&self) -> MutexGuard<'_, Publishes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when this node looks after replicas, if it does.
    fn watch(&self, node: &Node) -> Result<Watch, Trouble> {
        let elsewhere = || Error::Retry("another node of the cluster looks after replicas now".into());
        let term = node.engine.term_as_steward().ok_or_else(elsewhere)?;
        let mut under = self.lock();
        match under.watch {
            Some(watch) if watch.term == term => Ok(watch),
            _ => {
                let since = if node.engine.is_clustered() { node.now() } else { node.started };
                under.guarded.clear();
                Ok(*under.watch.insert(Watch { term, since }))
            }
        }
    }

    /// Makes sure that nobody pins versions for strong replicas who looked after them before. Gives the number by which this node does.
    async fn guard(&self, node: &Node, filter: u64, watch: Watch) -> Result<Option<u64>, Trouble> {
        if !node.engine.is_clustered() {
            return Ok(None);
        }
        let own = node.run_id.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let guard = own.unwrap_or_default().wrapping_add(watch.term);
        if !self.lock().guarded.contains(&filter) {
            node.engine.guard_versions(filter, guard).await?;
            let mut under = self.lock();
            if under.watch == Some(watch) {
                under.guarded.insert(filter);
            }
        }
        Ok(Some(guard))
    }

    /// What a strong replica is told. Whoever is told to serve has a lease before anybody can look for leases that are out.
    pub(super) async fn tell(&self, node: &Node, filter: u64, id: &str) -> Result<Told, Trouble> {
        // What is pinned may change until the lock is held: then it is asked for again.
        loop {
            let watch = self.watch(node)?;
            self.guard(node, filter, watch).await?;
            let turn = self.turns(filter);
            let pinned = node.releases.pinned(filter).await?;
            let under = self.lock();
            if under.turns(filter) != turn || under.watch != Some(watch) {
                continue;
            }
            let told = match under.phases.get(&filter) {
                None => Told { serve: pinned, stage: None },
                Some(Phase::Stage(number)) => Told { serve: pinned, stage: Some(*number) },
                Some(Phase::Revoke(number)) => Told { serve: None, stage: Some(*number) },
            };
            if told.serve.is_some() {
                node.sync.replicas.grant(filter, id, node.now());
            }
            return Ok(told);
        }
    }

    /// The version that replicas of a filter are getting ready, if there is one.
    pub(crate) fn staged(&self, filter: u64) -> Option<u64> {
        let (Phase::Stage(number) | Phase::Revoke(number)) = self.lock().phases.get(&filter).copied()?;
        Some(number)
    }

    fn turns(&self, filter: u64) -> u64 {
        self.lock().turns(filter)
    }
}

/// Ends a phase, however a publish ends.
struct Under<'a> {
    node: &'a Node,
    filter: u64,
}

impl Under<'_> {
    fn set(&self, phase: Phase, version: &Version) {
        self.node.sync.strong.lock().set(self.filter, Some(phase));
        self.node.sync.notices.tell(Notice::of(version, Event::Stage, false));
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.node.sync.strong.lock().set(self.filter, None);
    }
}

/// A lock in the registry that ends with whoever holds it.
struct Locked<'a> {
    node: &'a Node,
    lease: Lease,
    renewed: Instant,
}

impl<'a> Locked<'a> {
    async fn take(node: &'a Node, filter: u64) -> Result<Self, Trouble> {
        let lease = node.registry.grant(LOCK).await?;
        let name = format!("locks/publish/{filter:016x}");
        // Of this publish alone: the node may be asked for another one meanwhile.
        let owner = format!("{} {}", node.run_id, lease.0);
        if lock::acquire(&*node.registry, &name, owner.into(), lease).await?.is_some() {
            return Ok(Self { node, lease, renewed: Instant::now() });
        }
        node.registry.revoke(lease).await?;
        Err(Trouble::Conflict("another strong publish of this filter is under way".into()))
    }

    /// Makes sure that the lock is still held.
    async fn hold(&mut self) -> Result<(), Trouble> {
        if self.renewed.elapsed() < LOCK / 4 {
            return Ok(());
        }
        if !self.node.registry.keep_alive(self.lease).await? {
            return Err(Trouble::Conflict("the lock was lost: the publish was held up for too long".into()));
        }
        self.renewed = Instant::now();
        Ok(())
    }

    async fn free(self) -> Result<(), Trouble> {
        Ok(self.node.registry.revoke(self.lease).await?)
    }
}

/// Publishes a filter so that all strong replicas switch to it together.
pub(crate) async fn publish(node: &Node, filter: &Arc<Handle>, terms: &Terms) -> Result<Switched, Trouble> {
    let mut lock = Locked::take(node, filter.id()).await?;
    let switched = switch(node, filter, terms, &mut lock).await;
    lock.free().await?;
    switched
}

async fn switch(
    node: &Node,
    filter: &Arc<Handle>,
    terms: &Terms,
    lock: &mut Locked<'_>,
) -> Result<Switched, Trouble> {
    let id = filter.id();
    let watch = node.sync.strong.watch(node)?;
    let guard = node.sync.strong.guard(node, id, watch).await?;
    let before = node.releases.pinned(id).await?;
    let version = node.releases.publish(node, filter, node.now_in_log().as_ref()).await?;
    let under = Under { node, filter: id };
    under.set(Phase::Stage(version.number), &version);
    let (acknowledged, registered) = staged(node, &version, terms, lock).await?;
    under.set(Phase::Revoke(version.number), &version);
    revoked(node, id, watch, lock).await?;
    lock.hold().await?;
    if let Err(now) = node.releases.pin_as(node, id, version.number, before, guard).await? {
        return Err(Trouble::Conflict(format!(
            "meanwhile version {now:?} was pinned in place of {before:?}"
        )));
    }
    drop(under);
    node.sync.notices.tell(Notice::of(&version, Event::Version, true));
    Ok(Switched { version, acknowledged, registered })
}

/// Waits until a majority has the version; gives how many of how many.
async fn staged(
    node: &Node,
    version: &Version,
    terms: &Terms,
    lock: &mut Locked<'_>,
) -> Result<(usize, usize), Trouble> {
    let until = Instant::now() + terms.timeout;
    loop {
        let members = strong_replicas(node, version.filter);
        let members: Vec<_> = members.iter().filter(|known| is_in(known, &terms.group)).collect();
        let ready = members.iter().filter(|known| known.beat.staged == Some(version.number)).count();
        if ready * 2 > members.len() || members.is_empty() {
            return Ok((ready, members.len()));
        }
        if Instant::now() >= until {
            return Err(Trouble::Conflict(format!(
                "{ready} of {} replicas have version {}; a majority is needed, and the old version goes on",
                members.len(),
                version.number
            )));
        }
        lock.hold().await?;
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until no replica answers: each one says so, or has no lease any more.
async fn revoked(node: &Node, filter: u64, watch: Watch, lock: &mut Locked<'_>) -> Result<(), Trouble> {
    loop {
        if node.sync.strong.watch(node)? != watch {
            return Err(Trouble::Conflict(
                "the nodes of the cluster changed: the old version goes on".into(),
            ));
        }
        let now = node.now();
        // Leases of the process or the node before this one are not known.
        let unknown = now.saturating_duration_since(watch.since) < LEASE;
        let answers = |known: &Known| known.lease.is_some_and(|lease| lease > now);
        if !unknown && !strong_replicas(node, filter).iter().any(answers) {
            return Ok(());
        }
        lock.hold().await?;
        sleep(LOOK_EVERY).await;
    }
}

fn strong_replicas(node: &Node, filter: u64) -> Vec<Known> {
    let all = node.sync.replicas.of(filter, node.now());
    all.into_values().filter(Known::is_strong).collect()
}

fn is_in(known: &Known, group: &BTreeMap<String, String>) -> bool {
    group.iter().all(|(name, value)| known.beat.labels.get(name) == Some(value))
}
