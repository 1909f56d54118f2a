//! Copies of filters in other processes: who has which, and what they are told.
//!
//! ```text
//!  replica --> heartbeat: what it has ------> Replicas <-- rollouts and strong publishes look here
//!          <-- what it is to serve and stage     |
//!          <-- notices: look again now <------ Notices <-- versions that are published or pinned
//! ```
//!
//! All of this is soft: after a restart the next heartbeats bring it back. What must not be forgotten is in the registry: pins, rollouts,
//! and which strong replicas are registered. Of several nodes one has it, the steward; notices are for those who listen at any of them.

mod locked;
pub(crate) mod members;
mod notices;
mod publisher;
pub(crate) mod replicas;
pub(crate) mod rollout;
pub(crate) mod schedule;
mod steward;
pub(crate) mod strong;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::Notify;
use umbel_core::Error;
use umbel_core::engine::Handle;
use umbel_core::registry::{Expected, Versioned};

use crate::node::{Node, unix_time};
pub(crate) use notices::{Event, Holds, Notice, Notices};
use replicas::LEASE;
pub(crate) use replicas::{Beat, Known, Replicas};
use rollout::Rollout;

/// What the server knows of copies elsewhere.
#[derive(Debug, Default)]
pub struct Sync {
    pub(crate) notices: Notices,
    pub(crate) replicas: Replicas,
    pub(crate) members: members::Members,
    pub(crate) strong: strong::Strong,
    pub(crate) steward: steward::Steward,
    /// That a rollout has something to do at once.
    begun: Notify,
}

/// What a replica is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The version to answer from. A strong replica without one does not answer; others follow the newest version or the log.
    pub(crate) serve: Option<u64>,
    /// A version to have ready.
    pub(crate) stage: Option<u64>,
}

/// What a replica is told at a heartbeat.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) told: Told,
    /// How long a strong replica may answer, from when it asked.
    pub(crate) lease_ms: u64,
    /// Probe keys, if there are some to be tried.
    pub(crate) probes: Option<Rollout>,
    /// The rollout whose version was refused, if the last one was.
    pub(crate) refused: Option<Rollout>,
    /// Other replicas that give chunks.
    pub(crate) peers: Vec<String>,
}

/// Why something about copies is not done.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Somebody else was there first, or too few agree.
    Conflict(String),
    /// The engine or the registry cannot.
    Engine(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(why) => f.write_str(why),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

/// The time in milliseconds since 1970.
fn now_ms() -> u64 {
    unix_time().as_millis() as u64
}

/// Replicas of a filter that are there.
pub(crate) fn replicas_of(node: &Node, filter: u64) -> BTreeMap<String, Known> {
    node.sync.replicas.of(filter, node.now(), node.config.load().replica_gone_after)
}

/// Forgets what nobody needs any more.
pub(crate) fn sweep(node: &Node) {
    node.sync.replicas.sweep(node.now(), node.config.load().replica_gone_after);
    node.sync.steward.forget_gone(node);
}

/// Tells everybody who listens, here or at another node.
pub(crate) fn tell_all(node: &Node, notice: Notice) {
    if let Some(nodes) = &node.cluster {
        nodes.tell_others(&notice);
    }
    node.sync.notices.tell(notice);
}

/// The filter that something in the registry is about. If it is gone, so is this.
async fn filter_of(
    node: &Node,
    folder: &str,
    name: &str,
    found: &Versioned,
) -> umbel_core::Result<Option<Arc<Handle>>> {
    let id = u64::from_str_radix(name.trim_start_matches(folder), 16).unwrap_or(0);
    let filter = node.engine.filter_numbered(id);
    // Whoever is first in the catalog now knows all filters that were made before this was read.
    if filter.is_none() && node.sync.steward.watch(node).is_ok() {
        node.registry.delete(name, Expected::Version(found.version)).await?;
    }
    Ok(filter)
}

/// Replicas of a filter that pins and rollouts hold at a version: all but strong ones, which switch together.
pub(crate) fn followers_of(node: &Node, filter: u64) -> BTreeMap<String, Known> {
    let mut all = replicas_of(node, filter);
    all.retain(|_, known| !known.is_strong());
    all
}

/// Notes what a replica says, and tells it what to do.
pub(crate) async fn heard(node: &Node, filter: &Handle, id: &str, beat: Beat) -> Result<Orders, Trouble> {
    let (number, asked) = (filter.id(), node.now());
    let member = (beat.strategy == "strong").then(|| members::Member { labels: beat.labels.clone() });
    let gone_after = node.config.load().replica_gone_after;
    let heard = node.sync.replicas.heard(number, id, beat, asked, gone_after);
    let is_news = heard.map_err(|why| Trouble::Engine(Error::Invalid(why)))?;
    let peers = node.sync.replicas.peers(number, id);
    if let Some(member) = member {
        // Before its first lease: a majority is of all that may ever have answered.
        if is_news {
            node.sync.members.register(node, filter, id, member).await?;
        }
        let told = node.sync.strong.tell(node, number, id).await?;
        let lease_ms = if told.serve.is_some() { LEASE.as_millis() as u64 } else { 0 };
        return Ok(Orders { told, lease_ms, probes: None, refused: None, peers });
    }
    if is_news {
        // It was strong before, if its name is registered.
        node.sync.members.remove(node, filter, id).await?;
    }
    let rollout::Orders { serve, probes, refused } = rollout::tell(node, number, id).await?;
    node.sync.replicas.answered(number, id, serve);
    Ok(Orders { told: Told { serve, stage: None }, lease_ms: 0, probes, refused, peers })
}

/// Forgets a replica; false if it is not known. `run` is the number of its process, if it is the replica itself that leaves.
pub(crate) async fn forget(
    node: &Node,
    filter: &Handle,
    id: &str,
    run: Option<u64>,
) -> Result<bool, Trouble> {
    // No word of a process that has left counts any more, however late it comes.
    let last = run.map(|run| (run, u64::MAX));
    let was_heard = node.sync.replicas.forget(filter.id(), id, last);
    Ok(node.sync.members.remove(node, filter, id).await? || was_heard)
}
