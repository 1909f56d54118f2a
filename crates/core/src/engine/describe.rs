//! What a filter is called, how long it lives, and what is remembered of it: all that changes without its arrays.
//!
//! A filter stays in the home that it was made in, whatever it is called. So a name may be held in any slot, and creations and
//! renamings come one after another.

use std::sync::Arc;

use bytes::Bytes;

use super::handle::Handle;
use super::requests::gone;
use super::{Engine, Shared};
use crate::definition::{Definition, Growth};
use crate::entry::{Entry, Operation, Request};
use crate::{Error, Result};

impl Engine {
    /// Gives a filter another name. If there is a filter of that name, this one takes its place (`replace`), or is refused. At no
    /// time is the name nobody's: whoever had it is dropped when the log says who has it now.
    pub async fn rename(&self, filter: &Arc<Handle>, name: &str, replace: bool) -> Result<()> {
        let shared = &self.shared;
        let _naming = shared.naming.lock().await;
        let next = Definition { name: name.to_owned(), ..shared.existing(filter)? };
        shared.rename(filter, &next, replace).await
    }

    /// Says when a filter is gone, in milliseconds since 1970, or that it stays.
    pub async fn expire(&self, filter: &Arc<Handle>, at: Option<u64>) -> Result<()> {
        let expires = at.filter(|at| *at != u64::MAX);
        self.shared.redescribe(filter, |now| Definition { expires, ..now }).await
    }

    /// Remembers something of a filter, at most 256 bytes, in place of what was remembered before.
    pub async fn label(&self, filter: &Arc<Handle>, labels: Bytes) -> Result<()> {
        self.shared.redescribe(filter, |now| Definition { labels: labels.clone(), ..now }).await
    }

    /// Says how full a filter is when it begins to grow, in percent, or that it does so as others do.
    pub async fn set_grow_at(&self, filter: &Arc<Handle>, percent: Option<u8>) -> Result<()> {
        self.shared.redescribe(filter, |now| Definition { grow_at: percent, ..now }).await
    }

    /// Says what happens when a filter fills up.
    pub async fn set_growth(&self, filter: &Arc<Handle>, growth: Growth) -> Result<()> {
        let shared = &self.shared;
        let _naming = shared.naming.lock().await;
        let next = Definition { growth, ..shared.existing(filter)? };
        shared.describe(filter, &next).await?;
        // Each shard refuses for itself when it is full; after a crash, all follow the home.
        shared.everywhere(filter.id(), &next, &Operation::Describe(next.encode()?)).await
    }
}

impl Shared {
    /// The definition of a filter that was not dropped.
    pub(super) fn existing(&self, filter: &Arc<Handle>) -> Result<Definition> {
        let now = self.clock.unix_millis();
        let exists = self.directory.exists(filter.id()) && !filter.is_expired(now);
        if exists { Ok((*filter.definition()).clone()) } else { Err(gone(filter)) }
    }

    async fn redescribe(
        &self,
        filter: &Arc<Handle>,
        change: impl Fn(Definition) -> Definition,
    ) -> Result<()> {
        let _naming = self.naming.lock().await;
        self.describe(filter, &change(self.existing(filter)?)).await
    }

    /// Gives a filter a name and the rest of its description at one place in the log. Whoever calls it has the naming.
    pub(super) async fn rename(&self, filter: &Arc<Handle>, next: &Definition, replace: bool) -> Result<()> {
        next.check()?;
        let holder = self.directory.named(&next.name).filter(|holder| holder.id() != filter.id());
        if let Some(holder) = holder.as_ref().filter(|_| !replace) {
            self.check_over(holder)?;
        }
        let mut next = next.clone();
        if let Some(holder) = &holder {
            self.drop_replaced(&next).await?;
            next.replaces = Some(holder.id());
        }
        self.describe(filter, &next).await?;
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
        if holder.is_expired(self.clock.unix_millis()) {
            return Ok(());
        }
        Err(Error::Invalid(format!("there is a filter {} already", holder.definition().name)))
    }

    /// Drops the filter that another one took the place of, if it is still there.
    pub(super) async fn drop_replaced(&self, by: &Definition) -> Result<()> {
        match by.replaces.filter(|id| self.directory.exists(*id)).and_then(|id| self.directory.numbered(id)) {
            Some(replaced) => Box::pin(self.drop_filter(&replaced)).await,
            None => Ok(()),
        }
    }

    async fn describe(&self, filter: &Arc<Handle>, next: &Definition) -> Result<()> {
        let slot = next.home(self.settings.slots);
        let operation = Operation::Describe(next.encode()?);
        let entry = Entry { filter: filter.id(), slot, request: Request::default(), operation };
        for applied in self.submit(vec![(self.lane(slot).partition, entry)]).await? {
            if let Some(why) = applied.refused {
                return Err(Error::Invalid(why));
            }
        }
        Ok(())
    }

    /// Drops filters whose time is over.
    pub(super) async fn drop_expired(&self) -> Result<()> {
        let now = self.clock.unix_millis();
        for filter in self.directory.those(|filter| filter.is_expired(now)) {
            let _naming = self.naming.lock().await;
            // It may have been given more time meanwhile.
            if filter.is_expired(now) {
                self.drop_filter(&filter).await?;
            }
        }
        Ok(())
    }
}
