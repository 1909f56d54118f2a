//! Entries in messages of brokers: as many as fit, so that a batch is one message and stands together.
//!
//! ```text
//! one entry     the entry
//! many          length, entry, length, entry ...      lengths have four bytes, little end first
//! ```
//!
//! Which of both a message is, is said beside it, because a largest entry must fit into a largest message.

use bytes::{BufMut, Bytes, BytesMut};
use umbel_core::limits::ENTRY_BYTES_MAX;
use umbel_core::log::Appended;
use umbel_core::{Error, Position, Result};

const LENGTH_BYTES: usize = 4;
/// In place of an entry's number in its message: it is the last one. So the end of a message is known without a look into it.
const LAST: u32 = u32::MAX;

/// A message to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) is_many: bool,
    pub(crate) count: u32,
    pub(crate) payload: Bytes,
}

/// Puts entries into messages of at most so many bytes, in order.
pub(crate) fn pack(entries: &[Bytes], bytes_max: usize) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take_while(|entry| {
            bytes += LENGTH_BYTES + entry.len();
            bytes <= bytes_max
        });
        let count = fitting.count().max(1);
        let (now, later) = rest.split_at(count);
        rest = later;
        messages.push(match now {
            [entry] => Message { is_many: false, count: 1, payload: entry.clone() },
            many => {
                let mut payload = BytesMut::new();
                for entry in many {
                    payload.put_u32_le(entry.len() as u32);
                    payload.put_slice(entry);
                }
                Message { is_many: true, count: count as u32, payload: payload.freeze() }
            }
        });
    }
    messages
}

/// The entries of a message.
pub(crate) fn unpack(is_many: bool, payload: &Bytes) -> Result<Vec<Bytes>> {
    let corrupt = || Error::Corrupt(format!("a message of {} bytes that holds no entries", payload.len()));
    let check =
        |entry: Bytes| (1..=ENTRY_BYTES_MAX).contains(&entry.len()).then_some(entry).ok_or_else(corrupt);
    if !is_many {
        return Ok(vec![check(payload.clone())?]);
    }
    let mut entries = Vec::new();
    let mut at = 0;
    while at < payload.len() {
        let length = payload.get(at..at + LENGTH_BYTES).and_then(|bytes| bytes.first_chunk());
        let length = u32::from_le_bytes(*length.ok_or_else(corrupt)?) as usize;
        let end = at + LENGTH_BYTES + length;
        if end > payload.len() {
            return Err(corrupt());
        }
        entries.push(check(payload.slice(at + LENGTH_BYTES..end))?);
        at = end;
    }
    if entries.is_empty() { Err(corrupt()) } else { Ok(entries) }
}

/// The positions of a message's entries; messages are numbered from 1.
pub(crate) fn positions(message: u64, count: u32) -> impl Iterator<Item = Position> {
    (1..=count).map(move |number| place(message, if number == count { LAST } else { number }))
}

/// Where the entries of messages stand that were appended one after another by one who had read up to `read`: the numbers of the
/// messages and their counts, each with the number of the last message before it that has entries, if that is known.
pub(crate) fn appended(messages: &[Sent], read: Position) -> Appended {
    let mut known = read;
    let is_next = messages.iter().all(|sent| {
        let is_next = sent.before.is_some_and(|before| behind(before) == known);
        known = behind(sent.number);
        is_next
    });
    let positions = messages.iter().flat_map(|sent| positions(sent.number, sent.count)).collect();
    Appended { positions, is_next }
}

/// A message that was appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    /// Entries in it.
    pub(crate) count: u32,
    /// The number of the last message before it that has entries; 0 if there is none, nothing if nobody knows.
    pub(crate) before: Option<u64>,
}

impl Sent {
    /// One of a log in which all messages have entries.
    pub(crate) fn among_entries(number: u64, count: u32) -> Self {
        Self { number, count, before: number.checked_sub(1) }
    }
}

/// The place behind a message; behind none of them, the start.
pub(crate) fn behind(message: u64) -> Position {
    if message == 0 { Position::START } else { place(message, LAST) }
}

fn place(message: u64, number: u32) -> Position {
    Position::from_number(u128::from(message) << 32 | u128::from(number))
}

/// The last message that a position has all of.
pub(crate) fn whole_message(position: Position) -> u64 {
    let (message, is_whole) = parts(position);
    if is_whole { message } else { message.saturating_sub(1) }
}

fn parts(position: Position) -> (u64, bool) {
    let number = position.number();
    let message = u64::try_from(number >> 32).unwrap_or(u64::MAX);
    (message, message == 0 || number as u32 == LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let sizes = [1, 5, 90, 100, 96, 3, 200, 1, 1];
        let entries: Vec<_> = sizes.iter().map(|size| Bytes::from(vec![*size as u8; *size])).collect();
        for bytes_max in [1, 100, 104, 1000] {
            let messages = pack(&entries, bytes_max);
            assert!(messages.iter().all(|message| message.count == 1 || message.payload.len() <= bytes_max));
            let found: Vec<_> = messages
                .iter()
                .flat_map(|message| unpack(message.is_many, &message.payload).unwrap())
                .collect();
            assert_eq!(found, entries, "{bytes_max}");
        }
        assert!(pack(&[], 10).is_empty());
    }

    #[test]
    fn damaged_messages_are_refused() {
        let payload = pack(&[Bytes::from_static(b"one"), Bytes::from_static(b"two")], 100).remove(0).payload;
        for cut in 0..payload.len() {
            let outcome = unpack(true, &payload.slice(..cut));
            assert!(outcome.is_err() || cut == 7, "{cut}");
        }
        assert!(unpack(false, &Bytes::new()).is_err());
        assert!(unpack(true, &Bytes::from_static(&[255; 9])).is_err());
    }

    #[test]
    fn positions_grow_and_say_which_messages_are_whole() {
        let all: Vec<_> = positions(1, 3).chain(positions(2, 1)).chain(positions(3, 2)).collect();
        assert!(all.is_sorted() && all[0] > Position::START);
        let whole: Vec<_> = all.iter().map(|position| whole_message(*position)).collect();
        assert_eq!(whole, [0, 0, 1, 2, 2, 3]);
        assert_eq!((behind(0), behind(2)), (Position::START, all[3]));
        assert_eq!(whole_message(Position::START), 0);
    }

    #[test]
    fn whoever_missed_nothing_is_told_so() {
        let sent = Sent::among_entries;
        let all: Vec<_> = positions(2, 1).chain(positions(3, 2)).collect();
        let told = appended(&[sent(2, 1), sent(3, 2)], behind(1));
        assert_eq!(told, Appended { positions: all, is_next: true });
        assert!(appended(&[sent(1, 1)], Position::START).is_next);
        let first_of_many = positions(1, 2).next().unwrap();
        for read in [Position::START, first_of_many, behind(2)] {
            assert!(!appended(&[sent(2, 1)], read).is_next, "{read}");
        }
        assert!(!appended(&[sent(2, 1), sent(4, 2)], behind(1)).is_next, "somebody was in between");
        // Messages without entries are nothing that one would miss.
        let marked =
            [Sent { number: 5, count: 1, before: Some(2) }, Sent { number: 7, count: 1, before: Some(5) }];
        assert!(appended(&marked, behind(2)).is_next);
        assert!(!appended(&[Sent { number: 5, count: 1, before: None }], behind(4)).is_next);
    }
}
