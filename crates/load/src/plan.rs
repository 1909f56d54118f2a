//! What follows from what was written down: where each part goes on, and what is sent once more.

use crate::journal::Entry;
use crate::{Bookmark, Error, Part, Result};

/// What was read and acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys that the sink has.
    pub keys: u64,
    /// Those of them that were new.
    pub added: u64,
    /// Rows without a key.
    pub nulls: u64,
    /// Bytes of the source.
    pub bytes: u64,
}

impl Counts {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            added: self.added + other.added,
            nulls: self.nulls + other.nulls,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// How far a part has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) part: Part,
    /// Everything before it is at the sink.
    pub(crate) after: Option<Bookmark>,
    /// Batches that are.
    pub(crate) batches: u64,
    pub(crate) counts: Counts,
    pub(crate) is_done: bool,
}

impl State {
    pub(crate) fn new(part: Part) -> Self {
        Self { part, after: None, batches: 0, counts: Counts::default(), is_done: false }
    }

    /// What a journal says was sent is at the sink, and so is all that came before it.
    pub(crate) fn settled(&mut self, entry: &Entry, added: u64) {
        self.after = Some(entry.after.clone());
        self.batches = entry.batches;
        self.counts = entry.counts.plus(Counts { added, ..Counts::default() });
    }

    /// One more batch is at the sink.
    pub(crate) fn took(&mut self, after: Bookmark, counts: Counts) {
        self.after = Some(after);
        self.batches += 1;
        self.counts = self.counts.plus(counts);
    }
}

/// The journals of which nobody knows whether they arrived: the checkpoint was written before them. They are sent again under
/// the number that they had, before anything else.
pub(crate) fn unsettled<'a>(states: &[State], journals: &'a [Entry], form: &str) -> Result<Vec<&'a Entry>> {
    let mut found: Vec<&Entry> = Vec::new();
    for entry in journals {
        let Some(state) = states.get(entry.part) else {
            return Err(Error::Corrupt(format!("a journal of part {}, which there is not", entry.part)));
        };
        if entry.batches <= state.batches {
            continue;
        }
        if entry.form != form {
            return Err(Error::Invalid(format!(
                "keys were sent as {}, and the filter takes {form} now: it is another one",
                entry.form
            )));
        }
        found.push(entry);
    }
    // The end of a part may have been read by another lane than its beginning.
    found.sort_by_key(|entry| (entry.part, entry.batches));
    Ok(found)
}

/// Parts that are not read to their end, those that were begun first.
pub(crate) fn to_read(states: &[State]) -> Vec<usize> {
    let mut open: Vec<usize> = (0..states.len()).filter(|number| !states[*number].is_done).collect();
    open.sort_by_key(|number| states[*number].after.is_none());
    open
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sink::{Packed, Who};

    fn state(batches: u64, is_done: bool) -> State {
        let part = Part { name: "p".into(), bounds: String::new(), bytes: None, rows: None };
        let mut state = State { is_done, ..State::new(part) };
        for batch in 0..batches {
            state.took(Bookmark::new(batch.to_string()).unwrap(), Counts { keys: 10, ..Counts::default() });
        }
        state
    }

    fn entry(part: usize, batches: u64) -> Entry {
        Entry {
            who: Who { session: 1, sequence: 1 },
            part,
            batches,
            after: Bookmark::new("x").unwrap(),
            counts: Counts::default(),
            form: "f".into(),
            packed: Packed { keys: 1, bytes: Bytes::from_static(b"k") },
        }
    }

    #[test]
    fn what_the_checkpoint_lacks_is_sent_again_and_nothing_else() {
        let states = [state(3, false), state(0, false), state(5, true)];
        let journals = [entry(0, 7), entry(1, 0), entry(2, 5), entry(0, 6)];
        let found = unsettled(&states, &journals, "f").unwrap();
        assert_eq!(found, [&journals[3], &journals[0]]);
        assert!(matches!(unsettled(&states, &[entry(3, 1)], "f"), Err(Error::Corrupt(_))));
        assert!(matches!(unsettled(&states, &journals, "g"), Err(Error::Invalid(_))));
        let mut state = state(3, false);
        state.settled(&journals[0], 5);
        assert_eq!(
            (state.batches, state.counts.added, state.after),
            (7, 5, Some(Bookmark::new("x").unwrap()))
        );
    }

    #[test]
    fn what_was_begun_is_read_first() {
        let states = [state(0, false), state(2, true), state(0, false), state(1, false)];
        assert_eq!(to_read(&states), [3, 0, 2]);
        assert_eq!(states[1].counts.keys, 20);
    }
}
