//! What a load that was killed goes on from.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::limits::{BOOKMARK_BYTES_MAX, CHECKPOINT_BYTES_MAX, PARTS_MAX};
use crate::plan::{Counts, State};
use crate::{Bookmark, Error, Part, Result, journal};

const FORMAT: &str = "umbel-load-1"; // persisted

/// A file that is locked while a load uses it.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    /// What is loaded into what; a checkpoint of anything else is refused.
    what: String,
    lock: File,
    lock_path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: String,
    what: String,
    parts: Vec<PartText>,
}

#[derive(Serialize, Deserialize)]
struct PartText {
    name: String,
    bounds: String,
    bytes: Option<u64>,
    rows: Option<u64>,
    after: Option<String>,
    batches: u64,
    keys: u64,
    added: u64,
    nulls: u64,
    read: u64,
    done: bool,
}

impl Checkpoint {
    /// Takes a checkpoint, if no other load has it.
    pub(crate) fn take(path: &Path, what: &str) -> Result<Self> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let wrong = |error: std::io::Error| Error::file(lock_path.display(), &error);
        let lock = File::create(&lock_path).map_err(wrong)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), what: what.to_owned(), lock, lock_path }),
            Err(TryLockError::WouldBlock) => Err(Error::Invalid(format!(
                "{}: another load is at work with this checkpoint",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(wrong(error)),
        }
    }

    /// How far the parts had come, if there is a checkpoint.
    pub(crate) fn read(&self) -> Result<Option<Vec<State>>> {
        let wrong = |error: std::io::Error| Error::file(self.path.display(), &error);
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error)),
        };
        let mut bytes = Vec::new();
        file.take(CHECKPOINT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(wrong)?;
        let damaged =
            |why: &str| Error::Corrupt(format!("{} is no checkpoint of a load: {why}", self.path.display()));
        if bytes.len() as u64 > CHECKPOINT_BYTES_MAX {
            return Err(damaged("it is too long"));
        }
        let text: Text = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if text.format != FORMAT || text.parts.len() > PARTS_MAX {
            return Err(damaged("its format is unknown"));
        }
        if text.what != self.what {
            return Err(Error::Invalid(format!(
                "{} is the checkpoint of another load ({}), not of this one ({}); name another file with --checkpoint",
                self.path.display(),
                text.what,
                self.what
            )));
        }
        let states = text.parts.into_iter().map(|part| state_of(part).ok_or_else(|| damaged("a part of it")));
        states.collect::<Result<_>>().map(Some)
    }

    /// Writes how far the parts have come, in place of what was written before.
    pub(crate) fn write(&self, states: &[State]) -> Result<()> {
        let wrong = |error: std::io::Error| Error::file(self.path.display(), &error);
        let parts = states.iter().map(text_of).collect();
        let text = Text { format: FORMAT.into(), what: self.what.clone(), parts };
        let text = serde_json::to_vec(&text).map_err(|error| Error::Invalid(error.to_string()))?;
        let mut next = self.path.as_os_str().to_owned();
        next.push(".next");
        let written = || {
            let mut file = File::create(&next)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&next, &self.path)
        };
        written().map_err(wrong)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it: nothing is left to go on from.
    pub(crate) fn remove(&self) -> Result<()> {
        journal::remove_all(&self.path);
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file(self.path.display(), &error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // Whoever waits for the name gets a file that nobody else has.
        let _ = fs::remove_file(&self.lock_path);
        let _ = self.lock.unlock();
    }
}

fn state_of(text: PartText) -> Option<State> {
    if text.bounds.len() > BOOKMARK_BYTES_MAX {
        return None;
    }
    let after = text.after.map(Bookmark::new).transpose().ok()?;
    Some(State {
        part: Part { name: text.name, bounds: text.bounds, bytes: text.bytes, rows: text.rows },
        after,
        batches: text.batches,
        counts: Counts { keys: text.keys, added: text.added, nulls: text.nulls, bytes: text.read },
        is_done: text.done,
    })
}

fn text_of(state: &State) -> PartText {
    let State { part, after, batches, counts, is_done } = state;
    PartText {
        name: part.name.clone(),
        bounds: part.bounds.clone(),
        bytes: part.bytes,
        rows: part.rows,
        after: after.as_ref().map(|after| after.as_str().to_owned()),
        batches: *batches,
        keys: counts.keys,
        added: counts.added,
        nulls: counts.nulls,
        read: counts.bytes,
        done: *is_done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_comes_back_to_the_same_load_only() {
        let path = std::env::temp_dir().join(format!("umbel-checkpoint-{}", std::process::id()));
        let checkpoint = Checkpoint::take(&path, "a into b").unwrap();
        assert!(checkpoint.read().unwrap().is_none());
        assert!(matches!(Checkpoint::take(&path, "a into b"), Err(Error::Invalid(_))), "it is locked");
        let part = Part { name: "é".into(), bounds: "{\"x\"}".into(), bytes: Some(1), rows: None };
        let mut states = vec![State::new(part.clone()), State { is_done: true, ..State::new(part) }];
        states[0].took(Bookmark::new("1").unwrap(), Counts { keys: 1, added: 2, nulls: 3, bytes: 4 });
        checkpoint.write(&states).unwrap();
        assert_eq!(checkpoint.read().unwrap(), Some(states));
        drop(checkpoint);
        let other = Checkpoint::take(&path, "a into c").unwrap();
        assert!(other.read().unwrap_err().to_string().contains("another load (a into b)"));
        drop(other);
        let again = Checkpoint::take(&path, "a into b").unwrap();
        for damage in [&b""[..], b"{}", b"[1]", b"\xff"] {
            fs::write(&path, damage).unwrap();
            assert!(matches!(again.read(), Err(Error::Corrupt(_))));
        }
        again.remove().unwrap();
        assert!(again.read().unwrap().is_none());
    }
}
