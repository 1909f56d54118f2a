use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use umbel_core::log::Log;
use umbel_core::registry::{Change, Expected, Registry};
use umbel_core::{Error, Result};

use crate::{About, Url, open_blobs, open_log, open_registry};

/// The name of what is put and deleted again.
const NAME: &str = "umbel-doctor";
/// How long a lease of a probe may last if nobody ends it.
const LEASE: Duration = Duration::from_secs(10);

/// One of the three planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Where entries are appended.
    Log,
    /// Where snapshots and archives are.
    Blobs,
    /// What all agree on.
    Registry,
}

impl Plane {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Blobs => "blobs",
            Self::Registry => "registry",
        }
    }
}

/// What a look at an engine showed.
#[derive(Debug)]
pub struct Report {
    /// What the engine is and promises.
    pub about: About,
    /// What was tried and holds, with the time that it took: one round trip each, as far as the engine allows.
    pub held: Vec<(&'static str, Duration)>,
}

/// Opens a plane as a server does, tries what a server depends on, and says what it is worth.
///
/// A log is made if there is none, but nothing is appended to it. What is put elsewhere is deleted again.
pub async fn probe(plane: Plane, url: &Url) -> Result<Report> {
    let mut trial = Trial { begin: Instant::now(), held: Vec::new() };
    let about = match plane {
        Plane::Log => {
            let log = open_log(url).await?;
            trial.holds("opened");
            try_log(&*log.plane, &mut trial).await?;
            log.about
        }
        Plane::Blobs => {
            let blobs = open_blobs(url).await?;
            trial.holds("opened");
            try_blobs(&*blobs.plane, &mut trial).await?;
            blobs.about
        }
        Plane::Registry => {
            let registry = open_registry(url).await?;
            trial.holds("opened");
            try_registry(&*registry.plane, &mut trial).await?;
            registry.about
        }
    };
    Ok(Report { about, held: trial.held })
}

struct Trial {
    begin: Instant,
    held: Vec<(&'static str, Duration)>,
}

impl Trial {
    /// What was tried since the last time holds.
    fn holds(&mut self, what: &'static str) {
        self.held.push((what, self.begin.elapsed()));
        self.begin = Instant::now();
    }
}

async fn try_log(log: &dyn Log, trial: &mut Trial) -> Result<()> {
    let bounds = log.bounds(0).await?;
    trial.holds("bounds");
    log.read(0, bounds.oldest, 1).await?;
    trial.holds("read");
    Ok(())
}

async fn try_blobs(blobs: &dyn ObjectStore, trial: &mut Trial) -> Result<()> {
    let place = Path::from(NAME);
    // One that was interrupted left it.
    match blobs.delete(&place).await {
        Ok(()) | Err(StoreError::NotFound { .. }) => trial.holds("delete"),
        Err(error) => return Err(Error::Retry(error.to_string())),
    }
    let tried = try_object(blobs, &place, trial).await;
    // Nothing of it stays, whatever came of it.
    let deleted = blobs.delete(&place).await.map_err(|error| Error::Retry(error.to_string()));
    tried.and(deleted)
}

async fn try_object(blobs: &dyn ObjectStore, place: &Path, trial: &mut Trial) -> Result<()> {
    let failed = |error: StoreError| Error::Retry(error.to_string());
    let create = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    blobs.put_opts(place, NAME.into(), create()).await.map_err(failed)?;
    trial.holds("put");
    let again = blobs.put_opts(place, "another".into(), create()).await;
    if !matches!(again, Err(StoreError::AlreadyExists { .. })) {
        return Err(Error::Invalid("an object was made twice: there are no conditional puts".into()));
    }
    trial.holds("conditional put");
    let read = blobs.get(place).await.map_err(failed)?.bytes().await.map_err(failed)?;
    if read != NAME {
        return Err(Error::Invalid("an object reads otherwise than it was written".into()));
    }
    trial.holds("read");
    Ok(())
}

async fn try_registry(registry: &dyn Registry, trial: &mut Trial) -> Result<()> {
    let lease = registry.grant(LEASE).await?;
    trial.holds("lease");
    // Under the lease, so that it goes whatever happens to this process.
    registry.put(NAME, NAME.into(), Expected::Anything, Some(lease)).await?;
    trial.holds("put");
    let again = registry.put(NAME, "another".into(), Expected::Absent, None).await?;
    if !matches!(again, Change::Conflict(Some(_))) {
        return Err(Error::Invalid("a name was made twice: there is no compare-and-set".into()));
    }
    trial.holds("compare-and-set");
    let found = registry.get(NAME).await?;
    if found.is_none_or(|found| found.value != NAME) {
        return Err(Error::Invalid("a name reads otherwise than it was put".into()));
    }
    trial.holds("read");
    registry.revoke(lease).await
}
