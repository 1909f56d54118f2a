//! Entries and what they are for each slot.

use umbel_filter::Fingerprint;

use crate::Position;
use crate::entry::{Entry, Operation, SPREAD};
use crate::fold::Outcome;

/// What of an entry is for one slot.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) entry: Entry,
    /// Where its keys stand in the whole entry, if they are not all of it.
    places: Option<Vec<u32>>,
    keys_in_all: usize,
}

/// Splits an entry of a partition into what is for each of its slots.
pub(super) fn split(entry: Entry, partition: u32, partitions: u32, slots: u32) -> Vec<Part> {
    let keys_in_all = match &entry.operation {
        Operation::Add(keys) | Operation::Remove(keys) => keys.len(),
        _ => 0,
    };
    if entry.slot != SPREAD {
        return vec![Part { entry, places: None, keys_in_all }];
    }
    let of = |slot: u16, operation| Entry { slot, operation, ..entry };
    let by_slot = |keys: &[Fingerprint], operation: fn(Vec<Fingerprint>) -> Operation| {
        let slot_and_place = |(place, key): (u32, &Fingerprint)| (key.slot(slots) as u16, place);
        let mut order: Vec<(u16, u32)> = (0..).zip(keys).map(slot_and_place).collect();
        order.sort_unstable();
        let part = |group: &[(u16, u32)]| Part {
            entry: of(group[0].0, operation(group.iter().map(|(_, place)| keys[*place as usize]).collect())),
            places: Some(group.iter().map(|(_, place)| *place).collect()),
            keys_in_all,
        };
        order.chunk_by(|(one, _), (next, _)| one == next).map(part).collect()
    };
    match &entry.operation {
        Operation::Add(keys) => by_slot(keys, Operation::Add),
        Operation::Remove(keys) => by_slot(keys, Operation::Remove),
        other => {
            let slots = (partition as u16..slots as u16).step_by(partitions as usize);
            slots.map(|slot| Part { entry: of(slot, other.clone()), places: None, keys_in_all }).collect()
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
    pub(super) fn at(position: Position) -> Self {
        Self { position, ..Self::default() }
    }

    /// Takes in what came of a part.
    pub(super) fn take(&mut self, part: &Part, outcome: Outcome) {
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
        let Some(places) = &part.places else {
            self.answers = answers.into_iter().map(Some).collect();
            self.answers.resize(part.keys_in_all, None);
            return;
        };
        self.answers.resize(part.keys_in_all, None);
        for (place, answer) in places.iter().zip(answers) {
            self.answers[*place as usize] = Some(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Request;

    #[test]
    fn parts_of_an_entry_are_the_entry() {
        let keys: Vec<Fingerprint> = (0..500_u64)
            .map(|n| Fingerprint { first: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), second: n })
            .collect();
        let entry = |operation| Entry { filter: 1, slot: SPREAD, request: Request::default(), operation };
        let parts = split(entry(Operation::Add(keys.clone())), 0, 1, 16);
        assert_eq!(parts.len(), 16);
        let mut applied = Applied::at(Position::START);
        for part in &parts {
            let Operation::Add(own) = &part.entry.operation else { panic!("{part:?}") };
            assert!(own.iter().all(|key| key.slot(16) == u32::from(part.entry.slot)));
            // An answer that tells which key it is for.
            applied.take(part, Outcome::Added(own.iter().map(|key| key.second % 3 == 0).collect()));
        }
        let expected: Vec<_> = keys.iter().map(|key| Some(key.second % 3 == 0)).collect();
        assert_eq!(applied.answers, expected);

        let slots = |partition| {
            split(entry(Operation::Clear), partition, 3, 8)
                .iter()
                .map(|part| part.entry.slot)
                .collect::<Vec<_>>()
        };
        assert_eq!([slots(0), slots(1), slots(2)], [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
    }
}
