//! Schedules: filters that are built anew and published at set times, which resets their error rate.
//!
//! A schedule is a value in the registry, and whoever changes it from "due" to "under way" does it, under a lock: so a filter is built once
//! for each time that is due, however many nodes look. If that one ends in the middle, so does its lock, and it is begun again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::Cron;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use umbel_core::engine::Handle;
use umbel_core::registry::{Change, Expected, Versioned};
use umbel_core::{Error, Result};

use super::locked::{HOLD_EVERY, Locked};
use super::notices::{Event, Notice};
use super::{Trouble, filter_of, now_ms, tell_all};
use crate::node::Node;
use crate::work::beside;

const FOLDER: &str = "schedules/";
const TEXT_BYTES_MAX: usize = 128;
/// How often it is begun for one time that is due: something in it may be what ends those who do it.
const BEGINNINGS_MAX: u32 = 3;
/// How long it waits if the registry does not take what came of it.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// When a filter is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    /// Five fields, in UTC.
    pub(crate) cron: String,
    pub(crate) next_ms: u64,
    /// When it was last done, and why not if it was not.
    pub(crate) last_ms: Option<u64>,
    pub(crate) failed: Option<String>,
    /// Who is at it, if somebody is.
    #[serde(default)]
    pub(crate) under_way: Option<UnderWay>,
}

/// A filter that is being built anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// The run of the server that does it.
    pub(crate) run: String,
    /// How often it was begun, this time included.
    pub(crate) beginnings: u32,
}

impl Schedule {
    /// A schedule, from a time on.
    fn new(cron: &str, now_ms: u64) -> Result<Self> {
        let next_ms = next(cron, now_ms)?;
        Ok(Self { cron: cron.to_owned(), next_ms, last_ms: None, failed: None, under_way: None })
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

impl Schedule {
    /// Whether there is something to begin for a server that has the lock. What it does itself is under way.
    fn is_due(&self, run: &str, now_ms: u64) -> bool {
        match &self.under_way {
            // If it takes longer than until the next time, that one is missed.
            Some(begun) => begun.run != run,
            None => self.next_ms <= now_ms,
        }
    }

    /// The schedule with a beginning. Nobody is at it; if somebody was, that one has ended.
    fn begun(&self, run: &str, now_ms: u64) -> Result<Self> {
        let begin = |beginnings| Some(UnderWay { run: run.to_owned(), beginnings });
        Ok(match &self.under_way {
            Some(UnderWay { beginnings, .. }) if *beginnings < BEGINNINGS_MAX => {
                Self { under_way: begin(beginnings + 1), ..self.clone() }
            }
            Some(UnderWay { beginnings, .. }) => {
                let why = format!("{beginnings} times, the server ended before it was done");
                Self { under_way: None, failed: Some(why), ..self.clone() }
            }
            // If times were missed while nobody was there, it is done once.
            None => Self {
                next_ms: next(&self.cron, now_ms)?,
                last_ms: Some(now_ms),
                failed: None,
                under_way: begin(1),
                ..self.clone()
            },
        })
    }
}

/// Rebuilds what is due, if this node is the one to do so.
pub(crate) async fn look(node: &Arc<Node>) -> Result<()> {
    if node.sync.steward.watch(node).is_err() {
        return Ok(());
    }
    for (name, found) in node.registry.list(FOLDER).await?.entries {
        let Some(filter) = filter_of(node, FOLDER, &name, &found).await? else { continue };
        let schedule = parse(&found)?;
        if !schedule.is_due(&node.run_id, now_ms()) {
            continue;
        }
        let Some(lock) = Locked::take(node, &format!("locks/rebuild/{:016x}", filter.id())).await? else {
            continue;
        };
        let begun = schedule.begun(&node.run_id, now_ms())?;
        // Whoever read it before somebody else began finds another value.
        let is_ours = write(node, &name, &begun, Expected::Version(found.version)).await?;
        if is_ours && begun.under_way.is_some() {
            tokio::spawn(rebuild(Arc::clone(node), filter, name, begun, lock));
        } else {
            lock.free().await?;
        }
    }
    Ok(())
}

async fn rebuild(node: Arc<Node>, filter: Arc<Handle>, name: String, begun: Schedule, mut lock: Locked) {
    let rebuilt = Arc::clone(&filter);
    let mut outcome = pin!(beside(&node, async move |node| {
        node.engine.rebuild(&rebuilt).await?;
        node.releases.publish(&node, &rebuilt, node.now_in_log().as_ref()).await
    }));
    let outcome = loop {
        tokio::select! {
            outcome = &mut outcome => break outcome,
            // If the lock is lost, others do it as well, which does no harm.
            () = sleep(HOLD_EVERY) => { let _ = lock.is_held().await; }
        }
    };
    let failed = match outcome {
        Ok(version) => {
            tell_all(&node, Notice::of(&version, Event::Version, true));
            None
        }
        Err(why) => {
            tracing::error!(filter = filter.definition().name, why = %why.0, "a filter was not rebuilt");
            Some(why.0.into_owned())
        }
    };
    while !node.stop.is_stopped() {
        match end(&node, &name, &begun, failed.as_deref()).await {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, filter = filter.definition().name, "a schedule is not written");
                sleep(AFTER_FAILURE).await;
            }
        }
    }
    if let Err(error) = lock.free().await {
        tracing::warn!(%error, filter = filter.definition().name, "a lock ends by itself");
    }
}

/// Notes that a rebuild has ended; false if that is to be tried again. Somebody may have set another schedule meanwhile, or have begun
/// anew: then this is of no interest.
async fn end(node: &Node, name: &str, begun: &Schedule, failed: Option<&str>) -> Result<bool> {
    let Some(found) = node.registry.get(name).await? else { return Ok(true) };
    let now = parse(&found)?;
    if now.under_way != begun.under_way || now.last_ms != begun.last_ms {
        return Ok(true);
    }
    let ended = Schedule { under_way: None, failed: failed.map(str::to_owned), ..now };
    write(node, name, &ended, Expected::Version(found.version)).await
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

    #[test]
    fn a_time_that_is_due_is_begun_once_and_again_if_that_one_ended() {
        let schedule = Schedule::new("0 3 * * *", 0).unwrap();
        let due_ms = schedule.next_ms;
        assert!(!schedule.is_due("a", due_ms - 1) && schedule.is_due("a", due_ms));
        let begun = schedule.begun("a", due_ms + 5).unwrap();
        assert_eq!((begun.last_ms, begun.next_ms), (Some(due_ms + 5), due_ms + 86_400_000));
        assert!(!begun.is_due("a", begun.next_ms), "it takes long");
        assert!(begun.is_due("b", due_ms + 10), "if nobody has the lock");
        let again = begun.begun("b", due_ms + 10).unwrap();
        assert_eq!(again.under_way, Some(UnderWay { run: "b".into(), beginnings: 2 }));
        assert_eq!((again.last_ms, again.next_ms), (begun.last_ms, begun.next_ms), "for the same time");
        let third = again.begun("c", due_ms + 20).unwrap();
        let given_up = third.begun("d", due_ms + 30).unwrap();
        assert_eq!(given_up.under_way, None);
        assert!(given_up.failed.is_some_and(|why| why.starts_with("3 times")));
    }
}
