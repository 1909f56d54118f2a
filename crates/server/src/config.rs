//! Every setting of the server, in one table.
//!
//! A setting is one row of `settings!` below: the typed field of [`Config`], the flag, the environment variable, the
//! name in the file, the documentation and Redis's `CONFIG` all come from it.
//!
//! ```text
//! default < file (TOML) < environment (UMBEL_NAME) < flag (--name) < CONFIG SET, for what is live
//! ```

mod catalogs;
mod live;
mod load;
#[cfg(test)]
mod tests;
mod value;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use umbel_core::log::Durability;
use umbel_core::url::Url;
use umbel_filter::{Family, Secret};

use crate::digest::Digest;
pub use catalogs::{CatalogConfig, DomainConfig, Find, Following, SourceConfig};
pub use live::Live;
pub use load::{Sources, unknown_environment};
use value::{
    Addresses, Bytes, Choice, Codec, Durable, Engine, File, Hashing, Hidden, Number, Period, Place, Rate,
    Shared, Switch, Threshold, Version, Web, Word,
};
pub use value::{Named, SharedSecret};

/// Whether the machine has an IPv6 loopback.
fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const DAY: Duration = Duration::from_secs(86_400);

/// One setting.
pub struct Row {
    /// Its name in the file. The flag has dashes instead of underscores.
    pub name: &'static str,
    /// Its default, as one would write it.
    pub default: &'static str,
    /// What it counts; empty if that is plain.
    pub unit: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// Redis's name for it; empty if it has none. It is an alias everywhere.
    pub redis: &'static str,
    /// Whether `CONFIG SET` changes it.
    pub live: bool,
    set: fn(&mut Config, &str) -> Result<(), String>,
    print: fn(&Config) -> String,
    print_redis: fn(&Config) -> String,
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Row {
    /// The name as a flag, without the dashes before it.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The name as an environment variable.
    pub fn variable(&self) -> String {
        format!("UMBEL_{}", self.name.to_ascii_uppercase())
    }

    /// Redis's name, or else the flag: what `CONFIG GET` answers with.
    pub fn redis_name(&self) -> String {
        if self.redis.is_empty() { self.flag() } else { self.redis.to_owned() }
    }

    /// Whether a value as it was given must not be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.name, "password" | "log" | "blobs" | "registry" | "domain_registry" | "cluster_secret")
    }

    /// Whether it is yes or no.
    pub fn is_switch(&self) -> bool {
        matches!(self.default, "yes" | "no")
    }

    fn is_called(&self, name: &str) -> bool {
        let same = |ours: &str| {
            let plain = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
            ours.bytes().map(plain).eq(name.bytes().map(plain))
        };
        same(self.name) || (!self.redis.is_empty() && same(self.redis))
    }
}

/// The setting of that name, or of that Redis name; dashes, underscores and cases are all the same.
pub fn find(name: &str) -> Option<(usize, &'static Row)> {
    ROWS.iter().enumerate().find(|(_, row)| row.is_called(name))
}

/// Where a value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    #[default]
    Default,
    /// A file.
    File(Arc<Path>),
    /// This environment variable.
    Environment(String),
    /// This flag.
    Flag(String),
    /// What the deployment was created with.
    Registry,
    /// `CONFIG SET`.
    Command,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag --{flag}"),
            Self::Registry => f.write_str("registry"),
            Self::Command => f.write_str("CONFIG SET"),
        }
    }
}

/// What is wrong with a setting: the value, the source and the limit.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub(crate) String);

const fn fixed(redis: &'static str) -> (&'static str, bool) {
    (redis, false)
}

const fn live(redis: &'static str) -> (&'static str, bool) {
    (redis, true)
}

macro_rules! settings {
    ($($name:ident: $type:ty = $default:literal, $codec:expr, $change:expr, $unit:literal, $meaning:literal;)*) => {
        /// The settings in force.
        #[derive(Clone, Debug)]
        pub struct Config {
            $(#[doc = $meaning] pub $name: $type,)*
            /// Records of one kind in all domains: the tables `[catalogs.NAME]` of the file.
            pub catalogs: Vec<CatalogConfig>,
            /// Other domains: the tables `[domains.NAME]` of the file.
            pub domains: Vec<DomainConfig>,
            sources: Vec<Source>,
        }

        impl Default for Config {
            fn default() -> Self {
                // A test reads every default, so none of them is made up here.
                Self { $($name: $codec.parse($default).unwrap_or_default(),)* catalogs: Vec::new(), domains: Vec::new(), sources: vec![Source::Default; ROWS.len()] }
            }
        }

        /// Every setting, in the order in which it is documented.
        pub static ROWS: &[Row] = &[$(Row {
            name: stringify!($name),
            default: $default,
            unit: $unit,
            meaning: $meaning,
            redis: $change.0,
            live: $change.1,
            set: |config, text| {
                config.$name = $codec.parse(text)?;
                Ok(())
            },
            print: |config| $codec.print(&config.$name),
            print_redis: |config| $codec.redis(&config.$name),
        },)*];
    };
}

settings! {
    bind: Vec<IpAddr> = "127.0.0.1 ::1", Addresses, fixed("bind"), "", "Addresses to listen on, between spaces or commas; ::1 of the default is left out on a machine without IPv6";
    port: u16 = "6380", Number(0, 65535), fixed("port"), "", "Port for RESP, which Redis clients speak; 0 is none";
    http_port: u16 = "6381", Number(0, 65535), fixed(""), "", "Port for HTTP: console, API, health and metrics; 0 is none";
    http_name: String = "", Word, fixed(""), "", "Name by which browsers on this machine call this server while it has no password, besides localhost, addresses and names without a dot; requests by other names are refused, because websites that mean harm can let their own name stand for this machine";
    data: PathBuf = "./umbel-data", File, fixed("dir"), "", "Folder of the log, the checkpoints and the archive, as far as these are not elsewhere";
    log: Option<Url> = "", Engine, fixed(""), "", "Where the log is: kafka://, nats://, rabbitmq:// or redis://; empty is the data folder. A password in it is not shown";
    blobs: Option<Url> = "", Engine, fixed(""), "", "Where checkpoints and the archive are: s3://, gs://, az://, redis:// or file:///folder; empty is the data folder";
    registry: Option<Url> = "", Engine, fixed(""), "", "Where what all nodes agree on is: etcd://, zookeeper:// or redis://; empty is the data folder";
    threads: u32 = "0", Number(0, 1024), fixed("io-threads"), "threads", "Event loops; 0 is one for each core";
    memory: u64 = "4GiB", Bytes(MIB, 1024 * TIB), fixed("maxmemory"), "bytes", "Memory for the arrays of all filters";
    durability: Durability = "interval 200ms", Durable, fixed("appendfsync"), "", "What an acknowledged add survives, if the log is in the data folder: always (a power cut), interval TIME (a power cut after that time), os (the end of the process)";
    slots: u32 = "256", Number(1, 4096), fixed(""), "slots", "Units of order and placement; fixed when the deployment is made, and taken from the registry if nobody says so";
    partitions: u32 = "2", Number(1, 4096), fixed(""), "partitions", "Parts of the log that are written side by side; fixed in the same way";
    cluster: String = "", Word, fixed(""), "", "Name of the cluster that this server is a node of; empty is a server by itself. Needs log, blobs, registry, node and cluster_secret";
    node: String = "", Word, fixed(""), "", "Name of this node, which no other node has";
    zone: String = "", Word, fixed(""), "", "What may fail at once with this node: hosts of a partition are in different zones, as far as there are enough";
    weight: u32 = "100", Number(1, 10_000), fixed(""), "", "Share of the partitions that this node hosts: twice the weight, twice the partitions";
    copies: u32 = "2", Number(1, 16), fixed(""), "hosts", "Nodes that host a partition; the same on all nodes, and fixed when the cluster is made";
    advertise: String = "", Place, fixed(""), "", "HOST:PORT at which other nodes reach this one; empty is the first address of bind, and port";
    cluster_lease: Duration = "5s", Period(Duration::from_millis(500), Duration::from_secs(600)), fixed(""), "seconds", "How long a node that says nothing keeps its place";
    cluster_secret: Option<SharedSecret> = "", Shared, fixed(""), "", "What nodes show each other to be let in: 16 bytes or more, the same on all nodes";
    cluster_secret_file: Option<PathBuf> = "", File, fixed(""), "", "File whose first line is that secret";
    domain: String = "", Word, fixed(""), "", "Name of this deployment among others that are asked for records too; empty is none. What they have together stands in the tables catalogs of the file";
    domain_address: String = "", Web, fixed(""), "", "http://HOST:PORT at which other domains reach this one; empty is the first address of bind, and http_port";
    domain_registry: Option<Url> = "", Engine, fixed(""), "", "Where domains find each other: etcd://, zookeeper:// or redis://, the same for all of them; empty is nowhere, and the tables domains of the file name the others";
    domain_lease: Duration = "10s", Period(Duration::from_secs(1), Duration::from_secs(600)), fixed(""), "seconds", "How long others take a domain that says nothing for one that runs";
    password: Option<Digest> = "", Hidden, live("requirepass"), "", "Password of the default user; empty is none. Only its SHA-256 is kept";
    password_file: Option<PathBuf> = "", File, fixed(""), "", "File whose first line is that password";
    protected_mode: bool = "yes", Switch, live("protected-mode"), "", "Whether other machines are refused while the default user has no password; on, the server does not start on a public address without one";
    allow_public_without_password: bool = "no", Switch, fixed(""), "", "The same as turning protected_mode off, whatever CONFIG SET says of that later";
    acl_file: Option<PathBuf> = "", File, fixed("aclfile"), "", "File with a line for each user, as ACL SAVE writes it";
    acl_log_length: u32 = "128", Number(0, 100_000), live("acllog-max-len"), "entries", "Refusals that ACL LOG keeps";
    tls_port: u16 = "0", Number(0, 65535), fixed("tls-port"), "", "Port for RESP over TLS; 0 is none";
    tls_http_port: u16 = "0", Number(0, 65535), fixed(""), "", "Port for HTTP over TLS, with the same certificates; 0 is none";
    tls_cert: Option<PathBuf> = "", File, fixed("tls-cert-file"), "", "Certificate and its chain, PEM; read again when the file changes";
    tls_key: Option<PathBuf> = "", File, fixed("tls-key-file"), "", "Private key of the certificate, PEM";
    tls_client_ca: Option<PathBuf> = "", File, fixed("tls-ca-cert-file"), "", "Authorities whose client certificates are accepted, PEM";
    tls_client_auth: ClientAuth = "off", Choice, fixed("tls-auth-clients"), "", "Whether clients show a certificate: off, optional, required";
    max_clients: u32 = "10000", Number(1, 1_000_000), live("maxclients"), "connections", "Connections at a time; more are refused";
    bulk_bytes_max: u64 = "512MiB", Bytes(KIB, 4 * GIB), live("proto-max-bulk-len"), "bytes", "Longest argument of a command";
    arguments_max: u32 = "1048576", Number(16, 1 << 24), live("arguments-max"), "arguments", "Most arguments of a command";
    input_bytes_max: u64 = "1GiB", Bytes(64 * KIB, 64 * GIB), live("client-query-buffer-limit"), "bytes", "Unprocessed input of a connection; one with more is closed";
    output_bytes_max: u64 = "64MiB", Bytes(64 * KIB, 64 * GIB), live("client-output-bytes-max"), "bytes", "Unread replies of a connection; it is not read from until it takes them";
    all_output_bytes_max: u64 = "256MiB", Bytes(64 * KIB, TIB), live(""), "bytes", "Unread replies of all connections together; beyond it, those with the most are closed";
    unauthenticated_arguments_max: u32 = "10", Number(3, 1 << 20), live(""), "arguments", "Most arguments of a command before AUTH";
    unauthenticated_bulk_bytes_max: u64 = "16KiB", Bytes(64, GIB), live(""), "bytes", "Longest argument of a command before AUTH";
    publish_interval: Duration = "1s", Period(Duration::from_millis(10), DAY), live("publish-interval"), "seconds", "Filters that somebody waits for versions of are published at most so often";
    idle_timeout: Duration = "0", Period(Duration::ZERO, DAY), live("timeout"), "seconds", "Connections that say nothing for so long are closed; 0 is never";
    slowlog_threshold_us: i64 = "10000", Threshold, live("slowlog-log-slower-than"), "microseconds", "Commands that take longer are in SLOWLOG; -1 is none";
    slowlog_length: u32 = "128", Number(0, 100_000), live("slowlog-max-len"), "entries", "Commands that SLOWLOG keeps";
    latency_threshold_ms: u64 = "0", Number(0, u64::MAX), live("latency-monitor-threshold"), "milliseconds", "Events that take longer are in LATENCY; 0 is none";
    enable_debug_command: bool = "no", Switch, fixed("enable-debug-command"), "", "Whether DEBUG is there";
    error_rate: f64 = "0.01", Rate, live("bf-error-rate"), "", "Error rate of a Bloom filter that BF.ADD makes";
    capacity: u64 = "100", Number(1, 1 << 40), live("bf-initial-size"), "keys", "Capacity of a Bloom filter that BF.ADD makes";
    expansion: u32 = "2", Number(0, 32768), live("bf-expansion-factor"), "times", "Growth of a filter that does not name its own; 0 is none";
    cuckoo_capacity: u64 = "1024", Number(1, 1 << 40), live("cf-initial-size"), "keys", "Capacity of an erasable filter that CF.ADD makes";
    cuckoo_error_rate: f64 = "0.01", Rate, live(""), "", "Error rate of an erasable filter that CF.ADD makes";
    family: Family = "murmur3", Hashing, live(""), "", "How keys of new filters are hashed: murmur3, redisbloom, redisson, xxh3, keyed";
    secret_file: Option<PathBuf> = "", File, fixed(""), "", "File with the deployment's secret, for the family keyed: 32 hexadecimal digits";
    sharded_above: u64 = "32MiB", Bytes(64 * KIB, TIB), fixed(""), "bytes", "Filters with larger arrays have a shard in every slot";
    grow_at_percent: u32 = "80", Number(1, 100), fixed(""), "percent", "How full a filter is when it begins to grow";
    checkpoint_every: Duration = "60s", Period(Duration::from_secs(1), DAY), fixed(""), "seconds", "Longest time between a change and a checkpoint that has it";
    replay_max: Duration = "1s", Period(Duration::ZERO, DAY), fixed(""), "seconds", "If a start reads its log for longer, everything gets a checkpoint at once, so that the next start is shorter";
    versions_kept: u32 = "8", Number(1, 10_000), live(""), "versions", "Versions of a filter that are kept, besides the pinned one and the one that was pinned before it";
    versions_kept_for: Duration = "60s", Period(Duration::ZERO, DAY), live(""), "seconds", "Newer versions are kept as well, so that whoever fetches one gets to its end";
    replica_gone_after: Duration = "15s", Period(Duration::from_secs(1), DAY), live(""), "seconds", "A replica that is not heard of for so long is gone; replicas say every five seconds how they are";
    log_level: Level = "info", Choice, live("loglevel"), "", "What is logged: error, warn, info, debug, trace";
    log_format: Format = "text", Choice, fixed(""), "", "How it is logged: text, json";
    redis_version: String = "8.2.0", Version, fixed(""), "", "Version of Redis that INFO and HELLO report";
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked; a certificate that is shown must be good.
    Optional,
    /// No certificate, no connection.
    Required,
}

impl Named for ClientAuth {
    const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Off, "off", "no"),
        (Self::Optional, "optional", "optional"),
        (Self::Required, "required", "yes"),
    ];
}

/// What is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// What failed.
    Error,
    /// And what is amiss.
    Warn,
    /// And what happens.
    #[default]
    Info,
    /// And how.
    Debug,
    /// And everything else.
    Trace,
}

impl Named for Level {
    const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Error, "error", "nothing"),
        (Self::Warn, "warn", "warning"),
        (Self::Info, "info", "notice"),
        (Self::Debug, "debug", "verbose"),
        (Self::Trace, "trace", "debug"),
    ];
}

/// How it is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// Lines for machines.
    Json,
}

impl Named for Format {
    const ALL: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Text, "text", "text"), (Self::Json, "json", "json")];
}

/// A setting with its value, for people and machines.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The setting.
    pub row: &'static Row,
    /// Its value in force; a password is hidden.
    pub value: String,
    /// Where that came from.
    pub source: Source,
}

impl Config {
    /// Every setting with its value and where that came from.
    pub fn show(&self) -> impl Iterator<Item = Shown> {
        ROWS.iter().zip(&self.sources).map(|(row, source)| Shown {
            row,
            value: (row.print)(self),
            source: source.clone(),
        })
    }

    /// Where the value of a setting came from.
    pub fn source(&self, name: &str) -> Option<&Source> {
        find(name).and_then(|(index, _)| self.sources.get(index))
    }

    fn set(&mut self, index: usize, text: &str, source: Source) -> Result<(), Error> {
        let Some(row) = ROWS.get(index) else { return Ok(()) };
        (row.set)(self, text).map_err(|limit| {
            let value = if row.is_secret() { "(hidden)".to_owned() } else { format!("{text:?}") };
            Error(format!("{} is {value} ({source}): {limit}", row.name))
        })?;
        if let Some(place) = self.sources.get_mut(index) {
            *place = source;
        }
        Ok(())
    }

    /// Takes what the deployment was created with, where nobody said otherwise.
    pub fn adopt(&mut self, slots: u32, partitions: u32) {
        for (name, value) in [("slots", slots), ("partitions", partitions)] {
            if let Some((index, _)) = find(name).filter(|_| !self.is_given(name)) {
                // Within the limits of the row, or the engine refuses it.
                let _ = self.set(index, &value.to_string(), Source::Registry);
            }
        }
    }

    /// Whether somebody set it.
    pub fn is_given(&self, name: &str) -> bool {
        self.source(name).is_some_and(|source| *source != Source::Default)
    }

    /// Says what does not go together.
    pub fn check(&self) -> Result<(), Error> {
        let fail = |text: String| Err(Error(text));
        let secure = [("tls_port", self.tls_port), ("tls_http_port", self.tls_http_port)];
        let ports = [("port", self.port), ("http_port", self.http_port), secure[0], secure[1]];
        for (index, (name, port)) in ports.iter().enumerate() {
            if let Some((other, _)) = ports[..index].iter().find(|(_, other)| other == port && *port != 0) {
                return fail(format!("{other} and {name} are both {port}; each needs its own"));
            }
        }
        if ports.iter().all(|(_, port)| *port == 0) {
            return fail(
                "port, http_port, tls_port and tls_http_port are all 0; one has to be open".to_owned(),
            );
        }
        let open = secure.iter().find(|(_, port)| *port != 0);
        if let Some((name, port)) = open.filter(|_| self.tls_cert.is_none() || self.tls_key.is_none()) {
            return fail(format!("{name} is {port}, but tls_cert and tls_key are not both set"));
        }
        if self.tls_client_auth != ClientAuth::Off && self.tls_client_ca.is_none() {
            let auth = self.tls_client_auth.name();
            return fail(format!("tls_client_auth is {auth}, but tls_client_ca is not set"));
        }
        if self.input_bytes_max < self.bulk_bytes_max {
            let (input, bulk) = (self.input_bytes_max, self.bulk_bytes_max);
            return fail(format!("input_bytes_max is {input}; it must be bulk_bytes_max, {bulk}, or more"));
        }
        let told =
            self.log.as_ref().map(Url::partitions).transpose().map_err(|error| Error(error.to_string()))?;
        if let Some(told) =
            told.flatten().filter(|told| self.is_given("partitions") && *told != self.partitions)
        {
            return fail(format!("partitions is {}, and log says {told}; say it once", self.partitions));
        }
        self.check_cluster()?;
        self.check_domain()?;
        if self.family == Family::Keyed && self.secret_file.is_none() {
            return fail("family is keyed, but secret_file is not set".to_owned());
        }
        // Users in a file may have any rights; their file is trusted to guard the default user.
        let open = self.password.is_none() && self.acl_file.is_none() && self.protects();
        if let Some(address) = self.bind.iter().find(|address| open && !address.is_loopback()) {
            return fail(format!(
                "bind has {address}, which other machines reach, and there is no password; set password, \
                 password_file or acl_file, or turn protected_mode off if this is meant"
            ));
        }
        Ok(())
    }

    fn check_cluster(&self) -> Result<(), Error> {
        let fail = |text: String| Err(Error(text));
        let name = &self.cluster;
        if name.is_empty() {
            let alone =
                ["node", "zone", "weight", "copies", "advertise", "cluster_secret", "cluster_secret_file"];
            return match alone.into_iter().find(|setting| self.is_given(setting)) {
                Some(setting) => {
                    fail(format!("{setting} is set, but cluster is not: it names what this is a node of"))
                }
                None => Ok(()),
            };
        }
        let planes = [("log", &self.log), ("blobs", &self.blobs), ("registry", &self.registry)];
        if let Some((plane, _)) = planes.iter().find(|(_, url)| url.is_none()) {
            return fail(format!(
                "cluster is {name}, but {plane} is in the data folder; nodes share a log, blobs and a registry on engines"
            ));
        }
        if self.node.is_empty() {
            return fail(format!("cluster is {name}, but node is not set; every node has a name of its own"));
        }
        if self.cluster_secret.is_none() {
            return fail(format!(
                "cluster is {name}, but neither cluster_secret nor cluster_secret_file is set"
            ));
        }
        if self.port == 0 {
            return fail(format!("cluster is {name}, but port is 0; other nodes come there"));
        }
        self.advertised().map(drop)
    }

    /// Whether other machines are kept out as long as the default user has no password: from a server that starts, and from one that runs.
    pub fn protects(&self) -> bool {
        self.protected_mode && !self.allow_public_without_password
    }

    /// The addresses to listen on at this port; none for port 0, which is off.
    pub fn addresses(&self, port: u16) -> Vec<SocketAddr> {
        if port == 0 {
            return Vec::new();
        }
        // An address that the user wrote is not left out in silence.
        let is_there = |ip: &IpAddr| ip.is_ipv4() || self.is_given("bind") || has_ipv6();
        self.bind.iter().filter(|ip| is_there(ip)).map(|ip| (*ip, port).into()).collect()
    }

    /// Where other nodes reach this one.
    pub fn advertised(&self) -> Result<String, Error> {
        if !self.advertise.is_empty() {
            return Ok(self.advertise.clone());
        }
        match self.bind.iter().find(|address| !address.is_unspecified()) {
            Some(address) => Ok(SocketAddr::new(*address, self.port).to_string()),
            None => Err(Error(
                "bind is every address; say with advertise at which one other nodes reach this one".into(),
            )),
        }
    }

    /// The file that settings were read from, if one was.
    pub fn file(&self) -> Option<&Path> {
        self.sources.iter().find_map(|source| match source {
            Source::File(path) => Some(&**path),
            _ => None,
        })
    }

    /// Durability as one writes it.
    pub fn durability_text(&self) -> String {
        Durable.print(&self.durability)
    }

    /// The engine's settings. Reads the secret, if a file is named for it.
    pub fn engine(&self) -> Result<umbel_core::engine::Settings, Error> {
        let secret = self.secret_file.as_deref().map(read_secret).transpose()?;
        Ok(umbel_core::engine::Settings {
            slots: self.slots,
            sharded_above_bytes: self.sharded_above,
            memory_bytes: self.memory,
            grow_at_percent: self.grow_at_percent,
            checkpoint_every: self.checkpoint_every,
            replay_max: self.replay_max,
            secret,
            ..umbel_core::engine::Settings::default()
        })
    }
}

fn read_secret(path: &Path) -> Result<Secret, Error> {
    let fail = |text: &str| Error(format!("secret_file {}: {text}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| fail(&error.to_string()))?;
    let text = text.trim();
    let number = (text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten();
    number
        .map(|number| Secret(number.to_be_bytes()))
        .ok_or_else(|| fail("it must hold 32 hexadecimal digits"))
}

/// All settings as a Markdown table.
pub fn markdown() -> String {
    let mut text = String::from(
        "| name | default | unit | live | Redis | meaning |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for row in ROWS {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let live = if row.live { "yes" } else { "" };
        let cells =
            [&code(row.name), &code(row.default), row.unit, live, &code(row.redis), row.meaning].join(" | ");
        text.push_str(&format!("| {cells} |\n"));
    }
    text
}
