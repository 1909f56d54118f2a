use std::sync::Arc;
use std::time::Duration;

use umbel_core::engine::Answer;

use crate::held::{Held, unknown};
use crate::hits::Hits;
use crate::limits::NAME_BYTES_MAX;
use crate::remote::Remote;
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
}

impl Domain {
    /// A domain of which nothing is known yet: every answer is `Unknown`.
    pub fn new(name: &str) -> Result<Self> {
        check_name(name)?;
        Ok(Self { name: name.into(), held: None, remote: None, source: None, hits: Hits::default() })
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
