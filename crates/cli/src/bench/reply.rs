//! Replies of a server, counted as they arrive: RESP version 2, in whatever pieces the network gives.

use crate::resp::{number, shown};

/// Lines and texts beyond this are no answers to what is asked here.
pub(crate) const REPLY_BYTES_MAX: usize = 256 << 10;
const ELEMENTS_MAX: u64 = 1 << 20;
const DEPTH_MAX: usize = 8;

#[derive(PartialEq, Debug)]
pub(crate) enum Value<'a> {
    Integer(i64),
    Error(&'a [u8]),
    Text(&'a [u8]),
    Null,
    /// Its elements follow, as values of their own.
    Array,
}

/// One value at the front of the bytes.
#[derive(PartialEq, Debug)]
pub(crate) struct Step<'a> {
    pub(crate) value: Value<'a>,
    /// What it took of the bytes.
    pub(crate) bytes: usize,
    /// Whether a reply ends with it.
    pub(crate) ends: bool,
}

/// Finds values. What is cut off stays with the caller, until there is more of it.
#[derive(Default)]
pub(crate) struct Reader {
    /// How many elements are to come in every array that is open.
    open: Vec<u64>,
}

impl Reader {
    /// The next value; nothing if it has not come whole yet.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Step<'a>>, String> {
        // Nearly all values are one digit, so these are looked at first.
        if let [b':', digit @ b'0'..=b'9', b'\r', b'\n', ..] = bytes {
            return Ok(Some(self.step(Value::Integer(i64::from(digit - b'0')), 4)));
        }
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() < REPLY_BYTES_MAX {
                Ok(None)
            } else {
                Err("a reply without end".to_owned())
            };
        };
        let (Some(kind), Some(line)) = (bytes.first(), bytes.get(1..end.saturating_sub(1))) else {
            return Err("an empty line instead of a reply".to_owned());
        };
        let taken = end + 1;
        match kind {
            b':' => Ok(Some(self.step(Value::Integer(number(line)?), taken))),
            b'-' => Ok(Some(self.step(Value::Error(line), taken))),
            b'+' => Ok(Some(self.step(Value::Text(line), taken))),
            b'$' => self.text(bytes, number(line)?, taken),
            b'*' => self.array(number(line)?, taken),
            _ => Err(format!("no reply of RESP 2: {:?}", shown(&bytes[..end]))),
        }
    }

    fn text<'a>(&mut self, bytes: &'a [u8], length: i64, taken: usize) -> Result<Option<Step<'a>>, String> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(Some(self.step(Value::Null, taken)));
        };
        if length > REPLY_BYTES_MAX - 64 {
            return Err(format!("a reply of {length} bytes, over the limit of {REPLY_BYTES_MAX}"));
        }
        let text = bytes.get(taken..taken + length + 2).map(|text| &text[..length]);
        Ok(text.map(|text| self.step(Value::Text(text), taken + length + 2)))
    }

    fn array<'a>(&mut self, length: i64, taken: usize) -> Result<Option<Step<'a>>, String> {
        match u64::try_from(length) {
            Err(_) => Ok(Some(self.step(Value::Null, taken))),
            Ok(0) => Ok(Some(self.step(Value::Array, taken))),
            Ok(length) if length > ELEMENTS_MAX || self.open.len() == DEPTH_MAX => {
                Err(format!("a reply of {length} elements at depth {}", self.open.len()))
            }
            Ok(length) => {
                self.open.push(length);
                Ok(Some(Step { value: Value::Array, bytes: taken, ends: false }))
            }
        }
    }

    /// A value is complete: so may be the arrays around it.
    fn step<'a>(&mut self, value: Value<'a>, bytes: usize) -> Step<'a> {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return Step { value, bytes, ends: false };
            }
            self.open.pop();
        }
        Step { value, bytes, ends: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[u8] =
        b":1\r\n:0\r\n+OK\r\n-ERR unknown command\r\n*3\r\n:1\r\n-full\r\n:0\r\n$5\r\na\r\nbc\r\n\
        $-1\r\n*0\r\n*2\r\n*1\r\n:7\r\n:-12\r\n*-1\r\n:1\r\n";
    /// Whole replies, integers, errors.
    const COUNTS: (usize, usize, usize) = (11, 7, 2);

    /// Feeds the pieces as a connection would.
    fn count(pieces: &[&[u8]]) -> (usize, usize, usize) {
        let (mut reader, mut buffer, mut counts) = (Reader::default(), Vec::new(), (0, 0, 0));
        for piece in pieces {
            buffer.extend_from_slice(piece);
            let mut at = 0;
            while let Some(step) = reader.next(&buffer[at..]).unwrap() {
                at += step.bytes;
                counts.0 += usize::from(step.ends);
                counts.1 += usize::from(matches!(step.value, Value::Integer(_)));
                counts.2 += usize::from(matches!(step.value, Value::Error(_)));
            }
            buffer.drain(..at);
        }
        assert!(buffer.is_empty() && reader.open.is_empty());
        counts
    }

    #[test]
    fn replies_are_counted_wherever_they_are_cut() {
        assert_eq!(count(&[REPLIES]), COUNTS);
        for first in 0..REPLIES.len() {
            for second in first..REPLIES.len() {
                let pieces = [&REPLIES[..first], &REPLIES[first..second], &REPLIES[second..]];
                assert_eq!(count(&pieces), COUNTS, "{first}, {second}");
            }
        }
        let bytes: Vec<_> = REPLIES.chunks(1).collect();
        assert_eq!(count(&bytes), COUNTS);
    }

    #[test]
    fn values_are_handed_out() {
        let mut reader = Reader::default();
        let value = |value, bytes, ends| Ok(Some(Step { value, bytes, ends }));
        assert_eq!(reader.next(b"$2\r\n\r\n\r\n:1"), value(Value::Text(b"\r\n"), 8, true));
        assert_eq!(reader.next(b":-12\r\n"), value(Value::Integer(-12), 6, true));
        assert_eq!(reader.next(b"*1\r\n"), value(Value::Array, 4, false));
        assert_eq!(reader.next(b"-no\r\n"), value(Value::Error(b"no"), 5, true));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in
            [&b"HTTP/1.1 400\r\n"[..], b"\n", b"\r\n", b":x\r\n", b"$99999999999\r\n", b"*9999999999\r\n"]
        {
            assert!(Reader::default().next(bytes).is_err(), "{bytes:?}");
        }
        assert!(Reader::default().next(&vec![b'+'; REPLY_BYTES_MAX]).is_err());
        let deep = b"*1\r\n".repeat(DEPTH_MAX + 1);
        let mut reader = Reader::default();
        assert!(deep.chunks(4).any(|array| reader.next(array).is_err()));
    }
}
