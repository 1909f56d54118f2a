//! Whom a server has to prove that it is, where addresses begin with `https://`.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::limits::CERTIFICATES_BYTES_MAX;
use crate::{Error, Result};

/// How to speak to servers whose certificates come from these authorities.
pub(crate) fn config(roots: RootCertStore) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::Invalid(format!("no TLS: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
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

fn at(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Invalid(format!("{}: {error}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let size = std::fs::metadata(path).map_err(|error| at(path, &error))?.len();
    if size > CERTIFICATES_BYTES_MAX {
        return Err(at(path, &format!("{size} bytes; a PEM file has up to {CERTIFICATES_BYTES_MAX}")));
    }
    let text = std::fs::read(path).map_err(|error| at(path, &error))?;
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| at(path, &error))?;
    if all.is_empty() { Err(at(path, &"there is no certificate in it")) } else { Ok(all) }
}
