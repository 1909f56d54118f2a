//! Manifests: what a checkpoint of a slot consists of. `docs/formats.md` draws them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::stored::{BlockAt, Stored, StoredLayer};
use crate::definition::Definition;
use crate::fields::{Fields, put_bytes, put_list, seal, take_bytes, take_list};
use crate::fold::{Counts, Followed};
use crate::limits::{LAYERS_MAX, MANIFEST_BYTES_MAX};
use crate::{Error, Position, Result};

/// The first bytes of a manifest.
pub const MAGIC: [u8; 8] = *b"\x89UMBMAN\n";
/// The newest version, of slots in which a filter remembers something of another that it follows.
pub(crate) const VERSION: u16 = 3;
/// The version of all other slots.
const VERSION_ALONE: u16 = 2;
/// The first version, which is still read. It has no count of adds and removals.
const VERSION_WITHOUT_ADDS: u16 = 1;
/// In place of a blob's number: the block is all zeros.
const NOWHERE: u32 = u32::MAX;

/// A checkpoint of a slot: everything that it was at one position.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) slot: u16,
    pub(super) number: u64,
    pub(super) position: Position,
    /// The last entry that was for the slot.
    pub(super) last_entry: Position,
    pub(super) sessions: Vec<u8>,
    /// Names of the archive's runs, oldest first.
    pub(super) runs: Vec<String>,
    pub(super) filters: Vec<StoredFilter>,
}

#[derive(Debug)]
pub(super) struct StoredFilter {
    pub(super) id: u64,
    pub(super) definition: Definition,
    pub(super) first_run: u64,
    /// What it remembers of the filter that it follows.
    pub(super) followed: Followed,
    pub(super) stored: Stored,
}

impl Manifest {
    /// All blobs that it needs.
    pub(super) fn blobs(&self) -> impl Iterator<Item = Arc<str>> {
        let arrays = self.filters.iter().flat_map(|filter| filter.stored.blobs().cloned());
        self.runs.iter().map(|run| Arc::from(run.as_str())).chain(arrays)
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut names: Vec<&Arc<str>> = Vec::new();
        let mut numbers: HashMap<&Arc<str>, u32> = HashMap::new();
        for blob in self.filters.iter().flat_map(|filter| filter.stored.blobs()) {
            numbers.entry(blob).or_insert_with(|| {
                names.push(blob);
                names.len() as u32 - 1
            });
        }
        let mut out = Vec::new();
        out.extend(MAGIC);
        let version = if self.filters.iter().all(|filter| filter.followed.is_empty()) {
            VERSION_ALONE
        } else {
            VERSION
        };
        out.extend(version.to_le_bytes());
        out.extend(self.slot.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.number.to_le_bytes());
        out.extend(self.position.to_bytes());
        out.extend(self.last_entry.to_bytes());
        put_bytes(&mut out, &self.sessions);
        put_list(&mut out, &self.runs, |out, run| put_bytes(out, run.as_bytes()));
        put_list(&mut out, &names, |out, name| put_bytes(out, name.as_bytes()));
        out.extend((self.filters.len() as u32).to_le_bytes());
        for filter in &self.filters {
            out.extend(filter.id.to_le_bytes());
            out.extend(filter.first_run.to_le_bytes());
            put_bytes(&mut out, &filter.definition.encode()?);
            if version == VERSION {
                filter.followed.put(&mut out);
            }
            let Counts { items, held, removed } = filter.stored.counts;
            [items, held, removed].iter().for_each(|count| out.extend(count.to_le_bytes()));
            out.extend(filter.stored.generation.to_le_bytes());
            put_list(&mut out, &filter.stored.layers, |out, layer| {
                put_bytes(out, &layer.outline);
                put_list(out, &layer.blocks, |out, block| match block {
                    None => out.extend(NOWHERE.to_le_bytes()),
                    Some(at) => {
                        out.extend(numbers.get(&at.blob).copied().unwrap_or(NOWHERE).to_le_bytes());
                        out.extend(at.length.to_le_bytes());
                        out.extend(at.offset.to_le_bytes());
                        out.extend(at.sum.to_le_bytes());
                    }
                });
            });
        }
        seal(&mut out);
        if out.len() > MANIFEST_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "a manifest of {} bytes; at most {MANIFEST_BYTES_MAX}",
                out.len()
            )));
        }
        Ok(out)
    }

    /// Reads what [`encode`](Self::encode) gave; `name` is for messages.
    pub(super) fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let (mut fields, version) =
            Fields::checked_version(bytes, name, MAGIC, &[VERSION_WITHOUT_ADDS, VERSION_ALONE, VERSION])?;
        let slot = fields.u16()?;
        fields.u32()?;
        let number = fields.u64()?;
        let position = Position::from_bytes(fields.take()?);
        let last_entry = Position::from_bytes(fields.take()?);
        let sessions = take_bytes(&mut fields)?.to_vec();
        let runs = take_list(&mut fields, |fields| take_text(fields))?;
        let names = take_list(&mut fields, |fields| Ok(Arc::<str>::from(take_text(fields)?)))?;
        let filters = take_list(&mut fields, |fields| {
            Ok(StoredFilter {
                id: fields.u64()?,
                first_run: fields.u64()?,
                definition: Definition::decode(take_bytes(fields)?)?,
                followed: if version == VERSION { Followed::take(fields)? } else { Followed::default() },
                stored: take_stored(fields, version, &names)?,
            })
        })?;
        fields.end()?;
        Ok(Self { slot, number, position, last_entry, sessions, runs, filters })
    }
}

fn take_stored(fields: &mut Fields<'_>, version: u16, names: &[Arc<str>]) -> Result<Stored> {
    let items = fields.u64()?;
    let counts = match version {
        VERSION_WITHOUT_ADDS => Counts::of_items(items),
        _ => Counts { items, held: fields.u64()?, removed: fields.u64()? },
    };
    let generation = fields.u32()?;
    let layers = take_list(fields, |fields| {
        let outline = take_bytes(fields)?.to_vec();
        let blocks = take_list(fields, |fields| {
            let blob = match fields.u32()? {
                NOWHERE => return Ok(None),
                number => names.get(number as usize).cloned(),
            };
            let blob = blob.ok_or_else(|| fields.corrupt("a blob that is not listed"))?;
            Ok(Some(BlockAt { blob, length: fields.u32()?, offset: fields.u64()?, sum: fields.u64()? }))
        })?;
        Ok(StoredLayer { outline, blocks })
    })?;
    if layers.len() > LAYERS_MAX {
        return Err(fields.corrupt("more layers than there can be"));
    }
    Ok(Stored { generation, counts, layers, of: Weak::new() })
}

fn take_text(fields: &mut Fields<'_>) -> Result<String> {
    let bytes = take_bytes(fields)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| fields.corrupt("a name that is no text"))
}
