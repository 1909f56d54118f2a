//! An engine on a simulated disk, and what can happen to it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use umbel_core::Result;
use umbel_core::blobs::FolderStore;
use umbel_core::clock::ManualClock;
use umbel_core::disk::{Disk, MemoryDisk};
use umbel_core::engine::{Engine, Handle, NewFilter, Settings, Sharding};
use umbel_core::log::{Durability, FileLog, Log, Settings as LogSettings};
use umbel_core::random::{Random, SeededRandom};
use umbel_filter::{Family, Fingerprint, Hasher, Spec};

pub(crate) const SLOTS: u32 = 4;
pub(crate) const PARTITIONS: u32 = 2;

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Runs a future on this thread alone. Without a runtime the blobs do their work at once, and so nothing here ever waits: that is
/// many times faster, and the same every time.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
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
    let random = SeededRandom::new(disk.operations());
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = LogSettings {
        partitions: PARTITIONS,
        segment_bytes: 2 << 20,
        // Syncs come when the test asks for them.
        durability: Durability::Interval(Duration::from_secs(3600)),
        ..LogSettings::new("/data/log")
    };
    Ok(Arc::new(FileLog::open_by(&disk, &settings, &random)?))
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

/// An engine on a log that the test keeps a hand on. Its time stands still, and its chance follows from the seed.
pub(crate) async fn open_on(
    disk: &MemoryDisk,
    log: Arc<dyn Log>,
    settings: Settings,
    seed: u64,
) -> Result<Engine> {
    open_on_at(disk, log, settings, seed, &ManualClock::default()).await
}

/// The same, with a time that the test makes pass.
pub(crate) async fn open_on_at(
    disk: &MemoryDisk,
    log: Arc<dyn Log>,
    settings: Settings,
    seed: u64,
    clock: &ManualClock,
) -> Result<Engine> {
    let blobs = blobs_on(disk);
    blobs.remove_leftovers()?;
    let random = Arc::new(SeededRandom::new(seed));
    let builder = Engine::builder(settings).with_log(log).with_blobs(blobs);
    builder.with_random(random).with_clock(Arc::new(clock.clone())).open().await
}

/// An engine whose time the test makes pass.
pub(crate) async fn open_at(disk: &MemoryDisk, clock: &ManualClock) -> Result<Engine> {
    let blobs = blobs_on(disk);
    blobs.remove_leftovers()?;
    let random = Arc::new(SeededRandom::new(disk.operations()));
    let builder = Engine::builder(settings()).with_log(log_on(disk)?).with_blobs(blobs);
    builder.with_random(random).with_clock(Arc::new(clock.clone())).open().await
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

pub(crate) fn everywhere(name: &str, spec: Spec) -> NewFilter {
    NewFilter { sharding: Sharding::Everywhere, ..NewFilter::new(name, spec) }
}

/// Builds what is to be built, until nothing is due any more.
pub(crate) async fn settle(engine: &Engine) -> Result<()> {
    for _ in 0..20 {
        if engine.maintain().await?.grown == 0 {
            break;
        }
    }
    Ok(())
}

/// A number below `bound`.
pub(crate) fn below(random: &SeededRandom, bound: u64) -> u64 {
    random.next() % bound.max(1)
}
