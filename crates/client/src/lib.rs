//! Replicas: copies of a filter inside a user's own process. They answer without the network, at memory speed, and follow a
//! server in the background.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use umbel_client::{Answer, Options, Replica, Strategy};
//!
//! # async fn example() -> umbel_client::Result<()> {
//! let options = Options::new("http://127.0.0.1:6381", "urls", Strategy::delta())
//!     .folder("/var/lib/app/urls") // the copy, its position and unsent keys survive a restart
//!     .stale_after(Duration::from_secs(30)); // cut off for longer, it does not say "absent" any more
//! let replica = Replica::open(options).await?;
//!
//! match replica.contains("https://example.com/") {
//!     Answer::Absent => println!("nobody has seen it: certain"),
//!     Answer::Maybe => println!("look it up"),
//!     Answer::Unknown => println!("the copy is too old to say, or the filter is gone"),
//! }
//!
//! replica.add(&["https://example.com/"]).await?; // visible here now, at the centre soon
//! let position = replica.flush().await?; // the centre has it
//! replica.reached(&position).await?; // and so has the copy
//! # Ok(())
//! # }
//! ```
//!
//! | strategy | what happens | what it may be relied on for |
//! | --- | --- | --- |
//! | [`Strategy::Pull`] | asks for a new version on a timer | all that was acknowledged two intervals ago |
//! | [`Strategy::Notify`] | a notice says that there is one; chunks come from the nearest source | seconds |
//! | [`Strategy::Delta`] | every change as it comes | as old as the way takes |
//! | [`Strategy::Push`] | the same, and versions come by themselves | as old as the way takes |
//! | [`Strategy::Strong`] | a version that a majority has; all switch together | what one says, no other contradicts |
//!
//! Whatever the strategy, own adds are visible at once, are kept until the centre has them, and have one effect however often
//! they are sent. Cut off, a replica goes on answering, unless [`Options::stale_after`] says otherwise.
//!
//! [`blocking::Replica`] is the same for programs without a runtime.
//!
//! Where copies are too large for a process, `Router` (feature `router`) asks a cluster, each item at the node that has it.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admin;
mod backoff;
pub mod blocking;
mod coding;
mod error;
mod fetch;
mod heartbeat;
mod http;
mod identity;
mod lease;
pub mod limits;
mod look;
mod options;
mod overlay;
#[cfg(feature = "peer")]
mod peer;
mod reader;
mod replica;
#[cfg(feature = "router")]
mod router;
mod shared;
mod source;
mod status;
mod steady;
mod store;
mod strategy;
mod tls;
mod trust;
mod view;
mod web;
mod writer;

pub use admin::Server;
pub use error::{Error, Result};
pub use http::escaped;
pub use look::Look;
pub use options::{Options, Strategy, WhenStale};
pub use reader::Reader;
pub use replica::Replica;
#[cfg(feature = "router")]
pub use router::Router;
pub use status::{Refused, Status};
pub use trust::Trust;
pub use umbel_core::engine::{Answer, Token};
pub use web::{Body, Web};
