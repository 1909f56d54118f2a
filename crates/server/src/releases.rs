//! Versions as they are given out: made when they are needed, and which of them is the current one.

use std::sync::Arc;

use umbel_core::Result;
use umbel_core::engine::{Engine, Handle, Token};
use umbel_core::registry::{Change, Expected, Registry};
use umbel_core::version::Version;

/// Which versions there are, and which counts.
#[derive(Debug)]
pub(crate) struct Releases {
    registry: Arc<dyn Registry>,
}

impl Releases {
    pub(crate) fn new(registry: Arc<dyn Registry>) -> Self {
        Self { registry }
    }

    /// The newest version if it has everything up to a place, or a new one.
    pub(crate) async fn publish(
        &self,
        engine: &Engine,
        filter: &Arc<Handle>,
        at_least: Option<&Token>,
    ) -> Result<Version> {
        if let (Some(wanted), Some(newest)) = (at_least, engine.versions(filter.id()).await?.last()) {
            let newest = engine.version(filter.id(), *newest).await?;
            if newest.token().includes(wanted) {
                return Ok(newest);
            }
        }
        engine.publish(filter).await
    }

    /// The version that was pinned, if one was.
    pub(crate) async fn pinned(&self, filter: u64) -> Result<Option<u64>> {
        let found = self.registry.get(&name(filter)).await?;
        Ok(found.and_then(|found| std::str::from_utf8(&found.value).ok()?.parse().ok()))
    }

    /// Pins a version if another one, or none, is pinned as expected; otherwise gives what is.
    pub(crate) async fn pin(
        &self,
        filter: u64,
        number: u64,
        expected: Option<u64>,
    ) -> Result<Result<(), Option<u64>>> {
        let found = self.registry.get(&name(filter)).await?;
        let now = found.as_ref().and_then(|found| std::str::from_utf8(&found.value).ok()?.parse().ok());
        if now != expected {
            return Ok(Err(now));
        }
        let expected = found.map_or(Expected::Absent, |found| Expected::Version(found.version));
        Ok(match self.registry.put(&name(filter), number.to_string().into(), expected, None).await? {
            Change::Done(_) => Ok(()),
            Change::Conflict(_) => Err(self.pinned(filter).await?),
        })
    }
}

fn name(filter: u64) -> String {
    format!("current/{filter:016x}")
}
