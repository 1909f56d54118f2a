use std::sync::Arc;
use std::time::Duration;

use umbel_core::engine::Answer;

use crate::held::{Held, unknown};
use crate::hits::Hits;
use crate::limits::NAME_BYTES_MAX;
use crate::remote::{Remote, Told};
use crate::source::Source;
use crate::{Error, Keys, Result};

/// A deployment that takes part in lookups: its name, and the ways to ask it.
#[derive(Debug)]
pub struct Domain {
    pub(crate) name: Arc<str>,
    pub(crate) held: Option<Arc<dyn Held>>,
    pub(crate) remote: Option<Arc<dyn Remote>>,
    pub(crate) source: Option<Arc<dyn Source>>,
    pub(crate) hits: Hits,
    /// How old an "absent" may be that comes over the network.
    absent_within: Option<Duration>,
}

impl Domain {
    /// A domain of which nothing is known yet: every answer is `Unknown`.
    pub fn new(name: &str) -> Result<Self> {
        check_name(name)?;
        Ok(Self {
            name: name.into(),
            held: None,
            remote: None,
            source: None,
            hits: Hits::default(),
            absent_within: None,
        })
    }

    /// Its filter is in this process.
    #[must_use]
    pub fn held(self, held: Arc<dyn Held>) -> Self {
        Self { held: Some(held), ..self }
    }

    /// It can be asked over the network, where its filter is not in this process, or cannot say.
    #[must_use]
    pub fn remote(self, remote: Arc<dyn Remote>) -> Self {
        Self { remote: Some(remote), ..self }
    }

    /// What it says over the network is no more "absent" if it is older than this, as from a node that others cannot reach.
    #[must_use]
    pub fn absent_within(self, time: Duration) -> Self {
        Self { absent_within: Some(time), ..self }
    }

    /// Its records can be fetched.
    #[must_use]
    pub fn source(self, source: Arc<dyn Source>) -> Self {
        Self { source: Some(source), ..self }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How old the filter in this process is.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.held.as_ref()?.age()
    }

    /// Whether the filter in this process, if there is one, is too old to say that something is absent.
    pub(crate) fn is_stale(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_stale())
    }

    /// Asks over the network, if there is a way.
    pub(crate) async fn ask(&self, keys: &[&[u8]]) -> Option<Result<Told>> {
        let mut told = match self.remote.as_ref()?.ask(keys).await {
            Ok(told) => told,
            Err(error) => return Some(Err(error)),
        };
        if told.age.zip(self.absent_within).is_some_and(|(age, most)| age > most) {
            let absent = told.answers.iter_mut().filter(|answer| **answer == Answer::Absent);
            absent.for_each(|answer| *answer = Answer::Unknown);
        }
        Some(Ok(told))
    }

    /// Asks the filter in this process, if there is one.
    pub(crate) fn look(&self, keys: &mut Keys<'_>, answers: &mut Vec<Answer>) {
        match &self.held {
            Some(held) => held.look(keys, answers),
            None => unknown(keys.len(), answers),
        }
        // An answer that belongs to another key might be a wrong "absent".
        if answers.len() != keys.len() {
            unknown(keys.len(), answers);
        }
    }
}

/// Names stand in addresses and in the registry.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.chars().all(is_plain) {
        return Err(Error::Invalid(format!(
            "the name {name:?} of a domain; it has 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes and underscores"
        )));
    }
    Ok(())
}
