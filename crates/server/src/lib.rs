//! The doors of Umbel: RESP for every Redis client; HTTP for everybody else, for health and for metrics.
//!
//! ```text
//!  socket --connection--> parser --session--> commands --> engine
//!             |                       |
//!             | event_loop: a         '-- runs: commands in a row for one filter are one batch,
//!             | thread each               and batch: adds of all clients in one turn are one append,
//!                                         lookups one question to each node
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`server`] | sockets and threads around a node |
//! | [`node`] | what all connections share |
//! | [`resp`], [`commands`] | the protocol; a file for each family of commands |
//! | [`clients`] | who is connected |
//! | [`acl`] | Redis's users: who may do what |
//! | [`config`] | every setting, where its value came from, and Redis's `CONFIG` |
//! | [`tls`] | certificates, read again when they change |
//! | [`http`] | connections of HTTP, health and metrics |
//! | [`api`] | filters and their keys over HTTP |
//! | [`sync`] | who has copies of filters, and what they are told |
//! | [`cluster`] | the other nodes, if there are any |
//! | [`lookup`] | what is asked of other domains: a seam, behind which somebody else stands |
//! | [`metrics`] | what is counted, and Prometheus's page |
//! | [`glob`] | Redis's patterns |
//! | [`digest`] | passwords as they are kept |
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod acceptor;
pub mod acl;
pub mod api;
mod batch;
pub mod chores;
pub mod clients;
pub mod cluster;
pub mod commands;
pub mod config;
mod connection;
mod console;
pub mod digest;
mod event_loop;
mod files;
pub mod glob;
mod growth;
pub mod http;
mod latency;
mod loading;
pub mod logging;
pub mod lookup;
mod making;
pub mod metrics;
mod names;
pub mod node;
mod pause;
mod process;
mod rebuild;
mod releases;
pub mod resp;
mod saves;
pub mod server;
mod session;
mod slowlog;
pub mod sync;
pub mod tls;
mod totals;
mod work;
