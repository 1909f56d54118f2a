//! Where a shard's array is on disk, and how it comes back from there.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::sync::{Arc, Weak};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use umbel_filter::{BLOCK_BYTES, Filter, block_sum};

use crate::fields::Fields;
use crate::fold::{Counts, Layer, Means, Place, Projection};
use crate::{Error, Result};

/// Bytes that are read from a blob at once: they are still in the cache when they are checked and loaded.
const READ_BYTES: u64 = 1 << 20;
/// The first bytes of a blob with arrays.
pub const MAGIC: [u8; 8] = *b"\x89UMBARR\n";
pub(crate) const VERSION: u16 = 1;
const HEADER_BYTES: usize = 32;
/// Bytes before each block.
const BLOCK_HEADER_BYTES: usize = 32;

/// The array of a shard as a checkpoint has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) generation: u32,
    pub(super) counts: Counts,
    pub(super) layers: Vec<StoredLayer>,
    /// What it is a copy of. That may have changed since, in blocks that are marked.
    pub(super) of: Weak<Projection>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StoredLayer {
    /// The shape of the filter, as the native format has it.
    pub(super) outline: Vec<u8>,
    /// Where each block is; nowhere if it is all zeros.
    pub(super) blocks: Vec<Option<BlockAt>>,
}

/// Where a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockAt {
    pub(super) blob: Arc<str>,
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) sum: u64,
}

impl Stored {
    /// Whether this is a copy of that projection, apart from blocks that changed since.
    pub(super) fn is_of(&self, projection: &Arc<Projection>) -> bool {
        Weak::ptr_eq(&self.of, &Arc::downgrade(projection))
    }

    /// All blobs that hold blocks of it.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &Arc<str>> {
        self.layers.iter().flat_map(|layer| layer.blocks.iter().flatten().map(|block| &block.blob))
    }

    /// Bytes that it takes in memory, at least.
    pub(super) fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| (layer.blocks.len() * BLOCK_BYTES) as u64).sum()
    }

    pub(super) fn place(&mut self, (layer, block): Place, at: Option<BlockAt>) {
        let Some(layer) = self.layers.get_mut(layer) else { return };
        if layer.blocks.len() <= block {
            layer.blocks.resize(block + 1, None);
        }
        layer.blocks[block] = at;
    }

    /// Reads the blocks in one blob and checks them.
    pub(super) async fn check_blob(&self, blobs: &dyn ObjectStore, blob: &Arc<str>) -> Result<()> {
        for layer in &self.layers {
            let inside: Vec<_> = layer.placed().into_iter().filter(|(_, at)| at.blob == *blob).collect();
            read_blocks(blobs, &inside, |_, _| true).await?;
        }
        Ok(())
    }

    /// Reads it back, within the budget, and checks every block.
    pub(super) async fn load(
        &self,
        blobs: &dyn ObjectStore,
        name: &str,
        means: &Means,
    ) -> Result<Projection> {
        let mut layers = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            layers.push(Arc::new(layer.load(blobs, name, means).await?));
        }
        Ok(Projection::of(self.generation, layers, self.counts))
    }
}

impl StoredLayer {
    async fn load(&self, blobs: &dyn ObjectStore, name: &str, means: &Means) -> Result<Layer> {
        let damaged = |error: &umbel_filter::Error| Error::Corrupt(format!("the outline of {name}: {error}"));
        let secret = means.secret.as_ref();
        let mut filter =
            Filter::from_outline(&self.outline, secret, &means.limits).map_err(|error| damaged(&error))?;
        let memory = means.budget.reserve(filter.bytes(), name)?;
        let placed = self.placed();
        read_blocks(blobs, &placed, |number, block| filter.load_block(number, block).is_ok()).await?;
        Ok(Layer::adopt(filter, memory))
    }
}

impl StoredLayer {
    fn placed(&self) -> Vec<(usize, &BlockAt)> {
        self.blocks.iter().enumerate().filter_map(|(number, at)| Some((number, at.as_ref()?))).collect()
    }
}

/// Reads blocks, neighbours together, and gives each to `take`, which says whether it is of use.
pub(super) async fn read_blocks(
    blobs: &dyn ObjectStore,
    placed: &[(usize, &BlockAt)],
    mut take: impl FnMut(usize, &[u8]) -> bool,
) -> Result<()> {
    for run in placed.chunk_by(|(_, one), (_, next)| follows(one, next)) {
        for part in parts(run) {
            let ((_, first), (_, last)) = (run[part.start], run[part.end - 1]);
            let range = first.offset..last.offset + u64::from(last.length);
            let path = Path::from(&*first.blob);
            let bytes = match blobs.get_ranges(&path, std::slice::from_ref(&range)).await {
                Ok(bytes) => bytes.into_iter().next().unwrap_or_default(),
                Err(error) => {
                    // Some stores say no more than that they failed.
                    let length = blobs.head(&path).await.map_or(range.end, |found| found.size);
                    if length < range.end {
                        return Err(Error::Corrupt(format!("{path}, byte {length}: it is cut off")));
                    }
                    return Err(Error::blob(format!("cannot read {path}"), &error));
                }
            };
            for (number, at) in &run[part] {
                let start = (at.offset - range.start) as usize;
                let block = bytes.get(start..start + at.length as usize);
                let whole = block.filter(|block| block_sum(*number as u64, block) == at.sum);
                if !whole.is_some_and(|block| take(*number, block)) {
                    return Err(Error::Corrupt(format!("{}, byte {}: a damaged block", at.blob, at.offset)));
                }
            }
        }
    }
    Ok(())
}

fn follows(one: &BlockAt, next: &BlockAt) -> bool {
    one.blob == next.blob && one.offset + u64::from(one.length) + BLOCK_HEADER_BYTES as u64 == next.offset
}

/// What a blob with arrays begins with.
pub(super) fn header(slot: u16, checkpoint: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header[10..12].copy_from_slice(&slot.to_le_bytes());
    header[16..24].copy_from_slice(&checkpoint.to_le_bytes());
    let sum = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// What stands before a block: whose it is, so that the blob can be checked by itself.
pub(super) fn block_header(filter: u64, place: Place, length: u32, sum: u64) -> [u8; BLOCK_HEADER_BYTES] {
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[..8].copy_from_slice(&filter.to_le_bytes());
    header[8..12].copy_from_slice(&(place.0 as u32).to_le_bytes());
    header[12..16].copy_from_slice(&(place.1 as u32).to_le_bytes());
    header[16..24].copy_from_slice(&sum.to_le_bytes());
    header[24..28].copy_from_slice(&length.to_le_bytes());
    let check = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&check.to_le_bytes());
    header
}

/// What was found in a blob with arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArraysReport {
    /// The slot.
    pub slot: u16,
    /// The checkpoint that it was written for.
    pub checkpoint: u64,
    /// Filters, with the number of their blocks in it.
    pub blocks: BTreeMap<u64, u64>,
    /// Bytes of all blocks.
    pub bytes: u64,
}

/// Reads a blob with arrays from beginning to end and checks every block; `name` is for messages.
pub fn inspect_arrays(mut input: impl Read, name: &str) -> Result<ArraysReport> {
    let mut at = 0;
    let corrupt = |at: u64, why: &str| Error::Corrupt(format!("{name}, byte {at}: {why}"));
    let mut head = [0; HEADER_BYTES];
    let read = read_up_to(&mut input, &mut head, name)?;
    let slot = u16::from_le_bytes([head[10], head[11]]);
    let checkpoint = u64::from_le_bytes(std::array::from_fn(|i| head[16 + i]));
    if read < HEADER_BYTES || head != header(slot, checkpoint) {
        return Err(corrupt(0, "not a blob with arrays of a version that is known here"));
    }
    let mut report = ArraysReport { slot, checkpoint, ..ArraysReport::default() };
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        at += HEADER_BYTES as u64;
        let mut head = [0; BLOCK_HEADER_BYTES];
        match read_up_to(&mut input, &mut head, name)? {
            0 => return Ok(report),
            BLOCK_HEADER_BYTES => {}
            _ => return Err(corrupt(at, "the head of a block is cut off")),
        }
        let mut fields = Fields::new(&head, name);
        let (filter, layer, number, sum) = (fields.u64()?, fields.u32()?, fields.u32()?, fields.u64()?);
        let length = fields.u32()?;
        let place = (layer as usize, number as usize);
        if head != block_header(filter, place, length, sum) || length as usize > block.len() {
            return Err(corrupt(at, "a damaged head of a block"));
        }
        let bytes = &mut block[..length as usize];
        if read_up_to(&mut input, bytes, name)? < bytes.len() || block_sum(number.into(), bytes) != sum {
            return Err(corrupt(at + BLOCK_HEADER_BYTES as u64, "a damaged block"));
        }
        at += u64::from(length);
        *report.blocks.entry(filter).or_default() += 1;
        report.bytes += u64::from(length);
    }
}

/// Fills the buffer, or as much of it as there is.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8], name: &str) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io(format!("cannot read {name}"), &error)),
        }
    }
    Ok(filled)
}

/// Cuts neighbours into parts that are read at once.
fn parts(run: &[(usize, &BlockAt)]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, (_, at)) in run.iter().enumerate() {
        if bytes + u64::from(at.length) > READ_BYTES && index > start {
            parts.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes += u64::from(at.length);
    }
    parts.push(start..run.len());
    parts
}
