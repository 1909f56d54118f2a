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
//! - **An add is acknowledged only when the first host has folded it**, whoever appended it.
//! - **"Absent" comes from the first host, or from one that has just read the log to its end.**
//!
//! Who is first is agreed upon by all nodes before one acts on it ([`crate::cluster`]).

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use umbel_filter::Fingerprint;

use super::handle::{Answer, Handle};
use super::part::Applied;
use super::requests::Token;
use super::{Engine, Shared};
use crate::entry::Entry;
use crate::fold::Counts;
use crate::{Error, Position, Result};

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

    /// Makes sure that the first host of a partition has folded it up to a position. If that is this node by what it knows, its lease
    /// has to be valid now, and nothing else: without it, another may be the first host by now, and the call fails.
    async fn reach(&self, partition: u32, position: Position) -> Result<()>;

    /// What the other nodes, as first hosts, hold of a filter.
    async fn counts(&self, filter: u64) -> Result<Counts>;
}

/// What other nodes ask of this one.
impl Engine {
    /// Appends and folds entries of partitions that are hosted here.
    pub async fn submit_for_peer(&self, entries: Vec<(u32, Bytes)>) -> Result<Vec<Applied>> {
        let decoded = entries.into_iter().map(|(partition, bytes)| Ok((partition, Entry::decode(&bytes)?)));
        self.shared.submit_here(decoded.collect::<Result<_>>()?).await
    }

    /// Asks for keys of a filter whose slots are hosted here.
    pub async fn contains_for_peer(
        &self,
        filter: u64,
        keys: &[(u32, Fingerprint)],
        after: &Token,
    ) -> Result<Vec<Answer>> {
        let _ = (filter, keys, after);
        todo!()
    }

    /// How often each key is in a filter whose slots are hosted here.
    pub async fn verify_for_peer(&self, filter: u64, keys: &[(u32, Fingerprint)]) -> Result<Vec<u64>> {
        let _ = (filter, keys);
        todo!()
    }

    /// Folds a partition that is hosted here up to a position.
    pub async fn reach_for_peer(&self, partition: u32, position: Position) -> Result<()> {
        let _ = (partition, position);
        todo!()
    }

    /// What the slots of which this node is the first host hold of a filter.
    pub async fn counts_for_peer(&self, filter: u64) -> Result<Counts> {
        let _ = filter;
        todo!()
    }
}

/// What a door asks.
impl Engine {
    /// Asks for keys, if they can be answered here and now: that is, if all that is needed is in memory, and this node may answer for it.
    /// If not, [`contains`](Self::contains) does it. False says that it cannot be answered so.
    #[inline]
    pub fn contains_at_once(&self, filter: &Handle, keys: &[Fingerprint], answers: &mut Vec<Answer>) -> bool {
        let _ = (filter, keys, answers);
        todo!()
    }

    /// The filter of that name, also if another node made it a moment ago.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Handle>>> {
        let _ = name;
        todo!()
    }

    /// How many keys a filter holds on all nodes.
    pub async fn counts(&self, filter: &Handle) -> Result<Counts> {
        let _ = filter;
        todo!()
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
        let _ = partition;
        todo!()
    }

    /// Lets go of a partition.
    pub async fn release(&self, partition: u32) -> Result<()> {
        let _ = partition;
        todo!()
    }

    /// The partition that every node hosts: it says what filters there are.
    pub fn catalog(&self) -> u32 {
        todo!()
    }
}

impl Shared {
    async fn submit_here(&self, _entries: Vec<(u32, Entry)>) -> Result<Vec<Applied>> {
        Err(Error::Moved(String::new()))
    }
}
