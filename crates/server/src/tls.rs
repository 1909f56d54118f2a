//! TLS from PEM files, read again when they change.
//!
//! Certificates are renewed while the server runs. Bad files never take the place of good ones: the old certificate
//! stays, and the caller is told why.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::{ClientAuth, Config};

/// A PEM file is short; a larger one is some other file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What is wrong with which file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Where the certificates are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The server's certificate and its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether clients show one.
    pub client_auth: ClientAuth,
}

impl Files {
    /// As configured; `None` if there is no port for TLS.
    pub fn of(config: &Config) -> Option<Self> {
        let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else { return None };
        (config.tls_port != 0 || config.tls_http_port != 0).then(|| Self {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: config.tls_client_ca.clone(),
            client_auth: config.tls_client_auth,
        })
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let authority = self.client_ca.as_deref().filter(|_| self.client_auth != ClientAuth::Off);
        [&*self.cert, &*self.key].into_iter().chain(authority)
    }

    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &Path| {
            let facts = fs::metadata(path).ok()?;
            Some((facts.modified().ok()?, facts.len()))
        };
        self.paths().map(stamp).collect()
    }

    /// Reads everything anew.
    fn read(&self) -> Result<ServerConfig, Error> {
        let chain = certificates(&self.cert)?;
        let key = read(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| at(&self.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| Error(error.to_string()))?;
        let builder = match (self.client_auth, &self.client_ca) {
            (ClientAuth::Off, _) => builder.with_no_client_auth(),
            (_, None) => {
                return Err(Error(
                    "clients show certificates, but no authority for them is named".to_owned(),
                ));
            }
            (auth, Some(path)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| at(path, &error))?;
                }
                let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                if auth == ClientAuth::Optional {
                    verifier = verifier.allow_unauthenticated();
                }
                builder.with_client_cert_verifier(verifier.build().map_err(|error| at(path, &error))?)
            }
        };
        // Refuses a key that is not the certificate's.
        builder.with_single_cert(chain, key).map_err(|error| at(&self.cert, &error))
    }
}

fn at(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error(format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let size = fs::metadata(path).map_err(|error| at(path, &error))?.len();
    if size > FILE_BYTES_MAX {
        return Err(at(path, &format!("{size} bytes; a PEM file has up to {FILE_BYTES_MAX}")));
    }
    fs::read(path).map_err(|error| at(path, &error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| at(path, &error))?;
    if all.is_empty() { Err(at(path, &"there is no certificate in it")) } else { Ok(all) }
}

/// When a file was changed and its length; `None` if it is not there.
type Stamp = Option<(SystemTime, u64)>;

/// The certificate in force.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: ArcSwap<ServerConfig>,
    stamps: Mutex<Vec<Stamp>>,
}

impl Tls {
    /// Reads the files, or says which is bad.
    pub fn open(files: Files) -> Result<Self, Error> {
        // Before the files: a change between the two is seen as one later.
        let stamps = Mutex::new(files.stamps());
        let current = ArcSwap::from_pointee(files.read()?);
        Ok(Self { files, current, stamps })
    }

    /// For the next connection. Connections that stand keep what they have.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    /// Reads the files again. If they are bad, what was there stays.
    pub fn reload(&self) -> Result<(), Error> {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        // Bad files are noted too: they are told of once, and read again when they change again.
        *stamps = self.files.stamps();
        self.current.store(Arc::new(self.files.read()?));
        Ok(())
    }

    /// Reads the files again if one has changed, and says whether it did. To be called now and then.
    pub fn reload_if_changed(&self) -> Result<bool, Error> {
        let known = self.stamps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known == self.files.stamps() { Ok(false) } else { self.reload().map(|()| true) }
    }
}
