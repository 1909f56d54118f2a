//! The doors of Umbel: RESP for every Redis client, HTTP for health and metrics.
//!
//! ```text
//!  socket --connection--> parser --session--> commands --> engine
//!             |                       |
//!             | event_loop: a         '-- runs: commands in a row for one filter are one batch,
//!             | thread each               and batch: adds of all clients in one turn are one append
//! ```

mod batch;
pub mod clients;
pub mod commands;
mod connection;
mod event_loop;
mod loading;
pub mod metrics;
mod names;
pub mod node;
pub mod resp;
pub mod server;
mod session;
mod slowlog;
mod token;
