//! Keys that go together.

use crate::limits::{BATCH_BYTES_MAX, BATCH_KEYS_MAX, KEY_BYTES_MAX};
use crate::{Error, Result};

/// Some keys, one behind the other in one piece of memory, and what was passed over between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<u32>,
    /// Rows without a key: NULL, an empty line, a field that is not there.
    nulls: u64,
    /// How much of the source was read for it, where that is known in bytes.
    source_bytes: u64,
}

impl Batch {
    /// Makes it empty, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        (self.nulls, self.source_bytes) = (0, 0);
    }

    /// Takes a key. Whoever fills a batch looks at [`is_full`](Self::is_full) between keys.
    pub fn push(&mut self, key: &[u8]) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(too_long(key.len()));
        }
        // A batch that is not full has room for the longest key: both limits together are far below 4 GiB.
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        Ok(())
    }

    /// Takes a key whose parts stand in several columns, or none if one of them has no value.
    pub fn push_joined<'a>(
        &mut self,
        parts: impl Iterator<Item = Option<&'a [u8]>>,
        separator: &str,
    ) -> Result<()> {
        let start = self.bytes.len();
        for (number, part) in parts.enumerate() {
            let Some(part) = part else {
                self.bytes.truncate(start);
                self.skip();
                return Ok(());
            };
            if number > 0 {
                self.bytes.extend_from_slice(separator.as_bytes());
            }
            self.bytes.extend_from_slice(part);
            let length = self.bytes.len() - start;
            if length > KEY_BYTES_MAX {
                self.bytes.truncate(start);
                return Err(too_long(length));
            }
        }
        self.ends.push(self.bytes.len() as u32);
        Ok(())
    }

    /// Counts a row that has no key.
    pub fn skip(&mut self) {
        self.nulls += 1;
    }

    /// Counts bytes of the source.
    pub fn consumed(&mut self, bytes: u64) {
        self.source_bytes += bytes;
    }

    /// Whether it has as much as may go together. Rows without keys count too, so that a source of nothing but NULL
    /// gets bookmarks all the same.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES_MAX || self.ends.len() as u64 + self.nulls >= BATCH_KEYS_MAX as u64
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is neither a key nor a row without one.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.nulls == 0
    }

    /// Rows that have no key.
    pub fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Bytes of the source that were read for it.
    pub fn source_bytes(&self) -> u64 {
        self.source_bytes
    }

    /// The keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(number, end)| {
            let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
            &self.bytes[start..*end as usize]
        })
    }
}

fn too_long(length: usize) -> Error {
    Error::Invalid(format!("a key of {length} bytes; the most is {KEY_BYTES_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_went_in() {
        let mut batch = Batch::default();
        for key in [&b"a"[..], b"", b"\xff\x00", b"last"] {
            batch.push(key).unwrap();
        }
        batch.skip();
        assert_eq!(batch.keys().collect::<Vec<_>>(), [&b"a"[..], b"", b"\xff\x00", b"last"]);
        assert_eq!((batch.len(), batch.nulls()), (4, 1));
        batch.clear();
        assert!(batch.is_empty() && batch.keys().next().is_none());
    }

    #[test]
    fn joined_keys_need_all_their_parts() {
        let mut batch = Batch::default();
        batch.push_joined([Some(&b"a"[..]), Some(b"b")].into_iter(), ":").unwrap();
        batch.push_joined([Some(&b"a"[..]), None].into_iter(), ":").unwrap();
        batch.push_joined([Some(&b"c"[..])].into_iter(), ":").unwrap();
        assert_eq!(batch.keys().collect::<Vec<_>>(), [&b"a:b"[..], b"c"]);
        assert_eq!(batch.nulls(), 1);
    }

    #[test]
    fn what_is_too_long_is_refused_and_leaves_no_trace() {
        let (mut batch, long) = (Batch::default(), vec![0; KEY_BYTES_MAX + 1]);
        assert!(batch.push(&long).is_err());
        assert!(batch.push_joined([Some(&b"a"[..]), Some(&long[1..])].into_iter(), ":").is_err());
        assert!(batch.is_empty() && batch.bytes.is_empty());
        batch.push(&long[1..]).unwrap();
        assert_eq!(batch.keys().next().unwrap().len(), KEY_BYTES_MAX);
    }

    #[test]
    fn a_batch_is_full_by_keys_by_bytes_and_by_nothing_at_all() {
        let (mut keys, mut bytes, mut nulls) = (Batch::default(), Batch::default(), Batch::default());
        for _ in 0..BATCH_KEYS_MAX {
            assert!(!keys.is_full() && !nulls.is_full());
            keys.push(b"k").unwrap();
            nulls.skip();
        }
        while !bytes.is_full() {
            bytes.push(&[0; 1 << 16]).unwrap();
        }
        assert!(keys.is_full() && nulls.is_full());
        assert_eq!(bytes.len(), BATCH_BYTES_MAX >> 16);
    }
}
