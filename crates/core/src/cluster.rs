//! The nodes of a cluster: who is there, who hosts which partitions, and what all of them know of it.
//!
//! ```text
//! cluster/nodes/a     a's record: instance, address, zone, weight, what it serves, which listing it acts on
//! cluster/nodes/b     ... each under its node's lease: it is gone when the node is
//! cluster/leaving/a   somebody wants a to leave
//! cluster/table       members and hosts as of the last change, to be looked at
//! ```
//!
//! A node acts on a listing of all records, a [`View`], and writes its digest into its own record. While all records name the digest of the
//! listing that they stand in, the view is *settled*: everybody acts on it. Only then does anybody take itself for a first host, and it stops
//! before it acts on the next listing. So there are never two first hosts of a partition:
//!
//! - a node whose lease ends counts its end from before it last asked for it, so it stops before its record is gone;
//! - a node that lives has to name the new listing before anybody takes that for agreed.
//!
//! The rules have numbers in docs/cluster-protocol.md, and are checked by the package `model`.

mod isolation;
mod membership;
mod record;
mod table;
#[cfg(test)]
mod tests;
mod view;

pub use isolation::Instance;
pub use membership::{Joining, Membership, Settings, inspect, is_leaving, set_leaving};
pub use record::{Partitions, Record};
pub use table::Table;
pub use view::View;

/// What records of nodes begin with.
const NODES: &str = "cluster/nodes/"; // persisted
/// What wishes that a node leaves begin with.
const LEAVING: &str = "cluster/leaving/"; // persisted
const TABLE: &str = "cluster/table"; // persisted
