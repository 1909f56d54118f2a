//! Folders, and engines in them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_core::Result;
use umbel_core::blobs::FolderStore;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{Engine, Handle, Settings};
use umbel_core::log::{Durability, FileLog, Settings as LogSettings};
use umbel_filter::Fingerprint;

use crate::filters::keys::fingerprint;

/// Keys that are added at once where nobody looks at the time.
const FILL_KEYS: u64 = 10_000;

/// A folder for everything, which is removed in the end.
pub(super) struct Place {
    folder: PathBuf,
    next: AtomicU64,
}

impl Place {
    pub(super) fn new(parent: Option<&Path>) -> io::Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = parent.join(format!("umbel-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, next: AtomicU64::new(0) })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A folder for one engine after another.
    pub(super) fn home(&self) -> Home {
        Home(self.folder.join(self.next.fetch_add(1, Ordering::Relaxed).to_string()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The folder of an engine; gone with this.
pub(super) struct Home(PathBuf);

impl Home {
    /// Opens an engine with memory enough and a log of that durability.
    pub(super) fn open(&self, durability: Durability) -> Result<Engine> {
        self.open_with(durability, Settings::default().checkpoint_every)
    }

    /// With checkpoints as often as this, once the engine's threads are started.
    pub(super) fn open_with(&self, durability: Durability, checkpoint_every: Duration) -> Result<Engine> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let log = LogSettings { durability, ..LogSettings::new(self.0.join("log")) };
        let log = Arc::new(FileLog::open(&disk, &log)?);
        let blobs = FolderStore::new(disk, self.blobs());
        blobs.remove_leftovers()?;
        let settings = Settings { memory_bytes: 12 << 30, checkpoint_every, ..Settings::default() };
        block_on(Engine::builder(settings).with_log(log).with_blobs(Arc::new(blobs)).open())
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.0.join("blobs")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Every thread has a runtime of its own, as in a server with one for each core.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime needs nothing but memory");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// The keys with these numbers.
pub(super) fn keys(numbers: std::ops::Range<u64>) -> Vec<Fingerprint> {
    numbers.map(fingerprint).collect()
}

/// Adds the keys with these numbers.
pub(super) fn fill(engine: &Engine, filter: &Arc<Handle>, numbers: std::ops::Range<u64>) -> Result<()> {
    for first in numbers.clone().step_by(FILL_KEYS as usize) {
        let keys = keys(first..numbers.end.min(first + FILL_KEYS));
        block_on(engine.add(filter, &keys))?;
    }
    Ok(())
}
