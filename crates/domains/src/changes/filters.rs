//! Filters that changes go to.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use umbel_core::engine::Handle;
use umbel_core::entry::Request;
use umbel_filter::Fingerprint;

use super::Counting;
use crate::limits::{BATCH_CHANGES_MAX, DEADLINE_MAX};
use crate::remote::written;
use crate::{EngineFilter, Error, Result, ServerFilter};

impl EngineFilter {
    async fn with_keys(&self, keys: &[Vec<u8>]) -> Result<(Arc<Handle>, Vec<Fingerprint>)> {
        let name = &self.name;
        let filter = self.engine.find(name).await?;
        let filter = filter.ok_or_else(|| Error::Retry(format!("there is no filter {name}")))?;
        if !filter.is_erasable() || !filter.definition().retain {
            return Err(Error::Invalid(format!(
                "the filter {name} has to be a counting filter that keeps its keys"
            )));
        }
        let keys = keys.iter().map(|key| filter.hasher().fingerprint(key)).collect();
        Ok((filter, keys))
    }
}

#[async_trait]
impl Counting for EngineFilter {
    async fn add(&self, keys: &[Vec<u8>], request: Request) -> Result<()> {
        let (filter, keys) = self.with_keys(keys).await?;
        let written = self.engine.add_as(&filter, &keys, request).await?;
        match written.refused {
            // A request that is repeated is refused again, even when there is room by then. Who counts afterwards will find out.
            Some(why) if request.session == 0 => Err(Error::Retry(why)),
            _ => Ok(()),
        }
    }

    async fn remove(&self, keys: &[Vec<u8>], request: Request) -> Result<()> {
        let (filter, keys) = self.with_keys(keys).await?;
        self.engine.remove_as(&filter, &keys, request).await?;
        Ok(())
    }

    async fn counts(&self, keys: &[Vec<u8>]) -> Result<Vec<u64>> {
        let (filter, keys) = self.with_keys(keys).await?;
        Ok(self.engine.verify(&filter, &keys).await?)
    }

    async fn sync(&self) -> Result<()> {
        Ok(self.engine.sync().await?)
    }
}

impl ServerFilter {
    async fn send(&self, what: &str, keys: &[Vec<u8>], request: Option<Request>) -> Result<Value> {
        let keys: Vec<Value> = keys.iter().map(|key| written(key)).collect();
        let mut question = json!({ "keys": keys });
        if let Some(Request { session: session @ 1.., sequence }) = request {
            question["session"] = session.into();
            question["sequence"] = sequence.into();
        }
        Ok(self.server.post(self.path(what), &question, DEADLINE_MAX).await?)
    }
}

/// A batch is one request, so that it is done as a whole or not at all. How long what was acknowledged may be lost with the power is for the
/// server's own durability to say.
#[async_trait]
impl Counting for ServerFilter {
    async fn add(&self, keys: &[Vec<u8>], request: Request) -> Result<()> {
        let told = self.send("add", keys, Some(request)).await?;
        match told["refused"].as_str() {
            Some(why) if request.session == 0 => Err(Error::Retry(why.to_owned())),
            _ => Ok(()),
        }
    }

    async fn remove(&self, keys: &[Vec<u8>], request: Request) -> Result<()> {
        self.send("remove", keys, Some(request)).await.map(drop)
    }

    async fn counts(&self, keys: &[Vec<u8>]) -> Result<Vec<u64>> {
        let mut counts = Vec::with_capacity(keys.len());
        for keys in keys.chunks(BATCH_CHANGES_MAX) {
            let told = self.send("verify", keys, None).await?;
            let told = told["counts"].as_array().map(Vec::as_slice).unwrap_or_default();
            counts.extend(told.iter().filter_map(Value::as_u64));
        }
        Ok(counts)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }
}
