use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::image::{self, Image};
use super::{Change, Expected, Lease, Listing, Registry, Versioned, check_name, check_value};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::limits::{REGISTRY_BYTES_MAX, REGISTRY_NAMES_MAX};
use crate::{Error, Result};

const FILE: &str = "registry";
const NEXT: &str = "registry.tmp";

/// The registry of one process: in memory, and in a file if it has one.
///
/// Leases end with the process. That one's time has passed is noticed by the next call, whatever it is for.
#[derive(Debug)]
pub struct EmbeddedRegistry {
    clock: Arc<dyn Clock>,
    place: Option<Place>,
    state: Mutex<State>,
    /// The newest revision, for those who wait.
    revision: watch::Sender<u64>,
}

#[derive(Debug)]
struct Place {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

#[derive(Clone, Debug, Default)]
struct State {
    revision: u64,
    entries: BTreeMap<String, Stored>,
    leases: BTreeMap<Lease, Term>,
    last_lease: u64,
    closed: Option<Error>,
}

#[derive(Clone, Debug)]
struct Stored {
    current: Versioned,
    lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    time: Duration,
    ends: Duration,
}

impl EmbeddedRegistry {
    /// A registry that is gone with the process.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Self {
        Self { clock, place: None, state: Mutex::default(), revision: watch::Sender::new(0) }
    }

    /// The registry in a folder, which it makes if need be.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let path = folder.join(FILE);
        disk.create_folder(folder)
            .map_err(|error| Error::io(format!("cannot make {}", folder.display()), &error))?;
        let image = read_image(&*disk, &path)?.unwrap_or_default();
        let entries =
            image.entries.into_iter().map(|(name, current)| (name, Stored { current, lease: None }));
        let state = State { revision: image.revision, entries: entries.collect(), ..State::default() };
        let revision = watch::Sender::new(state.revision);
        let place = Some(Place { disk, folder: folder.to_owned() });
        Ok(Self { clock, place, state: Mutex::new(state), revision })
    }

    /// The state, after what should have ended by now has ended.
    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(closed) = &state.closed {
            return Err(closed.clone());
        }
        let now = self.clock.now();
        if state.leases.values().any(|term| term.ends <= now) {
            state.leases.retain(|_, term| term.ends > now);
            self.drop_orphans(&mut state);
        }
        Ok(state)
    }

    /// Deletes names whose lease is gone. They are in no file, so memory is all there is to change.
    fn drop_orphans(&self, state: &mut State) {
        let State { entries, leases, .. } = state;
        let before = entries.len();
        entries.retain(|_, stored| stored.lease.is_none_or(|lease| leases.contains_key(&lease)));
        if entries.len() < before {
            state.revision += 1;
            self.revision.send_replace(state.revision);
        }
    }

    /// Makes a change durable, and only then visible.
    fn commit(&self, state: &mut State, changed: State) -> Result<Change> {
        if let Some(place) = &self.place
            && let Err((error, known)) = place.save(&changed)
        {
            let failed = Error::io(format!("cannot save the registry in {}", place.folder.display()), &error);
            if known {
                return Err(failed);
            }
            let closed = Error::Closed(format!("the registry is closed, because of this: {failed}"));
            state.closed = Some(closed.clone());
            return Err(closed);
        }
        *state = changed;
        self.revision.send_replace(state.revision);
        Ok(Change::Done(state.revision))
    }
}

/// The content of a registry's file; nothing if there is none.
fn read_image(disk: &dyn Disk, path: &Path) -> Result<Option<Image>> {
    let failed = |error: &io::Error| Error::io(format!("cannot open {}", path.display()), error);
    let file = match disk.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let length = file.length().map_err(|error| failed(&error))? as usize;
    if length > REGISTRY_BYTES_MAX {
        return Err(Error::Corrupt(format!("{}: {length} bytes, over the limit", path.display())));
    }
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0).map_err(|error| failed(&error))?;
    bytes.truncate(read);
    image::decode(&bytes.into())
        .map(Some)
        .map_err(|(at, why)| Error::Corrupt(format!("{} at byte {at}: {why}", path.display())))
}

/// What a registry's file holds.
pub fn inspect(disk: &dyn Disk, path: &Path) -> Result<Listing> {
    let image = read_image(disk, path)?;
    let image = image.ok_or_else(|| Error::Invalid(format!("there is no file {}", path.display())))?;
    Ok(Listing { revision: image.revision, entries: image.entries.into_iter().collect() })
}

impl Place {
    /// Writes the whole image beside the old one and puts it in its place. On an error, says whether the old one is known to be
    /// there still.
    fn save(&self, state: &State) -> Result<(), (io::Error, bool)> {
        // A lease ends with the process, and so does what was put under it.
        let lasting = state.entries.iter().filter(|(_, stored)| stored.lease.is_none());
        let bytes = image::encode(state.revision, lasting.map(|(name, stored)| (&**name, &stored.current)));
        let next = self.folder.join(NEXT);
        let write = || {
            let file = self.disk.create(&next)?;
            file.write_at(&bytes, 0)?;
            file.sync()
        };
        write().map_err(|error| (error, true))?;
        self.disk.rename(&next, &self.folder.join(FILE)).map_err(|error| (error, true))?;
        self.disk.sync_folder(&self.folder).map_err(|error| (error, false))
    }
}

impl State {
    fn conflict(&self, name: &str, expected: Expected) -> Option<Change> {
        let current = self.entries.get(name).map(|stored| &stored.current);
        let fits = match expected {
            Expected::Anything => true,
            Expected::Absent => current.is_none(),
            Expected::Version(version) => current.is_some_and(|current| current.version == version),
        };
        (!fits).then(|| Change::Conflict(current.cloned()))
    }
}

#[async_trait]
impl Registry for EmbeddedRegistry {
    async fn get(&self, name: &str) -> Result<Option<Versioned>> {
        check_name(name)?;
        Ok(self.lock()?.entries.get(name).map(|stored| stored.current.clone()))
    }

    async fn list(&self, prefix: &str) -> Result<Listing> {
        let state = self.lock()?;
        let from = state.entries.range(prefix.to_owned()..).take_while(|(name, _)| name.starts_with(prefix));
        let entries = from.map(|(name, stored)| (name.clone(), stored.current.clone())).collect();
        Ok(Listing { revision: state.revision, entries })
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change> {
        check_name(name)?;
        check_value(&value)?;
        let mut state = self.lock()?;
        if let Some(lease) = lease.filter(|lease| !state.leases.contains_key(lease)) {
            return Err(Error::Invalid(format!("lease {} has ended", lease.0)));
        }
        if let Some(conflict) = state.conflict(name, expected) {
            return Ok(conflict);
        }
        let mut changed = state.clone();
        changed.revision += 1;
        let current = Versioned { value, version: changed.revision };
        changed.entries.insert(name.to_owned(), Stored { current, lease });
        if changed.entries.len() > REGISTRY_NAMES_MAX {
            return Err(Error::Invalid(format!("the registry has its {REGISTRY_NAMES_MAX} names")));
        }
        self.commit(&mut state, changed)
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change> {
        check_name(name)?;
        let mut state = self.lock()?;
        if let Some(conflict) = state.conflict(name, expected) {
            return Ok(conflict);
        }
        let mut changed = state.clone();
        if changed.entries.remove(name).is_none() {
            return Ok(Change::Done(state.revision));
        }
        changed.revision += 1;
        self.commit(&mut state, changed)
    }

    async fn changed(&self, _prefix: &str, after: u64) -> Result<()> {
        let mut revision = self.revision.subscribe();
        let newer = revision.wait_for(|revision| *revision > after).await;
        newer.map(drop).map_err(|_| Error::Closed("the registry was closed".into()))
    }

    async fn grant(&self, time: Duration) -> Result<Lease> {
        let mut state = self.lock()?;
        state.last_lease += 1;
        let lease = Lease(state.last_lease);
        let ends = self.clock.now() + time;
        state.leases.insert(lease, Term { time, ends });
        Ok(lease)
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool> {
        let now = self.clock.now();
        let mut state = self.lock()?;
        let Some(term) = state.leases.get_mut(&lease) else { return Ok(false) };
        term.ends = now + term.time;
        Ok(true)
    }

    async fn revoke(&self, lease: Lease) -> Result<()> {
        let mut state = self.lock()?;
        state.leases.remove(&lease);
        self.drop_orphans(&mut state);
        Ok(())
    }
}
