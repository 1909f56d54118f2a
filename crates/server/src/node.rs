//! What all connections share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use umbel_core::clock::SystemClock;
use umbel_core::engine::{Engine, Handle, Token};
use umbel_core::registry::{EmbeddedRegistry, Registry};
use umbel_filter::Family;

use crate::acl::{self, Acl};
use crate::clients::Clients;
use crate::cluster::Nodes;
use crate::commands::connection::run_id;
use crate::commands::table;
use crate::config::{Config, Live};
use crate::console::Monitor;
use crate::growth::Growths;
use crate::latency::Latency;
use crate::loading::Loading;
use crate::lookup::Lookups;
use crate::metrics::Metrics;
use crate::pause::Pause;
use crate::releases::Releases;
use crate::resp::Limits;
use crate::saves::Saves;
use crate::slowlog::Slowlog;
use crate::sync::Sync;
use crate::totals::Rates;
use crate::work::Work;

/// The version of RedisBloom whose commands these are.
pub const BLOOM_VERSION: i64 = 80_200;

/// How often other nodes are asked what changed a filter that somebody follows.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What strangers are told.
const PROTECTED: &str = "-DENIED Umbel runs in protected mode: no password is set for the default user, so only connections from this \
    machine are accepted. Set a password (password, or CONFIG SET requirepass from this machine), or turn protected_mode off.\r\n";

/// A server without its sockets.
#[derive(Debug)]
pub struct Node {
    /// The filters.
    pub engine: Arc<Engine>,
    /// What all must agree on besides: tokens, and which version of a filter counts.
    pub registry: Arc<dyn Registry>,
    /// The other nodes, if it is one of several.
    pub cluster: Option<Arc<Nodes>>,
    /// Lookups across domains, if it is one of several.
    pub lookups: OnceLock<Arc<dyn Lookups>>,
    /// Versions of filters.
    pub(crate) releases: Releases,
    /// Copies of filters elsewhere.
    pub(crate) sync: Sync,
    /// What an acknowledged add survives, as far as the log promises it.
    pub durability: String,
    /// How the server is run.
    pub config: Live,
    /// Who may do what.
    pub acl: Acl,
    /// What is counted.
    pub metrics: Metrics,
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
    /// What happens in a second.
    pub(crate) rates: Rates,
    /// What open pages of the console are told.
    pub(crate) monitor: Monitor,
    /// How filters fill and grow.
    pub(crate) growths: Growths,
    /// Events that took long.
    pub(crate) latency: Latency,
    facts: OnceLock<Facts>,
    failure: OnceLock<String>,
    /// Threads for what takes long.
    pub(crate) work: Work,
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
    /// Where it listens.
    pub port: u16,
    /// What an acknowledged add survives.
    pub durability: String,
    /// The file with its settings.
    pub config_file: String,
}

/// What happened so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Filters that expired.
    pub expired: AtomicU64,
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

    /// Whether the server is ending.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the end.
    pub async fn stopped(&self) {
        // The sender lives as long as this.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}

impl Node {
    /// A server for an engine, with so many event loops.
    pub fn new(engine: Engine, config: Config, loops: usize) -> umbel_core::Result<Self> {
        let invalid = |error: acl::Error| umbel_core::Error::Invalid(error.to_string());
        let work = Work::new()
            .map_err(|error| umbel_core::Error::Retry(format!("cannot start threads: {error}")))?;
        let acl = Acl::new(Arc::new(table::Rules), config.password);
        if let Some(path) = &config.acl_file {
            acl.load(None, path).map_err(invalid)?;
        }
        acl.log().resize(config.acl_log_length as usize);
        let slowlog = Slowlog::default();
        slowlog.set(config.slowlog_threshold_us, config.slowlog_length as usize);
        let latency = Latency::default();
        latency.set_threshold_ms(config.latency_threshold_ms);
        let counts = Counts::default();
        counts.last_save.store(unix_time().as_secs(), Ordering::Relaxed);
        let registry: Arc<dyn Registry> =
            Arc::new(EmbeddedRegistry::in_memory(Arc::new(SystemClock::default())));
        Ok(Self {
            engine: Arc::new(engine),
            cluster: None,
            lookups: OnceLock::new(),
            releases: Releases::new(Arc::clone(&registry)),
            sync: Sync::default(),
            registry,
            durability: config.durability_text(),
            config: Live::new(config),
            acl,
            metrics: Metrics::new(table::TABLE.iter().map(|row| row.name), loops),
            clients: Clients::default(),
            slowlog,
            counts,
            stop: Stop::default(),
            loading: Loading::default(),
            started: now(),
            run_id: run_id(),
            pause: Pause::default(),
            saves: Saves::default(),
            rates: Rates::default(),
            monitor: Monitor::default(),
            growths: Growths::default(),
            latency,
            facts: OnceLock::new(),
            failure: OnceLock::new(),
            work,
        })
    }

    /// The same with a registry that outlives the process.
    pub fn with_registry(self, registry: Arc<dyn Registry>) -> Self {
        Self { releases: self.releases.in_registry(Arc::clone(&registry)), registry, ..self }
    }

    /// The same as one of several nodes.
    pub fn with_cluster(self, nodes: Arc<Nodes>) -> Self {
        nodes.attach(&self.engine);
        Self { cluster: Some(nodes), releases: self.releases.in_cluster(Arc::clone(&self.engine)), ..self }
    }

    /// The time, for measuring.
    #[inline]
    pub fn now(&self) -> Instant {
        now()
    }

    /// The filter of that name, as of all that any node has acknowledged.
    pub async fn filter(&self, name: &str) -> umbel_core::Result<Option<Arc<Handle>>> {
        self.engine.find(name).await
    }

    /// The filter of that name, where the one that was found before was dropped meanwhile, or another node is about to make it.
    pub async fn filter_again(&self, name: &str) -> umbel_core::Result<Option<Arc<Handle>>> {
        self.engine.find_again(name).await
    }

    /// Where the log is at this moment, for whoever wants a version as new as that; none where other nodes have parts of it, and a
    /// version of the filter as it is now does it.
    pub(crate) fn now_in_log(&self) -> Option<Token> {
        (!self.engine.is_clustered()).then(|| self.engine.token())
    }

    /// Waits until something may have changed a filter after a token. Of what other nodes have it is not heard: it is looked at again soon.
    pub(crate) async fn moved(&self, filter: &Arc<Handle>, after: &Token) {
        if self.engine.is_clustered() {
            tokio::time::sleep(LOOK_AGAIN).await;
        } else {
            self.engine.moved(filter, after).await;
        }
    }

    /// How many keys a filter holds, here and on other nodes.
    pub async fn counts_of(&self, filter: &Arc<Handle>) -> umbel_core::Result<umbel_core::fold::Counts> {
        self.engine.counts(filter).await
    }

    /// How many keys each of these filters holds. Those that live in one slot are here, as of what was read of the log; for the others
    /// all nodes are asked.
    pub(crate) async fn items_of(&self, filters: &[Arc<Handle>]) -> umbel_core::Result<Vec<u64>> {
        let mut items = Vec::with_capacity(filters.len());
        for filter in filters {
            let is_here = !self.engine.is_clustered() || filter.slots().count() == 1;
            items.push(if is_here { filter.items() } else { self.engine.counts(filter).await?.items });
        }
        Ok(items)
    }

    /// Ends the server because it cannot go on.
    pub fn fail(&self, why: String) {
        if self.failure.set(why).is_ok() {
            self.stop.stop();
        }
    }

    /// Why the server could not go on, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
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

    /// What a client may send.
    pub fn limits(&self, authenticated: bool) -> Limits {
        let config = self.config.load();
        let (arguments, bulk) = if authenticated {
            (config.arguments_max, config.bulk_bytes_max)
        } else {
            (config.unauthenticated_arguments_max, config.unauthenticated_bulk_bytes_max)
        };
        let command_bytes_max =
            if authenticated { config.input_bytes_max } else { bulk.saturating_mul(u64::from(arguments)) };
        // Spans of arguments are counted in 32 bits.
        let within = |bytes: u64| bytes.min(u64::from(u32::MAX) / 2) as usize;
        Limits {
            arguments_max: arguments as usize,
            bulk_bytes_max: within(bulk),
            command_bytes_max: within(command_bytes_max),
            authenticated,
        }
    }

    /// What filters are made of if nobody says.
    pub fn defaults(&self) -> Defaults {
        let config = self.config.load();
        Defaults {
            capacity: config.capacity,
            error: config.error_rate,
            expansion: config.expansion,
            cuckoo_capacity: config.cuckoo_capacity,
            cuckoo_error: config.cuckoo_error_rate,
            family: config.family,
        }
    }

    /// Why nobody may come from there, if so.
    pub fn keeps_out(&self, address: SocketAddr) -> Option<&'static str> {
        let protects = self.config.load().protects();
        (protects && !address.ip().to_canonical().is_loopback() && self.acl.is_open()).then_some(PROTECTED)
    }
}

fn now() -> Instant {
    Instant::now()
}

/// The time since 1970.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
