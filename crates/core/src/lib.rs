//! The engine of Umbel: a log of fingerprints, and everything that is folded from it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine`] | all of it joined: filters that lose nothing |
//! | [`log`] | the seam to a message log, its contract as a suite, the log in files |
//! | [`fold`] | what a slot's log comes to, entry by entry |
//! | [`definition`] | what a filter is, as the log defines it |
//! | [`entry`] | what stands in the log: batches of fingerprints, and definitions |
//! | [`archive`] | the compacted past of a slot's log: sorted runs of fingerprints in blobs |
//! | [`version`] | a filter as it was at one moment, in chunks that anybody may keep |
//! | [`feed`] | what changed a filter later, frame by frame |
//! | [`copy`] | a filter in another process, from a version and a feed |
//! | [`ring`] | which members of a cluster host which slots |
//! | [`cluster`] | who the nodes are and who hosts what, as all of them know it |
//! | [`agreement`] | what all nodes of a deployment agree on |
//! | [`registry`] | the seam to a registry, its contract as a suite, the embedded one |
//! | [`blobs`] | blobs in a folder, the embedded object store |
//! | [`url`] | where an engine is that a plane stands on |
//! | [`budget`] | memory, counted before it is taken |
//! | [`trend`] | how fast a filter fills, and when it will be full |
//! | [`seal`] | a checksum over what processes tell each other |
//! | [`clock`], [`random`] | the seams to time and chance |
//! | [`disk`] | the seam to files, with a disk that can fail on purpose |
//!
//! The crate names no broker, no HTTP and no RESP.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod agreement;
pub mod archive;
pub mod blobs;
pub mod budget;
pub mod clock;
pub mod cluster;
pub mod copy;
pub mod definition;
pub mod disk;
pub mod engine;
pub mod entry;
mod error;
pub mod feed;
mod fields;
pub mod fold;
pub mod limits;
pub mod log;
mod position;
pub mod random;
pub mod registry;
pub mod ring;
pub mod seal;
pub mod trend;
mod upload;
pub mod url;
pub mod version;

pub use error::{Error, Result};
pub use position::Position;
