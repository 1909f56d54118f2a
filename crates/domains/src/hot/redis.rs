//! Answers that several servers keep together in Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Pipeline};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use umbel_core::url::Url;

use super::SharedAnswers;
use crate::{Error, Result};

/// How long a lost connection is left alone before another one is made.
const PAUSE: Duration = Duration::from_millis(500);

/// A Redis, at `redis://user:password@host:port/prefix`. Nobody who asks waits for a connection: as long as there is none, nothing is kept.
pub struct RedisAnswers {
    link: Arc<Link>,
    prefix: String,
    connecting: AbortHandle,
}

struct Link {
    client: Client,
    timeout: Duration,
    connection: ArcSwapOption<MultiplexedConnection>,
    is_lost: Notify,
    shown: String,
}

impl fmt::Debug for RedisAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisAnswers").field(&self.link.shown).finish()
    }
}

impl Drop for RedisAnswers {
    fn drop(&mut self) {
        self.connecting.abort();
    }
}

impl RedisAnswers {
    /// Connects in the background, for as long as it is there.
    pub fn open(url: &Url, runtime: &Handle) -> Result<Self> {
        url.allow(&["ca", "cert", "key", "timeout_ms", "tls"])?;
        let hosts = url.hosts_with_port(6379);
        let [host] = &hosts[..] else {
            return Err(Error::Invalid(format!("{url} names {} hosts; a Redis is one", hosts.len())));
        };
        if url.scheme() != "redis" {
            return Err(Error::Invalid(format!(
                "{url}: answers are shared in Redis, at redis://host/prefix"
            )));
        }
        let link = Arc::new(Link {
            client: umbel_adapters::connect::redis(url, host, 0)?,
            timeout: url.timeout()?,
            connection: ArcSwapOption::empty(),
            is_lost: Notify::new(),
            shown: url.to_string(),
        });
        let connecting = runtime.spawn(Arc::clone(&link).keep_connected()).abort_handle();
        Ok(Self { link, prefix: format!("{}:", url.path_or("umbel")), connecting })
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Link {
    async fn keep_connected(self: Arc<Self>) {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let mut is_well = true;
        loop {
            match self.client.get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => {
                    self.connection.store(Some(Arc::new(connection)));
                    tracing::info!("answers are shared at {}", self.shown);
                    is_well = true;
                    self.is_lost.notified().await;
                }
                Err(error) if is_well => {
                    tracing::warn!(%error, "answers are not shared: {} cannot be reached", self.shown);
                    is_well = false;
                }
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    }

    async fn ask<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T> {
        let Some(connection) = self.connection.load_full() else {
            return Err(Error::Retry(format!("{} is not connected", self.shown)));
        };
        let asked = pipeline.query_async(&mut (*connection).clone()).await;
        asked.map_err(|error| {
            if error.is_unrecoverable_error() || error.is_timeout() || error.is_io_error() {
                self.connection.store(None);
                self.is_lost.notify_one();
            }
            Error::Retry(format!("{}: {error}", self.shown))
        })
    }
}

#[async_trait]
impl SharedAnswers for RedisAnswers {
    async fn get(&self, name: &str) -> Result<(Duration, Option<Vec<u8>>)> {
        let mut asked = redis::pipe();
        // The time is that of the answer, or earlier: what is written by others between the two is from the future, and passed over.
        asked.cmd("TIME").cmd("GET").arg(self.name(name));
        let ((seconds, micros), bytes): ((u64, u32), Option<Vec<u8>>) = self.link.ask(&asked).await?;
        Ok((Duration::from_secs(seconds) + Duration::from_micros(micros.into()), bytes))
    }

    async fn put(&self, name: &str, bytes: Vec<u8>, time: Duration) -> Result<()> {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 16);
        let mut asked = redis::pipe();
        asked.cmd("SET").arg(self.name(name)).arg(bytes).arg("PX").arg(millis).ignore();
        self.link.ask(&asked).await
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let mut asked = redis::pipe();
        asked.cmd("DEL").arg(self.name(name)).ignore();
        self.link.ask(&asked).await
    }
}
