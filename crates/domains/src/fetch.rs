//! Lookups that end with the record.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};
use umbel_core::engine::Answer;

use crate::answers::{Answers, Origin, Standing};
use crate::catalog::look_in;
use crate::hot::Entry;
use crate::limits::DEADLINE_MAX;
use crate::source::Record;
use crate::{Catalog, Domain, Error, Hot, Keys, Result};

/// What a lookup with a fetch came to.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// The record and the domain that had it.
    pub record: Option<(Arc<str>, Arc<Record>)>,
    /// What is known of every domain that was asked, the likeliest first. A false positive that was found out is `Absent`; a domain that
    /// could not be reached is `Unknown`. Where the record was found, nobody waited for the others any more.
    pub standings: Vec<Standing>,
    /// What was done besides, in the order in which it ended.
    pub steps: Vec<Step>,
    /// How long the filters in memory took, and what was kept of answers before.
    pub looked: Duration,
    /// How long all of it took.
    pub took: Duration,
}

impl Fetched {
    /// Whether nobody has the record: certain as of the ages. False as long as one domain is unknown, or might have it and has no source.
    pub fn is_absent(&self) -> bool {
        self.record.is_none() && self.standings.iter().all(|standing| standing.answer == Answer::Absent)
    }
}

/// A question to a domain, or to its source.
#[derive(Clone, Debug)]
pub struct Step {
    /// The domain.
    pub domain: Arc<str>,
    /// What was asked.
    pub origin: Origin,
    /// When it began, since the lookup did.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Why it came to nothing.
    pub failed: Option<Error>,
}

/// What became of a domain.
struct Tried {
    /// Its place among those that were asked.
    number: usize,
    answer: Answer,
    age: Option<Duration>,
    origin: Origin,
    record: Option<Record>,
    steps: Vec<Step>,
}

/// One fetch, while it lasts.
struct Attempt<'a> {
    key: &'a [u8],
    began: Instant,
    domains: &'a [Arc<Domain>],
    answers: Answers,
    fetched: Fetched,
}

impl Catalog {
    /// The record with a key, from whichever domain has it. The local one is asked first; if it does not have it, all others that may,
    /// at the same time. It ends after `within`, whatever happens.
    pub async fn fetch(&self, key: impl AsRef<[u8]>, within: Duration) -> Fetched {
        let key = key.as_ref();
        if let Some(counts) = &self.counts {
            counts.note(key);
        }
        self.fetch_from(&self.in_order(), key, within, self.hot.as_deref()).await
    }

    /// The record with a key, if the local domain has it: what another domain asks for, which counts and keeps what it gets itself.
    pub async fn fetch_local(&self, key: impl AsRef<[u8]>, within: Duration) -> Fetched {
        self.fetch_from(&self.local_alone(), key.as_ref(), within, None).await
    }

    async fn fetch_from(
        &self,
        domains: &[Arc<Domain>],
        key: &[u8],
        within: Duration,
        hot: Option<&Hot>,
    ) -> Fetched {
        let (began, within) = (Instant::now(), within.min(DEADLINE_MAX));
        let answers = look_in(domains, &[key]);
        let mut attempt = Attempt { key, began, domains, answers, fetched: Fetched::default() };
        let mut ticket = match hot {
            Some(hot) => match hot.get(key) {
                Ok(entry) if attempt.agrees_with(&entry) => return attempt.finish_with(&entry),
                Ok(_) => Some(hot.forget(key)),
                Err(ticket) => Some(ticket),
            },
            None => None,
        };
        // What filters alone know needs nobody else.
        if let Some((hot, ticket)) = hot.zip(ticket.as_mut()).filter(|_| !attempt.answers.is_absent(0))
            && let Some(entry) = hot.get_shared(ticket, key).await
            && attempt.agrees_with(&entry)
        {
            hot.adopt(*ticket, &entry);
            return attempt.finish_with(&entry);
        }
        attempt.fetched.looked = began.elapsed();
        // A local source that hangs must leave time for the others.
        let local_share = if domains.len() > 1 { within / 2 } else { within };
        attempt.try_domains(&[0], began + local_share).await;
        if attempt.fetched.record.is_none() {
            attempt.look_at_others();
            let others: Vec<usize> = (1..domains.len()).collect();
            attempt.try_domains(&others, began + within).await;
        }
        let fetched = attempt.finish();
        if let Some((hot, ticket)) = hot.zip(ticket) {
            hot.put(ticket, key, &fetched);
        }
        fetched
    }
}

impl Attempt<'_> {
    /// A local domain that might have had the key has kept the others from being asked.
    fn look_at_others(&mut self) {
        let (mut keys, mut told) = (Keys::new([self.key]), Vec::new());
        for (number, domain) in self.domains.iter().enumerate().skip(1) {
            if self.answers.answer(number, 0).is_none() {
                domain.look(&mut keys, &mut told);
                self.answers.row_mut(number).fill(told.first().copied());
            }
        }
    }

    /// Looks into some domains that may have the key, all at the same time, until one has it.
    async fn try_domains(&mut self, numbers: &[usize], deadline: Instant) {
        let (key, began, domains) = (self.key, self.began, self.domains);
        let worth_a_try = numbers.iter().filter_map(|number| {
            let answer = self.answers.answer(*number, 0)?;
            let domain = &domains[*number];
            let can_tell_more =
                domain.source.is_some() || answer == Answer::Unknown && domain.remote.is_some();
            (answer != Answer::Absent && can_tell_more)
                .then(|| try_domain(domain, *number, answer, key, began, deadline))
        });
        let mut trying: FuturesUnordered<_> = worth_a_try.collect();
        while let Some(tried) = trying.next().await {
            self.answers.settle(tried.number, tried.answer, tried.age, tried.origin);
            self.fetched.steps.extend(tried.steps);
            if let Some(record) = tried.record {
                self.fetched.record = Some((Arc::clone(&domains[tried.number].name), Arc::new(record)));
                return;
            }
        }
    }

    /// Whether what filters say now leaves a kept answer as it is. So a change that has come to a filter here ends it, without anybody
    /// having to say which key was changed.
    fn agrees_with(&mut self, entry: &Entry) -> bool {
        if self.answers.local(0) == Answer::Maybe && entry.is_refuted(&self.domains[0].name) {
            self.look_at_others();
        }
        let mut told = (0..self.domains.len()).map(|number| {
            let domain = &self.domains[number];
            (&domain.name, self.answers.answer(number, 0), domain.is_stale())
        });
        match &entry.record {
            Some((domain, _)) => {
                let local_agrees = told.next().is_some_and(|(name, answer, _)| {
                    name == domain || answer != Some(Answer::Maybe) || entry.is_refuted(name)
                });
                let is_there = |number: usize| {
                    let answer = self.answers.answer(number, 0);
                    self.domains[number].name == *domain
                        && answer.is_some_and(|answer| answer != Answer::Absent)
                };
                local_agrees && (0..self.domains.len()).any(is_there)
            }
            None => told.all(|(name, answer, is_stale)| match answer {
                Some(Answer::Absent) => true,
                // That its source did not have it a short time ago is worth as much as the copy of its filter.
                Some(Answer::Maybe) => entry.is_refuted(name) && !is_stale,
                Some(Answer::Unknown) | None => false,
            }),
        }
    }

    /// Answers from what was kept.
    fn finish_with(mut self, entry: &Entry) -> Fetched {
        for (number, domain) in self.domains.iter().enumerate() {
            let has_it = entry.record.as_ref().is_some_and(|(name, _)| *name == domain.name);
            if has_it {
                self.answers.settle(number, Answer::Maybe, Some(entry.age), Origin::Cache);
            } else if self.answers.answer(number, 0) == Some(Answer::Maybe)
                && entry.is_refuted(&domain.name)
                && !domain.is_stale()
            {
                self.answers.settle(number, Answer::Absent, Some(entry.age), Origin::Cache);
            }
        }
        Fetched { record: entry.record.clone(), ..self.finish() }
    }

    fn finish(self) -> Fetched {
        let took = self.began.elapsed();
        // What was answered from memory alone took all of it.
        let looked = if self.fetched.looked.is_zero() { took } else { self.fetched.looked };
        Fetched { standings: self.answers.standings(0), looked, took, ..self.fetched }
    }
}

/// Asks a domain that may have the key for more, until it is known or the time is over.
async fn try_domain(
    domain: &Domain,
    number: usize,
    answer: Answer,
    key: &[u8],
    began: Instant,
    deadline: Instant,
) -> Tried {
    let mut tried =
        Tried { number, answer, age: domain.age(), origin: Origin::Filter, record: None, steps: Vec::new() };
    if domain.remote.is_some() && answer == Answer::Unknown {
        let asked = began.elapsed();
        let told =
            async { domain.ask(&[key]).await.unwrap_or_else(|| Err(Error::Retry("nobody to ask".into()))) };
        let told = in_time(deadline, told).await;
        let told = told.and_then(|told| match told.answers[..] {
            [answer] => Ok((answer, told.age)),
            _ => Err(Error::Corrupt("answers for other keys than were asked for".into())),
        });
        tried.note(domain, Origin::Network, (began, asked), told.as_ref().err());
        if let Ok((answer, age)) = told {
            (tried.answer, tried.age, tried.origin) = (answer, age, Origin::Network);
        }
    }
    if tried.answer == Answer::Absent {
        return tried;
    }
    let Some(source) = &domain.source else { return tried };
    let asked = began.elapsed();
    let found = in_time(deadline, source.fetch(key)).await;
    tried.note(domain, Origin::Source, (began, asked), found.as_ref().err());
    tried.origin = Origin::Source;
    if tried.answer == Answer::Maybe
        && let Ok(found) = &found
    {
        domain.hits.note(found.is_some());
    }
    match found {
        Ok(Some(record)) => (tried.answer, tried.record) = (Answer::Maybe, Some(record)),
        Ok(None) => tried.answer = Answer::Absent,
        // The filter's "maybe" is worth little if nobody can look into it: what matters is that the domain cannot be reached.
        Err(_) => tried.answer = Answer::Unknown,
    }
    // A source is the truth itself.
    if tried.answer != Answer::Unknown {
        tried.age = Some(Duration::ZERO);
    }
    tried
}

impl Tried {
    /// Notes a step that was taken so long after the lookup began.
    fn note(
        &mut self,
        domain: &Domain,
        origin: Origin,
        (lookup, began): (Instant, Duration),
        failed: Option<&Error>,
    ) {
        let (domain, ended) = (Arc::clone(&domain.name), lookup.elapsed());
        self.steps.push(Step { domain, origin, began, ended, failed: failed.cloned() });
    }
}

async fn in_time<T>(deadline: Instant, asked: impl Future<Output = Result<T>>) -> Result<T> {
    timeout_at(deadline, asked).await.unwrap_or_else(|_| Err(Error::Retry("no answer in time".into())))
}
