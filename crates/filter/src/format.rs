//! Filters as bytes: encode and decode, streaming, within [`Limits`](crate::Limits).
//!
//! Decoders trust nothing: every size is checked before memory is taken, every fault is an error that names it, and a
//! filter is handed out only when it is whole. `docs/formats.md` draws every byte.

pub mod guava;
pub mod native;
pub mod redisbloom;
pub mod redisson;

use std::io::{ErrorKind, Read};

use crate::{Error, Result};

/// A reader that knows where it is and what it reads, for the sake of its errors.
#[derive(Debug)]
struct Source<R> {
    reader: R,
    format: &'static str,
    offset: u64,
}

impl<R: Read> Source<R> {
    fn new(reader: R, format: &'static str) -> Self {
        Self { reader, format, offset: 0 }
    }

    /// Reads as much as there is, up to the whole of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.reader.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// Reads the whole of `bytes`.
    fn exact(&mut self, bytes: &mut [u8]) -> Result<()> {
        match bytes.len() - self.fill(bytes)? {
            0 => Ok(()),
            missing => {
                Err(Error::Truncated { format: self.format, offset: self.offset, missing: missing as u64 })
            }
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    fn corrupt(&self, why: impl Into<String>) -> Error {
        Error::Corrupt { format: self.format, offset: self.offset, why: why.into() }
    }
}

/// Takes fixed-size fields off the front of bytes that were read already; past the end they are zero, so the caller
/// checks the length first.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        field[..front.len()].copy_from_slice(front);
        self.0 = rest;
        field
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.take())
    }
}
