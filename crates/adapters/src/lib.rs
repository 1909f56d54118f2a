//! The planes on engines that people already run, chosen by URL.
//!
//! | plane | schemes | opened by |
//! | --- | --- | --- |
//! | log | `kafka`, `nats`, `rabbitmq`, `redis` | [`open_log`] |
//! | blobs | `s3`, `gs`, `az`, `redis`, `file` | [`open_blobs`] |
//! | registry | `etcd`, `redis`, `zookeeper` | [`open_registry`] |
//!
//! Every engine is one file and one Cargo feature; none is on by default. What the engine at the other end promises is found out
//! when it is opened, and said in one sentence ([`About`]).
//!
//! A plane stays with the runtime in which it was opened, which needs threads of its own. It may be called from everywhere.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

mod about;
#[cfg(any(
    feature = "etcd",
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "zookeeper"
))]
mod access;
mod anywhere;
#[cfg(feature = "cloud")]
mod cloud;
pub mod connect;
#[cfg(feature = "etcd")]
mod etcd;
mod folder;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod open;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
mod pack;
mod probe;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use about::{About, Durability, Opened};
pub use open::{open_blobs, open_log, open_registry};
pub use probe::{Plane, Report, probe};
pub use umbel_core::url::Url;
