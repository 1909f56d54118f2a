//! The same without `async`, for programs that have no runtime.

use std::fmt;

use tokio::runtime::{Builder, Runtime};
use umbel_core::engine::{Answer, Token};

use crate::options::Options;
use crate::reader::Reader;
use crate::status::Status;
use crate::{Error, Result};

/// A replica that brings its own thread. See [`Replica`](crate::Replica); what waits there blocks here, and must not be called
/// from within a runtime.
pub struct Replica {
    replica: crate::Replica,
    runtime: Runtime,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Replica").field(&self.replica).finish()
    }
}

impl Replica {
    /// Opens a replica.
    pub fn open(options: Options) -> Result<Self> {
        let mut threads = Builder::new_multi_thread();
        let runtime = threads.worker_threads(1).thread_name("umbel-replica").enable_all().build();
        let runtime = runtime.map_err(|error| Error::Invalid(format!("no thread for a replica: {error}")))?;
        let replica = runtime.block_on(crate::Replica::open(options))?;
        Ok(Self { replica, runtime })
    }

    /// Whether a key may have been added.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Answer {
        self.replica.contains(key)
    }

    /// The same with a position in the log that the answer includes.
    pub fn contains_with_position(&self, key: impl AsRef<[u8]>) -> (Answer, Option<Token>) {
        self.replica.contains_with_position(key)
    }

    /// Lookups for one thread that asks all the time.
    pub fn reader(&self) -> Reader {
        self.replica.reader()
    }

    /// The same for many keys.
    pub fn contains_batch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Answer> {
        self.replica.contains_batch(keys)
    }

    /// Adds keys: visible here at once, at the centre later.
    pub fn add<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        self.runtime.block_on(self.replica.add(keys))
    }

    /// Takes keys out of a counting filter.
    pub fn remove<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        self.runtime.block_on(self.replica.remove(keys))
    }

    /// Waits until the centre has all of them.
    pub fn flush(&self) -> Result<Token> {
        self.runtime.block_on(self.replica.flush())
    }

    /// Waits until the copy includes a position.
    pub fn reached(&self, token: &Token) -> Result<()> {
        self.runtime.block_on(self.replica.reached(token))
    }

    /// How it is.
    pub fn status(&self) -> Status {
        self.replica.status()
    }

    /// Goes back to the version before and stays there.
    pub fn roll_back(&self) -> Result<u64> {
        self.runtime.block_on(self.replica.roll_back())
    }

    /// Follows the centre again.
    pub fn resume(&self) -> Result<()> {
        self.runtime.block_on(self.replica.resume())
    }

    /// Gives chunks to other replicas.
    #[cfg(feature = "peer")]
    pub fn serve(&self, address: std::net::SocketAddr) -> Result<std::net::SocketAddr> {
        self.runtime.block_on(self.replica.serve(address))
    }

    /// Ends.
    pub fn close(&self) -> Result<()> {
        self.runtime.block_on(self.replica.close())
    }
}
