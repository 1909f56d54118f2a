//! How filters fill and grow: what was observed of each, when it will be full, and which sizes it had.
//!
//! ```text
//!  engine: items, steps --look, every second--> records in memory --> registry: growth/<filter>
//!                                                     '--> UMBEL.GROWTH, HTTP, metrics: forecast and history
//! ```
//!
//! A step is written down in the look after it, and before whoever asked for it is answered. What was observed is written from time to
//! time, one filter at a look, so a kill costs a minute of it if there are few filters; the time in which no server runs does not count. In a cluster the node that decides about growth writes,
//! and all read.

mod record;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use umbel_core::Result;
use umbel_core::clock::{Clock, SystemClock};
use umbel_core::definition::{Growth, capacity_for};
use umbel_core::engine::{Event, Handle};
use umbel_core::registry::{Change, Expected};
use umbel_core::trend::{Forecast, When};
use umbel_filter::{Layout, Plan, Spec};

use crate::making;
use crate::node::{Node, unix_time};
pub(crate) use record::{Record, Step};

const FOLDER: &str = "growth/";
/// Filters whose growth is observed; others are left alone.
const FILTERS_MAX: usize = 10_000;
/// What was observed is written at most so often for a filter.
const WRITE_EVERY: Duration = Duration::from_secs(60);
/// What is forecast of the error rate.
const HORIZON: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is known of all filters.
#[derive(Debug)]
pub(crate) struct Growths {
    clock: Box<dyn Clock>,
    records: Mutex<Records>,
    /// Looks come one after another.
    looking: tokio::sync::Mutex<bool>,
}

#[derive(Debug, Default)]
struct Records {
    by_filter: HashMap<u64, Watched>,
}

/// A filter that is watched.
#[derive(Debug, Default)]
struct Watched {
    record: Record,
    looked: Option<Duration>,
    /// The version of it in the registry.
    version: Option<u64>,
    written: Option<Duration>,
    written_items: u64,
    /// A step came that is not written yet.
    is_due: bool,
}

/// What can be told of a filter's growth.
#[derive(Debug)]
pub(crate) struct Told {
    /// How many times larger it becomes; 1 if it takes no more when it is full.
    pub(crate) factor: f64,
    /// How full it is when it grows.
    pub(crate) at_percent: u32,
    pub(crate) items: u64,
    pub(crate) capacity: u64,
    pub(crate) forecast: Option<Forecast>,
    /// The error rate after a week at this rate, if it kept its size.
    pub(crate) error_in_a_week: Option<f64>,
    pub(crate) steps: Vec<Step>,
}

impl Default for Growths {
    fn default() -> Self {
        Self {
            clock: Box::new(SystemClock::default()),
            records: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }
}

fn entry(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

impl Growths {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at all filters, and writes down what has to be. If that cannot be done now, it is at a later look.
    pub(crate) async fn look(&self, node: &Node) {
        if let Err(error) = self.try_look(node).await {
            tracing::warn!(%error, "how filters grow was not written down");
        }
    }

    async fn try_look(&self, node: &Node) -> Result<()> {
        let mut is_read = self.looking.lock().await;
        if !*is_read {
            self.read(node).await?;
            *is_read = true;
        }
        let (names_due, gone) = self.observe(node);
        if !node.engine.is_steward() {
            return Ok(());
        }
        for filter in names_due {
            self.write(node, filter).await?;
        }
        for (filter, is_written) in gone {
            if is_written {
                node.registry.delete(&entry(filter), Expected::Anything).await?;
            }
            self.records().by_filter.remove(&filter);
        }
        Ok(())
    }

    /// Reads what was written before this process.
    async fn read(&self, node: &Node) -> Result<()> {
        let found = node.registry.list(FOLDER).await?.entries;
        let mut records = self.records();
        for (name, found) in found {
            let Ok(filter) = u64::from_str_radix(name.trim_start_matches(FOLDER), 16) else { continue };
            // What cannot be read is written anew: a forecast is not worth a server that does not start.
            let record = serde_json::from_slice(&found.value).unwrap_or_else(|error| {
                tracing::warn!(%error, name, "what was known of a filter's growth cannot be read");
                Record::default()
            });
            let (version, written) = (Some(found.version), Some(self.clock.now()));
            let watched = Watched { record, version, written, ..Watched::default() };
            records.by_filter.insert(filter, watched);
        }
        Ok(())
    }

    /// Takes in what happened; gives filters that are to be written, and those that are gone.
    fn observe(&self, node: &Node) -> (Vec<u64>, Vec<(u64, bool)>) {
        let (now, now_ms) = (self.clock.now(), unix_time().as_millis() as u64);
        let filters = node.engine.filters();
        let mut records = self.records();
        for filter in &filters {
            let definition = filter.definition();
            let is_new = !records.by_filter.contains_key(&filter.id());
            if definition.window.is_some() || is_new && records.by_filter.len() >= FILTERS_MAX {
                continue;
            }
            // One that was filled anew goes on with the history of the filter whose place it took.
            let before = definition.mirrors.filter(|_| is_new).and_then(|mirror| {
                records.by_filter.get(&mirror.of).map(|watched| (mirror, watched.record.clone()))
            });
            let watched = records.by_filter.entry(filter.id()).or_default();
            if let Some((mirror, before)) = before {
                watched.record = before;
                watched.record.rebuilt(&definition, filter.items(), mirror.began_ms, now_ms);
                watched.is_due = true;
            }
            let passed = watched.looked.replace(now).map_or(Duration::ZERO, |then| now.saturating_sub(then));
            watched.record.trend.note(passed, filter.items_everywhere());
        }
        for event in node.engine.take_steps() {
            let (Event::Begun { filter, .. } | Event::Answers { filter, .. }) = event;
            if let Some(watched) = records.by_filter.get_mut(&filter) {
                watched.record.take(event);
                watched.is_due = true;
            }
        }
        for filter in &filters {
            let definition = filter.definition();
            if let Some(watched) = records.by_filter.get_mut(&filter.id())
                && watched.record.catch_up(&definition, filter.is_behind(), now_ms)
            {
                watched.is_due = true;
            }
        }
        let there: HashSet<u64> = filters.iter().map(|filter| filter.id()).collect();
        let gone: Vec<(u64, bool)> = records
            .by_filter
            .iter()
            .filter(|(id, _)| !there.contains(id))
            .map(|(id, watched)| (*id, watched.version.is_some()))
            .collect();
        let mut due: Vec<u64> =
            records.by_filter.iter().filter(|(_, watched)| watched.is_due).map(|(id, _)| *id).collect();
        due.extend(records.oldest_unwritten(now).filter(|_| due.is_empty()));
        due.retain(|id| there.contains(id));
        (due, gone)
    }

    async fn write(&self, node: &Node, filter: u64) -> Result<()> {
        let (value, version, items) = {
            let records = self.records();
            let Some(watched) = records.by_filter.get(&filter) else { return Ok(()) };
            let value = serde_json::to_vec(&watched.record)
                .map_err(|error| umbel_core::Error::Invalid(error.to_string()))?;
            (value, watched.version, watched.record.items())
        };
        let expected = version.map_or(Expected::Absent, Expected::Version);
        let change = node.registry.put(&entry(filter), value.into(), expected, None).await?;
        let mut records = self.records();
        let Some(watched) = records.by_filter.get_mut(&filter) else { return Ok(()) };
        match change {
            Change::Done(version) => {
                watched.version = Some(version);
                watched.written = Some(self.clock.now());
                watched.written_items = items;
                watched.is_due = false;
            }
            // Another node decided about growth meanwhile: what it knows of steps counts, and is written with ours next time.
            Change::Conflict(found) => {
                watched.version = found.as_ref().map(|found| found.version);
                let other = found.and_then(|found| serde_json::from_slice::<Record>(&found.value).ok());
                watched.record.merge(other.unwrap_or_default());
                watched.is_due = true;
            }
        }
        Ok(())
    }

    /// What can be told of a filter's growth.
    pub(crate) async fn tell(&self, node: &Node, filter: &Handle, items: u64) -> Result<Told> {
        if node.engine.is_steward() {
            self.look(node).await;
        } else if let Some(found) = node.registry.get(&entry(filter.id())).await? {
            let other = serde_json::from_slice(&found.value).unwrap_or_default();
            self.records().by_filter.entry(filter.id()).or_default().record.merge(other);
        }
        let definition = filter.definition();
        let capacity = capacity_of(filter);
        let forecast = self.forecast(node, filter, items);
        let is_one_array = !is_chain(&definition.spec)
            && definition.window.is_none()
            && (definition.retain || definition.generation == 0);
        let plan = Plan::new(&definition.spec, definition.shards).ok().filter(|_| is_one_array);
        let error_in_a_week = plan.zip(forecast).map(|(plan, forecast)| {
            let then = forecast.rate.items_after(items, HORIZON);
            plan.geometry.error_with_shards(then, definition.shards)
        });
        let steps = self.records().by_filter.get(&filter.id()).map(|watched| watched.record.steps.clone());
        Ok(Told {
            factor: factor(definition.growth),
            at_percent: definition.grow_at.map_or(node.engine.settings().grow_at_percent, u32::from),
            items,
            capacity,
            forecast,
            error_in_a_week,
            steps: steps.unwrap_or_default().into(),
        })
    }

    /// When a filter will be full, from what was observed so far.
    pub(crate) fn forecast(&self, node: &Node, filter: &Handle, items: u64) -> Option<Forecast> {
        let capacity = capacity_of(filter);
        let due = node.engine.due_at(filter).unwrap_or(capacity);
        self.records().by_filter.get(&filter.id())?.record.trend.forecast(items, due, capacity)
    }

    /// How long the last step of a filter took.
    pub(crate) fn last_took(&self, filter: u64) -> Option<Duration> {
        let records = self.records();
        let took = records.by_filter.get(&filter)?.record.steps.iter().rev().find_map(|step| step.took_ms);
        took.map(Duration::from_millis)
    }
}

impl Records {
    /// The filter whose observations have waited longest to be written, if there is one that has to be.
    fn oldest_unwritten(&self, now: Duration) -> Option<u64> {
        let waits = |watched: &Watched| {
            let Some(written) = watched.written else {
                // So that a size which nobody wrote down is noticed by the next process.
                return watched.version.is_none().then_some(now);
            };
            let (since, items) = (now.saturating_sub(written), watched.record.items());
            // A hundredth of the items is worth a write; what does not change is not.
            let has_changed = items.abs_diff(watched.written_items) > watched.written_items / 100;
            (since >= WRITE_EVERY && has_changed).then_some(since)
        };
        let waiting = self.by_filter.iter().filter_map(|(id, watched)| Some((waits(watched)?, *id)));
        waiting.max().map(|(_, id)| id)
    }
}

/// Elements that the arrays of a filter are made for, all of them together.
fn capacity_of(filter: &Handle) -> u64 {
    let spec = filter.definition().spec;
    // A chain has more than its definition says.
    if is_chain(&spec) { filter.stats().capacity } else { spec.capacity }
}

/// The capacity of a filter that has no more room than its keys need: its own, or a smaller one.
pub(crate) fn fitting(filter: &Handle, items: u64) -> u64 {
    capacity_for(items).min(filter.definition().spec.capacity)
}

/// How many times larger a filter becomes; 1 if it takes no more when it is full.
pub(crate) fn factor(growth: Growth) -> f64 {
    match growth {
        Growth::Fixed => 1.0,
        Growth::Percent(percent) => f64::from(percent) / 100.0,
    }
}

/// When and by how much a filter is to grow by itself, where that changes.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    growth: Option<Growth>,
    /// A threshold, or that of all filters.
    grow_at: Option<Option<u8>>,
}

impl Pace {
    /// `1.5`, `2`, or `none` for a filter that takes no more when it is full.
    pub(crate) fn set_factor(&mut self, text: &str) -> std::result::Result<(), String> {
        let growth = match text {
            "none" | "1" => Some(Growth::Fixed),
            times => making::growth(times),
        };
        self.growth = Some(growth.ok_or_else(|| format!("expansion {text}; it is none, or 1.1 to 32768"))?);
        Ok(())
    }

    /// `70`, or `default` for that of all filters.
    pub(crate) fn set_threshold(&mut self, text: &str) -> std::result::Result<(), String> {
        let percent =
            || making::percent(text).ok_or_else(|| format!("growat {text}; it is 1 to 100 percent"));
        self.grow_at = Some(if text == "default" { None } else { Some(percent()?) });
        Ok(())
    }

    /// Whether anything changes.
    pub(crate) fn is_some(&self) -> bool {
        self.growth.is_some() || self.grow_at.is_some()
    }

    /// Changes it.
    pub(crate) async fn apply(&self, node: &Node, filter: &Arc<Handle>) -> Result<()> {
        let definition = filter.definition();
        let grows_otherwise = definition.window.is_some() || is_chain(&definition.spec);
        if self.is_some() && grows_otherwise {
            let why = "windows and chains of sub-filters grow in their own way";
            return Err(umbel_core::Error::Invalid(format!("the filter {}: {why}", definition.name)));
        }
        if let Some(growth) = self.growth {
            node.engine.set_growth(filter, growth).await?;
        }
        match self.grow_at {
            Some(percent) => node.engine.set_grow_at(filter, percent).await,
            None => Ok(()),
        }
    }
}

/// Whether it grows in its own way, link by link.
pub(crate) fn is_chain(spec: &Spec) -> bool {
    matches!(spec.layout, Layout::RedisBloom { .. })
}

/// Seconds until then, for machines; nothing if it never comes.
pub(crate) fn seconds(when: When) -> Option<u64> {
    match when {
        When::Now => Some(0),
        When::In(time) => Some(time.as_secs()),
        When::Never => None,
    }
}

impl Told {
    /// The forecast in words.
    pub(crate) fn words(&self) -> String {
        let Some(forecast) = &self.forecast else { return "not known yet".to_owned() };
        match forecast.full {
            When::Now => "full".to_owned(),
            When::Never => "not full at this rate".to_owned(),
            When::In(time) => {
                let told = |when| match when {
                    When::In(time) => span(time),
                    When::Now => span(Duration::ZERO),
                    When::Never => "never".to_owned(),
                };
                match (told(forecast.full_at_earliest), told(forecast.full_at_latest)) {
                    (earliest, latest) if earliest == latest => format!("full in {}", span(time)),
                    (earliest, latest) => format!("full in {} ({earliest} to {latest})", span(time)),
                }
            }
        }
    }

    /// As HTTP tells it.
    pub(crate) fn json(&self) -> Value {
        let forecast = self.forecast.as_ref();
        let after = |when: fn(&Forecast) -> When| forecast.and_then(|forecast| seconds(when(forecast)));
        json!({
            "factor": self.factor,
            "at_percent": self.at_percent,
            "items": self.items,
            "capacity": self.capacity,
            "items_per_second": forecast.map(|forecast| forecast.rate.median),
            "due_in_seconds": after(|forecast| forecast.due),
            "full_in_seconds": after(|forecast| forecast.full),
            "full_in_seconds_earliest": after(|forecast| forecast.full_at_earliest),
            "full_in_seconds_latest": after(|forecast| forecast.full_at_latest),
            "error_in_a_week": self.error_in_a_week,
            "forecast": self.words(),
            "history": self.steps,
        })
    }
}

/// A time as people say it: `9 days`, `14 hours`.
pub(crate) fn span(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let seconds = time.as_secs();
    // Two of a unit are told better than one of the next.
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or((1, "second"));
    let count = (seconds + unit / 2) / unit;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told = |seconds| span(Duration::from_secs(seconds));
        assert_eq!(told(0), "0 seconds");
        assert_eq!(told(1), "1 second");
        assert_eq!(told(119), "119 seconds");
        assert_eq!(told(7200), "2 hours");
        assert_eq!(told(9 * 86_400 + 3600), "9 days");
    }
}
