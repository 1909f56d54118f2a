//! All limits of this crate, in one place.

use std::time::Duration;

/// Most keys of a request to the server.
pub const REQUEST_KEYS_MAX: usize = 10_000;
/// Most keys that wait to be sent: 64 MiB.
pub const SPOOL_KEYS_MAX: usize = 4 << 20;
/// Most own keys that are kept although the centre has them, until the copy does: 16 MiB.
pub(crate) const ANSWERED_KEYS_MAX: usize = 1 << 20;
/// Memory of a copy, unless the options say otherwise.
pub const MEMORY_BYTES_MAX: u64 = 64 << 30;
/// Chunks that are fetched at a time.
pub(crate) const FETCHES_MAX: usize = 8;
/// Longest answer in JSON.
pub(crate) const JSON_BYTES_MAX: usize = 1 << 20;
/// Longest file with certificates of authorities.
pub(crate) const CERTIFICATES_BYTES_MAX: u64 = 16 << 20;
/// Longest line of a stream of events.
pub(crate) const EVENT_BYTES_MAX: usize = 64 << 10;
/// A journal of this size, or of a quarter of the arrays if that is more, makes room for a new version.
pub(crate) const JOURNAL_BYTES_MAX: u64 = 8 << 20;
/// From this size on a spool goes on in another file.
pub(crate) const SPOOL_FILE_BYTES: u64 = 4 << 20;
/// Largest file of a spool that is read: twice what the most keys take, and what one write brings.
pub(crate) const SPOOL_FILE_BYTES_MAX: u64 = 256 << 20;
/// Most other replicas that chunks are asked of.
pub(crate) const PEERS_MAX: usize = 16;
/// Most connections that a replica serves to others.
#[cfg(feature = "peer")]
pub(crate) const PEER_CONNECTIONS_MAX: usize = 64;

/// How long a connection may take to come about.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take to begin.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an answer may pause. Streams show a sign of life every second.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A frame of a feed comes at least as fast as this: 16 KB a second.
pub(crate) const FRAME_BYTES_PER_MS: u64 = 16;
/// An answer that has an end, too; as many of them as are fetched at a time share a line.
pub(crate) const ANSWER_BYTES_PER_MS: u64 = FRAME_BYTES_PER_MS / FETCHES_MAX as u64;
/// How long a peer may take before the centre is asked instead.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a replica with a folder asks which filter has its name, before it answers as if the server were away.
pub(crate) const IDENTITY_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a replica tells how it is.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);
/// The first pause before another try.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest pause before another try.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// How long something may take of which so many bytes came. What pauses for too short a time to be given up may still never end.
pub(crate) fn patience(bytes: usize, bytes_per_ms: u64) -> Duration {
    STALL_TIMEOUT + Duration::from_millis(bytes as u64 / bytes_per_ms)
}
