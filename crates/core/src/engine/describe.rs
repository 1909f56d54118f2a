//! What a filter is called, how long it lives, and what is remembered of it: all that changes without its arrays.
//!
//! A filter stays in the home that it was made in, whatever it is called. So a name may be held in any slot, and creations and
//! renamings come one after another.

use std::sync::Arc;

use bytes::Bytes;

use super::handle::Handle;
use super::requests::{gone, refused};
use super::window::window_of;
use super::{Engine, Shared};
use crate::definition::{Definition, Growth};
use crate::entry::{Entry, Operation, Request};
use crate::fold::name_taken;
use crate::{Error, Result};

/// How often a change is made again because another node changed the same filter at the same time.
const TRIES: usize = 16;

impl Engine {
    /// Gives a filter another name. If there is a filter of that name, this one takes its place (`replace`), or is refused. At no
    /// time is the name nobody's: whoever had it is dropped when the log says who has it now.
    pub async fn rename(&self, filter: &Arc<Handle>, name: &str, replace: bool) -> Result<()> {
        let from = filter.definition().name.clone();
        self.rename_from(filter, &from, name, replace).await
    }

    /// The same for a filter that was found by the name `from`. If it has another name by now, nothing is done: of two renamings of
    /// one name, wherever they were asked for, the first in the log takes effect.
    pub async fn rename_from(
        &self,
        filter: &Arc<Handle>,
        from: &str,
        name: &str,
        replace: bool,
    ) -> Result<()> {
        let shared = &self.shared;
        let _naming = shared.naming.lock().await;
        let mut tries = 0;
        loop {
            let now = shared.existing(filter)?;
            if now.name != from {
                let why = format!("the filter {from} got another name, {}", now.name);
                return Err(Error::Invalid(why));
            }
            let next = Definition { name: name.to_owned(), ..now.clone() };
            let renamed = shared.rename(filter, &now, &next, replace).await;
            tries += 1;
            let is_renamed = filter.definition().name != from;
            if renamed.is_ok() || is_renamed || tries >= TRIES || !shared.is_changed(filter, &now) {
                return renamed;
            }
        }
    }

    /// Says when a filter is gone, in milliseconds since 1970, or that it stays.
    pub async fn expire(&self, filter: &Arc<Handle>, at: Option<u64>) -> Result<()> {
        self.expire_if(filter, at, |_| true).await.map(drop)
    }

    /// The same if what the filter has allows it, where the log puts the request; says whether it did.
    pub async fn expire_if(
        &self,
        filter: &Arc<Handle>,
        at: Option<u64>,
        allows: impl Fn(Option<u64>) -> bool,
    ) -> Result<bool> {
        let expires = at.filter(|at| *at != u64::MAX);
        let change = |now: Definition| allows(now.expires).then_some(Definition { expires, ..now });
        let _naming = self.shared.naming.lock().await;
        self.shared.redescribe(filter, change).await
    }

    /// Remembers something of a filter, at most 256 bytes, in place of what was remembered before.
    pub async fn label(&self, filter: &Arc<Handle>, labels: Bytes) -> Result<()> {
        let _naming = self.shared.naming.lock().await;
        let change = |now| Some(Definition { labels: labels.clone(), ..now });
        self.shared.redescribe(filter, change).await.map(drop)
    }

    /// Says how full a filter is when it begins to grow, in percent, or that it does so as others do.
    pub async fn set_grow_at(&self, filter: &Arc<Handle>, percent: Option<u8>) -> Result<()> {
        let _naming = self.shared.naming.lock().await;
        self.shared.redescribe(filter, |now| Some(Definition { grow_at: percent, ..now })).await.map(drop)
    }

    /// Says what happens when a filter fills up.
    pub async fn set_growth(&self, filter: &Arc<Handle>, growth: Growth) -> Result<()> {
        let shared = &self.shared;
        let _naming = shared.naming.lock().await;
        shared.redescribe(filter, |now| Some(Definition { growth, ..now })).await?;
        // Each shard refuses for itself when it is full; after a crash, all follow the home.
        shared.describe_elsewhere(filter, &shared.existing(filter)?).await
    }
}

impl Shared {
    /// The time by which filters are over that expire, in milliseconds since 1970.
    pub(super) fn expiry_now(&self) -> u64 {
        self.pace.expiry_ms(&*self.clock)
    }

    /// Whether a filter's time is over.
    pub(super) fn is_over(&self, filter: &Handle) -> bool {
        if !filter.expires() {
            return false;
        }
        self.is_bucket_over(filter).unwrap_or_else(|| filter.is_expired(self.expiry_now()))
    }

    /// The definition of a filter that was not dropped.
    pub(super) fn existing(&self, filter: &Arc<Handle>) -> Result<Definition> {
        let exists = self.directory.exists(filter.id()) && !self.is_over(filter);
        if exists { Ok((*filter.definition()).clone()) } else { Err(gone(filter)) }
    }

    /// An error of a filter that no user made, in the name of the one that it belongs to: a bucket to its window, and one that is being
    /// filled to the one whose place it is to take.
    pub(super) fn in_names_of_users(&self, filter: &Handle, error: Error) -> Error {
        let definition = filter.definition();
        if !definition.is_internal() {
            return error;
        }
        let of = definition.mirrors.map(|mirror| mirror.of).or_else(|| window_of(&definition));
        let owner = of.and_then(|of| self.directory.numbered(of)).map(|owner| owner.definition());
        let name = owner.as_ref().map_or("that is being imported", |owner| &owner.name);
        error.reworded(|why| why.replace(&definition.name, name))
    }

    /// Changes the description that a filter has where the log puts the change; false if the change is not wanted for it. The caller
    /// has the naming.
    pub(super) async fn redescribe(
        &self,
        filter: &Arc<Handle>,
        change: impl Fn(Definition) -> Option<Definition>,
    ) -> Result<bool> {
        let mut tries = 0;
        loop {
            let now = self.existing(filter)?;
            let Some(next) = change(now.clone()) else { return Ok(false) };
            let described = self.describe(filter, &now, &next).await;
            tries += 1;
            if described.is_ok() || tries >= TRIES || !self.is_changed(filter, &now) {
                return described.map(|()| true);
            }
        }
    }

    /// Whether another node changed a description since it was read. What was refused for that is tried again.
    fn is_changed(&self, filter: &Arc<Handle>, since: &Definition) -> bool {
        self.existing(filter).is_ok_and(|now| now.description() != since.description())
    }

    /// Gives a filter a name and the rest of its description at one place in the log, if its description is still `now` there. The
    /// caller has the naming.
    pub(super) async fn rename(
        &self,
        filter: &Arc<Handle>,
        now: &Definition,
        next: &Definition,
        replace: bool,
    ) -> Result<()> {
        next.check()?;
        self.prove_names().await?;
        let holder = self.directory.named(&next.name).filter(|holder| holder.id() != filter.id());
        if let Some(holder) = holder.as_ref().filter(|_| !replace) {
            self.check_over(holder)?;
        }
        let mut next = next.clone();
        if let Some(holder) = &holder {
            self.drop_replaced(&next).await?;
            next.replaces = Some(holder.id());
        }
        self.describe(filter, now, &next).await?;
        // The old name may be taken by another filter in another partition, and must not come back then; nor may the one that is
        // replaced go before it is known that it is.
        let home = next.home(self.settings.slots);
        self.log.sync(self.lane(home).partition).await?;
        let Some(holder) = holder else { return Ok(()) };
        let dropped = self.drop_filter(&holder).await;
        if dropped.is_err() {
            // It has no name any more, and goes as soon as it can.
            self.work.is_unfinished();
        }
        dropped
    }

    /// Makes sure that no filter has the name. Whoever calls it has the naming.
    pub(super) async fn free_name(&self, name: &str) -> Result<()> {
        let Some(holder) = self.directory.named(name) else { return Ok(()) };
        self.check_over(&holder)?;
        self.drop_filter(&holder).await
    }

    /// Refuses a name, unless the time of the filter that has it is over.
    fn check_over(&self, holder: &Handle) -> Result<()> {
        if self.is_over(holder) {
            return Ok(());
        }
        Err(Error::Invalid(name_taken(&holder.definition().name)))
    }

    /// Drops the filter that another one took the place of, if it is still there.
    pub(super) async fn drop_replaced(&self, by: &Definition) -> Result<()> {
        match by.replaces.filter(|id| self.directory.exists(*id)).and_then(|id| self.directory.numbered(id)) {
            Some(replaced) => Box::pin(self.drop_filter(&replaced)).await,
            None => Ok(()),
        }
    }

    /// Changes the description in the home, if it is still `now` where the log puts the change.
    pub(super) async fn describe(
        &self,
        filter: &Arc<Handle>,
        now: &Definition,
        next: &Definition,
    ) -> Result<()> {
        let slot = next.home(self.settings.slots);
        let operation = Operation::Redescribe { from: now.description(), definition: next.encode()? };
        let entry = Entry { filter: filter.id(), slot, request: Request::default(), operation };
        for applied in self.submit(vec![(self.lane(slot).partition, entry)]).await? {
            if let Some(why) = applied.refused {
                return Err(refused(filter, why));
            }
        }
        Ok(())
    }

    /// Describes a filter in all slots but its home. There, the description is changed only from the one that it has.
    pub(super) async fn describe_elsewhere(&self, filter: &Handle, next: &Definition) -> Result<()> {
        let (home, operation) = (next.home(self.settings.slots), Operation::Describe(next.encode()?));
        let others = filter.slots().filter(|slot| *slot != home).map(|slot| {
            let request = Request::default();
            let entry = Entry { filter: filter.id(), slot, request, operation: operation.clone() };
            (self.lane(slot).partition, entry)
        });
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            return Ok(());
        }
        let described = self.submit(others).await;
        if described.is_err() {
            self.work.is_unfinished();
        }
        match described?.into_iter().find_map(|applied| applied.refused) {
            Some(why) => Err(refused(filter, why)),
            None => Ok(()),
        }
    }

    /// Drops filters whose time is over.
    pub(super) async fn drop_expired(&self) -> Result<()> {
        let now = self.expiry_now().max(self.window_now());
        for filter in self.directory.those(|filter| filter.is_expired(now)) {
            if !self.is_over(&filter) {
                continue;
            }
            let _naming = self.naming.lock().await;
            // It may have been given more time meanwhile.
            if self.is_over(&filter) {
                self.drop_filter(&filter).await?;
            }
        }
        Ok(())
    }
}
