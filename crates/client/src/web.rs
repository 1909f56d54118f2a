//! Servers that are not Umbel's.

use std::path::Path;

use bytes::Bytes;

use crate::Result;
use crate::http::{Ask, Base, Http};

/// Any server of HTTP, for whoever wants what is at a path: bytes as they are, without the checksums that Umbel's own API has. It
/// follows no redirections.
#[derive(Debug)]
pub struct Web {
    http: Http,
    base: Base,
}

/// What was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Its type, as the server calls it.
    pub kind: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

impl Web {
    /// A server, `http://host:port` or `https://host:port`, perhaps with the beginning of a path. It is shown the token, and
    /// authorities are those of a file, or the system's.
    pub fn new(address: &str, token: Option<&str>, ca_file: Option<&Path>) -> Result<Self> {
        let base = Base::parse(address)?;
        Ok(Self { http: Http::new(std::slice::from_ref(&base), token, ca_file)?, base })
    }

    /// What is at a path, if it has no more bytes than `most`. Every status but a success is a refusal.
    pub async fn get(&self, path: impl Into<String>, most: usize) -> Result<Body> {
        let reply = self.http.send(&self.base, &Ask::get(path.into()), true).await?;
        let kind = reply.field("content-type").map(str::to_owned);
        Ok(Body { kind, bytes: reply.bytes(most).await? })
    }
}
