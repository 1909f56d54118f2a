//! The union of filters: keys go through the log where they are known, and bits where they are not.

use std::sync::Arc;

use umbel_filter::{Fingerprint, Kind};

use super::handle::Handle;
use super::{Engine, Shared};
use crate::{Error, Result};

/// Keys that are added at once.
const KEYS_AT_ONCE: usize = 32 << 10;

impl Engine {
    /// Adds everything that other filters hold, and says how many keys were new.
    ///
    /// Filters that keep their keys must be of the same family; of those that do not, the bits are taken, and so all their arrays must
    /// be of the same shape. All of that is checked before anything changes.
    pub async fn merge(&self, into: &Arc<Handle>, from: &[Arc<Handle>]) -> Result<u64> {
        let shared = &self.shared;
        let mut sources: Vec<Vec<Arc<Handle>>> = Vec::new();
        for source in from.iter().filter(|source| source.id() != into.id()) {
            let buckets = shared.live_buckets(source).await?;
            sources.push(buckets.unwrap_or_else(|| vec![Arc::clone(source)]));
        }
        for part in sources.iter().flatten() {
            shared.check_union(into, part).await?;
        }
        let mut new = 0;
        for parts in &sources {
            for (number, part) in parts.iter().enumerate() {
                new += if part.definition().retain {
                    self.merge_keys(into, part, &parts[..number]).await?
                } else {
                    shared.merge_bits(into, part).await?
                };
            }
        }
        Ok(new)
    }

    /// Adds the keys of a filter, but for those that came with others before.
    async fn merge_keys(
        &self,
        into: &Arc<Handle>,
        from: &Arc<Handle>,
        before: &[Arc<Handle>],
    ) -> Result<u64> {
        let counted = into.is_erasable() && from.is_erasable();
        let (mut new, mut batch) = (0, Vec::with_capacity(KEYS_AT_ONCE));
        for slot in from.slots() {
            let mut keys = self.shared.keys_of(from, slot).await?;
            while let Some(counts) = keys.next().await? {
                let mut came = vec![0; counts.len()];
                // A window holds a key once, however many of its buckets do. Where nothing is counted, that makes no difference.
                for other in before.iter().filter(|_| into.is_erasable()) {
                    let asked: Vec<Fingerprint> = counts.iter().map(|(key, _)| *key).collect();
                    let held = self.verify(other, &asked).await?;
                    came.iter_mut().zip(held).for_each(|(came, held)| *came += held);
                }
                let counts = counts.iter().zip(came).filter(|(_, came)| *came == 0);
                for ((key, count), _) in counts {
                    for _ in 0..if counted { *count } else { 1 } {
                        batch.push(*key);
                        if batch.len() == KEYS_AT_ONCE {
                            new += self.add_all(into, &mut batch).await?;
                        }
                    }
                }
            }
        }
        Ok(new + self.add_all(into, &mut batch).await?)
    }

    async fn add_all(&self, into: &Arc<Handle>, batch: &mut Vec<Fingerprint>) -> Result<u64> {
        let written = self.add(into, batch).await?;
        batch.clear();
        match written.refused {
            Some(why) => Err(Error::Invalid(format!("only some keys were merged: {why}"))),
            None => Ok(written.answers.iter().filter(|new| **new == Some(true)).count() as u64),
        }
    }
}

impl Shared {
    /// Says why a filter cannot take in another, if it cannot.
    async fn check_union(&self, into: &Arc<Handle>, from: &Arc<Handle>) -> Result<()> {
        let (ours, theirs) = (into.definition(), from.definition());
        let refuse = |why: &str| {
            Err(Error::Invalid(format!(
                "the filter {} cannot be merged into {}: {why}",
                theirs.name, ours.name
            )))
        };
        if ours.spec.family != theirs.spec.family {
            return refuse("they are of different families");
        }
        if theirs.retain {
            return Ok(());
        }
        if ours.retain || ours.window.is_some() {
            return refuse("it did not keep its keys, and the other keeps them");
        }
        if ours.spec.kind != Kind::Bloom || theirs.spec.kind != Kind::Bloom {
            return refuse("it did not keep its keys, and counters cannot be joined without them");
        }
        for (ours, theirs) in pairs(into, from)? {
            let (ours, theirs) = (self.arrays_of(into, ours).await?, self.arrays_of(from, theirs).await?);
            let same_shape = ours.filters().count() == theirs.filters().count()
                && ours.filters().zip(theirs.filters()).all(|(ours, theirs)| {
                    ours.spec().layout == theirs.spec().layout
                        && ours.geometry() == theirs.geometry()
                        && ours.items().is_none()
                });
            if !same_shape {
                return refuse("it did not keep its keys, and their arrays are not of the same shape");
            }
        }
        Ok(())
    }

    async fn merge_bits(&self, into: &Arc<Handle>, from: &Arc<Handle>) -> Result<u64> {
        let mut new = 0;
        for (slot, theirs) in pairs(into, from)? {
            let (ours, theirs) = (self.arrays_of(into, slot).await?, self.arrays_of(from, theirs).await?);
            for (number, (ours, theirs)) in ours.filters().zip(theirs.filters()).enumerate() {
                let both = ours.intersection(theirs).map_err(|error| Error::Invalid(error.to_string()))?;
                let more = (theirs.stats().cardinality - both).clamp(0.0, u64::MAX as f64) as u64;
                self.load_layer(into, slot, number as u32, theirs, more).await?;
                new += more;
            }
        }
        Ok(new)
    }
}

/// The slots of two filters, shard by shard.
fn pairs(into: &Handle, from: &Handle) -> Result<Vec<(u16, u16)>> {
    if into.slots().count() != from.slots().count() {
        let (ours, theirs) = (into.definition(), from.definition());
        return Err(Error::Invalid(format!(
            "the filter {} has {} shards and does not keep its keys; {} has {}",
            theirs.name, theirs.shards, ours.name, ours.shards
        )));
    }
    Ok(into.slots().zip(from.slots()).collect())
}
