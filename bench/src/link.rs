//! A connection that speaks Redis's protocol and waits for its answers, and the keys that are asked for over it.

use std::io::{BufRead, BufReader, Error, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest time without an answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Link {
    socket: BufReader<TcpStream>,
}

/// An answer: how many of its numbers are not 0, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) hits: usize,
    pub(crate) all: usize,
}

impl Link {
    pub(crate) fn open(port: u16) -> std::io::Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self { socket: BufReader::with_capacity(1 << 16, socket) })
    }

    pub(crate) fn ask(&mut self, arguments: &[impl AsRef<[u8]>]) -> std::io::Result<Answer> {
        self.send(arguments)?;
        self.receive()
    }

    pub(crate) fn send(&mut self, arguments: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
        self.socket.get_mut().write_all(&encoded(arguments))
    }

    /// Sends what is encoded already.
    pub(crate) fn send_all(&mut self, requests: &[u8]) -> std::io::Result<()> {
        self.socket.get_mut().write_all(requests)
    }

    /// One answer: a word, a number, or a list of numbers. What the server refuses is an error.
    pub(crate) fn receive(&mut self) -> std::io::Result<Answer> {
        let line = self.line()?;
        let Some(count) = line.strip_prefix('*') else { return number(&line) };
        let count: usize = count.parse().map_err(|_| Error::other(line.clone()))?;
        let mut hits = 0;
        for _ in 0..count {
            hits += number(&self.line()?)?.hits;
        }
        Ok(Answer { hits, all: count })
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.socket.read_line(&mut line)? == 0 {
            return Err(Error::other("the server has closed the connection"));
        }
        Ok(line.trim_end().to_owned())
    }
}

fn number(line: &str) -> std::io::Result<Answer> {
    match line.as_bytes().first() {
        Some(b':') => Ok(Answer { hits: usize::from(line != ":0"), all: 1 }),
        Some(b'+') => Ok(Answer { hits: 1, all: 1 }),
        _ => Err(Error::other(line.to_owned())),
    }
}

pub(crate) fn encoded(arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The key of a number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("https://example.org/{number}").into_bytes()
}

/// Numbers in an order of their own, so that neighbours are not asked for after each other.
pub(crate) fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// A command about keys of a filter.
pub(crate) fn command(name: &[u8], filter: &str, numbers: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    [name.to_vec(), filter.as_bytes().to_vec()].into_iter().chain(numbers.map(key)).collect()
}
