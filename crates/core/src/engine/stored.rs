//! Where a shard's array is on disk, and how it comes back from there.

use std::ops::Range;
use std::sync::{Arc, Weak};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use umbel_filter::{Filter, block_sum};

use crate::fold::{Layer, Means, Place, Projection};
use crate::{Error, Result};

/// Bytes that are read from a blob at once.
const READ_BYTES: u64 = 8 << 20;

/// The array of a shard as a checkpoint has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) generation: u32,
    pub(super) items: u64,
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
        self.layers.iter().map(|layer| (layer.blocks.len() * umbel_filter::BLOCK_BYTES) as u64).sum()
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
        Ok(Projection::of(self.generation, layers, self.items))
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
async fn read_blocks(
    blobs: &dyn ObjectStore,
    placed: &[(usize, &BlockAt)],
    mut take: impl FnMut(usize, &[u8]) -> bool,
) -> Result<()> {
    for run in placed.chunk_by(|(_, one), (_, next)| follows(one, next)) {
        for part in parts(run) {
            let ((_, first), (_, last)) = (run[part.start], run[part.end - 1]);
            let range = first.offset..last.offset + u64::from(last.length);
            let bytes = blobs.get_range(&Path::from(&*first.blob), range.clone()).await;
            let bytes = bytes.map_err(|error| Error::blob(format!("cannot read {}", first.blob), &error))?;
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
    one.blob == next.blob && one.offset + u64::from(one.length) == next.offset
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
