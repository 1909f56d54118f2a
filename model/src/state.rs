//! One state of the registry, the log, three nodes and one client.

/// How many nodes there are.
pub(crate) const NODES: usize = 3;

/// What a listing of all records says, less the digests that they name. It stands for the digest itself: equal contents have equal digests.
///
/// Bits: 3 for the nodes that have a record, 3 for those that serve the partition, 9 for who has not reached whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Content(u16);

impl Content {
    const SERVES: usize = NODES;
    const REPORTS: usize = 2 * NODES;

    pub(crate) fn has(self, node: usize) -> bool {
        self.0 >> node & 1 == 1
    }

    pub(crate) fn serves(self, node: usize) -> bool {
        self.has(node) && self.0 >> (Self::SERVES + node) & 1 == 1
    }

    fn reports(self, node: usize, other: usize) -> bool {
        self.has(node) && self.0 >> (Self::REPORTS + node * NODES + other) & 1 == 1
    }

    /// What one record adds to it.
    pub(crate) fn part(node: usize, part: Part) -> Self {
        let serves = u16::from(part.serves) << (Self::SERVES + node);
        Self(1 << node | serves | u16::from(part.reports) << (Self::REPORTS + node * NODES))
    }

    pub(crate) fn part_of(self, node: usize) -> Part {
        let reports = (self.0 >> (Self::REPORTS + node * NODES)) as u8 & 0b111;
        Part { serves: self.serves(node), reports }
    }

    /// The same with another record of one node.
    pub(crate) fn with(self, node: usize, part: Part) -> Self {
        let own = 1 << node | 1 << (Self::SERVES + node) | 0b111 << (Self::REPORTS + node * NODES);
        Self(self.0 & !own | Self::part(node, part).0)
    }

    pub(crate) fn join(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Nodes that are isolated by this listing, and nodes that some other one does not reach, a bit for each: the node with the most broken
    /// connections is left out, and again, until none is broken; of several, the last one. Any function of the listing would do (rule V5).
    pub(crate) fn isolation(self) -> (u8, u8) {
        const PAIRS: [(usize, usize); NODES] = [(0, 1), (0, 2), (1, 2)];
        if self.0 >> Self::REPORTS == 0 {
            return (0, 0);
        }
        let is_broken = |(one, other): &(usize, usize)| {
            self.has(*one) && self.has(*other) && (self.reports(*one, *other) || self.reports(*other, *one))
        };
        let (mut isolated, mut impaired) = (0, 0);
        for (one, other) in PAIRS.into_iter().filter(is_broken) {
            impaired |= 1 << one | 1 << other;
        }
        loop {
            let left = |node: usize| {
                let is_left = |(one, other): &&(usize, usize)| {
                    (*one == node || *other == node) && (isolated >> *one | isolated >> *other) & 1 == 0
                };
                PAIRS.iter().filter(|pair| is_broken(pair)).filter(is_left).count()
            };
            let worst = (0..NODES).max_by_key(|node| left(*node));
            let Some(worst) = worst.filter(|node| left(*node) > 0) else { return (isolated, impaired) };
            isolated |= 1 << worst;
        }
    }

    /// Whether a node is isolated by this listing.
    pub(crate) fn is_isolated(self, node: usize) -> bool {
        self.isolation().0 >> node & 1 == 1
    }
}

/// What a node's record says apart from the digest that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) serves: bool,
    /// A bit for each node that this one has not reached.
    pub(crate) reports: u8,
}

/// A record in the registry; it is there as long as its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) is_there: bool,
    pub(crate) part: Part,
    pub(crate) names: Option<Content>,
}

/// Where a node is on its way through the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    #[default]
    Idle,
    /// The registry has listed the records; the answer is in flight.
    Listed { content: Content, is_settled: bool, is_named: bool, is_unsure: bool, is_outdated: bool },
    /// A new record is in flight to the registry.
    Putting(Content),
    /// Only without rule V2: the record names a view on which the node does not act yet.
    Named(Content),
}

/// One node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// The view on which it acts.
    pub(crate) acting: Content,
    pub(crate) is_settled: bool,
    /// Only as the code was: it leads nothing, but the view still counts as settled.
    pub(crate) is_stood_down: bool,
    /// By its own clock its lease lives.
    pub(crate) trusts: bool,
    /// Only without rules L1 and L2: the registry may end the lease although the node trusts it.
    pub(crate) trusts_wrongly: bool,
    /// Only without rule L1: a good answer of the registry is in flight.
    pub(crate) late_answer: bool,
    /// It has read the log to its end in this term.
    pub(crate) has_read: bool,
    /// The client's entry is in its memory.
    pub(crate) has_folded: bool,
    /// Only without rule B2: a read of the log began before the entry was appended, and has not ended.
    pub(crate) old_barrier: bool,
    /// What its record is to say.
    pub(crate) wish: Part,
    pub(crate) look: Look,
}

/// A record that was sent by a look which was given up; it may still arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stray {
    pub(crate) node: u8,
    pub(crate) content: Option<Content>,
    /// The record has not changed since it was listed.
    pub(crate) is_expected: bool,
}

/// How far the client's change is: an add of a key, or a new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    #[default]
    None,
    /// Only with a mutation of rule A1: the node found that it leads, and has not appended yet.
    Early(u8),
    /// A node has appended and folded it.
    Folded(u8),
    /// After that, its lease was valid.
    Leased(u8),
    /// Only with a mutation of rule A1: its view was read before its lease. Then come those that have to confirm.
    Viewed(u8, u8),
    /// The node, and those that have to confirm still.
    Confirming(u8, u8),
    Acknowledged,
}

/// A request for the key, after the change was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    #[default]
    None,
    /// The node's lease was valid after the request came.
    Leased(u8),
    /// Only with a mutation of rule R1: its view and its term were read before its lease.
    Viewed(u8),
    /// Only with a mutation of rule B1: found before the request came.
    Passed(u8),
    /// Only with a mutation of rule B1: memory said "absent" before the role was checked; then whether its lease was valid after that.
    Remembered(u8, bool),
    /// The answer was "absent".
    Denied(u8),
}

/// One state of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The partition that the client's key belongs to.
    pub(crate) partition: u8,
    pub(crate) nodes: [Node; NODES],
    pub(crate) records: [Record; NODES],
    pub(crate) stray: Stray,
    /// The entry is in the log.
    pub(crate) is_logged: bool,
    pub(crate) change: Change,
    pub(crate) query: Query,
    pub(crate) ends_left: u8,
    pub(crate) gaps_left: u8,
    pub(crate) wishes_left: u8,
    pub(crate) reports_left: u8,
    pub(crate) strays_left: u8,
}
