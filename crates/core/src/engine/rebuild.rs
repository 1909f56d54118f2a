//! Filters that are filled anew from a source of truth, while those whose place they are to take go on serving.
//!
//! ```text
//!  begin: Define --> fill: keys of the source; the fold adds what others do meanwhile --> finish: all slots are filled,
//!                                                                                   then one entry gives it the name
//! ```
//!
//! Such a filter has an internal name that belongs to the filter which it is for, so there is one at a time, also where there are several
//! nodes. Its home and its shards are those of the other one: an entry that is for the one is folded where the other has its part.

use std::sync::Arc;

use umbel_filter::{Fingerprint, Kind, Layout, Spec};

use super::handle::Handle;
use super::requests::{Written, check_has_array};
use super::{Engine, Shared};
use crate::definition::{Definition, Growth, Mirror, rebuild_name};
use crate::entry::Request;
use crate::{Error, Result};

/// A filter holds far fewer keys than the one whose place it takes if it has less than one in so many.
const FAR_FEWER: u64 = 2;

/// What a filter that is filled anew is to be, where that is not what the other one is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Refill {
    /// Elements.
    pub capacity: Option<u64>,
    /// The error rate.
    pub error: Option<f64>,
    /// Whether keys can be removed.
    pub kind: Option<Kind>,
    /// How its bits lie. One that consists of sub-filters gets the native layout, unless another is asked for.
    pub layout: Option<Layout>,
    /// Whether its fingerprints are kept; they are, unless somebody says otherwise.
    pub retain: Option<bool>,
}

impl Refill {
    /// What it is then.
    fn definition(&self, filter: u64, now: &Definition, began_ms: u64) -> Definition {
        let layout = if now.is_chain() { Layout::Blocked } else { now.spec.layout };
        let spec = Spec {
            capacity: self.capacity.unwrap_or(now.spec.capacity),
            error: self.error.unwrap_or(now.spec.error),
            kind: self.kind.unwrap_or(now.spec.kind),
            layout: self.layout.unwrap_or(layout),
            ..now.spec
        };
        let mirror = Mirror { of: filter, began_ms, capacity: spec.capacity, is_filled: false };
        Definition {
            name: rebuild_name(filter),
            origin: now.origin.clone(),
            shards: now.shards,
            retain: self.retain.unwrap_or(true),
            // It takes all that the source has. When it is filled, it grows as the other one does.
            growth: if now.growth == Growth::Fixed { Growth::default() } else { now.growth },
            mirrors: Some(mirror),
            ..Definition::new("", spec)
        }
    }

    /// Whether a filter that was begun is what is asked for. What nobody asks for may be anything.
    fn is_like(&self, begun: &Definition) -> bool {
        let capacity = begun.mirrors.map(|mirror| mirror.capacity);
        self.capacity.is_none_or(|asked| Some(asked) == capacity)
            && self.error.is_none_or(|asked| asked.to_bits() == begun.spec.error.to_bits())
            && self.kind.is_none_or(|asked| asked == begun.spec.kind)
            && self.layout.is_none_or(|asked| asked == begun.spec.layout)
            && self.retain.is_none_or(|asked| asked == begun.retain)
    }
}

impl Engine {
    /// Begins to fill a filter anew: what is added to it and removed from it from here on, the new one takes and loses too. Gives the
    /// new one, and whether it had been begun before, with nothing that contradicts what is asked for: then it goes on.
    pub async fn begin_rebuild(&self, filter: &Arc<Handle>, asked: &Refill) -> Result<(Arc<Handle>, bool)> {
        let shared = &self.shared;
        let now = shared.existing(filter)?;
        check_has_array(&now)?;
        let definition = asked.definition(filter.id(), &now, shared.clock.unix_millis());
        definition.check()?;
        let (rebuild, is_resumed) = match self.rebuild_of(filter).await? {
            Some(begun) => (begun, true),
            None => match shared.make(definition).await {
                Ok(made) => (made, false),
                // Somebody may have been faster.
                Err(error) => {
                    let error = error.reworded(|why| why.replace(&rebuild_name(filter.id()), &now.name));
                    (self.rebuild_of(filter).await?.ok_or(error)?, true)
                }
            },
        };
        let begun = rebuild.definition();
        if is_resumed && !asked.is_like(&begun) {
            return Err(Error::Invalid(format!(
                "a rebuild of the filter {} was begun otherwise: with capacity {}, error {}, kind {} and layout {}; \
                 go on with it or give it up",
                now.name,
                begun.mirrors.map_or(begun.spec.capacity, |mirror| mirror.capacity),
                begun.spec.error,
                begun.spec.kind,
                begun.spec.layout
            )));
        }
        if is_resumed {
            // Whoever began it may have failed half-way. No key of the source counts before all slots have it.
            let _naming = shared.naming.lock().await;
            shared.existing(&rebuild)?;
            shared.finish().await?;
            if begun.generation == 0 && begun.shards > 1 {
                shared.define_everywhere(rebuild.id(), &begun).await?;
            }
        }
        shared.sync_all().await?;
        Ok((rebuild, is_resumed))
    }

    /// The filter that is being filled to take the place of this one.
    pub async fn rebuild_of(&self, filter: &Handle) -> Result<Option<Arc<Handle>>> {
        self.shared.prove_catalog().await?;
        Ok(self.shared.rebuild_of(filter.id()))
    }

    /// Adds keys of the source. One that was removed since it was begun is not added, and in a filter that counts one that is there is
    /// not added again: so keys may come twice.
    pub async fn fill(
        &self,
        rebuild: &Arc<Handle>,
        keys: &[Fingerprint],
        request: Request,
    ) -> Result<Written> {
        let definition = rebuild.definition();
        if !definition.is_filling() || !self.shared.directory.exists(rebuild.id()) {
            return Err(Error::Invalid("the rebuild is finished or given up: it takes no more keys".into()));
        }
        let added = self.shared.add(rebuild, keys, request).await;
        added.map_err(|error| self.shared.in_names_of_users(rebuild, error))
    }

    /// Why a filter that is being filled cannot take the other's place any more, as far as it is known on this node.
    pub async fn rebuild_failure(&self, rebuild: &Handle) -> Option<String> {
        for number in rebuild.slots() {
            let mut turn = self.shared.lane(number).turn.lock().await;
            let shard = turn.slot(&self.shared, number).and_then(|slot| slot.state.shard(rebuild.id()));
            if let Some(why) = shard.and_then(|shard| shard.followed().failed()) {
                return Some(why.to_owned());
            }
        }
        None
    }

    /// Lets the filter that was filled take the place of this one: at one place in the log it has the name, and the other is dropped.
    /// One without keys, or with far fewer than the other has, does so only if it is forced to.
    pub async fn finish_rebuild(&self, filter: &Arc<Handle>, force: bool) -> Result<Arc<Handle>> {
        let Some(rebuild) = self.rebuild_of(filter).await? else {
            return Err(no_rebuild(&filter.definition().name));
        };
        let (now, next) = (self.counts(filter).await?.items, self.counts(&rebuild).await?.items);
        if !force && (next == 0 || next < now / FAR_FEWER) {
            return Err(Error::Invalid(format!(
                "the rebuild holds {next} keys and the filter {} holds {now}: it takes its place only if it is forced to",
                filter.definition().name
            )));
        }
        let taken = match self.shared.make_room(&rebuild, 0).await {
            Ok(()) => self.shared.take_place(filter, &rebuild).await,
            Err(error) => Err(error),
        };
        taken.map_err(|error| self.shared.in_names_of_users(&rebuild, error))?;
        Ok(rebuild)
    }

    /// Gives up filling a filter anew. The one whose place it was to take is as if nobody had begun.
    pub async fn abort_rebuild(&self, filter: &Arc<Handle>) -> Result<()> {
        let _naming = self.shared.naming.lock().await;
        match self.rebuild_of(filter).await? {
            Some(rebuild) => self.shared.drop_filter(&rebuild).await,
            None => Err(no_rebuild(&filter.definition().name)),
        }
    }
}

fn no_rebuild(name: &str) -> Error {
    Error::Invalid(format!("there is no rebuild of the filter {name}"))
}

impl Shared {
    pub(super) fn rebuild_of(&self, filter: u64) -> Option<Arc<Handle>> {
        self.directory.named(&rebuild_name(filter))
    }

    async fn take_place(&self, filter: &Arc<Handle>, rebuild: &Arc<Handle>) -> Result<()> {
        let _naming = self.naming.lock().await;
        let now = self.existing(filter)?;
        let begun = self.existing(rebuild)?;
        let Some(mirror) = begun.mirrors.filter(|_| begun.is_rebuild()) else {
            return Err(no_rebuild(&now.name));
        };
        let mirrors = Some(Mirror { is_filled: true, ..mirror });
        let filled = Definition { growth: now.growth, grow_at: now.grow_at, mirrors, ..begun.clone() };
        // A slot in which it failed refuses. So does the home, if another node was faster: the filter has the name by then.
        self.describe_elsewhere(rebuild, &filled).await?;
        self.describe(rebuild, &begun, &filled).await?;
        // If its home alone were synced, a power cut could leave it with the name and without some of its keys.
        self.sync_all().await?;
        let Definition { name, expires, labels, .. } = now;
        let next = Definition { name, expires, labels, ..filled.clone() };
        self.rename(rebuild, &filled, &next, true).await
    }

    /// What is in the log of any partition survives a power cut from here on.
    pub(super) async fn sync_all(&self) -> Result<()> {
        for lane in &self.lanes {
            self.log.sync(lane.partition).await?;
        }
        Ok(())
    }

    /// The filter that was filled to take the place of another, for whoever still has that one at hand: it may be gone in some slots
    /// already, or long ago, and its successor's successor have the name by now.
    pub(super) async fn successor(&self, filter: &Handle) -> Result<Option<Arc<Handle>>> {
        self.prove_catalog().await?;
        let old = filter.definition();
        let follows = |next: &Arc<Handle>| {
            let now = next.definition();
            next.id() != filter.id()
                && now.origin == old.origin
                && now.mirrors.is_some_and(|mirror| mirror.is_filled)
        };
        Ok(self.directory.named(&old.name).filter(follows))
    }

    /// Drops what is filled for filters that are gone: a crash came between the end of the one and that of the other.
    pub(super) async fn drop_lost_rebuilds(&self) -> Result<()> {
        let is_lost = |handle: &Handle| {
            let definition = handle.definition();
            definition.is_rebuild()
                && definition.mirrors.is_some_and(|mirror| !self.directory.exists(mirror.of))
        };
        for rebuild in self.directory.unsorted().into_iter().filter(|handle| is_lost(handle)) {
            self.drop_filter(&rebuild).await?;
        }
        Ok(())
    }
}
