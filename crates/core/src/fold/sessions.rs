//! What sessions were told, so that a retry is told the same and done once.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::Xxh3Default;

use super::Outcome;
use crate::Position;
use crate::entry::Request;
use crate::limits::{SESSION_ANSWER_BYTES_MAX, SESSIONS_MAX};

/// The last answer of each session, for as many as there is room; who was silent longest is forgotten first, in the order of the
/// log and therefore by all nodes alike.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    last: BTreeMap<u64, Last>,
    by_position: BTreeMap<Position, u64>,
    answer_bytes: usize,
}

#[derive(Debug)]
struct Last {
    sequence: u64,
    position: Position,
    outcome: Outcome,
}

/// What is known of a request.
pub(super) enum Known {
    New,
    /// It was done, with this outcome.
    Answered(Outcome),
    /// A later one of its session was done.
    Old,
}

impl Sessions {
    pub(super) fn known(&self, request: Request) -> Known {
        match self.last.get(&request.session) {
            Some(last) if last.sequence == request.sequence => Known::Answered(last.outcome.clone()),
            Some(last) if last.sequence > request.sequence => Known::Old,
            _ => Known::New,
        }
    }

    pub(super) fn remember(&mut self, request: Request, outcome: &Outcome, position: Position) {
        let newest = self.last.get(&request.session).is_none_or(|last| last.sequence <= request.sequence);
        if request.session == 0 || !newest {
            return;
        }
        self.forget(request.session);
        self.answer_bytes += bytes_of(outcome);
        let last = Last { sequence: request.sequence, position, outcome: outcome.clone() };
        self.last.insert(request.session, last);
        self.by_position.insert(position, request.session);
        while self.last.len() > SESSIONS_MAX || self.answer_bytes > SESSION_ANSWER_BYTES_MAX {
            let Some((_, silent)) = self.by_position.first_key_value() else { break };
            let silent = *silent;
            self.forget(silent);
        }
    }

    fn forget(&mut self, session: u64) {
        if let Some(last) = self.last.remove(&session) {
            self.by_position.remove(&last.position);
            self.answer_bytes -= bytes_of(&last.outcome);
        }
    }

    pub(super) fn digest_into(&self, digest: &mut Xxh3Default) {
        for (session, last) in &self.last {
            digest.update(&session.to_le_bytes());
            digest.update(&last.sequence.to_le_bytes());
            digest.update(&last.position.to_bytes());
            digest.update(format!("{:?}", last.outcome).as_bytes());
        }
    }
}

fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Added(answers) | Outcome::Removed(answers) => answers.len(),
        Outcome::Full(answers, why) => answers.len() + why.len(),
        Outcome::Refused(why) => why.len(),
        Outcome::Done | Outcome::Passed => 1,
    }
}
