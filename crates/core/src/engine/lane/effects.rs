//! What entries came to, where that is not what they say. A removal takes out only what is there, a full filter takes no more, and
//! a request that comes again does nothing: the log does not know that, but whoever follows it elsewhere has to.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use umbel_filter::Fingerprint;

use crate::engine::part::{Part, Split};
use crate::fold::{Outcome, Work};
use crate::{Error, Position, Result};

/// Keys that are remembered, at most, in a lane.
const KEYS_MAX: usize = 1 << 16;

/// What an entry came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Effect {
    /// All that it says.
    Whole,
    /// It had an effect on these keys only, which may be none.
    Keys(Vec<Fingerprint>),
    /// Nobody knows: a part of it was folded at another time.
    Unknown,
}

impl Effect {
    /// Before any part of an entry was folded: keys do what they should unless it is said otherwise, anything else does so only if
    /// it is said.
    pub(super) fn of(split: &Split) -> Self {
        if split.keys() > 0 { Self::Whole } else { Self::Keys(Vec::new()) }
    }

    /// Notes what came of a part; nothing if it was folded at another time. Parts whose keys all did what they should need not be
    /// told.
    pub(super) fn take(&mut self, split: &Split, part: &Part<'_>, outcome: Option<&Outcome>) {
        let Some(outcome) = outcome else {
            *self = Self::Unknown;
            return;
        };
        if let Work::DefineInAll(_) | Work::Other(_) = part.work {
            if matches!(outcome, Outcome::Done) {
                *self = Self::Whole;
            }
            return;
        }
        let keys = part.work.keys();
        let has_effect = |at: usize| match outcome {
            Outcome::Added(_) | Outcome::Done => true,
            Outcome::Full(taken, _) => at < taken.len(),
            Outcome::Removed(removed) => removed.get(at) == Some(&true),
            Outcome::AddedAbsent(added, _) => added.get(at) == Some(&Some(true)),
            Outcome::Refused(_) | Outcome::Passed => false,
        };
        if matches!((&*self, outcome), (Self::Whole, Outcome::Added(_))) {
            return;
        }
        if let Self::Whole = self {
            // The parts before it did what they should.
            *self = Self::Keys(split.entry.operation.keys()[..part.keys.start].to_vec());
        }
        if let Self::Keys(all) = self {
            all.extend(keys.iter().enumerate().filter(|(at, _)| has_effect(*at)).map(|(_, key)| *key));
        }
    }
}

/// The effects of the newest entries.
#[derive(Debug)]
pub(super) struct Effects(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// Up to here nothing is known.
    after: Position,
    keys: usize,
    /// By position.
    exceptions: VecDeque<(Position, Vec<Fingerprint>)>,
}

impl Effects {
    pub(super) fn after(position: Position) -> Self {
        Self(Mutex::new(Kept { after: position, keys: 0, exceptions: VecDeque::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what was noted where the lane was folded beside itself. Up to `applied`, it was folded here, too.
    pub(super) fn go_on(&self, applied: Position, beside: Self) {
        let beside = beside.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut kept = self.lock();
        if beside.after > applied {
            // What happened in between nobody saw.
            *kept = beside;
            return;
        }
        for (position, keys) in beside.exceptions {
            if position > applied {
                kept.push(position, keys);
            }
        }
    }

    /// Notes what an entry came to.
    pub(super) fn put(&self, position: Position, effect: Effect, split: &Split) {
        let keys = match effect {
            Effect::Whole => return,
            Effect::Keys(keys) if keys.len() == split.keys() && !keys.is_empty() => return,
            Effect::Keys(keys) => keys,
            Effect::Unknown => return self.lock().forget(position),
        };
        self.lock().push(position, keys);
    }

    pub(super) fn get(&self, position: Position) -> Result<Effect> {
        let kept = self.lock();
        if position <= kept.after {
            return Err(Error::Trimmed { oldest: kept.after });
        }
        let found = kept.exceptions.binary_search_by_key(&position, |(position, _)| *position);
        Ok(found.map_or(Effect::Whole, |at| Effect::Keys(kept.exceptions[at].1.clone())))
    }
}

impl Kept {
    fn push(&mut self, position: Position, keys: Vec<Fingerprint>) {
        if position <= self.after {
            return;
        }
        self.keys += keys.len() + 1;
        self.exceptions.push_back((position, keys));
        while self.keys > KEYS_MAX {
            let Some((position, _)) = self.exceptions.front() else { break };
            let position = *position;
            self.forget(position);
        }
    }

    fn forget(&mut self, upto: Position) {
        while self.exceptions.front().is_some_and(|(position, _)| *position <= upto) {
            let keys = self.exceptions.pop_front().map_or(0, |(_, keys)| keys.len() + 1);
            self.keys -= keys;
        }
        self.after = self.after.max(upto);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u128) -> Position {
        Position::from_number(number)
    }

    /// Effects after a position, with exceptions at others.
    fn effects(after: u128, exceptions: &[u128]) -> Effects {
        let effects = Effects::after(at(after));
        exceptions.iter().for_each(|position| effects.lock().push(at(*position), Vec::new()));
        effects
    }

    #[test]
    fn what_was_folded_beside_is_taken_over() {
        let nothing = Ok(Effect::Keys(Vec::new()));
        let told = |effects: &Effects, position: u128| effects.get(at(position)).map_err(|_| ());
        // It goes on where this one ended, or before.
        let lane = effects(10, &[12, 15]);
        lane.go_on(at(20), effects(18, &[19, 25]));
        assert_eq!((told(&lane, 12), told(&lane, 25)), (nothing.clone(), nothing.clone()));
        assert_eq!((told(&lane, 13), told(&lane, 30)), (Ok(Effect::Whole), Ok(Effect::Whole)));
        assert_eq!(told(&lane, 10), Err(()));
        // There is a gap.
        let lane = effects(10, &[12]);
        lane.go_on(at(20), effects(22, &[25]));
        assert_eq!((told(&lane, 12), told(&lane, 22)), (Err(()), Err(())));
        assert_eq!((told(&lane, 25), told(&lane, 26)), (nothing, Ok(Effect::Whole)));
    }
}
