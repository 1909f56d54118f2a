//! Sliding windows: filters that remember what was added within some time.
//!
//! ```text
//!  time   ---|--------|--------|--------|--->      a key goes into the bucket of now;
//!  buckets      n - 2    n - 1     n    ^ now      a lookup asks all that are alive, the newest first
//! ```
//!
//! A window holds no keys itself. Its buckets are ordinary filters with internal names, which expire. So everything that keeps
//! filters safe keeps windows safe, and an old bucket goes as a whole.
//!
//! What time it is for a window says [`pace`](super::pace), not the time of day: buckets carry it in the log.
//!
//! In a cluster any node makes the bucket of now, and a lookup asks all that the catalog has, when what is folded of the catalog is all
//! that was acknowledged. When a bucket is over is up to one node, which drops it in the log. So a key is remembered for the length of
//! the window, less a tenth of a second by which the times of two nodes may differ.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use futures_util::future::try_join_all;
use umbel_filter::limits::ERROR_MIN;
use umbel_filter::{Fingerprint, Spec};

use super::cluster::Cluster;
use super::handle::{Answer, Handle};
use super::pace::{Carried, ClockSteps};
use super::requests::{NewFilter, Token, Written, gone};
use super::stats::Stats;
use super::{Engine, Shared};
use crate::definition::{Definition, Growth, INTERNAL, Window};
use crate::entry::Request;
use crate::{Error, Result};

/// What names of buckets begin with, behind [`INTERNAL`]; then the window's number and the bucket's.
const BUCKET: &str = "window:";
/// The last part of a bucket's time in which the next one is made: one in so many.
const AHEAD: u64 = 4;
/// By how many milliseconds the time of day may go another way than the time of windows without being written down.
const STEP_MS: u64 = 1_000;

/// The buckets of a window that are alive. Until somebody looked for them, and when the window is dropped, nothing is known.
#[derive(Debug, Default)]
pub(super) struct Live {
    known: bool,
    /// The newest first.
    buckets: Vec<Arc<Handle>>,
    /// From when to when these are all, by the time of windows.
    since: u64,
    until: u64,
    /// How often names had changed then.
    names: u64,
    /// Whether another node made a bucket by a time that is behind this node's, and was not told yet.
    is_ahead: AtomicBool,
}

fn bucket_name(window: u64, number: u64) -> String {
    format!("{INTERNAL}{BUCKET}{window:016x}:{number}")
}

/// The window that a filter is a bucket of.
pub(super) fn window_of(definition: &Definition) -> Option<u64> {
    let rest = definition.name.strip_prefix(INTERNAL)?.strip_prefix(BUCKET)?;
    u64::from_str_radix(rest.split(':').next()?, 16).ok()
}

/// The number of a bucket among those of its window.
fn number_of(definition: &Definition) -> u64 {
    let number = definition.name.rsplit(':').next();
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The times that a bucket carries. One that was made before buckets carried any was made in its own time, or a little ahead of it.
fn carried(definition: &Definition, window: Window) -> Carried {
    let bucket = window.bucket_ms();
    let made = number_of(definition).saturating_mul(bucket).saturating_sub(bucket / AHEAD);
    Carried::of_labels(&definition.labels).unwrap_or(Carried { window_ms: made, unix_ms: made })
}

/// Takes in what another bucket says: a key that one may have may be there, and only one that none has is absent.
pub(super) fn join(answers: &mut [Answer], told: &[Answer]) {
    for (answer, told) in answers.iter_mut().zip(told) {
        *answer = match (*answer, told) {
            (Answer::Maybe, _) | (_, Answer::Maybe) => Answer::Maybe,
            (Answer::Unknown, _) | (_, Answer::Unknown) => Answer::Unknown,
            _ => Answer::Absent,
        };
    }
}

/// Lookups.
impl Handle {
    /// What any bucket says, the newest first. Only keys that no bucket knows yet are asked for further.
    pub(super) fn window_contains(&self, keys: &[Fingerprint], answers: &mut Vec<Answer>) {
        let live = self.live.load();
        answers.clear();
        answers.resize(keys.len(), if live.known { Answer::Absent } else { Answer::Unknown });
        let mut open: Vec<usize> = (0..keys.len()).collect();
        let (mut asked, mut told) = (keys.to_vec(), Vec::new());
        for bucket in &live.buckets {
            bucket.used.store(true, Ordering::Relaxed);
            bucket.contains_batch(&asked, &mut told);
            for (place, answer) in open.iter().zip(&told) {
                if *answer != Answer::Absent {
                    answers[*place] = *answer;
                }
            }
            open.retain(|place| answers[*place] != Answer::Maybe);
            if open.is_empty() {
                return;
            }
            asked.clear();
            asked.extend(open.iter().map(|place| keys[*place]));
        }
    }

    pub(super) fn window_items(&self) -> u64 {
        self.live.load().buckets.iter().map(|bucket| bucket.items()).sum()
    }

    pub(super) fn window_bytes(&self) -> u64 {
        self.live.load().buckets.iter().map(|bucket| bucket.bytes()).sum()
    }

    pub(super) fn window_is_resident(&self) -> bool {
        self.live.load().buckets.iter().all(|bucket| bucket.is_resident())
    }

    pub(super) fn window_stats(&self, sampled_bytes: u64) -> Stats {
        let (definition, live) = (self.definition(), self.live.load());
        let mut all = Stats {
            capacity: definition.spec.capacity,
            generation: definition.generation,
            shards: definition.shards,
            layers: live.buckets.len() as u32,
            is_resident: self.is_resident(),
            ..Stats::default()
        };
        let mut right = 1.0;
        for bucket in &live.buckets {
            let stats = bucket.sampled(sampled_bytes / live.buckets.len() as u64);
            all.items += stats.items;
            all.bytes += stats.bytes;
            all.fill += stats.fill * stats.bytes as f64;
            right *= 1.0 - stats.estimated_error;
            all.is_growing |= stats.is_growing;
        }
        all.fill = if all.bytes == 0 { 0.0 } else { all.fill / all.bytes as f64 };
        all.estimated_error = 1.0 - right;
        all
    }
}

impl Engine {
    /// Steps of the time of day that were seen since the engine was opened.
    pub fn clock_steps(&self) -> ClockSteps {
        self.shared.pace.steps()
    }
}

/// Time.
impl Shared {
    /// The time of windows, in milliseconds since 1970.
    pub(super) fn window_now(&self) -> u64 {
        if !self.pace.is_begun() {
            let buckets = self.directory.those(|filter| window_of(&filter.definition()).is_some());
            let carried = buckets.iter().filter_map(|bucket| {
                let definition = bucket.definition();
                let window = self.window_of_bucket(&definition)?;
                Some((carried(&definition, window), window.bucket_ms()))
            });
            self.pace.begin(&*self.clock, carried, self.cluster.is_some());
        }
        self.pace.window_ms(&*self.clock)
    }

    /// The window that a bucket is of, if it is still there.
    fn window_of_bucket(&self, bucket: &Definition) -> Option<Window> {
        self.directory.numbered(window_of(bucket)?)?.definition().window
    }

    /// Whether the time of a bucket is over; none of a filter that is no bucket of a window that is there.
    pub(super) fn is_bucket_over(&self, bucket: &Handle) -> Option<bool> {
        let window = self.window_of_bucket(&bucket.definition())?;
        let is_held = self.pace.holds(&*self.clock, window, self.cluster.is_some());
        Some(bucket.is_expired(self.window_now()) && !is_held)
    }

    /// What a bucket that is made now carries.
    fn carries(&self) -> Carried {
        Carried { window_ms: self.window_now(), unix_ms: self.clock.unix_millis() }
    }

    /// Says in the log what time it is for windows, where the newest bucket does not tell. After a step of the time of day, a restart would
    /// count the step as time that passed; and nodes that are behind would add keys to buckets that seem old here.
    async fn carry_step(&self, filter: &Arc<Handle>, window: Window) -> Result<()> {
        let live = filter.live.load_full();
        let Some(newest) = live.buckets.first().cloned() else { return Ok(()) };
        let now = self.carries();
        let known = carried(&newest.definition(), window).ahead_ms();
        if known.abs_diff(now.ahead_ms()) <= STEP_MS && !live.is_ahead.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let _naming = self.naming.lock().await;
        let labels = now.to_labels();
        let told = self
            .redescribe(&newest, |was| Some(Definition { labels: labels.clone(), ..was }))
            .await
            .map(drop);
        if told.is_err() {
            live.is_ahead.store(true, Ordering::SeqCst);
        }
        told
    }
}

impl Shared {
    /// The buckets of a window that are alive, newest first; nothing if the filter is no window. Those that other nodes made are among
    /// them.
    pub(super) async fn live_buckets(&self, filter: &Arc<Handle>) -> Result<Option<Vec<Arc<Handle>>>> {
        if !filter.is_window() {
            return Ok(None);
        }
        self.prove_names().await?;
        Ok(Some(self.known_buckets(filter)))
    }

    /// The same as far as it is known here.
    pub(super) fn known_buckets(&self, filter: &Arc<Handle>) -> Vec<Arc<Handle>> {
        if let Some(window) = filter.definition().window {
            self.refresh(filter, window);
        }
        filter.live.load().buckets.clone()
    }

    /// Brings all buckets that are alive into memory.
    pub(super) async fn load_buckets(&self, filter: &Arc<Handle>) -> Result<()> {
        for bucket in self.live_buckets(filter).await?.unwrap_or_default() {
            Box::pin(self.load(&bucket)).await?;
        }
        Ok(())
    }

    /// Looks for the buckets that are alive now, if time has passed since somebody looked.
    fn refresh(&self, filter: &Arc<Handle>, window: Window) {
        let now = self.window_now();
        let live = filter.live.load();
        let others_changed = self.cluster.is_some() && live.names != self.directory.version();
        if now < live.since || now >= live.until || others_changed {
            self.look_for_buckets(filter, window, now);
        }
    }

    fn look_for_buckets(&self, filter: &Arc<Handle>, window: Window, now: u64) {
        let _one_at_a_time = filter.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.directory.version();
        let mut is_ahead = filter.live.load().is_ahead.load(Ordering::SeqCst);
        let current = now / window.bucket_ms();
        // A bucket lives for the whole length after its end. Where the length is not a multiple of a bucket, more of them are alive.
        let oldest = now.saturating_sub(window.length_ms) / window.bucket_ms();
        let buckets: Vec<_> = if self.cluster.is_some() {
            // Whoever made them has another clock.
            let is_own = |other: &Handle| window_of(&other.definition()) == Some(filter.id());
            let mut all = self.directory.those(is_own);
            all.sort_by_cached_key(|bucket| std::cmp::Reverse(number_of(&bucket.definition())));
            is_ahead |= self.reach_times(filter, window, &all);
            all
        } else {
            let named = (oldest..=current + 1).rev();
            let named = named.filter_map(|number| self.directory.named(&bucket_name(filter.id(), number)));
            named.filter(|bucket| self.is_bucket_over(bucket) == Some(false)).collect()
        };
        let next = (current + 1).saturating_mul(window.bucket_ms());
        let ends = buckets.iter().filter_map(|bucket| bucket.definition().expires);
        let until = ends.fold(next, u64::min);
        filter.live.store(Arc::new(Live {
            known: true,
            buckets,
            since: now,
            until,
            names,
            is_ahead: is_ahead.into(),
        }));
        // Whoever drops it may have been faster.
        if !self.directory.exists(filter.id()) {
            filter.live.store(Arc::default());
        }
    }

    /// Takes the times that other nodes carried into the log; says whether one of them is behind.
    fn reach_times(&self, filter: &Handle, window: Window, buckets: &[Arc<Handle>]) -> bool {
        let known = filter.live.load();
        let mut is_ahead = false;
        for bucket in buckets {
            let is_new = known.known && !known.buckets.iter().any(|known| known.id() == bucket.id());
            let told = carried(&bucket.definition(), window).window_ms;
            is_ahead |= self.pace.reach(&*self.clock, told, is_new.then_some(known.since));
        }
        is_ahead
    }

    /// The bucket of a name, if it is there. Lookups ask it from here on, also if whoever made it has not come to say so.
    fn shown_bucket(&self, filter: &Arc<Handle>, window: Window, name: &str) -> Option<Arc<Handle>> {
        let bucket = self.directory.named(name)?;
        if !filter.live.load().buckets.iter().any(|live| live.id() == bucket.id()) {
            self.look_for_buckets(filter, window, self.window_now());
        }
        Some(bucket)
    }

    /// The bucket of a number, which is made if it is not there.
    async fn bucket(&self, filter: &Arc<Handle>, window: Window, number: u64) -> Result<Arc<Handle>> {
        let name = bucket_name(filter.id(), number);
        if let Some(bucket) = self.shown_bucket(filter, window, &name) {
            return Ok(bucket);
        }
        // Only one makes it.
        let _one_at_a_time = filter.growing.lock().await;
        if let Some(bucket) = self.shown_bucket(filter, window, &name) {
            return Ok(bucket);
        }
        if !self.directory.exists(filter.id()) {
            return Err(gone(filter));
        }
        let definition = filter.definition();
        let end = (number + 1).saturating_mul(window.bucket_ms());
        let spec = Spec {
            capacity: definition.spec.capacity.div_ceil(window.buckets.into()).max(1),
            error: (definition.spec.error / window.buckets_alive_max() as f64).max(ERROR_MIN),
            ..definition.spec
        };
        let growth = if definition.growth == Growth::Fixed { Growth::default() } else { definition.growth };
        let new = NewFilter {
            retain: definition.retain,
            growth,
            expires: Some(end.saturating_add(window.length_ms)),
            labels: self.carries().to_labels(),
            ..NewFilter::new(name, spec)
        };
        let bucket = match self.create(new).await {
            // Another node may have been faster.
            Err(error) if self.cluster.is_some() => {
                self.prove_catalog().await?;
                self.directory.named(&bucket_name(filter.id(), number)).ok_or(error)?
            }
            Err(error) => {
                let hidden = bucket_name(filter.id(), number);
                return Err(error.reworded(|why| why.replace(&hidden, &definition.name)));
            }
            Ok(made) => made,
        };
        self.look_for_buckets(filter, window, self.window_now());
        Ok(bucket)
    }

    /// Adds keys to the bucket of now. A key is new if no bucket held it.
    pub(super) async fn add_to_window(
        &self,
        filter: &Arc<Handle>,
        window: Window,
        keys: &[Fingerprint],
        request: Request,
    ) -> Result<Written> {
        self.confirm_name(filter).await?;
        // Not before the times are known that other nodes carried into the log: a bucket that is over there is dropped.
        self.live_buckets(filter).await?;
        let number = self.window_now() / window.bucket_ms();
        let bucket = self.bucket(filter, window, number).await?;
        let mut older = self.known_buckets(filter);
        older.retain(|older| older.id() != bucket.id());
        let held = match &self.cluster {
            Some(cluster) => self.buckets_in_nodes(&**cluster, &older, keys, &Token::default()).await?,
            None => {
                let (mut held, mut told) = (vec![Answer::Absent; keys.len()], Vec::new());
                for older in &older {
                    self.load(older).await?;
                    older.contains_batch(keys, &mut told);
                    join(&mut held, &told);
                }
                held
            }
        };
        let written = self.add(&bucket, keys, request).await;
        let mut written = written.map_err(|error| self.in_names_of_users(&bucket, error))?;
        for (answer, held) in written.answers.iter_mut().zip(held) {
            *answer = answer.map(|new| new && held != Answer::Maybe);
        }
        Ok(written)
    }

    /// Asks all nodes for keys of a window.
    pub(super) async fn window_in_nodes(
        &self,
        cluster: &dyn Cluster,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        after: &Token,
    ) -> Result<Vec<Answer>> {
        let buckets = self.live_buckets(filter).await?.unwrap_or_default();
        if !self.directory.exists(filter.id()) {
            return Ok(vec![Answer::Unknown; keys.len()]);
        }
        self.buckets_in_nodes(cluster, &buckets, keys, after).await
    }

    /// What any of these buckets says, wherever they are.
    async fn buckets_in_nodes(
        &self,
        cluster: &dyn Cluster,
        buckets: &[Arc<Handle>],
        keys: &[Fingerprint],
        after: &Token,
    ) -> Result<Vec<Answer>> {
        let asked = buckets.iter().map(|bucket| async move {
            let told = self.contains_in_nodes(cluster, bucket, keys, after).await;
            if told.is_err() {
                self.prove_catalog().await?;
            }
            // One that was dropped meanwhile is over, and holds nothing.
            if self.directory.exists(bucket.id()) { told } else { Ok(Vec::new()) }
        });
        let mut answers = vec![Answer::Absent; keys.len()];
        try_join_all(asked).await?.iter().for_each(|told| join(&mut answers, told));
        Ok(answers)
    }

    /// Forgets all keys of a window.
    pub(super) async fn clear_window(&self, filter: &Arc<Handle>, window: Window) -> Result<()> {
        let _one_at_a_time = filter.growing.lock().await;
        self.prove_catalog().await?;
        self.look_for_buckets(filter, window, self.window_now());
        let buckets = filter.live.load().buckets.clone();
        filter.live.store(Arc::default());
        for bucket in buckets {
            Box::pin(self.drop_filter(&bucket)).await?;
        }
        self.look_for_buckets(filter, window, self.window_now());
        Ok(())
    }

    /// Drops the buckets of a window that is dropped.
    pub(super) async fn drop_buckets(&self, filter: &Arc<Handle>) -> Result<()> {
        filter.live.store(Arc::default());
        for bucket in self.directory.those(|other| window_of(&other.definition()) == Some(filter.id())) {
            Box::pin(self.drop_filter(&bucket)).await?;
        }
        Ok(())
    }

    /// Looks after all windows: buckets that nobody has a window for go, and the next ones are made before they are needed.
    pub(super) async fn turn_windows(&self) -> Result<()> {
        let now = self.window_now();
        let mut failure: Option<Error> = None;
        let concerned = |filter: &Handle| filter.is_window() || window_of(&filter.definition()).is_some();
        for filter in self.directory.those(concerned) {
            let definition = filter.definition();
            if window_of(&definition).is_some_and(|window| !self.directory.exists(window)) {
                // A crash came between the end of the window and that of its buckets.
                if let Err(error) = self.drop_filter(&filter).await {
                    failure.get_or_insert(error);
                }
            }
            let Some(window) = definition.window.filter(|_| !self.is_over(&filter)) else { continue };
            self.look_for_buckets(&filter, window, now);
            if let Err(error) = self.carry_step(&filter, window).await {
                failure.get_or_insert(error);
            }
            let number = now / window.bucket_ms();
            let used = self.directory.named(&bucket_name(filter.id(), number)).is_some();
            let left = (number + 1).saturating_mul(window.bucket_ms()).saturating_sub(now);
            if used
                && left <= window.bucket_ms() / AHEAD
                && let Err(error) = self.bucket(&filter, window, number + 1).await
            {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::memory::InMemory;

    use super::*;
    use crate::clock::ManualClock;
    use crate::engine::{Engine, Settings};
    use crate::log::MemoryLog;

    #[test]
    fn a_bucket_that_somebody_is_still_making_is_asked_once_it_took_keys() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let clock = ManualClock::default();
            clock.advance(Duration::from_secs(1000));
            let builder = Engine::builder(Settings::default()).with_log(Arc::new(MemoryLog::new(4)));
            let builder = builder.with_blobs(Arc::new(InMemory::new())).with_clock(Arc::new(clock.clone()));
            let engine = builder.open().await.unwrap();
            let window = Window { length_ms: 60_000, buckets: 6 };
            let new = NewFilter { window: Some(window), ..NewFilter::new("w", Spec::bloom(1000, 0.01)) };
            let filter = engine.create(new).await.unwrap();
            assert!(engine.shared.known_buckets(&filter).is_empty());
            // The bucket has its name, and whoever makes it has not come back to say so.
            let number = engine.shared.clock.unix_millis() / window.bucket_ms();
            let name = bucket_name(filter.id(), number);
            engine.shared.create(NewFilter::new(name, Spec::bloom(1000, 0.01))).await.unwrap();
            let key = filter.hasher().fingerprint(b"key");
            engine.add(&filter, &[key]).await.unwrap();
            assert_eq!(filter.contains(key), Answer::Maybe);
            assert_eq!(engine.contains(&filter, &[key], None).await.unwrap(), [Answer::Maybe]);
        });
    }
}
