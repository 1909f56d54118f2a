use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, Lock};

/// Bytes that a disk writes at once or not at all.
const SECTOR: usize = 512;

/// A disk in memory whose power can be cut and that can be told to fail.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<State>>);

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space is left, from the operation on.
    Full,
    /// The operation fails as a broken device makes it fail.
    Broken,
}

#[derive(Debug, Default)]
struct State {
    files: Files,
    /// What a power cut leaves of the names.
    durable: Files,
    operations: u64,
    fault: Option<(u64, Fault)>,
    /// Bytes that all files may have together.
    limit: Option<u64>,
}

type Files = BTreeMap<PathBuf, Arc<Mutex<Content>>>;

#[derive(Debug, Default)]
struct Content {
    now: Vec<u8>,
    /// What a power cut is sure to leave of the bytes.
    synced: Vec<u8>,
    /// Sectors in which the two may differ.
    dirty: BTreeSet<usize>,
    /// Sectors whose sync failed: the system takes them for clean and does not write them again.
    lost: BTreeSet<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Counts an operation that changes something, and fails it if it is its turn.
    fn count(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.fault {
            Some((at, Fault::Full)) if self.operations >= at => Err(io::ErrorKind::StorageFull.into()),
            Some((at, Fault::Broken)) if self.operations == at => {
                Err(io::Error::other("injected device error"))
            }
            _ => Ok(()),
        }
    }

    /// Bytes that files may still grow by.
    fn free_bytes(&self) -> u64 {
        let used: u64 = self.files.values().map(|file| lock(file).now.len() as u64).sum();
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(used))
    }
}

impl MemoryDisk {
    /// Lets all files have so many bytes together, or as many as they like. Those that have more keep them.
    pub fn limit_to(&self, bytes: Option<u64>) {
        lock(&self.0).limit = bytes;
    }

    /// Operations so far that changed something.
    pub fn operations(&self) -> u64 {
        lock(&self.0).operations
    }

    /// Fails the `nth` operation from now on that changes something, counted from 1; with [`Fault::Full`] all later
    /// ones too.
    pub fn fail_at(&self, nth: u64, fault: Fault) {
        let mut state = lock(&self.0);
        state.fault = Some((state.operations + nth, fault));
    }

    /// Ends all faults.
    pub fn mend(&self) {
        lock(&self.0).fault = None;
    }

    /// What is on the disk after the power failed now: synced bytes, and of the others whatever `seed` decides,
    /// sector by sector and name by name. Files that are open still belong to the old disk.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let mut random = seed;
        let mut flip = move || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            random >> 63 == 1
        };
        let state = lock(&self.0);
        let paths: BTreeSet<_> = state.files.keys().chain(state.durable.keys()).collect();
        let mut files = Files::new();
        for path in paths {
            let survivor = match (state.files.get(path), state.durable.get(path)) {
                (Some(now), Some(durable)) if !Arc::ptr_eq(now, durable) => {
                    Some(if flip() { now } else { durable })
                }
                (Some(file), Some(_)) => Some(file),
                (Some(file), None) | (None, Some(file)) => flip().then_some(file),
                (None, None) => None,
            };
            if let Some(file) = survivor {
                let left = lock(file).after_power_cut(&mut flip);
                files.insert(path.clone(), Arc::new(Mutex::new(Content::at_rest(left))));
            }
        }
        Self(Arc::new(Mutex::new(State { durable: files.clone(), files, ..State::default() })))
    }

    /// Changes the bytes of a file behind everybody's back.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(file) = lock(&self.0).files.get(path) {
            let mut content = lock(file);
            let mut now = std::mem::take(&mut content.now);
            change(&mut now);
            *content = Content::at_rest(now);
        }
    }

    /// A disk of its own with the same bytes, as if all were synced.
    pub fn copied(&self) -> Self {
        let mut files = Files::new();
        for (path, file) in &lock(&self.0).files {
            let content = Content::at_rest(lock(file).now.clone());
            files.insert(path.clone(), Arc::new(Mutex::new(content)));
        }
        Self(Arc::new(Mutex::new(State { durable: files.clone(), files, ..State::default() })))
    }

    /// All files, with their sizes.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = lock(&self.0);
        state.files.iter().map(|(path, file)| (path.clone(), lock(file).now.len() as u64)).collect()
    }

    fn file(&self, content: &Arc<Mutex<Content>>) -> Arc<dyn DiskFile> {
        Arc::new(MemoryFile { disk: self.clone(), content: Arc::clone(content) })
    }
}

impl Content {
    fn at_rest(now: Vec<u8>) -> Self {
        Self { synced: now.clone(), now, ..Self::default() }
    }

    fn after_power_cut(&self, flip: &mut impl FnMut() -> bool) -> Vec<u8> {
        let length = if flip() { self.now.len() } else { self.synced.len() };
        let mut left = self.now.clone();
        left.resize(length, 0);
        for sector in self.dirty.union(&self.lost) {
            let range = (sector * SECTOR).min(length)..((sector + 1) * SECTOR).min(length);
            if flip() {
                for at in range {
                    left[at] = self.synced.get(at).copied().unwrap_or(0);
                }
            }
        }
        left
    }

    fn touch(&mut self, range: std::ops::Range<usize>) {
        for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            self.dirty.insert(sector);
            self.lost.remove(&sector);
        }
    }

    fn resize(&mut self, length: usize) {
        let before = self.now.len();
        self.now.resize(length, 0);
        if length < before {
            self.touch(length..before);
        }
    }
}

impl Disk for MemoryDisk {
    fn create_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        let inside = state.files.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    /// A folder is there as long as a file is in it or below.
    fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        let parents = state.files.keys().filter_map(|path| path.parent()?.strip_prefix(folder).ok());
        let names = parents.filter_map(|below| Some(below.iter().next()?.to_string_lossy().into_owned()));
        Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let content = {
            let mut state = lock(&self.0);
            state.count()?;
            let content = Arc::new(Mutex::new(Content::default()));
            state.files.insert(path.to_owned(), Arc::clone(&content));
            content
        };
        Ok(self.file(&content))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let content = lock(&self.0).files.get(path).cloned();
        Ok(self.file(&content.ok_or(io::ErrorKind::NotFound)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.count()?;
        let content = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.count()?;
        state.files.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// No other process can have this disk.
    fn lock(&self, _: &Path) -> io::Result<Lock> {
        Ok(Lock(None))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.count()?;
        let inside = |path: &PathBuf| path.parent() == Some(folder);
        let State { files, durable, .. } = &mut *state;
        durable.retain(|path, _| !inside(path) || files.contains_key(path));
        let now = files.iter().filter(|(path, _)| inside(path));
        durable.extend(now.map(|(path, content)| (path.clone(), Arc::clone(content))));
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(lock(&self.0).free_bytes())
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    content: Arc<Mutex<Content>>,
}

impl MemoryFile {
    fn count(&self) -> io::Result<()> {
        lock(&self.disk.0).count()
    }

    /// Counts an operation after which the file is to have so many bytes.
    fn count_growth(&self, length: usize) -> io::Result<()> {
        let mut state = lock(&self.disk.0);
        state.count()?;
        let more = length.saturating_sub(lock(&self.content).now.len()) as u64;
        if more > state.free_bytes() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = lock(&self.content);
        let rest = content.now.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(bytes.len());
        bytes[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let outcome = self.count_growth(offset as usize + bytes.len());
        // A write that fails has often done a part of its work.
        let done = if outcome.is_ok() { bytes.len() } else { bytes.len() / 2 };
        let mut content = lock(&self.content);
        let end = offset as usize + done;
        if content.now.len() < end {
            content.now.resize(end, 0);
        }
        content.now[offset as usize..end].copy_from_slice(&bytes[..done]);
        content.touch(offset as usize..end);
        outcome
    }

    fn length(&self) -> io::Result<u64> {
        Ok(lock(&self.content).now.len() as u64)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.count_growth(length as usize)?;
        lock(&self.content).resize(length as usize);
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.count_growth(length as usize)?;
        let mut content = lock(&self.content);
        let length = content.now.len().max(length as usize);
        content.resize(length);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let outcome = self.count();
        let mut content = lock(&self.content);
        let Content { now, synced, dirty, lost } = &mut *content;
        let dirty = std::mem::take(dirty);
        if outcome.is_err() {
            lost.extend(dirty);
            return outcome;
        }
        synced.resize(now.len(), 0);
        for sector in dirty {
            let range = (sector * SECTOR).min(now.len())..((sector + 1) * SECTOR).min(now.len());
            synced[range.clone()].copy_from_slice(&now[range]);
        }
        outcome
    }
}
