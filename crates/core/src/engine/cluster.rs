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
//! - **An add is acknowledged only when the first host has folded it**, whoever appended it, and not while it is open who that is.
//! - **"Absent" comes from the first host, or from one that has just read the log to its end.**
//!
//! Who is first is agreed upon by all nodes before one acts on it ([`crate::cluster`]).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{try_join, try_join_all};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use umbel_filter::Fingerprint;

use super::handle::{Answer, Handle};
use super::lane::{Lane, Slot};
use super::part::Applied;
use super::recover::{Counted, recover_slot, start_of_replay};
use super::requests::Token;
use super::{Engine, Shared, checkpoint};
use crate::definition::{CATALOG, home_of};
use crate::entry::{Entry, Operation};
use crate::fold::{Counts, State};
use crate::{Error, Position, Result};

/// Lanes that are read at the same time: a log on an engine is mostly waited for.
const LANES_AT_ONCE: usize = 16;
/// A lane in which nothing happens is read at least once in two to the power of this many rounds.
const QUIET_MAX: u32 = 3;
/// Rounds after which newer checkpoints are looked for.
const ROUNDS_BETWEEN_CHECKPOINTS: u64 = 10;

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

    /// Lets the first hosts of partitions append and fold entries; gives what came of each, in the same order. Entries that may be appended
    /// twice without harm (`repeatable`) are sent again where it is not known what became of them.
    async fn submit(&self, entries: Vec<(u32, Bytes)>, repeatable: bool) -> Result<Vec<Applied>>;

    /// Asks the first hosts for keys of a filter, each with its partition. They answer when they have folded the token's positions.
    async fn contains(&self, filter: u64, keys: &[(u32, Fingerprint)], after: &Token) -> Result<Vec<Answer>>;

    /// How often each key is in a filter that keeps its keys.
    async fn verify(&self, filter: u64, keys: &[(u32, Fingerprint)]) -> Result<Vec<u64>>;

    /// Makes sure that whoever may answer alone for a partition has folded it up to a position. While all nodes act on the same table, that
    /// is the first host. While they do not, one that has not heard of the newest may still answer: then it is every node that hosts the
    /// partition, of those whose lease had not ended, or the call waits until all act on the same. A node whose own lease has ended knows
    /// of nobody, and the call fails.
    async fn reach(&self, partition: u32, position: Position) -> Result<()>;

    /// What the other nodes, as first hosts, hold of a filter.
    async fn counts(&self, filter: u64) -> Result<Counts>;
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
        keys: &[(u32, Fingerprint)],
        after: &Token,
    ) -> Result<Vec<Answer>> {
        let handle = self.shared.proven(filter, keys, after).await?;
        let keys: Vec<Fingerprint> = keys.iter().map(|(_, key)| *key).collect();
        self.shared.load(&handle).await?;
        let mut answers = Vec::new();
        handle.contains_batch(&keys, &mut answers);
        Ok(answers)
    }

    /// How often each key is in a filter whose slots are hosted here.
    pub async fn verify_for_peer(&self, filter: u64, keys: &[(u32, Fingerprint)]) -> Result<Vec<u64>> {
        let handle = self.shared.proven(filter, keys, &Token::default()).await?;
        let keys: Vec<Fingerprint> = keys.iter().map(|(_, key)| *key).collect();
        self.shared.verify(&handle, &keys).await
    }

    /// Folds a partition that is hosted here up to a position.
    pub async fn reach_for_peer(&self, partition: u32, position: Position) -> Result<()> {
        self.shared.reach_here(partition, position).await
    }

    /// What the slots of which this node is the first host hold of a filter.
    pub async fn counts_for_peer(&self, filter: u64) -> Result<Counts> {
        Ok(self
            .shared
            .directory
            .numbered(filter)
            .map(|handle| self.shared.counts_here(&handle))
            .unwrap_or_default())
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

    /// The filter of that name, also if another node made it a moment ago.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Handle>>> {
        if let Some(found) = self.filter(name) {
            return Ok(Some(found));
        }
        self.shared.prove_catalog().await?;
        Ok(self.filter(name))
    }

    /// How many keys a filter holds on all nodes.
    pub async fn counts(&self, filter: &Handle) -> Result<Counts> {
        let Some(cluster) = &self.shared.cluster else {
            return Ok(Counts { items: filter.items(), held: filter.held(), removed: filter.removed() });
        };
        let (here, there) = (self.shared.counts_here(filter), cluster.counts(filter.id()).await?);
        Ok(here.and(there))
    }

    /// Whether there are other nodes.
    pub fn is_clustered(&self) -> bool {
        self.shared.cluster.is_some()
    }
}

/// Which partitions are hosted here.
impl Engine {
    /// Takes a partition in: its checkpoints, then its log up to the end. It answers from then on.
    pub async fn host(&self, partition: u32) -> Result<()> {
        self.shared.host(partition).await
    }

    /// Lets go of a partition.
    pub async fn release(&self, partition: u32) -> Result<()> {
        self.shared.release(partition).await
    }

    /// Whether a partition is hosted here.
    pub fn hosts(&self, partition: u32) -> bool {
        self.shared.hosting(partition).is_ok()
    }

    /// The partition that every node hosts: it says what filters there are.
    pub fn catalog(&self) -> u32 {
        self.shared.catalog()
    }

    /// Reads what others appended to partitions that are hosted here, and takes over checkpoints that others made. A thread does it too
    /// ([`start`](Self::start)).
    pub async fn follow(&self) -> Result<()> {
        self.shared.follow().await
    }
}

/// Roles.
impl Shared {
    pub(super) fn catalog(&self) -> u32 {
        u32::from(home_of(CATALOG, self.settings.slots)) % self.lanes.len() as u32
    }

    fn slots_of(&self, partition: u32) -> impl Iterator<Item = u16> + use<> {
        (partition as u16..self.settings.slots as u16).step_by(self.lanes.len())
    }

    /// The lane of a partition that is hosted here.
    fn hosting(&self, partition: u32) -> Result<&Lane> {
        let lane = self.lanes.get(partition as usize);
        let lane =
            lane.ok_or_else(|| Error::Invalid(format!("partition {partition} of {}", self.lanes.len())))?;
        if self.directory.is_hosted(partition as u16) { Ok(lane) } else { Err(lane.moved_away()) }
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

    /// Whether what is folded of a partition is all that was acknowledged.
    #[inline]
    fn is_current(&self, cluster: &dyn Cluster, partition: u32) -> bool {
        let term = self.lanes.get(partition as usize).map_or(0, |lane| lane.term.load(Ordering::Acquire));
        term != 0 && cluster.role(partition) == Role::First { term }
    }

    fn is_current_for(&self, filter: &Handle, keys: &[Fingerprint]) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        keys.iter().all(|key| self.is_current(&**cluster, self.lane(filter.slot(*key)).partition))
    }

    /// Makes sure that what is folded of a partition that is hosted here is all that was acknowledged.
    async fn prove(&self, partition: u32) -> Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let (lane, role) = (self.hosting(partition)?, cluster.role(partition));
        match role {
            Role::First { term } if lane.term.load(Ordering::Acquire) == term => return Ok(()),
            _ => lane.barrier(self).await?,
        }
        if let Role::First { term } = role {
            lane.term.store(term, Ordering::Release);
            // Whoever was first before may have left something half done.
            self.work.is_unfinished();
        }
        Ok(())
    }

    /// Makes sure that all filters which were made are known here.
    pub(super) async fn prove_catalog(&self) -> Result<()> {
        if self.cluster.is_some() { self.prove(self.catalog()).await } else { Ok(()) }
    }

    /// The filter that a peer asks for, when all that was acknowledged in these partitions is folded.
    async fn proven(&self, filter: u64, keys: &[(u32, Fingerprint)], after: &Token) -> Result<Arc<Handle>> {
        let partitions: BTreeSet<u32> = keys.iter().map(|(partition, _)| *partition).collect();
        try_join_all(partitions.iter().map(|partition| async {
            self.prove(*partition).await?;
            self.reach_here(*partition, after.position(*partition)).await
        }))
        .await?;
        if self.directory.numbered(filter).is_none() {
            self.prove_catalog().await?;
        }
        let gone = || Error::Invalid(format!("there is no filter {filter:x}"));
        let handle = self.directory.numbered(filter).ok_or_else(gone)?;
        let fits =
            |(partition, key): &(u32, Fingerprint)| self.lane(handle.slot(*key)).partition == *partition;
        if keys.iter().all(fits) {
            return Ok(handle);
        }
        Err(Error::Invalid("a key that belongs to another partition".into()))
    }

    async fn reach_here(&self, partition: u32, position: Position) -> Result<()> {
        let lane = self.hosting(partition)?;
        if lane.applied() < position {
            lane.barrier(self).await?;
        }
        if lane.applied() >= position {
            return Ok(());
        }
        Err(Error::Retry(format!(
            "partition {partition} is not at {position} yet, but at {}",
            lane.applied()
        )))
    }

    fn counts_here(&self, filter: &Handle) -> Counts {
        let first = filter.slots().filter(|slot| self.is_first(self.lane(*slot).partition));
        first.map(|slot| filter.counts_of(slot)).fold(Counts::default(), Counts::and)
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
        let applied = self.submit_to_lanes(entries).await?;
        let Some(cluster) = &self.cluster else { return Ok(applied) };
        let mut told = Token::default();
        for (partition, applied) in partitions.into_iter().zip(&applied) {
            // Not before: a node that slept while it appended may not be the first any more.
            if !matches!(cluster.role(partition), Role::First { .. }) {
                told.see(partition, applied.position);
            }
        }
        try_join_all(told.positions().map(|(partition, position)| cluster.reach(partition, position)))
            .await?;
        Ok(applied)
    }

    pub(super) async fn submit_to_nodes(
        &self,
        cluster: &dyn Cluster,
        entries: Vec<(u32, Entry)>,
    ) -> Result<Vec<Applied>> {
        let count = entries.len();
        let (mut here, mut there) = (Vec::new(), Vec::new());
        let mut repeatable = true;
        for (place, (partition, entry)) in entries.into_iter().enumerate() {
            if matches!(cluster.role(partition), Role::First { .. }) {
                here.push((place, (partition, entry)));
            } else {
                repeatable &= self.is_repeatable(&entry);
                there.push((place, (partition, entry.encode()?)));
            }
        }
        let (here_at, here): (Vec<usize>, Vec<_>) = here.into_iter().unzip();
        let (there_at, there): (Vec<usize>, Vec<_>) = there.into_iter().unzip();
        let catalog = self.catalog();
        let named = there.iter().position(|(partition, _)| *partition == catalog);
        let sent = async {
            if there.is_empty() {
                return Ok(Vec::new());
            }
            let applied = cluster.submit(there, repeatable).await?;
            // Whoever made a filter can use it here at once.
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
        Ok(all)
    }

    /// Whether an entry that is appended twice does what it does once.
    fn is_repeatable(&self, entry: &Entry) -> bool {
        let counts = || self.directory.numbered(entry.filter).is_none_or(|handle| handle.is_erasable());
        match entry.operation {
            _ if entry.request.session != 0 => true,
            Operation::Add(_) | Operation::Load { .. } => !counts(),
            Operation::Remove(_) => false,
            _ => true,
        }
    }

    pub(super) async fn contains_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        after: &Token,
    ) -> Result<Vec<Answer>> {
        let (here, there) = self.divide(cluster, filter, keys);
        let ask_here = async {
            let all: Vec<_> = here.iter().map(|(_, key)| *key).collect();
            let mut answers = Vec::new();
            if !all.is_empty() {
                self.proven(filter.id(), &all, after).await?;
                self.load(filter).await?;
                let keys: Vec<Fingerprint> = all.iter().map(|(_, key)| *key).collect();
                filter.contains_batch(&keys, &mut answers);
            }
            Ok(answers)
        };
        let all: Vec<_> = there.iter().map(|(_, key)| *key).collect();
        let ask_there = async {
            if all.is_empty() { Ok(Vec::new()) } else { cluster.contains(filter.id(), &all, after).await }
        };
        let (told_here, told_there) = try_join(ask_here, ask_there).await?;
        let mut answers = vec![Answer::Unknown; keys.len()];
        let places = here.iter().zip(told_here).chain(there.iter().zip(told_there));
        places.for_each(|((place, _), answer)| answers[*place] = answer);
        Ok(answers)
    }

    pub(super) async fn verify_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
    ) -> Result<Vec<u64>> {
        let (here, there) = self.divide(cluster, filter, keys);
        let own: Vec<_> = here.iter().map(|(_, key)| *key).collect();
        let mut counts = vec![0; keys.len()];
        if !own.is_empty() {
            self.proven(filter.id(), &own, &Token::default()).await?;
            let own: Vec<Fingerprint> = own.iter().map(|(_, key)| *key).collect();
            let told = self.verify(filter, &own).await?;
            here.iter().zip(told).for_each(|((place, _), count)| counts[*place] = count);
        }
        if !there.is_empty() {
            let all: Vec<_> = there.iter().map(|(_, key)| *key).collect();
            let told = cluster.verify(filter.id(), &all).await?;
            if told.len() != all.len() {
                return Err(Error::Retry("another node counted more or fewer keys than it was sent".into()));
            }
            there.iter().zip(told).for_each(|((place, _), count)| counts[*place] = count);
        }
        Ok(counts)
    }

    /// Keys of which this node is the first host, and the others; each with its place and its partition.
    fn divide(&self, cluster: &dyn Cluster, filter: &Handle, keys: &[Fingerprint]) -> (Placed, Placed) {
        let placed = keys.iter().map(|key| (self.lane(filter.slot(*key)).partition, *key)).enumerate();
        placed.partition(|(_, (partition, _))| matches!(cluster.role(*partition), Role::First { .. }))
    }
}

/// Keys with their partitions, and where they stood.
type Placed = Vec<(usize, (u32, Fingerprint))>;

/// Hosting.
impl Shared {
    /// Takes a partition in, or takes it in anew from the newest checkpoints.
    pub(super) async fn host(&self, partition: u32) -> Result<()> {
        let lane = self.lanes.get(partition as usize);
        let lane =
            lane.ok_or_else(|| Error::Invalid(format!("partition {partition} of {}", self.lanes.len())))?;
        let _one_at_a_time = lane.checkpoints.lock().await;
        let mut busy = Vec::new();
        for slot in self.slots_of(partition) {
            busy.push(self.maintenance(slot).lock().await);
        }
        let beside = self.warm_up(partition).await?;
        // What came meanwhile is little, and nothing comes while the lane's turn is taken.
        let mut turn = lane.turn.lock().await;
        beside.catch_up(self, &mut *beside.turn.lock().await).await?;
        let folded = beside.folded_bytes.load(Ordering::Relaxed);
        let next = beside.turn.into_inner();
        if next.applied < turn.applied {
            return Err(Error::Retry(format!(
                "partition {partition} of the log ends before what was read of it"
            )));
        }
        lane.install(&mut turn, Some(next));
        lane.folded_bytes.store(folded, Ordering::Relaxed);
        self.show_all(&mut turn)?;
        drop(turn);
        self.directory.unsorted().iter().for_each(|handle| handle.recount());
        Ok(())
    }

    /// The slots of a partition as the log has them now, beside those that answer.
    async fn warm_up(&self, partition: u32) -> Result<Lane> {
        let mut slots = Vec::new();
        for slot in self.slots_of(partition) {
            let state = State::new(slot, self.settings.slots, self.means.clone());
            let counted = match &self.ledger {
                None => Counted::All,
                // A registry that was lost does not take checkpoints with it.
                Some(ledger) => Counted::UpTo(ledger.newest(slot).await?.unwrap_or(u64::MAX)),
            };
            let listed = self.blobs.list(Some(&Path::from(checkpoint::folder(slot))));
            let names: Vec<String> = listed
                .map_ok(|blob| blob.location.to_string())
                .try_collect()
                .await
                .map_err(|error| Error::blob("cannot list blobs", &error))?;
            slots.push(recover_slot(&self.blobs, state, &names, counted).await?);
        }
        let start = start_of_replay(self, partition, &mut slots).await?;
        let lane = Lane::new(partition, slots, start);
        let mut turn = lane.turn.lock().await;
        for slot in &mut turn.slots {
            self.load_cold(slot).await?;
        }
        lane.catch_up(self, &mut turn).await?;
        drop(turn);
        Ok(lane)
    }

    async fn release(&self, partition: u32) -> Result<()> {
        if partition == self.catalog() {
            return Err(Error::Invalid("every node hosts the catalog".into()));
        }
        let lane = self.hosting(partition)?;
        let _one_at_a_time = lane.checkpoints.lock().await;
        let mut busy = Vec::new();
        for slot in self.slots_of(partition) {
            busy.push(self.maintenance(slot).lock().await);
        }
        let mut turn = lane.turn.lock().await;
        for slot in &turn.slots {
            let number = slot.state.slot();
            self.directory.set_hosted(number, false);
            slot.state.shards().for_each(|(id, _)| self.directory.give_away(number, id));
        }
        lane.install(&mut turn, None);
        Ok(())
    }

    /// Makes a checkpoint the newest of its slot, where other nodes could have made another.
    pub(super) async fn commit(&self, slot: u16, before: u64, next: u64) -> Result<()> {
        match &self.ledger {
            Some(ledger) => ledger.commit(slot, before, next).await,
            None => Ok(()),
        }
    }

    /// Reads what others appended, and takes over checkpoints that others made.
    pub(super) async fn follow(&self) -> Result<()> {
        let round = self.work.next_follow();
        let hosted = self.lanes.iter().filter(|lane| self.directory.is_hosted(lane.partition as u16));
        let hosted: Vec<&Lane> = hosted.collect();
        let mut failure = None;
        let read = hosted.iter().map(|lane| async move {
            // Where nothing happens, nobody has to look so often.
            let pause = 1_u64 << lane.quiet.load(Ordering::Relaxed).min(QUIET_MAX);
            let is_due = lane.partition == self.catalog() || round.is_multiple_of(pause);
            if self.is_first(lane.partition) {
                self.prove(lane.partition).await
            } else if is_due {
                lane.barrier(self).await
            } else {
                Ok(())
            }
        });
        let read: Vec<_> = read.collect();
        let mut read = stream::iter(read).buffer_unordered(LANES_AT_ONCE);
        while let Some(read) = read.next().await {
            if let Err(error) = read {
                failure.get_or_insert(error);
            }
        }
        if round.is_multiple_of(ROUNDS_BETWEEN_CHECKPOINTS)
            && let Err(error) = self.look_for_checkpoints(&hosted).await
        {
            failure.get_or_insert(error);
        }
        for lane in hosted.iter().filter(|lane| lane.is_outdated.load(Ordering::Relaxed)) {
            if let Err(error) = self.host(lane.partition).await {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Finds lanes with much in memory that is in checkpoints of others.
    async fn look_for_checkpoints(&self, lanes: &[&Lane]) -> Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let newest = ledger.all().await?;
        for lane in lanes {
            if lane.folded_bytes.load(Ordering::Relaxed) < self.settings.checkpoint_bytes / 2 {
                continue;
            }
            let turn = lane.turn.lock().await;
            let is_newer = |slot: &Slot| {
                newest.get(&slot.state.slot()).is_some_and(|number| *number > slot.checkpoint())
            };
            if turn.slots.iter().any(is_newer) {
                lane.is_outdated.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
