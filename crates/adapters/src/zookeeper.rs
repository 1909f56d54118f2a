//! The registry in ZooKeeper: a node for each name, and one that every change goes through.

#[cfg(not(feature = "zookeeper-tls"))]
#[path = "zookeeper/insecure.rs"]
mod secure;
#[cfg(feature = "zookeeper-tls")]
mod secure;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use umbel_core::registry::{Change, Expected, Lease, Listing, Registry, Versioned, check_name, check_value};
use umbel_core::{Error, Result};
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error as ZkError, MultiWriteError, MultiWriteResult, Stat,
};

use crate::access::{Access, Convention, Tls};
use crate::{About, Durability, Opened, Url};

/// How often a change is tried again because another one came between.
const TRIES: usize = 64;
/// Values that are asked for at a time.
const READS: usize = 32;
/// Longest time that the session for all but leases may be without an answer.
const SESSION: Duration = Duration::from_secs(10);

/// A registry below a node of ZooKeeper.
///
/// ```text
/// <root>/guard          every change sets it, in the same transaction
/// <root>/names/<name>   the values; names under a lease are ephemeral
/// ```
///
/// ZooKeeper compares a node's own count of changes, which begins anew when the node is made again. The guard's count does not, so
/// a change that was planned before another one is refused, whatever that one did. Revisions are transaction numbers (zxid):
/// a listing has the greater of the guard's and of the last creation or deletion of a name, since leases end without the guard.
///
/// A lease is a session of its own. The client library keeps sessions alive by itself, so a lease whose time has passed is ended
/// here; if this process or its network is gone, ZooKeeper ends it. It cannot be used by another process.
struct ZookeeperRegistry {
    cluster: String,
    login: Option<Vec<u8>>,
    tls: Option<Tls>,
    guard: String,
    names: String,
    timeout: Duration,
    session: tokio::sync::Mutex<Option<Client>>,
    leases: Arc<Leases>,
}

#[derive(Default)]
struct Leases(Mutex<HashMap<u64, Term>>);

struct Term {
    client: Client,
    time: Duration,
    ends: Instant,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Term>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ZookeeperRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperRegistry").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Opens `zookeeper://user:password@host:port,host:port/path?tls=true&ca=file&cert=file&key=file`.
pub(crate) async fn open_registry(url: &Url) -> Result<Opened<dyn Registry>> {
    url.allow(&["ca", "cert", "key", "timeout_ms", "tls"])?;
    // Its tools have properties of Java's, which no other client reads.
    let access = Access::of(url, Convention::default())?;
    let root = format!("/{}", url.path_or("umbel"));
    let hosts = url.hosts_with_port(if access.tls.is_some() { 2281 } else { 2181 });
    secure::check(url, &hosts, access.tls.as_ref())?;
    let registry = ZookeeperRegistry {
        cluster: hosts.join(","),
        login: access.credentials.map(|(user, password)| format!("{user}:{password}").into_bytes()),
        tls: access.tls,
        guard: format!("{root}/guard"),
        names: format!("{root}/names"),
        timeout: url.timeout()?,
        session: tokio::sync::Mutex::default(),
        leases: Arc::default(),
    };
    let doing = format!("cannot open {url}");
    let client = registry.client().await?;
    let lasting = CreateMode::Persistent.with_acls(registry.acls());
    let made = async {
        client.mkdir(&registry.names, &lasting).await?;
        match client.create(&registry.guard, b"", &lasting).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    };
    registry.within(&doing, made).await?;
    let mut version = String::new();
    // On a port with TLS there are no commands of four letters without it.
    for host in hosts.iter().filter(|_| registry.tls.is_none()) {
        version = timeout(Duration::from_secs(2), ask_version(host)).await.ok().flatten().unwrap_or_default();
        if !version.is_empty() {
            break;
        }
    }
    let lacks = if hosts.len() == 1 { "one server is named; if it is away, so is the registry" } else { "" };
    let about = About { engine: "ZooKeeper", version, durability: Durability::Synced, lacks: lacks.into() };
    Ok(Opened { plane: Arc::new(registry), about })
}

/// The version, by the one command of four letters that every server answers.
async fn ask_version(host: &str) -> Option<String> {
    let mut socket = tokio::net::TcpStream::connect(host).await.ok()?;
    socket.write_all(b"srvr").await.ok()?;
    let mut said = String::new();
    socket.take(4096).read_to_string(&mut said).await.ok()?;
    let line = said.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))?;
    line.split(['-', ',']).next().map(str::to_owned)
}

/// A name as that of a node, which may not have every letter.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn decoded(node: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(node.len());
    let mut rest = node;
    while let Some(at) = rest.find('%') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let byte = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| Error::Corrupt(format!("a node {node} that is no name")))?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| Error::Corrupt(format!("a node {node} that is no name")))
}

fn versioned(data: Vec<u8>, stat: &Stat) -> Versioned {
    Versioned { value: data.into(), version: stat.mzxid as u64 }
}

fn is_over(error: &ZkError) -> bool {
    matches!(error, ZkError::SessionExpired | ZkError::ClientClosed)
}

/// A value, if there is one.
async fn read(client: &Client, path: &str) -> Result<Option<(Vec<u8>, Stat)>, ZkError> {
    match client.get_data(path).await {
        Ok(held) => Ok(Some(held)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

impl ZookeeperRegistry {
    fn path(&self, name: &str) -> Result<String> {
        check_name(name)?;
        Ok(format!("{}/{}", self.names, encoded(name)))
    }

    fn acls(&self) -> Acls<'static> {
        if self.login.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    async fn connect(&self, session: Duration) -> Result<Client> {
        let mut connector = Client::connector()
            .with_session_timeout(session)
            .with_connection_timeout(self.timeout)
            .with_fail_eagerly();
        if let Some(login) = &self.login {
            connector = connector.with_auth("digest", login);
        }
        if let Some(files) = &self.tls {
            return secure::connect(self, connector, files).await;
        }
        self.within("cannot connect to ZooKeeper", connector.connect(&self.cluster)).await
    }

    /// The session for all but leases; a new one if it has ended.
    async fn client(&self) -> Result<Client> {
        let mut session = self.session.lock().await;
        if let Some(client) = session.as_ref().filter(|client| !client.state().is_terminated()) {
            return Ok(client.clone());
        }
        Ok(session.insert(self.connect(SESSION).await?).clone())
    }

    async fn within<T>(&self, doing: &str, request: impl Future<Output = Result<T, ZkError>>) -> Result<T> {
        match timeout(self.timeout, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error @ (ZkError::BadArguments(_) | ZkError::NoAuth | ZkError::AuthFailed))) => {
                Err(Error::Invalid(format!("{doing}: {error}")))
            }
            Ok(Err(error)) => Err(Error::Retry(format!("{doing}: {error}"))),
            Err(_) => {
                let seconds = self.timeout.as_secs_f64();
                Err(Error::Retry(format!("{doing}: ZooKeeper did not answer within {seconds} s")))
            }
        }
    }

    /// The newest revision that the guard and the names know.
    async fn revision(&self, client: &Client) -> Result<(u64, Vec<String>), ZkError> {
        let guard = client.check_stat(&self.guard).await?.ok_or(ZkError::NoNode)?;
        let (children, names) = client.get_children(&self.names).await?;
        Ok((guard.mzxid.max(names.pzxid) as u64, children))
    }

    /// All values below a prefix, or nothing if something changed meanwhile.
    async fn try_list(&self, client: &Client, prefix: &str) -> Result<Option<Listing>, ZkError> {
        client.sync(&self.names).await?;
        let (revision, children) = self.revision(client).await?;
        let start = encoded(prefix);
        let wanted = children.into_iter().filter(|child| child.starts_with(&start));
        let reads = wanted.map(|child| async move {
            let held = read(client, &format!("{}/{child}", self.names)).await?;
            Ok::<_, ZkError>((child, held))
        });
        let found: Vec<_> = stream::iter(reads).buffered(READS).try_collect().await?;
        if self.revision(client).await?.0 != revision {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(found.len());
        for (child, held) in found {
            let Some((data, stat)) = held else { return Ok(None) };
            let name = decoded(&child).map_err(|error| ZkError::UnexpectedError(error.to_string()))?;
            entries.push((name, versioned(data, &stat)));
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(Some(Listing { revision, entries }))
    }

    /// Tries a change once; nothing if another one came between.
    async fn try_change(
        &self,
        client: &Client,
        path: &str,
        expected: Expected,
        put: Option<(&Bytes, bool)>,
    ) -> Result<Option<Change>, ZkError> {
        client.sync(path).await?;
        let guard = client.check_stat(&self.guard).await?.ok_or(ZkError::NoNode)?;
        let current = read(client, path).await?;
        let version = current.as_ref().map(|(_, stat)| stat.mzxid as u64);
        let fits = match expected {
            Expected::Anything => true,
            Expected::Absent => version.is_none(),
            Expected::Version(expected) => version == Some(expected),
        };
        if !fits {
            return Ok(Some(Change::Conflict(current.map(|(data, stat)| versioned(data, &stat)))));
        }
        let mut writer = client.new_multi_writer();
        writer.add_set_data(&self.guard, b"", Some(guard.version))?;
        match (current.map(|(_, stat)| stat), put) {
            (None, None) => return Ok(Some(Change::Done(guard.mzxid as u64))),
            (Some(stat), None) => writer.add_delete(path, Some(stat.version))?,
            (None, Some((value, leased))) => writer.add_create(path, value, &self.options(leased))?,
            (Some(stat), Some((value, false))) if stat.ephemeral_owner == 0 => {
                writer.add_set_data(path, value, Some(stat.version))?;
            }
            // A node cannot go from one session to another.
            (Some(stat), Some((value, leased))) => {
                writer.add_delete(path, Some(stat.version))?;
                writer.add_create(path, value, &self.options(leased))?;
            }
        }
        match writer.commit().await {
            Ok(done) => match done.first() {
                Some(MultiWriteResult::SetData { stat }) => Ok(Some(Change::Done(stat.mzxid as u64))),
                _ => Err(ZkError::UnexpectedError("a transaction that did something else".into())),
            },
            Err(MultiWriteError::OperationFailed {
                source: ZkError::BadVersion | ZkError::NoNode | ZkError::NodeExists,
                ..
            }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn options(&self, leased: bool) -> CreateOptions<'static> {
        let mode = if leased { CreateMode::Ephemeral } else { CreateMode::Persistent };
        mode.with_acls(self.acls())
    }

    async fn change(
        &self,
        doing: &str,
        client: &Client,
        path: &str,
        expected: Expected,
        put: Option<(&Bytes, bool)>,
    ) -> Result<Change> {
        for _ in 0..TRIES {
            let tried = self.try_change(client, path, expected, put);
            if let Some(change) = self.within(doing, tried).await? {
                return Ok(change);
            }
        }
        Err(Error::Retry(format!("{doing}: others changed the registry {TRIES} times meanwhile")))
    }

    /// The session of a lease that has not ended.
    fn lease(&self, lease: Lease) -> Option<Client> {
        let mut leases = self.leases.lock();
        let client = leases.get(&lease.0).map(|term| term.client.clone())?;
        if client.state().is_terminated() {
            leases.remove(&lease.0);
            return None;
        }
        Some(client)
    }
}

#[async_trait]
impl Registry for ZookeeperRegistry {
    async fn get(&self, name: &str) -> Result<Option<Versioned>> {
        let path = self.path(name)?;
        let client = self.client().await?;
        let held = async {
            // A server may be behind others; after this it is not.
            client.sync(&path).await?;
            read(&client, &path).await
        };
        let held = self.within("cannot read a name", held).await?;
        Ok(held.map(|(data, stat)| versioned(data, &stat)))
    }

    async fn list(&self, prefix: &str) -> Result<Listing> {
        let doing = "cannot list names";
        let client = self.client().await?;
        for _ in 0..TRIES {
            if let Some(listing) = self.within(doing, self.try_list(&client, prefix)).await? {
                return Ok(listing);
            }
        }
        Err(Error::Retry(format!("{doing}: others changed the registry {TRIES} times meanwhile")))
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change> {
        let path = self.path(name)?;
        check_value(&value)?;
        let doing = "cannot put a name";
        let Some(lease) = lease else {
            let client = self.client().await?;
            return self.change(doing, &client, &path, expected, Some((&value, false))).await;
        };
        let ended = || Error::Invalid(format!("lease {} has ended, or is of another process", lease.0));
        let client = self.lease(lease).ok_or_else(ended)?;
        let outcome = self.change(doing, &client, &path, expected, Some((&value, true))).await;
        if outcome.is_err() && client.state().is_terminated() { Err(ended()) } else { outcome }
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change> {
        let path = self.path(name)?;
        let client = self.client().await?;
        self.change("cannot delete a name", &client, &path, expected, None).await
    }

    async fn changed(&self, _prefix: &str, after: u64) -> Result<()> {
        let client = self.client().await?;
        let watch = async {
            let (guard, changes) = client.check_and_watch_stat(&self.guard).await?;
            let (_, names, ends) = client.get_and_watch_children(&self.names).await?;
            let newest = guard.map_or(0, |guard| guard.mzxid).max(names.pzxid) as u64;
            Ok((newest, changes, ends))
        };
        let (newest, changes, ends) = self.within("cannot watch names", watch).await?;
        if newest > after {
            return Ok(());
        }
        // Either tells of a session that has ended, too: then the next call looks again.
        match select(Box::pin(changes.changed()), Box::pin(ends.changed())).await {
            Either::Left(_) | Either::Right(_) => Ok(()),
        }
    }

    async fn grant(&self, time: Duration) -> Result<Lease> {
        let client = self.connect(time).await?;
        let agreed = client.session_timeout();
        if agreed < time {
            let seconds = agreed.as_secs_f64();
            return Err(Error::Invalid(format!("ZooKeeper keeps sessions for {seconds} s at most")));
        }
        let number = client.session_id().0 as u64;
        let mut ends = Instant::now() + time;
        self.leases.lock().insert(number, Term { client, time, ends });
        let leases = Arc::downgrade(&self.leases);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep_until(ends).await;
                let Some(leases) = leases.upgrade() else { return };
                let mut leases = leases.lock();
                match leases.get(&number) {
                    Some(term) if term.ends > Instant::now() => ends = term.ends,
                    _ => {
                        // Without its client the session is closed, and its names go.
                        leases.remove(&number);
                        return;
                    }
                }
            }
        });
        Ok(Lease(number))
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool> {
        let Some(client) = self.lease(lease) else { return Ok(false) };
        let begin = Instant::now();
        let alive = async {
            // A server answers reads by itself, also while it is cut off from the one that leads, by which sessions end.
            match client.sync(&self.guard).await {
                Ok(()) => Ok(true),
                Err(error) if is_over(&error) => Ok(false),
                Err(error) => Err(error),
            }
        };
        let alive = self.within("cannot keep a lease alive", alive).await?;
        let mut leases = self.leases.lock();
        if !alive {
            leases.remove(&lease.0);
        }
        // Its time may have passed while the answer was on its way.
        let Some(term) = leases.get_mut(&lease.0) else { return Ok(false) };
        term.ends = begin + term.time;
        Ok(true)
    }

    async fn revoke(&self, lease: Lease) -> Result<()> {
        let Some(client) = self.lease(lease) else { return Ok(()) };
        let doing = "cannot revoke a lease";
        // Closing the session deletes its names too, but nobody says when.
        for path in self.within(doing, client.list_ephemerals(&self.names)).await? {
            self.change(doing, &client, &path, Expected::Anything, None).await?;
        }
        self.leases.lock().remove(&lease.0);
        Ok(())
    }
}
