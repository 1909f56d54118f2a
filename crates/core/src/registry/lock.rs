//! Locks over any registry, with numbers that a late holder is refused by.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::{Change, Expected, Lease, Registry};
use crate::{Error, Result};

/// A lock that somebody has: a name put under a lease.
///
/// A lease can end without its holder noticing, say while it sleeps. So what the lock protects has to be asked with the number,
/// which is greater for every later holder ([`Fence`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The name of the lock.
    pub name: String,
    /// The revision at which it was taken.
    pub number: u64,
}

/// Takes a lock if nobody has it. `owner` has to be of this holder alone: it tells apart who was first when an answer is lost.
pub async fn acquire(
    registry: &dyn Registry,
    name: &str,
    owner: Bytes,
    lease: Lease,
) -> Result<Option<Held>> {
    let held = |number| Some(Held { name: name.to_owned(), number });
    match registry.put(name, owner.clone(), Expected::Absent, Some(lease)).await {
        Ok(Change::Done(number)) => Ok(held(number)),
        Ok(Change::Conflict(Some(current))) if current.value == owner => Ok(held(current.version)),
        Ok(Change::Conflict(_)) => Ok(None),
        // The put may have happened: the value tells.
        Err(Error::Retry(why)) => match registry.get(name).await? {
            Some(current) if current.value == owner => Ok(held(current.version)),
            Some(_) => Ok(None),
            None => Err(Error::Retry(why)),
        },
        Err(error) => Err(error),
    }
}

/// Lets go of a lock; nothing happens if somebody else has it by now.
pub async fn release(registry: &dyn Registry, held: &Held) -> Result<()> {
    registry.delete(&held.name, Expected::Version(held.number)).await.map(drop)
}

/// Stands before what a lock protects, and lets through only who took it last.
#[derive(Debug, Default)]
pub struct Fence(AtomicU64);

impl Fence {
    /// Whether a holder may still act: nobody came with a greater number.
    pub fn passes(&self, number: u64) -> bool {
        self.0.fetch_max(number, Ordering::SeqCst) <= number
    }
}
