//! What an engine asks of other nodes, in the messages that they understand.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use umbel_core::cluster::Partitions;
use umbel_core::engine::{
    Answer, Applied, BlocksFrom, Cluster, Consistency, NO_LEASE, PartChanges, PartOf, Publication, Question,
    Role, Shape, Told,
};
use umbel_core::fold::Counts;
use umbel_core::version::VersionShard;
use umbel_core::{Error, Position, Result};
use umbel_filter::Fingerprint;

use super::Nodes;
use super::routing::{Overdue, PATIENCE, Place, Repeat};
use crate::cluster::link::Failure;
use crate::cluster::peers::Errand;
use crate::cluster::wire;
use crate::cluster::wire::{changes, looks, parts};

/// Bytes of entries in one message.
const ENTRIES_BYTES: usize = 4 << 20;
/// Keys in one message.
const KEYS_MAX: usize = 1 << 20;
/// Parts of a version in one message.
const PARTS_MAX: usize = 16;

impl Nodes {
    async fn submit_to(&self, place: &Place, entries: Vec<(u32, Bytes)>) -> Result<Vec<Applied>, Failure> {
        let peer = match place {
            Place::Here(engine) => return engine.submit_for_peer(entries).await.map_err(Failure::Refused),
            Place::There(peer) => peer,
        };
        let mut applied = Vec::with_capacity(entries.len());
        let mut rest = &entries[..];
        // One after another, so that the entries of a partition stay in their order.
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, entry)| {
                bytes += entry.len();
                bytes <= ENTRIES_BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            match self.peers.submit(peer, now.to_vec()).await {
                Ok(some) => applied.extend(some),
                // Some of them are done: whoever sends all of them again must be allowed to.
                Err(Failure::Unsent(why)) if !applied.is_empty() => return Err(Failure::Lost(why)),
                Err(Failure::Refused(Error::Moved(why))) if !applied.is_empty() => {
                    return Err(Failure::Lost(why));
                }
                Err(failure) => return Err(failure),
            }
            rest = later;
        }
        Ok(applied)
    }

    /// Asks a place for some keys of a question, by their numbers.
    async fn contains_at(
        &self,
        place: &Place,
        question: &Question<'_>,
        numbers: &[u32],
    ) -> Result<Vec<Answer>, Failure> {
        let Question { filter, keys, after, .. } = *question;
        let peer = match place {
            Place::Here(engine) => {
                let asked = engine.contains_for_peer(filter, &picked(keys, numbers), after).await;
                return asked.map_err(Failure::Refused);
            }
            Place::There(peer) => peer,
        };
        let mut answers = Vec::new();
        for numbers in numbers.chunks(KEYS_MAX) {
            let asked = || put_keys(keys, numbers);
            let together = match after.is_empty() {
                true => Some(self.look_up(peer, filter, asked()).await),
                false => None,
            };
            let some = match together {
                // It may be refused for what others asked: then it is asked alone.
                None | Some(Err(Failure::Refused(_))) => {
                    let payload = [wire::put_question(filter, after), asked()].concat();
                    self.ask(peer, Errand::Lookup, "ASK", &payload, wire::answers).await?
                }
                Some(told) => told?,
            };
            if answers.is_empty() { answers = some } else { answers.extend(some) }
        }
        Ok(answers)
    }

    async fn look_at(
        &self,
        place: &Place,
        question: &Question<'_>,
        numbers: &[u32],
        consistency: Consistency,
    ) -> Result<Told, Failure> {
        let Question { filter, keys, after, .. } = *question;
        let peer = match place {
            Place::Here(engine) => {
                let asked = engine.look_for_peer(filter, &picked(keys, numbers), after, consistency).await;
                return asked.map_err(Failure::Refused);
            }
            Place::There(peer) => peer,
        };
        // A barrier reads the log.
        let errand = if consistency == Consistency::Strong { Errand::Read } else { Errand::Lookup };
        let mut all = Told::default();
        for numbers in numbers.chunks(KEYS_MAX) {
            let payload = [looks::put_look(consistency, filter, after), put_keys(keys, numbers)].concat();
            let told = self.ask(peer, errand, "LOOK", &payload, looks::told).await?;
            all.answers.extend(told.answers);
            told.position.positions().for_each(|(partition, position)| all.position.see(partition, position));
            all.age = all.age.max(told.age);
        }
        Ok(all)
    }

    async fn publish_at(
        &self,
        place: &Place,
        asked: &[PartOf],
        publication: &Publication,
    ) -> Result<Vec<VersionShard>, Failure> {
        let mut shards = Vec::with_capacity(asked.len());
        for some in asked.chunks(PARTS_MAX) {
            shards.extend(match place {
                Place::Here(engine) => {
                    engine.publish_for_peer(some, publication).await.map_err(Failure::Refused)?
                }
                Place::There(peer) => {
                    let payload = parts::put_publish(some, publication);
                    self.ask(peer, Errand::Bulk, "PUBLISH", &payload, VersionShard::decode_all).await?
                }
            });
        }
        Ok(shards)
    }

    async fn verify_at(
        &self,
        place: &Place,
        question: &Question<'_>,
        numbers: &[u32],
    ) -> Result<Vec<u64>, Failure> {
        let Question { filter, keys, after, .. } = *question;
        match place {
            Place::Here(engine) => {
                engine.verify_for_peer(filter, &picked(keys, numbers)).await.map_err(Failure::Refused)
            }
            Place::There(peer) => {
                let mut counts = Vec::with_capacity(numbers.len());
                for numbers in numbers.chunks(KEYS_MAX) {
                    let payload = [wire::put_question(filter, after), put_keys(keys, numbers)].concat();
                    counts.extend(self.ask(peer, Errand::Read, "VERIFY", &payload, wire::numbers).await?);
                }
                Ok(counts)
            }
        }
    }
}

fn picked<T: Copy>(all: &[T], numbers: &[u32]) -> Vec<T> {
    numbers.iter().map(|number| all[*number as usize]).collect()
}

fn put_keys(all: &[Fingerprint], numbers: &[u32]) -> Vec<u8> {
    wire::put_keys(numbers.iter().map(|number| all[*number as usize]))
}

#[async_trait]
impl Cluster for Nodes {
    #[inline]
    fn role(&self, partition: u32) -> Role {
        self.membership.role(partition)
    }

    fn term_as_first(&self, partitions: &Partitions) -> Option<u64> {
        self.membership.term_as_first(partitions)
    }

    fn first_of(&self, partitions: &Partitions) -> Partitions {
        self.membership.first_of(partitions)
    }

    fn overdue(&self) -> Option<watch::Receiver<u64>> {
        Some(self.membership.overdue())
    }

    fn has_lease(&self) -> bool {
        self.membership.is_valid()
    }

    async fn find(&self, catalog: u32, name: &str) -> Result<Option<(u64, Position)>> {
        let send = |place: Place| async move {
            match place {
                Place::Here(_) => Err(Failure::Refused(Error::Retry(NO_LEASE.into()))),
                Place::There(peer) => {
                    self.ask(&peer, Errand::Lookup, "FIND", name.as_bytes(), wire::found).await
                }
            }
        };
        self.one(catalog, send).await
    }

    #[inline]
    fn term_as_confirmer(&self, catalog: u32) -> Option<u64> {
        self.membership.term_as_confirmer(catalog)
    }

    async fn confirm(&self, catalog: u32, position: Position) -> Result<()> {
        self.confirm_everywhere(catalog, position).await
    }

    async fn submit(&self, entries: Vec<(u32, Bytes)>, repeatable: bool) -> Result<Vec<Applied>> {
        let repeat = if repeatable { Repeat::Always } else { Repeat::Never };
        let entries = &entries;
        let send = |place: Place, numbers: Vec<u32>| async move {
            let own = numbers.iter().map(|number| entries[*number as usize].clone()).collect();
            let outcome = self.submit_to(&place, own).await;
            (numbers, outcome)
        };
        self.everywhere(entries.len(), |number| entries[number].0, false, repeat, send).await
    }

    async fn contains(&self, question: Question<'_>) -> Result<Vec<Answer>> {
        let asked = &question;
        let send = |place: Place, numbers: Vec<u32>| async move {
            let outcome = self.contains_at(&place, asked, &numbers).await;
            (numbers, outcome)
        };
        let partition = |number| question.partition(number);
        self.everywhere(question.keys.len(), partition, true, Repeat::Always, send).await
    }

    async fn look(&self, question: Question<'_>, consistency: Consistency) -> Result<Told> {
        let asked = &question;
        let send = |place: Place, numbers: Vec<u32>| async move {
            let told = self.look_at(&place, asked, &numbers, consistency).await;
            // Each key with what its answer was given from.
            let each = told.map(|told| {
                let from = |number: &u32| {
                    let partition = asked.partition(*number as usize);
                    (partition, told.position.position(partition), told.age)
                };
                told.answers.iter().copied().zip(numbers.iter().map(from)).collect::<Vec<_>>()
            });
            (numbers, each)
        };
        let partition = |number| question.partition(number);
        let each = self.everywhere(question.keys.len(), partition, true, Repeat::Always, send).await?;
        let mut all = Told::default();
        for (answer, (partition, position, age)) in each {
            all.answers.push(answer);
            all.position.see(partition, position);
            all.age = all.age.max(age);
        }
        Ok(all)
    }

    async fn verify(&self, question: Question<'_>) -> Result<Vec<u64>> {
        let asked = &question;
        let send = |place: Place, numbers: Vec<u32>| async move {
            let outcome = self.verify_at(&place, asked, &numbers).await;
            (numbers, outcome)
        };
        let partition = |number| question.partition(number);
        self.everywhere(question.keys.len(), partition, true, Repeat::Always, send).await
    }

    async fn reach(&self, partition: u32, position: Position) -> Result<()> {
        let (end, overdue) = (self.clock.now() + PATIENCE, Overdue::since_now(&self.membership));
        loop {
            let mut routes = self.routes();
            let mut why = "not all nodes know the same hosts yet".to_owned();
            // While some node may act on an older listing, another one may be the first host by that (rule A1).
            if let Some(view) = self.membership.settled_view() {
                routes = self.routes_of(view);
                let leader = self.host(&routes, partition, false)?;
                let reached = match self.place_of(&routes, leader)? {
                    Place::Here(engine) => {
                        engine.reach_for_peer(partition, position).await.map_err(Failure::Refused)
                    }
                    Place::There(peer) => {
                        let payload = wire::put_reach(partition, position);
                        self.ask(&peer, Errand::Read, "REACH", &payload, |_| Ok(())).await
                    }
                };
                match reached {
                    Ok(()) => return Ok(()),
                    Err(failure) => why = self.may_repeat(failure, Repeat::Always)?,
                }
                // All nodes know that this one does not reach the leader. Another node may.
                if routes.view.is_unreached(self.membership.name(), leader) {
                    return Err(Error::Retry(format!(
                        "partition {partition} of the log: {why}; ask another node"
                    )));
                }
            }
            if overdue.is_long() {
                return Err(Error::Retry(format!("partition {partition} of the log: {NO_LEASE}")));
            }
            if self.clock.now() >= end {
                return Err(Error::Retry(format!("partition {partition} of the log: {why}")));
            }
            self.wait(&routes).await;
        }
    }

    async fn counts(&self, filter: u64, partitions: &[u32]) -> Result<Vec<Counts>> {
        let send = |place: Place, numbers: Vec<u32>| async move {
            let asked = picked(partitions, &numbers);
            let outcome = match &place {
                Place::Here(engine) => engine.counts_for_peer(filter, &asked).await.map_err(Failure::Refused),
                Place::There(peer) => {
                    let payload = wire::put_count(filter, &asked);
                    self.ask(peer, Errand::Read, "COUNTS", &payload, wire::counts).await
                }
            };
            (numbers, outcome)
        };
        self.everywhere(partitions.len(), |number| partitions[number], true, Repeat::Always, send).await
    }

    async fn keys(&self, part: PartOf, after: Option<Fingerprint>) -> Result<Vec<(Fingerprint, u32)>> {
        let send = |place: Place| async move {
            match place {
                Place::Here(engine) => engine.keys_for_peer(part, after).await.map_err(Failure::Refused),
                Place::There(peer) => {
                    let payload = parts::put_keys(part, after);
                    self.ask(&peer, Errand::Bulk, "KEYS", &payload, parts::page).await
                }
            }
        };
        self.one(part.partition, send).await
    }

    async fn shapes(&self, all: &[PartOf], digested: bool) -> Result<Vec<Shape>> {
        let send = |place: Place, numbers: Vec<u32>| async move {
            let asked = picked(all, &numbers);
            let outcome = match &place {
                Place::Here(engine) => {
                    engine.shapes_for_peer(&asked, digested).await.map_err(Failure::Refused)
                }
                Place::There(peer) => {
                    let payload = parts::put_parts(&asked, digested);
                    self.ask(peer, Errand::Bulk, "SHAPES", &payload, parts::shapes).await
                }
            };
            (numbers, outcome)
        };
        self.everywhere(all.len(), |number| all[number].partition, true, Repeat::Always, send).await
    }

    async fn blocks(&self, part: PartOf, from: BlocksFrom, bytes_max: usize) -> Result<Bytes> {
        let send = |place: Place| async move {
            match place {
                Place::Here(engine) => {
                    engine.blocks_for_peer(part, from, bytes_max).await.map_err(Failure::Refused)
                }
                Place::There(peer) => {
                    let payload = parts::put_blocks(part, from, bytes_max);
                    let whole = |bytes: &[u8]| Ok(Bytes::copy_from_slice(bytes));
                    self.ask(&peer, Errand::Bulk, "BLOCKS", &payload, whole).await
                }
            }
        };
        self.one(part.partition, send).await
    }
    async fn publish(&self, all: &[PartOf], publication: &Publication) -> Result<Vec<VersionShard>> {
        let send = |place: Place, numbers: Vec<u32>| async move {
            let outcome = self.publish_at(&place, &picked(all, &numbers), publication).await;
            (numbers, outcome)
        };
        // Only first hosts make checkpoints, from which versions are made.
        self.everywhere(all.len(), |number| all[number].partition, false, Repeat::Always, send).await
    }

    async fn changes(&self, filter: u64, after: &[(u32, Position)]) -> Result<Vec<PartChanges>> {
        let send = |place: Place, numbers: Vec<u32>| async move {
            let asked = picked(after, &numbers);
            let outcome = match &place {
                Place::Here(engine) => {
                    engine.changes_for_peer(filter, &asked).await.map_err(Failure::Refused)
                }
                Place::There(peer) => {
                    let payload = changes::put_asked(filter, &asked);
                    self.ask(peer, Errand::Read, "CHANGES", &payload, changes::told).await
                }
            };
            (numbers, outcome)
        };
        self.everywhere(after.len(), |number| after[number].0, true, Repeat::Always, send).await
    }
}
