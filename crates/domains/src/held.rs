//! Filters of domains that are in this process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use umbel_client::Replica;
use umbel_core::engine::{Answer, Engine};
use umbel_filter::Filter;

use crate::Keys;

/// A domain's filter as this process has it: asked without waiting for anybody.
pub trait Held: fmt::Debug + Send + Sync + 'static {
    /// Puts an answer for each key into `answers`, in order, and nothing else. `Absent` is certain as of the age; whatever is
    /// missing, loading or too old is `Unknown`.
    fn look(&self, keys: &mut Keys<'_>, answers: &mut Vec<Answer>);

    /// How long ago it was known to have all that the domain had; none if it never was.
    fn age(&self) -> Option<Duration>;

    /// Whether it says of no key any more that it is absent: it is too old, or the way to the domain is known to be broken. Then nothing that
    /// was kept of the domain says so either.
    fn is_stale(&self) -> bool {
        false
    }
}

impl Held for Filter {
    fn look(&self, keys: &mut Keys<'_>, answers: &mut Vec<Answer>) {
        let mut here = Vec::new();
        self.contains_fingerprints(keys.by(self.hasher()), &mut here);
        answers.clear();
        answers.extend(here.into_iter().map(|here| if here { Answer::Maybe } else { Answer::Absent }));
    }

    fn age(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl Held for Replica {
    fn look(&self, keys: &mut Keys<'_>, answers: &mut Vec<Answer>) {
        match Replica::look(self) {
            Some(look) => look.contains_batch(keys.by(look.hasher()), answers),
            None => unknown(keys.len(), answers),
        }
    }

    fn age(&self) -> Option<Duration> {
        Replica::age(self)
    }

    fn is_stale(&self) -> bool {
        Replica::is_stale(self)
    }
}

/// A filter of an engine in this process, by its name: another one that takes its place is asked from then on.
#[derive(Clone)]
pub struct EngineFilter {
    pub(crate) engine: Arc<Engine>,
    pub(crate) name: String,
}

impl EngineFilter {
    /// The filter of that name, whether it is there yet or not.
    pub fn new(engine: Arc<Engine>, name: impl Into<String>) -> Self {
        Self { engine, name: name.into() }
    }
}

impl fmt::Debug for EngineFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineFilter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Held for EngineFilter {
    fn look(&self, keys: &mut Keys<'_>, answers: &mut Vec<Answer>) {
        let is_known = self.engine.has_all_names();
        let Some(filter) = self.engine.filter(&self.name).filter(|_| is_known) else {
            return unknown(keys.len(), answers);
        };
        // One of several nodes may lack what the others have acknowledged.
        let is_sure = self.engine.contains_at_once(&filter, keys.by(filter.hasher()), answers);
        if !is_sure && self.engine.is_clustered() {
            unknown(keys.len(), answers);
        }
    }

    fn age(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

/// Nothing is known of so many keys.
pub(crate) fn unknown(keys: usize, answers: &mut Vec<Answer>) {
    answers.clear();
    answers.resize(keys, Answer::Unknown);
}
