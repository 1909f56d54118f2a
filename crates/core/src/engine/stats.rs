//! What can be told of a filter without reading all of it.

use umbel_filter::Filter;

use super::handle::Handle;

/// Bytes of arrays that are looked at, all together.
const SAMPLED_BYTES: u64 = 1 << 20;
/// Where an outline has its parts, their length, and where in a part its capacity is.
const PARTS_AT: usize = 56;
const PART_BYTES: usize = 48;
const CAPACITY_AT: usize = 16;

/// What can be told of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that were new when they were added, less those that went.
    pub items: u64,
    /// Keys that the arrays which answer are made for.
    pub capacity: u64,
    /// Bytes of the arrays in memory.
    pub bytes: u64,
    /// The share of cells in use, of the arrays in memory.
    pub fill: f64,
    /// The error rate of the arrays in memory, as they are now.
    pub estimated_error: f64,
    /// Which size of the filter is defined.
    pub generation: u32,
    /// In how many slots it has a shard.
    pub shards: u32,
    /// The most arrays that a shard has: layers, the links of a chain, or the buckets of a window.
    pub layers: u32,
    /// Whether everything is in memory.
    pub is_resident: bool,
    /// Whether another size is being built.
    pub is_growing: bool,
    /// The capacity of that size.
    pub next_capacity: Option<u64>,
}

impl Handle {
    /// What can be told of the filter, from about a mebibyte of its arrays.
    pub fn stats(&self) -> Stats {
        self.sampled(SAMPLED_BYTES)
    }

    pub(super) fn sampled(&self, sampled_bytes: u64) -> Stats {
        if self.is_window() {
            return self.window_stats(sampled_bytes);
        }
        let definition = self.definition();
        let shards: Vec<_> = self.slots().filter_map(|slot| self.projection(slot)).collect();
        let arrays = shards.iter().map(|shard| shard.filters().count() as u64).sum::<u64>().max(1);
        let (mut bytes, mut used, mut errors, mut layers, mut chain_capacity) = (0, 0.0, 0.0, 0, 0);
        for shard in &shards {
            let mut right = 1.0;
            let mut in_shard = 0;
            for filter in shard.filters() {
                let stats = filter.sampled_stats(sampled_bytes / arrays);
                bytes += stats.bytes;
                used += stats.fill * stats.bytes as f64;
                right *= 1.0 - stats.error;
                let capacities = link_capacities(filter);
                in_shard += capacities.len() as u32;
                chain_capacity += capacities.iter().sum::<u64>();
            }
            layers = layers.max(in_shard);
            errors += 1.0 - right;
        }
        let is_growing = self.is_behind();
        let capacity = if definition.is_chain() && !shards.is_empty() {
            chain_capacity
        } else if is_growing {
            self.room()
        } else {
            definition.spec.capacity
        };
        Stats {
            items: self.items(),
            capacity,
            bytes,
            fill: if bytes == 0 { 0.0 } else { used / bytes as f64 },
            estimated_error: if shards.is_empty() { 0.0 } else { errors / shards.len() as f64 },
            generation: definition.generation,
            shards: definition.shards,
            layers,
            is_resident: self.is_resident(),
            is_growing,
            next_capacity: is_growing.then_some(definition.spec.capacity),
        }
    }
}

/// The capacity of each array of a filter: a chain has several.
fn link_capacities(filter: &Filter) -> Vec<u64> {
    let outline = filter.outline();
    let parts = outline.get(PARTS_AT..).unwrap_or_default().chunks_exact(PART_BYTES);
    let capacity = |part: &[u8]| u64::from_le_bytes(std::array::from_fn(|i| part[CAPACITY_AT + i]));
    parts.map(capacity).collect()
}
