//! Entries: what stands in the log. `docs/formats.md` draws them.

use bytes::Bytes;
use umbel_filter::Fingerprint;

use crate::limits::{ENTRY_BYTES_MAX, FINGERPRINTS_MAX};
use crate::{Error, Result};

/// The version of entries that depend on nothing but their own bytes.
const VERSION: u8 = 1;
/// The version of entries whose effect the fold decides by the state that it finds; older builds do not read them.
const VERSION_DECIDED: u8 = 2;
pub(crate) const VERSION_NEWEST: u8 = VERSION_DECIDED;
const HEADER_BYTES: usize = 32;
const SUM_BYTES: usize = 4;
const FINGERPRINT_BYTES: usize = 16;

/// In place of a slot: keys go each to their own slot, and everything else to all slots of the partition.
pub const SPREAD: u16 = u16::MAX;

/// A batch of work on one filter: all of it takes effect at one place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The filter; for [`Operation::Define`], the one that is made.
    pub filter: u64,
    /// The slot that all of it belongs to, or [`SPREAD`].
    pub slot: u16,
    /// Who asked. A retry comes with the same session and sequence, and has no second effect.
    pub request: Request,
    /// What to do.
    pub operation: Operation,
}

/// The identity of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    /// The client, for as long as it counts its requests; 0 for nobody, whose requests are never retried.
    pub session: u64,
    /// The number of the request in its session.
    pub sequence: u64,
}

/// What an entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds keys.
    Add(Vec<Fingerprint>),
    /// Takes keys out, each once.
    Remove(Vec<Fingerprint>),
    /// Makes a filter, or gives it a new definition; the bytes are the definition's own format.
    Define(Bytes),
    /// Removes the filter.
    Drop,
    /// Forgets all keys of the filter.
    Clear,
    /// Does nothing, at a place that is known then.
    Barrier,
    /// Changes what a filter is called and what is remembered of it, but not its size; the bytes are a definition's.
    Describe(Bytes),
    /// The same, if the description is still the one that the change was made from.
    Redescribe {
        /// What stands for that description: [`Definition::description`](crate::definition::Definition::description).
        from: u64,
        /// The definition that is like the next one.
        definition: Bytes,
    },
    /// Puts empty arrays of another shape in place of a shard's: for content that comes from elsewhere.
    Adopt {
        /// Keys that the content will hold.
        items: u64,
        /// The shape of each array, oldest first.
        outlines: Vec<Bytes>,
    },
    /// Sets bits in an array: the content of blocks that follow each other. On an empty array, it is its content.
    Load {
        /// The array.
        layer: u32,
        /// The first block.
        block: u32,
        /// Keys that come with it.
        items: u64,
        /// The blocks, one after another.
        bytes: Bytes,
    },
    /// Adds those keys that are not in the filter where the log puts the entry, each once.
    AddAbsent(Vec<Fingerprint>),
    /// Lets the newest definition answer: its array takes the place of the one before, here and nowhere else.
    Switch,
}

impl Operation {
    /// Whether it changes arrays otherwise than key by key: a copy needs another version then.
    pub fn reshapes(&self) -> bool {
        matches!(self, Self::Switch | Self::Clear | Self::Adopt { .. } | Self::Load { .. })
    }

    /// The keys that it adds or takes out.
    pub fn keys(&self) -> &[Fingerprint] {
        match self {
            Self::Add(keys) | Self::Remove(keys) | Self::AddAbsent(keys) => keys,
            _ => &[],
        }
    }
}

/// Tags of the operations.
mod tag {
    pub(super) const ADD: u8 = 1; // persisted, as all tags here
    pub(super) const REMOVE: u8 = 2;
    pub(super) const DEFINE: u8 = 3;
    pub(super) const DROP: u8 = 4;
    pub(super) const CLEAR: u8 = 5;
    pub(super) const BARRIER: u8 = 6;
    pub(super) const SWITCH: u8 = 7;
    pub(super) const DESCRIBE: u8 = 8;
    pub(super) const ADOPT: u8 = 9;
    pub(super) const LOAD: u8 = 10;
    pub(super) const ADD_ABSENT: u8 = 11;
    pub(super) const REDESCRIBE: u8 = 12;
}

impl Entry {
    /// The bytes to append.
    pub fn encode(&self) -> Result<Bytes> {
        let (tag, count) = match &self.operation {
            Operation::Add(keys) => (tag::ADD, keys.len()),
            Operation::Remove(keys) => (tag::REMOVE, keys.len()),
            Operation::AddAbsent(keys) => (tag::ADD_ABSENT, keys.len()),
            Operation::Define(definition) => (tag::DEFINE, definition.len()),
            Operation::Drop => (tag::DROP, 0),
            Operation::Clear => (tag::CLEAR, 0),
            Operation::Barrier => (tag::BARRIER, 0),
            Operation::Switch => (tag::SWITCH, 0),
            Operation::Describe(definition) => (tag::DESCRIBE, definition.len()),
            Operation::Redescribe { definition, .. } => (tag::REDESCRIBE, definition.len().saturating_add(8)),
            Operation::Adopt { outlines, .. } => {
                let lengths = outlines.iter().map(|outline| outline.len().saturating_add(4));
                (tag::ADOPT, lengths.fold(8, usize::saturating_add))
            }
            Operation::Load { bytes, .. } => (tag::LOAD, bytes.len().saturating_add(16)),
        };
        let body_bytes = match &self.operation {
            Operation::Add(_) | Operation::Remove(_) | Operation::AddAbsent(_) => {
                count.saturating_mul(FINGERPRINT_BYTES)
            }
            _ => count,
        };
        if body_bytes > ENTRY_BYTES_MAX - HEADER_BYTES - SUM_BYTES {
            return Err(Error::Invalid(format!(
                "an entry with {count} keys or bytes; at most {FINGERPRINTS_MAX} keys fit"
            )));
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body_bytes + SUM_BYTES);
        bytes.extend([version_of(tag), tag]);
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend((count as u32).to_le_bytes());
        bytes.extend(self.filter.to_le_bytes());
        bytes.extend(self.request.session.to_le_bytes());
        bytes.extend(self.request.sequence.to_le_bytes());
        match &self.operation {
            Operation::Add(keys) | Operation::Remove(keys) | Operation::AddAbsent(keys) => {
                let start = bytes.len();
                bytes.resize(start + body_bytes, 0);
                let places = bytes[start..].as_chunks_mut::<FINGERPRINT_BYTES>().0;
                places.iter_mut().zip(keys).for_each(|(place, key)| *place = key.to_bytes());
            }
            Operation::Define(definition) | Operation::Describe(definition) => bytes.extend(definition),
            Operation::Redescribe { from, definition } => {
                bytes.extend(from.to_le_bytes());
                bytes.extend(definition);
            }
            Operation::Adopt { items, outlines } => {
                bytes.extend(items.to_le_bytes());
                for outline in outlines {
                    bytes.extend((outline.len() as u32).to_le_bytes());
                    bytes.extend(outline);
                }
            }
            Operation::Load { layer, block, items, bytes: content } => {
                bytes.extend(layer.to_le_bytes());
                bytes.extend(block.to_le_bytes());
                bytes.extend(items.to_le_bytes());
                bytes.extend(content);
            }
            Operation::Drop | Operation::Clear | Operation::Barrier | Operation::Switch => {}
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        Ok(bytes.into())
    }

    /// The filter of an encoded entry, without a look at the rest.
    pub fn filter_of(bytes: &[u8]) -> Option<u64> {
        bytes.get(8..)?.first_chunk().map(|filter| u64::from_le_bytes(*filter))
    }

    /// Whether an encoded entry is an [`Operation::AddAbsent`], by its head alone.
    pub(crate) fn is_add_absent(bytes: &[u8]) -> bool {
        bytes.get(1) == Some(&tag::ADD_ABSENT)
    }

    /// Reads what [`encode`](Self::encode) gave.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let corrupt = |why: &str| Err(Error::Corrupt(format!("an entry of {} bytes: {why}", bytes.len())));
        if bytes.len() < HEADER_BYTES + SUM_BYTES {
            return corrupt("it is shorter than any");
        }
        let (content, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
        if crc32c::crc32c(content).to_le_bytes() != sum {
            return corrupt("its checksum does not match");
        }
        if content[0] != version_of(content[1]) {
            return corrupt("it has another version");
        }
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| content[at + i]));
        let count = u32::from_le_bytes(std::array::from_fn(|i| content[4 + i])) as usize;
        let body = bytes.slice(HEADER_BYTES..bytes.len() - SUM_BYTES);
        let keys = || {
            let (keys, rest) = body.as_chunks::<FINGERPRINT_BYTES>();
            (rest.is_empty() && keys.len() == count)
                .then(|| keys.iter().map(|key| Fingerprint::from_bytes(*key)).collect())
        };
        let bare = |operation| (count == 0 && body.is_empty()).then_some(operation);
        let operation = match content[1] {
            tag::ADD => keys().map(Operation::Add),
            tag::REMOVE => keys().map(Operation::Remove),
            tag::ADD_ABSENT => keys().map(Operation::AddAbsent),
            tag::DEFINE => (body.len() == count).then(|| Operation::Define(body.clone())),
            tag::DROP => bare(Operation::Drop),
            tag::CLEAR => bare(Operation::Clear),
            tag::BARRIER => bare(Operation::Barrier),
            tag::SWITCH => bare(Operation::Switch),
            tag::DESCRIBE => (body.len() == count).then(|| Operation::Describe(body.clone())),
            tag::REDESCRIBE if body.len() == count => body.first_chunk().map(|from| Operation::Redescribe {
                from: u64::from_le_bytes(*from),
                definition: body.slice(8..),
            }),
            tag::ADOPT if body.len() == count => decode_adopt(&body),
            tag::LOAD if body.len() == count => decode_load(&body),
            tag::ADOPT | tag::LOAD | tag::REDESCRIBE => None,
            _ => return corrupt("it asks for an unknown operation"),
        };
        let Some(operation) = operation else { return corrupt("its length is not what its count says") };
        Ok(Self {
            filter: long(8),
            slot: u16::from_le_bytes([content[2], content[3]]),
            request: Request { session: long(16), sequence: long(24) },
            operation,
        })
    }
}

/// The version of entries with a tag.
fn version_of(tag: u8) -> u8 {
    match tag {
        tag::ADD_ABSENT | tag::REDESCRIBE => VERSION_DECIDED,
        _ => VERSION,
    }
}

fn decode_adopt(body: &Bytes) -> Option<Operation> {
    let items = u64::from_le_bytes(*body.first_chunk()?);
    let mut outlines = Vec::new();
    let mut at = 8;
    while at < body.len() {
        let length = u32::from_le_bytes(*body.get(at..)?.first_chunk()?) as usize;
        at += 4;
        let end = at.checked_add(length).filter(|end| *end <= body.len())?;
        outlines.push(body.slice(at..end));
        at = end;
    }
    Some(Operation::Adopt { items, outlines })
}

fn decode_load(body: &Bytes) -> Option<Operation> {
    let head: &[u8; 16] = body.first_chunk()?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    let items = u64::from_le_bytes(std::array::from_fn(|i| head[8 + i]));
    Some(Operation::Load { layer: word(0), block: word(4), items, bytes: body.slice(16..) })
}
