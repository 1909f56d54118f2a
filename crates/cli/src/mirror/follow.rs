//! Commands as MONITOR shows them: `1700000000.123456 [0 127.0.0.1:5000] "BF.ADD" "urls" "a\x00b"`.

use std::collections::VecDeque;
use std::io::{BufRead, ErrorKind, Read};
use std::time::Duration;

use super::compare::{Wanted, name};
use super::shadow::{Queue, Seen};
use crate::resp::{Address, Connection, SILENCE_MAX};

/// Longest line that is read; commands that are longer are missed.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// Connections of our own that are remembered.
const OWN_MAX: usize = 16;
/// How long the old server may have nothing to tell before somebody looks whether it is the end.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What our own connections to the old server are called, so that what they ask is not taken for somebody else's.
pub(crate) const OWN_NAME: &str = "umbel-mirror";

/// Follows the old server until `is_over`, or until it is gone. What it does from `begun` on is seen.
pub(crate) fn follow(
    old: &Address,
    wanted: &Wanted,
    queue: &Queue,
    begun: impl FnOnce(),
    is_over: impl Fn() -> bool,
) -> Result<(), String> {
    let mut connection = Connection::open(old, SILENCE_MAX)?;
    connection.demand(&["MONITOR"])?;
    connection.set_patience(LOOK_EVERY)?;
    begun();
    let mut lines = Lines { input: connection.into_reader(), begun: Vec::new(), is_too_long: false };
    let mut own = VecDeque::new();
    while !is_over() {
        let line = match lines.next().map_err(|why| format!("{old}: {why}"))? {
            Line::Whole(line) => line,
            Line::TooLong => {
                queue.missed(1);
                continue;
            }
            Line::NotYet => continue,
        };
        let Some(shown) = parse(&line) else {
            return Err(format!("{old}: no line of MONITOR: {:?}", crate::resp::shown(&line)));
        };
        let command = name(&shown.words);
        // Our own connections say who they are before they ask anything.
        let is_own_name = shown.words.last().is_some_and(|word| word == OWN_NAME.as_bytes());
        if command == "CLIENT" && is_own_name {
            own.push_back(shown.client.clone());
            own.drain(..own.len().saturating_sub(OWN_MAX));
        }
        if wanted.has(&command) && !own.contains(&shown.client) {
            queue.push(Seen { words: shown.words, reply: None });
        }
    }
    Ok(())
}

/// What is read of a line.
enum Line {
    Whole(Vec<u8>),
    TooLong,
    /// Nothing came for a while.
    NotYet,
}

struct Lines<R> {
    input: R,
    begun: Vec<u8>,
    /// The rest of a line is passed over.
    is_too_long: bool,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Line, String> {
        let room = LINE_BYTES_MAX.saturating_sub(self.begun.len() as u64);
        match self.input.by_ref().take(room).read_until(b'\n', &mut self.begun) {
            Ok(0) if room > 0 => return Err("the server closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(Line::NotYet);
            }
            Err(error) => return Err(error.to_string()),
        }
        let line = std::mem::take(&mut self.begun);
        if !line.ends_with(b"\n") {
            self.is_too_long = true;
            return Ok(Line::NotYet);
        }
        Ok(match std::mem::take(&mut self.is_too_long) {
            true => Line::TooLong,
            false => Line::Whole(line.trim_ascii_end().strip_prefix(b"+").unwrap_or(&line).to_vec()),
        })
    }
}

/// A line of MONITOR.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    client: Vec<u8>,
    words: Vec<Vec<u8>>,
}

fn parse(line: &[u8]) -> Option<Shown> {
    let begin = line.iter().position(|byte| *byte == b'[')? + 1;
    let end = begin + line[begin..].windows(2).position(|pair| pair == b"] ")?;
    let mut rest = &line[end + 2..];
    let mut words = Vec::new();
    while !rest.is_empty() {
        let (word, behind) = quoted(rest)?;
        words.push(word);
        rest = behind.strip_prefix(b" ").unwrap_or(behind);
    }
    Some(Shown { client: line[begin..end].to_vec(), words })
}

/// A word in quotes, and what stands behind it.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut word = Vec::new();
    loop {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        match byte {
            b'"' => return Some((word, rest)),
            b'\\' => {
                let (escaped, behind) = rest.split_first()?;
                rest = behind;
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                        rest = &rest[2..];
                        u8::from_str_radix(digits, 16).ok()?
                    }
                    other => *other,
                });
            }
            other => word.push(*other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_passed_over_and_the_next_ones_are_read() {
        let long =
            [b"+1.2 [0 a] \"".as_slice(), &vec![b'x'; 2 * LINE_BYTES_MAX as usize], b"\"\r\n"].concat();
        let input = [b"+OK\r\n".as_slice(), &long, b"+1.2 [0 a] \"PING\"\r\n"].concat();
        let mut lines = Lines { input: &input[..], begun: Vec::new(), is_too_long: false };
        let mut seen = Vec::new();
        while let Ok(line) = lines.next() {
            match line {
                Line::Whole(line) => seen.push(String::from_utf8(line).unwrap()),
                Line::TooLong => seen.push("too long".to_owned()),
                Line::NotYet => {}
            }
        }
        assert_eq!(seen, ["OK", "too long", "1.2 [0 a] \"PING\""]);
    }

    #[test]
    fn lines_are_read_with_all_that_is_escaped_in_them() {
        let line = br#"1700000000.123456 [0 127.0.0.1:5000] "BF.ADD" "a \"b\"" "\\\x00\n\xff" """#;
        let expected = Shown {
            client: b"0 127.0.0.1:5000".to_vec(),
            words: vec![b"BF.ADD".to_vec(), b"a \"b\"".to_vec(), b"\\\x00\n\xff".to_vec(), Vec::new()],
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(br#"1.2 [0 [::1]:5] "PING""#).unwrap().client, b"0 [::1]:5");
        for bad in [&b""[..], b"OK", b"1.2 [0 a] \"PING", b"1.2 [0 a] PING", b"1.2 [0 a] \"\\x0g\""] {
            assert_eq!(parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
