//! Keys that several nodes are asked for, and which of them has which.

use umbel_filter::Fingerprint;

use super::Shared;
use super::handle::Handle;
use super::requests::Token;
use crate::cluster::Partitions;
use crate::{Error, Result};

/// Which partition a key of a filter belongs to: all nodes agree on it without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The slot of a filter that lives in one.
    home: Option<u16>,
    slots: u32,
    partitions: u32,
}

impl Placement {
    /// The partition of a key.
    #[inline]
    pub fn partition(&self, key: Fingerprint) -> u32 {
        let slot = self.home.map_or_else(|| key.slot(self.slots), u32::from);
        // Mostly it is one, and a division takes longer than all the rest.
        if self.partitions.is_power_of_two() { slot & (self.partitions - 1) } else { slot % self.partitions }
    }

    /// The partitions of keys.
    pub(super) fn partitions(&self, keys: &[Fingerprint]) -> Partitions {
        // All keys of a filter that lives in one slot are in one partition.
        let keys = if self.home.is_some() { keys.get(..1).unwrap_or_default() } else { keys };
        Partitions::of(self.partitions, keys.iter().map(|key| self.partition(*key)))
    }
}

/// What other nodes are asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// The number of the filter.
    pub filter: u64,
    /// Where its keys are.
    pub placement: Placement,
    /// The keys.
    pub keys: &'q [Fingerprint],
    /// What has to be folded before an answer counts.
    pub after: &'q Token,
}

impl Question<'_> {
    /// The partition of the key with this number.
    #[inline]
    pub fn partition(&self, number: usize) -> u32 {
        self.placement.partition(self.keys[number])
    }
}

/// The keys of a request by who answers for them.
#[derive(Debug)]
pub(super) struct Divided {
    /// Those of this node.
    pub(super) here: Vec<Fingerprint>,
    /// Those of others.
    pub(super) there: Vec<Fingerprint>,
    /// Of each, whether it is one of the latter.
    are_there: Vec<bool>,
}

impl Divided {
    /// Divides keys. Which of them are where cannot be foretold, so both lists get every key, and only one of them keeps it.
    fn new(keys: &[Fingerprint], is_there: impl Fn(Fingerprint) -> bool) -> Self {
        let mut lists = [vec![Fingerprint::default(); keys.len()], vec![Fingerprint::default(); keys.len()]];
        let [here, there] = &mut lists;
        let (mut here_count, mut there_count) = (0, 0);
        let divide = |key: &Fingerprint| {
            let is_there = is_there(*key);
            here[here_count] = *key;
            there[there_count] = *key;
            here_count += usize::from(!is_there);
            there_count += usize::from(is_there);
            is_there
        };
        let are_there = keys.iter().map(divide).collect();
        let [mut here, mut there] = lists;
        here.truncate(here_count);
        there.truncate(there_count);
        Self { here, there, are_there }
    }

    /// What was told of all keys, in their order.
    pub(super) fn together<T: Copy>(&self, here: Vec<T>, there: Vec<T>) -> Result<Vec<T>> {
        if here.len() != self.here.len() || there.len() != self.there.len() {
            return Err(Error::Retry("another node answered for more or fewer keys than it was sent".into()));
        }
        if there.is_empty() {
            return Ok(here);
        }
        if here.is_empty() {
            return Ok(there);
        }
        let mut next = [0, here.len()];
        let both = [here, there].concat();
        let told = self.are_there.iter().map(|is_there| {
            let next = &mut next[usize::from(*is_there)];
            *next += 1;
            both[*next - 1]
        });
        Ok(told.collect())
    }
}

impl Shared {
    pub(super) fn placement(&self, filter: &Handle) -> Placement {
        let home = filter.is_whole().then(|| filter.slots().next()).flatten();
        Placement { home, slots: self.settings.slots, partitions: self.lanes.len() as u32 }
    }

    /// A question for keys of a filter, for those who have them.
    pub(super) fn question<'q>(
        &self,
        filter: &Handle,
        keys: &'q [Fingerprint],
        after: &'q Token,
    ) -> Question<'q> {
        Question { filter: filter.id(), placement: self.placement(filter), keys, after }
    }

    /// Divides keys by who is asked for them: this node for those of some partitions.
    pub(super) fn divide(
        &self,
        filter: &Handle,
        keys: &[Fingerprint],
        here: impl FnOnce(&Partitions) -> Partitions,
    ) -> Divided {
        let placement = self.placement(filter);
        let mine = here(&placement.partitions(keys));
        Divided::new(keys, |key| !mine.contains(placement.partition(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_divided_comes_together_in_its_order() {
        for (count, there) in [(0, 1), (1, 1), (1, 2), (10, 1), (10, 3), (10, 100)] {
            let keys: Vec<_> = (0..count).map(|n| Fingerprint { first: n, second: 7 * n }).collect();
            let divided = Divided::new(&keys, |key| key.first % there != 0);
            assert!(divided.here.iter().all(|key| key.first % there == 0));
            assert!(divided.there.iter().all(|key| key.first % there != 0));
            let (here, there) = (divided.here.clone(), divided.there.clone());
            assert_eq!(divided.together(here, there).unwrap(), keys);
            assert!(divided.together(vec![0; divided.here.len() + 1], vec![0; divided.there.len()]).is_err());
        }
    }

    #[test]
    fn keys_are_where_their_slot_is() {
        for partitions in [1, 6, 64] {
            let spread = Placement { home: None, slots: 256, partitions };
            let keys: Vec<_> = (0..100).map(|n| Fingerprint { first: n, second: n << 40 }).collect();
            let expected: Partitions = keys.iter().map(|key| key.slot(256) % partitions).collect();
            assert_eq!(spread.partitions(&keys), expected);
            let whole = Placement { home: Some(77), ..spread };
            assert_eq!(whole.partitions(&keys), [77 % partitions].into_iter().collect());
            assert_eq!(whole.partitions(&[]), Partitions::default());
        }
    }
}
