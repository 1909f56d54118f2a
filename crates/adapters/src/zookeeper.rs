//! The registry in ZooKeeper: a node for each name, and one that every change goes through.

#[cfg(not(feature = "zookeeper-tls"))]
#[path = "zookeeper/insecure.rs"]
mod secure;
#[cfg(feature = "zookeeper-tls")]
mod secure;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{Either, select, try_join};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use umbel_core::random::{Random, SystemRandom};
use umbel_core::registry::{Change, Expected, Lease, Listing, Registry, Versioned, check_name, check_value};
use umbel_core::{Error, Result};
use zookeeper_client::{
    Acls, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult, SessionState, Stat,
};

use crate::access::{Access, Convention, Tls};
use crate::{About, Durability, Opened, Url};

/// How often a change is tried again because another one came between.
const TRIES: usize = 64;
/// Values that are asked for at a time.
const READS: usize = 32;
/// Timeout of the session. Nothing depends on it but watches: no node is ephemeral.
const SESSION: Duration = Duration::from_secs(10);
/// Longest silence of a server before the client goes to another one. Shorter than two thirds of a lease of 5 s, so that a server that
/// hangs does not cost the lease.
const SILENCE: Duration = Duration::from_secs(2);
/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two reads of all leases, for a lease of any length.
const LEASES_PAUSE: Duration = Duration::from_millis(250);

/// What a check in a transaction expects of a node that only has to exist.
const ANY_VERSION: i32 = -1;

/// A registry below a node of ZooKeeper.
///
/// ```text
/// <root>/guard             every change of names sets it, in the same transaction
/// <root>/names/<name>      the values
/// <root>/leases/<number>   a lease, with its length in milliseconds; each renewal sets it
/// <root>/owners/<name>     the number of the lease that a name is under
/// ```
///
/// ZooKeeper compares a node's own count of changes, which begins anew when the node is made again. The guard's count does not, so
/// a change that was planned before another one is refused, whatever that one did. Revisions are transaction numbers (zxid):
/// a listing has the greater of the guard's and of the last creation or deletion of a name, since a process of an older version may
/// still have ephemeral names, which end without the guard.
///
/// # Leases
///
/// A lease is not a session of ZooKeeper. The leader ends sessions, and it learns that a session is alive only from a follower's answers
/// to its pings, every half tick, from a reconnect, or from requests if the client is connected to the leader itself. Neither `sync` nor
/// a write through a follower renews a session at the leader (`LearnerHandler`, cases `PING`, `REVALIDATE` and `REQUEST`;
/// `LeaderZooKeeperServer.submitLearnerRequest`). A follower that is cut off after it answered takes its knowledge with it, and no
/// answer tells a client how much of it the leader has: with sessions of 5 s, ephemeral nodes were gone 3.8 s after a write through the
/// session began, and 3.4 s after a `sync` (3.8.0, ticks of 500 ms).
///
/// So a lease is a node, a renewal is a write of it, and every process that has the registry open watches all leases and ends those
/// that are over. The guarantee, for a lease of length `T`:
///
/// 1. A renewal that is acknowledged was committed by a majority, at a time `c` not before the request was sent, `t0 <= c`. It gave
///    the lease's node a version `v` that it did not have before.
/// 2. A process ends a lease only when it has read version `v` at some time, has then counted `T` by its own monotonic clock, and finds
///    `v` again. What it read was committed, so it began to count at or after `c`, however far behind the leader its server is.
/// 3. It ends the lease in one transaction, which deletes the lease and its names if the lease still has version `v`. The leader
///    decides that: a renewal that was committed before makes the transaction fail.
///
/// So the names are there until `c + T >= t0 + T`, by the clock of the process that ends them. A holder that trusts the lease for nine
/// tenths of `T` from before it sent the renewal is safe while the two clocks' rates differ by less than a tenth. None of this depends
/// on ticks, pings, timeouts or which server a client is connected to.
///
/// A process begins to count again if it could not read a lease for half its length: after an outage of ZooKeeper, holders get the
/// time to renew before their leases end.
struct ZookeeperRegistry {
    cluster: String,
    login: Option<Vec<u8>>,
    tls: Option<Tls>,
    guard: String,
    names: String,
    leases: String,
    owners: String,
    timeout: Duration,
    session: tokio::sync::Mutex<Option<Client>>,
    random: SystemRandom,
}

/// What a change puts in a name's place: a value, and the lease that it is under.
type Put<'a> = (&'a Bytes, Option<Lease>);

/// The outcome of an attempt at a change.
enum Attempt {
    Changed(Change),
    /// Another change came in between.
    Overtaken,
    /// The lease that the name was to be put under does not exist any more.
    LeaseEnded,
}

/// A version of a lease, and since when this process has seen it without a gap.
struct Observed {
    version: i32,
    since: Instant,
    last: Instant,
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
        leases: format!("{root}/leases"),
        owners: format!("{root}/owners"),
        timeout: url.timeout()?,
        session: tokio::sync::Mutex::default(),
        random: SystemRandom::default(),
    };
    let doing = format!("cannot open {url}");
    // Without another try, so that a wrong address is reported at once.
    let client = registry.session.lock().await.insert(registry.connect().await?).clone();
    let lasting = CreateMode::Persistent.with_acls(registry.acls());
    let made = async {
        for folder in [&registry.names, &registry.leases, &registry.owners] {
            client.mkdir(folder, &lasting).await?;
        }
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
    let registry = Arc::new(registry);
    tokio::spawn(end_leases(Arc::downgrade(&registry)));
    Ok(Opened { plane: registry, about })
}

/// Ends leases that are not renewed, as long as the registry is in use.
async fn end_leases(registry: Weak<ZookeeperRegistry>) {
    let mut observed = HashMap::new();
    loop {
        tokio::time::sleep(LEASES_PAUSE).await;
        let Some(registry) = registry.upgrade() else { return };
        // What cannot be read or ended now is tried again after the next pause.
        let _ = registry.end_leases(&mut observed).await;
    }
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

/// The name of a lease's node.
fn lease_node(lease: Lease) -> String {
    format!("{:016x}", lease.0)
}

/// The length of a lease, from its node.
fn length(data: &[u8]) -> Option<Duration> {
    let millis = std::str::from_utf8(data).ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// Whether a transaction failed because another one came before it.
fn is_overtaken(error: &MultiWriteError) -> bool {
    use ZkError::{BadVersion, NoNode, NodeExists};
    matches!(error, MultiWriteError::OperationFailed { source: BadVersion | NoNode | NodeExists, .. })
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

    async fn connect(&self) -> Result<Client> {
        let mut connector = Client::connector()
            .with_session_timeout(SESSION)
            .with_connection_timeout(self.timeout.min(SILENCE))
            .with_fail_eagerly();
        if let Some(login) = &self.login {
            connector = connector.with_auth("digest", login);
        }
        if let Some(files) = &self.tls {
            return secure::connect(self, connector, files).await;
        }
        self.within("cannot connect to ZooKeeper", connector.connect(&self.cluster)).await
    }

    /// The session; a new one if it has ended, or is without a server: by itself it would come to one later, after longer and longer pauses.
    async fn client(&self) -> Result<Client> {
        let reached = async {
            let mut session = self.session.lock().await;
            if let Some(client) =
                session.as_ref().filter(|client| client.state() == SessionState::SyncConnected)
            {
                return Ok(client.clone());
            }
            loop {
                match self.connect().await {
                    Err(Error::Retry(_)) => tokio::time::sleep(CONNECT_PAUSE).await,
                    connected => return Ok(session.insert(connected?).clone()),
                }
            }
        };
        timeout(self.timeout, reached).await.unwrap_or_else(|_| {
            let seconds = self.timeout.as_secs_f64();
            Err(Error::Retry(format!("cannot connect to ZooKeeper: no server answered within {seconds} s")))
        })
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

    /// Attempts a change once.
    async fn try_change(
        &self,
        client: &Client,
        name: &str,
        expected: Expected,
        put: Option<Put<'_>>,
    ) -> Result<Attempt, ZkError> {
        let node = encoded(name);
        let (path, owner_path) = (format!("{}/{node}", self.names), format!("{}/{node}", self.owners));
        client.sync(&path).await?;
        let guard = client.check_stat(&self.guard).await?.ok_or(ZkError::NoNode)?;
        let (current, owner) = try_join(read(client, &path), read(client, &owner_path)).await?;
        let lease = put.and_then(|(_, lease)| lease);
        if let Some(lease) = lease
            && client.check_stat(&self.lease(lease)).await?.is_none()
        {
            return Ok(Attempt::LeaseEnded);
        }
        let version = current.as_ref().map(|(_, stat)| stat.mzxid as u64);
        let fits = match expected {
            Expected::Anything => true,
            Expected::Absent => version.is_none(),
            Expected::Version(expected) => version == Some(expected),
        };
        if !fits {
            let current = current.map(|(data, stat)| versioned(data, &stat));
            return Ok(Attempt::Changed(Change::Conflict(current)));
        }
        let lasting = CreateMode::Persistent.with_acls(self.acls());
        let mut writer = client.new_multi_writer();
        writer.add_set_data(&self.guard, b"", Some(guard.version))?;
        if let Some(lease) = lease {
            writer.add_check_version(&self.lease(lease), ANY_VERSION)?;
        }
        match (current.map(|(_, stat)| stat), put) {
            (None, None) => return Ok(Attempt::Changed(Change::Done(guard.mzxid as u64))),
            (Some(stat), None) => writer.add_delete(&path, Some(stat.version))?,
            (None, Some((value, _))) => writer.add_create(&path, value, &lasting)?,
            (Some(stat), Some((value, _))) if stat.ephemeral_owner == 0 => {
                writer.add_set_data(&path, value, Some(stat.version))?;
            }
            // Of a process of an older version. An ephemeral node cannot be made a lasting one.
            (Some(stat), Some((value, _))) => {
                writer.add_delete(&path, Some(stat.version))?;
                writer.add_create(&path, value, &lasting)?;
            }
        }
        match (owner, lease.map(lease_node)) {
            (None, None) => {}
            (None, Some(lease)) => writer.add_create(&owner_path, lease.as_bytes(), &lasting)?,
            (Some(_), None) => writer.add_delete(&owner_path, None)?,
            (Some((owner, _)), Some(lease)) if owner == lease.as_bytes() => {}
            (Some(_), Some(lease)) => writer.add_set_data(&owner_path, lease.as_bytes(), None)?,
        }
        match writer.commit().await {
            Ok(done) => match done.first() {
                Some(MultiWriteResult::SetData { stat }) => {
                    Ok(Attempt::Changed(Change::Done(stat.mzxid as u64)))
                }
                _ => Err(ZkError::UnexpectedError("a transaction that did something else".into())),
            },
            Err(error) if is_overtaken(&error) => Ok(Attempt::Overtaken),
            Err(error) => Err(error.into()),
        }
    }

    async fn change(
        &self,
        doing: &str,
        name: &str,
        expected: Expected,
        put: Option<Put<'_>>,
    ) -> Result<Change> {
        check_name(name)?;
        let client = self.client().await?;
        for _ in 0..TRIES {
            match self.within(doing, self.try_change(&client, name, expected, put)).await? {
                Attempt::Changed(change) => return Ok(change),
                Attempt::Overtaken => {}
                Attempt::LeaseEnded => {
                    let lease = put.and_then(|(_, lease)| lease).map_or(0, |lease| lease.0);
                    return Err(Error::Invalid(format!("lease {lease} has ended; a new one is needed")));
                }
            }
        }
        Err(Error::Retry(format!("{doing}: others changed the registry {TRIES} times meanwhile")))
    }

    /// The path of a lease.
    fn lease(&self, lease: Lease) -> String {
        format!("{}/{}", self.leases, lease_node(lease))
    }

    /// Counts the time of all leases, and ends those that were not renewed in theirs.
    async fn end_leases(&self, observed: &mut HashMap<String, Observed>) -> Result<()> {
        let doing = "cannot read the leases";
        let client = self.client().await?;
        let found = async {
            let nodes = client.list_children(&self.leases).await?;
            let client = &client;
            let reads = nodes.into_iter().map(|node| async move {
                let held = read(client, &format!("{}/{node}", self.leases)).await?;
                Ok::<_, ZkError>((node, held))
            });
            stream::iter(reads).buffered(READS).try_collect::<Vec<_>>().await
        };
        let found = self.within(doing, found).await?;
        // Not before the versions were committed, since they are read by now.
        let now = Instant::now();
        observed.retain(|node, _| found.iter().any(|(found, held)| found == node && held.is_some()));
        for (node, held) in found {
            let Some((data, stat)) = held else { continue };
            // Anything else was not created here.
            let Some(time) = length(&data) else { continue };
            let fresh = Observed { version: stat.version, since: now, last: now };
            let lease = observed.entry(node.clone()).or_insert(fresh);
            if lease.version != stat.version || now - lease.last > time / 2 {
                (lease.version, lease.since) = (stat.version, now);
            }
            lease.last = now;
            if now - lease.since >= time {
                self.end_lease("cannot end a lease", &node, Some(stat.version)).await?;
            }
        }
        Ok(())
    }

    /// Deletes a lease and its names in one transaction, if it still has this version.
    async fn end_lease(&self, doing: &str, node: &str, version: Option<i32>) -> Result<()> {
        let client = self.client().await?;
        for _ in 0..TRIES {
            if self.within(doing, self.try_end(&client, node, version)).await? {
                return Ok(());
            }
        }
        Err(Error::Retry(format!("{doing}: others changed the registry {TRIES} times meanwhile")))
    }

    /// Attempts that once; false if another change came in between.
    async fn try_end(&self, client: &Client, node: &str, version: Option<i32>) -> Result<bool, ZkError> {
        client.sync(&self.guard).await?;
        let guard = client.check_stat(&self.guard).await?.ok_or(ZkError::NoNode)?;
        let owned = client.list_children(&self.owners).await?.into_iter().map(|name| async move {
            let owner = read(client, &format!("{}/{name}", self.owners)).await?;
            if owner.is_none_or(|(owner, _)| owner != node.as_bytes()) {
                return Ok(None);
            }
            let exists = client.check_stat(&format!("{}/{name}", self.names)).await?.is_some();
            Ok::<_, ZkError>(Some((name, exists)))
        });
        let owned: Vec<_> = stream::iter(owned).buffered(READS).try_collect().await?;
        let mut writer = client.new_multi_writer();
        writer.add_delete(&format!("{}/{node}", self.leases), version)?;
        writer.add_set_data(&self.guard, b"", Some(guard.version))?;
        for (name, exists) in owned.into_iter().flatten() {
            writer.add_delete(&format!("{}/{name}", self.owners), None)?;
            if exists {
                writer.add_delete(&format!("{}/{name}", self.names), None)?;
            }
        }
        match writer.commit().await {
            // It was renewed, or another process has ended it.
            Err(MultiWriteError::OperationFailed {
                index: 0,
                source: ZkError::BadVersion | ZkError::NoNode,
            }) => Ok(true),
            Err(error) if is_overtaken(&error) => Ok(false),
            outcome => Ok(outcome.map(|_| true)?),
        }
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
        check_value(&value)?;
        self.change("cannot put a name", name, expected, Some((&value, lease))).await
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change> {
        self.change("cannot delete a name", name, expected, None).await
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
        let client = self.client().await?;
        // Not counted: if ZooKeeper lost its data, a lease of before must not be one that was granted after.
        let lease = Lease(self.random.next());
        let lasting = CreateMode::Persistent.with_acls(self.acls());
        let value = time.as_millis().to_string();
        let path = self.lease(lease);
        let created = client.create(&path, value.as_bytes(), &lasting);
        self.within("cannot grant a lease", created).await?;
        Ok(lease)
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool> {
        let client = self.client().await?;
        let path = self.lease(lease);
        let renewed = async {
            // The server may be behind the leader, and not know the lease yet.
            client.sync(&path).await?;
            let Some((length, _)) = read(&client, &path).await? else { return Ok(false) };
            // Only a write is acknowledged by the leader; its commit gives the lease another version.
            match client.set_data(&path, &length, None).await {
                Ok(_) => Ok(true),
                Err(ZkError::NoNode) => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.within("cannot keep a lease alive", renewed).await
    }

    async fn revoke(&self, lease: Lease) -> Result<()> {
        self.end_lease("cannot revoke a lease", &lease_node(lease), None).await
    }
}
