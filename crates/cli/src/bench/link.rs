//! One connection that never blocks, and what its replies come to.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};

use mio::net::TcpStream;

use super::histogram::Histogram;
use super::reply::{REPLY_BYTES_MAX, Reader, Value};
use super::request::ANY;
use super::source::Source;
use crate::resp::shown;

/// What came back.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// Keys that were answered.
    pub(crate) keys: u64,
    /// Answers that were 1.
    pub(crate) ones: u64,
    /// Nanoseconds from the time at which a request was sent, or should have been.
    pub(crate) latency: Histogram,
    /// How late requests were sent, if they had a schedule.
    pub(crate) late: Histogram,
    pub(crate) faults: Faults,
}

/// Replies that should not have come.
#[derive(Default, Clone)]
pub(crate) struct Faults {
    pub(crate) count: u64,
    pub(crate) first: Option<String>,
}

impl Faults {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(what);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
    }
}

impl Tally {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.keys += other.keys;
        self.ones += other.ones;
        self.latency.merge(&other.latency);
        self.late.merge(&other.late);
        self.faults.merge(&other.faults);
    }
}

pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    /// The part of `input` that has come and was not looked at.
    held: std::ops::Range<usize>,
    reader: Reader,
    /// Requests without a reply, by the time from which their latency counts.
    waiting: VecDeque<u64>,
    /// Answers to come, and what they have to be.
    expected: VecDeque<u8>,
    /// Answers in the reply that is being read.
    answers: usize,
}

impl Link {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            out: Vec::new(),
            written: 0,
            input: vec![0; REPLY_BYTES_MAX],
            held: 0..0,
            reader: Reader::default(),
            waiting: VecDeque::new(),
            expected: VecDeque::new(),
            answers: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a request behind those that are to be sent; its latency counts from `at`.
    pub(crate) fn queue(&mut self, source: &mut Source<'_>, at: u64) -> bool {
        let is_written = source.write(&mut self.out, |answer| self.expected.push_back(answer));
        if is_written {
            self.waiting.push_back(at);
        }
        is_written
    }

    /// Sends as much as the socket takes; the rest goes when it has room again.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err("the connection was closed".to_owned()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot send: {error}")),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads all that has come. `now` is asked after every read, for all replies in it.
    pub(crate) fn receive(
        &mut self,
        keys: usize,
        now: impl Fn() -> u64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        loop {
            let room = self.input.len() - self.held.end;
            match self.stream.read(&mut self.input[self.held.end..]) {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(bytes) => {
                    self.held.end += bytes;
                    self.count(keys, now(), tally)?;
                    // A socket that gave less than there was room for is empty, and will say when it is not. One that
                    // was closed would not say that, so it is asked again if replies are missing.
                    if bytes < room && self.waiting.is_empty() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot receive: {error}")),
            }
        }
    }

    fn count(&mut self, keys: usize, now: u64, tally: &mut Tally) -> Result<(), String> {
        while let Some(step) = self.reader.next(&self.input[self.held.clone()])? {
            self.held.start += step.bytes;
            match step.value {
                Value::Integer(answer) => {
                    self.answers += 1;
                    tally.ones += u64::from(answer == 1);
                    let expected = if self.answers <= keys { self.expected.pop_front() } else { None };
                    if expected.is_some_and(|expected| expected != ANY && answer != i64::from(expected)) {
                        tally
                            .faults
                            .add(|| format!("the wrong answer {answer} for a key that had been added"));
                    }
                }
                Value::Error(text) => {
                    tally.faults.add(|| shown(text));
                    // The rest of its keys has no answers.
                    if step.ends {
                        self.expected.drain(..(keys - self.answers.min(keys)).min(self.expected.len()));
                        self.answers = keys;
                    } else {
                        self.expected.pop_front();
                        self.answers += 1;
                    }
                }
                Value::Array => {}
                Value::Text(_) | Value::Null => self.answers = usize::MAX / 2,
            }
            if step.ends {
                let Some(at) = self.waiting.pop_front() else {
                    return Err("a reply that nobody asked for".to_owned());
                };
                if self.answers != keys {
                    return Err(format!("a reply that is no answer to {keys} keys"));
                }
                tally.requests += 1;
                tally.keys += keys as u64;
                tally.latency.record(now.saturating_sub(at));
                self.answers = 0;
            }
        }
        // What is left is the beginning of a value. It moves to the front, so that there is room for its rest.
        self.input.copy_within(self.held.clone(), 0);
        self.held = 0..self.held.len();
        Ok(())
    }
}
