//! Definitions: what the log says that a filter is. `docs/formats.md` draws them.

use bytes::Bytes;
use umbel_filter::{Layout, Plan, Spec};
use xxhash_rust::xxh3::xxh3_64;

use crate::limits::{FILTER_NAME_BYTES_MAX, GROWTH_PERCENT_MAX, GROWTH_PERCENT_MIN};
use crate::{Error, Result};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;

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
    /// What happens when it fills up.
    pub growth: Growth,
    /// Counts the sizes that the filter was given: each next definition has a greater number.
    pub generation: u32,
}

/// What happens when a filter fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It takes no more.
    Fixed,
    /// It grows to so many percent of its size.
    Percent(u32),
}

impl Default for Growth {
    fn default() -> Self {
        Self::Percent(200)
    }
}

impl Definition {
    /// A filter in one slot with defaults for everything else.
    pub fn new(name: impl Into<String>, spec: Spec) -> Self {
        Self { name: name.into(), spec, shards: 1, retain: true, growth: Growth::default(), generation: 0 }
    }

    /// The slot that knows the filter by its name, and holds it if it is small.
    pub fn home(&self, slots: u32) -> u16 {
        home(&self.name, slots)
    }

    /// Whether the filter consists of sub-filters that it makes by itself.
    pub(crate) fn is_chain(&self) -> bool {
        matches!(self.spec.layout, Layout::RedisBloom { .. })
    }

    /// The same filter in another size, or why that cannot be.
    pub fn resized(&self, capacity: u64, error: f64) -> Result<Self> {
        let next = Self {
            spec: Spec { capacity, error, ..self.spec },
            generation: self.generation.saturating_add(1),
            ..self.clone()
        };
        next.check()?;
        next.check_follows(self).map_err(Error::Invalid)?;
        Ok(next)
    }

    /// Says why this cannot be the next definition of a filter, if it cannot.
    pub(crate) fn check_follows(&self, now: &Self) -> Result<(), String> {
        let same = Self {
            spec: Spec { capacity: now.spec.capacity, error: now.spec.error, ..self.spec },
            ..self.clone()
        };
        let expected = Self { generation: self.generation, growth: self.growth, ..now.clone() };
        if same != expected || self.generation <= now.generation {
            return Err(format!(
                "the filter {} is defined otherwise, in generation {}",
                now.name, now.generation
            ));
        }
        if self.is_chain() {
            return Err("a chain of sub-filters grows by itself only".into());
        }
        let grows =
            self.spec.capacity > now.spec.capacity && self.spec.error.to_bits() == now.spec.error.to_bits();
        if !self.retain && !grows {
            return Err("its keys were not kept: it can only grow, at the same error rate".into());
        }
        Ok(())
    }

    /// The bytes to put into an entry.
    pub fn encode(&self) -> Result<Bytes> {
        self.check()?;
        let percent = match self.growth {
            Growth::Fixed => 0,
            Growth::Percent(percent) => percent,
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + Spec::BYTES + self.name.len());
        bytes.extend([VERSION, u8::from(self.retain), 0, 0]);
        bytes.extend(self.shards.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(percent.to_le_bytes());
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
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let definition = Self {
            name: std::str::from_utf8(name).map_err(|error| invalid(error.to_string()))?.to_owned(),
            spec: Spec::from_bytes(*spec).map_err(|error| invalid(error.to_string()))?,
            shards: word(4),
            retain: retain == 1,
            generation: word(8),
            growth: if word(12) == 0 { Growth::Fixed } else { Growth::Percent(word(12)) },
        };
        definition.check()?;
        Ok(definition)
    }

    /// Says what is wrong with the definition, if anything.
    pub fn check(&self) -> Result<()> {
        self.spec.check().map_err(|error| Error::Invalid(error.to_string()))?;
        check_filter_name(&self.name)?;
        if self.shards != 1 && self.is_chain() {
            return Err(Error::Invalid(format!("{} shards; a chain of sub-filters has one", self.shards)));
        }
        match self.growth {
            Growth::Percent(percent) if !(GROWTH_PERCENT_MIN..=GROWTH_PERCENT_MAX).contains(&percent) => {
                return Err(Error::Invalid(format!(
                    "growth to {percent} %; it must be {GROWTH_PERCENT_MIN} to {GROWTH_PERCENT_MAX}"
                )));
            }
            _ => {}
        }
        Plan::new(&self.spec, self.shards).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(())
    }
}

/// Says what is wrong with a filter's name, if anything.
fn check_filter_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > FILTER_NAME_BYTES_MAX {
        let bytes = name.len();
        let why = format!("a filter's name of {bytes} bytes; it must be 1 to {FILTER_NAME_BYTES_MAX}");
        return Err(Error::Invalid(why));
    }
    Ok(())
}

/// The slot that knows a filter by its name.
pub(crate) fn home(name: &str, slots: u32) -> u16 {
    ((u128::from(xxh3_64(name.as_bytes())) * u128::from(slots)) >> 64) as u16
}
