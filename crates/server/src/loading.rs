//! Filters that arrive in parts. One is seen when its last part has come, so nobody asks a filter that is half there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbel_core::budget::Reservation;
use umbel_core::engine::{Engine, Loader, is_dump};
use umbel_filter::format::redisbloom;
use umbel_filter::{Filter, Kind, Limits};

use crate::commands::{Outcome, Refusal};

/// Most filters that arrive at once.
const LOADING_MAX: usize = 64;
/// A filter whose next part does not come for so long is forgotten when others need its place.
const PATIENCE: Duration = Duration::from_secs(600);

/// A filter that is not whole yet.
#[derive(Debug)]
pub(crate) enum Partial {
    /// A dump of ours.
    Own(Box<Loader>),
    /// RedisBloom's own chunks, and the memory for them.
    RedisBloom { loader: Box<redisbloom::Loader>, memory: Reservation },
}

/// A filter that is whole.
#[derive(Debug)]
pub(crate) enum Whole {
    /// A dump of ours.
    Own(Box<Loader>),
    /// RedisBloom's.
    RedisBloom(Box<Filter>),
}

/// Filters that are not whole yet, by name.
#[derive(Debug, Default)]
pub struct Loading(Mutex<HashMap<String, (Instant, Partial)>>);

impl Partial {
    /// Begins with the header.
    pub(crate) fn begin(header: &[u8], engine: &Engine) -> Outcome<Self> {
        if is_dump(header) {
            return Ok(Self::Own(Box::new(Loader::new(header, engine)?)));
        }
        let limits = Limits { filter_bytes_max: engine.budget().limit(), ..engine.settings().limits.clone() };
        let loader = redisbloom::Loader::new(header, &limits)?;
        let memory = engine.budget().reserve(loader.filter().bytes(), "a filter that is loaded")?;
        Ok(Self::RedisBloom { loader: Box::new(loader), memory })
    }

    pub(crate) fn load(&mut self, cursor: u64, chunk: &[u8]) -> Outcome {
        match self {
            Self::Own(loader) => Ok(loader.load(cursor, chunk)?),
            Self::RedisBloom { loader, .. } => Ok(loader.load(cursor, chunk)?),
        }
    }

    /// Whether keys can be taken out of it.
    pub(crate) fn is_erasable(&self) -> bool {
        match self {
            Self::Own(loader) => loader.definition().spec.kind != Kind::Bloom,
            Self::RedisBloom { .. } => false,
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Own(loader) => loader.is_complete(),
            Self::RedisBloom { loader, .. } => loader.missing() == 0,
        }
    }

    pub(crate) fn finish(self) -> Outcome<Whole> {
        match self {
            Self::Own(loader) => Ok(Whole::Own(loader)),
            Self::RedisBloom { loader, memory } => {
                // Whoever takes the filter counts it.
                drop(memory);
                Ok(Whole::RedisBloom(Box::new(loader.finish()?)))
            }
        }
    }
}

impl Loading {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, Partial)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a filter, or begins it anew.
    pub(crate) fn begin(&self, name: &str, partial: Partial, now: Instant) -> Outcome<Option<Whole>> {
        if partial.is_whole() {
            return partial.finish().map(Some);
        }
        let mut loading = self.lock();
        if loading.len() >= LOADING_MAX {
            loading.retain(|_, (touched, _)| now.saturating_duration_since(*touched) < PATIENCE);
        }
        if loading.len() >= LOADING_MAX && !loading.contains_key(name) {
            return Err(format!("TRYAGAIN {LOADING_MAX} filters are being loaded already").into());
        }
        loading.insert(name.to_owned(), (now, partial));
        Ok(None)
    }

    /// Takes the next part of a filter, and gives the filter if it was the last one.
    pub(crate) fn load(&self, name: &str, cursor: u64, chunk: &[u8], now: Instant) -> Outcome<Option<Whole>> {
        let mut loading = self.lock();
        let (touched, partial) = loading.get_mut(name).ok_or(Refusal::from("ERR not found"))?;
        *touched = now;
        partial.load(cursor, chunk)?;
        if !partial.is_whole() {
            return Ok(None);
        }
        let Some((_, partial)) = loading.remove(name) else { return Ok(None) };
        partial.finish().map(Some)
    }
}
