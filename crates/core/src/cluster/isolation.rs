//! Which nodes the others do not reach, as a pure function of what all of them report (rule V5).
//!
//! A node that reaches the registry keeps its record, though no other node may reach it. It must not lead then: requests for its partitions
//! would wait as long as the network is cut. So every node reports in its own record which others it does not reach, and the view draws its
//! conclusion from all reports, the same at every node.

use std::collections::BTreeSet;

use super::record::Record;

/// A process of another node: its name and the number of its instance.
pub type Instance = (String, u64);

/// What reports come to, for each node of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Isolation {
    /// Nodes that are left out, so that all others reach each other.
    pub(super) isolated: BTreeSet<u16>,
    /// Nodes that some node does not reach, or that do not reach some node.
    pub(super) impaired: BTreeSet<u16>,
}

impl Isolation {
    /// Leaves out the node with the most broken connections, and again, until no connection between those that are left is broken. Of nodes
    /// with equally many, the last by name goes. `nodes` are in the order of their names.
    pub(super) fn of(nodes: &[Record]) -> Self {
        let broken = broken_connections(nodes);
        let impaired = broken.iter().flat_map(|(one, other)| [*one, *other]).collect();
        let mut left = broken;
        let mut isolated = BTreeSet::new();
        loop {
            let mut counts = vec![0_u32; nodes.len()];
            for (one, other) in &left {
                counts[usize::from(*one)] += 1;
                counts[usize::from(*other)] += 1;
            }
            // `max_by_key` gives the last of several.
            let worst = counts.iter().enumerate().max_by_key(|(_, count)| **count);
            let Some((worst, _)) = worst.filter(|(_, count)| **count > 0) else { break };
            let worst = worst as u16;
            isolated.insert(worst);
            left.retain(|(one, other)| *one != worst && *other != worst);
        }
        Self { isolated, impaired }
    }
}

/// Pairs of nodes of which at least one reports that it does not reach the other, the smaller number first. A report about an earlier
/// process of a node does not count.
fn broken_connections(nodes: &[Record]) -> BTreeSet<(u16, u16)> {
    let number_of = |(name, instance): &Instance| {
        let found = nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()?;
        (nodes[found].instance == *instance).then_some(found as u16)
    };
    let mut broken = BTreeSet::new();
    for (reporter, node) in nodes.iter().enumerate() {
        let reporter = reporter as u16;
        for other in node.unreached.iter().filter_map(number_of).filter(|other| *other != reporter) {
            broken.insert((reporter.min(other), reporter.max(other)));
        }
    }
    broken
}
