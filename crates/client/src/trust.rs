//! Whom a server has to prove that it is, and what we show it: for connections of other protocols than HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::tls::{at, authorities, builder, certificates, content};
use crate::{Error, Result};

/// Whom to trust, and what to show: files in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Authorities to trust instead of those of the system.
    pub ca: Option<PathBuf>,
    /// Our own certificate, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Trust {
    /// How to speak to a server that is to be trusted.
    pub fn config(&self) -> Result<Arc<ClientConfig>> {
        let roots: RootCertStore = authorities(self.ca.as_deref())?;
        let builder = builder()?.with_root_certificates(roots);
        let Some((cert, key)) = &self.identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
        let secret = PrivateKeyDer::from_pem_slice(&content(key)?).map_err(|error| at(key, &error))?;
        let config = builder.with_client_auth_cert(certificates(cert)?, secret);
        Ok(Arc::new(config.map_err(|error| at(cert, &error))?))
    }

    /// The name that a server has to prove.
    pub fn name(host: &str) -> Result<ServerName<'static>> {
        ServerName::try_from(host.to_owned()).map_err(|error| Error::Invalid(format!("{host}: {error}")))
    }
}
