//! What a listing of all nodes comes to. Everything here is a function of it (rule V1 of docs/cluster-protocol.md).

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::isolation::Isolation;
use super::record::Record;
use crate::ring::{Member, Ring};
use crate::{Error, Result};

/// The nodes at one moment, and who hosts what.
#[derive(Clone, Debug)]
pub struct View {
    /// By name.
    nodes: Vec<Record>,
    partitions: u32,
    copies: u32,
    revision: u64,
    digest: u64,
    is_settled: bool,
    isolation: Isolation,
    /// Of those that are neither leaving nor isolated; none if there are none.
    ring: Option<Arc<Ring>>,
    /// Of each partition, the nodes that serve it, the first to ask first.
    hosts: Vec<Vec<u16>>,
}

impl View {
    /// What records come to that were listed at a revision. The ring of an earlier view is taken over if its members are the same.
    pub fn new(
        mut nodes: Vec<Record>,
        partitions: u32,
        copies: u32,
        revision: u64,
        before: Option<&Self>,
    ) -> Result<Self> {
        nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if let Some(two) = nodes.windows(2).find(|two| two[0].name == two[1].name) {
            return Err(Error::Invalid(format!("two nodes are called {}", two[0].name)));
        }
        let isolation = Isolation::of(&nodes);
        let is_isolated = |index: usize| isolation.isolated.contains(&(index as u16));
        let stays = nodes.iter().enumerate().filter(|(index, node)| !node.leaving && !is_isolated(*index));
        let mut members: Vec<Member> = stays.map(|(_, node)| node.member()).collect();
        members.sort_unstable();
        let same = before.filter(|before| before.partitions == partitions && before.copies == copies);
        let ring = match same.and_then(|before| before.ring.as_ref()) {
            Some(ring) if ring.members() == members => Some(Arc::clone(ring)),
            _ if members.is_empty() => None,
            _ => Some(Arc::new(Ring::new(members, partitions, copies)?)),
        };
        let material: String = nodes.iter().map(Record::material).collect();
        let digest = xxh3_64(material.as_bytes());
        // Rule V3.
        let is_settled = nodes.iter().all(|node| node.view == digest);
        let hosts = Vec::new();
        let mut view =
            Self { nodes, partitions, copies, revision, digest, is_settled, isolation, ring, hosts };
        view.hosts = (0..partitions).map(|partition| view.find_hosts(partition)).collect();
        Ok(view)
    }

    fn find_hosts(&self, partition: u32) -> Vec<u16> {
        let by_ring = self.ring_hosts(partition).filter_map(|name| self.index(name));
        let mut hosts: Vec<u16> = by_ring.filter(|index| self.serves(*index, partition)).collect();
        for index in 0..self.nodes.len() as u16 {
            if self.serves(index, partition) && !hosts.contains(&index) {
                hosts.push(index);
            }
        }
        // A host that all nodes reach leads before one that some do not reach, and that before one that is isolated. The sort is stable.
        let Isolation { isolated, impaired } = &self.isolation;
        hosts.sort_by_key(|index| (isolated.contains(index), impaired.contains(index)));
        hosts
    }

    fn serves(&self, index: u16, partition: u32) -> bool {
        self.nodes[usize::from(index)].serves.contains(partition)
    }

    fn index(&self, name: &str) -> Option<u16> {
        self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok().map(|index| index as u16)
    }

    /// The same with another record of one node, before anybody else knows of it: so it is not settled.
    pub fn with(&self, record: Record) -> Result<Self> {
        let mut nodes = self.nodes.clone();
        nodes.retain(|node| node.name != record.name);
        nodes.push(record);
        let view = Self::new(nodes, self.partitions, self.copies, self.revision, Some(self))?;
        Ok(view.unsettled())
    }

    /// The same as something that is not known to be agreed on any more.
    pub fn unsettled(self) -> Self {
        Self { is_settled: false, ..self }
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> &[Record] {
        &self.nodes
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&Record> {
        self.index(name).map(|index| &self.nodes[usize::from(index)])
    }

    /// Whether a node is cut off from the others although its record is there (rule V5).
    pub fn is_isolated(&self, name: &str) -> bool {
        self.index(name).is_some_and(|index| self.isolation.isolated.contains(&index))
    }

    /// Whether a node reports that it does not reach another one, by its place among all nodes.
    pub fn is_unreached(&self, from: &str, to: u16) -> bool {
        let to = self.nodes.get(usize::from(to)).map(|to| (to.name.clone(), to.instance));
        self.node(from).zip(to).is_some_and(|(from, to)| from.unreached.contains(&to))
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// How many hosts each of them should have.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// The ring of those that are neither leaving nor isolated, if there are any.
    pub fn ring(&self) -> Option<&Ring> {
        self.ring.as_deref()
    }

    /// The revision of the registry at which the nodes were listed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What nodes that act on the same listing have in common.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Whether all nodes act on this.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The nodes that serve a partition, the first to ask first: those of the ring, then others that have it still. Nodes that some do not
    /// reach come after those that all reach, and isolated ones come last.
    pub fn hosts(&self, partition: u32) -> impl ExactSizeIterator<Item = &Record> {
        self.host_numbers(partition).iter().map(|index| &self.nodes[usize::from(*index)])
    }

    /// The same by their places among all nodes.
    #[inline]
    pub fn host_numbers(&self, partition: u32) -> &[u16] {
        self.hosts.get(partition as usize).map_or(&[], Vec::as_slice)
    }

    /// The nodes, by their places among all nodes, that have to fold a change of the catalog before it is acknowledged (rule A2). These
    /// and no others may use their catalog without a read barrier while the view is settled (rule B3), so one function says both.
    #[inline]
    pub fn confirmers(&self, catalog: u32) -> &[u16] {
        // A node that does not serve its catalog yet, or that is isolated, looks up every name behind a read barrier. Isolated ones are last.
        let hosts = self.host_numbers(catalog);
        &hosts[..hosts.partition_point(|index| !self.isolation.isolated.contains(index))]
    }

    /// Whether a node is one of these.
    pub fn is_confirmer(&self, name: &str, catalog: u32) -> bool {
        self.index(name).is_some_and(|index| self.confirmers(catalog).contains(&index))
    }

    /// The first host of a partition.
    pub fn first(&self, partition: u32) -> Option<&Record> {
        self.hosts(partition).next()
    }

    /// The names of those that should host a partition.
    pub fn ring_hosts(&self, partition: u32) -> impl Iterator<Item = &str> {
        let ring = self.ring.iter().filter(move |_| partition < self.partitions);
        ring.flat_map(move |ring| ring.hosts(partition as u16).map(|member| member.name.as_str()))
    }

    /// The partitions that a node should host.
    pub fn wanted(&self, name: &str) -> Vec<u32> {
        let slots = self.ring.iter().flat_map(|ring| ring.slots_of(name));
        slots.map(u32::from).collect()
    }

    /// Whether a node may let go of a partition: it should not have it, and all who should do.
    pub fn may_release(&self, name: &str, partition: u32) -> bool {
        let has_it = |host: &str| self.node(host).is_some_and(|node| node.serves.contains(partition));
        self.ring.is_some() && self.ring_hosts(partition).all(|host| host != name && has_it(host))
    }
}
