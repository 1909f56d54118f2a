//! Lookups with a choice how current their answers have to be, and with what these were given from.
//!
//! ```text
//!  any       whichever host is nearest, as of what it has read of the log    costs no more than a lookup in memory
//!  current   the first host, or another one after a barrier                  relies on leases: what was acknowledged is there
//!  strong    any host, after a barrier                                       relies on the log alone
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{try_join, try_join_all};
use umbel_filter::Fingerprint;

use super::cluster::{Cluster, Role};
use super::handle::{Answer, Handle};
use super::lane::Lane;
use super::requests::{Token, named};
use super::window::join;
use super::{Engine, Shared};
use crate::{Error, Result};

/// How current answers have to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// As current as whoever is asked: "absent" is true for the position that is told, and the age says how old that is.
    Any,
    /// All that was acknowledged before.
    #[default]
    Current,
    /// All that was in the log before, whatever leases and clocks say.
    Strong,
}

/// Answers, and what they were given from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// For each key, in order.
    pub answers: Vec<Answer>,
    /// What of the log they include: of each partition that was asked, the position.
    pub position: Token,
    /// How long ago that was all that the log had, at most.
    pub age: Duration,
}

impl Told {
    /// Notes what another part of the answers was given from.
    fn see(&mut self, position: &Token, age: Duration) {
        position.positions().for_each(|(partition, position)| self.position.see(partition, position));
        self.age = self.age.max(age);
    }
}

impl Engine {
    /// Asks for keys, as current as somebody wants to have it, and not before the token's positions are folded.
    pub async fn look(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        after: Option<&Token>,
        consistency: Consistency,
    ) -> Result<Told> {
        let none = Token::default();
        let Some(cluster) = &self.shared.cluster else {
            if consistency == Consistency::Strong && !self.shared.log.is_exclusive() {
                try_join_all(self.shared.lanes.iter().map(|lane| lane.barrier(&self.shared))).await?;
            }
            let position = self.token();
            let answers = self.contains(filter, keys, after).await?;
            return Ok(Told { answers, position, age: Duration::ZERO });
        };
        let after = after.unwrap_or(&none);
        let told = match filter.is_window() {
            true => self.shared.look_at_window(&**cluster, filter, keys, after, consistency).await,
            false => self.shared.look_in_nodes(&**cluster, filter, keys, after, consistency).await,
        };
        told.map_err(|error| named(filter, error))
    }

    /// Asks for keys of a filter whose slots are hosted here, for another node.
    pub async fn look_for_peer(
        &self,
        filter: u64,
        keys: &[Fingerprint],
        after: &Token,
        consistency: Consistency,
    ) -> Result<Told> {
        self.shared.look_here(filter, keys, after, consistency).await
    }
}

impl Shared {
    async fn look_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Handle,
        keys: &[Fingerprint],
        after: &Token,
        consistency: Consistency,
    ) -> Result<Told> {
        let divided = self.divide(filter, keys, |partitions| match consistency {
            Consistency::Current => cluster.first_of(partitions),
            Consistency::Any | Consistency::Strong => {
                partitions.iter().filter(|partition| self.hosting(*partition).is_ok()).collect()
            }
        });
        let ask = |keys| cluster.look(self.question(filter, keys, after), consistency);
        let ask_here = async {
            match self.look_here(filter.id(), &divided.here, after, consistency).await {
                // It was let go of meanwhile: whoever has it now is asked.
                Err(Error::Moved(_)) => ask(&divided.here).await,
                told => told,
            }
        };
        let ask_there = async {
            match &divided.there[..] {
                [] => Ok(Told::default()),
                keys => ask(keys).await,
            }
        };
        let (told_here, told_there) = try_join(ask_here, ask_there).await?;
        let mut all = Told::default();
        all.see(&told_here.position, told_here.age);
        all.see(&told_there.position, told_there.age);
        all.answers = divided.together(told_here.answers, told_there.answers)?;
        Ok(all)
    }

    /// Looks keys up whose partitions are hosted here.
    async fn look_here(
        &self,
        filter: u64,
        keys: &[Fingerprint],
        after: &Token,
        consistency: Consistency,
    ) -> Result<Told> {
        if keys.is_empty() {
            return Ok(Told::default());
        }
        let handle = self.prove_filter(filter).await?;
        let partitions = self.placement(&handle).partitions(keys);
        let settled = partitions.iter().map(|partition| self.settle(partition, after, consistency));
        let lanes = try_join_all(settled).await?;
        // It may be gone by now.
        let handle = self.prove_filter(filter).await?;
        self.load(&handle).await?;
        let mut told = Told::default();
        for lane in lanes {
            // Before the answers, so that they include it.
            told.position.see(lane.partition, lane.applied());
            told.age = told.age.max(self.age_of(lane));
        }
        handle.contains_batch(keys, &mut told.answers);
        Ok(told)
    }

    /// Asks all buckets of a window that the catalog has, as current as it has to be.
    async fn look_at_window(
        &self,
        cluster: &dyn Cluster,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        after: &Token,
        consistency: Consistency,
    ) -> Result<Told> {
        let catalog = self.settle(self.catalog(), after, consistency).await?;
        let mut all = Told { answers: vec![Answer::Absent; keys.len()], ..Told::default() };
        all.position.see(catalog.partition, catalog.applied());
        all.age = self.age_of(catalog);
        let buckets = self.known_buckets(filter);
        if !self.directory.exists(filter.id()) {
            all.answers.fill(Answer::Unknown);
            return Ok(all);
        }
        let asked = buckets.iter().map(|bucket| async move {
            let told = self.look_in_nodes(cluster, bucket, keys, after, consistency).await;
            // One that was dropped meanwhile is over, and holds nothing.
            if self.directory.exists(bucket.id()) { told } else { Ok(Told::default()) }
        });
        for told in try_join_all(asked).await? {
            join(&mut all.answers, &told.answers);
            all.see(&told.position, told.age);
        }
        Ok(all)
    }

    /// The lane of a partition that is hosted here, when as much is folded of it as is wanted.
    async fn settle(&self, partition: u32, after: &Token, consistency: Consistency) -> Result<&Lane> {
        let lane = self.hosting(partition)?;
        match consistency {
            Consistency::Any => {}
            Consistency::Current => self.prove(partition).await?,
            Consistency::Strong => lane.barrier(self).await?,
        }
        self.reach_here(partition, after.position(partition)).await?;
        Ok(lane)
    }

    /// How long ago a lane had everything that was in the log, at most.
    pub(super) fn age_of(&self, lane: &Lane) -> Duration {
        let role = self.cluster.as_ref().map(|cluster| cluster.role(lane.partition));
        match role {
            // Nothing is acknowledged without it.
            Some(Role::First { term }) if lane.term.load(Ordering::Acquire) == term => Duration::ZERO,
            _ => self.clock.now().saturating_sub(lane.read_at()),
        }
    }
}
