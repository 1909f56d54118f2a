//! How large a filter has to be.

pub use umbel_core::definition::capacity_for;

use crate::sink::Facts;
use crate::{Batch, Part, Result, Source};

/// Batches that are read to find out how many keys there are for the bytes, of all parts together.
const SAMPLE_BATCHES: usize = 16;
/// Parts that are looked at for that, spread over all.
const SAMPLE_PARTS: usize = 4;

/// Whether keys fit into a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// They do.
    Enough,
    /// The filter grows while they come, perhaps several times; given this size before, it does not.
    Grows {
        /// The capacity to choose.
        offer: u64,
    },
    /// The filter takes no more when it is full, and they are too many.
    TooSmall {
        /// The capacity to choose.
        offer: u64,
    },
}

/// Whether so many keys fit into a filter besides what it holds. They may be in it already: nobody knows before they were
/// added, so a filter that has all of them is thought to be too small only if it is nearly full.
pub fn room(facts: &Facts, keys: u64) -> Room {
    let after = facts.items.max(keys).max(if facts.counts { facts.items.saturating_add(keys) } else { 0 });
    let (needed, room) = (u128::from(after) * 100, u128::from(facts.capacity));
    let offer = capacity_for(after);
    match facts.growth {
        Some(_) if needed >= room * u128::from(facts.grows_at) => Room::Grows { offer },
        None if needed > room * 100 => Room::TooSmall { offer },
        _ => Room::Enough,
    }
}

/// About how many keys the parts have: as the source says, or by a look at the beginning of some of them. None if there is
/// no telling without reading all.
pub fn estimate(source: &dyn Source, parts: &[Part]) -> Result<Option<u64>> {
    if let Some(rows) = parts.iter().map(|part| part.rows).sum::<Option<u64>>() {
        return Ok(Some(rows));
    }
    let Some(whole) = parts.iter().map(|part| part.bytes).sum::<Option<u64>>() else { return Ok(None) };
    if !source.is_resumable() {
        return Ok(None);
    }
    let sampled: Vec<&Part> = sampled(parts.len()).map(|number| &parts[number]).collect();
    let (mut keys, mut bytes, mut batch) = (0_u64, 0_u64, Batch::default());
    let mut is_all = sampled.len() == parts.len();
    for part in &sampled {
        let mut cursor = source.open(part, None)?;
        let mut is_over = false;
        for _ in 0..SAMPLE_BATCHES / sampled.len() {
            batch.clear();
            is_over = cursor.next(&mut batch)?.is_none();
            if is_over {
                break;
            }
            keys += batch.len() as u64;
            bytes += batch.source_bytes();
        }
        is_all &= is_over;
    }
    if is_all || bytes == 0 {
        return Ok(Some(keys));
    }
    Ok(Some((keys as f64 / bytes as f64 * whole as f64) as u64))
}

/// Numbers of some of so many parts, spread over all.
fn sampled(parts: usize) -> impl Iterator<Item = usize> {
    let count = parts.min(SAMPLE_PARTS);
    (0..count).map(move |number| number * parts / count)
}

#[cfg(test)]
mod tests {
    use umbel_filter::Family;

    use super::*;

    #[test]
    fn capacities_are_round_and_leave_room() {
        assert_eq!(capacity_for(0), 1_000);
        assert_eq!(capacity_for(1_000_000), 1_500_000);
        assert_eq!(capacity_for(97_654_321), 150_000_000);
        for keys in [1, 999, 12_345, 10_u64.pow(12), u64::MAX / 2] {
            assert!(capacity_for(keys) >= keys + keys / 2);
        }
        assert!(capacity_for(u64::MAX) > 0);
    }

    #[test]
    fn room_depends_on_growth_and_on_whether_keys_count_twice() {
        let facts = |capacity, items, growth, counts| Facts {
            capacity,
            error: 0.01,
            items,
            growth,
            grows_at: 80,
            counts,
            family: Family::Murmur3,
            kind: String::new(),
            is_window: false,
        };
        assert_eq!(room(&facts(1_000, 900, None, false), 1_000), Room::Enough);
        assert_eq!(room(&facts(1_000, 900, None, true), 1_000), Room::TooSmall { offer: 2_900 });
        assert_eq!(room(&facts(1_000, 0, None, false), 1_001), Room::TooSmall { offer: 1_600 });
        assert_eq!(room(&facts(1_000, 0, Some(2.0), false), 799), Room::Enough);
        assert_eq!(room(&facts(1_000, 0, Some(2.0), false), 800), Room::Grows { offer: 1_200 });
        assert_eq!(room(&facts(1_000, 0, Some(2.0), false), 10_000), Room::Grows { offer: 15_000 });
    }

    #[test]
    fn samples_are_spread_over_all_parts() {
        assert_eq!(sampled(0).count(), 0);
        assert_eq!(sampled(1).collect::<Vec<_>>(), [0]);
        assert_eq!(sampled(8).collect::<Vec<_>>(), [0, 2, 4, 6]);
    }
}
