//! Redis, for all three planes: streams for the log, scripts for the registry, strings for blobs.

mod blobs;
mod log;
mod registry;
mod watch;

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ErrorKind, FromRedisValue, RedisError,
    Script, ScriptInvocation, TlsCertificates,
};
use tokio::sync::Mutex;
use umbel_core::{Error, Result};

use crate::access::{Access, Convention};
use crate::{About, Durability, Url};

pub(crate) use blobs::open as open_blobs;
pub(crate) use log::open as open_log;
pub(crate) use registry::open as open_registry;

/// What redis-cli is told by.
const REDIS_CLI: Convention = Convention { ca: "", cert: "", key: "", user: "", password: "REDISCLI_AUTH" };

/// A connection that is made again when it was lost. Requests are not: only who asked knows whether that is harmless.
struct Connection {
    client: Client,
    timeout: Duration,
    current: Mutex<Option<MultiplexedConnection>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client holds the password.
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    fn new(url: &Url) -> Result<Self> {
        let hosts = url.hosts_with_port(6379);
        let [host] = &hosts[..] else {
            return Err(Error::Invalid(format!("{url} names {} hosts; a Redis is one", hosts.len())));
        };
        Ok(Self { client: client(url, host, 0)?, timeout: url.timeout()?, current: Mutex::default() })
    }

    async fn get(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &*current {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(current.insert(connection).clone())
    }

    /// Asks, and forgets the connection if it is of no use any more.
    async fn ask<T>(
        &self,
        doing: &str,
        request: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T> {
        let outcome = match self.get().await {
            Ok(mut connection) => request(&mut connection).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(answer) => Ok(answer),
            Err(error) => {
                if error.is_unrecoverable_error() || error.is_timeout() || error.is_io_error() {
                    *self.current.lock().await = None;
                }
                let message = format!("{doing}: {error}");
                match error.kind() {
                    ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => {
                        Err(Error::Invalid(message))
                    }
                    _ => Err(Error::Retry(message)),
                }
            }
        }
    }

    /// Runs a script.
    async fn run<T: FromRedisValue>(&self, doing: &str, script: &ScriptInvocation<'_>) -> Result<T> {
        self.ask(doing, async |connection| script.invoke_async(connection).await).await
    }

    /// What the server is, and what it does with what it is told.
    async fn about(&self) -> Result<About> {
        let doing = "cannot ask Redis what it is";
        let info: String = self
            .ask(doing, async |connection| redis::cmd("INFO").arg("everything").query_async(connection).await)
            .await?;
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        // Whether every write is synced is in the settings, which not every user may read.
        let policy: Result<Vec<String>> = self
            .ask(doing, async |connection| {
                redis::cmd("CONFIG").arg("GET").arg("appendfsync").query_async(connection).await
            })
            .await;
        let policy = policy.ok().and_then(|pair| pair.into_iter().nth(1));
        let (durability, mut lacks) = match (&*field("aof_enabled"), policy.as_deref()) {
            ("0", _) => (Durability::Memory, "it runs without AOF (appendonly no)".to_owned()),
            (_, Some("always")) => (Durability::Synced, String::new()),
            (_, Some("everysec")) => {
                (Durability::Window(Duration::from_secs(1)), "appendfsync is everysec".into())
            }
            (_, Some(_)) => (Durability::Window(Duration::from_secs(30)), "appendfsync is no".into()),
            (_, None) => (Durability::Unknown, "appendfsync may not be read here".into()),
        };
        if field("connected_slaves").parse().is_ok_and(|replicas: u32| replicas > 0) {
            lacks = [&*lacks, "a failover may lose what was not yet replicated"]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("; ");
        }
        Ok(About { engine: "Redis", version: field("redis_version"), durability, lacks })
    }
}

/// A client of one of the hosts that a URL names, in one of its databases.
pub(crate) fn client(url: &Url, host: &str, database: u32) -> Result<Client> {
    let invalid = |error: RedisError| Error::Invalid(format!("cannot open {url}: {error}"));
    let (host, port) = host.rsplit_once(':').unwrap_or((host, "6379"));
    let port = port.parse().map_err(|_| Error::Invalid(format!("{url} has no port that is a number")))?;
    let host = host.to_owned();
    let access = Access::of(url, REDIS_CLI)?;
    let address = if access.tls.is_some() {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let mut settings = redis::RedisConnectionInfo::default().set_db(database.into());
    if let Some((user, password)) = access.credentials {
        settings = settings.set_password(password);
        // Without a user it is the password of the default one, as in Redis's own URLs.
        if !user.is_empty() {
            settings = settings.set_username(user);
        }
    }
    let info = redis::IntoConnectionInfo::into_connection_info(address).map_err(invalid)?;
    let info = info.set_redis_settings(settings);
    let client = match access.tls {
        None => Client::open(info),
        Some(files) => {
            let identity = files.identity_pem()?;
            let client_tls = identity.map(|(cert, key)| ClientTlsConfig {
                client_cert: cert.into_bytes(),
                client_key: key.into_bytes(),
            });
            let root_cert = files.authority_pem()?.map(String::into_bytes);
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
        }
    };
    client.map_err(invalid)
}

/// A script with what all scripts begin with.
fn script(common: &str, code: &str) -> Script {
    Script::new(&format!("{common}\n{code}"))
}
