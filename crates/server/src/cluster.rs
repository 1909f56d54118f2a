//! The other nodes of a cluster: who they are, what is asked of them, and what this one does for them.
//!
//! ```text
//!  engine --> Nodes: groups by first host --> Peer: some connections --> Link: requests one after another, answers in their order
//!               |                                                          |
//!               '-- Membership: who hosts what                             v
//!                        ^                                           UMBEL.PEER at the other node's RESP port
//!  Hosting: takes partitions in and lets go of them;  Reachability: pings the others, reports those that do not answer
//! ```

mod figures;
mod hosting;
mod link;
mod nodes;
mod peers;
mod reachability;
pub(crate) mod wire;

pub(crate) use figures::PARTITIONS_SHOWN_MAX;
pub use hosting::{host, join, keep_place, leave};
pub use nodes::Nodes;

/// What an error begins with where nobody can answer for a slot.
pub(crate) const DOWN: &str = "CLUSTERDOWN";
