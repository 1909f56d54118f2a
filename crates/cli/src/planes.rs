//! The planes of a server: each on the engine that its URL names, or else in the data folder.

use std::sync::Arc;

use object_store::ObjectStore;
use umbel_adapters::{About, Opened, open_blobs, open_log, open_registry};
use umbel_core::agreement::Agreement;
use umbel_core::clock::SystemClock;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{self, Settings};
use umbel_core::log::{self, Log};
use umbel_core::registry::{EmbeddedRegistry, Registry};
use umbel_core::url::Url;
use umbel_core::{Error, Result};
use umbel_server::config::Config;

use crate::sole::Sole;

/// Threads for what engines say. Those that answer requests do not wait for it, and those that end a server do not hold it up.
const THREADS: usize = 2;

/// What a server stands on.
pub(crate) struct Planes {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) blobs: Arc<dyn ObjectStore>,
    pub(crate) registry: Arc<dyn Registry>,
    /// That no other server stands on them, where a registry of all can tell.
    pub(crate) sole: Option<Sole>,
    /// Those that are not in the data folder: the plane, where it is, and what it is worth.
    pub(crate) engines: Vec<(&'static str, Url, About)>,
}

/// The runtime of planes on engines.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).thread_name("planes").enable_all().build()
}

impl Planes {
    /// Opens all three, and takes from the registry what all nodes have to agree on. A node that was told otherwise is refused before
    /// it makes anything.
    pub(crate) async fn open(config: &mut Config, settings: &mut Settings) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let mut engines = Vec::new();
        let registry: Arc<dyn Registry> = match &config.registry {
            Some(url) => noted(&mut engines, "registry", url, open_registry(url).await?),
            None => {
                let clock = Arc::new(SystemClock::default());
                Arc::new(EmbeddedRegistry::open(Arc::clone(&disk), &config.data, clock)?)
            }
        };
        let folder = engine::blobs_in_folder(&disk, &config.data);
        let blobs: Arc<dyn ObjectStore> = match &config.blobs {
            Some(url) => noted(&mut engines, "blobs", url, open_blobs(url).await?),
            None => Arc::new(folder.clone()),
        };
        if let Some(agreed) = agreed(&*registry, &*blobs).await? {
            config.adopt(agreed.slots, agreed.partitions);
            let told = config.log.as_ref().map(Url::partitions).transpose()?.flatten();
            let partitions = told.unwrap_or(config.partitions);
            ours(config, partitions, settings)?.joined(&agreed)?;
        }
        // Before anything is made, and before recovery removes what nobody needs.
        let sole = match (&config.registry, &config.log, &config.blobs) {
            // Nodes find each other there.
            _ if !config.cluster.is_empty() => None,
            (Some(_), _, _) => Some(Sole::take(&registry).await?),
            (None, None, None) => None,
            _ => {
                tracing::warn!(
                    "the registry is in the data folder: see to it that no other server has the same log or blobs"
                );
                None
            }
        };
        let log: Arc<dyn Log> = match &config.log {
            Some(url) if config.is_given("partitions") => {
                let url = url.clone().or_partitions(config.partitions);
                noted(&mut engines, "log", &url, open_log(&url).await?)
            }
            Some(url) => noted(&mut engines, "log", url, open_log(url).await?),
            None => {
                let (durability, partitions) = (config.durability, config.partitions);
                let settings = log::Settings { durability, partitions, ..log::Settings::new("") };
                let log = engine::log_in_folder(&disk, &config.data, &settings)?;
                if log.waits_for_space() {
                    let folder = config.data.display();
                    tracing::warn!(
                        "no space is left in {folder}: lookups are answered, and changes are refused until there is some"
                    );
                }
                Arc::new(log)
            }
        };
        if !config.cluster.is_empty() && log.is_exclusive() {
            return Err(Error::Invalid(format!(
                "cluster is {}, but only one process may append to this log; nodes share one",
                config.cluster
            )));
        }
        // Not before the log is open: it keeps other processes out of the data folder.
        if config.blobs.is_none() {
            folder.remove_leftovers()?;
        }
        let ours = ours(config, log.partitions(), settings)?;
        ours.join(&*registry).await?;
        config.adopt(ours.slots, ours.partitions);
        settings.slots = ours.slots;
        Ok(Self { log, blobs, registry, sole, engines })
    }
}

/// What this process was told, as all who take part have to be.
fn ours(config: &Config, partitions: u32, settings: &Settings) -> Result<Agreement> {
    let ours = Agreement::of_node(config.slots, partitions, settings.secret.as_ref())?;
    Ok(if config.cluster.is_empty() { ours } else { ours.in_cluster(&config.cluster, config.copies) })
}

/// Keeps what an engine is worth, to be said later.
fn noted<T: ?Sized>(
    engines: &mut Vec<(&'static str, Url, About)>,
    plane: &'static str,
    url: &Url,
    opened: Opened<T>,
) -> Arc<T> {
    engines.push((plane, url.clone(), opened.about));
    opened.plane
}

/// What the deployment was made with, if it was. Those that are older than agreements have it in their blobs only.
async fn agreed(registry: &dyn Registry, blobs: &dyn ObjectStore) -> Result<Option<Agreement>> {
    if let Some(agreed) = Agreement::read(registry).await? {
        return Ok(Some(agreed));
    }
    let created = engine::created(blobs).await?;
    created.map(|(slots, partitions)| Agreement::of_node(slots, partitions, None)).transpose()
}
