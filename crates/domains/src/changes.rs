//! Records that are added, changed and erased, and a filter that hears of each of it once.
//!
//! ```text
//!  one transaction: [ the record ][ a row of the outbox ]       neither is there without the other
//!                                        |
//!            claim: rows get the number of a batch, for good
//!                                        |
//!            add, remove: requests with that number, which the filter does once however often they come
//!                                        |
//!            verify: the filter holds each key as often as it should: once, or not at all
//!                                        |
//!            finish: the rows are gone
//! ```
//!
//! Whoever dies between two of these steps, or within one, leaves rows behind. The next one finds them, with their number, and takes
//! the same steps again.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod claim;
mod drain;
mod filters;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::HashMap;
use std::fmt::Debug;

use async_trait::async_trait;
use umbel_core::entry::Request;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use umbel_core::random::Random;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::Error;
use crate::Result;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::limits::KEY_BYTES_MAX;
pub use drain::Drain;
#[cfg(feature = "mysql")]
pub use mysql::{MysqlOutbox, MysqlTable};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOutbox, PostgresTable};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOutbox, Table};

/// What happened to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Effect {
    /// It was not there before.
    Added = 1, // persisted, as all numbers here
    /// It was there before, and is another one now. The filter holds its key as before; whoever has kept the record has an old one.
    Changed = 0,
    /// It is not there any more.
    Erased = -1,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its key, as the filter knows it.
    pub key: Vec<u8>,
    /// What happened.
    pub effect: Effect,
}

/// Changes that the filter is told together. A batch that was claimed never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Whose batches these are: the same for all batches of an outbox, as is the next number. Adds and removals have a session each,
    /// because a session's earlier requests are not taken any more.
    pub session: u64,
    /// Each next batch has a greater number.
    pub number: u64,
    /// In the order in which they were made.
    pub changes: Vec<Change>,
}

/// What a batch comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Net {
    adds: Vec<Vec<u8>>,
    removes: Vec<Vec<u8>>,
    /// Every key, and whether its record is there in the end.
    keys: Vec<Vec<u8>>,
    is_there: Vec<bool>,
}

impl Batch {
    fn net(&self) -> Net {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let (mut net, mut sums) = (Net::default(), Vec::new());
        for change in &self.changes {
            let place = *places.entry(&change.key).or_insert_with(|| {
                net.keys.push(change.key.clone());
                net.is_there.push(false);
                sums.push(0);
                sums.len() - 1
            });
            net.is_there[place] = change.effect != Effect::Erased;
            sums[place] += change.effect as i64;
        }
        for (key, sum) in net.keys.iter().zip(sums) {
            match sum {
                1.. => net.adds.push(key.clone()),
                0 => {}
                ..0 => net.removes.push(key.clone()),
            }
        }
        net
    }

    fn adding(&self) -> Request {
        Request { session: self.session, sequence: self.number }
    }

    fn removing(&self) -> Request {
        Request { session: self.session.wrapping_add(1), sequence: self.number }
    }
}

/// Where changes wait until the filter has heard of them. Calls may take as long as a database does.
pub trait Outbox: Debug + Send + Sync + 'static {
    /// The batch that was claimed and is not finished; if there is none, the oldest changes become one. None if nothing waits.
    fn claim(&self) -> Result<Option<Batch>>;

    /// The filter has a batch, for good.
    fn finish(&self, number: u64) -> Result<()>;
}

/// An erasable filter that knows exactly how often it holds a key: one that keeps its keys.
#[async_trait]
pub trait Counting: Debug + Send + Sync + 'static {
    /// Adds keys. The same request again has no second effect.
    async fn add(&self, keys: &[Vec<u8>], request: Request) -> Result<()>;

    /// Takes keys out, each once; not those that it does not hold.
    async fn remove(&self, keys: &[Vec<u8>], request: Request) -> Result<()>;

    /// How often it holds each key, exactly, with all that was done before.
    async fn counts(&self, keys: &[Vec<u8>]) -> Result<Vec<u64>>;

    /// What was done before survives whatever happens now.
    async fn sync(&self) -> Result<()>;
}

/// A name of a table or column that a database takes.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn checked_name(name: &str) -> Result<&str> {
    if name.is_empty() || name.contains('\0') {
        return Err(Error::Invalid(format!("{name:?} is no name of a table or column")));
    }
    Ok(name)
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::Invalid(format!("a key of {} bytes; at most {KEY_BYTES_MAX}", key.len())));
    }
    Ok(())
}

/// Whose batches those of a new outbox are. Numbers of databases have a sign, and session 0 is nobody. The one behind it is ours, too.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn session(random: &dyn Random) -> i64 {
    (random.next() >> 2).max(1) as i64 * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_comes_to_one_step_for_each_key() {
        use Effect::{Added, Changed, Erased};
        let changes = [
            ("a", Added),
            ("b", Erased),
            ("c", Changed),
            ("a", Erased),
            ("b", Added),
            ("d", Added),
            ("e", Erased),
        ];
        let changes = changes.map(|(key, effect)| Change { key: key.into(), effect }).to_vec();
        let net = Batch { session: 1, number: 1, changes }.net();
        assert_eq!((net.adds, net.removes), (vec![b"d".to_vec()], vec![b"e".to_vec()]));
        assert_eq!(net.keys, [b"a", b"b", b"c", b"d", b"e"].map(|key| key.to_vec()));
        assert_eq!(net.is_there, [false, true, true, true, false]);
    }
}
