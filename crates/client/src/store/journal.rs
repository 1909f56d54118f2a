//! What came after a version: frames of the feed, one behind another.
//!
//! Losing the end of it costs nothing but asking for that part of the feed again, so it is written without waiting for the disk
//! and synced now and then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use umbel_core::disk::{Disk, DiskFile};
use umbel_core::feed::Frame;

use crate::{Error, Result};

const READ_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    length: u64,
    synced: u64,
}

impl Journal {
    pub(super) fn create(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let file = disk.create(path);
        let file = file.map_err(|error| Error::disk(format!("cannot make {}", path.display()), &error))?;
        Ok(Self { file, path: path.to_owned(), length: 0, synced: 0 })
    }

    /// Hands over all whole frames, and cuts off what follows them.
    pub(super) fn replay(
        disk: &dyn Disk,
        path: &Path,
        mut take: impl FnMut(Frame) -> Result<()>,
    ) -> Result<Self> {
        let Ok(file) = disk.open(path) else { return Self::create(disk, path) };
        let failed = |error: std::io::Error| Error::disk(format!("cannot read {}", path.display()), &error);
        let (mut buffer, mut read, mut good) = (BytesMut::new(), 0, 0);
        let mut piece = vec![0; READ_BYTES];
        'file: loop {
            let more = file.read_at(&mut piece, read).map_err(failed)?;
            if more == 0 {
                break;
            }
            read += more as u64;
            buffer.extend_from_slice(&piece[..more]);
            loop {
                match Frame::take(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        // What the copy does not take is no part of it, and nothing behind it can be.
                        if take(frame).is_err() {
                            break 'file;
                        }
                        good = read - buffer.len() as u64;
                    }
                    Err(_) => break 'file,
                }
            }
        }
        let length = file.length().map_err(failed)?;
        if length > good {
            tracing::info!(path = %path.display(), bytes = length - good, "the end of a journal is cut off");
            file.set_length(good).map_err(failed)?;
        }
        Ok(Self { file, path: path.to_owned(), length: good, synced: 0 })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Puts frames behind the others.
    pub(crate) fn append(&mut self, frames: &[u8]) -> Result<()> {
        let failed = |error| Error::disk(format!("cannot write {}", self.path.display()), &error);
        // After a failure the next ones are written over what may be half there.
        self.file.write_at(frames, self.length).map_err(failed)?;
        self.length += frames.len() as u64;
        Ok(())
    }

    /// What is to be synced, if anything is.
    pub(crate) fn unsynced(&mut self) -> Option<Arc<dyn DiskFile>> {
        (self.synced < self.length).then(|| {
            self.synced = self.length;
            Arc::clone(&self.file)
        })
    }
}
