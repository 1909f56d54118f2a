//! Lookups across domains: deployments that do not share a database, each with filters of its own. A reader has a key and wants to
//! know which of them may hold the record, without asking every one.
//!
//! ```text
//!  key --hashed once--> the local domain's filter --maybe--> the local source: the record, or a false positive found out
//!                          | absent or unknown
//!                          v
//!                       all other domains: filters in memory, and a question over the network where there is none
//!                          v
//!                       absent, maybe or unknown with its age, the likeliest first
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `keys.rs` | keys of a question, hashed once for all filters that hash alike |
//! | `held.rs`, `copied.rs`, `remote.rs` | the two ways to ask a domain: in memory, and over the network |
//! | `domain.rs`, `hits.rs` | a domain, and how often it had what it might have had |
//! | `catalog.rs`, `answers.rs` | all domains together, and what they say |
//! | `source.rs`, `source/` | where a domain's records are: SQL, HTTP |
//! | `fetch.rs` | lookups that end with the record, and find false positives out |
//! | `hot.rs`, `hot/` | answers that are asked for again and again: here, and shared with others |
//! | `counts.rs` | how often keys are asked for, and which most often |
//! | `changes.rs`, `changes/` | records that are added, changed and erased, and the filter that hears of it once |
//! | `roster.rs`, `roster/` | which domains there are, as the registry has it |
//! | `service.rs`, `service/` | all of it for a server: catalogs from settings, others that come and go |
//! | `limits.rs` | every limit |
//!
//! ```
//! use std::sync::Arc;
//! use umbel_domains::{Answer, Catalog, Domain};
//! use umbel_filter::{Filter, Limits, Spec};
//!
//! let [north, south] = [(); 2].map(|()| Arc::new(Filter::new(&Spec::counting(1_000, 0.001), &Limits::default()).unwrap()));
//! south.insert("1984-17")?;
//! let catalog = Catalog::new(Domain::new("north")?.held(north));
//! catalog.join(Domain::new("south")?.held(south))?;
//!
//! let standings = catalog.look("1984-17");
//! assert_eq!((&*standings[0].domain, standings[0].answer), ("south", Answer::Maybe));
//! assert_eq!((&*standings[1].domain, standings[1].answer), ("north", Answer::Absent));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod answers;
mod catalog;
pub mod changes;
mod copied;
mod counts;
mod domain;
mod error;
mod fetch;
mod held;
mod hits;
mod hot;
mod keys;
pub mod limits;
mod remote;
pub mod roster;
pub mod service;
pub mod source;

pub use answers::{Answers, Origin, Standing};
pub use catalog::Catalog;
pub use copied::CopiedFilter;
pub use counts::Counts;
pub use domain::Domain;
pub use error::{Error, Result};
pub use fetch::{Fetched, Step};
pub use held::{EngineFilter, Held};
#[cfg(feature = "redis")]
pub use hot::RedisAnswers;
pub use hot::{Hot, HotSettings, SharedAnswers};
pub use keys::Keys;
pub use remote::{Remote, ServerFilter, Told};
pub use source::{Field, Record, Source, Value};
pub use umbel_core::engine::Answer;
