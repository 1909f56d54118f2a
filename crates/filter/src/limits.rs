//! All limits of this crate, in one place.

use crate::{Error, Result};

/// Most elements that a filter can be planned for.
pub const CAPACITY_MAX: u64 = 1_000_000_000_000;
/// Strictest error rate that a filter can be planned for.
pub const ERROR_MIN: f64 = 1e-9;
/// Loosest error rate that a filter can be planned for.
pub const ERROR_MAX: f64 = 0.5;
/// Most shards that one plan is split into.
pub const SHARDS_MAX: u32 = 65_536;
/// Most lines that one key touches in the blocked layout.
pub const BANKS_MAX: u32 = 8;
/// Most hash functions of a hosted classic filter; Guava keeps the number in one byte.
pub const HASHES_MAX: u32 = 255;

/// Bounds on what may be taken from outside: checked before memory is reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest array of one filter, all links of a chain together.
    pub filter_bytes_max: u64,
    /// Most links in a chain of sub-filters.
    pub chain_links_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { filter_bytes_max: 64 << 30, chain_links_max: 1024 }
    }
}

impl Limits {
    pub(crate) fn check_bytes(&self, bytes: u128) -> Result<u64> {
        match u64::try_from(bytes) {
            Ok(fitting) if fitting <= self.filter_bytes_max => Ok(fitting),
            _ => Err(Error::TooLarge {
                what: "filter size in bytes",
                asked: bytes,
                limit: self.filter_bytes_max,
            }),
        }
    }

    pub(crate) fn check_links(&self, links: u32) -> Result<u32> {
        if links > self.chain_links_max {
            return Err(Error::TooLarge {
                what: "number of sub-filters",
                asked: links.into(),
                limit: self.chain_links_max.into(),
            });
        }
        Ok(links)
    }
}
