//! What nodes tell each other, byte by byte. Numbers are little-endian; lists stand behind their length.
//!
//! ```text
//! SUBMIT  entries: [partition u32, bytes]                          --> [position 16, answers, flags u8, full?, refused?]
//! ASK     filter u64, after: [partition u32, position 16],
//!         and fingerprints of 16 to the end                        --> a byte for each key
//! VERIFY  as ASK                                                   --> a u64 for each key
//! REACH   partition u32, position 16                               --> nothing
//! FIND    a name to the end                                        --> nothing, or filter u64, position 16
//! COUNTS  filter u64, partitions: [u32]                            --> items, held, removed: u64 each, for each partition
//!
//! LOOK: see `looks`; CHANGES: see `changes`; PASS: see `api/cluster.rs`; NOTICE: see `sync/notices.rs`; KEYS, SHAPES, BLOCKS, PUBLISH: parts of filters, see `parts`
//!
//! answers: how many u32, then two bits for each key: 0 false, 1 true, 2 not taken
//! ```

pub(crate) mod changes;
pub(crate) mod looks;
pub(crate) mod parts;

use std::io::Write;

use bytes::Bytes;
use umbel_core::engine::{Answer, Applied, Token};
use umbel_core::fold::Counts;
use umbel_core::{Error, Position, Result};
use umbel_filter::Fingerprint;

/// The command that all of it goes with.
pub(crate) const COMMAND: &str = "UMBEL.PEER";
/// Most bytes of one message. An entry has a mebibyte at most.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Longest text in a message.
const TEXT_BYTES_MAX: usize = 64 << 10;

const FULL: u8 = 1;
const REFUSED: u8 = 2;

/// A command of RESP with these words behind its name.
pub(crate) fn frame(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let words: Vec<&[&[u8]]> = words.iter().map(std::slice::from_ref).collect();
    put_frame(&mut out, &words);
    out
}

/// The same behind other bytes; each word may come in pieces.
pub(crate) fn put_frame(out: &mut Vec<u8>, words: &[&[&[u8]]]) {
    let length = |pieces: &[&[u8]]| pieces.iter().map(|piece| piece.len()).sum::<usize>();
    out.reserve(words.iter().map(|pieces| length(pieces) + 16).sum::<usize>() + COMMAND.len() + 16);
    // Writing to memory does not fail.
    let _ = write!(out, "*{}\r\n", words.len() + 1);
    for pieces in [&[COMMAND.as_bytes()][..]].iter().chain(words) {
        let _ = write!(out, "${}\r\n", length(pieces));
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        out.extend_from_slice(b"\r\n");
    }
}

/// What is left of a message.
struct Message<'a>(&'a [u8]);

fn cut() -> Error {
    Error::Invalid("a message of another node that cannot be read".into())
}

impl<'a> Message<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| cut())
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn position(&mut self) -> Result<Position> {
        Ok(Position::from_bytes(self.take()?))
    }

    /// How many things of at least so many bytes follow: more than can be there are refused before memory is taken for them.
    fn count(&mut self, bytes_each: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > self.0.len() / bytes_each { Err(cut()) } else { Ok(count) }
    }

    fn text(&mut self) -> Result<String> {
        let length = self.count(1)?;
        if length > TEXT_BYTES_MAX {
            return Err(cut());
        }
        Ok(String::from_utf8_lossy(self.bytes(length)?).into_owned())
    }

    fn end<T>(self, value: T) -> Result<T> {
        if self.0.is_empty() { Ok(value) } else { Err(cut()) }
    }
}

fn put_length(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u32).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_length(out, end);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

/// Entries to be appended.
pub(crate) fn put_entries<'e>(entries: impl ExactSizeIterator<Item = &'e (u32, Bytes)>) -> Vec<u8> {
    let mut out = Vec::new();
    put_length(&mut out, entries.len());
    for (partition, entry) in entries {
        out.extend(partition.to_le_bytes());
        put_length(&mut out, entry.len());
        out.extend_from_slice(entry);
    }
    out
}

pub(crate) fn entries(bytes: &[u8]) -> Result<Vec<(u32, Bytes)>> {
    let mut message = Message(bytes);
    let count = message.count(8)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let partition = message.u32()?;
        let length = message.u32()? as usize;
        entries.push((partition, Bytes::copy_from_slice(message.bytes(length)?)));
    }
    message.end(entries)
}

/// What came of entries.
pub(crate) fn put_applied(all: &[Applied]) -> Vec<u8> {
    let mut out = Vec::new();
    put_length(&mut out, all.len());
    for Applied { position, answers, full, refused } in all {
        out.extend(position.to_bytes());
        put_length(&mut out, answers.len());
        for four in answers.chunks(4) {
            let bits = four.iter().enumerate().map(|(place, answer)| {
                let code = answer.map_or(2, u8::from);
                code << (2 * place)
            });
            out.push(bits.fold(0, |byte, bits| byte | bits));
        }
        let flag = |text: &Option<String>, flag: u8| if text.is_some() { flag } else { 0 };
        out.push(flag(full, FULL) | flag(refused, REFUSED));
        full.iter().chain(refused).for_each(|text| put_text(&mut out, text));
    }
    out
}

pub(crate) fn applied(bytes: &[u8]) -> Result<Vec<Applied>> {
    let mut message = Message(bytes);
    let count = message.count(16 + 4 + 1)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let position = message.position()?;
        let keys = message.u32()? as usize;
        let packed = message.bytes(keys.div_ceil(4))?;
        let answer = |key: usize| match packed[key / 4] >> (2 * (key % 4)) & 3 {
            0 => Ok(Some(false)),
            1 => Ok(Some(true)),
            2 => Ok(None),
            _ => Err(cut()),
        };
        let answers = (0..keys).map(answer).collect::<Result<_>>()?;
        let [flags] = message.take()?;
        if flags & !(FULL | REFUSED) != 0 {
            return Err(cut());
        }
        let mut text = |flag: u8| (flags & flag != 0).then(|| message.text()).transpose();
        let (full, refused) = (text(FULL)?, text(REFUSED)?);
        all.push(Applied { position, answers, full, refused });
    }
    message.end(all)
}

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// Bytes of a position with its partition.
const PLACE_BYTES: usize = 20;

/// Keys one after another, as many as there is room for.
pub(crate) fn put_keys(keys: impl ExactSizeIterator<Item = Fingerprint>) -> Vec<u8> {
    let mut out = Vec::with_capacity(keys.len() * KEY_BYTES);
    keys.for_each(|key| out.extend_from_slice(&key.to_bytes()));
    out
}

/// Keys to the end of a message.
fn take_keys(message: &mut Message<'_>) -> Result<Vec<Fingerprint>> {
    let (keys, rest) = std::mem::take(&mut message.0).as_chunks::<KEY_BYTES>();
    if rest.is_empty() {
        Ok(keys.iter().map(|key| Fingerprint::from_bytes(*key)).collect())
    } else {
        Err(cut())
    }
}

/// What a question for keys begins with; the keys follow.
pub(crate) fn put_question(filter: u64, after: &Token) -> Vec<u8> {
    let mut out = filter.to_le_bytes().to_vec();
    put_token(&mut out, after);
    out
}

fn put_token(out: &mut Vec<u8>, token: &Token) {
    put_length(out, token.positions().count());
    for (partition, position) in token.positions() {
        out.extend(partition.to_le_bytes());
        out.extend(position.to_bytes());
    }
}

fn take_token(message: &mut Message<'_>) -> Result<Token> {
    let mut token = Token::default();
    for _ in 0..message.count(PLACE_BYTES)? {
        let partition = message.u32()?;
        token.see(partition, message.position()?);
    }
    Ok(token)
}

pub(crate) fn question(bytes: &[u8]) -> Result<(u64, Token, Vec<Fingerprint>)> {
    let mut message = Message(bytes);
    let filter = message.u64()?;
    let after = take_token(&mut message)?;
    Ok((filter, after, take_keys(&mut message)?))
}

/// Answers to it.
pub(crate) fn put_answers(answers: &[Answer]) -> Vec<u8> {
    let code = |answer: &Answer| match answer {
        Answer::Absent => 0,
        Answer::Maybe => 1,
        Answer::Unknown => 2,
    };
    answers.iter().map(code).collect()
}

pub(crate) fn answers(bytes: &[u8]) -> Result<Vec<Answer>> {
    let answer = |code: &u8| match code {
        0 => Ok(Answer::Absent),
        1 => Ok(Answer::Maybe),
        2 => Ok(Answer::Unknown),
        _ => Err(cut()),
    };
    bytes.iter().map(answer).collect()
}

pub(crate) fn put_numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub(crate) fn numbers(bytes: &[u8]) -> Result<Vec<u64>> {
    let (words, rest) = bytes.as_chunks::<8>();
    if rest.is_empty() {
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    } else {
        Err(cut())
    }
}

/// The name of a filter that is looked for.
pub(crate) fn name(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| cut())
}

/// Which filter has it, and up to where that was confirmed.
pub(crate) fn put_found(found: Option<(u64, Position)>) -> Vec<u8> {
    found.map_or_else(Vec::new, |(filter, position)| {
        [&filter.to_le_bytes()[..], &position.to_bytes()].concat()
    })
}

pub(crate) fn found(bytes: &[u8]) -> Result<Option<(u64, Position)>> {
    let mut message = Message(bytes);
    let found = if bytes.is_empty() { None } else { Some((message.u64()?, message.position()?)) };
    message.end(found)
}

pub(crate) fn put_reach(partition: u32, position: Position) -> Vec<u8> {
    [&partition.to_le_bytes()[..], &position.to_bytes()].concat()
}

pub(crate) fn reach(bytes: &[u8]) -> Result<(u32, Position)> {
    let mut message = Message(bytes);
    let place = (message.u32()?, message.position()?);
    message.end(place)
}

/// A question what partitions hold of a filter.
pub(crate) fn put_count(filter: u64, partitions: &[u32]) -> Vec<u8> {
    let mut out = filter.to_le_bytes().to_vec();
    put_length(&mut out, partitions.len());
    out.extend(partitions.iter().flat_map(|partition| partition.to_le_bytes()));
    out
}

pub(crate) fn count(bytes: &[u8]) -> Result<(u64, Vec<u32>)> {
    let mut message = Message(bytes);
    let filter = message.u64()?;
    let partitions = (0..message.count(4)?).map(|_| message.u32()).collect::<Result<_>>()?;
    message.end((filter, partitions))
}

pub(crate) fn put_counts(all: &[Counts]) -> Vec<u8> {
    let numbers = all.iter().flat_map(|counts| [counts.items, counts.held, counts.removed]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

pub(crate) fn counts(bytes: &[u8]) -> Result<Vec<Counts>> {
    let numbers = numbers(bytes)?;
    let (all, rest) = numbers.as_chunks::<3>();
    let counts = |[items, held, removed]: &[u64; 3]| Counts { items: *items, held: *held, removed: *removed };
    if rest.is_empty() { Ok(all.iter().map(counts).collect()) } else { Err(cut()) }
}

/// An error as a line, its kind first.
pub(crate) fn put_error(error: &Error) -> String {
    match error {
        Error::Retry(why) => format!("TRYAGAIN {why}"),
        Error::Invalid(why) => format!("INVALID {why}"),
        Error::Moved(why) => format!("MOVED {why}"),
        Error::Gone(why) => format!("GONE {why}"),
        Error::Corrupt(why) => format!("CORRUPT {why}"),
        // This node ends by it.
        Error::Closed(why) => format!("{} {why}", crate::commands::CLOSED),
        Error::Trimmed { oldest } => format!("TRIMMED {:032x}", oldest.number()),
        other => format!("TRYAGAIN {other}"),
    }
}

pub(crate) fn error(line: &str) -> Error {
    let (kind, why) = line.split_once(' ').unwrap_or((line, ""));
    let text = || why.to_owned();
    match kind {
        "INVALID" => Error::Invalid(text()),
        "MOVED" => Error::Moved(text()),
        "GONE" => Error::Gone(text()),
        "CORRUPT" => Error::Corrupt(text()),
        crate::commands::CLOSED => Error::Closed(text()),
        "TRIMMED" => match u128::from_str_radix(why, 16) {
            Ok(oldest) => Error::Trimmed { oldest: Position::from_number(oldest) },
            Err(_) => Error::Retry(line.to_owned()),
        },
        "TRYAGAIN" => Error::Retry(text()),
        // What the door itself says: too many clients, a wrong secret.
        _ => Error::Retry(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(count: u64) -> Vec<Fingerprint> {
        (0..count).map(|n| Fingerprint { first: n, second: !n }).collect()
    }

    #[test]
    fn all_that_is_told_is_understood() {
        let sent = vec![(3, Bytes::from_static(b"one")), (u32::MAX, Bytes::new())];
        assert_eq!(entries(&put_entries(sent.iter())).unwrap(), sent);
        for count in 0..10_usize {
            let all: Vec<Applied> = (0..count)
                .map(|n| Applied {
                    position: Position::from_number(n as u128),
                    answers: (0..n * 3).map(|key| [None, Some(true), Some(false)][key % 3]).collect(),
                    full: (n % 2 == 1).then(|| "full".to_owned()),
                    refused: (n % 3 == 1).then(|| "refused, as it has to be".to_owned()),
                })
                .collect();
            assert_eq!(applied(&put_applied(&all)).unwrap(), all);
        }
        let mut after = Token::default();
        after.see(2, Position::from_number(77));
        let asked = [put_question(9, &after), put_keys(keys(50).into_iter())].concat();
        assert_eq!(question(&asked).unwrap(), (9, after, keys(50)));
        assert!(question(&asked[..asked.len() - 1]).is_err());
        let all = vec![Answer::Absent, Answer::Maybe, Answer::Unknown];
        assert_eq!(answers(&put_answers(&all)).unwrap(), all);
        assert_eq!(numbers(&put_numbers(&[1, u64::MAX])).unwrap(), [1, u64::MAX]);
        let position = Position::from_number(5);
        assert_eq!(reach(&put_reach(1, position)).unwrap(), (1, position));
        for known in [None, Some((7, position))] {
            assert_eq!(found(&put_found(known)).unwrap(), known);
        }
        let told =
            [Counts { items: 1, held: 2, removed: 3 }, Counts { items: 4, held: 5, removed: u64::MAX }];
        assert_eq!(counts(&put_counts(&told)).unwrap(), told);
        assert_eq!(count(&put_count(7, &[1, u32::MAX])).unwrap(), (7, vec![1, u32::MAX]));
        assert_eq!(frame(&[b"REACH", b"x"]), b"*3\r\n$10\r\nUMBEL.PEER\r\n$5\r\nREACH\r\n$1\r\nx\r\n");
    }

    #[test]
    fn errors_keep_their_kind() {
        let all = [
            Error::Retry("a b".into()),
            Error::Invalid("a b".into()),
            Error::Moved("a b".into()),
            Error::Gone("a b".into()),
            Error::Corrupt("a b".into()),
            Error::Closed("a b".into()),
            Error::Trimmed { oldest: Position::from_number(u128::MAX) },
        ];
        for sent in all {
            let read = error(&put_error(&sent));
            assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&sent));
            assert_eq!(read.to_string(), sent.to_string());
        }
        assert!(matches!(error("ERR max number of clients reached"), Error::Retry(_)));
    }

    #[test]
    fn a_count_that_is_too_large_takes_no_memory() {
        let many = u32::MAX.to_le_bytes();
        assert!(entries(&many).is_err() && applied(&many).is_err());
        assert!(question(&[&[0; 8][..], &many].concat()).is_err());
        assert!(count(&[&[0; 8][..], &many].concat()).is_err());
        assert!(applied(&[&1_u32.to_le_bytes()[..], &[0; 16], &many, &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn nothing_that_comes_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (entries(&bytes), applied(&bytes), question(&bytes), answers(&bytes));
            let _ = (name(&bytes), found(&bytes), numbers(&bytes), reach(&bytes), count(&bytes), counts(&bytes));
            let _ = error(&String::from_utf8_lossy(&bytes));
        }
    }
}
