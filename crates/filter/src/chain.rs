//! RedisBloom's scalable filter: a chain of classic filters, each larger and stricter than the one before it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::classic::{Classic, Sequence};
use crate::sizing::{self, Geometry, TIGHTENING};
use crate::sync::{AtomicU64, Ordering};
use crate::{Error, Fingerprint, Limits, Result};

#[derive(Debug)]
pub(crate) struct Chain {
    links: RwLock<Vec<Link>>,
    expansion: Option<u32>,
    limits: Limits,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) filter: Classic,
    /// Elements that this link was made for.
    pub(crate) capacity: u64,
    pub(crate) error: f64,
    /// Elements that were new when they were added here.
    pub(crate) items: AtomicU64,
}

impl Link {
    pub(crate) fn new(capacity: u64, error: f64, limits: &Limits) -> Result<Self> {
        Self::with_geometry(sizing::redisbloom(capacity, error), capacity, error, 0, limits)
    }

    pub(crate) fn with_geometry(
        geometry: Geometry,
        capacity: u64,
        error: f64,
        items: u64,
        limits: &Limits,
    ) -> Result<Self> {
        let Geometry::Classic { bits, hashes } = geometry else {
            return Err(Error::unsupported("a chain", "blocked geometry"));
        };
        geometry.check()?;
        let filter = Classic::new(Sequence::RedisBloom, bits, hashes, limits)?;
        Ok(Self { filter, capacity, error, items: AtomicU64::new(items) })
    }

    fn is_full(&self) -> bool {
        self.items.load(Ordering::Relaxed) >= self.capacity
    }
}

impl Chain {
    pub(crate) fn new(capacity: u64, error: f64, expansion: Option<u32>, limits: &Limits) -> Result<Self> {
        let first = Link::new(capacity, sizing::first_link_error(error, expansion), limits)?;
        Self::of(vec![first], expansion, limits)
    }

    pub(crate) fn of(links: Vec<Link>, expansion: Option<u32>, limits: &Limits) -> Result<Self> {
        if links.is_empty() {
            return Err(Error::invalid("number of sub-filters", "0; a chain has one or more"));
        }
        Ok(Self { links: RwLock::new(links), expansion, limits: limits.clone() })
    }

    pub(crate) fn expansion(&self) -> Option<u32> {
        self.expansion
    }

    pub(crate) fn links(&self) -> RwLockReadGuard<'_, Vec<Link>> {
        // Links are only ever pushed whole, so a panic elsewhere leaves nothing half done.
        self.links.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn links_mut(&mut self) -> &mut Vec<Link> {
        self.links.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, key: Fingerprint) -> bool {
        holds(&self.links(), key)
    }

    pub(crate) fn insert(&self, key: Fingerprint) -> Result<bool> {
        loop {
            let links = self.links();
            if holds(&links, key) {
                return Ok(false);
            }
            if let Some(newest) = links.last().filter(|link| !link.is_full()) {
                let new = newest.filter.insert(key);
                newest.items.fetch_add(u64::from(new), Ordering::Relaxed);
                return Ok(new);
            }
            drop(links);
            self.grow()?;
        }
    }

    /// The blocks of a key's bits in the newest link; those of older links count first.
    #[inline]
    pub(crate) fn blocks_touched(&self, key: Fingerprint, mut touched: impl FnMut(usize)) {
        if let Some((newest, older)) = self.links().split_last() {
            let first: usize = older.iter().map(|link| link.filter.array().blocks()).sum();
            newest.filter.blocks_touched(key).for_each(|block| touched(first + block));
        }
    }

    /// Elements that were new when they were added.
    pub(crate) fn items(&self) -> u64 {
        let links = self.links();
        links.iter().fold(0, |sum, link| sum.saturating_add(link.items.load(Ordering::Relaxed)))
    }

    /// Back to one empty link, of the first one's size.
    pub(crate) fn clear(&mut self) -> Result<()> {
        let first = self.links().first().map(|link| (link.filter.geometry(), link.capacity, link.error));
        if let Some((geometry, capacity, error)) = first {
            *self.links_mut() = vec![Link::with_geometry(geometry, capacity, error, 0, &self.limits)?];
        }
        Ok(())
    }

    /// Adds a link, unless another thread has done so meanwhile.
    fn grow(&self) -> Result<()> {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let Some(newest) = links.last().filter(|link| link.is_full()) else { return Ok(()) };
        let Some(expansion) = self.expansion else {
            return Err(Error::Full { capacity: newest.capacity });
        };
        self.limits.check_links(links.len() as u32 + 1)?;
        let capacity = newest.capacity.saturating_mul(expansion.into());
        let error = newest.error * TIGHTENING;
        let used: u64 = links.iter().map(|link| link.filter.array().bytes()).sum();
        let left = self.limits.filter_bytes_max.saturating_sub(used);
        let link = Link::new(capacity, error, &Limits { filter_bytes_max: left, ..self.limits.clone() })?;
        links.push(link);
        Ok(())
    }
}

/// Newest first, as RedisBloom searches.
fn holds(links: &[Link], key: Fingerprint) -> bool {
    links.iter().rev().any(|link| link.filter.contains(key))
}
