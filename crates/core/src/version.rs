//! Versions: a filter as it was at one place in the log, for everybody who wants a copy.
//!
//! ```text
//!  version 8 --> shard of slot 0, at its position --> layer: outline --> chunks  a1f3  -  77b0  c9d2
//!  version 9 --> shard of slot 0, at a later one  --> layer: outline --> chunks  a1f3  -  5e11  c9d2
//! ```
//!
//! A chunk is a stretch of an array, named by the SHA-256 of its bytes. It never changes, so any cache may keep it for ever,
//! anybody may hand it on, and of the next version only what changed has to be fetched. `docs/formats.md` draws the bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use umbel_filter::{BLOCK_BYTES, Filter, Limits, Secret};

use crate::definition::Definition;
use crate::engine::Token;
use crate::fields::{Fields, put_bytes, put_list, seal, take_bytes, take_list};
use crate::limits::{LAYERS_MAX, MANIFEST_BYTES_MAX};
use crate::{Error, Position, Result};

/// The first bytes of a version.
pub const MAGIC: [u8; 8] = *b"\x89UMBVER\n";
const FORMAT: u16 = 1;
/// Blocks of a chunk: 256 KiB.
pub(crate) const CHUNK_BLOCKS: usize = 4;
/// Largest chunk: each block stands behind its length.
pub const CHUNK_BYTES_MAX: usize = CHUNK_BLOCKS * (4 + BLOCK_BYTES);

/// The name of a chunk: the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId([u8; 32]);

impl ChunkId {
    /// The name of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ChunkId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let no_name = || Error::Invalid("the name of a chunk is 64 hexadecimal digits".to_owned());
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(no_name());
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| no_name())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| no_name())?;
        }
        Ok(Self(id))
    }
}

/// A filter as it was at one place in the log of each of its slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The number of the filter.
    pub filter: u64,
    /// Which version of it: from 1 on.
    pub number: u64,
    /// When it was made, in milliseconds since 1970.
    pub made_ms: u64,
    /// Partitions of the log: a slot's entries are in that of its number, modulo so many.
    pub partitions: u32,
    /// What the filter was.
    pub definition: Definition,
    /// Its shards, by slot.
    pub shards: Vec<VersionShard>,
}

/// A slot's part of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionShard {
    /// The slot.
    pub slot: u16,
    /// Everything up to here is in it, and nothing after.
    pub position: Position,
    /// Keys in it.
    pub items: u64,
    /// Its arrays, oldest first.
    pub layers: Vec<VersionLayer>,
}

/// One array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionLayer {
    /// Its shape, as the native format has it.
    pub outline: Vec<u8>,
    /// Its chunks, one after another; none for one of zeros.
    pub chunks: Vec<Option<ChunkId>>,
}

impl Version {
    /// All chunks that it needs, some of them perhaps more than once.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkId> {
        self.shards
            .iter()
            .flat_map(|shard| &shard.layers)
            .flat_map(|layer| layer.chunks.iter().flatten().copied())
    }

    /// How much of the log it includes: in each partition, what all of its slots have.
    pub fn token(&self) -> Token {
        let mut first = BTreeMap::new();
        for shard in &self.shards {
            let position =
                first.entry(u32::from(shard.slot) % self.partitions.max(1)).or_insert(shard.position);
            *position = shard.position.min(*position);
        }
        let mut token = Token::default();
        first.into_iter().for_each(|(partition, position)| token.see(partition, position));
        token
    }

    /// What stands for all of it: versions with the same content have the same.
    pub fn digest(&self) -> ChunkId {
        let mut digest = Sha256::new();
        for shard in &self.shards {
            digest.update(shard.slot.to_le_bytes());
            for layer in &shard.layers {
                digest.update((layer.outline.len() as u64).to_le_bytes());
                digest.update(&layer.outline);
                for chunk in &layer.chunks {
                    digest.update(chunk.map_or([0; 32], |chunk| chunk.0));
                }
            }
        }
        ChunkId(digest.finalize().into())
    }

    /// The stored form.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::from(MAGIC);
        out.extend(FORMAT.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.partitions.to_le_bytes());
        out.extend(self.filter.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.made_ms.to_le_bytes());
        put_bytes(&mut out, &self.definition.encode()?);
        put_shards(&mut out, &self.shards);
        seal(&mut out);
        if out.len() > MANIFEST_BYTES_MAX {
            let bytes = out.len();
            return Err(Error::Invalid(format!("a version of {bytes} bytes; at most {MANIFEST_BYTES_MAX}")));
        }
        Ok(out)
    }

    /// Reads what [`encode`](Self::encode) gave; `name` is for messages.
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let mut fields = Fields::checked(bytes, name, MAGIC, FORMAT)?;
        if fields.take::<2>()? != [0; 2] {
            return Err(fields.corrupt("reserved bytes that are not zero"));
        }
        let partitions = fields.u32()?;
        let (filter, number, made_ms) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let definition = Definition::decode(take_bytes(&mut fields)?)?;
        let shards = take_shards(&mut fields)?;
        fields.end()?;
        Ok(Self { filter, number, made_ms, partitions, definition, shards })
    }
}

fn put_shards(out: &mut Vec<u8>, shards: &[VersionShard]) {
    put_list(out, shards, |out, shard| {
        out.extend(shard.slot.to_le_bytes());
        out.extend(shard.position.to_bytes());
        out.extend(shard.items.to_le_bytes());
        put_list(out, &shard.layers, |out, layer| {
            put_bytes(out, &layer.outline);
            put_list(out, &layer.chunks, |out, chunk| {
                out.push(u8::from(chunk.is_some()));
                chunk.iter().for_each(|chunk| out.extend(chunk.0));
            });
        });
    });
}

fn take_shards(fields: &mut Fields<'_>) -> Result<Vec<VersionShard>> {
    take_list(fields, |fields| {
        let (slot, position) = (fields.u16()?, Position::from_bytes(fields.take()?));
        let items = fields.u64()?;
        let layers = take_list(fields, |fields| {
            let outline = take_bytes(fields)?.to_vec();
            let chunks = take_list(fields, |fields| match fields.u8()? {
                0 => Ok(None),
                1 => Ok(Some(ChunkId(fields.take()?))),
                _ => Err(fields.corrupt("neither a chunk nor none")),
            })?;
            Ok(VersionLayer { outline, chunks })
        })?;
        if layers.is_empty() || layers.len() > LAYERS_MAX {
            return Err(fields.corrupt("a number of layers that there cannot be"));
        }
        Ok(VersionShard { slot, position, items, layers })
    })
}

impl VersionShard {
    /// Shards as they stand in a version, for another node.
    pub fn encode_all(shards: &[Self]) -> Vec<u8> {
        let mut out = Vec::new();
        put_shards(&mut out, shards);
        out
    }

    /// Reads what [`encode_all`](Self::encode_all) gave.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>> {
        let mut fields = Fields::new(bytes, "shards of a version");
        let shards = take_shards(&mut fields)?;
        fields.end()?;
        Ok(shards)
    }
}

impl VersionLayer {
    /// An empty array of this shape, if it is one that this many chunks can fill.
    pub fn empty(&self, secret: Option<&Secret>, limits: &Limits) -> Result<Filter> {
        let filter = Filter::from_outline(&self.outline, secret, limits);
        let filter = filter.map_err(|error| Error::Invalid(format!("an array of a version: {error}")))?;
        if filter.blocks().div_ceil(CHUNK_BLOCKS) != self.chunks.len() {
            let (blocks, chunks) = (filter.blocks(), self.chunks.len());
            return Err(Error::Corrupt(format!(
                "an array of a version has {blocks} blocks in {chunks} chunks"
            )));
        }
        Ok(filter)
    }

    /// Puts a chunk into an array that [`empty`](Self::empty) made. It must be the chunk of that number.
    pub fn fill(&self, filter: &mut Filter, number: usize, chunk: &[u8]) -> Result<()> {
        let wrong = |why: &str| Error::Corrupt(format!("chunk {number} of a version: {why}"));
        let Some(Some(id)) = self.chunks.get(number) else { return Err(wrong("there is none")) };
        if ChunkId::of(chunk) != *id {
            return Err(wrong(&format!("its bytes are not those of {id}")));
        }
        load(filter, number, chunk)
    }
}

/// Puts a chunk into an array, whatever its name.
pub(crate) fn load(filter: &mut Filter, number: usize, chunk: &[u8]) -> Result<()> {
    let wrong = |why: &str| Error::Corrupt(format!("chunk {number} of a version: {why}"));
    let mut fields = Fields::new(chunk, "a chunk of a version");
    let first = number * CHUNK_BLOCKS;
    for block in first..filter.blocks().min(first + CHUNK_BLOCKS) {
        let content = take_bytes(&mut fields)?;
        if !content.is_empty() {
            filter.load_block(block, content).map_err(|error| wrong(&error.to_string()))?;
        }
    }
    fields.end()
}

/// The chunk of some blocks; none if all are of zeros. Those of zeros stand in it without their bytes.
pub(crate) fn chunk(blocks: &[Vec<u8>]) -> Option<Bytes> {
    let content = |block: &Vec<u8>| block.iter().any(|byte| *byte != 0);
    if !blocks.iter().any(content) {
        return None;
    }
    let mut bytes = Vec::with_capacity(CHUNK_BYTES_MAX);
    for block in blocks {
        put_bytes(&mut bytes, if content(block) { block } else { &[] });
    }
    Some(bytes.into())
}
