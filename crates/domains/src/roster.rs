//! Which domains there are, as the registry has it.
//!
//! ```text
//!  domains/known/north   where it is and what it publishes     stays until the domain leaves
//!  domains/alive/north   who runs it                           under a lease: gone when nobody keeps it alive
//! ```
//!
//! The two are apart because a domain that cannot be reached is still a domain: lookups have to say that nothing is known of it. Only one that
//! has left is passed over.

mod announced;
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use umbel_core::registry::{Expected, Registry};

use crate::{Catalog, Domain, Error, Result};
pub use announced::{Announced, Published};
pub use place::Place;

const PREFIX: &str = "domains/";
const KNOWN: &str = "domains/known/";
const ALIVE: &str = "domains/alive/";

/// The least pause between two looks: a registry may say again and again that something might have changed.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// What happened to a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is there; it may be that nobody runs it, of which another event tells.
    Joined(Announced),
    /// It is elsewhere, or publishes something else.
    Changed(Announced),
    /// Nobody runs it any more. What is known of it gets old.
    Lost(String),
    /// Somebody runs it again.
    Returned(String),
    /// It is no domain any more.
    Left(String),
}

/// All domains, as they were when it was last looked at them.
#[derive(Debug)]
pub struct Roster {
    registry: Arc<dyn Registry>,
    every: Duration,
    /// The revision of the last listing; none if there was none.
    revision: Option<u64>,
    domains: BTreeMap<String, Seen>,
}

/// A domain, and whether somebody runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    announced: Announced,
    is_alive: bool,
}

impl Roster {
    /// The domains of a registry, looked at so often even if nobody says that something has changed: some registries notice late that a
    /// lease has ended.
    pub fn new(registry: Arc<dyn Registry>, every: Duration) -> Self {
        Self { registry, every: every.max(PAUSE_MIN), revision: None, domains: BTreeMap::new() }
    }

    /// The domains, and whether somebody runs them.
    pub fn domains(&self) -> impl Iterator<Item = (&Announced, bool)> {
        self.domains.values().map(|seen| (&seen.announced, seen.is_alive))
    }

    /// Waits until something has happened. After an error it may be called again: whatever happened meanwhile is told then, because it is
    /// found out by comparing what there is with what there was.
    pub async fn next(&mut self) -> Result<Vec<Event>> {
        loop {
            if let Some(revision) = self.revision {
                // Nothing for so long is as good as a hint.
                if let Ok(hint) = timeout(self.every, self.registry.changed(PREFIX, revision)).await {
                    hint?;
                }
            }
            let events = self.look().await?;
            if !events.is_empty() {
                return Ok(events);
            }
            sleep(PAUSE_MIN).await;
        }
    }

    /// What has happened since the last time, without waiting for it.
    pub async fn look(&mut self) -> Result<Vec<Event>> {
        let listing = self.registry.list(PREFIX).await?;
        let alive: BTreeSet<&str> =
            listing.entries.iter().filter_map(|(key, _)| key.strip_prefix(ALIVE)).collect();
        let mut now = BTreeMap::new();
        for (key, versioned) in &listing.entries {
            let Some(name) = key.strip_prefix(KNOWN) else { continue };
            let is_alive = alive.contains(name);
            let announced = match Announced::decode(name, &versioned.value) {
                Ok(announced) => announced,
                // One that cannot be read is still there: as it was, if that is known.
                Err(_) => match self.domains.get(name) {
                    Some(before) => before.announced.clone(),
                    None => Announced::unreadable(name),
                },
            };
            now.insert(name.to_owned(), Seen { announced, is_alive });
        }
        let events = differences(&self.domains, &now);
        (self.domains, self.revision) = (now, Some(listing.revision));
        Ok(events)
    }
}

/// A domain is none any more, and its own process cannot say so: others pass it over. Whether there was one; one that somebody runs is
/// not forgotten.
pub async fn forget(registry: &dyn Registry, name: &str) -> Result<bool> {
    if registry.get(&format!("{ALIVE}{name}")).await?.is_some() {
        return Err(Error::Invalid(format!("somebody runs the domain {name}; end it first")));
    }
    let Some(known) = registry.get(&format!("{KNOWN}{name}")).await? else { return Ok(false) };
    // Somebody may have come back in between, and says so again.
    registry.delete(&format!("{KNOWN}{name}"), Expected::Version(known.version)).await?;
    Ok(true)
}

impl Catalog {
    /// Lets an event change which domains are asked; `open` says in which ways. The local domain is in the roster too, and stays as it is. So
    /// does one that nobody runs any more: what is known of it gets old, and says so.
    pub fn follow(&self, event: &Event, open: impl FnOnce(&Announced) -> Result<Domain>) -> Result<()> {
        match event {
            Event::Joined(announced) | Event::Changed(announced) if announced.name != self.local() => {
                self.join(open(announced)?)
            }
            Event::Left(name) => {
                self.leave(name);
                Ok(())
            }
            Event::Joined(_) | Event::Changed(_) | Event::Lost(_) | Event::Returned(_) => Ok(()),
        }
    }
}

/// What happened between two listings.
fn differences(before: &BTreeMap<String, Seen>, now: &BTreeMap<String, Seen>) -> Vec<Event> {
    let left = before.keys().filter(|name| !now.contains_key(*name)).cloned().map(Event::Left);
    let mut events: Vec<Event> = left.collect();
    for (name, seen) in now {
        let was_alive = match before.get(name) {
            None => {
                events.push(Event::Joined(seen.announced.clone()));
                true
            }
            Some(was) => {
                if was.announced != seen.announced {
                    events.push(Event::Changed(seen.announced.clone()));
                }
                was.is_alive
            }
        };
        match (was_alive, seen.is_alive) {
            (true, false) => events.push(Event::Lost(name.clone())),
            (false, true) => events.push(Event::Returned(name.clone())),
            _ => {}
        }
    }
    events
}
