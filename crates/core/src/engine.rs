//! The engine: log, fold, checkpoints, archive and generations, joined into filters that lose nothing.
//!
//! ```text
//!  add, remove --> lane (one for each partition): append, fold in order --> projections <-- lookups, at any time
//!                    |                                  ^
//!                    v tail                             | the next generation, when it has caught up
//!                  checkpoint --> blobs: arrays, runs, manifest --> trim the log
//! ```
//!
//! Background work is a set of steps ([`Engine::maintain`]), so tests and simulations take them one by one; [`Engine::start`]
//! lets a thread do it.

mod checkpoint;
mod claim;
mod cluster;
mod describe;
mod dump;
mod feed;
mod gather;
mod growth;
mod handle;
mod hosting;
mod identity;
mod inspect;
mod lane;
mod ledger;
mod look;
mod manifest;
mod memory;
mod merge;
mod orphans;
mod pace;
mod part;
mod question;
mod rebuild;
mod recover;
mod requests;
mod settings;
mod stats;
mod steps;
mod stored;
mod transfer;
mod trim;
mod versions;
mod window;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{join_all, try_join_all};
use object_store::ObjectStore;
use umbel_filter::{Fingerprint, Hasher, Kind};

use crate::blobs::FolderStore;
use crate::clock::{Clock, SystemClock};
use crate::disk::Disk;
use crate::entry::{Entry, Operation};
use crate::fold::{Archived, Means, Outcome, Shard};
use crate::limits::PARTITIONS_MAX;
use crate::log::{self, FileLog, Log};
use crate::random::{Random, SystemRandom};
use crate::registry::Registry;
use crate::{Error, Position, Result};
pub use claim::Claim;
pub use cluster::{Cluster, NO_LEASE, OVERDUE_TICKS, Role};
pub use dump::{Loader, is_dump};
pub use feed::{Changes, PartChanges};
pub use gather::{BlocksFrom, LayerShape, PartOf, Shape};
use handle::Directory;
pub use handle::{Answer, Handle};
pub use hosting::Hosted;
pub use identity::{DeploymentId, MAGIC as DEPLOYMENT_ID_MAGIC};
pub use inspect::{BlobReport, StoredReport, inspect};
use lane::{Lane, Slot, all_or_none};
use ledger::Ledger;
pub use look::{Consistency, Told};
pub use manifest::MAGIC as MANIFEST_MAGIC;
pub(crate) use manifest::VERSION as MANIFEST_VERSION;
pub use pace::ClockSteps;
pub use part::Applied;
pub use question::{Placement, Question};
pub use rebuild::Refill;
pub use recover::{MAGIC as DEPLOYMENT_MAGIC, created};
pub use requests::{NewFilter, Sharding, Token, Written};
pub use settings::Settings;
pub use stats::Stats;
pub use steps::{Event, Size, Why};
pub(crate) use stored::VERSION as ARRAYS_VERSION;
pub use stored::{ArraysReport, MAGIC as ARRAYS_MAGIC, inspect_arrays};
pub use trim::MAGIC as TRIMMED_MAGIC;
pub(crate) use trim::VERSION as TRIMMED_VERSION;
pub use versions::{Current, Making, PLACED_MAGIC, Pin, Publication, Published, placed_version};
pub use worker::Done;
use worker::Workers;

/// Filters on a log and blobs.
///
/// ```
/// # use std::sync::Arc;
/// # use umbel_core::engine::{Answer, Engine, NewFilter, Settings};
/// # use umbel_core::log::MemoryLog;
/// # use umbel_filter::Spec;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let (log, blobs) = (Arc::new(MemoryLog::new(4)), Arc::new(object_store::memory::InMemory::new()));
/// let engine = Engine::builder(Settings::default()).with_log(log).with_blobs(blobs).open().await?;
///
/// let urls = engine.create(NewFilter::new("urls", Spec::bloom(1_000_000, 0.001))).await?;
/// let key = urls.hasher().fingerprint(b"https://example.com/");
/// assert_eq!(engine.add(&urls, &[key]).await?.answers, [Some(true)]);
/// assert_eq!(urls.contains(key), Answer::Maybe);
/// # Ok::<(), umbel_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    workers: std::sync::Mutex<Workers>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    log: Arc<dyn Log>,
    blobs: Arc<dyn ObjectStore>,
    deployment: DeploymentId,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    means: Means,
    lanes: Vec<Lane>,
    /// One for each slot: checkpoints, merges and builds of a slot come one after another.
    maintenance: Vec<tokio::sync::Mutex<()>>,
    /// One for each slot: who reads its runs, and which of them are to be removed when nobody does.
    reading: Vec<transfer::Reading>,
    directory: Directory,
    /// The time of windows and of expiries.
    pace: pace::Pace,
    /// Filters get their names one after another: a name is looked up in one slot and may be taken in another.
    naming: tokio::sync::Mutex<()>,
    /// How far every node has folded the catalog, as far as this one knows.
    confirmed: std::sync::Mutex<Position>,
    /// Versions are made, and chunks removed, one after another.
    versions: tokio::sync::Mutex<versions::Known>,
    /// Versions of a cluster that were read lately.
    shelf: versions::Shelf,
    work: worker::Work,
    /// What happened to sizes of filters.
    steps: steps::Steps,
    /// The other nodes, if there are any.
    cluster: Option<Arc<dyn Cluster>>,
    /// Where they agree on checkpoints.
    ledger: Option<Ledger>,
    /// Where they agree on versions.
    listings: Option<versions::Listings>,
    /// Who knows whether there is another engine, if there could be one.
    claim: Option<Arc<dyn Claim>>,
}

/// What an engine is put together from.
#[derive(Debug)]
pub struct Builder {
    settings: Settings,
    log: Option<Arc<dyn Log>>,
    blobs: Option<Arc<dyn ObjectStore>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    cluster: Option<(Arc<dyn Cluster>, Arc<dyn Registry>)>,
    claim: Option<Arc<dyn Claim>>,
}

impl Builder {
    /// The truth.
    pub fn with_log(self, log: Arc<dyn Log>) -> Self {
        Self { log: Some(log), ..self }
    }

    /// Where checkpoints and the archive go.
    pub fn with_blobs(self, blobs: Arc<dyn ObjectStore>) -> Self {
        Self { blobs: Some(blobs), ..self }
    }

    /// Everything in one folder: the log in `log`, checkpoints and the archive in `blobs`.
    pub fn in_folder(self, disk: &Arc<dyn Disk>, folder: &Path, log: &log::Settings) -> Result<Self> {
        let (log, blobs) = (log_in_folder(disk, folder, log)?, blobs_in_folder(disk, folder));
        blobs.remove_leftovers()?;
        Ok(self.with_log(Arc::new(log)).with_blobs(Arc::new(blobs)))
    }

    /// Another clock than the system's.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Another chance than the system's.
    pub fn with_random(self, random: Arc<dyn Random>) -> Self {
        Self { random, ..self }
    }

    /// One of several nodes on the same log and blobs. It hosts what it is told to, and what filters there are; in the registry, nodes
    /// agree on which checkpoint of a slot is the newest.
    pub fn with_cluster(self, cluster: Arc<dyn Cluster>, registry: Arc<dyn Registry>) -> Self {
        Self { cluster: Some((cluster, registry)), ..self }
    }

    /// The only engine on its log and blobs for as long as a claim is held. While it is not, no checkpoints are made and nothing is removed.
    pub fn with_claim(self, claim: Arc<dyn Claim>) -> Self {
        Self { claim: Some(claim), ..self }
    }

    /// Recovers what there is, or creates a deployment.
    pub async fn open(self) -> Result<Engine> {
        self.settings.check()?;
        let missing = |what: &str| Error::Invalid(format!("an engine needs {what}"));
        let log = self.log.ok_or_else(|| missing("a log"))?;
        let blobs = self.blobs.ok_or_else(|| missing("blobs"))?;
        let (partitions, slots) = (log.partitions(), self.settings.slots);
        if partitions > slots || partitions > PARTITIONS_MAX {
            return Err(Error::Invalid(format!(
                "{partitions} partitions for {slots} slots; at most one for each"
            )));
        }
        recover::check_deployment(&*blobs, slots, partitions).await?;
        let deployment = identity::deployment_id(&*blobs, &*self.random).await?;
        let means = Means {
            secret: self.settings.secret.clone(),
            limits: self.settings.limits.clone(),
            budget: crate::budget::Budget::new(self.settings.memory_bytes),
        };
        let (cluster, registry) = self.cluster.unzip();
        let mut shared = Shared {
            reading: (0..slots).map(|_| transfer::Reading::default()).collect(),
            directory: Directory::new(slots),
            pace: pace::Pace::new(&*self.clock),
            naming: tokio::sync::Mutex::default(),
            confirmed: std::sync::Mutex::default(),
            versions: tokio::sync::Mutex::default(),
            shelf: versions::Shelf::default(),
            maintenance: (0..slots).map(|_| tokio::sync::Mutex::default()).collect(),
            lanes: Vec::new(),
            settings: self.settings,
            log,
            blobs,
            deployment,
            work: worker::Work::new(&*self.clock, partitions),
            clock: self.clock,
            random: self.random,
            steps: steps::Steps::default(),
            means,
            cluster,
            ledger: registry.clone().map(Ledger::new),
            listings: registry.map(versions::Listings::new),
            claim: self.claim,
        };
        if shared.cluster.is_some() {
            if shared.log.is_exclusive() {
                return Err(Error::Invalid(
                    "this log is for one process: a cluster needs one that all nodes see".into(),
                ));
            }
            shared.lanes =
                (0..partitions).map(|number| Lane::new(number, Vec::new(), Position::START)).collect();
            shared.host(shared.catalog()).await?;
            return Ok(Engine { shared: Arc::new(shared), workers: std::sync::Mutex::default() });
        }
        let mut by_lane: Vec<Vec<Slot>> = (0..partitions).map(|_| Vec::new()).collect();
        for slot in recover::recover_slots(&shared.blobs, &shared.settings, &shared.means).await? {
            by_lane[usize::from(slot.state.slot()) % partitions as usize].push(slot);
        }
        shared.lanes = recover::lanes(&shared, by_lane).await?;
        shared.begin().await?;
        Ok(Engine { shared: Arc::new(shared), workers: std::sync::Mutex::default() })
    }
}

/// The log of a data folder.
pub fn log_in_folder(disk: &Arc<dyn Disk>, folder: &Path, settings: &log::Settings) -> Result<FileLog> {
    FileLog::open(disk, &log::Settings { folder: folder.join("log"), ..settings.clone() })
}

/// Checkpoints and the archive of a data folder. What interrupted writers left there may go once the log is open, which keeps other
/// processes out of the folder.
pub fn blobs_in_folder(disk: &Arc<dyn Disk>, folder: &Path) -> FolderStore {
    FolderStore::new(Arc::clone(disk), folder.join("blobs"))
}

impl Engine {
    /// Begins to put an engine together.
    pub fn builder(settings: Settings) -> Builder {
        Builder {
            settings,
            log: None,
            blobs: None,
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(SystemRandom::default()),
            cluster: None,
            claim: None,
        }
    }

    /// How the engine is run.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The id of the deployment: the same on all of its nodes, and after every restart.
    pub fn deployment(&self) -> DeploymentId {
        self.shared.deployment
    }

    /// Parts of the log that are written side by side; a slot is in the one that its number leaves when divided by them.
    pub fn partitions(&self) -> u32 {
        self.shared.lanes.len() as u32
    }

    /// The memory of all filters.
    pub fn budget(&self) -> &Arc<crate::budget::Budget> {
        &self.shared.means.budget
    }

    /// Makes all that was acknowledged durable, also where the log acknowledges before that: for whoever forgets, by it, what could be
    /// done again.
    pub async fn sync(&self) -> Result<()> {
        try_join_all(self.shared.lanes.iter().map(|lane| self.shared.log.sync(lane.partition)))
            .await
            .map(drop)
    }

    /// Digests of all slots, in order; 0 for those that other nodes host. Nothing is folded while a lane's slots are looked at.
    pub async fn digests(&self) -> Result<Vec<u128>> {
        let mut digests = vec![0; self.shared.maintenance.len()];
        self.with_all_folded(|slot| digests[usize::from(slot.state.slot())] = slot.state.digest()).await?;
        Ok(digests)
    }

    /// What each slot that is hosted here has come to when all of the log is folded: its digest, and in words what it is made of.
    pub async fn hosted_digests(&self) -> Result<Vec<(u16, u128, String)>> {
        let mut digests = Vec::new();
        self.with_all_folded(|slot| {
            let (filters, sessions) = slot.state.digests();
            let filters = filters.iter().map(|(id, digest)| format!("{id:x} {digest:016x}, "));
            let parts =
                format!("{}sessions {sessions:016x}, at {}", filters.collect::<String>(), slot.last_entry);
            digests.push((slot.state.slot(), slot.state.digest(), parts));
        })
        .await?;
        Ok(digests)
    }

    /// Shows slots that are hosted here, each when its partition of the log was read to its end.
    async fn with_all_folded(&self, mut look: impl FnMut(&Slot)) -> Result<()> {
        for lane in &self.shared.lanes {
            let mut turn = lane.turn.lock().await;
            if turn.slots.is_empty() {
                continue;
            }
            lane.catch_up(&self.shared, &mut turn).await?;
            turn.slots.iter().for_each(&mut look);
        }
        Ok(())
    }
}

impl Shared {
    /// From checkpoints to a state that takes requests.
    async fn begin(&self) -> Result<()> {
        self.load_all().await?;
        let begun = self.clock.now();
        self.replay().await?;
        let replayed_for = self.clock.now().saturating_sub(begun);
        self.work.has_replayed_long.store(replayed_for > self.settings.replay_max, Ordering::Relaxed);
        self.directory.settle_names();
        self.reconcile().await?;
        self.drop_half_imported().await?;
        self.drop_lost_rebuilds().await?;
        // Without room for the next bucket, it is made when there is some.
        let _ = self.turn_windows().await;
        self.directory.unsorted().iter().for_each(|handle| handle.recount());
        Ok(())
    }

    fn lane(&self, slot: u16) -> &Lane {
        &self.lanes[usize::from(slot) % self.lanes.len()]
    }

    fn maintenance(&self, slot: u16) -> &tokio::sync::Mutex<()> {
        &self.maintenance[usize::from(slot)]
    }

    /// Shows readers what a slot has of a filter.
    fn show(&self, slot: &Slot, filter: u64) -> Result<()> {
        if !slot.is_shown {
            return Ok(());
        }
        let shard = slot.state.shard(filter);
        let stored = slot.stored.get(&filter).map(|stored| stored.counts).unwrap_or_default();
        let (number, at) = (slot.state.slot(), slot.last_entry);
        self.directory.show(number, filter, shard.map(|shard| (shard, stored)), at, |definition| {
            let secret = self.means.secret_for(&definition.spec);
            Hasher::new(definition.spec.family, secret).map_err(|error| Error::Invalid(error.to_string()))
        })
    }

    /// Shows readers what an entry changed in a slot besides keys.
    fn folded(&self, slot: &mut Slot, entry: &Entry, outcome: &Outcome) -> Result<()> {
        match (&entry.operation, outcome) {
            (
                Operation::Define(_)
                | Operation::Describe(_)
                | Operation::Redescribe { .. }
                | Operation::Switch,
                Outcome::Done,
            ) => self.show(slot, entry.filter),
            (Operation::Drop | Operation::Clear | Operation::Adopt { .. }, Outcome::Done) => {
                slot.stored.remove(&entry.filter);
                self.show(slot, entry.filter)
            }
            _ => Ok(()),
        }
    }

    /// Counts the keys of a filter after an entry was folded.
    fn count(&self, filter: u64, operation: &Operation, new_keys: u64) {
        let Some(handle) = self.directory.numbered(filter) else { return };
        if let Operation::Remove(keys) = operation {
            handle.removals.fetch_add(keys.len() as u64, Ordering::Relaxed);
        }
        if !matches!(operation, Operation::Add(_) | Operation::AddAbsent(_)) {
            return handle.recount();
        }
        handle.added(new_keys);
        if self.is_due(&handle) {
            self.work.ring_for_growth();
        }
    }

    /// Asks the archive for keys whose count decides what becomes of them, unless the filter is sure that they are not there.
    async fn ask_archive(
        &self,
        slot: &Slot,
        filter: u64,
        keys: &[Fingerprint],
        archived: &mut Archived,
    ) -> Result<()> {
        let keeps_counts =
            |shard: &&Shard| shard.definition().retain && shard.definition().spec.kind != Kind::Bloom;
        let Some(shard) = slot.state.shard(filter).filter(keeps_counts) else { return Ok(()) };
        let Some(projection) = shard.projection() else { return Ok(()) };
        let mut asked: Vec<Fingerprint> =
            keys.iter().copied().filter(|key| !archived.knows(filter, *key)).collect();
        asked.sort_unstable();
        asked.dedup();
        // A key that is not there now may be when its turn comes. What was archived of it is what went since.
        asked.retain(|key| {
            let may_be_there = projection.contains(*key);
            if !may_be_there {
                archived.insert(filter, *key, -shard.tail_net(*key));
            }
            may_be_there
        });
        // Keys that nobody archived count for nothing, and that is known too.
        asked.iter().for_each(|key| archived.insert(filter, *key, 0));
        for run in slot.runs_of(filter) {
            for (key, net) in asked.iter().zip(run.nets(filter, &asked).await?) {
                archived.insert(filter, *key, net);
            }
        }
        Ok(())
    }

    /// Appends entries to their partitions, and gives what came of each, in the same order.
    async fn submit(&self, entries: Vec<(u32, Entry)>) -> Result<Vec<Applied>> {
        match &self.cluster {
            None => self.submit_to_lanes(entries).await,
            Some(cluster) => Box::pin(self.submit_to_nodes(&**cluster, entries)).await,
        }
    }

    /// The same where all of these partitions are hosted here.
    async fn submit_to_lanes(&self, entries: Vec<(u32, Entry)>) -> Result<Vec<Applied>> {
        // Neighbours for the same lane go there together.
        let mut by_lane: Vec<(u32, Vec<Entry>)> = Vec::with_capacity(self.lanes.len().min(entries.len()));
        for (partition, entry) in entries {
            match by_lane.last_mut() {
                Some((last, entries)) if *last == partition => entries.push(entry),
                _ => by_lane.push((partition, vec![entry])),
            }
        }
        if by_lane.len() == 1 {
            let Some((partition, entries)) = by_lane.pop() else { return Ok(Vec::new()) };
            return self.lanes[partition as usize].submit(self, entries).await;
        }
        let submit = |(partition, entries)| self.lanes[partition as usize].submit(self, entries);
        let applied = all_or_none(join_all(by_lane.into_iter().map(submit)).await)?;
        Ok(applied.into_iter().flatten().collect())
    }

    /// How far a partition's log is folded.
    fn applied(&self, partition: u32) -> Position {
        self.lanes.get(partition as usize).map_or(Position::START, Lane::applied)
    }
}
