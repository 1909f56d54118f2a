//! All limits of this crate, in one place.

use std::time::Duration;

/// Most keys of a batch: what one request to a server takes.
pub const BATCH_KEYS_MAX: usize = umbel_client::limits::REQUEST_KEYS_MAX;
/// Most bytes of a batch's keys. A batch ends with the key that reaches it.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// Longest line of text, record of CSV or object of JSON, which a key is found in.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Most files that a pattern may find.
pub const FILES_MAX: usize = 100_000;
/// Most parts that a source is read in.
pub const PARTS_MAX: usize = FILES_MAX;
/// Most parts that are read at the same time.
pub const LANES_MAX: usize = 64;
/// Longest bookmark, or description of a part.
pub const BOOKMARK_BYTES_MAX: usize = 64 << 10;
/// Largest checkpoint that is read.
pub const CHECKPOINT_BYTES_MAX: u64 = 256 << 20;
/// How deep a field of JSON may be.
pub const FIELD_DEPTH_MAX: usize = 32;
/// Most columns that make a key together.
pub const KEY_COLUMNS_MAX: usize = 16;
/// Rows with the key of a record that are looked at: some databases take several for alike that are not the same bytes.
pub const ALIKE_ROWS_MAX: usize = 16;
/// Most places for the key in a query.
pub const MARKS_MAX: usize = 64;
/// How often a checkpoint is written.
pub const CHECKPOINT_EVERY: Duration = Duration::from_millis(500);
/// How long nothing has come from a database, or been taken by it, until it is asked whether it is there.
pub const SILENCE: Duration = Duration::from_secs(15);
/// How often it is asked before it is taken for gone.
pub const SILENCE_PROBES: u32 = 3;
/// The pause between these questions.
pub const SILENCE_PROBE_EVERY: Duration = Duration::from_secs(5);
/// How long a database that is there may take for its next bytes, where its client can be told so. A query may have to sort everything first.
pub const ANSWER_MAX: Duration = Duration::from_secs(600);
/// The first pause before another try.
pub const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest pause before another try.
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
