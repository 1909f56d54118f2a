//! Strong publishes: all strong replicas that answer, answer from the same version.
//!
//! ```text
//!  lock --> publish --> stage: a majority has it, verified --> revoke: nobody answers any more --> switch --> serve
//!            '- - - - - - - - - - whatever fails here leaves the old version serving - - - - - - - -'
//! ```
//!
//! A majority is of the registered strong replicas (see `members`), not of those that were heard of lately. The version that they answer
//! from is theirs alone: what is pinned for other replicas stays as it is.
//!
//! A strong replica answers while it has a lease. Between the old version and the new one there is a moment in which no lease is
//! out: so nobody can hear the new version from one replica and then the old one from another. The lock and the version are in the
//! registry; of two who publish, one gets the lock.
//!
//! In a cluster one node gives leases (see `steward`). When another one takes its place, that one sets the guard of a filter's versions
//! before it gives the first lease, so that the one before it pins nothing any more; and it waits out the leases that the one before may
//! have given, as after a restart.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use umbel_core::Error;
use umbel_core::engine::{Handle, Pin};
use umbel_core::version::Version;

use super::locked::Locked;
use super::members::Member;
use super::notices::{Event, Notice};
use super::replicas::LEASE;
use super::steward::Watch;
use super::{Told, Trouble, replicas_of, tell_all};
use crate::names::shown;
use crate::node::Node;
use crate::releases;

/// Replicas that an error names.
const NAMED_MAX: usize = 10;
/// How often it is looked whether replicas are ready. Their heartbeats are what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

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
    /// How often a phase changed, whichever filter's.
    turns: u64,
}

impl Publishes {
    fn set(&mut self, filter: u64, phase: Option<Phase>) {
        self.turns += 1;
        match phase {
            Some(phase) => _ = self.phases.insert(filter, phase),
            None => _ = self.phases.remove(&filter),
        }
    }
}

/// What is asked of a strong publish.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The version to switch to; the filter as it is now, if none is named.
    pub(crate) version: Option<u64>,
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
    /// The version that is pinned for other replicas, if one is.
    pub(crate) pinned: Option<u64>,
}

impl Strong {
    fn lock(&self) -> MutexGuard<'_, Publishes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a strong replica is told. Whoever is told to serve has a lease before anybody can look for leases that are out.
    pub(super) async fn tell(&self, node: &Node, filter: u64, id: &str) -> Result<Told, Trouble> {
        // The version may change until the lock is held: then it is asked for again.
        loop {
            let watch = node.sync.steward.watch(node)?;
            node.sync.steward.guard(node, filter, watch).await?;
            let turn = self.lock().turns;
            let serve = node.releases.current(filter).await?.strong;
            let under = self.lock();
            if under.turns != turn || node.sync.steward.watch(node)? != watch {
                continue;
            }
            let told = match under.phases.get(&filter) {
                None => Told { serve, stage: None },
                Some(Phase::Stage(number)) => Told { serve, stage: Some(*number) },
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
}

/// Ends a phase, however a publish ends.
struct Under<'a> {
    node: &'a Node,
    filter: u64,
}

impl Under<'_> {
    fn set(&self, phase: Phase, version: &Version) {
        self.node.sync.strong.lock().set(self.filter, Some(phase));
        tell_all(self.node, Notice::of(version, Event::Stage, false));
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.node.sync.strong.lock().set(self.filter, None);
    }
}

/// Publishes a filter so that all strong replicas switch to it together.
pub(crate) async fn publish(node: &Node, filter: &Arc<Handle>, terms: &Terms) -> Result<Switched, Trouble> {
    let Some(mut lock) = Locked::take(node, &format!("locks/publish/{:016x}", filter.id())).await? else {
        return Err(Trouble::Conflict("another strong publish of this filter is under way".into()));
    };
    let switched = switch(node, filter, terms, &mut lock).await;
    lock.free().await?;
    switched
}

/// Makes sure that the lock is still held.
async fn hold(lock: &mut Locked) -> Result<(), Trouble> {
    match lock.is_held().await? {
        true => Ok(()),
        false => Err(Trouble::Conflict("the lock was lost: the publish was held up for too long".into())),
    }
}

async fn switch(
    node: &Node,
    filter: &Arc<Handle>,
    terms: &Terms,
    lock: &mut Locked,
) -> Result<Switched, Trouble> {
    let id = filter.id();
    let watch = node.sync.steward.watch(node)?;
    let guard = node.sync.steward.guard(node, id, watch).await?;
    let before = node.releases.current(id).await?.strong;
    let version = match terms.version {
        Some(number) => releases::version(node, id, number)
            .await?
            .ok_or_else(|| Error::Invalid(format!("there is no version {number} of this filter")))?,
        None => node.releases.publish(node, filter, node.now_in_log().as_ref()).await?,
    };
    // Another node may have registered some before this one looked after replicas.
    node.sync.members.read(node, filter).await?;
    let under = Under { node, filter: id };
    under.set(Phase::Stage(version.number), &version);
    let (acknowledged, registered) = staged(node, filter, &version, terms, lock).await?;
    under.set(Phase::Revoke(version.number), &version);
    revoked(node, id, watch, lock).await?;
    hold(lock).await?;
    let pinned = match node.releases.switch(node, id, version.number, before, guard).await? {
        Pin::Done(current) => current.version,
        Pin::Conflict(current) => {
            let named = |number: Option<u64>| {
                number.map_or_else(|| "no version".to_owned(), |number| format!("version {number}"))
            };
            return Err(Trouble::Conflict(format!(
                "strong replicas are to answer from {} now, where {} was expected: another publish or another node was first",
                named(current.strong),
                named(before)
            )));
        }
        Pin::NoVersion => {
            return Err(Trouble::Conflict(format!("version {} was removed meanwhile", version.number)));
        }
    };
    drop(under);
    let is_current = pinned.is_none_or(|pinned| pinned == version.number);
    tell_all(node, Notice::of(&version, Event::Version, is_current));
    Ok(Switched { version, acknowledged, registered, pinned })
}

/// Waits until a majority of the registered replicas has the version; returns how many of how many.
async fn staged(
    node: &Node,
    filter: &Handle,
    version: &Version,
    terms: &Terms,
    lock: &mut Locked,
) -> Result<(usize, usize), Trouble> {
    let until = Instant::now() + terms.timeout;
    loop {
        let registered = node.sync.members.of(node, filter).await?;
        let heard = replicas_of(node, version.filter);
        let is_ready =
            |id: &str| heard.get(id).is_some_and(|known| known.beat.staged == Some(version.number));
        let members = registered.iter().filter(|(_, member)| is_in(member, &terms.group));
        let (ready, missing): (Vec<&str>, Vec<&str>) =
            members.map(|(id, _)| id.as_str()).partition(|id| is_ready(id));
        let all = ready.len() + missing.len();
        let needed = if all == 0 { 0 } else { all / 2 + 1 };
        if ready.len() >= needed {
            return Ok((ready.len(), all));
        }
        if Instant::now() >= until {
            let lacking = missing.iter().take(NAMED_MAX).map(|id| match heard.get(*id) {
                Some(_) => format!("{id} (heard of, does not have it yet)"),
                None => format!("{id} (not heard of)"),
            });
            let lacking = lacking.collect::<Vec<_>>().join(", ");
            let more = missing.len().saturating_sub(NAMED_MAX);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            return Err(Trouble::Conflict(format!(
                "{} of {all} ready, {needed} needed: these registered strong replicas do not have version {}: {lacking}{more}. \
                 The old version goes on; a replica that is gone for good is forgotten by `umbel replica {} --forget NAME`",
                ready.len(),
                version.number,
                shown(&filter.definition().name)
            )));
        }
        hold(lock).await?;
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until no replica answers: each one says so, or has no lease any more.
async fn revoked(node: &Node, filter: u64, watch: Watch, lock: &mut Locked) -> Result<(), Trouble> {
    loop {
        if node.sync.steward.watch(node)? != watch {
            return Err(Trouble::Conflict(
                "the nodes of the cluster changed: the old version goes on".into(),
            ));
        }
        let now = node.now();
        // Leases of the process or the node before this one are not known.
        let unknown = now.saturating_duration_since(watch.since) < LEASE;
        if !unknown && !node.sync.replicas.has_lease(filter, now) {
            return Ok(());
        }
        hold(lock).await?;
        sleep(LOOK_EVERY).await;
    }
}

fn is_in(member: &Member, group: &BTreeMap<String, String>) -> bool {
    group.iter().all(|(name, value)| member.labels.get(name) == Some(value))
}
