//! What the engine's blobs hold, for people who look into them.

use super::identity::{self, DeploymentId};
use super::manifest::{MAGIC as MANIFEST, Manifest};
use super::recover::{self, decode_deployment};
use super::trim::{self, Trimmed};
use crate::definition::Definition;
use crate::{Error, Position, Result};

/// What was found in a blob of the engine.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BlobReport {
    /// The checkpoint of a slot.
    Manifest {
        /// The slot.
        slot: u16,
        /// The number of the checkpoint.
        number: u64,
        /// Everything up to here is in it.
        position: Position,
        /// Names of the archive's runs.
        runs: Vec<String>,
        /// The filters in it.
        filters: Vec<StoredReport>,
    },
    /// How far a partition was trimmed.
    Trimmed {
        /// The partition.
        partition: u32,
        /// Everything up to here may be gone.
        upto: Position,
        /// Slots and the oldest checkpoint that was kept of each.
        slots: Vec<(u16, u64)>,
    },
    /// The sizes of a deployment.
    Deployment {
        /// Slots.
        slots: u32,
        /// Partitions of its log.
        partitions: u32,
    },
    /// The id of a deployment.
    DeploymentId(DeploymentId),
}

/// What a manifest says of a filter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredReport {
    /// Its number.
    pub id: u64,
    /// What it is.
    pub definition: Definition,
    /// Keys in it.
    pub items: u64,
    /// Bytes of blocks that are not zeros.
    pub bytes: u64,
}

/// Reads a manifest, a record of trimming, or the description of a deployment, and checks all of it.
pub fn inspect(bytes: &[u8], name: &str) -> Result<BlobReport> {
    let magic = bytes.first_chunk::<8>();
    if magic == Some(&MANIFEST) {
        let Manifest { slot, number, position, runs, filters, .. } = Manifest::decode(bytes, name)?;
        let stored = filters.into_iter().map(|filter| {
            let blocks = filter.stored.layers.iter().flat_map(|layer| layer.blocks.iter().flatten());
            let bytes = blocks.map(|block| u64::from(block.length)).sum();
            StoredReport {
                id: filter.id,
                definition: filter.definition,
                items: filter.stored.counts.items,
                bytes,
            }
        });
        return Ok(BlobReport::Manifest { slot, number, position, runs, filters: stored.collect() });
    }
    if magic == Some(&trim::MAGIC) {
        let Trimmed { partition, upto, slots, .. } = Trimmed::decode(bytes, name)?;
        return Ok(BlobReport::Trimmed { partition, upto, slots });
    }
    if magic == Some(&recover::MAGIC) {
        let (slots, partitions) = decode_deployment(bytes)?;
        return Ok(BlobReport::Deployment { slots, partitions });
    }
    if magic == Some(&identity::MAGIC) {
        return Ok(BlobReport::DeploymentId(DeploymentId::decode(bytes)?));
    }
    Err(Error::Corrupt(format!("{name}, byte 0: no blob of an engine")))
}
