//! Where keys already are, and how they get into a filter.
//!
//! ```text
//!  Source --parts--> Cursor --Batch, Bookmark--> Sink      one lane for each part that is read
//!                                  |
//!                                  '--> Checkpoint: what was acknowledged, so that a load that was killed goes on
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `source.rs`, `batch.rs` | the seam: what a place with keys has to do |
//! | `files.rs`, `files/` | text, CSV and JSON, compressed or not, one file or many; Parquet |
//! | `sql.rs`, `sql/` | tables and queries, read by ranges of a unique key |
//! | `engines.rs`, `engines/` | names of keys and members of sets in Redis, messages of a topic of Kafka |
//! | `sink.rs`, `sink/` | the other seam: where keys go |
//! | `loader.rs`, `lane.rs`, `progress.rs` | from one to the other, and what can be told of it meanwhile |
//! | `checkpoint.rs`, `journal.rs`, `plan.rs` | what survives a kill, and what follows from it |
//! | `size.rs`, `count.rs`, `distinct.rs` | how large a filter has to be |
//! | `throttle.rs`, `pause.rs` | as fast as one is allowed to, and pauses between tries |
//! | `limits.rs` | every limit |

mod batch;
mod checkpoint;
mod count;
mod distinct;
pub mod engines;
mod error;
pub mod files;
mod journal;
mod lane;
pub mod limits;
mod loader;
mod pause;
mod plan;
mod progress;
pub mod sink;
pub mod size;
mod source;
#[cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "every database uses a part of it")
)]
pub mod sql;
mod throttle;

pub use batch::Batch;
pub use count::{Counted, count};
pub use distinct::Distinct;
pub use error::{Error, Result};
pub use loader::{Loader, Options, Outcome};
pub use plan::Counts;
pub use progress::Progress;
pub use source::{Bookmark, Cursor, Part, Source};
