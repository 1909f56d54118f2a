//! Objects in a bucket of S3, read by ranges as files are.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::AmazonS3;
use object_store::path::Path as Location;
use object_store::{Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;
use umbel_core::url::Url;

use super::opened::Identity;
use crate::engines::of_engine;
use crate::error::FAR;
use crate::limits::FILES_MAX;
use crate::{Error, Result};

/// Bytes that are asked for at once. A request has to come to its end before the time of one is over.
const WINDOW_BYTES: u64 = 4 << 20;

/// Objects of a bucket: one, those in a folder, or those that a pattern fits.
pub(super) struct Bucket {
    store: AmazonS3,
    /// Lanes wait in threads of their own; this one only moves their bytes.
    runtime: Runtime,
    url: Url,
    path: String,
}

impl Bucket {
    pub(super) fn open(address: &str) -> Result<Self> {
        let url = Url::parse(address).map_err(of_engine)?;
        let store = umbel_adapters::connect::s3(&url).map_err(of_engine)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| Error::Invalid(format!("no thread for the network: {error}")))?;
        let path = url.path_or("");
        Ok(Self { store, runtime, url, path })
    }

    pub(super) fn name(&self) -> String {
        self.url.to_string()
    }

    fn wrong(&self, error: &StoreError) -> Error {
        let message = format!("{}: {error}", self.url);
        match error {
            StoreError::Generic { .. } => Error::Retry(message),
            _ => Error::Invalid(message),
        }
    }

    fn location(&self, path: &str) -> Result<Location> {
        Location::parse(path).map_err(|error| Error::Invalid(format!("{}: {error}", self.url)))
    }

    fn about(&self, path: &str) -> Result<Option<ObjectMeta>> {
        let location = self.location(path)?;
        match self.runtime.block_on(self.store.head(&location)) {
            Ok(meta) => Ok(Some(meta)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.wrong(&error)),
        }
    }

    /// The objects, in the order of their names.
    pub(super) fn find(&self) -> Result<Vec<(PathBuf, Identity)>> {
        let is_pattern = |text: &str| text.contains(['*', '[']);
        let mut found = Vec::new();
        if is_pattern(&self.path) {
            let pattern = glob::Pattern::new(&self.path)
                .map_err(|error| Error::Invalid(format!("{}: no pattern: {error}", self.url)))?;
            let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
            let folders: Vec<_> = self.path.split('/').take_while(|name| !is_pattern(name)).collect();
            let fits = |path: &str| pattern.matches_with(path, options);
            self.list(&folders.join("/"), fits, &mut found)?;
        } else {
            let one = if self.path.is_empty() { None } else { self.about(&self.path)? };
            match one {
                Some(meta) => found.push(meta),
                None => self.list(&self.path, |_| true, &mut found)?,
            }
        }
        if found.is_empty() {
            return Err(Error::Invalid(format!("{}: there is no such object", self.url)));
        }
        found.sort_by(|one, other| one.location.cmp(&other.location));
        Ok(found.iter().map(|meta| (PathBuf::from(meta.location.as_ref()), identity(meta))).collect())
    }

    /// Objects in a folder and those below it, if they fit. What is empty stands for a folder in many tools.
    fn list(&self, folder: &str, fits: impl Fn(&str) -> bool, found: &mut Vec<ObjectMeta>) -> Result<()> {
        let folder = if folder.is_empty() { None } else { Some(self.location(folder)?) };
        let mut listed = self.store.list(folder.as_ref());
        while let Some(meta) = self.runtime.block_on(listed.next()) {
            let meta = meta.map_err(|error| self.wrong(&error))?;
            if meta.size > 0 && fits(meta.location.as_ref()) {
                found.push(meta);
            }
            if found.len() > FILES_MAX {
                return Err(Error::Invalid(format!("{} finds more than {FILES_MAX} objects", self.url)));
            }
        }
        Ok(())
    }

    pub(super) fn check(&self, path: &Path, expected: Identity) -> Result<()> {
        let name = path.to_string_lossy();
        if self.about(&name)?.is_some_and(|meta| identity(&meta) == expected) {
            return Ok(());
        }
        Err(Error::Corrupt(format!("{name} was changed since it began to be read: begin anew")))
    }

    /// An object, from its beginning.
    pub(super) fn object(bucket: &Arc<Self>, path: &Path) -> Result<Object> {
        let name = path.to_string_lossy();
        let gone = || Error::Corrupt(format!("{name} is gone since it was found: begin anew"));
        let meta = bucket.about(&name)?.ok_or_else(gone)?;
        Ok(Object { bucket: Arc::clone(bucket), meta, at: 0, window: Arc::default() })
    }
}

/// The same of an object that was found in a list and of one that was asked for: lists may know more of a second, and of marks without
/// their quotes.
fn identity(meta: &ObjectMeta) -> Identity {
    let modified = u64::try_from(meta.last_modified.timestamp()).unwrap_or(0);
    let mark = meta.e_tag.as_deref().unwrap_or_default().trim_matches('"');
    Identity::of_object(meta.size, mark, modified.saturating_mul(1000))
}

/// An object that is read like a file.
#[derive(Clone)]
pub(super) struct Object {
    bucket: Arc<Bucket>,
    meta: ObjectMeta,
    at: u64,
    /// What was last asked for, and where it begins: those who read one page of it after the other share it.
    window: Arc<Mutex<(u64, Bytes)>>,
}

impl Object {
    pub(super) fn bytes(&self) -> u64 {
        self.meta.size
    }

    /// Bytes from a place on, some of which may have come before.
    fn window(&self) -> io::Result<Bytes> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, bytes) = &*window;
        let passed = self.at.checked_sub(*begin).filter(|passed| *passed < bytes.len() as u64);
        if let Some(passed) = passed {
            return Ok(bytes.slice(passed as usize..));
        }
        let end = self.meta.size.min(self.at.saturating_add(WINDOW_BYTES));
        let bytes = self.ask(self.at..end)?;
        *window = (self.at, bytes.clone());
        Ok(bytes)
    }

    /// Asks for a range, of the object that was found and of no other that has its name by now.
    fn ask(&self, range: std::ops::Range<u64>) -> io::Result<Bytes> {
        let wanted = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.meta.e_tag.clone(),
            ..GetOptions::default()
        };
        let Bucket { store, runtime, .. } = &*self.bucket;
        let asked = async { store.get_opts(&self.meta.location, options).await?.bytes().await };
        match runtime.block_on(asked) {
            Ok(bytes) if bytes.len() as u64 == wanted => Ok(bytes),
            Ok(bytes) => Err(io::Error::new(FAR, format!("{} bytes came of {wanted}", bytes.len()))),
            Err(error @ StoreError::Generic { .. }) => Err(io::Error::new(FAR, error)),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl Read for Object {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.meta.size || buffer.is_empty() {
            return Ok(0);
        }
        let bytes = self.window()?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Object {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.meta.size.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(feature = "parquet")]
mod chunks {
    use ::parquet::errors::{ParquetError, Result};
    use ::parquet::file::reader::{ChunkReader, Length};
    use bytes::Bytes;

    use super::{Object, Read};

    impl Length for Object {
        fn len(&self) -> u64 {
            self.bytes()
        }
    }

    impl ChunkReader for Object {
        type T = Self;

        fn get_read(&self, start: u64) -> Result<Self> {
            Ok(Self { at: start, ..self.clone() })
        }

        fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
            // Memory is taken as bytes come: what asks for them may be damaged.
            let mut bytes = Vec::new();
            self.get_read(start)?.take(length as u64).read_to_end(&mut bytes)?;
            if bytes.len() < length {
                return Err(ParquetError::EOF(format!("{length} bytes at {start} are not there")));
            }
            Ok(bytes.into())
        }
    }
}
