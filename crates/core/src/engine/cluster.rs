//! An engine that is one of several on the same log: each folds some partitions, and asks the others for the rest.
//!
//! ```text
//!             +-- first host: appends, folds, answers at once
//!  partition -+
//!             '-- other hosts: fold the same log, and are asked when the first is gone
//! ```
//!
//! The log decides everything; who is first decides nothing but who may answer without asking the log. Two rules make that exact:
//!
//! - **An add is acknowledged only when the first host has folded it**, whoever appended it, and not while it is open who that is (rule A1 of
//!   docs/cluster-protocol.md).
//! - **"Absent" comes from the first host, or from one that has just read the log to its end** (rules B1 and B2).
//!
//! What filters there are and what they are called is in one partition that every node hosts, the catalog. Two more rules make names exact,
//! and lookups of names cheap:
//!
//! - **A change of the catalog is acknowledged only when every node of the settled view has folded it** (rule A2).
//! - **A node uses its catalog without a read barrier only while its lease is valid, its view is settled, and it has read the catalog to its
//!   end once in its present term** (rule B3). A node that joins or comes back begins a term, so its barrier begins after what was
//!   acknowledged without it.
//!
//! Who is first is agreed upon by all nodes before one acts on it ([`crate::cluster`]).

use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{Either, poll_immediate, select, try_join, try_join_all};
use tokio::sync::watch;
use umbel_filter::Fingerprint;

use super::feed::PartChanges;
use super::gather::{BlocksFrom, PartOf, Shape};
use super::handle::{Answer, Handle};
use super::lane::not_all_moved;
use super::look::{Consistency, Told};
use super::part::Applied;
use super::question::Question;
use super::requests::Token;
use super::versions::Publication;
use super::{Engine, Shared};
use crate::cluster::Partitions;
use crate::definition::{CATALOG, home_of};
use crate::entry::{Entry, Operation, Request, SPREAD};
use crate::fold::Counts;
use crate::version::VersionShard;
use crate::{Error, Position, Result};

/// Tenths of a second for which a request goes on waiting after its node's lease is over.
pub const OVERDUE_TICKS: u64 = 5;
/// What such a request is told then.
pub const NO_LEASE: &str = "this node has no lease: it does not reach the registry";

/// What a node is for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// All nodes know that it is the first host: it answers at once, when it has read the log to its end once in this term. A term is
    /// a number that is another one whenever this node may not have been the first host for a moment: after each change of what the
    /// nodes agree on, and after each time that its lease had ended.
    First {
        /// The term.
        term: u64,
    },
    /// It does not answer before it has asked another node, or the log.
    Other,
}

/// The other nodes of a cluster.
#[async_trait]
pub trait Cluster: Debug + Send + Sync + 'static {
    /// What this node is for a partition at this moment. Every request asks, some twice.
    fn role(&self, partition: u32) -> Role;

    /// The term in which this node is the first host of all of these partitions at this moment; none if it is not of one of them. Lookups
    /// ask once for all of their keys, so it is worth more than to ask for the role of each.
    fn term_as_first(&self, partitions: &Partitions) -> Option<u64> {
        let mut terms = partitions.iter().map(|partition| match self.role(partition) {
            Role::First { term } => Some(term),
            Role::Other => None,
        });
        let first = terms.next()??;
        terms.all(|term| term == Some(first)).then_some(first)
    }

    /// Those of these partitions of which this node is the first host at this moment. Requests with many keys ask once for all.
    fn first_of(&self, partitions: &Partitions) -> Partitions {
        partitions.iter().filter(|partition| matches!(self.role(*partition), Role::First { .. })).collect()
    }

    /// A count that grows by one every tenth of a second while this node's lease is over, if there are leases. What waits for an engine that
    /// does not answer gives up by it.
    fn overdue(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Whether this node's lease is valid at this moment.
    fn has_lease(&self) -> bool;

    /// The number of the filter that has a name, as a node finds it that may use its catalog, and a position up to which every node that may
    /// use its catalog has folded it. For a node without a lease, which may be cut off from the log as well.
    async fn find(&self, catalog: u32, name: &str) -> Result<Option<(u64, Position)>>;

    /// The term in which no change of the catalog is acknowledged before this node has folded it; none if it is not known that this holds
    /// at this moment. Every lookup of a name asks.
    fn term_as_confirmer(&self, catalog: u32) -> Option<u64>;

    /// Waits until this node, and every other one that may use its catalog without a read barrier, has folded it up to a position. At one
    /// moment after the call began, all nodes act on one view, and the nodes of that view are asked.
    async fn confirm(&self, catalog: u32, position: Position) -> Result<()>;

    /// Lets the first hosts of partitions append and fold entries; gives what came of each, in the same order. Entries that may be appended
    /// twice without harm (`repeatable`) are sent again where it is not known what became of them.
    async fn submit(&self, entries: Vec<(u32, Bytes)>, repeatable: bool) -> Result<Vec<Applied>>;

    /// Asks the first hosts for keys of a filter.
    async fn contains(&self, question: Question<'_>) -> Result<Vec<Answer>>;

    /// The same as current as somebody wants to have it, with what the answers were given from. Any host of a key's partition may answer
    /// where the first need not.
    async fn look(&self, question: Question<'_>, consistency: Consistency) -> Result<Told>;

    /// How often each key is in a filter that keeps its keys.
    async fn verify(&self, question: Question<'_>) -> Result<Vec<u64>>;

    /// Makes sure that whoever may answer alone for a partition has folded it up to a position. While all nodes act on the same table, that
    /// is the first host. While they do not, one that has not heard of the newest may still answer: then it is every node that hosts the
    /// partition, of those whose lease had not ended, or the call waits until all act on the same. A node whose own lease has ended knows
    /// of nobody, and the call fails.
    async fn reach(&self, partition: u32, position: Position) -> Result<()>;

    /// What the first hosts of partitions hold of a filter, one by one.
    async fn counts(&self, filter: u64, partitions: &[u32]) -> Result<Vec<Counts>>;

    /// The keys of a part of a filter that keeps its keys, with how often each is there: those behind a key, in order, at most
    /// [`KEYS_PAGE_MAX`](crate::limits::KEYS_PAGE_MAX). Fewer are the last ones.
    async fn keys(&self, part: PartOf, after: Option<Fingerprint>) -> Result<Vec<(Fingerprint, u32)>>;

    /// What arrays parts of filters have, in the same order; with their digests, or 0 in place of these.
    async fn shapes(&self, parts: &[PartOf], digested: bool) -> Result<Vec<Shape>>;

    /// Whole blocks of an array of a part, from a place on, as many as fit into so many bytes. An error if the filter has another
    /// generation than it is asked for.
    async fn blocks(&self, part: PartOf, from: BlocksFrom, bytes_max: usize) -> Result<Bytes>;

    /// Lets the first hosts of parts of a filter make these parts of a version; gives them in the same order.
    async fn publish(&self, parts: &[PartOf], publication: &Publication) -> Result<Vec<VersionShard>>;

    /// What changed a filter after places in partitions, all that was acknowledged or the first part of it, in the same order.
    async fn changes(&self, filter: u64, after: &[(u32, Position)]) -> Result<Vec<PartChanges>>;
}

/// What other nodes ask of this one.
impl Engine {
    /// Appends and folds entries of partitions that are hosted here.
    pub async fn submit_for_peer(&self, entries: Vec<(u32, Bytes)>) -> Result<Vec<Applied>> {
        let decoded = entries.into_iter().map(|(partition, bytes)| {
            self.shared.hosting(partition)?;
            Ok((partition, Entry::decode(&bytes)?))
        });
        self.shared.submit_as_host(decoded.collect::<Result<_>>()?).await
    }

    /// Asks for keys of a filter whose slots are hosted here.
    pub async fn contains_for_peer(
        &self,
        filter: u64,
        keys: &[Fingerprint],
        after: &Token,
    ) -> Result<Vec<Answer>> {
        self.shared.contains_here(filter, keys, after).await
    }

    /// How often each key is in a filter whose slots are hosted here.
    pub async fn verify_for_peer(&self, filter: u64, keys: &[Fingerprint]) -> Result<Vec<u64>> {
        let handle = self.shared.proven(filter, keys, &Token::default()).await?;
        self.shared.verify(&handle, keys).await
    }

    /// The number of the filter that has a name, and a position up to which that was confirmed.
    pub async fn find_for_peer(&self, name: &str) -> Result<Option<(u64, Position)>> {
        self.shared.prove_names().await?;
        let Some(handle) = self.filter(name) else { return Ok(None) };
        let named_at = handle.named_at();
        self.shared.confirm_name(&handle).await?;
        Ok(Some((handle.id(), named_at.max(self.shared.confirmed()))))
    }

    /// Folds a partition that is hosted here up to a position.
    pub async fn reach_for_peer(&self, partition: u32, position: Position) -> Result<()> {
        self.shared.reach_here(partition, position).await
    }
}

/// What a door asks.
impl Engine {
    /// Asks for keys, if they can be answered here and now: all that is needed is in memory, and this node may answer for it. If not,
    /// it is false, and [`contains`](Self::contains) does it.
    #[inline]
    pub fn contains_at_once(&self, filter: &Handle, keys: &[Fingerprint], answers: &mut Vec<Answer>) -> bool {
        if self.shared.cluster.is_some() && !self.shared.is_current_for(filter, keys) {
            return false;
        }
        filter.contains_batch(keys, answers);
        !answers.contains(&Answer::Unknown)
    }

    /// Whether [`filter`](Self::filter) and [`filters`](Self::filters) know all that was acknowledged before this call.
    #[inline]
    pub fn has_all_names(&self) -> bool {
        self.shared.has_all_names()
    }

    /// The filter of that name, as of all that was acknowledged before this call.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Handle>>> {
        match &self.shared.cluster {
            Some(cluster) if !cluster.has_lease() => self.find_without_lease(&**cluster, name).await,
            _ => {
                self.shared.prove_names().await?;
                Ok(self.filter(name))
            }
        }
    }

    /// Reads the catalog to its end, or asks another node for the name, whatever is faster: this node may not reach the log.
    async fn find_without_lease(&self, cluster: &dyn Cluster, name: &str) -> Result<Option<Arc<Handle>>> {
        let catalog = self.shared.catalog();
        let here = self.shared.read_to_end(catalog);
        match select(pin!(here), cluster.find(catalog, name)).await {
            Either::Left((Ok(()), _)) => Ok(self.filter(name)),
            Either::Left((Err(_), there)) => self.shared.found(name, there.await?),
            Either::Right((Ok(found), _)) => self.shared.found(name, found),
            Either::Right((Err(_), here)) => here.await.map(|()| self.filter(name)),
        }
    }

    /// The filter of that name, as of all that was in the log before this call: for a name whose filter was gone when it was used, and for
    /// one that is refused because another node is about to take it.
    pub async fn find_again(&self, name: &str) -> Result<Option<Arc<Handle>>> {
        if self.shared.cluster.is_some() {
            self.shared.read_to_end(self.shared.catalog()).await?;
        }
        Ok(self.filter(name))
    }

    /// All filters that users made, by name, as of all that was acknowledged before this call.
    pub async fn find_all(&self) -> Result<Vec<Arc<Handle>>> {
        self.shared.prove_names().await?;
        Ok(self.filters())
    }

    /// The term in which this node does what one node does for all, the first host of the catalog; none if another one does. An engine by
    /// itself does it always.
    pub fn term_as_steward(&self) -> Option<u64> {
        match self.shared.cluster.as_ref().map(|cluster| cluster.role(self.shared.catalog())) {
            None => Some(0),
            Some(Role::First { term }) => Some(term),
            Some(Role::Other) => None,
        }
    }

    /// Whether there are other nodes.
    pub fn is_clustered(&self) -> bool {
        self.shared.cluster.is_some()
    }
}

/// Roles.
impl Shared {
    pub(super) fn catalog(&self) -> u32 {
        u32::from(home_of(CATALOG, self.settings.slots)) % self.lanes.len() as u32
    }

    /// Whether this node makes the checkpoints of a partition and sees to what is to be done in its slots.
    pub(super) fn is_first(&self, partition: u32) -> bool {
        let is_first = |cluster: &Arc<dyn Cluster>| matches!(cluster.role(partition), Role::First { .. });
        self.cluster.as_ref().is_none_or(is_first)
    }

    /// Whether this node decides what becomes of filters: when they grow, and when their time is over.
    pub(super) fn is_steward(&self) -> bool {
        self.is_first(self.catalog())
    }

    /// Whether what is folded here is all that was acknowledged of these keys (rule B1).
    fn is_current_for(&self, filter: &Handle, keys: &[Fingerprint]) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        if filter.is_window() {
            return false;
        }
        let placement = self.placement(filter);
        let (Some(first), rest) = (keys.first(), keys.get(1..).unwrap_or_default()) else { return false };
        // Mostly it tells already.
        let partition = placement.partition(*first);
        let Role::First { term } = cluster.role(partition) else { return false };
        if rest.is_empty() || filter.is_whole() {
            return self.is_of_term(partition, term);
        }
        let partitions = placement.partitions(keys);
        cluster.term_as_first(&partitions) == Some(term) && self.are_of_term(&partitions, term)
    }

    /// Whether a partition was read to its end in this term (rule R2).
    fn is_of_term(&self, partition: u32, term: u64) -> bool {
        self.hosting(partition).is_ok_and(|lane| lane.term.load(Ordering::Acquire) == term)
    }

    fn are_of_term(&self, partitions: &Partitions, term: u64) -> bool {
        partitions.iter().all(|partition| self.is_of_term(partition, term))
    }

    /// Makes sure that what is folded of a partition that is hosted here is all that was acknowledged (rules R2 and B2).
    pub(super) async fn prove(&self, partition: u32) -> Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let (lane, role) = (self.hosting(partition)?, cluster.role(partition));
        match role {
            Role::First { term } if lane.term.load(Ordering::Acquire) == term => return Ok(()),
            _ => self.read_to_end(partition).await?,
        }
        if let Role::First { term } = role {
            lane.term.store(term, Ordering::Release);
            // Whoever was first before may have left something half done.
            self.work.is_unfinished();
        }
        Ok(())
    }

    /// Reads a partition that is hosted here to its end. If it is the catalog, names are known from then on, for this term (rule B3).
    pub(super) async fn read_to_end(&self, partition: u32) -> Result<()> {
        let lane = self.hosting(partition)?;
        // Before the barrier begins: what is acknowledged without this node is acknowledged before its term begins.
        let term = self
            .cluster
            .as_ref()
            .filter(|_| partition == self.catalog())
            .and_then(|cluster| cluster.term_as_confirmer(partition));
        self.unless_overdue(lane.barrier(self)).await?;
        if let Some(term) = term {
            lane.names_term.store(term, Ordering::Release);
        }
        Ok(())
    }

    /// Whether all changes of the catalog that were acknowledged before this call are folded here (rule B3).
    #[inline]
    pub(super) fn has_all_names(&self) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        let catalog = self.catalog();
        let term = cluster.term_as_confirmer(catalog);
        term.is_some_and(|term| self.lanes[catalog as usize].names_term.load(Ordering::Acquire) == term)
    }

    /// Makes sure that all changes of the catalog that were acknowledged before this call are folded here. It waits for the log only if that
    /// is not known already.
    pub(super) async fn prove_names(&self) -> Result<()> {
        if self.has_all_names() { Ok(()) } else { self.read_to_end(self.catalog()).await }
    }

    /// The filter that another node found by a name, as it is here.
    fn found(&self, name: &str, found: Option<(u64, Position)>) -> Result<Option<Arc<Handle>>> {
        let Some((id, confirmed)) = found else { return Ok(None) };
        // One that has another name here was renamed by an entry that this node has not read.
        let is_known = |handle: &Arc<Handle>| self.directory.exists(id) && handle.definition().name == name;
        let handle = self.directory.numbered(id).filter(is_known);
        let handle = handle.ok_or_else(|| {
            Error::Retry(format!("this node has not read of the filter {name} yet; ask another node"))
        })?;
        handle.confirmed_up_to(confirmed);
        Ok(Some(handle))
    }

    /// Up to where every node that may use its catalog has folded it, as far as this one has asked.
    fn confirmed(&self) -> Position {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every node has folded a change of the catalog, so that it may be acknowledged (rule A2).
    async fn confirm(&self, cluster: &dyn Cluster, position: Position) -> Result<()> {
        cluster.confirm(self.catalog(), position).await?;
        let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        *confirmed = position.max(*confirmed);
        Ok(())
    }

    /// Waits until every node knows a filter by the name that it has here, before anything is acknowledged that was done by that name. The
    /// name may come from a change that this node has folded and another one has not, and that is not acknowledged yet.
    pub(super) async fn confirm_name(&self, filter: &Handle) -> Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let Some(position) = filter.unconfirmed_at() else { return Ok(()) };
        if self.confirmed() < position {
            // With all that is folded here, other filters need not ask again.
            let position = position.max(self.applied(self.catalog()));
            self.confirm(&**cluster, position).await.map_err(|error| match error {
                Error::Retry(why) | Error::Moved(why) => Error::Retry(format!(
                    "not every node knows the filter {} yet: {why}",
                    filter.definition().name
                )),
                error => error,
            })?;
        }
        filter.confirmed_up_to(position);
        Ok(())
    }

    /// Whether an entry changes what filters there are, what they are called, or how they are described. What is for all slots of a
    /// partition repeats what the home of the filter, which is in the catalog, was told before.
    fn is_catalog_change(&self, partition: u32, entry: &Entry) -> bool {
        let is_change = matches!(
            entry.operation,
            Operation::Define(_) | Operation::Describe(_) | Operation::Redescribe { .. } | Operation::Drop
        );
        is_change && partition == self.catalog() && entry.slot != SPREAD
    }

    /// Makes sure that all filters which were made are known here, whether that was acknowledged or not.
    pub(super) async fn prove_catalog(&self) -> Result<()> {
        if self.cluster.is_some() { self.prove(self.catalog()).await } else { Ok(()) }
    }

    /// Waits for the log, but not much longer than this node has a lease: without one it may be cut off from the log as well. What was sent
    /// to the log may be there all the same.
    async fn unless_overdue<T>(&self, waiting: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(cluster) = &self.cluster else { return waiting.await };
        let mut waiting = pin!(waiting);
        if let Some(done) = poll_immediate(&mut waiting).await {
            return done;
        }
        let Some(mut overdue) = cluster.overdue() else { return waiting.await };
        let end = *overdue.borrow() + OVERDUE_TICKS;
        let is_overdue = async { overdue.wait_for(|count| *count >= end).await.map(drop) };
        match select(waiting, pin!(is_overdue)).await {
            Either::Left((done, _)) => done,
            Either::Right((Ok(()), _)) => {
                Err(Error::Retry(format!("{NO_LEASE}; it may have been done, or not")))
            }
            // Leases are not counted any more: the node ends.
            Either::Right((Err(_), waiting)) => waiting.await,
        }
    }

    /// The filter that a peer asks for, when all that was acknowledged of these keys is folded.
    async fn proven(&self, filter: u64, keys: &[Fingerprint], after: &Token) -> Result<Arc<Handle>> {
        let handle = self.prove_filter(filter).await?;
        let partitions = self.placement(&handle).partitions(keys);
        if self.are_proven(&partitions, after) {
            return Ok(handle);
        }
        try_join_all(partitions.iter().map(|partition| async move {
            self.prove(partition).await?;
            self.reach_here(partition, after.position(partition)).await
        }))
        .await?;
        // It may be gone by now.
        self.prove_filter(filter).await
    }

    /// Whether that is known without asking anybody: then it costs a look at each lane.
    fn are_proven(&self, partitions: &Partitions, after: &Token) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let is_folded = |(partition, position): (u32, Position)| {
            self.lane_of(partition).is_ok_and(|lane| lane.applied() >= position)
        };
        let term = cluster.term_as_first(partitions);
        term.is_some_and(|term| self.are_of_term(partitions, term)) && after.positions().all(is_folded)
    }

    pub(super) async fn reach_here(&self, partition: u32, position: Position) -> Result<()> {
        let lane = self.hosting(partition)?;
        if lane.applied() < position {
            self.unless_overdue(lane.barrier(self)).await?;
        }
        if lane.applied() >= position {
            return Ok(());
        }
        Err(Error::Retry(format!(
            "partition {partition} is not at {position} yet, but at {}",
            lane.applied()
        )))
    }

    /// What of a filter's memory this node has to have.
    pub(super) fn share_of(&self, bytes: u64, shards: u32) -> u64 {
        if self.cluster.is_none() || shards == 1 {
            return bytes;
        }
        let hosted = (0..self.settings.slots as u16).filter(|slot| self.directory.is_hosted(*slot)).count();
        let share = u128::from(bytes) * hosted as u128 / u128::from(self.settings.slots);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// What is done by several nodes.
impl Shared {
    /// Appends and folds entries of partitions that are hosted here. They are acknowledged when the first host has folded them.
    async fn submit_as_host(&self, entries: Vec<(u32, Entry)>) -> Result<Vec<Applied>> {
        let partitions: Vec<u32> = entries.iter().map(|(partition, _)| *partition).collect();
        let applied = self.unless_overdue(self.submit_to_lanes(entries)).await?;
        let Some(cluster) = &self.cluster else { return Ok(applied) };
        let mut told = Token::default();
        for (partition, applied) in partitions.into_iter().zip(&applied) {
            // Not before: a node that slept while it appended may not be the first any more (rule A1).
            if !matches!(cluster.role(partition), Role::First { .. }) {
                told.see(partition, applied.position);
            }
        }
        let told = told.positions().map(|(partition, position)| cluster.reach(partition, position));
        try_join_all(told).await.map_err(not_all_moved)?;
        Ok(applied)
    }

    pub(super) async fn submit_to_nodes(
        &self,
        cluster: &dyn Cluster,
        entries: Vec<(u32, Entry)>,
    ) -> Result<Vec<Applied>> {
        let count = entries.len();
        let is_change =
            |(_, (partition, entry)): &(usize, &(u32, Entry))| self.is_catalog_change(*partition, entry);
        let changes: Vec<usize> =
            entries.iter().enumerate().filter(is_change).map(|(place, _)| place).collect();
        let (mut here, mut there) = (Vec::new(), Vec::new());
        let (mut repeatable, mut named) = (true, None);
        let catalog = self.catalog();
        for (place, (partition, entry)) in entries.into_iter().enumerate() {
            if matches!(cluster.role(partition), Role::First { .. }) {
                here.push((place, (partition, entry)));
            } else {
                if partition == catalog && entry.operation.keys().is_empty() {
                    named = Some(there.len());
                }
                let entry = self.with_one_effect(entry);
                repeatable &= self.is_repeatable(&entry);
                there.push((place, (partition, entry.encode()?)));
            }
        }
        let (here_at, here): (Vec<usize>, Vec<_>) = here.into_iter().unzip();
        let (there_at, there): (Vec<usize>, Vec<_>) = there.into_iter().unzip();
        // A change is confirmed by all nodes, this one among them.
        let named = named.filter(|_| changes.is_empty());
        let sent = async {
            if there.is_empty() {
                return Ok(Vec::new());
            }
            let applied = cluster.submit(there, repeatable).await?;
            if let Some(applied) = named.and_then(|place| applied.get(place)) {
                self.reach_here(catalog, applied.position).await?;
            }
            Ok(applied)
        };
        let (done, sent) = try_join(self.submit_as_host(here), sent).await?;
        if done.len() + sent.len() != count {
            return Err(Error::Retry(
                "another node answered for more or fewer entries than it was sent".into(),
            ));
        }
        let mut all = vec![Applied::default(); count];
        let places = here_at.into_iter().chain(there_at);
        places.zip(done.into_iter().chain(sent)).for_each(|(place, applied)| all[place] = applied);
        // What was refused changed nothing. Here, it has to be known why, so that it can be tried again from what is there.
        let (refused, changed): (Vec<_>, Vec<_>) =
            changes.into_iter().map(|place| &all[place]).partition(|applied| applied.refused.is_some());
        if let Some(position) = refused.into_iter().map(|applied| applied.position).max() {
            self.reach_here(catalog, position).await?;
        }
        if let Some(position) = changed.into_iter().map(|applied| applied.position).max() {
            self.confirm(cluster, position).await.map_err(|error| {
                Error::Retry(format!("what filters there are may have been changed, or not: {error}"))
            })?;
        }
        Ok(all)
    }

    /// Gives an entry that is sent to another node a session of its own where its second coming would do harm. A node that sleeps may
    /// append it long after another one did and it was acknowledged: what was cleared once must not be cleared again, with what came
    /// since, nor may an old name come back, or a filter that was dropped.
    fn with_one_effect(&self, entry: Entry) -> Entry {
        let is_late_harm = matches!(
            entry.operation,
            Operation::Clear
                | Operation::Define(_)
                | Operation::Describe(_)
                | Operation::Redescribe { .. }
                | Operation::Adopt { .. }
        );
        if entry.request.session != 0 || !is_late_harm {
            return entry;
        }
        // 0 is nobody's session.
        Entry { request: Request { session: self.random.next().max(1), sequence: 1 }, ..entry }
    }

    /// Whether an entry that is appended twice, and the second time late, does what it does once.
    fn is_repeatable(&self, entry: &Entry) -> bool {
        let counts = || self.directory.numbered(entry.filter).is_none_or(|handle| handle.is_erasable());
        match entry.operation {
            _ if entry.request.session != 0 => true,
            Operation::Add(_) => !counts(),
            Operation::Load { items, .. } => items == 0 && !counts(),
            Operation::Drop | Operation::Switch | Operation::Barrier => true,
            _ => false,
        }
    }

    /// Looks keys up whose partitions are hosted here, when all that was acknowledged in these is folded.
    async fn contains_here(&self, filter: u64, keys: &[Fingerprint], after: &Token) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        if !keys.is_empty() {
            let handle = self.proven(filter, keys, after).await?;
            self.load(&handle).await?;
            handle.contains_batch(keys, &mut answers);
        }
        Ok(answers)
    }

    pub(super) async fn contains_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        after: &Token,
    ) -> Result<Vec<Answer>> {
        let divided = self.divide(filter, keys, |partitions| cluster.first_of(partitions));
        let ask_there = async {
            match &divided.there[..] {
                [] => Ok(Vec::new()),
                keys => cluster.contains(self.question(filter, keys, after)).await,
            }
        };
        let ask_here = self.contains_here(filter.id(), &divided.here, after);
        // Others look while this one does.
        let (told_there, told_here) = try_join(ask_there, ask_here).await?;
        divided.together(told_here, told_there)
    }

    pub(super) async fn verify_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
    ) -> Result<Vec<u64>> {
        let divided = self.divide(filter, keys, |partitions| cluster.first_of(partitions));
        let none = Token::default();
        let (mut counts_here, mut counts_there) = (Vec::new(), Vec::new());
        if !divided.here.is_empty() {
            self.proven(filter.id(), &divided.here, &none).await?;
            counts_here = self.verify(filter, &divided.here).await?;
        }
        if !divided.there.is_empty() {
            counts_there = cluster.verify(self.question(filter, &divided.there, &none)).await?;
        }
        divided.together(counts_here, counts_there)
    }
}
