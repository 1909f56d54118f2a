//! Generations: the next size of a filter, built beside the one that answers, slot by slot.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_filter::{Filter, Fingerprint, Kind, Layout};

use super::Shared;
use super::handle::Handle;
use super::lane::Slot;
use super::steps::Why;
use crate::archive::{Run, merged};
use crate::budget::Reservation;
use crate::definition::{Definition, Growth};
use crate::entry::{Entry, Operation, Request};
use crate::fold::{Counts, Layer, Means, Newest, Projection};
use crate::{Error, Result};

/// Fingerprints that are folded into the next generation while nothing else happens in the lane: less than a millisecond.
const LAST_FINGERPRINTS: usize = 4096;

/// Fewer removals than this wear no filter.
const REMOVALS_MIN: u64 = 1000;

impl Shared {
    /// Whether a filter is so full that it is time for the next size. One that does not keep its keys waits for a new key: its next
    /// layer is there at once, and until then a filter that was imported full stays what it was, and can be exported again.
    pub(super) fn is_due(&self, handle: &Handle) -> bool {
        let definition = handle.definition();
        self.grows(&definition)
            && (definition.retain || handle.has_new_keys())
            && handle.items_everywhere() >= self.due_at(&definition)
    }

    /// How many items a filter has when it is time for the next size.
    pub(super) fn due_at(&self, definition: &Definition) -> u64 {
        let capacity = u128::from(definition.spec.capacity);
        let items = (capacity * u128::from(self.grow_at_percent(definition))).div_ceil(100);
        u64::try_from(items).unwrap_or(u64::MAX)
    }

    fn grow_at_percent(&self, definition: &Definition) -> u32 {
        definition.grow_at.map_or(self.settings.grow_at_percent, u32::from)
    }

    /// Whether so many keys were removed that counters which were stuck are worth being freed.
    pub(super) fn is_worn(&self, handle: &Handle) -> bool {
        let definition = handle.definition();
        let fits = handle.items_everywhere() <= definition.spec.capacity;
        let removals = handle.removals.load(Ordering::Relaxed);
        definition.retain && fits && removals > definition.spec.capacity.max(REMOVALS_MIN)
    }

    /// Whether the engine makes a filter grow: a chain of sub-filters does it by itself, so do the buckets of a window, and a filter
    /// that is being imported has to stay what it was where it comes from.
    pub(super) fn grows(&self, definition: &Definition) -> bool {
        let by_itself =
            definition.window.is_some() || matches!(definition.spec.layout, Layout::RedisBloom { .. });
        definition.growth != Growth::Fixed && !by_itself && !definition.is_import()
    }

    /// Defines the next size if the filter is due, with room for `more` elements besides those in it, and builds it.
    pub(super) async fn grow(&self, handle: &Arc<Handle>, more: u64) -> Result<()> {
        let _one_at_a_time = handle.growing.lock().await;
        self.finish().await?;
        let wanted = handle.wanted.swap(0, Ordering::Relaxed);
        let definition = handle.definition();
        let items = handle.items_everywhere();
        let overfull = items.saturating_add(wanted) > definition.spec.capacity;
        let more = more.max(wanted);
        let is_due = self.is_due(handle);
        let is_next = (is_due || overfull) && self.grows(&definition);
        if is_next {
            let wanted = next_capacity(&definition, items, more, self.grow_at_percent(&definition));
            let next = definition.resized(wanted, definition.spec.error)?;
            match self.redefine(handle, &next).await {
                Ok(()) => {
                    let why = if overfull { Why::Full } else { Why::Due };
                    self.tell_begun(handle, &definition, &next, why);
                }
                // Another node was faster: what it defined is built.
                Err(Error::Invalid(_)) if handle.definition().generation > definition.generation => {}
                Err(error) => return Err(error),
            }
        }
        self.build_and_tell(handle, is_next).await
    }

    /// Builds the newest generation, and tells that it answers if that is new.
    async fn build_and_tell(&self, handle: &Arc<Handle>, is_next: bool) -> Result<()> {
        let is_new = is_next || handle.is_behind();
        self.build(handle).await?;
        if is_new && !handle.is_behind() {
            self.tell_answers(handle);
        }
        Ok(())
    }

    /// Gives a filter another size or error rate, and builds it.
    pub(super) async fn resize(
        &self,
        handle: &Arc<Handle>,
        capacity: u64,
        error: f64,
        why: Why,
    ) -> Result<()> {
        let _one_at_a_time = handle.growing.lock().await;
        self.finish().await?;
        let definition = handle.definition();
        let items = handle.items_everywhere();
        if items > capacity {
            return Err(Error::Invalid(format!("a capacity of {capacity}; {items} keys are in the filter")));
        }
        let next = definition.resized(capacity, error)?;
        self.redefine(handle, &next).await?;
        self.tell_begun(handle, &definition, &next, why);
        self.build_and_tell(handle, true).await
    }

    /// Writes the next definition into the log of every slot that has a shard.
    async fn redefine(&self, handle: &Arc<Handle>, next: &Definition) -> Result<()> {
        let plan = umbel_filter::Plan::new(&next.spec, next.shards)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        if next.retain {
            // One shard at a time takes more memory than it gives back.
            let shard = u64::try_from(plan.geometry.bytes()).unwrap_or(u64::MAX);
            let all = self.share_of(u64::try_from(plan.bytes()).unwrap_or(u64::MAX), next.shards);
            let more = all.saturating_sub(handle.bytes()).saturating_add(shard.min(all));
            self.reserve(more, &next.name).await?;
        } else {
            let all = self.share_of(u64::try_from(plan.bytes()).unwrap_or(u64::MAX), next.shards);
            self.reserve(all.saturating_sub(handle.bytes()), &next.name).await?;
        }
        let define = Operation::Define(next.encode()?);
        if self.cluster.is_some() && next.shards > 1 {
            // Two nodes may define at the same time. The home decides whose it is, and all slots get the same.
            self.apply_to(handle, next.home(self.settings.slots), define.clone()).await?;
        }
        self.everywhere(handle.id(), next, &define).await
    }

    /// Builds the newest generation in every slot that has an older one, and of which this node is the first host. Other hosts build it
    /// when the log says that it answers.
    pub(super) async fn build(&self, handle: &Arc<Handle>) -> Result<()> {
        for slot in handle.slots().filter(|slot| self.is_first(self.lane(*slot).partition)) {
            while !self.build_shard(slot, handle.id()).await? {}
        }
        handle.recount();
        handle.removals.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Builds the newest generation of a shard; false if it was defined anew meanwhile.
    async fn build_shard(&self, number: u16, filter: u64) -> Result<bool> {
        let _busy = self.maintenance(number).lock().await;
        let lane = self.lane(number);
        let (definition, first_run, runs, parts) = {
            let mut turn = lane.turn.lock().await;
            let Some(slot) = turn.slot(self, number) else { return Ok(true) };
            if slot.state.shard(filter).is_some_and(|shard| shard.projection().is_none()) {
                self.load_into(slot, filter).await?;
            }
            let runs = slot.runs_of(filter);
            let Some(shard) = slot.state.shard_mut(filter).filter(|shard| shard.is_behind()) else {
                return Ok(true);
            };
            (shard.definition().clone(), shard.first_run(), runs, shard.freeze())
        };
        let mut next = self.project(filter, &definition, &runs).await?;
        next.take_all(&parts);
        loop {
            let mut turn = lane.turn.lock().await;
            let Some(slot) = turn.slot(self, number) else { return Ok(true) };
            let Some(shard) = slot.state.shard_mut(filter) else { return Ok(true) };
            if shard.definition().generation != definition.generation || shard.first_run() != first_run {
                return Ok(false);
            }
            if let Some(newest) = shard.newest().filter(|newest| newest.len() <= LAST_FINGERPRINTS) {
                next.take(newest);
                shard.offer(Arc::new(next.finish(&definition, Counts::default())));
                // The log says where the switch is, so that it is the same one whenever the log is folded.
                let switch =
                    Entry { filter, slot: number, request: Request::default(), operation: Operation::Switch };
                lane.submit_in_turn(self, &mut turn, switch).await?;
                return Ok(true);
            }
            let parts = shard.freeze();
            drop(turn);
            if let Some(newest) = parts.last() {
                next.take(newest);
            }
        }
    }

    /// Builds the newest generation of a shard while nothing else happens in the lane: the log says that it answers from here on.
    pub(super) async fn build_in_turn(&self, slot: &mut Slot, filter: u64) -> Result<()> {
        let runs = slot.runs_of(filter);
        let behind = slot.state.shard_mut(filter).filter(|shard| shard.is_behind() && !shard.has_offer());
        let Some(shard) = behind else { return Ok(()) };
        let (definition, parts) = (shard.definition().clone(), shard.freeze());
        let mut next = self.project(filter, &definition, &runs).await?;
        next.take_all(&parts);
        if let Some(shard) = slot.state.shard_mut(filter) {
            shard.offer(Arc::new(next.finish(&definition, Counts::default())));
        }
        Ok(())
    }

    /// Folds archived fingerprints into a new array.
    pub(super) async fn project(&self, filter: u64, definition: &Definition, runs: &[Run]) -> Result<Next> {
        let mut next = Next::new(definition, &self.means)?;
        if definition.spec.kind == Kind::Bloom {
            for run in runs {
                let mut scan = run.scan(filter);
                while let Some(keys) = scan.next_keys().await? {
                    next.fill(keys);
                }
            }
            return Ok(next);
        }
        let mut scan = merged(runs, filter)?;
        let mut counts = Vec::new();
        while let Some(tallies) = scan.next().await? {
            counts.clear();
            counts
                .extend(tallies.iter().filter_map(|tally| Some((tally.key, u32::try_from(tally.net).ok()?))));
            next.fill_counts(&counts);
        }
        Ok(next)
    }
}

/// A generation that is being built: nobody else has it yet.
pub(super) struct Next {
    filter: Filter,
    memory: Reservation,
}

impl Next {
    fn new(definition: &Definition, means: &Means) -> Result<Self> {
        let invalid = |error: umbel_filter::Error| Error::Invalid(error.to_string());
        let plan = umbel_filter::Plan::new(&definition.spec, definition.shards).map_err(invalid)?;
        let bytes = u64::try_from(plan.geometry.bytes()).unwrap_or(u64::MAX);
        let memory =
            means.budget.reserve(bytes, &format!("the next generation of a shard of {}", definition.name))?;
        let secret = means.secret_for(&definition.spec);
        let filter =
            Filter::with_geometry(&definition.spec, plan.geometry, secret, &means.limits).map_err(invalid)?;
        Ok(Self { filter, memory })
    }

    fn fill(&mut self, keys: &[Fingerprint]) {
        // Only chains can be full.
        let _ = self.filter.fill_fingerprints(keys);
    }

    fn fill_counts(&mut self, counts: &[(Fingerprint, u32)]) {
        let _ = self.filter.fill_counts(counts);
    }

    fn take_all(&mut self, parts: &[Arc<Newest>]) {
        parts.iter().for_each(|part| self.take(part));
    }

    /// Folds what came after the archive.
    fn take(&mut self, part: &Newest) {
        match part {
            Newest::Keys(keys) => self.fill(keys),
            Newest::Nets(nets) => {
                let added = nets.iter().filter_map(|(key, net)| Some((*key, u32::try_from(*net).ok()?)));
                self.fill_counts(&added.collect::<Vec<_>>());
                for (key, net) in nets {
                    for _ in *net..0 {
                        let _ = self.filter.remove_fingerprint(*key);
                    }
                }
            }
        }
    }

    pub(super) fn finish(self, definition: &Definition, counts: Counts) -> Projection {
        let layer = Arc::new(Layer::adopt(self.filter, self.memory));
        Projection::of(definition.generation, vec![layer], counts)
    }
}

/// The next capacity of a filter: by its factor, unless that has no room for what waits to be added. Then it is so large that it does
/// not grow again at once. How fast keys come does not count: until the next size is built, no more are taken than fit into this one.
fn next_capacity(definition: &Definition, items: u64, more: u64, grow_at_percent: u32) -> u64 {
    let Growth::Percent(percent) = definition.growth else { return definition.spec.capacity };
    let capacity = u128::from(definition.spec.capacity);
    let by_factor = (capacity * u128::from(percent)).div_ceil(100);
    let then = u128::from(items) + u128::from(more);
    let next =
        if then <= by_factor { by_factor } else { then * 100 / u128::from(grow_at_percent.max(1)) + 1 };
    u64::try_from(next).unwrap_or(u64::MAX).min(umbel_filter::limits::CAPACITY_MAX)
}

#[cfg(test)]
mod tests {
    use umbel_filter::Spec;

    use super::*;

    #[test]
    fn growth_follows_the_factor_unless_more_is_coming() {
        let definition =
            Definition { growth: Growth::Percent(150), ..Definition::new("f", Spec::bloom(1000, 0.01)) };
        assert_eq!(next_capacity(&definition, 800, 0, 80), 1500);
        assert_eq!(next_capacity(&definition, 800, 700, 80), 1500, "that fits");
        assert_eq!(next_capacity(&definition, 800, 701, 80), 1877);
        assert_eq!(next_capacity(&definition, 800, 8000, 80), 11_001);
        assert_eq!(next_capacity(&definition, u64::MAX, u64::MAX, 80), umbel_filter::limits::CAPACITY_MAX);
    }
}
