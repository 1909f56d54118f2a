use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use umbel_load::sql::{Finder, Records, Wanted};

use super::{Field, Record, Source};
use crate::limits::{CONNECTIONS_MAX, KEY_BYTES_MAX};
use crate::{Error, Result};

/// Records of PostgreSQL, MySQL, MariaDB or SQLite, found by a statement with a place for the key.
pub struct SqlRecords {
    pool: Arc<Pool>,
    /// How many may be asking at once. Whoever is given up goes on until the database answers, and counts until then.
    turns: Arc<Semaphore>,
}

/// Connections that nobody uses at the moment.
struct Pool {
    records: Records,
    idle: Mutex<Vec<Finder>>,
}

impl fmt::Debug for SqlRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlRecords").field(&self.pool.records).finish()
    }
}

impl SqlRecords {
    /// Records at `sqlite:FILE`, `postgres://user@host/database` or `mysql://user@host/database`, over so many connections at most.
    /// Nobody connects yet.
    pub fn new(address: &str, wanted: Wanted, connections: usize) -> Result<Self> {
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            return Err(Error::Invalid(format!(
                "{connections} connections; it must be 1 to {CONNECTIONS_MAX}"
            )));
        }
        let pool = Pool { records: Records::new(address, wanted)?, idle: Mutex::default() };
        Ok(Self { pool: Arc::new(pool), turns: Arc::new(Semaphore::new(connections)) })
    }
}

impl Pool {
    fn find(&self, key: &[u8]) -> Result<Option<Record>> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let (mut finder, is_kept) = match kept {
            Some(finder) => (finder, true),
            None => (self.records.open()?, false),
        };
        let found = match finder.find(key) {
            // A connection that was idle may have been cut off meanwhile; that is no reason to know nothing.
            Err(umbel_load::Error::Retry(_)) if is_kept => {
                finder = self.records.open()?;
                finder.find(key)?
            }
            found => found?,
        };
        idle().push(finder);
        let field = |(column, value)| Field { column, value };
        Ok(found.map(|record| Record::Row(record.into_iter().map(field).collect())))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let idle = std::mem::take(self.idle.get_mut().unwrap_or_else(PoisonError::into_inner));
        // Drivers wait while they end, which they may not do on a thread that runs tasks.
        if !idle.is_empty() {
            std::thread::spawn(move || drop(idle));
        }
    }
}

#[async_trait]
impl Source for SqlRecords {
    async fn fetch(&self, key: &[u8]) -> Result<Option<Record>> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::Invalid(format!("a key of {} bytes; at most {KEY_BYTES_MAX}", key.len())));
        }
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| Error::Retry("the source was closed".into()))?;
        let (pool, key) = (Arc::clone(&self.pool), key.to_vec());
        let finding = spawn_blocking(move || {
            let found = pool.find(&key);
            drop(turn);
            found
        });
        finding.await.map_err(|error| Error::Retry(format!("a fetch was given up: {error}")))?
    }
}
