//! Set-membership filters: "definitely not" or "maybe", at memory speed.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `family` | from key bytes to a [`Fingerprint`] |
//! | `spec`, `sizing` | what a filter is meant to be, and the [`Geometry`] that holds it to that |
//! | `raw`, `array` | lines of memory and vector instructions; blocks and change tracking |
//! | `blocked` | the native layout: bits and counters |
//! | `condensed` | what the native layout sees of a key, in half the bytes |
//! | `classic`, `chain` | the layouts of Guava, Redisson and RedisBloom |
//! | `filter` | [`Filter`], which joins a family and a layout |
//! | `placement` | where a key lies in the arrays, for people |
//! | [`mod@format`] | files and byte streams: native, Guava, RedisBloom, Redisson |
//!
//! The crate opens no file or socket, starts no thread and asks no clock.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod array;
mod blocked;
mod chain;
mod classic;
mod condensed;
mod error;
mod family;
mod filter;
mod fingerprint;
pub mod format;
pub mod limits;
mod placement;
mod raw;
mod sizing;
mod spec;
mod sync;

pub use array::{BLOCK_BYTES, block_sum};
pub use condensed::Condensed;
pub use error::{Error, Result};
pub use family::{Family, Hasher, Secret};
pub use filter::{Filter, Stats};
pub use fingerprint::Fingerprint;
pub use limits::Limits;
pub use placement::{Placement, Touched, TouchedLine};
pub use sizing::{Geometry, Plan};
pub use spec::{Counter, Kind, Layout, Spec};
