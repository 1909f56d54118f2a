//! What all connections share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, watch};
use umbel_core::engine::Engine;
use umbel_filter::Family;

use crate::clients::Clients;
use crate::commands::connection::run_id;
use crate::commands::table::Id;
use crate::latency::Latency;
use crate::loading::Loading;
use crate::pause::Pause;
use crate::resp::Limits;
use crate::saves::Saves;
use crate::slowlog::Slowlog;

/// The version of Redis whose replies these are: clients look at it before they use a command.
pub const REDIS_VERSION: &str = "7.4.0";
/// The version of RedisBloom whose commands these are.
pub const BLOOM_VERSION: i64 = 80_200;

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
    /// Forty digits that no other server has.
    pub run_id: String,
    /// Whether commands have to wait.
    pub(crate) pause: Pause,
    /// Checkpoints that clients ask for.
    pub(crate) saves: Saves,
    /// Events that took long.
    pub(crate) latency: Latency,
    debug: AtomicBool,
    facts: OnceLock<Facts>,
    port: AtomicU16,
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

/// How the server was started, for those who ask.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What an acknowledged add survives.
    pub durability: String,
    /// The file with its settings.
    pub config_file: String,
}

/// What all event loops counted together.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Commands that were run.
    pub commands: u64,
    /// Of those, in the last second.
    pub commands_per_second: u64,
    /// Bytes that were read.
    pub input_bytes: u64,
    /// Bytes that were sent.
    pub output_bytes: u64,
    /// Kilobytes that were read in the last second.
    pub input_kbps: f64,
    /// Kilobytes that were sent in the last second.
    pub output_kbps: f64,
    /// Errors that clients were told.
    pub errors: u64,
    /// Filters that were asked for and were there.
    pub hits: u64,
    /// Filters that were asked for and were not there.
    pub misses: u64,
    /// Filters that expired.
    pub expired: u64,
    /// Filters that will expire.
    pub expiring: u64,
    /// Each command that was ever run.
    pub by_command: Vec<CommandTotals>,
    /// How often each kind of error was told.
    pub by_error: Vec<(String, u64)>,
}

/// What was counted of one command.
#[derive(Clone, Debug)]
pub struct CommandTotals {
    /// Which command.
    pub id: Id,
    /// How often it was run.
    pub calls: u64,
    /// How long all of that took.
    pub took_us: u64,
    /// How often it was refused before it was run.
    pub rejected: u64,
    /// How often it was run and failed.
    pub failed: u64,
    /// How long the half, 99 % and 99.9 % of the calls took at most.
    pub percentiles_us: [f64; 3],
    /// For bounds in microseconds, how many calls took no longer.
    pub histogram_us: Vec<(u64, u64)>,
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
            run_id: run_id(),
            pause: Pause::default(),
            saves: Saves::default(),
            latency: Latency::default(),
            debug: AtomicBool::new(false),
            facts: OnceLock::new(),
            port: AtomicU16::new(0),
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

    /// How the server was started.
    pub fn facts(&self) -> &Facts {
        static NONE: LazyLock<Facts> = LazyLock::new(Facts::default);
        self.facts.get().unwrap_or(&NONE)
    }

    /// Says how the server was started; the first one who says so is right.
    pub fn describe(&self, facts: Facts) {
        // Another description does not count.
        let _ = self.facts.set(facts);
    }

    /// The first port on which it listens; 0 if on none.
    pub fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    /// Says on which port it listens.
    pub(crate) fn listens_on(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        Totals { errors: self.counts.errors.load(Ordering::Relaxed), ..Totals::default() }
    }

    /// Whether clients may run commands that are for tests.
    pub fn allows_debug(&self) -> bool {
        self.debug.load(Ordering::Relaxed)
    }

    /// Lets clients run commands that are for tests, or not.
    pub fn allow_debug(&self, allows: bool) {
        self.debug.store(allows, Ordering::Relaxed);
    }

    /// Keeps events that take so many milliseconds; none if it is 0.
    pub fn watch_latency(&self, threshold_ms: u64) {
        self.latency.set_threshold_ms(threshold_ms);
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
