//! What all connections share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, watch};
use umbel_core::engine::Engine;
use umbel_filter::Family;

use crate::clients::Clients;
use crate::loading::Loading;
use crate::resp::Limits;
use crate::slowlog::Slowlog;

/// Locks that adds of what is not there yet share by filter.
const UNIQUE_LOCKS: usize = 64;

/// A server without its sockets.
#[derive(Debug)]
pub struct Node {
    /// The filters.
    pub engine: Arc<Engine>,
    /// Who is connected.
    pub clients: Clients,
    /// Commands that took long.
    pub slowlog: Slowlog,
    /// What happened so far.
    pub counts: Counts,
    /// Whether the server is to end.
    pub stop: Stop,
    /// Filters that are being loaded part by part.
    pub loading: Loading,
    /// When the server was started.
    pub started: Instant,
    /// One for each of some filters: who looks and then adds does so alone.
    unique: Vec<Mutex<()>>,
}

/// What filters are made of if nobody says.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Elements that a filter is made for.
    pub capacity: u64,
    /// Its error rate.
    pub error: f64,
    /// How many times larger it becomes.
    pub expansion: u32,
    /// Elements that an erasable filter is made for.
    pub cuckoo_capacity: u64,
    /// Its error rate.
    pub cuckoo_error: f64,
    /// How keys are hashed.
    pub family: Family,
}

/// What happened so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Errors that clients were told.
    pub errors: AtomicU64,
    /// When the last checkpoint that somebody asked for was made, in seconds since 1970.
    pub last_save: AtomicU64,
}

/// A flag that everybody can wait for.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Ends the server.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Waits for the end.
    pub async fn stopped(&self) {
        // The sender lives as long as this.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}

impl Node {
    /// A server for an engine.
    pub fn new(engine: Engine) -> Self {
        let node = Self {
            engine: Arc::new(engine),
            clients: Clients::default(),
            slowlog: Slowlog::default(),
            counts: Counts::default(),
            stop: Stop::default(),
            loading: Loading::default(),
            started: now(),
            unique: (0..UNIQUE_LOCKS).map(|_| Mutex::default()).collect(),
        };
        node.counts.last_save.store(unix_time().as_secs(), Ordering::Relaxed);
        node
    }

    /// The time, for measuring.
    #[inline]
    pub fn now(&self) -> Instant {
        now()
    }

    /// Whether clients have to say who they are.
    pub fn needs_password(&self) -> bool {
        false
    }

    /// What a client may send.
    pub fn limits(&self, authenticated: bool) -> Limits {
        if authenticated {
            Limits {
                arguments_max: 1 << 20,
                bulk_bytes_max: 512 << 20,
                command_bytes_max: 1 << 30,
                authenticated,
            }
        } else {
            Limits { arguments_max: 10, bulk_bytes_max: 16 << 10, command_bytes_max: 64 << 10, authenticated }
        }
    }

    /// Bytes of replies that a connection may have.
    pub fn output_bytes_max(&self) -> usize {
        1 << 30
    }

    /// What filters are made of if nobody says.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            capacity: 100,
            error: 0.01,
            expansion: 2,
            cuckoo_capacity: 1024,
            cuckoo_error: 0.01,
            family: Family::Murmur3,
        }
    }

    /// Most connections.
    pub fn clients_max(&self) -> usize {
        10_000
    }

    /// Why nobody may come from there, if so.
    pub fn keeps_out(&self, _address: SocketAddr) -> Option<String> {
        None
    }

    /// Who looks whether something is there and then adds it takes this turn, so that nobody does the same meanwhile.
    pub fn unique(&self, filter: u64) -> &Mutex<()> {
        &self.unique[(filter % UNIQUE_LOCKS as u64) as usize]
    }
}

fn now() -> Instant {
    Instant::now()
}

/// The time since 1970.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
