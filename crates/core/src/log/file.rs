//! The embedded log: segments of frames in a folder for each partition.

mod frame;
mod inspect;
mod partition;
mod recover;
mod segment;

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use inspect::{SegmentReport, inspect};
pub use segment::MAGIC as SEGMENT_MAGIC;

use super::{Appended, Bounds, Log, Record};
use crate::disk::{Disk, Lock};
use crate::limits::{PARTITIONS_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::random::{Random, SystemRandom};
use crate::{Error, Position, Result};
use partition::Partition;

/// What an acknowledged append survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: it is synced before it is acknowledged.
    Always,
    /// The end of the process at once, a power cut after at most this long (and the time of a sync).
    Interval(Duration),
    /// The end of the process; a power cut whenever the system has written it by itself.
    Os,
}

impl Default for Durability {
    fn default() -> Self {
        Self::Interval(Duration::from_millis(200))
    }
}

/// How a file log is kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where; one folder for each partition is made in it.
    pub folder: PathBuf,
    /// The number of partitions, fixed when the log is made.
    pub partitions: u32,
    /// Bytes of a segment; the log is trimmed by whole segments.
    pub segment_bytes: u64,
    /// What an acknowledged append survives.
    pub durability: Durability,
}

impl Settings {
    /// A log in `folder` with defaults for one machine.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            partitions: 4,
            segment_bytes: 64 << 20,
            durability: Durability::default(),
        }
    }

    fn check(&self) -> Result<()> {
        if !(1..=PARTITIONS_MAX).contains(&self.partitions) {
            return Err(Error::Invalid(format!(
                "{} partitions; it must be 1 to {PARTITIONS_MAX}",
                self.partitions
            )));
        }
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            let bytes = self.segment_bytes;
            let why =
                format!("segments of {bytes} bytes; it must be {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}");
            return Err(Error::Invalid(why));
        }
        Ok(())
    }
}

/// A log in files.
///
/// A sync that fails is never tried again, because nobody can know what is on the disk then: the partition takes no more
/// entries, and says so, until the process is started anew. A full disk is no failure: appends are refused and succeed again when
/// there is space.
#[derive(Debug)]
pub struct FileLog {
    shared: Arc<Shared>,
    syncer: Option<JoinHandle<()>>,
    _lock: Lock,
}

#[derive(Debug)]
struct Shared {
    partitions: Vec<Partition>,
    durability: Durability,
    wake: Mutex<Wake>,
    woken: Condvar,
}

/// What the syncing thread waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wake {
    written: bool,
    /// A segment is filling up, and the next one is not prepared.
    filling: bool,
    stop: bool,
}

impl FileLog {
    /// Opens the log in a folder, or makes one there. What a crash left unfinished is cut off; what was damaged is refused.
    pub fn open(disk: &Arc<dyn Disk>, settings: &Settings) -> Result<Self> {
        Self::open_by(disk, settings, &SystemRandom::default())
    }

    /// The same, with positions that go on by a chance that can be repeated.
    pub fn open_by(disk: &Arc<dyn Disk>, settings: &Settings, random: &dyn Random) -> Result<Self> {
        settings.check()?;
        let at = settings.folder.display();
        disk.create_folder(&settings.folder)
            .map_err(|error| Error::io(format!("cannot make {at}"), &error))?;
        let lock = disk.lock(&settings.folder.join("lock"));
        let lock = lock.map_err(|error| Error::io(format!("cannot lock {at}"), &error))?;
        let numbers = 0..settings.partitions;
        let partitions = numbers.map(|number| Partition::open(Arc::clone(disk), settings, number, random));
        let shared = Arc::new(Shared {
            partitions: partitions.collect::<Result<_>>()?,
            durability: settings.durability,
            wake: Mutex::default(),
            woken: Condvar::new(),
        });
        let syncing = Arc::clone(&shared);
        let syncer =
            thread::Builder::new().name("umbel-log-sync".into()).spawn(move || syncing.sync_until_stopped());
        let syncer = syncer.map_err(|error| Error::io("cannot start the syncing thread", &error))?;
        Ok(Self { shared, syncer: Some(syncer), _lock: lock })
    }

    /// Whether it was opened on a full disk and can only be read until there is space: appends are refused, each tries again.
    pub fn waits_for_space(&self) -> bool {
        self.shared.partitions.iter().any(Partition::waits_for_space)
    }

    /// Makes everything that was appended so far durable, whatever the class.
    pub fn sync(&self) -> Result<()> {
        self.shared.partitions.iter().try_for_each(Partition::sync)
    }

    /// Syncs and closes in good order. Appends fail from here on.
    pub fn close(&self) -> Result<()> {
        self.shared.partitions.iter().try_for_each(Partition::close)
    }

    fn partition(&self, number: u32) -> Result<&Partition> {
        let partitions = &self.shared.partitions;
        partitions
            .get(number as usize)
            .ok_or_else(|| Error::Invalid(format!("partition {number} of a log of {}", partitions.len())))
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.shared.wake(|wake| wake.stop = true);
        if let Some(syncer) = self.syncer.take() {
            // It has nothing to tell: its failures are kept by the partitions.
            let _ = syncer.join();
        }
    }
}

impl Shared {
    fn wake(&self, why: impl FnOnce(&mut Wake)) {
        let mut wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *wake;
        why(&mut wake);
        // Whoever was told once needs not be woken again for the same.
        if *wake != before {
            drop(wake);
            self.woken.notify_one();
        }
    }

    /// The life of the syncing thread.
    fn sync_until_stopped(&self) {
        let mut wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            while !wake.written && !wake.stop {
                wake = self.woken.wait(wake).unwrap_or_else(PoisonError::into_inner);
            }
            if let Durability::Interval(interval) = self.durability {
                let idle = |wake: &mut Wake| !wake.stop && !wake.filling;
                let waited = self.woken.wait_timeout_while(wake, interval, idle);
                wake = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if wake.stop {
                return;
            }
            wake.written = false;
            wake.filling = false;
            drop(wake);
            // Before the syncs, which may take long: whoever fills the segment should not have to wait.
            self.partitions.iter().for_each(Partition::prepare_spare);
            let mut marked = false;
            for partition in &self.partitions {
                // A failure closes the partition, and its writers are told.
                if self.durability != Durability::Os {
                    marked |= partition.sync_and_mark().unwrap_or(false);
                }
            }
            wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
            wake.written |= marked;
        }
    }
}

#[async_trait]
impl Log for FileLog {
    fn partitions(&self) -> u32 {
        self.shared.partitions.len() as u32
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, _read: Position) -> Result<Appended> {
        super::check_entries(&entries)?;
        let partition = self.partition(partition)?;
        let (positions, filling) = partition.append(&entries)?;
        let Some(last) = positions.last() else { return Ok(Appended::default()) };
        self.shared.wake(|wake| {
            wake.written = true;
            wake.filling |= filling;
        });
        if self.shared.durability == Durability::Always {
            partition.synced(*last).await?;
        }
        // Nobody else appends, so nobody asks.
        Ok(Appended { positions, is_next: false })
    }

    async fn sync(&self, partition: u32) -> Result<()> {
        self.partition(partition)?.sync()
    }

    async fn close(&self) -> Result<()> {
        Self::close(self)
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        self.partition(partition)?.read(after, bytes_max)
    }

    async fn holds(&self, partition: u32, position: Position) -> Result<bool> {
        Ok(self.partition(partition)?.holds(position))
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        Ok(self.partition(partition)?.bounds())
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        self.partition(partition)?.trim(upto)
    }
}
