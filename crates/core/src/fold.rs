//! The fold: what a slot's log comes to, entry by entry.
//!
//! [`State::apply`] is the same in a node, a replica, a rebuild and a test. It depends on nothing but the state and the entry: no
//! clock, no chance, no order of threads. Two states that folded the same entries are equal.

mod sessions;

use std::collections::BTreeMap;

use umbel_filter::{Family, Filter, Fingerprint, Kind, Layout, Limits, Plan, Secret};
use xxhash_rust::xxh3::Xxh3Default;

use crate::definition::Definition;
use crate::entry::{Entry, Operation};
use crate::log::Record;
use crate::{Error, Position, Result};
use sessions::{Known, Sessions};

/// Everything that one slot holds.
#[derive(Debug)]
pub struct State {
    slot: u16,
    applied: Position,
    filters: BTreeMap<u64, Shard>,
    sessions: Sessions,
    secret: Option<Secret>,
    limits: Limits,
}

/// A slot's part of a filter.
#[derive(Debug)]
pub struct Shard {
    definition: Definition,
    filter: Filter,
    /// Keys that were new when they were added, less those that were removed.
    items: u64,
}

/// What an entry came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// For each key, whether it was new.
    Added(Vec<bool>),
    /// For each key, whether it was there to be removed.
    Removed(Vec<bool>),
    /// The filter became full: for each key that it still took, whether it was new; and why it took no more.
    Full(Vec<bool>, String),
    /// It was done.
    Done,
    /// It changed nothing, on every node alike, for this reason.
    Refused(String),
    /// It has no effect here: it is of another slot, or was folded before.
    Passed,
}

impl State {
    /// A slot before its first entry. Filters of the `keyed` family need the deployment's secret; `limits` bound each filter.
    pub fn new(slot: u16, secret: Option<Secret>, limits: Limits) -> Self {
        Self {
            slot,
            applied: Position::START,
            filters: BTreeMap::new(),
            sessions: Sessions::default(),
            secret,
            limits,
        }
    }

    /// The position of the last entry that was folded.
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// A filter's part in this slot.
    pub fn shard(&self, filter: u64) -> Option<&Shard> {
        self.filters.get(&filter)
    }

    /// Folds a record of the slot's log. Records that were folded before are passed over, so a replay may overlap.
    ///
    /// An error means that this node cannot go on: the record is damaged, or memory is short. Nothing was changed then.
    pub fn apply_record(&mut self, record: &Record) -> Result<Outcome> {
        if record.position <= self.applied {
            return Ok(Outcome::Passed);
        }
        self.apply(record.position, &Entry::decode(&record.entry)?)
    }

    /// Folds an entry that stands at `position`.
    pub fn apply(&mut self, position: Position, entry: &Entry) -> Result<Outcome> {
        if position <= self.applied || entry.slot != self.slot {
            self.applied = self.applied.max(position);
            return Ok(Outcome::Passed);
        }
        let outcome = match self.sessions.known(entry.request) {
            Known::New => self.perform(entry)?,
            Known::Answered(outcome) => outcome,
            Known::Old => Outcome::Refused(format!(
                "request {} of session {:x} is older than the last one",
                entry.request.sequence, entry.request.session
            )),
        };
        self.sessions.remember(entry.request, &outcome, position);
        self.applied = position;
        Ok(outcome)
    }

    fn perform(&mut self, entry: &Entry) -> Result<Outcome> {
        if let Operation::Define(bytes) = &entry.operation {
            return self.define(entry.filter, bytes);
        }
        let Some(shard) = self.filters.get_mut(&entry.filter) else {
            return Ok(match entry.operation {
                Operation::Barrier | Operation::Drop => Outcome::Done,
                _ => Outcome::Refused(format!("there is no filter {:x}", entry.filter)),
            });
        };
        match &entry.operation {
            Operation::Add(keys) => Ok(shard.add(keys)),
            Operation::Remove(keys) => Ok(shard.remove(keys)),
            Operation::Clear => {
                shard.filter.clear().map_err(|error| cannot(&error))?;
                shard.items = 0;
                Ok(Outcome::Done)
            }
            Operation::Drop => {
                self.filters.remove(&entry.filter);
                Ok(Outcome::Done)
            }
            Operation::Barrier | Operation::Define(_) => Ok(Outcome::Done),
        }
    }

    fn define(&mut self, filter: u64, bytes: &[u8]) -> Result<Outcome> {
        let definition = match Definition::decode(bytes) {
            Ok(definition) => definition,
            Err(error) => return Ok(Outcome::Refused(error.to_string())),
        };
        if let Some(shard) = self.filters.get(&filter) {
            return Ok(if shard.definition == definition {
                Outcome::Done
            } else {
                Outcome::Refused(format!("filter {filter:x} is defined otherwise"))
            });
        }
        let plan = Plan::new(&definition.spec, definition.shards).map_err(|error| cannot(&error))?;
        let secret = self.secret.as_ref().filter(|_| definition.spec.family == Family::Keyed);
        let made = match definition.spec.layout {
            Layout::RedisBloom { .. } => Filter::new(&definition.spec, &self.limits),
            _ => Filter::with_geometry(&definition.spec, plan.geometry, secret, &self.limits),
        };
        let shard = Shard { definition, filter: made.map_err(|error| cannot(&error))?, items: 0 };
        self.filters.insert(filter, shard);
        Ok(Outcome::Done)
    }

    /// A digest of all filters, of what sessions were told and of the position: equal for equal states.
    pub fn digest(&self) -> u128 {
        let mut digest = Xxh3Default::new();
        digest.update(&self.applied.to_bytes());
        for (id, shard) in &self.filters {
            digest.update(&id.to_le_bytes());
            digest.update(&shard.items.to_le_bytes());
            digest.update(&shard.filter.digest().to_le_bytes());
        }
        self.sessions.digest_into(&mut digest);
        digest.digest128()
    }
}

/// This node cannot do what the log demands; others may.
fn cannot(error: &umbel_filter::Error) -> Error {
    Error::Retry(error.to_string())
}

impl Shard {
    /// What the filter is.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The array that answers.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Keys that were new when they were added, less those that were removed.
    pub fn items(&self) -> u64 {
        self.items
    }

    fn add(&mut self, keys: &[Fingerprint]) -> Outcome {
        let mut new = Vec::new();
        let outcome = self.filter.insert_fingerprints(keys, &mut new);
        self.items += new.iter().filter(|new| **new).count() as u64;
        match outcome {
            Ok(()) => Outcome::Added(new),
            Err(error) => Outcome::Full(new, error.to_string()),
        }
    }

    fn remove(&mut self, keys: &[Fingerprint]) -> Outcome {
        let Kind::Counting(_) = self.definition.spec.kind else {
            return Outcome::Refused("nothing can be removed from a bloom filter".into());
        };
        // A counting filter refuses no removal, it only tells whether there was something to remove.
        let there: Vec<_> =
            keys.iter().map(|key| self.filter.remove_fingerprint(*key).unwrap_or(false)).collect();
        let removed = there.iter().filter(|there| **there).count() as u64;
        self.items = self.items.saturating_sub(removed);
        Outcome::Removed(there)
    }
}
