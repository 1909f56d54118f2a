//! Entries and what they are for each slot.

use std::ops::Range;

use crate::Position;
use crate::entry::{Entry, Operation, SPREAD};
use crate::fold::{Outcome, Work};

/// An entry, with its keys in the order of their slots.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) entry: Entry,
    parts: Vec<(u16, Range<usize>)>,
    /// Where each key stood before, if the order changed.
    places: Option<Vec<u32>>,
}

/// What of an entry is for one slot.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    pub(super) slot: u16,
    pub(super) work: Work<'a>,
    keys: Range<usize>,
}

impl Split {
    /// Splits an entry of a partition into what is for each of its slots.
    pub(super) fn new(entry: Entry, partition: u32, partitions: u32, slots: u32) -> Self {
        let Entry { slot, filter, request, operation } = entry;
        let whole = |operation| Entry { slot, filter, request, operation };
        let (keys, again): (_, fn(_) -> _) = match operation {
            Operation::Add(keys) => (keys, Operation::Add),
            Operation::Remove(keys) => (keys, Operation::Remove),
            other if slot != SPREAD => {
                return Self { entry: whole(other), parts: vec![(slot, 0..0)], places: None };
            }
            other => {
                let all = (partition as u16..slots as u16).step_by(partitions as usize);
                return Self {
                    entry: whole(other),
                    parts: all.map(|slot| (slot, 0..0)).collect(),
                    places: None,
                };
            }
        };
        if slot != SPREAD {
            let parts = vec![(slot, 0..keys.len())];
            return Self { entry: whole(again(keys)), parts, places: None };
        }
        let mut order: Vec<(u16, u32)> =
            (0..).zip(&keys).map(|(n, key)| (key.slot(slots) as u16, n)).collect();
        order.sort_unstable();
        let mut parts: Vec<(u16, Range<usize>)> = Vec::new();
        for (at, (slot, _)) in order.iter().enumerate() {
            match parts.last_mut() {
                Some((last, range)) if last == slot => range.end = at + 1,
                _ => parts.push((*slot, at..at + 1)),
            }
        }
        let sorted = order.iter().map(|(_, place)| keys[*place as usize]).collect();
        let places = order.iter().map(|(_, place)| *place).collect();
        Self { entry: whole(again(sorted)), parts, places: Some(places) }
    }

    /// What is for each slot.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.parts.iter().map(|(slot, keys)| {
            let work = match &self.entry.operation {
                Operation::Add(all) => Work::Add(&all[keys.clone()]),
                Operation::Remove(all) => Work::Remove(&all[keys.clone()]),
                other => Work::Other(other),
            };
            Part { slot: *slot, work, keys: keys.clone() }
        })
    }

    /// Whether it changes what filters there are.
    pub(super) fn is_change(&self) -> bool {
        !matches!(self.entry.operation, Operation::Add(_) | Operation::Remove(_))
    }

    /// Whether it is for several slots.
    pub(super) fn is_spread(&self) -> bool {
        self.parts.len() > 1
    }

    /// Leaves out slots for which there is nothing to do.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u16) -> bool) {
        self.parts.retain(|(slot, _)| keep(*slot));
    }

    fn keys(&self) -> usize {
        match &self.entry.operation {
            Operation::Add(keys) | Operation::Remove(keys) => keys.len(),
            _ => 0,
        }
    }
}

/// What came of an entry, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) position: Position,
    /// For each key, whether it was new or there to be removed; nothing if it was not taken.
    pub(super) answers: Vec<Option<bool>>,
    /// Why keys were not taken: the filter is full.
    pub(super) full: Option<String>,
    /// Why nothing was done in some slot.
    pub(super) refused: Option<String>,
}

impl Applied {
    pub(super) fn at(position: Position, split: &Split) -> Self {
        Self { position, answers: vec![None; split.keys()], ..Self::default() }
    }

    /// Takes in what came of a part.
    pub(super) fn take(&mut self, split: &Split, part: &Part<'_>, outcome: Outcome) {
        let answers = match outcome {
            Outcome::Added(answers) | Outcome::Removed(answers) => answers,
            Outcome::Full(answers, why) => {
                self.full = Some(why);
                answers
            }
            Outcome::Refused(why) => {
                self.refused = Some(why);
                return;
            }
            Outcome::Done | Outcome::Passed => return,
        };
        for (at, answer) in part.keys.clone().zip(answers) {
            let place = split.places.as_ref().map_or(at, |places| places[at] as usize);
            self.answers[place] = Some(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::Fingerprint;

    use super::*;
    use crate::entry::Request;

    #[test]
    fn parts_of_an_entry_are_the_entry() {
        let keys: Vec<Fingerprint> = (0..500_u64)
            .map(|n| Fingerprint { first: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), second: n })
            .collect();
        let entry = |operation| Entry { filter: 1, slot: SPREAD, request: Request::default(), operation };
        let split = Split::new(entry(Operation::Add(keys.clone())), 0, 1, 16);
        assert_eq!(split.parts().count(), 16);
        let mut applied = Applied::at(Position::START, &split);
        for part in split.parts() {
            let Work::Add(own) = part.work else { panic!("{part:?}") };
            assert!(own.iter().all(|key| key.slot(16) == u32::from(part.slot)));
            // An answer that tells which key it is for.
            applied.take(&split, &part, Outcome::Added(own.iter().map(|key| key.second % 3 == 0).collect()));
        }
        let expected: Vec<_> = keys.iter().map(|key| Some(key.second % 3 == 0)).collect();
        assert_eq!(applied.answers, expected);

        let slots = |partition| {
            let split = Split::new(entry(Operation::Clear), partition, 3, 8);
            split.parts().map(|part| part.slot).collect::<Vec<_>>()
        };
        assert_eq!([slots(0), slots(1), slots(2)], [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
    }
}
