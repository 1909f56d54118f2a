//! All limits of this crate, in one place.

/// Largest entry of a log.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Most partitions of a log.
pub const PARTITIONS_MAX: u32 = 4096;
/// Smallest segment of a file log: it has to hold an entry.
pub const SEGMENT_BYTES_MIN: u64 = 2 << 20;
/// Largest segment of a file log.
pub const SEGMENT_BYTES_MAX: u64 = 256 << 20;
/// Most fingerprints in one entry.
pub const FINGERPRINTS_MAX: usize = (ENTRY_BYTES_MAX - 36) / 16;
/// Longest name in a registry.
pub const REGISTRY_KEY_BYTES_MAX: usize = 512;
/// Largest value in a registry: what etcd and ZooKeeper take, less their overhead.
pub const REGISTRY_VALUE_BYTES_MAX: usize = 1_000_000;
/// Most names in the embedded registry.
pub const REGISTRY_NAMES_MAX: usize = 100_000;
/// Largest file of the embedded registry.
pub const REGISTRY_BYTES_MAX: usize = 256 << 20;
/// Longest name of a filter.
pub const FILTER_NAME_BYTES_MAX: usize = 1024;
/// Most bytes that a door may remember of a filter.
pub const LABELS_BYTES_MAX: usize = 256;
/// Most buckets of a sliding window: a lookup asks all of them.
pub const WINDOW_BUCKETS_MAX: u32 = 64;
/// Longest sliding window: a hundred years.
pub const WINDOW_MILLIS_MAX: u64 = 100 * 366 * 24 * 3600 * 1000;
/// Largest chunk of a dump.
pub const DUMP_CHUNK_BYTES_MAX: usize = 4 << 20;
/// Largest header of a dump: enough for all shards of a filter with the most layers.
pub const DUMP_HEADER_BYTES_MAX: usize = 64 << 20;
/// Most keys that a node is told at once of a filter's part on another node.
pub const KEYS_PAGE_MAX: usize = 64 << 10;
/// Most keys that may be removed from a filter, and stay away, while another one is filled to take its place.
pub const REBUILD_REMOVALS_MAX: usize = 1 << 20;
/// Most sessions that a slot remembers.
pub const SESSIONS_MAX: usize = 4096;
/// Most bytes of answers that a slot remembers for its sessions.
pub const SESSION_ANSWER_BYTES_MAX: usize = 1 << 20;
/// Least growth of a filter: less would be over at once.
pub const GROWTH_PERCENT_MIN: u32 = 110;
/// Most growth of a filter, which is `RedisBloom`'s largest expansion.
pub const GROWTH_PERCENT_MAX: u32 = 3_276_800;
/// Most samples that are kept of what a filter held.
pub const TREND_SAMPLES_MAX: usize = 48;
/// Steps of growth that an engine remembers until somebody takes them.
pub const STEPS_UNTAKEN_MAX: usize = 1024;
/// Most slots of a deployment; entries have two bytes for a slot.
pub const SLOTS_MAX: u32 = 4096;
/// Most members of a cluster; tables have two bytes for a member.
pub const MEMBERS_MAX: usize = 4096;
/// Longest name of a member, or of its zone.
pub const MEMBER_NAME_BYTES_MAX: usize = 128;
/// Largest weight of a member, in points on the ring.
pub const WEIGHT_MAX: u32 = 10_000;
/// Longest address of a node.
pub const ADDRESS_BYTES_MAX: usize = 300;
/// Largest record of a node: names, an address, a digit for four partitions, and the nodes that it does not reach.
pub const RECORD_BYTES_MAX: usize = 16 << 10;
/// Most nodes that a record reports as not reached.
pub const UNREACHED_MAX: usize = 64;
/// Most layers of a filter that grows without its keys: each doubles it at least once in seven.
pub const LAYERS_MAX: usize = 64;
/// Largest manifest of a slot: it is read and written at once.
pub const MANIFEST_BYTES_MAX: usize = 256 << 20;
/// Bytes of a part of a blob that is uploaded: stores ask for 5 MiB at least, and some for equal parts.
pub const UPLOAD_PART_BYTES: usize = 8 << 20;
/// Most pages of a run, 64 GiB: its parts stay under the 10,000 that S3 takes, and its index at 128 MiB.
pub const RUN_PAGES_MAX: u64 = 1 << 24;
/// Most sections of a run: far over the filters of a slot, and their table takes 32 MiB at most.
pub const RUN_SECTIONS_MAX: usize = 1 << 20;
/// Most runs that are merged at once: each takes up to 4 MiB of memory meanwhile.
pub const RUNS_MERGED_MAX: usize = 64;
/// Most bytes of a run that a lookup reads at a time, gaps that a store reads along with them included.
pub const LOOKUP_BYTES_MAX: u64 = 32 << 20;
