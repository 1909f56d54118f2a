//! The other seam: where keys go.

mod server;

use bytes::Bytes;

use crate::{Batch, Result};

pub use server::{Facts, Rebuild, ServerSink};

/// Who sends, and how often that one has sent: the same again has no second effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// A number that nobody else has.
    pub session: u64,
    /// Counts up with every batch of the session.
    pub sequence: u64,
}

/// Keys as they are sent. Whoever has it can send it again, without the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// How many keys are in it.
    pub keys: u64,
    /// The keys, as the sink understands them.
    pub bytes: Bytes,
}

/// A place that takes keys.
///
/// - [`send`](Self::send) returns when the keys will not be lost any more.
/// - A batch that is sent again with the same [`Who`], by this process or another, has no second effect, as long as nothing of
///   the same session was sent in between.
/// - [`Error::Retry`](crate::Error::Retry) means that the same may be sent again; [`Error::Full`](crate::Error::Full) that
///   there is no more room.
pub trait Sink: Send + Sync {
    /// How keys are packed here, so that nobody sends what was packed otherwise.
    fn form(&self) -> String;

    /// Makes a batch ready to be sent.
    fn pack(&self, batch: &Batch) -> Result<Packed>;

    /// Adds keys, and says how many of them were new.
    fn send(&self, who: Who, packed: &Packed) -> Result<u64>;
}
