//! Definitions: what the log says that a filter is. `docs/formats.md` draws them.

use bytes::Bytes;
use umbel_filter::{Layout, Plan, Spec};

use crate::limits::FILTER_NAME_BYTES_MAX;
use crate::{Error, Result};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;

/// What a filter is, as the log defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What users call it.
    pub name: String,
    /// Kind, layout, family, capacity and error rate of the whole filter.
    pub spec: Spec,
    /// In how many slots it has a shard: one, or all.
    pub shards: u32,
    /// Whether its fingerprints are kept, so that it can be rebuilt in any other size.
    pub retain: bool,
}

impl Definition {
    /// The bytes to put into an entry.
    pub fn encode(&self) -> Result<Bytes> {
        self.check()?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + Spec::BYTES + self.name.len());
        bytes.extend([VERSION, u8::from(self.retain), 0, 0]);
        bytes.extend(self.shards.to_le_bytes());
        bytes.extend(self.spec.to_bytes());
        bytes.extend(self.name.as_bytes());
        Ok(bytes.into())
    }

    /// Reads what [`encode`](Self::encode) gave.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let invalid = |why: String| Error::Invalid(format!("a definition of {} bytes: {why}", bytes.len()));
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(invalid("it is shorter than any".into()));
        };
        let Some((spec, name)) = rest.split_first_chunk::<{ Spec::BYTES }>() else {
            return Err(invalid("it is shorter than any".into()));
        };
        let [VERSION, retain @ (0 | 1), 0, 0, ..] = *head else {
            return Err(invalid("its version or its flags are unknown".into()));
        };
        let definition = Self {
            name: std::str::from_utf8(name).map_err(|error| invalid(error.to_string()))?.to_owned(),
            spec: Spec::from_bytes(*spec).map_err(|error| invalid(error.to_string()))?,
            shards: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            retain: retain == 1,
        };
        definition.check()?;
        Ok(definition)
    }

    fn check(&self) -> Result<()> {
        self.spec.check().map_err(|error| Error::Invalid(error.to_string()))?;
        if self.name.is_empty() || self.name.len() > FILTER_NAME_BYTES_MAX {
            let bytes = self.name.len();
            let why = format!("a filter's name of {bytes} bytes; it must be 1 to {FILTER_NAME_BYTES_MAX}");
            return Err(Error::Invalid(why));
        }
        if self.shards != 1 && matches!(self.spec.layout, Layout::RedisBloom { .. }) {
            return Err(Error::Invalid(format!("{} shards; a chain of sub-filters has one", self.shards)));
        }
        Plan::new(&self.spec, self.shards).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(())
    }
}
