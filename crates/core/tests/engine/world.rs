//! An engine on a simulated disk, and what can happen to it.

use std::sync::Arc;
use std::time::Duration;

use umbel_core::Result;
use umbel_core::blobs::FolderStore;
use umbel_core::disk::{Disk, MemoryDisk};
use umbel_core::engine::{Engine, Handle, Settings};
use umbel_core::log::{Durability, FileLog, Settings as LogSettings};
use umbel_core::random::SeededRandom;
use umbel_filter::{Family, Fingerprint, Hasher};

pub(crate) const SLOTS: u32 = 4;
pub(crate) const PARTITIONS: u32 = 2;

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Small sizes, so that everything that happens to large deployments happens here soon.
pub(crate) fn settings() -> Settings {
    Settings {
        slots: SLOTS,
        sharded_above_bytes: 64 << 10,
        memory_bytes: 64 << 20,
        runs_max: 3,
        ..Settings::default()
    }
}

pub(crate) fn log_on(disk: &MemoryDisk) -> Result<Arc<FileLog>> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = LogSettings {
        partitions: PARTITIONS,
        segment_bytes: 2 << 20,
        // Syncs come when the test asks for them.
        durability: Durability::Interval(Duration::from_secs(3600)),
        ..LogSettings::new("/data/log")
    };
    Ok(Arc::new(FileLog::open(&disk, &settings)?))
}

pub(crate) fn blobs_on(disk: &MemoryDisk) -> Arc<FolderStore> {
    Arc::new(FolderStore::new(Arc::new(disk.clone()), "/data/blobs"))
}

pub(crate) async fn open_with(disk: &MemoryDisk, settings: Settings) -> Result<Engine> {
    let blobs = blobs_on(disk);
    blobs.remove_leftovers()?;
    let random = Arc::new(SeededRandom::new(disk.operations()));
    Engine::builder(settings).with_log(log_on(disk)?).with_blobs(blobs).with_random(random).open().await
}

pub(crate) async fn open(disk: &MemoryDisk) -> Result<Engine> {
    open_with(disk, settings()).await
}

/// The process ends without a word: what was written is there.
pub(crate) async fn reopened(engine: Engine, disk: &MemoryDisk) -> Engine {
    drop(engine);
    open(disk).await.unwrap()
}

pub(crate) fn key(number: u64) -> Fingerprint {
    Hasher::new(Family::Murmur3, None).unwrap().fingerprint(&number.to_le_bytes())
}

pub(crate) fn keys(numbers: std::ops::Range<u64>) -> Vec<Fingerprint> {
    numbers.map(key).collect()
}

/// How many of these keys the filter says are absent.
pub(crate) async fn absent(engine: &Engine, filter: &Arc<Handle>, keys: &[Fingerprint]) -> usize {
    let answers = engine.contains(filter, keys, None).await.unwrap();
    answers.iter().filter(|answer| **answer == umbel_core::engine::Answer::Absent).count()
}
