//! The registry: small values under names, for what all must agree on.

mod embedded;
mod image;
pub mod lock;
pub mod suite;

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use embedded::{EmbeddedRegistry, inspect};
pub use image::MAGIC as FILE_MAGIC;

use crate::limits::{REGISTRY_KEY_BYTES_MAX, REGISTRY_VALUE_BYTES_MAX};
use crate::{Error, Result};

/// Names with values, changed one at a time.
///
/// - Every change has a revision, greater than that of every change before it; a value's version is the revision of the change
///   that made it. A name that is deleted and made again has another version.
/// - `put` and `delete` change something only if the name is as `expected`; otherwise they tell how it is. Of several that expect
///   the same version, one succeeds.
/// - If they fail with an error, the change may have happened or not: read the value to know.
/// - Names put under a lease are deleted when it ends, at the earliest when its time has passed since it was last kept alive. A name is
///   under the lease of its last put alone.
/// - `changed` is a hint, not a history: when it returns, `list` again. It returns if anything under the prefix changed after the
///   revision, and may return without.
#[async_trait]
pub trait Registry: Debug + Send + Sync + 'static {
    /// The value of a name.
    async fn get(&self, name: &str) -> Result<Option<Versioned>>;

    /// All names that begin with `prefix`, in order, as they are at one revision.
    async fn list(&self, prefix: &str) -> Result<Listing>;

    /// Gives a name a value, if it is as expected; under a lease or for good.
    async fn put(&self, name: &str, value: Bytes, expected: Expected, lease: Option<Lease>)
    -> Result<Change>;

    /// Deletes a name, if it is as expected. One that is not there is deleted already.
    async fn delete(&self, name: &str, expected: Expected) -> Result<Change>;

    /// Waits until something under the prefix may have changed after a revision.
    async fn changed(&self, prefix: &str, after: u64) -> Result<()>;

    /// A lease that ends if it is not kept alive for `time`.
    async fn grant(&self, time: Duration) -> Result<Lease>;

    /// Begins the time of a lease anew; false if it has ended (rule L2 of docs/cluster-protocol.md).
    async fn keep_alive(&self, lease: Lease) -> Result<bool>;

    /// Ends a lease, and with it all names that were put under it.
    async fn revoke(&self, lease: Lease) -> Result<()>;
}

/// A value and when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Bytes,
    /// The revision of the change that made it.
    pub version: u64,
}

/// What a change demands of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Anything,
    /// That there is none.
    Absent,
    /// That its value has this version.
    Version(u64),
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was made, with this revision.
    Done(u64),
    /// The name was not as expected, but like this.
    Conflict(Option<Versioned>),
}

/// Names and values at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The revision; give it to `changed` to learn of what comes later.
    pub revision: u64,
    /// Names and their values, in order.
    pub entries: Vec<(String, Versioned)>,
}

/// The number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease(pub u64);

/// What every registry checks before it takes a name.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > REGISTRY_KEY_BYTES_MAX {
        let bytes = name.len();
        return Err(Error::Invalid(format!(
            "a name of {bytes} bytes; it must be 1 to {REGISTRY_KEY_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// What every registry checks before it takes a value.
pub fn check_value(value: &Bytes) -> Result<()> {
    if value.len() > REGISTRY_VALUE_BYTES_MAX {
        let bytes = value.len();
        return Err(Error::Invalid(format!(
            "a value of {bytes} bytes, over the limit of {REGISTRY_VALUE_BYTES_MAX}"
        )));
    }
    Ok(())
}
