//! The folder of a replica: what survives a restart.
//!
//! ```text
//!  lock              one process at a time
//!  replica           who this replica is, for ever
//!  owner             which filter all of it is of
//!  current.version   what the copy began with        previous.version   what the copy before it began with
//!  journal-<filter>-<number>   frames of the feed that came after that version
//!  chunks/ab/abcd..  chunks of both versions, named by their content
//!  spool             keys that the centre has not acknowledged
//! ```
//!
//! Everything carries a checksum. What fails it is thrown away and fetched again, never served.

mod files;
mod journal;
mod owner;
mod spool;

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use umbel_core::disk::{Disk, Lock};
use umbel_core::limits::MANIFEST_BYTES_MAX;
use umbel_core::random::Random;
use umbel_core::version::{CHUNK_BYTES_MAX, ChunkId, Version};

use crate::shared::lock;
use crate::{Error, Result};
pub(crate) use files::{read_whole, replace};
pub(crate) use journal::Journal;
pub(crate) use owner::Owner;
pub(crate) use spool::{Batch, Change, Spool, Target};

const CURRENT: &str = "current.version";
const PREVIOUS: &str = "previous.version";
const REPLICA: &str = "replica";
const OWNER: &str = "owner";
const JOURNAL: &str = "journal-";
const CHUNKS: &str = "chunks";
const ID_DIGITS: usize = 32;

/// The folder.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    lock: Mutex<Option<Lock>>,
    /// Held by whoever changes which versions are kept.
    changes: Mutex<()>,
}

impl Store {
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: PathBuf) -> Result<Self> {
        let failed = |error: io::Error| Error::disk(format!("cannot open {}", folder.display()), &error);
        disk.create_folder(&folder).map_err(failed)?;
        let held = disk.lock(&folder.join("lock")).map_err(failed)?;
        Ok(Self { disk, folder, lock: Mutex::new(Some(held)), changes: Mutex::new(()) })
    }

    /// Lets another process have the folder. Nothing is written here any more.
    pub(crate) fn release(&self) {
        drop(lock(&self.lock).take());
    }

    /// Who this replica is: kept, or made up if it is the first time.
    pub(crate) fn id(&self, random: &dyn Random) -> Result<String> {
        let path = self.folder.join(REPLICA);
        if let Ok(bytes) = read_whole(&*self.disk, &path, ID_DIGITS as u64) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if text.len() == ID_DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Ok(text);
            }
        }
        let id = new_id(random);
        self.replace(REPLICA, id.as_bytes())?;
        Ok(id)
    }

    /// The filter that the folder belongs to; none if it holds nothing.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let path = self.folder.join(OWNER);
        if let Ok(bytes) = read_whole(&*self.disk, &path, owner::BYTES_MAX) {
            match Owner::decode(&bytes) {
                Some(owner) => return Some(owner),
                None => tracing::warn!(path = %path.display(), "thrown away: its checksum does not fit"),
            }
        }
        // A folder that is older than this file has it in its versions.
        let version = self.versions().into_iter().flatten().next()?;
        Some(Owner::new(None, version.filter, &version.definition.name, Vec::new()))
    }

    /// Gives the folder to a filter. What it holds of another one counts no more.
    pub(crate) fn set_owner(&self, owner: &Owner) -> Result<()> {
        self.replace(OWNER, &owner.encode())
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        replace(&*self.disk, &self.folder, name, bytes).map_err(|error| {
            Error::disk(format!("cannot write {}", self.folder.join(name).display()), &error)
        })
    }

    /// The version that the copy began with, and the one before it. One that is damaged is as good as none.
    pub(crate) fn versions(&self) -> [Option<Version>; 2] {
        [CURRENT, PREVIOUS].map(|name| {
            let path = self.folder.join(name);
            let bytes = read_whole(&*self.disk, &path, MANIFEST_BYTES_MAX as u64).ok()?;
            match Version::decode(&bytes, name) {
                Ok(version) => Some(version),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "thrown away");
                    let _gone = self.disk.remove(&path);
                    None
                }
            }
        })
    }

    /// Makes a version the current one, in the name of the filter that it is of. The one that was becomes the previous one, if it is of
    /// the same filter.
    pub(crate) fn commit_as(&self, owner: &Owner, version: &Version) -> Result<()> {
        // First the owner: what is of another filter is never taken for one of this one, wherever the process dies.
        if self.owner().as_ref() != Some(owner) {
            self.set_owner(owner)?;
        }
        self.commit(version)
    }

    fn commit(&self, version: &Version) -> Result<()> {
        let _alone = lock(&self.changes);
        // Each is whole before the other is touched: at every moment one of them is.
        match &self.versions()[0] {
            Some(before) if before == version => return Ok(()),
            Some(before) if before.filter == version.filter => self.replace(PREVIOUS, &before.encode()?)?,
            _ => self.forget_previous()?,
        }
        self.replace(CURRENT, &version.encode()?)
    }

    /// Takes the current version back: the previous one is the current one again.
    pub(crate) fn uncommit(&self) -> Result<()> {
        let _alone = lock(&self.changes);
        if let Some(previous) = &self.versions()[1] {
            self.replace(CURRENT, &previous.encode()?)?;
        }
        self.forget_previous()
    }

    fn forget_previous(&self) -> Result<()> {
        match self.disk.remove(&self.folder.join(PREVIOUS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::disk("cannot remove the version before", &error))
            }
            _ => Ok(()),
        }
    }

    fn chunk_path(&self, id: ChunkId) -> PathBuf {
        let id = id.to_string();
        self.folder.join(CHUNKS).join(&id[..2]).join(id)
    }

    /// A chunk, if it is there and whole.
    pub(crate) fn chunk(&self, id: ChunkId) -> Option<Bytes> {
        let path = self.chunk_path(id);
        let bytes = read_whole(&*self.disk, &path, CHUNK_BYTES_MAX as u64);
        match bytes {
            Ok(bytes) if ChunkId::of(&bytes) == id => Some(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            _ => {
                tracing::warn!(path = %path.display(), "thrown away: its bytes are not those that it is named after");
                let _gone = self.disk.remove(&path);
                None
            }
        }
    }

    /// Whether there is a file for a chunk.
    pub(crate) fn has_chunk(&self, id: ChunkId) -> bool {
        self.disk.open(&self.chunk_path(id)).is_ok()
    }

    /// Keeps a chunk. Its name is its checksum, so a torn file does no harm; it is synced because the server may be away when it
    /// is needed.
    pub(crate) fn put_chunk(&self, id: ChunkId, bytes: &[u8]) -> Result<()> {
        let path = self.chunk_path(id);
        let put = || {
            if let Some(folder) = path.parent() {
                self.disk.create_folder(folder)?;
            }
            let file = self.disk.create(&path)?;
            file.write_at(bytes, 0)?;
            file.sync()
        };
        put().map_err(|error| Error::disk(format!("cannot write {}", path.display()), &error))
    }

    fn journal_name(version: &Version) -> String {
        format!("{JOURNAL}{:016x}-{}", version.filter, version.number)
    }

    /// An empty journal behind a version.
    pub(crate) fn new_journal(&self, version: &Version) -> Result<Journal> {
        Journal::create(&*self.disk, &self.folder.join(Self::journal_name(version)))
    }

    /// The journal behind a version; what is damaged at its end is cut off.
    pub(crate) fn journal(
        &self,
        version: &Version,
        take: impl FnMut(umbel_core::feed::Frame) -> Result<()>,
    ) -> Result<Journal> {
        Journal::replay(&*self.disk, &self.folder.join(Self::journal_name(version)), take)
    }

    /// Removes what neither version needs. Gives how many chunks went.
    pub(crate) fn sweep(&self) -> usize {
        let _alone = lock(&self.changes);
        let versions: Vec<Version> = self.versions().into_iter().flatten().collect();
        let journals: Vec<String> = versions.iter().map(Self::journal_name).collect();
        for name in self.disk.list(&self.folder).unwrap_or_default() {
            if name.starts_with(JOURNAL) && !journals.contains(&name) {
                let _gone = self.disk.remove(&self.folder.join(name));
            }
        }
        let needed: HashSet<ChunkId> = versions.iter().flat_map(Version::chunks).collect();
        let (chunks, mut removed) = (self.folder.join(CHUNKS), 0);
        for part in self.disk.folders(&chunks).unwrap_or_default() {
            let part = chunks.join(part);
            for name in self.disk.list(&part).unwrap_or_default() {
                let kept = name.parse::<ChunkId>().is_ok_and(|id| needed.contains(&id));
                // What cannot be removed now is removed after the next version.
                if !kept && self.disk.remove(&part.join(name)).is_ok() {
                    removed += 1;
                }
            }
        }
        removed
    }
}

/// A name that nobody else has.
pub(crate) fn new_id(random: &dyn Random) -> String {
    format!("{:016x}{:016x}", random.next(), random.next())
}

#[cfg(test)]
mod tests;
