//! RESP, the protocol of Redis, versions 2 and 3.

mod parser;
mod reply;

pub use parser::{Command, Limits, OwnedCommand, Parser, ProtocolError};
pub use reply::{Protocol, Reply};
