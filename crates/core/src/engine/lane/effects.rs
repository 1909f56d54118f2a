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
        let (Work::Add(keys) | Work::Remove(keys)) = part.work else {
            if matches!(outcome, Outcome::Done) {
                *self = Self::Whole;
            }
            return;
        };
        let has_effect = |at: usize| match outcome {
            Outcome::Added(_) | Outcome::Done => true,
            Outcome::Full(taken, _) => at < taken.len(),
            Outcome::Removed(removed) => removed.get(at) == Some(&true),
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

    /// Notes what an entry came to.
    pub(super) fn put(&self, position: Position, effect: Effect, split: &Split) {
        let keys = match effect {
            Effect::Whole => return,
            Effect::Keys(keys) if keys.len() == split.keys() && !keys.is_empty() => return,
            Effect::Keys(keys) => keys,
            Effect::Unknown => return self.lock().forget(position),
        };
        let mut kept = self.lock();
        if position <= kept.after {
            return;
        }
        kept.keys += keys.len() + 1;
        kept.exceptions.push_back((position, keys));
        while kept.keys > KEYS_MAX {
            let Some((position, _)) = kept.exceptions.front() else { break };
            let position = *position;
            kept.forget(position);
        }
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
    fn forget(&mut self, upto: Position) {
        while self.exceptions.front().is_some_and(|(position, _)| *position <= upto) {
            let keys = self.exceptions.pop_front().map_or(0, |(_, keys)| keys.len() + 1);
            self.keys -= keys;
        }
        self.after = self.after.max(upto);
    }
}
