//! Lines, wherever the pieces end in which bytes come.

use std::io::{ErrorKind, Read};

use crate::limits::RECORD_BYTES_MAX;
use crate::{Error, Result};

use super::opened::{Opened, PIECE_BYTES, Taken};

/// The lines that begin in a stretch of a file.
pub(super) struct Records {
    reader: Box<dyn Read + Send>,
    /// What has come, up to `end`, and is not taken from `start` on.
    held: Vec<u8>,
    start: usize,
    end: usize,
    /// Where reading began, and where `start` is, in the unpacked file.
    begin: u64,
    at: u64,
    /// Lines that begin here or later are somebody else's.
    to: u64,
    is_over: bool,
    taken: Taken,
    name: String,
}

impl Records {
    /// Lines that begin in `from..to`, or those behind `at`, where a line begins.
    pub(super) fn open(
        opened: Opened,
        from: u64,
        to: Option<u64>,
        at: Option<u64>,
        name: String,
    ) -> Result<Self> {
        // A line that begins at `from` has the end of another one before it, so that byte is looked at too.
        let begin = at.unwrap_or_else(|| from.saturating_sub(1));
        let (reader, taken) = opened.from(begin, &name)?;
        let (held, to) = (vec![0; PIECE_BYTES], to.unwrap_or(u64::MAX));
        let mut records =
            Self { reader, held, start: 0, end: 0, begin, at: begin, to, is_over: false, taken, name };
        if at.is_none() && from > 0 {
            records.find()?;
        }
        Ok(records)
    }

    /// The next line, without its end; none if the stretch is over.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.at >= self.to {
            return Ok(None);
        }
        let line = self.find()?;
        Ok(line.map(|(start, end)| {
            let line = &self.held[start..end];
            line.strip_suffix(b"\r").unwrap_or(line)
        }))
    }

    /// Where the next line begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes of the file that were read for lines since this was last asked.
    pub(super) fn consumed(&mut self) -> u64 {
        self.taken.more(self.at - self.begin)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn find(&mut self) -> Result<Option<(usize, usize)>> {
        let mut looked_at = self.start;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.held[looked_at..self.end]) {
                let (start, end) = (self.start, looked_at + length);
                self.at += (end + 1 - start) as u64;
                self.start = end + 1;
                return Ok(Some((start, end)));
            }
            if self.is_over {
                let (start, end) = (self.start, self.end);
                self.at += (end - start) as u64;
                self.start = end;
                return Ok((start < end).then_some((start, end)));
            }
            looked_at = self.end - self.start;
            self.fill()?;
        }
    }

    /// Reads more behind what is held, which then begins at the front.
    fn fill(&mut self) -> Result<()> {
        self.held.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end > RECORD_BYTES_MAX {
            let (name, at) = (&self.name, self.at);
            return Err(Error::Invalid(format!(
                "{name}: the line at byte {at} has more than {RECORD_BYTES_MAX} bytes; is this text?"
            )));
        }
        if self.held.len() - self.end < PIECE_BYTES / 2 {
            self.held.resize(self.held.len() * 2, 0);
        }
        match self.reader.read(&mut self.held[self.end..]) {
            Ok(0) => self.is_over = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let place = format!("{}: behind byte {}", self.name, self.at);
                return Err(Error::reading(Error::Corrupt, place, &error));
            }
        }
        Ok(())
    }
}
