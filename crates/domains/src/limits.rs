//! All limits of this crate, in one place.

use std::time::Duration;

/// Longest name of a domain.
pub const NAME_BYTES_MAX: usize = 128;
/// Most domains besides the local one.
pub const DOMAINS_MAX: usize = 1024;
/// Keys of a batch that are hashed and looked up together: their fingerprints fit into the nearest cache.
pub const CHUNK_KEYS: usize = 1024;
/// Longest time that a lookup may wait for others.
pub const DEADLINE_MAX: Duration = Duration::from_secs(600);
/// Looks into a domain's source that are remembered; older ones count less and less.
pub const LOOKS_MAX: u32 = 1 << 20;
/// Longest key of a record that is fetched.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Largest record that comes over HTTP.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Most connections to the database of a domain.
pub const CONNECTIONS_MAX: usize = 64;
/// Most keys that are listed as asked for most often.
pub const TOP_MAX: usize = 10_000;
/// Longest key in that list; longer ones are counted and not listed.
pub const TOP_KEY_BYTES_MAX: usize = 1 << 10;
/// Least and most memory for counts.
pub const COUNTS_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 30;
/// Most counted accesses; then all counts are halved.
pub const ACCESSES_MAX: u64 = 1 << 31;
/// Most changes that a filter is told at once: what one request to a server takes.
pub const BATCH_CHANGES_MAX: usize = umbel_client::limits::REQUEST_KEYS_MAX;
/// Most bytes of their keys. A batch ends with the key that reaches it.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Most filters that a domain publishes.
pub const PUBLISHED_MAX: usize = 1024;
/// Largest record of a domain in the registry: far below what registries take.
pub const ANNOUNCED_BYTES_MAX: usize = 512 << 10;
/// Longest address of a domain.
pub const ADDRESS_BYTES_MAX: usize = 300;
/// Longest time that a lookup waits for answers which others have kept.
pub const SHARED_WAIT_MAX: Duration = Duration::from_millis(5);
/// How long nobody asks for them after they could not be had.
pub const SHARED_FAILED_REST: Duration = Duration::from_secs(1);
/// Most writes of them that are under way.
pub const SHARED_WRITES_MAX: usize = 256;
/// Largest record that is shared.
pub const SHARED_BYTES_MAX: usize = 1 << 20;
