//! Domains as a server has them: catalogs made from settings, filters of others copied here or asked over the network, and others that
//! come and go as the registry says.
//!
//! ```text
//!  settings --> a catalog each: the engine's filter and its source, then every other domain
//!  registry --> roster: domains join and leave all catalogs whose filter they publish
//!           <-- place: where this one is and what it publishes, kept alive
//! ```

mod place;
mod roster;
mod settings;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use umbel_core::clock::Clock;
use umbel_core::engine::{Answer, Engine};
use umbel_core::random::Random;
use umbel_core::registry::Registry;
use umbel_filter::{Family, Hasher};

use crate::limits::KEY_BYTES_MAX;
use crate::{Catalog, Counts, Domain, EngineFilter, Error, Fetched, Hot, Result};
use place::Announcer;
pub use settings::{CatalogSettings, Follow, Neighbour, Settings};

/// Memory for counts of a catalog, and how many keys are listed.
const COUNTS_BYTES: usize = 1 << 20;
const LISTED: usize = 1_000;

/// What is asked of a catalog besides the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Whether the record is wanted.
    pub fetch: bool,
    /// Whether only the local domain is asked.
    pub local: bool,
    /// How long it may take; as the catalog's settings say if nobody does.
    pub within: Option<Duration>,
}

/// All catalogs of a server. It ends when it is dropped.
#[derive(Debug)]
pub struct Service {
    name: String,
    catalogs: Arc<BTreeMap<String, Opened>>,
    runtime: Handle,
    following: Option<AbortHandle>,
    announcer: Mutex<Option<Announcer>>,
}

/// A catalog, and what it was opened with.
#[derive(Debug)]
struct Opened {
    settings: CatalogSettings,
    catalog: Arc<Catalog>,
    counts: Arc<Counts>,
}

/// What a service stands on.
#[derive(Clone, Debug)]
pub struct Means {
    /// The filters of this domain.
    pub engine: Arc<Engine>,
    /// Where domains find each other; none if settings name all of them.
    pub registry: Option<Arc<dyn Registry>>,
    /// Where copies follow and questions to others are asked.
    pub runtime: Handle,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
}

impl Service {
    /// Opens all catalogs. Others are not waited for: until they are reached, nothing is known of them.
    pub fn open(settings: Settings, means: &Means) -> Result<Self> {
        settings.check()?;
        let mut catalogs = BTreeMap::new();
        for catalog in &settings.catalogs {
            let filter = Arc::new(EngineFilter::new(Arc::clone(&means.engine), &catalog.filter));
            let mut local = Domain::new(&settings.name)?.held(Arc::clone(&filter) as _).remote(filter);
            if let Some(source) = &catalog.source {
                local = local.source(Arc::clone(source));
            }
            let counts = Arc::new(Counts::new(COUNTS_BYTES, LISTED, &*means.random)?);
            let mut opened = Catalog::new(local).with_counts(Arc::clone(&counts));
            if catalog.hot.bytes_max > 0 {
                let hasher = Hasher::new(Family::default(), None)
                    .map_err(|error| Error::Invalid(format!("keys cannot be hashed: {error}")))?;
                let mut hot = Hot::new(catalog.hot, hasher, Arc::clone(&means.clock));
                if let Some(store) = &catalog.shared {
                    hot = hot.sharing(Arc::clone(store), &catalog.name, means.runtime.clone());
                }
                opened = opened.with_hot(Arc::new(hot));
            }
            let opened = Opened { settings: catalog.clone(), catalog: Arc::new(opened), counts };
            catalogs.insert(catalog.name.clone(), opened);
        }
        let catalogs = Arc::new(catalogs);
        let neighbours = roster::Neighbours::new(&settings, Arc::clone(&catalogs));
        let (mut following, mut announcer) = (None, None);
        {
            // Copies are opened on the runtime that they live on.
            let _inside = means.runtime.enter();
            neighbours.join_named()?;
            if let Some(registry) = &means.registry {
                let task = means.runtime.spawn(neighbours.follow(Arc::clone(registry)));
                following = Some(task.abort_handle());
                announcer = Some(Announcer::start(&settings, Arc::clone(registry), means));
            }
        }
        let (runtime, announcer) = (means.runtime.clone(), Mutex::new(announcer));
        Ok(Self { name: settings.name, catalogs, runtime, following, announcer })
    }

    /// The name of this domain.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The catalog of that name.
    pub fn catalog(&self, name: &str) -> Option<&Arc<Catalog>> {
        self.catalogs.get(name).map(|opened| &opened.catalog)
    }

    /// What is known of a key, or the record; none if there is no such catalog. What memory knows is answered at once, on whatever thread
    /// asks.
    pub async fn ask(&self, catalog: &str, key: &[u8], question: Question) -> Option<Result<Fetched>> {
        let opened = self.catalogs.get(catalog)?;
        if key.len() > KEY_BYTES_MAX {
            let why = format!("a key of {} bytes; at most {KEY_BYTES_MAX}", key.len());
            return Some(Err(Error::Invalid(why)));
        }
        let (began, within) = (Instant::now(), question.within.unwrap_or(opened.settings.deadline));
        if !question.fetch && !question.local {
            opened.counts.note(key);
            let standings = opened.catalog.look(key);
            if standings.iter().all(|standing| standing.answer != Answer::Unknown) {
                let took = began.elapsed();
                return Some(Ok(Fetched { standings, looked: took, took, ..Fetched::default() }));
            }
        }
        let (catalog, key) = (Arc::clone(&opened.catalog), key.to_vec());
        let asking = self.runtime.spawn(async move {
            let told = |standings| Fetched { standings, took: began.elapsed(), ..Fetched::default() };
            match question {
                Question { fetch: true, local: true, .. } => catalog.fetch_local(key, within).await,
                Question { fetch: true, .. } => catalog.fetch(key, within).await,
                Question { local: true, .. } => told(catalog.lookup_local(key, within).await),
                Question { .. } => told(catalog.lookup(key, within).await),
            }
        });
        Some(asking.await.map_err(|error| Error::Retry(format!("a lookup was given up: {error}"))))
    }

    /// How often keys of a catalog were asked for.
    pub fn counts(&self, catalog: &str) -> Option<&Counts> {
        self.catalogs.get(catalog).map(|opened| &*opened.counts)
    }

    /// The server ends, and may be started again: the domain stays one, and nobody runs it.
    pub async fn rest(&self) -> Result<()> {
        match self.announcer() {
            Some(announcer) => announcer.rest().await,
            None => Ok(()),
        }
    }

    /// The domain is none any more, and others pass it over.
    pub async fn leave(&self) -> Result<()> {
        match self.announcer() {
            Some(announcer) => announcer.leave().await,
            None => Ok(()),
        }
    }

    fn announcer(&self) -> Option<Announcer> {
        self.announcer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(following) = &self.following {
            following.abort();
        }
    }
}
