//! Lookups across domains, as the doors need them. This crate knows nothing of other domains: whoever runs the server and knows them
//! stands behind [`Lookups`].

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use umbel_core::Result;
use umbel_core::engine::Answer;

/// Longest time that somebody may allow for a lookup.
pub const WITHIN_MAX: Duration = Duration::from_secs(600);
/// Most keys that are listed as asked for most often, and how many are if nobody says.
pub const HOTTEST_MAX: usize = 1_000;
/// How many are listed if nobody says.
pub const HOTTEST: usize = 10;

/// What is asked besides the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Whether the record is wanted.
    pub fetch: bool,
    /// Whether only this domain is asked.
    pub local: bool,
    /// How long it may take.
    pub within: Option<Duration>,
}

/// Whoever knows other domains.
///
/// Nothing here answers `Absent` unless that is certain as of the age; a domain that cannot be asked is `Unknown`. Where there is no such
/// catalog, there is no answer.
#[async_trait]
pub trait Lookups: Debug + Send + Sync + 'static {
    /// The name of this domain.
    fn domain(&self) -> &str;

    /// What is known of a key. It may be called on an event loop, and ends in time whatever others do.
    async fn ask(&self, catalog: &str, key: &[u8], question: Question) -> Result<Option<Found>>;

    /// The keys that were asked for most often.
    fn hottest(&self, catalog: &str, most: usize) -> Option<Hottest>;
}

/// What a lookup came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// What is known of every domain that was asked, the likeliest first.
    pub standings: Vec<Standing>,
    /// The record and the domain that has it, if it was wanted and found.
    pub record: Option<(String, Record)>,
    /// What was asked over the network and of sources, in the order in which it ended.
    pub steps: Vec<Step>,
    /// How long the filters in memory took.
    pub looked: Duration,
    /// How long all of it took.
    pub took: Duration,
}

impl Found {
    /// Whether nobody has it: certain as of the ages.
    pub fn is_absent(&self) -> bool {
        self.record.is_none() && self.standings.iter().all(|standing| standing.answer == Answer::Absent)
    }
}

/// What is known of a key in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The domain.
    pub domain: String,
    /// What it says.
    pub answer: Answer,
    /// How old that is at most; none if nobody knows.
    pub age: Option<Duration>,
    /// Who said it.
    pub origin: Origin,
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A filter in this process.
    Filter,
    /// The domain, over the network.
    Network,
    /// The source of its records.
    Source,
    /// What its source said a short time ago.
    Cache,
}

impl Origin {
    /// As every door says it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Network => "network",
            Self::Source => "source",
            Self::Cache => "cache",
        }
    }
}

/// A question to a domain, or to its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The domain.
    pub domain: String,
    /// What was asked.
    pub origin: Origin,
    /// When it began, since the lookup did.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Why it came to nothing.
    pub failed: Option<String>,
}

/// A record as its source gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A row of a database: its columns and their values.
    Row(Vec<(String, Value)>),
    /// What a server sent.
    Body {
        /// Its type, as the server calls it.
        kind: Option<String>,
        /// The bytes.
        bytes: Bytes,
    },
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A whole number beyond what the other one can hold.
    Uint(u64),
    /// A number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes that are no text.
    Bytes(Vec<u8>),
}

/// The keys that were asked for most often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hottest {
    /// Keys with about how often, the most often first.
    pub keys: Vec<(Vec<u8>, u64)>,
    /// How many questions were counted.
    pub accesses: u64,
}
