//! Schedules: filters that are built anew and published at set times, which resets their error rate.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use croner::Cron;
use serde::{Deserialize, Serialize};
use umbel_core::engine::Handle;
use umbel_core::registry::{Change, Expected, Versioned};
use umbel_core::{Error, Result};

use super::notices::{Event, Notice};
use super::{Trouble, now_ms};
use crate::node::Node;
use crate::work::beside;

const FOLDER: &str = "schedules/";
const TEXT_BYTES_MAX: usize = 128;

/// When a filter is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    /// Five fields, in UTC.
    pub(crate) cron: String,
    pub(crate) next_ms: u64,
    /// When it was last done, and why not if it was not.
    pub(crate) last_ms: Option<u64>,
    pub(crate) failed: Option<String>,
}

impl Schedule {
    /// A schedule, from a time on.
    fn new(cron: &str, now_ms: u64) -> Result<Self> {
        let next_ms = next(cron, now_ms)?;
        Ok(Self { cron: cron.to_owned(), next_ms, last_ms: None, failed: None })
    }
}

/// The first time after another one.
fn next(cron: &str, after_ms: u64) -> Result<u64> {
    let invalid = |why: String| Error::Invalid(format!("the schedule {}: {why}", cron.escape_debug()));
    if cron.len() > TEXT_BYTES_MAX {
        return Err(invalid(format!("longer than {TEXT_BYTES_MAX} bytes")));
    }
    let parsed: Cron = cron.parse().map_err(|error| invalid(format!("{error}")))?;
    let after = i64::try_from(after_ms).ok().and_then(DateTime::<Utc>::from_timestamp_millis);
    let after = after.ok_or_else(|| invalid("no time comes after the last one".into()))?;
    let next = parsed.find_next_occurrence(&after, false).map_err(|error| invalid(format!("{error}")))?;
    u64::try_from(next.timestamp_millis()).map_err(|error| invalid(error.to_string()))
}

fn name(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

fn parse(found: &Versioned) -> Result<Schedule> {
    serde_json::from_slice(&found.value)
        .map_err(|error| Error::Corrupt(format!("a schedule in the registry: {error}")))
}

async fn write(node: &Node, name: &str, schedule: &Schedule, expected: Expected) -> Result<bool> {
    let value = serde_json::to_vec(schedule).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(matches!(node.registry.put(name, value.into(), expected, None).await?, Change::Done(_)))
}

/// Sets when a filter is rebuilt.
pub(crate) async fn set(node: &Node, filter: &Handle, cron: &str) -> Result<Schedule, Trouble> {
    if !filter.definition().retain {
        let why = "its keys are not kept: it cannot be built anew from them";
        return Err(Trouble::Conflict(format!("the filter {}: {why}", filter.definition().name)));
    }
    let schedule = Schedule::new(cron, now_ms())?;
    write(node, &name(filter.id()), &schedule, Expected::Anything).await?;
    Ok(schedule)
}

pub(crate) async fn get(node: &Node, filter: u64) -> Result<Option<Schedule>> {
    node.registry.get(&name(filter)).await?.as_ref().map(parse).transpose()
}

pub(crate) async fn remove(node: &Node, filter: u64) -> Result<()> {
    node.registry.delete(&name(filter), Expected::Anything).await?;
    Ok(())
}

/// Rebuilds what is due. Of several who look, one changes the schedule and does it.
pub(crate) async fn look(node: &Arc<Node>) -> Result<()> {
    for (name, found) in node.registry.list(FOLDER).await?.entries {
        let schedule = parse(&found)?;
        if schedule.next_ms > now_ms() {
            continue;
        }
        let id = u64::from_str_radix(name.trim_start_matches(FOLDER), 16).unwrap_or(0);
        let filter = node.engine.filters().into_iter().find(|filter| filter.id() == id);
        let Some(filter) = filter else {
            // It went with its filter.
            node.registry.delete(&name, Expected::Version(found.version)).await?;
            continue;
        };
        // If the time was missed while nobody was there, it is done once.
        let next_ms = next(&schedule.cron, now_ms())?;
        let begun = Schedule { next_ms, last_ms: Some(now_ms()), failed: None, ..schedule };
        if write(node, &name, &begun, Expected::Version(found.version)).await? {
            tokio::spawn(rebuild(Arc::clone(node), filter, name, begun));
        }
    }
    Ok(())
}

async fn rebuild(node: Arc<Node>, filter: Arc<Handle>, name: String, begun: Schedule) {
    let rebuilt = Arc::clone(&filter);
    let outcome = beside(&node, async move |node| {
        node.engine.rebuild(&rebuilt).await?;
        node.releases.publish(&node, &rebuilt, node.now_in_log().as_ref()).await
    });
    match outcome.await {
        Ok(version) => node.sync.notices.tell(Notice::of(&version, Event::Version, true)),
        Err(why) => {
            tracing::error!(filter = filter.definition().name, why = %why.0, "a filter was not rebuilt");
            let failed = Schedule { failed: Some(why.0.into_owned()), ..begun };
            // Somebody may have set another schedule meanwhile: then this is of no interest.
            if let Ok(Some(now)) = node.registry.get(&name).await
                && parse(&now).is_ok_and(|now| now.cron == failed.cron)
            {
                let _ = write(&node, &name, &failed, Expected::Version(now.version)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found() {
        const DAY: u64 = 86_400_000;
        assert_eq!(next("0 3 * * *", 0).unwrap(), 3 * 3_600_000);
        assert_eq!(next("0 3 * * *", 3 * 3_600_000).unwrap(), DAY + 3 * 3_600_000);
        // The first of January 1970 was a Thursday.
        assert_eq!(next("30 0 * * SUN", 0).unwrap(), 3 * DAY + 1_800_000);
        assert_eq!(next("30 0 * * 0", 0).unwrap(), 3 * DAY + 1_800_000);
        for bad in ["", "x", "61 * * * *", "* * * *", "0 0 31 2 *", &"1,".repeat(100)] {
            assert!(matches!(next(bad, 0), Err(Error::Invalid(_))), "{bad}");
        }
    }
}
