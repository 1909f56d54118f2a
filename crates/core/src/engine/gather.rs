//! Filters of which other nodes have parts: what is told of the whole is asked of the first hosts, part by part.
//!
//! Whoever answers has all that was acknowledged of the part, as for a lookup, and each part is asked for once. So nothing is counted
//! twice or left out while partitions change their hosts: a host that has just lost one says so, and the next one is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cluster::Cluster;
use super::handle::Handle;
use super::lane::Slot;
use super::{Engine, Shared};
use crate::fold::Counts;
use crate::{Error, Result};

/// What other nodes ask of this one.
impl Engine {
    /// What partitions that are hosted here hold of a filter, one by one.
    pub async fn counts_for_peer(&self, filter: u64, partitions: &[u32]) -> Result<Vec<Counts>> {
        self.shared.prove_filter(filter).await?;
        let mut all = Vec::with_capacity(partitions.len());
        for partition in partitions {
            self.shared.prove(*partition).await?;
            let lane = self.shared.hosting(*partition)?;
            // A partition that is let go of meanwhile has nothing to count, and that is not the same as nothing.
            let turn = lane.turn.lock().await;
            if turn.slots.is_empty() {
                return Err(lane.moved_away());
            }
            all.push(turn.slots.iter().map(|slot| slot.counts(filter)).fold(Counts::default(), Counts::and));
        }
        Ok(all)
    }
}

/// What a door asks.
impl Engine {
    /// How many keys a filter holds on all nodes.
    pub async fn counts(&self, filter: &Arc<Handle>) -> Result<Counts> {
        match &self.shared.cluster {
            None => Ok(Counts { items: filter.items(), held: filter.held(), removed: filter.removed() }),
            Some(cluster) => self.shared.counts_in_nodes(&**cluster, filter).await,
        }
    }
}

impl Shared {
    async fn counts_in_nodes(&self, cluster: &dyn Cluster, filter: &Handle) -> Result<Counts> {
        let partitions: BTreeSet<u32> = filter.slots().map(|slot| self.lane(slot).partition).collect();
        let partitions: Vec<u32> = partitions.into_iter().collect();
        let counted = cluster.counts(filter.id(), &partitions).await?;
        if counted.len() != partitions.len() {
            return Err(Error::Retry("other nodes counted more or fewer partitions than they were asked".into()));
        }
        Ok(counted.into_iter().fold(Counts::default(), Counts::and))
    }

    /// The filter of that number, also if another node made it a moment ago.
    pub(super) async fn prove_filter(&self, filter: u64) -> Result<Arc<Handle>> {
        if self.directory.numbered(filter).is_none() {
            self.prove_catalog().await?;
        }
        let gone = || Error::Invalid(format!("there is no filter {filter:x}"));
        self.directory.numbered(filter).ok_or_else(gone)
    }
}

impl Slot {
    /// What the slot holds of a filter.
    fn counts(&self, filter: u64) -> Counts {
        let Some(shard) = self.state.shard(filter) else { return Counts::default() };
        let on_disk = || self.stored.get(&filter).map(|stored| stored.counts).unwrap_or_default();
        shard.projection().map_or_else(on_disk, |projection| projection.counts())
    }
}
