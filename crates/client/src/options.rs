//! What a replica is opened with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use umbel_core::clock::{Clock, SystemClock};
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::random::{Random, SystemRandom};
use umbel_filter::{Secret, Spec};

use crate::limits::{MEMORY_BYTES_MAX, SPOOL_KEYS_MAX};
use crate::{Error, Result};

/// How a replica follows the centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Asks for a new version on a timer, and fetches what changed.
    Pull {
        /// How often. What was acknowledged two of these ago is there.
        interval: Duration,
    },
    /// A version, then every change as it comes. The position is kept in the folder.
    Delta,
    /// As delta, and new versions come by themselves when one is needed.
    Push,
    /// Answers from the version that the centre allows, while it allows it, and says `Unknown` otherwise.
    Strong,
    /// A notice says that there is a new version; what changed is fetched from the nearest source.
    Notify {
        /// How often to ask anyway, should a notice be missed.
        interval: Duration,
    },
}

impl Strategy {
    /// Asks every so often.
    pub fn pull(interval: Duration) -> Self {
        Self::Pull { interval: interval.max(Duration::from_millis(10)) }
    }

    /// Every change as it comes.
    pub fn delta() -> Self {
        Self::Delta
    }

    /// Every change as it comes, and versions too.
    pub fn push() -> Self {
        Self::Push
    }

    /// All replicas of this kind that answer, answer from the same version.
    pub fn strong() -> Self {
        Self::Strong
    }

    /// Fetches when told to, and once a minute.
    pub fn notify() -> Self {
        Self::Notify { interval: Duration::from_secs(60) }
    }

    /// Its name, as the server knows it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pull { .. } => "pull",
            Self::Delta => "delta",
            Self::Push => "push",
            Self::Strong => "strong",
            Self::Notify { .. } => "notify",
        }
    }
}

/// What a key gets that a stale copy does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenStale {
    /// `Unknown`: the caller decides.
    #[default]
    Unknown,
    /// `Maybe`: the caller looks it up, as it does for every key that may be there.
    Maybe,
}

/// What a replica is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) sources: Vec<String>,
    pub(crate) filter: String,
    pub(crate) strategy: Strategy,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) token: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) compression: bool,
    pub(crate) stale_after: Option<Duration>,
    pub(crate) when_stale: WhenStale,
    pub(crate) unknown_when_cut_off: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) peers: Vec<String>,
    pub(crate) advertised: Option<String>,
    pub(crate) expected: Option<Spec>,
    pub(crate) present: Vec<Vec<u8>>,
    pub(crate) absent: Vec<Vec<u8>>,
    pub(crate) window: Duration,
    pub(crate) secret: Option<Secret>,
    pub(crate) memory_bytes_max: u64,
    pub(crate) spool_keys_max: usize,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
}

impl Options {
    /// A replica of a filter on a server, `http://host:port` or `https://host:port`, perhaps with a path before the API's.
    pub fn new(server: impl Into<String>, filter: impl Into<String>, strategy: Strategy) -> Self {
        Self {
            sources: vec![server.into()],
            filter: filter.into(),
            strategy,
            folder: None,
            token: None,
            ca_file: None,
            compression: true,
            stale_after: None,
            when_stale: WhenStale::default(),
            unknown_when_cut_off: false,
            labels: BTreeMap::new(),
            peers: Vec::new(),
            advertised: None,
            expected: None,
            present: Vec::new(),
            absent: Vec::new(),
            window: Duration::ZERO,
            secret: None,
            memory_bytes_max: MEMORY_BYTES_MAX,
            spool_keys_max: SPOOL_KEYS_MAX,
            disk: Arc::new(RealDisk),
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(SystemRandom::default()),
        }
    }

    /// The same with a strategy by its name: those of [`Strategy`], and `window`, which is delta with own adds gathered. The interval is
    /// how often pull asks, and how long window gathers.
    pub fn named(
        server: impl Into<String>,
        filter: impl Into<String>,
        strategy: &str,
        interval: Duration,
    ) -> Result<Self> {
        let (strategy, window) = match strategy {
            "pull" => (Strategy::pull(interval), Duration::ZERO),
            "push" => (Strategy::push(), Duration::ZERO),
            "notify" => (Strategy::notify(), Duration::ZERO),
            "strong" => (Strategy::strong(), Duration::ZERO),
            "window" => (Strategy::delta(), interval),
            "delta" => (Strategy::delta(), Duration::ZERO),
            other => {
                return Err(Error::Invalid(format!(
                    "{other:?} is no strategy: {}",
                    Self::STRATEGIES.join(", ")
                )));
            }
        };
        Ok(Self::new(server, filter, strategy).window(window))
    }

    /// The names of all strategies.
    pub const STRATEGIES: [&str; 6] = ["pull", "push", "notify", "delta", "window", "strong"];

    /// Another server of the same deployment, asked when those before it do not answer.
    pub fn or_server(mut self, server: impl Into<String>) -> Self {
        self.sources.push(server.into());
        self
    }

    /// Where the copy, its position and keys that were not sent yet survive a restart. One process at a time has it, and it belongs to one
    /// filter of one deployment: for another one it is refused.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The token that the server knows the caller by.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// A PEM file with the authorities that vouch for servers at `https://`, instead of those that the system trusts.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Whether the server may compress chunks, which it does by itself only where that makes them smaller. It costs both sides time,
    /// and is worth it except where the network is faster than a processor. They come compressed unless this says otherwise.
    pub fn compression(mut self, wanted: bool) -> Self {
        self.compression = wanted;
        self
    }

    /// A copy that the centre did not confirm for so long says no more that a key is absent.
    pub fn stale_after(mut self, time: Duration) -> Self {
        self.stale_after = Some(time);
        self
    }

    /// A copy whose connection to its server is known to be broken counts as stale at once, until the server has confirmed it again. Without
    /// this it goes on to answer from what it has.
    pub fn unknown_when_cut_off(mut self) -> Self {
        self.unknown_when_cut_off = true;
        self
    }

    /// What is said instead.
    pub fn when_stale(mut self, instead: WhenStale) -> Self {
        self.when_stale = instead;
        self
    }

    /// Something that the server tells of this replica.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Another replica that chunks may be fetched from. The server names more.
    pub fn peer(mut self, address: impl Into<String>) -> Self {
        self.peers.push(address.into());
        self
    }

    /// Where others find this replica when it serves them, if that is not where it listens.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertised = Some(address.into());
        self
    }

    /// Refuses a filter with other parameters. One that has grown may have more capacity.
    pub fn expect(mut self, spec: Spec) -> Self {
        self.expected = Some(spec);
        self
    }

    /// A key that every version must have: one that lacks it is not taken.
    pub fn probe_present(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.present.push(key.into());
        self
    }

    /// A key that was never added: a version that has far more of these than its error rate allows is not taken.
    pub fn probe_absent(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.absent.push(key.into());
        self
    }

    /// Own adds are gathered for so long before they are sent. They are visible here at once all the same.
    pub fn window(mut self, time: Duration) -> Self {
        self.window = time;
        self
    }

    /// How it follows and writes, in a word.
    pub(crate) fn strategy_name(&self) -> &'static str {
        let gathers = !self.window.is_zero() && self.strategy == Strategy::Delta;
        if gathers { "window" } else { self.strategy.name() }
    }

    /// The deployment's secret, for filters of the `keyed` family.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The most memory that a copy may take. While one takes the place of another, both are there.
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = bytes;
        self
    }

    /// The most keys that wait to be sent: 4 million, or less.
    pub fn spool_keys_max(mut self, keys: usize) -> Self {
        self.spool_keys_max = keys.min(SPOOL_KEYS_MAX);
        self
    }

    /// Files of another kind, for tests.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Time of another kind, for tests: it decides what is stale.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Chance of another kind, for tests.
    pub fn random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }
}
