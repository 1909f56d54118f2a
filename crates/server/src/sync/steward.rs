//! Who looks after replicas, rollouts and schedules: of several nodes the first host of the catalog, otherwise the server itself.
//!
//! ```text
//!  a: watch 5f3a… ------- sleeps - - - - - - - - - - - - - wakes up: its pins lack the number, its steps come from a value that changed
//!  b:                       watch 91c0…: sets its number --> hears of all replicas --> goes on
//! ```
//!
//! A watch is one node's time of doing so, and has a number that no other has. Whoever begins one sets the number beside the versions of
//! a filter before it does anything about them, and writes it into a rollout before it takes a step. So whoever did so before pins nothing
//! and moves nothing any more, whenever it wakes up.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use umbel_core::{Error, Result};

use crate::node::Node;

/// One node's time of looking after replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    number: u64,
    /// Since when this node looks after replicas. It knows nothing of what the one before it told them.
    pub(super) since: Instant,
}

impl Watch {
    /// How it is called in the registry.
    pub(super) fn name(self) -> String {
        format!("{:016x}", self.number)
    }

    /// When all replicas that are there have been heard of. Before that it is not known which those are.
    pub(super) fn knows_all_at(self, node: &Node) -> Instant {
        self.since + node.config.load().replica_gone_after
    }
}

/// This node's watch, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Steward(Mutex<Duty>);

#[derive(Debug, Default)]
struct Duty {
    watch: Option<Watch>,
    /// When somebody last asked for it, as something does every second.
    asked: Option<Instant>,
    /// Filters whose versions nobody pins who had the watch before.
    guarded: HashSet<u64>,
}

impl Steward {
    fn lock(&self) -> MutexGuard<'_, Duty> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch of this node at this moment.
    pub(crate) fn watch(&self, node: &Node) -> Result<Watch> {
        let elsewhere = || Error::Retry("another node of the cluster looks after replicas now".into());
        let term = node.engine.term_as_steward().ok_or_else(elsewhere)?;
        let own = node.run_id.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let number = own.unwrap_or_default().wrapping_add(term);
        let mut duty = self.lock();
        let now = node.now();
        let asked = duty.asked.replace(now);
        match &mut duty.watch {
            Some(watch) if watch.number == number => {
                // To a process that slept, replicas seem to be gone that spoke to nobody.
                let slept = asked.is_some_and(|asked| {
                    now.saturating_duration_since(asked) > node.config.load().replica_gone_after / 2
                });
                if slept {
                    watch.since = now;
                }
                Ok(*watch)
            }
            _ => {
                let since = if node.engine.is_clustered() { now } else { node.started };
                duty.guarded.clear();
                Ok(*duty.watch.insert(Watch { number, since }))
            }
        }
    }

    /// Forgets filters that are gone.
    pub(super) fn forget_gone(&self, node: &Node) {
        self.lock().guarded.retain(|filter| node.engine.filter_numbered(*filter).is_some());
    }

    /// Makes sure that nobody pins versions of a filter who had the watch before. Gives the number by which this node does; a server by
    /// itself needs none.
    pub(super) async fn guard(&self, node: &Node, filter: u64, watch: Watch) -> Result<Option<u64>> {
        if !node.engine.is_clustered() {
            return Ok(None);
        }
        if !self.lock().guarded.contains(&filter) {
            node.engine.guard_versions(filter, watch.number).await?;
            let mut duty = self.lock();
            if duty.watch == Some(watch) {
                duty.guarded.insert(filter);
            }
        }
        Ok(Some(watch.number))
    }
}
