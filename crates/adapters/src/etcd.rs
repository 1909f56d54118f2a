//! The registry in etcd: names are its keys, and revisions its own.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, Identity, KeyValue, PutOptions,
    ResponseHeader, TlsOptions, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use umbel_core::limits::REGISTRY_VALUE_BYTES_MAX;
use umbel_core::registry::{Change, Expected, Lease, Listing, Registry, Versioned, check_name, check_value};
use umbel_core::{Error, Result};

use crate::access::{Access, Convention};
use crate::{About, Durability, Opened, Url};

/// What etcdctl is told by.
const ETCDCTL: Convention = Convention {
    ca: "ETCDCTL_CACERT",
    cert: "ETCDCTL_CERT",
    key: "ETCDCTL_KEY",
    user: "ETCDCTL_USER",
    password: "ETCDCTL_PASSWORD",
};

/// Names that are asked for at a time: all of them may have the largest value.
const PAGE_NAMES: i64 = 64;
/// Largest answer: a page of the largest values.
const ANSWER_BYTES_MAX: usize = PAGE_NAMES as usize * (REGISTRY_VALUE_BYTES_MAX + 4096);
/// How often a connection on which nothing comes is tried, and how long it may take to answer.
const PING: Duration = Duration::from_secs(5);

/// A registry whose names are the keys below a prefix of etcd.
///
/// A version is the revision that etcd gave the key's last change, so it also orders changes of different names.
struct EtcdRegistry {
    client: Client,
    prefix: String,
    timeout: Duration,
}

impl fmt::Debug for EtcdRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdRegistry").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Opens `etcd://user:password@host:port,host:port/prefix?tls=true&ca=file&cert=file&key=file`.
pub(crate) async fn open_registry(url: &Url) -> Result<Opened<dyn Registry>> {
    url.allow(&["ca", "cert", "key", "timeout_ms", "tls"])?;
    let access = Access::of(url, ETCDCTL)?;
    let timeout = url.timeout()?;
    let mut options = ConnectOptions::new()
        .with_connect_timeout(timeout)
        .with_keep_alive(PING, PING)
        .with_keep_alive_while_idle(true);
    if let Some((user, password)) = access.credentials {
        // Tokens end with the server that gave them, and after minutes without a call.
        options = options.with_user(user, password).with_auto_token_refresh(true);
    }
    let scheme = if access.tls.is_some() { "https" } else { "http" };
    if let Some(files) = access.tls {
        let mut tls = match files.authority_pem()? {
            Some(pem) => TlsOptions::new().ca_certificate(Certificate::from_pem(pem)),
            None => TlsOptions::new().with_enabled_roots(),
        };
        if let Some((cert, key)) = files.identity_pem()? {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        options = options.with_tls(tls);
    }
    let hosts: Vec<_> = url.hosts_with_port(2379).iter().map(|host| format!("{scheme}://{host}")).collect();
    let doing = format!("cannot open {url}");
    let mut client = within(timeout, &doing, Client::connect(hosts, Some(options))).await?;
    let status = within(timeout, &doing, client.status()).await?;
    let members = within(timeout, &doing, client.member_list()).await?.members().len();
    let about = About {
        engine: "etcd",
        version: status.version().to_owned(),
        durability: Durability::Synced,
        lacks: match members {
            1 => "it is a single server, whose disk is all there is".into(),
            _ => String::new(),
        },
    };
    let prefix = format!("/{}/", url.path_or("umbel"));
    Ok(Opened { plane: std::sync::Arc::new(EtcdRegistry { client, prefix, timeout }), about })
}

/// What a request comes to, if it comes in time.
async fn within<T>(
    timeout: Duration,
    doing: &str,
    request: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T> {
    match tokio::time::timeout(timeout, request).await {
        Ok(outcome) => outcome.map_err(|error| failed(doing, &error)),
        Err(_) => {
            Err(Error::Retry(format!("{doing}: etcd did not answer within {} s", timeout.as_secs_f64())))
        }
    }
}

fn failed(doing: &str, error: &etcd_client::Error) -> Error {
    let message = format!("{doing}: {error}");
    match error {
        etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => Error::Invalid(message),
        _ => Error::Retry(message),
    }
}

fn is_lost_lease(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::LeaseKeepAliveError(_) => true,
        etcd_client::Error::GRpcStatus(status) => status.message().contains("lease not found"),
        _ => false,
    }
}

fn versioned(held: &KeyValue) -> Versioned {
    Versioned { value: Bytes::copy_from_slice(held.value()), version: held.mod_revision() as u64 }
}

impl EtcdRegistry {
    fn key(&self, name: &str) -> Result<String> {
        check_name(name)?;
        Ok(format!("{}{name}", self.prefix))
    }

    /// Does something if a name is as expected, and otherwise reads how it is.
    async fn change(
        &self,
        key: &str,
        expected: Expected,
        then: Vec<TxnOp>,
    ) -> Result<Change, etcd_client::Error> {
        let exists =
            |is| Compare::create_revision(key, if is { CompareOp::Greater } else { CompareOp::Equal }, 0);
        let demands = match expected {
            Expected::Anything => vec![],
            Expected::Absent => vec![exists(false)],
            // To etcd, a key that is not there has revision 0, which somebody might expect.
            Expected::Version(version) => {
                let version = i64::try_from(version).unwrap_or(-1);
                vec![exists(true), Compare::mod_revision(key, CompareOp::Equal, version)]
            }
        };
        let txn = Txn::new().when(demands).and_then(then).or_else([TxnOp::get(key, None)]);
        let answer = self.client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX).txn(txn).await?;
        if answer.succeeded() {
            let revision = answer.header().map_or(0, ResponseHeader::revision);
            return Ok(Change::Done(revision as u64));
        }
        let held = answer.op_responses().into_iter().find_map(|answer| match answer {
            TxnOpResponse::Get(got) => got.kvs().first().map(versioned),
            _ => None,
        });
        Ok(Change::Conflict(held))
    }
}

#[async_trait]
impl Registry for EtcdRegistry {
    async fn get(&self, name: &str) -> Result<Option<Versioned>> {
        let key = self.key(name)?;
        let mut client = self.client.kv_client();
        let got = within(self.timeout, "cannot read a name", client.get(key, None)).await?;
        Ok(got.kvs().first().map(versioned))
    }

    async fn list(&self, prefix: &str) -> Result<Listing> {
        let mut client = self.client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX);
        let first = format!("{}{prefix}", self.prefix);
        let end = after_all_with(first.as_bytes());
        let mut from = first.into_bytes();
        let mut entries = Vec::new();
        let mut revision = 0;
        loop {
            // All pages are read as they were when the first one was.
            let options =
                GetOptions::new().with_range(end.clone()).with_limit(PAGE_NAMES).with_revision(revision);
            let page = client.get(from.clone(), Some(options));
            let mut page = within(self.timeout, "cannot list names", page).await?;
            if revision == 0 {
                revision = page.header().map_or(0, ResponseHeader::revision);
            }
            let more = page.more();
            for held in page.take_kvs() {
                let name = held.key_str().ok().and_then(|key| key.strip_prefix(&self.prefix));
                let Some(name) = name else {
                    return Err(Error::Corrupt(format!("a key below {} that is no name", self.prefix)));
                };
                entries.push((name.to_owned(), versioned(&held)));
                from = held.key().to_vec();
            }
            if !more {
                return Ok(Listing { revision: revision as u64, entries });
            }
            from.push(0);
        }
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change> {
        let key = self.key(name)?;
        check_value(&value)?;
        let options = lease.map(|lease| PutOptions::new().with_lease(lease.0 as i64));
        let then = vec![TxnOp::put(key.clone(), value.to_vec(), options)];
        let request = async {
            match self.change(&key, expected, then).await {
                Err(error) if is_lost_lease(&error) => Ok(None),
                outcome => outcome.map(Some),
            }
        };
        let change = within(self.timeout, "cannot put a name", request).await?;
        change.ok_or_else(|| Error::Invalid(format!("lease {} has ended", lease.map_or(0, |lease| lease.0))))
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change> {
        let key = self.key(name)?;
        let then = vec![TxnOp::delete(key.clone(), None)];
        within(self.timeout, "cannot delete a name", self.change(&key, expected, then)).await
    }

    async fn changed(&self, prefix: &str, after: u64) -> Result<()> {
        let doing = "cannot watch names";
        let key = format!("{}{prefix}", self.prefix);
        let from = i64::try_from(after).unwrap_or(i64::MAX).saturating_add(1);
        let options =
            WatchOptions::new().with_range(after_all_with(key.as_bytes())).with_start_revision(from);
        let mut client = self.client.watch_client();
        let mut watch = within(self.timeout, doing, client.watch(key, Some(options))).await?;
        loop {
            match watch.message().await.map_err(|error| failed(doing, &error))? {
                // What was compacted or cut off may have had changes; the first message has none.
                Some(message) if message.canceled() || !message.events().is_empty() => return Ok(()),
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    async fn grant(&self, time: Duration) -> Result<Lease> {
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds.max(1)).unwrap_or(i64::MAX);
        let mut client = self.client.lease_client();
        let granted = within(self.timeout, "cannot grant a lease", client.grant(seconds, None)).await?;
        Ok(Lease(granted.id() as u64))
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool> {
        let mut client = self.client.lease_client();
        let request = async {
            match client.keep_alive(lease.0 as i64).await {
                Err(error) if is_lost_lease(&error) => Ok(false),
                outcome => outcome.map(|_| true),
            }
        };
        within(self.timeout, "cannot keep a lease alive", request).await
    }

    async fn revoke(&self, lease: Lease) -> Result<()> {
        let mut client = self.client.lease_client();
        let request = async {
            match client.revoke(lease.0 as i64).await {
                Err(error) if is_lost_lease(&error) => Ok(()),
                outcome => outcome.map(drop),
            }
        };
        within(self.timeout, "cannot revoke a lease", request).await
    }
}

/// The first key that is behind all that begin with a prefix.
fn after_all_with(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // To etcd, this is the end of all keys.
    vec![0]
}
