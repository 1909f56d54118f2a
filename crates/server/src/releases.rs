//! Versions as the doors offer them: when one is made, which one is current, which ones stay.
//!
//! ```text
//!  kept:  5 (pinned before)   7 (pinned: current)   12  13  14  15  16  17  18  19 (newest)
//! ```
//!
//! A version that is pinned is current until another one is, or none; that is the way back after a bad release. If none is pinned, the
//! newest one is current. The version that strong replicas answer from is a value of its own: a pin leaves it, and it leaves the pin.
//! Nodes of a cluster agree on all of that with the versions themselves, in the engine's list of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use umbel_core::engine::{Current, Engine, Handle, Pin, Published, Token};
use umbel_core::registry::{Change, Expected, Registry};
use umbel_core::version::Version;
use umbel_core::{Error, Result};

use crate::node::{Node, unix_time};
use crate::sync::rollout;

/// Where pins are in the registry, by the number of the filter.
const FOLDER: &str = "current/";
/// How often a pin is tried that somebody else changes meanwhile.
const ATTEMPTS: usize = 16;
/// Filters of which it is remembered when their versions were made.
const RECENT_MAX: usize = 10_000;

fn entry(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

fn now_ms() -> u64 {
    unix_time().as_millis() as u64
}

/// Which versions of a filter replicas answer from, as it stands in the registry.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: Option<u64>,
    previous: Option<u64>,
    #[serde(default)]
    strong: Option<u64>,
}

/// How new a version has to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// It was made, or found to be the same as the filter, at most so long ago.
    pub(crate) max_age_ms: Option<u64>,
    /// It has all that this token has seen.
    pub(crate) at_least: Option<Token>,
}

impl Wanted {
    /// Whether the newest version will do, however old it is.
    pub(crate) fn is_anything(&self) -> bool {
        self.max_age_ms.is_none() && self.at_least.is_none()
    }
}

/// Which versions there are, and which counts.
#[derive(Debug)]
pub(crate) struct Releases {
    registry: Arc<dyn Registry>,
    /// The engine, if it is that of a node of a cluster.
    nodes: Option<Arc<Engine>>,
    /// Whoever wants a version that is being made waits for it and makes none.
    making: Mutex<()>,
    /// No version is removed while it is being pinned.
    keeping: Mutex<()>,
    /// What happened to filters lately.
    recent: std::sync::Mutex<HashMap<u64, Recent>>,
}

#[derive(Debug, Default)]
struct Recent {
    /// The version that the filter was last as, and when: by a clock that nobody sets, or an old version would be new for as long as the
    /// clock on the wall is behind. After a restart nothing is known, and the filter is compared with its newest version first.
    confirmed: Option<(u64, Instant)>,
    /// Versions, with the times when they were made, in milliseconds since 1970.
    made: Vec<(u64, u64)>,
}

impl Releases {
    pub(crate) fn new(registry: Arc<dyn Registry>) -> Self {
        Self {
            registry,
            nodes: None,
            making: Mutex::default(),
            keeping: Mutex::default(),
            recent: std::sync::Mutex::default(),
        }
    }

    /// The same with another registry.
    pub(crate) fn in_registry(self, registry: Arc<dyn Registry>) -> Self {
        Self { registry, ..self }
    }

    /// The same for a node of a cluster.
    pub(crate) fn in_cluster(self, engine: Arc<Engine>) -> Self {
        Self { nodes: Some(engine), ..self }
    }

    fn recent(&self) -> MutexGuard<'_, HashMap<u64, Recent>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a filter was as a version is.
    fn confirm(&self, published: &Published, at: Instant) {
        let mut recent = self.recent();
        if recent.len() >= RECENT_MAX {
            // Then some filters are looked at once more than needed, and some versions go early.
            recent.clear();
        }
        let recent = recent.entry(published.version.filter).or_default();
        recent.confirmed = Some((published.version.number, at));
        if published.is_new {
            recent.made.push((published.version.number, published.version.made_ms));
        }
    }

    /// Versions that were made after a time.
    fn made_since(&self, filter: u64, time_ms: u64) -> Vec<u64> {
        let mut recent = self.recent();
        let Some(recent) = recent.get_mut(&filter) else { return Vec::new() };
        recent.made.retain(|(_, made_ms)| *made_ms > time_ms);
        recent.made.iter().map(|(number, _)| *number).collect()
    }

    fn is_enough(&self, newest: &Version, wanted: &Wanted) -> bool {
        let confirmed = self.recent().get(&newest.filter).and_then(|recent| recent.confirmed);
        // Another one may have been made since this one was looked up.
        let as_of = confirmed.and_then(|(number, at)| (number == newest.number).then_some(at));
        let is_new = |most| as_of.is_some_and(|at| at.elapsed() <= Duration::from_millis(most));
        wanted.max_age_ms.is_none_or(is_new)
            && wanted.at_least.as_ref().is_none_or(|token| newest.includes(token))
    }

    /// The newest version if it has everything that a token has seen, or a new one; without a token, the filter as it is now.
    pub(crate) async fn publish(
        &self,
        node: &Node,
        filter: &Arc<Handle>,
        at_least: Option<&Token>,
    ) -> Result<Version> {
        if let Some(token) = at_least {
            let wanted = Wanted { max_age_ms: None, at_least: Some(token.clone()) };
            if let Some(version) = self.newest(node, filter, &wanted).await? {
                return Ok(version);
            }
        }
        Ok(self.make(node, filter, at_least).await?.version)
    }

    /// A version of a filter as it is now, with all that a token has seen. Versions that are one too many then go.
    pub(crate) async fn make(
        &self,
        node: &Node,
        filter: &Arc<Handle>,
        at_least: Option<&Token>,
    ) -> Result<Published> {
        let begun = Instant::now();
        let published = node.engine.publish_at_least(filter, at_least).await?;
        self.confirm(&published, begun);
        if published.is_new
            && let Err(error) = self.retain(node, filter.id()).await
        {
            // The version is there; what is too old goes with a later one.
            tracing::warn!(%error, filter = filter.definition().name, "old versions were not removed");
        }
        Ok(published)
    }

    /// The newest version. It is made first, if it has to be newer than it is; none if there is none and any would do.
    pub(crate) async fn newest(
        &self,
        node: &Node,
        filter: &Arc<Handle>,
        wanted: &Wanted,
    ) -> Result<Option<Version>> {
        let is_enough = |found: &Option<Version>| match found {
            Some(newest) => self.is_enough(newest, wanted),
            None => wanted.is_anything(),
        };
        let found = last(node, filter.id()).await?;
        if is_enough(&found) {
            return Ok(found);
        }
        let _making = self.making.lock().await;
        // Somebody else may have made it meanwhile.
        let found = last(node, filter.id()).await?;
        if is_enough(&found) {
            return Ok(found);
        }
        Ok(Some(self.make(node, filter, wanted.at_least.as_ref()).await?.version))
    }

    /// Which versions replicas are to answer from.
    pub(crate) async fn current(&self, filter: u64) -> Result<Current> {
        match &self.nodes {
            Some(engine) => engine.current_version(filter).await,
            None => Ok(self.look_up(filter).await?.0),
        }
    }

    /// The version that is pinned, if one is.
    pub(crate) async fn pinned(&self, filter: u64) -> Result<Option<u64>> {
        Ok(self.current(filter).await?.version)
    }

    async fn look_up(&self, filter: u64) -> Result<(Current, Expected)> {
        let Some(found) = self.registry.get(&entry(filter)).await? else {
            return Ok((Current::default(), Expected::Absent));
        };
        let damaged = |error| Error::Corrupt(format!("{} in the registry: {error}", entry(filter)));
        let Stored { version, previous, strong } = serde_json::from_slice(&found.value).map_err(damaged)?;
        Ok((Current { version, previous, strong }, Expected::Version(found.version)))
    }

    /// Pins a version if another one, or none, is pinned as expected; otherwise gives what is. It is pinned for replicas by the one who looks
    /// after them, unless somebody else does by now.
    pub(crate) async fn pin(
        &self,
        node: &Node,
        filter: u64,
        number: u64,
        expected: Option<u64>,
        guard: Option<u64>,
    ) -> Result<Result<(), Option<u64>>> {
        match self.change(node, filter, Some(number), Some(expected), guard).await? {
            Pin::Done(_) => Ok(Ok(())),
            Pin::Conflict(current) => Ok(Err(current.version)),
            Pin::NoVersion => Err(Error::Invalid(format!("there is no version {number}"))),
        }
    }

    /// Pins a version, or none, if what is pinned is as expected, or nobody expects anything.
    pub(crate) async fn set(
        &self,
        node: &Node,
        filter: u64,
        version: Option<u64>,
        expected: Option<Option<u64>>,
    ) -> Result<Pin> {
        self.change(node, filter, version, expected, None).await
    }

    /// Sets the version that strong replicas answer from, if it is as expected. The node that looks after replicas has the guard.
    pub(crate) async fn switch(
        &self,
        node: &Node,
        filter: u64,
        version: u64,
        expected: Option<u64>,
        guard: Option<u64>,
    ) -> Result<Pin> {
        if let Some(engine) = &self.nodes {
            let guard = guard.ok_or_else(|| Error::Retry("this node does not look after replicas".into()))?;
            return engine.switch_version(filter, version, expected, guard).await;
        }
        let change = |current: Current| {
            (current.strong == expected).then_some(Current { strong: Some(version), ..current })
        };
        self.change_here(node, filter, Some(version), change).await
    }

    async fn change(
        &self,
        node: &Node,
        filter: u64,
        version: Option<u64>,
        expected: Option<Option<u64>>,
        guard: Option<u64>,
    ) -> Result<Pin> {
        if let Some(engine) = &self.nodes {
            return engine.pin_version(filter, version, expected, guard).await;
        }
        let change = |current: Current| {
            if expected.is_some_and(|expected| expected != current.version) {
                return None;
            }
            if current.version == version {
                return Some(current);
            }
            let previous = current.version.or(current.previous);
            Some(Current { version, previous, ..current })
        };
        self.change_here(node, filter, version, change).await
    }

    /// Changes the record of a server by itself, unless `change` refuses what it finds. `version` has to be there.
    async fn change_here(
        &self,
        node: &Node,
        filter: u64,
        version: Option<u64>,
        change: impl Fn(Current) -> Option<Current>,
    ) -> Result<Pin> {
        let _keeping = self.keeping.lock().await;
        if let Some(version) = version
            && !node.engine.versions(filter).await?.contains(&version)
        {
            return Ok(Pin::NoVersion);
        }
        self.forget_gone(node).await?;
        for _ in 0..ATTEMPTS {
            let (current, unchanged) = self.look_up(filter).await?;
            let Some(next) = change(current) else { return Ok(Pin::Conflict(current)) };
            if next == current {
                return Ok(Pin::Done(current));
            }
            let Current { version, previous, strong } = next;
            let stored = Stored { version, previous, strong };
            let value = serde_json::to_vec(&stored).map_err(|error| Error::Invalid(error.to_string()))?;
            match self.registry.put(&entry(filter), value.into(), unchanged, None).await? {
                Change::Done(_) => return Ok(Pin::Done(next)),
                Change::Conflict(_) => {}
            }
        }
        Err(Error::Retry("others pin versions of this filter all the time".to_owned()))
    }

    /// Whoever pins makes the registry longer, and takes out what filters left that are gone.
    async fn forget_gone(&self, node: &Node) -> Result<()> {
        let there: HashSet<String> = node.engine.filters().iter().map(|filter| entry(filter.id())).collect();
        for (name, found) in self.registry.list(FOLDER).await?.entries {
            if !there.contains(&name) {
                self.registry.delete(&name, Expected::Version(found.version)).await?;
            }
        }
        Ok(())
    }

    /// Keeps the newest versions, and those that somebody needs: pinned, pinned before, on their way to replicas.
    async fn retain(&self, node: &Node, filter: u64) -> Result<()> {
        let _keeping = self.keeping.lock().await;
        let config = node.config.load();
        let newest = node.engine.versions(filter).await?;
        let surplus = newest.len().saturating_sub(config.versions_kept as usize);
        let mut kept = newest[surplus..].to_vec();
        let current = self.current(filter).await?;
        kept.extend(current.version.into_iter().chain(current.previous).chain(current.strong));
        kept.extend(node.sync.strong.staged(filter));
        kept.extend(rollout::needs(node, filter).await?);
        let kept_for_ms = config.versions_kept_for.as_millis() as u64;
        let young = now_ms().saturating_sub(kept_for_ms);
        kept.extend(match &self.nodes {
            // Whichever node made them.
            Some(engine) => engine.versions_since(filter, young).await?,
            None => self.made_since(filter, young),
        });
        node.engine.keep_versions(filter, &kept).await?;
        Ok(())
    }
}

async fn last(node: &Node, filter: u64) -> Result<Option<Version>> {
    match node.engine.versions(filter).await?.last() {
        Some(number) => version(node, filter, *number).await,
        None => Ok(None),
    }
}

/// A version; none if there is none of that number.
pub(crate) async fn version(node: &Node, filter: u64, number: u64) -> Result<Option<Version>> {
    let is_there = async || Ok::<_, Error>(node.engine.versions(filter).await?.contains(&number));
    if !is_there().await? {
        return Ok(None);
    }
    match node.engine.version(filter, number).await {
        Ok(version) => Ok(Some(version)),
        // It may have been removed since.
        Err(error) => {
            if is_there().await? {
                Err(error)
            } else {
                Ok(None)
            }
        }
    }
}
