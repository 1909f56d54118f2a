//! What open pages are told: one sample a second, whoever listens, and the last hour of samples.
//!
//! ```text
//!  node --look, every second--> sample --> all who listen, each with what it may see
//!                                 '--every ten--> points of the last hour: of the server, and of some filters
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::alerts::{self, Alert};
use crate::names::shown;
use crate::node::{Node, unix_time};

/// Pages that listen at a time.
const LISTENERS_MAX: usize = 64;
/// Seconds between points of the past, and how many are kept: an hour.
pub(crate) const STEP_SECONDS: u64 = 10;
const POINTS_MAX: usize = 360;
/// Filters whose past is kept.
const FILTERS_KEPT_MAX: usize = 256;
/// Filters that a sample tells of, those with the most to do.
const FILTERS_TOLD_MAX: usize = 200;

/// What all of it comes to.
#[derive(Debug)]
pub(crate) struct Monitor {
    state: Mutex<State>,
    told: watch::Sender<Option<Arc<Sample>>>,
    places: Arc<Semaphore>,
    samples: AtomicU64,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            told: watch::Sender::new(None),
            places: Arc::new(Semaphore::new(LISTENERS_MAX)),
            samples: AtomicU64::new(0),
        }
    }
}

/// The server at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) at_ms: u64,
    operations_per_second: f64,
    adds_per_second: f64,
    lookups_per_second: f64,
    memory_bytes: u64,
    memory_limit_bytes: u64,
    connections: u64,
    filters: u64,
    items: u64,
    uptime_seconds: u64,
    /// `serving`, or why not.
    health: String,
    #[serde(skip)]
    pub(crate) alerts: Vec<Alert>,
    #[serde(skip)]
    pub(crate) changed: Vec<Moved>,
}

/// A filter that had something to do.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Moved {
    pub(crate) name: String,
    items: u64,
    capacity: u64,
    bytes: u64,
    adds_per_second: f64,
    lookups_per_second: f64,
    is_growing: bool,
}

/// The server at a moment that has passed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Point {
    at_ms: u64,
    operations_per_second: f64,
    adds_per_second: f64,
    lookups_per_second: f64,
    memory_bytes: u64,
}

/// A filter at a moment that has passed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FilterPoint {
    at_ms: u64,
    items: u64,
    adds_per_second: f64,
    lookups_per_second: f64,
}

/// Somebody who listens; it has a place as long as it lives.
#[derive(Debug)]
pub(crate) struct Listener {
    samples: watch::Receiver<Option<Arc<Sample>>>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    looks: u64,
    operations: u64,
    operations_at_point: u64,
    watched: HashMap<u64, Watched>,
    points: VecDeque<Point>,
    alerts: Vec<Alert>,
}

#[derive(Debug, Default)]
struct Watched {
    /// Of the last look, and of the last point.
    last: (u64, u64),
    at_point: (u64, u64),
    points: VecDeque<FilterPoint>,
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() == POINTS_MAX {
        points.pop_front();
    }
    points.push_back(point);
}

/// How much more there is than there was, for each second.
fn rate(was: u64, is: u64, seconds: f64) -> f64 {
    is.saturating_sub(was) as f64 / seconds
}

impl Monitor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among those who listen, if one is free.
    pub(crate) fn listen(&self) -> Option<Listener> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut samples = self.told.subscribe();
        // What was told before is told first.
        samples.mark_changed();
        Some(Listener { samples, _place: place })
    }

    /// The newest sample, if there was one.
    pub(crate) fn newest(&self) -> Option<Arc<Sample>> {
        self.told.borrow().clone()
    }

    /// The last hour of the server.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.state().points.iter().copied().collect()
    }

    /// The newest of it.
    pub(crate) fn newest_point(&self) -> Option<Point> {
        self.state().points.back().copied()
    }

    /// The last hour of a filter.
    pub(crate) fn points_of(&self, filter: u64) -> Vec<FilterPoint> {
        let state = self.state();
        state.watched.get(&filter).map(|watched| watched.points.iter().copied().collect()).unwrap_or_default()
    }

    /// How many samples there were, however many listened.
    #[cfg(test)]
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Looks at everything once; somebody does so every second.
    pub(crate) fn look(&self, node: &Node) {
        let (now, at_ms) = (node.now(), unix_time().as_millis() as u64);
        let mut state = self.state();
        let before = state.looked.replace(now);
        let seconds = before.map_or(1.0, |then| now.saturating_duration_since(then).as_secs_f64().max(1e-3));
        let is_point = state.looks.is_multiple_of(STEP_SECONDS);
        state.looks += 1;
        if is_point {
            state.alerts = alerts::look(node);
        }
        let (changed, adds, lookups, items) = state.look_at_filters(node, seconds, at_ms, is_point);
        let counted = node.metrics.read();
        let operations = counted.calls();
        let memory_bytes = node.engine.budget().used();
        let was = std::mem::replace(&mut state.operations, operations);
        if is_point {
            let was = std::mem::replace(&mut state.operations_at_point, operations);
            let step = STEP_SECONDS as f64;
            let of_all = |of: fn(&FilterPoint) -> f64| -> f64 {
                // The sum of nothing is -0.0.
                state.watched.values().filter_map(|watched| watched.points.back()).map(of).sum::<f64>() + 0.0
            };
            let point = Point {
                at_ms,
                operations_per_second: rate(was, operations, step),
                adds_per_second: of_all(|point| point.adds_per_second),
                lookups_per_second: of_all(|point| point.lookups_per_second),
                memory_bytes,
            };
            push(&mut state.points, point);
        }
        let health = match (node.failure(), &node.cluster) {
            (Some(why), _) => why.to_owned(),
            (None, Some(nodes)) => nodes.ready().err().unwrap_or_else(|| "serving".to_owned()),
            (None, None) => "serving".to_owned(),
        };
        let sample = Sample {
            at_ms,
            operations_per_second: if before.is_some() { rate(was, operations, seconds) } else { 0.0 },
            adds_per_second: adds,
            lookups_per_second: lookups,
            memory_bytes,
            memory_limit_bytes: node.engine.budget().limit(),
            connections: counted.open,
            filters: state.watched.len() as u64,
            items,
            uptime_seconds: now.saturating_duration_since(node.started).as_secs(),
            health,
            alerts: state.alerts.clone(),
            changed,
        };
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.told.send_replace(Some(Arc::new(sample)));
    }
}

impl State {
    /// Filters that had something to do, adds and lookups a second and items of all.
    fn look_at_filters(
        &mut self,
        node: &Node,
        seconds: f64,
        at_ms: u64,
        is_point: bool,
    ) -> (Vec<Moved>, f64, f64, u64) {
        let filters = node.engine.filters();
        let mut before = std::mem::take(&mut self.watched);
        let mut kept = before.values().filter(|watched| !watched.points.is_empty()).count();
        let (mut moved, mut adds, mut lookups, mut items) = (Vec::new(), 0.0, 0.0, 0);
        for filter in &filters {
            let now = (filter.items(), filter.lookups());
            let known = before.remove(&filter.id());
            // What was made since the last look may have keys already.
            let is_new = known.is_none();
            let mut watched =
                known.unwrap_or_else(|| Watched { last: now, at_point: now, points: VecDeque::new() });
            let (added, asked) = (rate(watched.last.0, now.0, seconds), rate(watched.last.1, now.1, seconds));
            (adds, lookups, items) = (adds + added, lookups + asked, items + now.0);
            let (was_busy, is_growing) = (is_new || watched.last != now, filter.is_behind());
            watched.last = now;
            if is_point && (kept < FILTERS_KEPT_MAX || !watched.points.is_empty()) {
                kept += usize::from(watched.points.is_empty());
                let step = STEP_SECONDS as f64;
                let point = FilterPoint {
                    at_ms,
                    items: now.0,
                    adds_per_second: rate(watched.at_point.0, now.0, step),
                    lookups_per_second: rate(watched.at_point.1, now.1, step),
                };
                watched.at_point = now;
                push(&mut watched.points, point);
            }
            if was_busy || is_growing {
                moved.push((filter, added, asked, is_growing));
            }
            self.watched.insert(filter.id(), watched);
        }
        moved.sort_by(|one, other| (other.1 + other.2).total_cmp(&(one.1 + one.2)));
        moved.truncate(FILTERS_TOLD_MAX);
        let told = moved.into_iter().map(|(filter, added, asked, is_growing)| {
            let definition = filter.definition();
            Moved {
                name: shown(&definition.name),
                items: filter.items(),
                capacity: definition.spec.capacity,
                bytes: filter.bytes(),
                adds_per_second: added,
                lookups_per_second: asked,
                is_growing,
            }
        });
        (told.collect(), adds, lookups, items)
    }
}

impl Listener {
    /// The next sample; none when the server ends.
    pub(crate) async fn next(&mut self) -> Option<Arc<Sample>> {
        loop {
            self.samples.changed().await.ok()?;
            let newest = self.samples.borrow_and_update().clone();
            if newest.is_some() {
                return newest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let monitor = Monitor::default();
        let mut all: Vec<_> = (0..LISTENERS_MAX).map(|_| monitor.listen().unwrap()).collect();
        assert!(monitor.listen().is_none());
        all.pop();
        assert!(monitor.listen().is_some());
        assert_eq!(monitor.samples(), 0, "who listens costs no sample");
    }

    #[test]
    fn the_past_is_bounded() {
        let mut points = VecDeque::new();
        (0..2 * POINTS_MAX).for_each(|number| push(&mut points, number));
        assert_eq!((points.len(), points[0]), (POINTS_MAX, POINTS_MAX));
    }
}
