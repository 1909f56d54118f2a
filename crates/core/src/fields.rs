//! Reading stored fields, one after another, never beyond the end.

use crate::{Error, Result};

const SUM_BYTES: usize = 4;

/// Puts the checksum behind the content of a small file.
pub(crate) fn seal(content: &mut Vec<u8>) {
    content.extend(crc32c::crc32c(content).to_le_bytes());
}

/// What is left of some stored bytes.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    length: usize,
    what: &'a str,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'a str) -> Self {
        Self { rest: bytes, length: bytes.len(), what }
    }

    /// The content of a small file that begins with `magic` and a version, and ends with a checksum of all before it.
    pub(crate) fn checked(bytes: &'a [u8], what: &'a str, magic: [u8; 8], version: u16) -> Result<Self> {
        Ok(Self::checked_version(bytes, what, magic, &[version])?.0)
    }

    /// The same where several versions are known, and which of them it is.
    pub(crate) fn checked_version(
        bytes: &'a [u8],
        what: &'a str,
        magic: [u8; 8],
        known: &[u16],
    ) -> Result<(Self, u16)> {
        let damaged =
            || Error::Corrupt(format!("{what}: bytes 0 to {}: the checksum does not match", bytes.len()));
        let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or_else(damaged)?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let mut fields = Self::new(content, what);
        let (found, version) = (fields.take()?, fields.u16()?);
        if found != magic || !known.contains(&version) {
            return Err(fields.corrupt("another kind of file, or a version that is not known here"));
        }
        Ok((fields, version))
    }

    pub(crate) fn corrupt(&self, why: &str) -> Error {
        Error::Corrupt(format!("{}, byte {}: {why}", self.what, self.length - self.rest.len()))
    }

    /// The next bytes. Nothing is copied, so a wrong length takes no memory.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.corrupt(&format!("{length} bytes more than there are")));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| self.corrupt("a field is cut off"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.take::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.corrupt("more bytes than expected")) }
    }
}

/// Writes bytes behind their number.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// Writes a list behind its length.
pub(crate) fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    out.extend((list.len() as u32).to_le_bytes());
    list.iter().for_each(|item| put(out, item));
}

/// Reads what [`put_bytes`] wrote.
pub(crate) fn take_bytes<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8]> {
    let length = fields.u32()? as usize;
    fields.bytes(length)
}

/// Reads a list. Memory is taken as items come, so a wrong count ends with an error and not with the memory.
pub(crate) fn take_list<'a, T>(
    fields: &mut Fields<'a>,
    mut take: impl FnMut(&mut Fields<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = fields.u32()?;
    (0..count).map(|_| take(fields)).collect()
}
