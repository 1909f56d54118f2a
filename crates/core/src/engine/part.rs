//! Entries and what they are for each slot.

use std::ops::Range;

use umbel_filter::Fingerprint;

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
    /// Which of the keys they are.
    pub(super) keys: Range<usize>,
}

/// The slots of a partition: slot `s` lives in partition `s mod partitions`.
pub(super) fn slots_of(
    partition: u32,
    partitions: u32,
    slots: u32,
) -> impl ExactSizeIterator<Item = u16> + Clone + use<> {
    (partition as u16..slots as u16).step_by(partitions as usize)
}

/// Slots of a partition in deployments of the default size.
const PARTS_EXPECTED: usize = 64;

impl Split {
    /// Splits an entry of a partition into what is for each of its slots.
    pub(super) fn new(entry: Entry, partition: u32, partitions: u32, slots: u32) -> Self {
        let Entry { slot, filter, request, operation } = entry;
        let whole = |operation| Entry { slot, filter, request, operation };
        let (keys, again): (_, fn(_) -> _) = match operation {
            Operation::Add(keys) => (keys, Operation::Add),
            Operation::Remove(keys) => (keys, Operation::Remove),
            Operation::AddAbsent(keys) => (keys, Operation::AddAbsent),
            other if slot != SPREAD => {
                return Self { entry: whole(other), parts: vec![(slot, 0..0)], places: None };
            }
            other => {
                let all = slots_of(partition, partitions, slots);
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
        let slot_of = |key: &Fingerprint| key.slot(slots) as u16;
        // Entries of our own are in order already.
        if let Some(parts) = parts_in_order(keys.iter().map(slot_of)) {
            return Self { entry: whole(again(keys)), parts, places: None };
        }
        let order = Order::new(keys.iter().map(slot_of), slots as usize);
        let sorted: Vec<_> = order.places().map(|place| keys[place as usize]).collect();
        let parts = parts_in_order(sorted.iter().map(slot_of)).unwrap_or_default();
        Self { entry: whole(again(sorted)), parts, places: Some(order.places().collect()) }
    }

    /// What is for each slot.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.parts.iter().map(|(slot, keys)| {
            let work = match &self.entry.operation {
                Operation::Add(all) => Work::Add(&all[keys.clone()]),
                Operation::Remove(all) => Work::Remove(&all[keys.clone()]),
                Operation::AddAbsent(all) => Work::AddAbsent(&all[keys.clone()]),
                Operation::Define(definition) if self.entry.slot == SPREAD => Work::DefineInAll(definition),
                other => Work::Other(other),
            };
            Part { slot: *slot, work, keys: keys.clone() }
        })
    }

    /// Whether it changes what filters there are.
    pub(super) fn is_change(&self) -> bool {
        !matches!(self.entry.operation, Operation::Add(_) | Operation::Remove(_) | Operation::AddAbsent(_))
    }

    /// Whether it is for several slots.
    pub(super) fn is_spread(&self) -> bool {
        self.parts.len() > 1
    }

    /// Leaves out slots for which there is nothing to do.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u16) -> bool) {
        self.parts.retain(|(slot, _)| keep(*slot));
    }

    /// How many keys there are for all slots.
    pub(super) fn keys(&self) -> usize {
        self.entry.operation.keys().len()
    }
}

/// The ranges of equal slots, unless a slot comes after a greater one.
fn parts_in_order(slots: impl ExactSizeIterator<Item = u16>) -> Option<Vec<(u16, Range<usize>)>> {
    let mut parts: Vec<(u16, Range<usize>)> = Vec::with_capacity(slots.len().min(PARTS_EXPECTED));
    for (at, slot) in slots.enumerate() {
        match parts.last_mut() {
            Some((last, range)) if *last == slot => range.end = at + 1,
            Some((last, _)) if *last > slot => return None,
            _ => parts.push((slot, at..at + 1)),
        }
    }
    Some(parts)
}

/// The order of keys by the group that they belong to. Keys of one group stay in the order in which they came.
pub(super) struct Order(Vec<u64>);

impl Order {
    /// From the group of each key, all of them below `groups`.
    pub(super) fn new(of_keys: impl ExactSizeIterator<Item = u16>, groups: usize) -> Self {
        let of_keys = (0..).zip(of_keys);
        let mut order: Vec<u64> =
            of_keys.map(|(place, group): (u64, u16)| u64::from(group) << 32 | place).collect();
        // To count costs a step for each group, to compare costs several for each key.
        if order.len() * 4 < groups {
            order.sort_unstable();
            return Self(order);
        }
        let group_of = |code: &u64| (code >> 32) as usize;
        let mut starts = vec![0_u32; groups + 1];
        order.iter().for_each(|code| starts[group_of(code) + 1] += 1);
        for group in 1..groups {
            starts[group] += starts[group - 1];
        }
        let mut sorted = vec![0; order.len()];
        for code in &order {
            let start = &mut starts[group_of(code)];
            sorted[*start as usize] = *code;
            *start += 1;
        }
        Self(sorted)
    }

    /// Where each key stood, in the new order.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|code| *code as u32)
    }

    /// The group and the place of each key, in the new order.
    pub(super) fn codes(&self) -> impl Iterator<Item = (u16, u32)> {
        self.0.iter().map(|code| ((code >> 32) as u16, *code as u32))
    }
}

/// What came of an entry, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Where the entry stands.
    pub position: Position,
    /// For each key, whether it was new or there to be removed; nothing if it was not taken.
    pub answers: Vec<Option<bool>>,
    /// Why keys were not taken: the filter is full.
    pub full: Option<String>,
    /// Why nothing was done in some slot.
    pub refused: Option<String>,
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
            Outcome::AddedAbsent(answers, why) => {
                if why.is_some() {
                    self.full = why;
                }
                return self.put_all(split, part, answers);
            }
            Outcome::Refused(why) => {
                self.refused = Some(why);
                return;
            }
            Outcome::Done | Outcome::Passed => return,
        };
        self.put(split, part, &answers);
    }

    /// Takes in answers for all keys of a part, of which some were not taken.
    fn put_all(&mut self, split: &Split, part: &Part<'_>, answers: Vec<Option<bool>>) {
        for (at, answer) in part.keys.clone().zip(answers) {
            let place = split.places.as_ref().map_or(at, |places| places[at] as usize);
            self.answers[place] = answer;
        }
    }

    /// Takes in answers for the first keys of a part.
    pub(super) fn put(&mut self, split: &Split, part: &Part<'_>, answers: &[bool]) {
        match &split.places {
            None => {
                let places = &mut self.answers[part.keys.clone()];
                places.iter_mut().zip(answers).for_each(|(place, answer)| *place = Some(*answer));
            }
            Some(places) => {
                for (place, answer) in places[part.keys.clone()].iter().zip(answers) {
                    self.answers[*place as usize] = Some(*answer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::Fingerprint;

    use super::*;
    use crate::entry::Request;

    #[test]
    fn order_is_by_group_and_then_by_place() {
        for keys in [0, 1, 7, 300, 5000] {
            let groups: Vec<u16> =
                (0..keys).map(|n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u16).collect();
            let mut expected: Vec<(u16, u32)> = groups.iter().copied().zip(0..).collect();
            expected.sort_unstable();
            let order = Order::new(groups.iter().copied(), 256);
            assert_eq!(order.codes().collect::<Vec<_>>(), expected);
        }
    }

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
