//! Whom a server has to prove that it is, where addresses begin with `https://`.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

use crate::limits::CERTIFICATES_BYTES_MAX;
use crate::{Error, Result};

/// How to speak to servers whose certificates come from these authorities.
pub(crate) fn config(roots: RootCertStore) -> Result<ClientConfig> {
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// What all connections have in common.
pub(crate) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.map_err(|error| Error::Invalid(format!("no TLS: {error}")))
}

/// The authorities of a file, or those that the system trusts.
pub(crate) fn authorities(file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| at(path, &error))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err(Error::Invalid(
            "the system has no certificates of authorities; name a file with those of the server".to_owned(),
        ));
    }
    Ok(roots)
}

pub(crate) fn at(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Invalid(format!("{}: {error}", path.display()))
}

/// The certificates of a file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = content(path)?;
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| at(path, &error))?;
    if all.is_empty() { Err(at(path, &"there is no certificate in it")) } else { Ok(all) }
}

/// What stands in a file of certificates or keys.
pub(crate) fn content(path: &Path) -> Result<Vec<u8>> {
    let size = std::fs::metadata(path).map_err(|error| at(path, &error))?.len();
    if size > CERTIFICATES_BYTES_MAX {
        return Err(at(path, &format!("{size} bytes; a PEM file has up to {CERTIFICATES_BYTES_MAX}")));
    }
    std::fs::read(path).map_err(|error| at(path, &error))
}
