//! The file of the embedded registry: everything in it, written anew at every change. `docs/formats.md` draws it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Versioned;
use crate::limits::{REGISTRY_KEY_BYTES_MAX, REGISTRY_NAMES_MAX, REGISTRY_VALUE_BYTES_MAX};

/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"\x89UMBREG\n";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;
const NAME_HEADER_BYTES: usize = 16;
const SUM_BYTES: usize = 4;

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) revision: u64,
    pub(super) entries: BTreeMap<String, Versioned>,
}

pub(super) fn encode<'a>(revision: u64, entries: impl Iterator<Item = (&'a str, &'a Versioned)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 6]);
    bytes.extend(revision.to_le_bytes());
    debug_assert_eq!(bytes.len(), HEADER_BYTES);
    for (name, Versioned { value, version }) in entries {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(version.to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(value);
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Reads what [`encode`] wrote, or says at which byte it is wrong, and why.
pub(super) fn decode(bytes: &Bytes) -> Result<Image, (usize, &'static str)> {
    if bytes.len() < HEADER_BYTES + SUM_BYTES {
        return Err((bytes.len(), "it is shorter than any registry"));
    }
    let (content, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
    if content[..8] != MAGIC {
        return Err((0, "it does not begin as a registry does"));
    }
    if crc32c::crc32c(content).to_le_bytes() != sum {
        return Err((content.len(), "the checksum of the whole does not match"));
    }
    if content[8..10] != VERSION.to_le_bytes() {
        return Err((8, "it has another version"));
    }
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| content[at + i])) as usize;
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| content[at + i]));
    let mut image = Image { revision: long(16), entries: BTreeMap::new() };
    let mut at = HEADER_BYTES;
    while at < content.len() {
        if content.len() - at < NAME_HEADER_BYTES || image.entries.len() == REGISTRY_NAMES_MAX {
            return Err((at, "a name is cut off, or there are too many"));
        }
        let (name_bytes, value_bytes, version) = (word(at), word(at + 4), long(at + 8));
        let start = at + NAME_HEADER_BYTES;
        if name_bytes > REGISTRY_KEY_BYTES_MAX
            || value_bytes > REGISTRY_VALUE_BYTES_MAX
            || content.len() - start < name_bytes + value_bytes
        {
            return Err((at, "an impossible length"));
        }
        let Ok(name) = std::str::from_utf8(&content[start..start + name_bytes]) else {
            return Err((start, "a name that is no text"));
        };
        at = start + name_bytes + value_bytes;
        let value = bytes.slice(start + name_bytes..at);
        image.entries.insert(name.to_owned(), Versioned { value, version });
    }
    Ok(image)
}
