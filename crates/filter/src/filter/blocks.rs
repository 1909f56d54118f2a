//! A filter in pieces: the outline that describes it, and the blocks of its content. Snapshots are made of both.

use xxhash_rust::xxh3::Xxh3Default;

use super::{Body, Filter, Part};
use crate::array::{Array, block_sum};
use crate::format::native;
use crate::{Error, Fingerprint, Limits, Result, Secret};

impl Filter {
    /// All that describes the filter but its content: the header of the [native](crate::format::native) format.
    ///
    /// That of a chain changes as keys are added, because it has the number of links and the items of each.
    pub fn outline(&self) -> Vec<u8> {
        self.with_parts(|parts| native::header(self, parts))
    }

    /// An empty filter of the shape that [`outline`](Self::outline) described; `secret` for the `keyed` family. The
    /// links of a chain come with their items, so [`load_block`](Self::load_block) makes it whole.
    ///
    /// The outline is checked in every field, against `limits` too, before memory is taken.
    pub fn from_outline(outline: &[u8], secret: Option<&Secret>, limits: &Limits) -> Result<Self> {
        native::from_outline(outline, secret, limits)
    }

    /// A digest of definition and content: equal for equal filters, whatever the machine and the order of adds.
    pub fn digest(&self) -> u128 {
        self.with_parts(|parts| {
            let mut digest = Xxh3Default::new();
            digest.update(&native::header(self, parts));
            let mut bytes = Vec::new();
            for (number, (array, block)) in (0..).zip(blocks_of(parts)) {
                array.copy_block(block, &mut bytes);
                digest.update(&block_sum(number, &bytes).to_le_bytes());
            }
            digest.digest128()
        })
    }

    /// The number of blocks of [`BLOCK_BYTES`](crate::BLOCK_BYTES) that the array is copied in. The last block of an
    /// array may be shorter. A chain numbers the blocks of all its links, oldest first, so that numbers stay when a
    /// link is added.
    pub fn blocks(&self) -> usize {
        self.with_parts(|parts| parts.iter().map(|part| part.array.blocks()).sum())
    }

    /// Copies a block into `bytes`; of a block that is not there, nothing. Adds may go on meanwhile: the copy has
    /// every element whose add had returned before.
    pub fn copy_block(&self, block: usize, bytes: &mut Vec<u8>) {
        bytes.clear();
        self.with_parts(|parts| {
            if let Some((array, block)) = blocks_of(parts).nth(block) {
                array.copy_block(block, bytes);
            }
        });
    }

    /// Overwrites a block with what [`copy_block`](Self::copy_block) gave. Zeros that come onto memory that was never
    /// used leave it unused.
    ///
    /// It is not noted as a change: after a restore nothing is dirty. Notes of earlier changes stay.
    pub fn load_block(&mut self, block: usize, bytes: &[u8]) -> Result<()> {
        let mut index = block;
        for array in self.arrays_mut() {
            if index >= array.blocks() {
                index -= array.blocks();
                continue;
            }
            let wanted = array.block_bytes(index);
            if bytes.len() != wanted {
                let why = format!("{} bytes; block {block} has {wanted}", bytes.len());
                return Err(Error::invalid("block length", why));
            }
            array.load_block(index, bytes);
            return Ok(());
        }
        Err(Error::invalid("block number", format!("{block}; there are {} blocks", self.blocks())))
    }

    /// Sets all bits in a block that are set in `bytes`: a union with the block of a filter of the same shape, and, on
    /// an empty one, its content. Lookups and adds may go on meanwhile. It is noted as a change.
    pub fn merge_block(&self, block: usize, bytes: &[u8]) -> Result<()> {
        let wanted = self.block_bytes(block);
        if wanted == 0 || bytes.len() != wanted {
            let why = format!("{} bytes; block {block} has {wanted}", bytes.len());
            return Err(Error::invalid("block length", why));
        }
        self.with_parts(|parts| {
            let mut index = block;
            for Part { array, .. } in parts {
                if index < array.blocks() {
                    return array.merge_block(index, bytes);
                }
                index -= array.blocks();
            }
        });
        Ok(())
    }

    /// Bytes of a block; 0 if there is none of that number.
    pub fn block_bytes(&self, block: usize) -> usize {
        self.with_parts(|parts| {
            let mut index = block;
            for Part { array, .. } in parts {
                if index < array.blocks() {
                    return array.block_bytes(index);
                }
                index -= array.blocks();
            }
            0
        })
    }

    /// The blocks that changed since this was last called, or since the filter was made. Copy them after the
    /// call: a change that the copies miss is reported next time.
    pub fn take_dirty(&self) -> Vec<usize> {
        self.with_parts(|parts| {
            let mut first = 0;
            let mut blocks = Vec::new();
            for Part { array, .. } in parts {
                blocks.extend(array.take_dirty().into_iter().map(|block| first + block));
                first += array.blocks();
            }
            blocks
        })
    }

    /// Notes a block as changed, for one who took the note and could not keep the copy. A number that no block has
    /// does nothing.
    pub fn mark_dirty(&self, block: usize) {
        self.with_parts(|parts| {
            if let Some((array, block)) = blocks_of(parts).nth(block) {
                array.mark_dirty(block);
            }
        });
    }

    /// Calls `touched` with every block that adding or removing a key may change, with some more than once perhaps.
    ///
    /// In a chain these are blocks of the newest link: an add that finds it full goes into a new link, whose blocks
    /// come behind all others. `touched` must not use the filter, which may wait for this call to end.
    #[inline]
    pub fn blocks_touched(&self, key: Fingerprint, touched: impl FnMut(usize)) {
        match &self.body {
            Body::Bits(filter) => filter.blocks_touched(key).for_each(touched),
            Body::Nibbles(filter) => filter.blocks_touched(key).for_each(touched),
            Body::Bytes(filter) => filter.blocks_touched(key).for_each(touched),
            Body::Classic(filter) => filter.blocks_touched(key).for_each(touched),
            Body::Chain(chain) => chain.blocks_touched(key, touched),
        }
    }
}

/// All blocks of all parts, in order.
pub(crate) fn blocks_of<'a>(parts: &'a [Part<'_>]) -> impl Iterator<Item = (&'a Array, usize)> {
    parts.iter().flat_map(|part| (0..part.array.blocks()).map(|block| (part.array, block)))
}
