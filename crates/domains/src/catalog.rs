//! All domains together.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};
use umbel_core::engine::Answer;

use crate::answers::{self, Answers, Standing};
use crate::limits::{CHUNK_KEYS, DEADLINE_MAX, DOMAINS_MAX};
use crate::{Counts, Domain, Error, Hot, Keys, Result};

/// The local domain and all others. Lookups wait for no lock, and domains may come and go meanwhile.
#[derive(Debug)]
pub struct Catalog {
    local: Arc<Domain>,
    others: ArcSwap<Vec<Arc<Domain>>>,
    pub(crate) hot: Option<Arc<Hot>>,
    pub(crate) counts: Option<Arc<Counts>>,
}

impl Catalog {
    /// A catalog of the local domain alone.
    pub fn new(local: Domain) -> Self {
        Self { local: Arc::new(local), others: ArcSwap::default(), hot: None, counts: None }
    }

    /// Keeps what was fetched for a while.
    #[must_use]
    pub fn with_hot(self, hot: Arc<Hot>) -> Self {
        Self { hot: Some(hot), ..self }
    }

    /// Counts which keys are fetched.
    #[must_use]
    pub fn with_counts(self, counts: Arc<Counts>) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// What was fetched and is kept, for whoever changes records here.
    pub fn hot(&self) -> Option<&Arc<Hot>> {
        self.hot.as_ref()
    }

    /// Another domain takes part, or is asked in other ways than before.
    pub fn join(&self, domain: Domain) -> Result<()> {
        let domain = Arc::new(domain);
        if domain.name == self.local.name {
            return Err(Error::Invalid(format!(
                "another domain has the name of the local one, {}",
                domain.name
            )));
        }
        let mut is_full = false;
        self.others.rcu(|others| {
            let mut others = without(others, &domain.name);
            is_full = others.len() >= DOMAINS_MAX;
            if !is_full {
                others.push(Arc::clone(&domain));
            }
            others
        });
        match is_full {
            true => Err(Error::Invalid(format!("there are {DOMAINS_MAX} domains, which is the most"))),
            false => Ok(()),
        }
    }

    /// A domain takes part no more; whether it did. One that only cannot be reached stays: of that nothing is known, while nothing
    /// is said of one that has left.
    pub fn leave(&self, name: &str) -> bool {
        let before = self.others.rcu(|others| without(others, name));
        before.iter().any(|domain| &*domain.name == name)
    }

    /// The name of the local domain.
    pub fn local(&self) -> &str {
        &self.local.name
    }

    /// The names of the others.
    pub fn others(&self) -> Vec<Arc<str>> {
        self.others.load().iter().map(|domain| Arc::clone(&domain.name)).collect()
    }

    /// Which domains may have a key, the likeliest first, from what is in memory. The others are asked unless the local one may have it.
    pub fn look(&self, key: impl AsRef<[u8]>) -> Vec<Standing> {
        self.look_many(&[key]).standings(0)
    }

    /// The same for many keys, which is much faster than one after another.
    pub fn look_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Answers {
        look_in(&self.in_order(), keys)
    }

    /// The same, and domains of which memory does not know are asked over the network, for so long at most.
    pub async fn lookup(&self, key: impl AsRef<[u8]>, within: Duration) -> Vec<Standing> {
        self.lookup_many(&[key], within).await.standings(0)
    }

    /// The same for many keys.
    pub async fn lookup_many<K: AsRef<[u8]>>(&self, keys: &[K], within: Duration) -> Answers {
        lookup_in(&self.in_order(), keys, within).await
    }

    /// What the local domain alone says of a key.
    pub async fn lookup_local(&self, key: impl AsRef<[u8]>, within: Duration) -> Vec<Standing> {
        lookup_in(&self.local_alone(), &[key], within).await.standings(0)
    }

    /// The local domain, then the others, the likeliest first.
    pub(crate) fn in_order(&self) -> Vec<Arc<Domain>> {
        let mut domains = vec![Arc::clone(&self.local)];
        domains.extend(self.others.load().iter().cloned());
        answers::sort(&mut domains[1..]);
        domains
    }

    pub(crate) fn local_alone(&self) -> [Arc<Domain>; 1] {
        [Arc::clone(&self.local)]
    }
}

/// Asks what is in memory, and over the network for what is not known there.
async fn lookup_in<K: AsRef<[u8]>>(domains: &[Arc<Domain>], keys: &[K], within: Duration) -> Answers {
    let deadline = Instant::now() + within.min(DEADLINE_MAX);
    let mut answers = look_in(domains, keys);
    let asked = domains.iter().enumerate().filter_map(|(number, domain)| {
        let unknown = answers.unknown(number);
        domain.remote.as_ref().filter(|_| !unknown.is_empty())?;
        let keys: Vec<&[u8]> = unknown.iter().map(|key| keys[*key].as_ref()).collect();
        Some(async move {
            // Whatever does not come in time stays unknown.
            let told = timeout_at(deadline, domain.ask(&keys)).await.ok()??.ok()?;
            (told.answers.len() == unknown.len()).then_some((number, unknown, told))
        })
    });
    let asked: Vec<_> = asked.collect();
    for (number, keys, told) in join_all(asked).await.into_iter().flatten() {
        answers.tell(number, &keys, &told.answers, told.age);
    }
    answers
}

/// Asks what is in memory: the first domain for all keys, the others for those that it does not have.
pub(crate) fn look_in<K: AsRef<[u8]>>(domains: &[Arc<Domain>], keys: &[K]) -> Answers {
    let mut answers = Answers::new(domains.iter(), keys.len());
    let (mut hashed, mut told, mut left) = (Keys::default(), Vec::new(), Vec::new());
    for (number, chunk) in keys.chunks(CHUNK_KEYS).enumerate() {
        let first = number * CHUNK_KEYS;
        hashed.refill(chunk.iter().map(AsRef::as_ref));
        left.clear();
        left.extend(0..chunk.len());
        for (number, domain) in domains.iter().enumerate() {
            domain.look(&mut hashed, &mut told);
            let row = &mut answers.row_mut(number)[first..first + chunk.len()];
            left.iter().zip(&told).for_each(|(place, answer)| row[*place] = Some(*answer));
            if number == 0 {
                left.retain(|place| row[*place] != Some(Answer::Maybe));
                hashed.keep(&left);
            }
            if left.is_empty() {
                break;
            }
        }
    }
    answers
}

fn without(domains: &[Arc<Domain>], name: &str) -> Vec<Arc<Domain>> {
    domains.iter().filter(|domain| &*domain.name != name).cloned().collect()
}
