//! Memory: filters that nobody uses are left on disk, and come back when they are asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handle::Handle;
use super::lane::Slot;
use super::{Engine, Shared};
use crate::fold::Newest;
use crate::{Error, Result};

impl Engine {
    /// Leaves a filter on disk until it is used again. False if it is in use right now.
    pub async fn unload(&self, filter: &Arc<Handle>) -> Result<bool> {
        self.shared.unload(filter).await
    }
}

impl Shared {
    /// Makes sure that there is room for so many bytes: filters that nobody uses make way.
    pub(super) async fn reserve(&self, bytes: u64, what: &str) -> Result<()> {
        if let Err(refused) = self.try_reserve(bytes, what).await {
            // Everybody may have been in use the first time, because nobody had looked before.
            return self.try_reserve(bytes, what).await.map_err(|_| refused);
        }
        Ok(())
    }

    async fn try_reserve(&self, bytes: u64, what: &str) -> Result<()> {
        let budget = &self.means.budget;
        let mut refused = match budget.reserve(bytes, what) {
            // Whoever takes the memory counts it; this was to know that there is some.
            Ok(_) => return Ok(()),
            Err(refused) => refused,
        };
        if bytes > budget.limit() {
            return Err(refused);
        }
        for idle in self.directory.all() {
            let asks = idle.definition().name == what;
            // What follows another filter has to be there whenever that one changes.
            let stays = idle.is_window() || idle.definition().is_rebuild();
            if idle.used.swap(false, Ordering::Relaxed) || stays || idle.bytes() == 0 || asks {
                continue;
            }
            // One that cannot be unloaded now is no reason to give up.
            if self.unload(&idle).await.unwrap_or(false) {
                match budget.reserve(bytes, what) {
                    Ok(_) => return Ok(()),
                    Err(still) => refused = still,
                }
            }
        }
        Err(refused)
    }

    /// Brings a filter into memory.
    pub(super) async fn load(&self, filter: &Arc<Handle>) -> Result<()> {
        filter.used.store(true, Ordering::Relaxed);
        if filter.is_window() {
            return self.load_buckets(filter).await;
        }
        if filter.is_resident() {
            return Ok(());
        }
        for number in filter.slots().filter(|slot| self.directory.is_hosted(*slot)) {
            if filter.projection(number).is_some() {
                continue;
            }
            let wanted = {
                let mut turn = self.lane(number).turn.lock().await;
                let slot = turn.slot(self, number);
                slot.and_then(|slot| slot.stored.get(&filter.id()).map(super::stored::Stored::bytes))
                    .unwrap_or(0)
            };
            self.reserve(wanted, &filter.definition().name).await?;
            let mut turn = self.lane(number).turn.lock().await;
            let Some(slot) = turn.slot(self, number) else { continue };
            self.load_into(slot, filter.id()).await?;
        }
        Ok(())
    }

    /// Brings a slot's part of a filter into memory, if it is there and on disk.
    pub(super) async fn load_into(&self, slot: &mut Slot, filter: u64) -> Result<()> {
        let Some(shard) = slot.state.shard(filter).filter(|shard| shard.projection().is_none()) else {
            return Ok(());
        };
        let definition = shard.definition().clone();
        let Some(stored) = slot.stored.get(&filter) else {
            return Err(Error::Corrupt(format!("nothing is stored of the filter {}", definition.name)));
        };
        let loaded = match stored.load(&*self.blobs, &definition.name, &self.means).await {
            // The archive holds all that the array held.
            Err(Error::Corrupt(_)) if definition.retain && !definition.is_chain() => {
                let counts = stored.counts;
                self.project(filter, &definition, &slot.runs_of(filter)).await?.finish(&definition, counts)
            }
            loaded => loaded?,
        };
        let loaded = Arc::new(loaded);
        if let Some(stored) = slot.stored.get_mut(&filter)
            && stored.generation == loaded.generation()
        {
            stored.of = Arc::downgrade(&loaded);
        }
        if let Some(shard) = slot.state.shard_mut(filter) {
            shard.set_projection(Some(loaded));
        }
        self.show(slot, filter)
    }

    /// Leaves a filter on disk, with a checkpoint that has everything. False if it is in use meanwhile.
    pub(super) async fn unload(&self, filter: &Arc<Handle>) -> Result<bool> {
        if self.cluster.is_some() {
            // The other hosts of a slot keep it in memory too, and would have to be asked.
            return Ok(false);
        }
        let mut all = true;
        for bucket in self.live_buckets(filter).await?.unwrap_or_default() {
            all &= Box::pin(self.unload(&bucket)).await?;
        }
        if filter.is_window() {
            return Ok(all);
        }
        for number in filter.slots() {
            self.checkpoint(number).await?;
            let _busy = self.maintenance(number).lock().await;
            let mut turn = self.lane(number).turn.lock().await;
            let Some(slot) = turn.slot(self, number) else { continue };
            let Some(stored) = slot.stored.get(&filter.id()) else { return Ok(false) };
            let Some(shard) = slot.state.shard(filter.id()) else { continue };
            let Some(projection) = shard.projection() else { continue };
            let changed = projection.take_dirty();
            // Where counters are stuck, an add changes nothing but the counts.
            let same = stored.is_of(projection) && stored.counts == projection.counts();
            let clean = changed.is_empty() && same && shard.newest().is_none_or(Newest::is_empty);
            projection.mark_dirty(changed);
            if clean {
                if let Some(shard) = slot.state.shard_mut(filter.id()) {
                    shard.set_projection(None);
                }
                self.show(slot, filter.id())?;
            }
            all &= clean;
        }
        Ok(all)
    }
}
