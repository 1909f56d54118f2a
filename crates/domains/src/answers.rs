//! What domains say of keys, and in which order they are worth a try.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use umbel_core::engine::Answer;

use crate::Domain;

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A filter in this process.
    Filter,
    /// The domain, over the network.
    Network,
    /// The source of its records.
    Source,
    /// What its source said a short time ago.
    Cache,
}

/// What is known of a key in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The domain.
    pub domain: Arc<str>,
    /// `Absent` is certain as of the age; a domain that cannot be asked is `Unknown`.
    pub answer: Answer,
    /// How old the answer is at most; none if nobody knows.
    pub age: Option<Duration>,
    /// Who said it.
    pub origin: Origin,
}

/// What domains say of many keys.
///
/// The local domain is asked for all keys, the others for those that it does not have.
#[derive(Clone, Debug)]
pub struct Answers {
    keys: usize,
    /// The local domain, then the others, the likeliest first.
    domains: Vec<Column>,
    /// All answers of one domain, then all of the next; none where it was not asked.
    rows: Vec<Option<Answer>>,
}

#[derive(Clone, Debug)]
struct Column {
    name: Arc<str>,
    age: Option<Duration>,
    origin: Origin,
}

/// The order of domains that may all have a key: who had what it might have had most often, then who is most current.
pub(crate) fn sort(domains: &mut [Arc<Domain>]) {
    domains.sort_by_cached_key(|domain| {
        let age = domain.age();
        (Reverse(domain.hits.share()), age.is_none(), age, Arc::clone(&domain.name))
    });
}

impl Answers {
    pub(crate) fn new<'a>(domains: impl Iterator<Item = &'a Arc<Domain>>, keys: usize) -> Self {
        let column = |domain: &Arc<Domain>| Column {
            name: Arc::clone(&domain.name),
            age: domain.age(),
            origin: Origin::Filter,
        };
        let domains: Vec<_> = domains.map(column).collect();
        Self { keys, rows: vec![None; keys * domains.len()], domains }
    }

    fn row(&self, domain: usize) -> &[Option<Answer>] {
        &self.rows[domain * self.keys..(domain + 1) * self.keys]
    }

    pub(crate) fn row_mut(&mut self, domain: usize) -> &mut [Option<Answer>] {
        &mut self.rows[domain * self.keys..(domain + 1) * self.keys]
    }

    /// What a domain said of a key, if it was asked.
    pub(crate) fn answer(&self, domain: usize, key: usize) -> Option<Answer> {
        self.row(domain).get(key).copied().flatten()
    }

    /// More is known of the only key there is.
    pub(crate) fn settle(&mut self, domain: usize, answer: Answer, age: Option<Duration>, origin: Origin) {
        self.row_mut(domain).fill(Some(answer));
        let column = &mut self.domains[domain];
        (column.age, column.origin) = (age, origin);
    }

    /// The keys of which a domain was asked without knowing.
    pub(crate) fn unknown(&self, domain: usize) -> Vec<usize> {
        let row = self.row(domain).iter().enumerate();
        row.filter(|(_, answer)| **answer == Some(Answer::Unknown)).map(|(key, _)| key).collect()
    }

    /// A domain was asked over the network for keys of which the filter here did not know.
    pub(crate) fn tell(&mut self, domain: usize, keys: &[usize], answers: &[Answer], age: Option<Duration>) {
        let row = self.row_mut(domain);
        keys.iter().zip(answers).for_each(|(key, answer)| row[*key] = Some(*answer));
        // Where some keys were answered here and others there, the older of both ages is true of all.
        let is_mixed = row.iter().flatten().count() > keys.len();
        let column = &mut self.domains[domain];
        column.age = match (column.age, age) {
            (Some(here), Some(there)) if is_mixed => Some(here.max(there)),
            (None, _) if is_mixed => None,
            (_, there) => there,
        };
        column.origin = Origin::Network;
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// What the local domain says of a key.
    ///
    /// # Panics
    /// If there are not so many keys, as everywhere here.
    pub fn local(&self, key: usize) -> Answer {
        self.row(0)[key].unwrap_or(Answer::Unknown)
    }

    /// The domains that were asked for a key and what they said, the likeliest first.
    pub fn of(&self, key: usize) -> impl Iterator<Item = (&str, Answer)> {
        self.columns(key).map(|(column, answer)| (&*column.name, answer))
    }

    /// The same with all that is known.
    pub fn standings(&self, key: usize) -> Vec<Standing> {
        let standing = |(column, answer): (&Column, Answer)| Standing {
            domain: Arc::clone(&column.name),
            answer,
            age: column.age,
            origin: column.origin,
        };
        self.columns(key).map(standing).collect()
    }

    /// Whether no domain that was asked may have the key: certain as of the ages.
    pub fn is_absent(&self, key: usize) -> bool {
        (0..self.domains.len()).all(|domain| matches!(self.row(domain)[key], None | Some(Answer::Absent)))
    }

    fn columns(&self, key: usize) -> impl Iterator<Item = (&Column, Answer)> {
        assert!(key < self.keys, "key {key} of {}", self.keys);
        let order = [Answer::Maybe, Answer::Unknown, Answer::Absent];
        order.into_iter().flat_map(move |wanted| {
            let told = self.domains.iter().enumerate();
            told.filter(move |(domain, _)| self.row(*domain)[key] == Some(wanted))
                .map(move |(_, column)| (column, wanted))
        })
    }
}
