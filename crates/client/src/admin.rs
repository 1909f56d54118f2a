//! A server as those see it who look after it: JSON in, JSON out.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use crate::Result;
use crate::http::{Ask, Base, Http, escaped};

/// The API of a server.
#[derive(Debug)]
pub struct Server {
    http: Http,
    base: Base,
}

impl Server {
    /// A server, `http://host:port` or `https://host:port`, perhaps with a path before the API's.
    pub fn new(address: &str, token: Option<&str>) -> Result<Self> {
        Self::trusting(address, token, None)
    }

    /// The same, with a PEM file of the authorities that vouch for it, instead of those that the system trusts.
    pub fn trusting(address: &str, token: Option<&str>, ca_file: Option<&Path>) -> Result<Self> {
        let base = Base::parse(address)?;
        Ok(Self { http: Http::new(std::slice::from_ref(&base), token, ca_file)?, base })
    }

    /// The path of a filter, and of something of it.
    pub fn path(filter: &str, of_it: &str) -> String {
        let slash = if of_it.is_empty() { "" } else { "/" };
        format!("/v1/filters/{}{slash}{of_it}", escaped(filter))
    }

    /// What is at a path.
    pub async fn get(&self, path: impl Into<String>) -> Result<Value> {
        self.send(Ask::get(path.into())).await
    }

    /// Asks for something that may take as long as `patience`.
    pub async fn post(&self, path: impl Into<String>, body: &Value, patience: Duration) -> Result<Value> {
        let ask = with_json(Method::POST, path.into(), body);
        self.send(Ask { patience: patience.max(ask.patience), ..ask }).await
    }

    /// Sends bytes of a kind, for what JSON would make larger, and takes JSON.
    pub async fn post_bytes(
        &self,
        path: impl Into<String>,
        kind: &'static str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Value> {
        let ask = Ask::with_body(Method::POST, path.into(), kind, body);
        self.send(Ask { patience: patience.max(ask.patience), ..ask }).await
    }

    /// Sets something.
    pub async fn put(&self, path: impl Into<String>, body: &Value) -> Result<Value> {
        self.send(with_json(Method::PUT, path.into(), body)).await
    }

    /// Ends something.
    pub async fn delete(&self, path: impl Into<String>) -> Result<Value> {
        self.send(Ask { method: Method::DELETE, ..Ask::get(path.into()) }).await
    }

    async fn send(&self, ask: Ask) -> Result<Value> {
        let reply = self.http.send(&self.base, &ask, true).await?;
        // Some answers say all with their status.
        if reply.status.as_u16() == 204 { Ok(Value::Null) } else { reply.json().await }
    }
}

fn with_json(method: Method, path: String, body: &Value) -> Ask {
    Ask::with_body(method, path, "application/json", Bytes::from(body.to_string()))
}
