//! An executable model of the rules in `docs/cluster-protocol.md`, and a checker that looks through all of its states.
//!
//! ```text
//! system    one state, the steps that lead on from it, and what must hold in it
//! mutation  one switch for each rule that can be dropped
//! search    breadth-first search through all states; gives the shortest way to a wrong one
//! suite     the configurations that are checked, and the outcome that each has to have
//! trace     a way through the states in words
//! ```
//!
//! Everything is exact: states are compared whole and not by a hash, and the search ends only when there is no state left or when it finds
//! a wrong one.

mod mutation;
mod search;
mod state;
mod suite;
mod system;
mod trace;

pub use mutation::Mutation;
pub use search::{Outcome, Progress, Verdict, search};
pub use state::State;
pub use suite::{Case, Expectation, Size, cases};
pub use system::{Action, Bounds, Configuration, Sight, Subject};
pub use trace::trace;
