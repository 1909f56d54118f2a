//! The doors of Umbel: RESP for every Redis client, HTTP for health and metrics.
//!
//! ```text
//!  socket --connection--> parser --session--> commands --> engine
//!             |                       |
//!             | event_loop: a         '-- runs: commands in a row for one filter are one batch,
//!             | thread each               and batch: adds of all clients in one turn are one append
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod batch;
pub mod clients;
pub mod commands;
mod connection;
mod event_loop;
mod latency;
mod loading;
pub mod metrics;
mod names;
pub mod node;
mod pause;
mod process;
pub mod resp;
mod saves;
pub mod server;
mod session;
mod slowlog;
