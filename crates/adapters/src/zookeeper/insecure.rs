//! What stands for TLS in a build without it.

use zookeeper_client::{Client, Connector};

use super::{Error, Result, Tls, Url, ZookeeperRegistry};

const LACKS: &str = "this build lacks TLS for ZooKeeper; rebuild with --features zookeeper-tls";

pub(super) fn check(url: &Url, _: &[String], tls: Option<&Tls>) -> Result<()> {
    if tls.is_some() { Err(Error::Invalid(format!("{url}: {LACKS}"))) } else { Ok(()) }
}

pub(super) async fn connect(_: &ZookeeperRegistry, _: Connector, _: &Tls) -> Result<Client> {
    Err(Error::Invalid(LACKS.into()))
}
