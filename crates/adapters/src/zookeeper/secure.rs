//! TLS to ZooKeeper.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use zookeeper_client::{Client, Connector, TlsOptions};

use super::{Error, Result, Tls, Url, ZookeeperRegistry};

/// The client panics at the name of a host that no certificate can have.
pub(super) fn check(url: &Url, hosts: &[String], tls: Option<&Tls>) -> Result<()> {
    let names = hosts.iter().map(|host| host.rsplit_once(':').map_or(&**host, |(name, _)| name));
    match names.into_iter().find(|name| ServerName::try_from(*name).is_err()) {
        Some(name) if tls.is_some() => {
            Err(Error::Invalid(format!("cannot open {url}: no certificate has the name {name}")))
        }
        _ => Ok(()),
    }
}

pub(super) async fn connect(
    registry: &ZookeeperRegistry,
    connector: Connector,
    files: &Tls,
) -> Result<Client> {
    let invalid = |error| Error::Invalid(format!("cannot connect to ZooKeeper: {error}"));
    let authority = match files.authority_pem()? {
        Some(pem) => pem,
        None => system_authorities(),
    };
    let mut options = TlsOptions::default().with_pem_ca(&authority).map_err(invalid)?;
    if let Some((cert, key)) = files.identity_pem()? {
        options = options.with_pem_identity(&cert, &key).map_err(invalid)?;
    }
    let connecting = connector.with_tls(options).secure_connect(&registry.cluster);
    registry.within("cannot connect to ZooKeeper", connecting).await
}

/// Those that the system trusts, in the one form that the client takes.
fn system_authorities() -> String {
    let found = rustls_native_certs::load_native_certs().certs;
    let pem = |der: &[u8]| {
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
    };
    found.iter().map(|der| pem(der)).collect()
}
