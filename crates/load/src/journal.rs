//! What is being sent, written down before it is: for filters that count, where a key that is sent twice is there twice.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::{BATCH_BYTES_MAX, BATCH_KEYS_MAX, KEY_BYTES_MAX, LANES_MAX};
use crate::plan::Counts;
use crate::sink::{Packed, Who};
use crate::{Bookmark, Error, Result};

const MAGIC: &[u8; 8] = b"UMBLJRN1"; // persisted
/// Keys as JSON have quotes and escapes.
const BYTES_MAX: u64 = 6 * (BATCH_BYTES_MAX + KEY_BYTES_MAX) as u64 + 4 * BATCH_KEYS_MAX as u64;

/// Numbers that lanes may have: as many as there are at once, and the one that reads what came behind the end.
const LANES: std::ops::RangeInclusive<usize> = 0..=LANES_MAX;

/// A batch that was about to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) who: Who,
    /// The number of its part.
    pub(crate) part: usize,
    /// How many batches the part has with it.
    pub(crate) batches: u64,
    /// Where the part goes on behind it.
    pub(crate) after: Bookmark,
    /// What the part counts with it, but for what only the answer tells.
    pub(crate) counts: Counts,
    pub(crate) form: String,
    pub(crate) packed: Packed,
}

/// The first line of the file; the keys come behind it.
#[derive(Serialize, Deserialize)]
struct Head {
    session: u64,
    sequence: u64,
    part: usize,
    batches: u64,
    after: String,
    part_keys: u64,
    part_added: u64,
    part_nulls: u64,
    part_bytes: u64,
    form: String,
    keys: u64,
}

/// The journal of one lane beside its checkpoint.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    next: PathBuf,
}

fn path_of(checkpoint: &Path, lane: usize, end: &str) -> PathBuf {
    let mut name = checkpoint.as_os_str().to_owned();
    name.push(format!(".lane{lane}{end}"));
    name.into()
}

impl Journal {
    pub(crate) fn of(checkpoint: &Path, lane: usize) -> Self {
        Self { path: path_of(checkpoint, lane, ""), next: path_of(checkpoint, lane, ".next") }
    }

    /// Writes an entry in place of the one before, so that one of both is there whatever happens.
    pub(crate) fn write(&self, entry: &Entry) -> Result<()> {
        let head = Head {
            session: entry.who.session,
            sequence: entry.who.sequence,
            part: entry.part,
            batches: entry.batches,
            after: entry.after.as_str().to_owned(),
            part_keys: entry.counts.keys,
            part_added: entry.counts.added,
            part_nulls: entry.counts.nulls,
            part_bytes: entry.counts.bytes,
            form: entry.form.clone(),
            keys: entry.packed.keys,
        };
        let mut text = serde_json::to_vec(&head).map_err(|error| Error::Invalid(error.to_string()))?;
        text.push(b'\n');
        let sum = crc32c::crc32c_append(crc32c::crc32c(&text), &entry.packed.bytes);
        let written = || {
            let mut file = File::create(&self.next)?;
            file.write_all(&[&MAGIC[..], &sum.to_le_bytes(), &text, &entry.packed.bytes].concat())?;
            file.sync_data()?;
            fs::rename(&self.next, &self.path)
        };
        written().map_err(|error| Error::file(self.path.display(), &error))
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.next);
        let _ = fs::remove_file(&self.path);
    }
}

/// All journals that stand beside a checkpoint.
pub(crate) fn read_all(checkpoint: &Path) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for lane in LANES {
        let path = path_of(checkpoint, lane, "");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::file(path.display(), &error)),
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::file(path.display(), &error))?;
        let entry = decode(&bytes).ok_or_else(|| {
            Error::Corrupt(format!("{}: this is no journal of a load, or a damaged one", path.display()))
        })?;
        found.push(entry);
    }
    Ok(found)
}

/// Removes all journals beside a checkpoint.
pub(crate) fn remove_all(checkpoint: &Path) {
    LANES.for_each(|lane| Journal::of(checkpoint, lane).remove());
}

fn decode(bytes: &[u8]) -> Option<Entry> {
    let bytes = bytes.strip_prefix(MAGIC).filter(|_| bytes.len() as u64 <= BYTES_MAX)?;
    let (sum, bytes) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*sum) != crc32c::crc32c(bytes) {
        return None;
    }
    let end = memchr::memchr(b'\n', bytes)?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    let counts = Counts {
        keys: head.part_keys,
        added: head.part_added,
        nulls: head.part_nulls,
        bytes: head.part_bytes,
    };
    Some(Entry {
        who: Who { session: head.session, sequence: head.sequence },
        part: head.part,
        batches: head.batches,
        after: Bookmark::new(head.after).ok()?,
        counts,
        form: head.form,
        packed: Packed { keys: head.keys, bytes: Bytes::copy_from_slice(&bytes[end + 1..]) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_damage_is_seen() {
        let folder = std::env::temp_dir().join(format!("umbel-journal-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let checkpoint = folder.join("load");
        let entry = Entry {
            who: Who { session: u64::MAX, sequence: 7 },
            part: 3,
            batches: 8,
            after: Bookmark::new("a\nb\"").unwrap(),
            counts: Counts { keys: 2, added: 1, nulls: 1, bytes: 99 },
            form: "fingerprints".into(),
            packed: Packed { keys: 2, bytes: Bytes::from_static(b"\n\x00\xff") },
        };
        assert_eq!(read_all(&checkpoint).unwrap(), []);
        let journal = Journal::of(&checkpoint, 5);
        journal.write(&Entry { batches: 7, ..entry.clone() }).unwrap();
        journal.write(&entry).unwrap();
        assert_eq!(read_all(&checkpoint).unwrap(), std::slice::from_ref(&entry));
        let bytes = fs::read(&journal.path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None, "{at} bytes");
        }
        remove_all(&checkpoint);
        assert_eq!(read_all(&checkpoint).unwrap(), []);
        fs::remove_dir_all(&folder).unwrap();
    }
}
