//! What sessions were told, so that a retry is told the same and done once.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::Xxh3Default;

use super::Outcome;
use crate::entry::Request;
use crate::fields::Fields;
use crate::limits::{SESSION_ANSWER_BYTES_MAX, SESSIONS_MAX};
use crate::{Position, Result};

/// In place of an answer: the filter was too full to take the key.
const NOT_TAKEN: u8 = 2; // persisted

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

    /// The stored form; `docs/formats.md` draws it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((self.last.len() as u32).to_le_bytes());
        for (session, last) in &self.last {
            bytes.extend(session.to_le_bytes());
            bytes.extend(last.sequence.to_le_bytes());
            bytes.extend(last.position.to_bytes());
            let known = |answers: &[bool]| answers.iter().map(|answer| u8::from(*answer)).collect();
            let (tag, answers, why): (u8, Vec<u8>, &str) = match &last.outcome {
                Outcome::Added(answers) => (1, known(answers), ""), // persisted, as all tags here
                Outcome::Removed(answers) => (2, known(answers), ""),
                Outcome::Full(answers, why) => (3, known(answers), why),
                Outcome::Done => (4, Vec::new(), ""),
                Outcome::Refused(why) => (5, Vec::new(), why),
                Outcome::Passed => (6, Vec::new(), ""),
                Outcome::AddedAbsent(answers, why) => {
                    let answers = answers.iter().map(|answer| answer.map_or(NOT_TAKEN, u8::from));
                    (7, answers.collect(), why.as_deref().unwrap_or_default())
                }
            };
            bytes.push(tag);
            bytes.extend((answers.len() as u32).to_le_bytes());
            bytes.extend((why.len() as u32).to_le_bytes());
            bytes.extend(answers);
            bytes.extend(why.as_bytes());
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) gave.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::new(bytes, "stored sessions");
        let mut sessions = Self::default();
        for _ in 0..fields.u32()? {
            let request = Request { session: fields.u64()?, sequence: fields.u64()? };
            let position = Position::from_bytes(fields.take()?);
            let (tag, answers, why) = (fields.u8()?, fields.u32()? as usize, fields.u32()? as usize);
            let stored = fields.bytes(answers)?;
            let known = || stored.iter().map(|answer| *answer == 1).collect();
            let why = String::from_utf8_lossy(fields.bytes(why)?).into_owned();
            let outcome = match tag {
                1 => Outcome::Added(known()),
                2 => Outcome::Removed(known()),
                3 => Outcome::Full(known(), why),
                4 => Outcome::Done,
                5 => Outcome::Refused(why),
                6 => Outcome::Passed,
                7 => {
                    let taken = |answer: &u8| (*answer != NOT_TAKEN).then_some(*answer == 1);
                    Outcome::AddedAbsent(stored.iter().map(taken).collect(), (!why.is_empty()).then_some(why))
                }
                _ => return Err(fields.corrupt("an unknown answer")),
            };
            sessions.remember(request, &outcome, position);
        }
        fields.end()?;
        Ok(sessions)
    }

    pub(super) fn digest_into(&self, digest: &mut Xxh3Default) {
        for (session, last) in &self.last {
            digest.update(&session.to_le_bytes());
            digest.update(&last.sequence.to_le_bytes());
            digest.update(&last.position.to_bytes());
        }
    }
}

fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Added(answers) | Outcome::Removed(answers) => answers.len(),
        Outcome::Full(answers, why) => answers.len() + why.len(),
        Outcome::AddedAbsent(answers, why) => answers.len() + why.as_ref().map_or(0, String::len),
        Outcome::Refused(why) => why.len(),
        Outcome::Done | Outcome::Passed => 1,
    }
}
