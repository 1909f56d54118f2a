//! Domains that do what a test tells them to.
#![allow(dead_code, reason = "every test uses a part of it")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use umbel_domains::{Answer, Error, Field, Held, Keys, Record, Remote, Result, Source, Told, Value};
use umbel_filter::{Filter, Limits, Spec};

/// What a domain is made to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub keys: BTreeSet<Vec<u8>>,
    pub age: Option<Duration>,
    /// It does not answer at all.
    pub is_down: bool,
    /// How long it takes to answer.
    pub delay: Duration,
}

/// A domain without false positives, here and there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exact(pub(crate) Arc<Mutex<State>>);

impl Exact {
    pub(crate) fn of(keys: &[&str]) -> Self {
        let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        Self(Arc::new(Mutex::new(State { keys, age: Some(Duration::ZERO), ..State::default() })))
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap());
    }

    pub(crate) fn state(&self) -> State {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        Arc::new(self.clone())
    }
}

impl State {
    fn answer(&self, key: &[u8]) -> Answer {
        match self.is_down {
            true => Answer::Unknown,
            false if self.keys.contains(key) => Answer::Maybe,
            false => Answer::Absent,
        }
    }
}

impl Held for Exact {
    fn look(&self, keys: &mut Keys<'_>, answers: &mut Vec<Answer>) {
        let state = self.state();
        answers.clear();
        answers.extend(keys.as_slice().iter().map(|key| state.answer(key)));
    }

    fn age(&self) -> Option<Duration> {
        self.state().age
    }
}

#[async_trait]
impl Remote for Exact {
    async fn ask(&self, keys: &[&[u8]]) -> Result<Told> {
        let state = self.state();
        tokio::time::sleep(state.delay).await;
        if state.is_down {
            return Err(Error::Retry("it is down".into()));
        }
        Ok(Told { answers: keys.iter().map(|key| state.answer(key)).collect(), age: state.age })
    }
}

#[async_trait]
impl Source for Exact {
    async fn fetch(&self, key: &[u8]) -> Result<Option<Record>> {
        let state = self.state();
        tokio::time::sleep(state.delay).await;
        match state.is_down {
            true => Err(Error::Retry("it is down".into())),
            false => Ok(state.keys.contains(key).then(|| record(key))),
        }
    }
}

/// The record that a domain has for a key.
pub(crate) fn record(key: &[u8]) -> Record {
    Record::Row(vec![Field { column: "key".into(), value: Value::Bytes(key.to_vec()) }])
}

pub(crate) fn filter(spec: &Spec) -> Arc<Filter> {
    Arc::new(Filter::new(spec, &Limits::default()).unwrap())
}
