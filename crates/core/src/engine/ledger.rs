//! Which checkpoint of a slot is the newest, where several nodes make them.
//!
//! A node makes its next checkpoint from the newest one that it knows: blobs of that one are still needed or not, as it decides. If two
//! did so from the same one, each would remove what the other needs. So a checkpoint counts only when the registry says so, and the
//! registry is changed by compare-and-set: of two, one finds out that it is not the newest, removes nothing, and begins anew from what
//! the other made.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::registry::{Change, Expected, Registry, Versioned};
use crate::{Error, Result};

const FOLDER: &str = "checkpoints/"; // persisted, as what is in it

/// The newest checkpoints of all slots.
#[derive(Debug)]
pub(super) struct Ledger(Arc<dyn Registry>);

fn name(slot: u16) -> String {
    format!("{FOLDER}{slot:04}")
}

fn number(slot: u16, value: &Versioned) -> Result<u64> {
    let text = std::str::from_utf8(&value.value).ok();
    let damaged =
        || Error::Corrupt(format!("{} in the registry is not the number of a checkpoint", name(slot)));
    text.and_then(|text| text.parse().ok()).ok_or_else(damaged)
}

impl Ledger {
    pub(super) fn new(registry: Arc<dyn Registry>) -> Self {
        Self(registry)
    }

    /// The newest checkpoint of a slot, if there is one.
    pub(super) async fn newest(&self, slot: u16) -> Result<Option<u64>> {
        self.0.get(&name(slot)).await?.map(|value| number(slot, &value)).transpose()
    }

    /// The newest checkpoint of every slot that has one.
    pub(super) async fn all(&self) -> Result<HashMap<u16, u64>> {
        let listed = self.0.list(FOLDER).await?.entries.into_iter();
        let slot = |name: &str| name.strip_prefix(FOLDER)?.parse::<u16>().ok();
        let slots = listed.filter_map(|(name, value)| Some((slot(&name)?, value)));
        slots.map(|(slot, value)| Ok((slot, number(slot, &value)?))).collect()
    }

    /// Makes a checkpoint the newest, if the one that it was made from still is.
    pub(super) async fn commit(&self, slot: u16, before: u64, next: u64) -> Result<()> {
        let now = self.0.get(&name(slot)).await?;
        let newest = now.as_ref().map(|value| number(slot, value)).transpose()?;
        let moved = |newest: Option<u64>| {
            let newest = newest.unwrap_or(0);
            Error::Moved(format!(
                "checkpoint {next} of slot {slot} was made from {before}, and {newest} is the newest"
            ))
        };
        // Deployments whose registry was lost begin anew with what their blobs have.
        if newest.is_some_and(|newest| newest != before) {
            return Err(moved(newest));
        }
        let expected = now.map_or(Expected::Absent, |value| Expected::Version(value.version));
        match self.0.put(&name(slot), Bytes::from(next.to_string()), expected, None).await {
            Ok(Change::Done(_)) => Ok(()),
            Ok(Change::Conflict(other)) => Err(moved(other.map(|value| number(slot, &value)).transpose()?)),
            // It may have been done: the value tells.
            Err(error) => match self.newest(slot).await? {
                Some(newest) if newest == next => Ok(()),
                _ => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::registry::EmbeddedRegistry;

    #[tokio::test]
    async fn of_two_checkpoints_made_from_one_the_first_counts() {
        let registry = Arc::new(EmbeddedRegistry::in_memory(Arc::new(SystemClock::default())));
        let ledger = Ledger::new(registry);
        assert_eq!(ledger.newest(7).await.unwrap(), None);
        ledger.commit(7, 0, 1).await.unwrap();
        ledger.commit(7, 1, 3).await.unwrap();
        assert!(matches!(ledger.commit(7, 1, 4).await, Err(Error::Moved(_))));
        assert!(matches!(ledger.commit(7, 0, 4).await, Err(Error::Moved(_))));
        ledger.commit(9, 5, 6).await.unwrap();
        assert_eq!(ledger.all().await.unwrap(), HashMap::from([(7, 3), (9, 6)]));
    }
}
