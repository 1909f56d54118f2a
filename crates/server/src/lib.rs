//! The doors of Umbel: RESP for every Redis client, HTTP for health and metrics.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`acl`] | Redis's users: who may do what |
//! | [`config`] | every setting, where its value came from, and Redis's `CONFIG` |
//! | [`tls`] | certificates, read again when they change |
//! | [`http`] | health and metrics |
//! | [`metrics`] | what is counted, and Prometheus's page |
//! | [`glob`] | Redis's patterns |
//! | [`digest`] | passwords as they are kept |
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod acl;
pub mod config;
pub mod digest;
pub mod glob;
pub mod http;
pub mod metrics;
pub mod tls;
