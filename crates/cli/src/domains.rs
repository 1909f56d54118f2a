//! A server as one of several domains: where the doors of `umbel-server` and the catalogs of `umbel-domains` meet. Neither knows the other.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::{Builder, Handle, Runtime};
use umbel_client::Strategy;
use umbel_core::clock::SystemClock;
use umbel_core::engine::Engine;
use umbel_core::random::SystemRandom;
use umbel_core::registry::Registry;
use umbel_core::url::Url;
use umbel_domains::service::{self, CatalogSettings, Follow, Means, Neighbour, Service, Settings};
use umbel_domains::source::{Relation, SqlRecords, Wanted, WebRecords};
use umbel_domains::{Error, Fetched, HotSettings, Result, SharedAnswers, Source};
use umbel_server::config::{CatalogConfig, Config, DomainConfig, Find, Following, SourceConfig};
use umbel_server::lookup::{Found, Hottest, Lookups, Origin, Question, Record, Standing, Step, Value};

/// Threads for copies of others' filters and questions to them.
const THREADS: usize = 2;
/// Sources wait on threads of their own; each catalog has as many connections as its settings say.
const SOURCE_THREADS: usize = 128;
/// How often one asks that is followed by `pull`, unlike others of its catalog.
const PULL_INTERVAL: Duration = Duration::from_secs(5);

/// The runtime of domains.
pub fn runtime() -> std::io::Result<Runtime> {
    let builder = &mut Builder::new_multi_thread();
    builder
        .worker_threads(THREADS)
        .max_blocking_threads(SOURCE_THREADS)
        .thread_name("domains")
        .enable_all()
        .build()
}

/// All catalogs of a server, for its doors.
#[derive(Debug)]
pub struct Domains {
    service: Service,
    /// For people: what it is, and where it finds others.
    about: String,
}

impl fmt::Display for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about)
    }
}

impl Domains {
    /// Opens what the settings say.
    pub fn open(
        config: &Config,
        engine: &Arc<Engine>,
        registry: Option<Arc<dyn Registry>>,
        runtime: &Handle,
    ) -> Result<Self> {
        let settings = settings(config, runtime)?;
        let means = Means {
            engine: Arc::clone(engine),
            registry,
            runtime: runtime.clone(),
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(SystemRandom::default()),
        };
        let catalogs: Vec<&str> = config.catalogs.iter().map(|catalog| &*catalog.name).collect();
        let others = match &config.domain_registry {
            Some(url) => format!("others at {url}"),
            None => format!("{} others", config.domains.len()),
        };
        let about = format!("{}  (catalogs {}; {others})", config.domain, catalogs.join(", "));
        Ok(Self { service: Service::open(settings, &means)?, about })
    }

    /// A service that somebody opened otherwise.
    pub fn new(service: Service) -> Self {
        let about = service.name().to_owned();
        Self { service, about }
    }

    /// The catalogs.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The server ends, and may be started again.
    pub async fn rest(&self) -> Result<()> {
        self.service.rest().await
    }
}

fn settings(config: &Config, runtime: &Handle) -> Result<Settings> {
    let address = match config.domain_registry {
        Some(_) => config.domain_advertised().map_err(|error| Error::Invalid(error.to_string()))?,
        None => String::new(),
    };
    Ok(Settings {
        name: config.domain.clone(),
        address,
        catalogs: config.catalogs.iter().map(|config| catalog(config, runtime)).collect::<Result<_>>()?,
        neighbours: config.domains.iter().map(neighbour).collect::<Result<_>>()?,
        lease: config.domain_lease,
    })
}

fn catalog(config: &CatalogConfig, runtime: &Handle) -> Result<CatalogSettings> {
    let named =
        |setting: &str, error: Error| Error::Invalid(format!("catalogs.{}.{setting}: {error}", config.name));
    let shared = config.kept_at.as_ref().map(|url| shared(url, runtime)).transpose();
    Ok(CatalogSettings {
        name: config.name.clone(),
        filter: config.filter.clone(),
        follow: follow(config.strategy, config.interval),
        stale_after: config.stale_after,
        deadline: config.deadline,
        hot: HotSettings {
            bytes_max: config.kept_bytes,
            found_for: config.kept_for,
            absent_for: config.absent_for,
        },
        shared: shared.map_err(|error| named("kept_at", error))?,
        source: config.source.as_ref().map(source).transpose().map_err(|error| named("source", error))?,
    })
}

#[cfg(feature = "redis")]
fn shared(url: &Url, runtime: &Handle) -> Result<Arc<dyn SharedAnswers>> {
    Ok(Arc::new(umbel_domains::RedisAnswers::open(url, runtime)?))
}

#[cfg(not(feature = "redis"))]
fn shared(url: &Url, _: &Handle) -> Result<Arc<dyn SharedAnswers>> {
    Err(Error::Invalid(format!("{url}: this build lacks Redis; rebuild with --features redis")))
}

fn follow(strategy: Following, interval: Duration) -> Follow {
    Follow::Copy(match strategy {
        Following::Delta => Strategy::delta(),
        Following::Push => Strategy::push(),
        Following::Pull => Strategy::pull(interval),
        Following::Notify => Strategy::notify(),
        Following::Ask => return Follow::Ask,
    })
}

fn neighbour(config: &DomainConfig) -> Result<Neighbour> {
    Ok(Neighbour {
        name: config.name.clone(),
        address: (!config.address.is_empty()).then(|| config.address.clone()),
        token: config.token_file.as_deref().map(token).transpose()?,
        ca_file: config.ca.clone(),
        follow: config.strategy.map(|strategy| follow(strategy, PULL_INTERVAL)),
    })
}

fn source(config: &SourceConfig) -> Result<Arc<dyn Source>> {
    Ok(match config {
        SourceConfig::Sql { address, find, connections } => {
            let wanted = match find.clone() {
                Find::Row { table, key, columns } => {
                    Wanted::Row { table: Relation::table(&table), key, columns }
                }
                Find::Query { text, key } => Wanted::Query { text, key },
            };
            Arc::new(SqlRecords::new(address, wanted, *connections as usize)?)
        }
        SourceConfig::Http { address, token_file, ca } => {
            let token = token_file.as_deref().map(token).transpose()?;
            Arc::new(WebRecords::new(address, token.as_deref(), ca.as_deref())?)
        }
    })
}

/// The first line of a file.
fn token(path: &Path) -> Result<String> {
    let fail = |why: &dyn fmt::Display| Error::Invalid(format!("token_file {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
    match text.lines().next().map(str::trim) {
        Some(token) if !token.is_empty() => Ok(token.to_owned()),
        _ => Err(fail(&"its first line is empty; it must be the token")),
    }
}

#[async_trait]
impl Lookups for Domains {
    fn domain(&self) -> &str {
        self.service.name()
    }

    async fn ask(&self, catalog: &str, key: &[u8], question: Question) -> umbel_core::Result<Option<Found>> {
        let Question { fetch, local, within } = question;
        let told = self.service.ask(catalog, key, service::Question { fetch, local, within }).await;
        told.transpose().map(|told| told.map(found)).map_err(|error| match error {
            Error::Invalid(why) => umbel_core::Error::Invalid(why),
            other => umbel_core::Error::Retry(other.to_string()),
        })
    }

    fn hottest(&self, catalog: &str, most: usize) -> Option<Hottest> {
        let counts = self.service.counts(catalog)?;
        Some(Hottest { keys: counts.top(most), accesses: counts.accesses() })
    }
}

fn found(fetched: Fetched) -> Found {
    let standing = |standing: umbel_domains::Standing| Standing {
        domain: standing.domain.to_string(),
        answer: standing.answer,
        age: standing.age,
        origin: origin(standing.origin),
    };
    let step = |step: umbel_domains::Step| Step {
        domain: step.domain.to_string(),
        origin: origin(step.origin),
        began: step.began,
        ended: step.ended,
        failed: step.failed.map(|error| error.to_string()),
    };
    Found {
        standings: fetched.standings.into_iter().map(standing).collect(),
        record: fetched.record.map(|(domain, kept)| (domain.to_string(), record(&kept))),
        steps: fetched.steps.into_iter().map(step).collect(),
        looked: fetched.looked,
        took: fetched.took,
    }
}

fn origin(origin: umbel_domains::Origin) -> Origin {
    match origin {
        umbel_domains::Origin::Filter => Origin::Filter,
        umbel_domains::Origin::Network => Origin::Network,
        umbel_domains::Origin::Source => Origin::Source,
        umbel_domains::Origin::Cache => Origin::Cache,
    }
}

fn record(record: &umbel_domains::Record) -> Record {
    use umbel_domains::{Record as Kept, Value as Datum};
    let value = |value: &Datum| match value {
        Datum::Null => Value::Null,
        Datum::Int(number) => Value::Int(*number),
        Datum::Uint(number) => Value::Uint(*number),
        Datum::Real(number) => Value::Real(*number),
        Datum::Text(text) => Value::Text(text.clone()),
        Datum::Bytes(bytes) => Value::Bytes(bytes.clone()),
    };
    match record {
        Kept::Row(fields) => {
            Record::Row(fields.iter().map(|field| (field.column.clone(), value(&field.value))).collect())
        }
        Kept::Body { kind, bytes } => Record::Body { kind: kind.clone(), bytes: bytes.clone() },
    }
}
