//! Versions as the doors offer them: when one is made, which one is current, which ones stay.
//!
//! ```text
//!  kept:  5 (pinned before)   7 (pinned: current)   12  13  14  15  16  17  18  19 (newest)
//! ```
//!
//! A version that is pinned is current until another one is, or none; that is the way back after a bad release. If none is pinned, the
//! newest one is current.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use umbel_core::engine::{Handle, Published, Token};
use umbel_core::registry::{Change, Expected};
use umbel_core::version::Version;
use umbel_core::{Error, Result};

use crate::node::{Node, unix_time};

/// Where pins are in the registry, by the number of the filter.
const FOLDER: &str = "current/";
/// How often a pin is tried that somebody else changes meanwhile.
const ATTEMPTS: usize = 16;
/// Filters of which it is remembered when they were last as their newest version.
const CONFIRMED_MAX: usize = 10_000;

fn entry(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

fn now_ms() -> u64 {
    unix_time().as_millis() as u64
}

/// Which version of a filter is current, as it stands in the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Current {
    /// The version that is pinned; if none is, the newest one is current.
    pub(crate) version: Option<u64>,
    /// The one that was pinned before: it stays for whoever wants to go back to it.
    pub(crate) previous: Option<u64>,
}

/// How new a version has to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// It was made, or found to be the same as the filter, at most so long ago.
    pub(crate) max_age_ms: Option<u64>,
    /// It has all that this token has seen.
    pub(crate) at_least: Option<Token>,
}

/// What came of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// It is so now.
    Done(Current),
    /// It was not as expected, but like this.
    Conflict(Current),
    /// There is no such version.
    NoVersion,
}

/// Who makes versions, and who removes them.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// Whoever wants a version that is being made waits for it and makes none.
    making: Mutex<()>,
    /// No version is removed while it is being pinned.
    keeping: Mutex<()>,
    /// When filters were last as their newest version, in milliseconds since 1970.
    confirmed: std::sync::Mutex<HashMap<u64, u64>>,
}

impl Releases {
    fn confirm(&self, filter: u64, at_ms: u64) {
        let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        if confirmed.len() >= CONFIRMED_MAX {
            // Then some filters are looked at once more than needed.
            confirmed.clear();
        }
        confirmed.insert(filter, at_ms);
    }

    fn confirmed(&self, filter: u64) -> u64 {
        let confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        confirmed.get(&filter).copied().unwrap_or_default()
    }

    fn is_enough(&self, newest: &Version, wanted: &Wanted) -> bool {
        let as_of = newest.made_ms.max(self.confirmed(newest.filter));
        wanted.max_age_ms.is_none_or(|most| now_ms().saturating_sub(as_of) <= most)
            && wanted.at_least.as_ref().is_none_or(|token| newest.includes(token))
    }
}

impl Wanted {
    fn is_anything(&self) -> bool {
        self.max_age_ms.is_none() && self.at_least.is_none()
    }
}

/// A version of a filter as it is now, with all that the token has seen. Versions that are one too many then go.
pub(crate) async fn publish(
    node: &Node,
    filter: &Arc<Handle>,
    at_least: Option<&Token>,
) -> Result<Published> {
    let begun_ms = now_ms();
    let published = node.engine.publish_at_least(filter, at_least).await?;
    node.releases.confirm(filter.id(), begun_ms);
    if published.is_new
        && let Err(error) = retain(node, filter.id()).await
    {
        // The version is there; what is too old goes with a later one.
        tracing::warn!(%error, filter = filter.id(), "old versions were not removed");
    }
    Ok(published)
}

/// The newest version. It is made first, if it has to be newer than it is; none if there is none and any would do.
pub(crate) async fn newest(node: &Node, filter: &Arc<Handle>, wanted: &Wanted) -> Result<Option<Version>> {
    let found = last(node, filter.id()).await?;
    let is_enough = |found: &Option<Version>| match found {
        Some(newest) => node.releases.is_enough(newest, wanted),
        None => wanted.is_anything(),
    };
    if is_enough(&found) {
        return Ok(found);
    }
    let _making = node.releases.making.lock().await;
    // Somebody else may have made it meanwhile.
    let found = last(node, filter.id()).await?;
    if is_enough(&found) {
        return Ok(found);
    }
    Ok(Some(publish(node, filter, wanted.at_least.as_ref()).await?.version))
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

/// Which version is pinned.
pub(crate) async fn current(node: &Node, filter: u64) -> Result<Current> {
    Ok(look_up(node, filter).await?.0)
}

async fn look_up(node: &Node, filter: u64) -> Result<(Current, Expected)> {
    let Some(found) = node.registry.get(&entry(filter)).await? else {
        return Ok((Current::default(), Expected::Absent));
    };
    let damaged = |error| Error::Corrupt(format!("{} in the registry: {error}", entry(filter)));
    let current = serde_json::from_slice(&found.value).map_err(damaged)?;
    Ok((current, Expected::Version(found.version)))
}

/// Pins a version, or none, if what is pinned is as expected.
pub(crate) async fn pin(
    node: &Node,
    filter: u64,
    version: Option<u64>,
    expected: Option<Option<u64>>,
) -> Result<Pin> {
    let _keeping = node.releases.keeping.lock().await;
    if let Some(version) = version
        && !node.engine.versions(filter).await?.contains(&version)
    {
        return Ok(Pin::NoVersion);
    }
    forget_gone(node).await?;
    for _ in 0..ATTEMPTS {
        let (current, unchanged) = look_up(node, filter).await?;
        if expected.is_some_and(|expected| expected != current.version) {
            return Ok(Pin::Conflict(current));
        }
        if current.version == version {
            return Ok(Pin::Done(current));
        }
        let next = Current { version, previous: current.version.or(current.previous) };
        let value = serde_json::to_vec(&next).map_err(|error| Error::Invalid(error.to_string()))?;
        match node.registry.put(&entry(filter), value.into(), unchanged, None).await? {
            Change::Done(_) => return Ok(Pin::Done(next)),
            Change::Conflict(_) => {}
        }
    }
    Err(Error::Retry("others pin versions of this filter all the time".to_owned()))
}

/// Whoever pins makes the registry longer, and takes out what filters left that are gone.
async fn forget_gone(node: &Node) -> Result<()> {
    let there: HashSet<String> = node.engine.filters().iter().map(|filter| entry(filter.id())).collect();
    for (name, found) in node.registry.list(FOLDER).await?.entries {
        if !there.contains(&name) {
            node.registry.delete(&name, Expected::Version(found.version)).await?;
        }
    }
    Ok(())
}

/// Keeps the newest versions, the one that is pinned and the one before it.
async fn retain(node: &Node, filter: u64) -> Result<()> {
    let _keeping = node.releases.keeping.lock().await;
    let current = current(node, filter).await?;
    let newest = node.engine.versions(filter).await?;
    let surplus = newest.len().saturating_sub(node.config.load().versions_kept as usize);
    let mut kept = newest[surplus..].to_vec();
    kept.extend(current.version.into_iter().chain(current.previous));
    node.engine.keep_versions(filter, &kept).await?;
    Ok(())
}
