//! Reading a source to see what is in it.

use std::time::Duration;

use bytes::Bytes;

use crate::sink::{Packed, Sink, Who};
use crate::{Batch, Counts, Distinct, Loader, Options, Progress, Result, Source, size};

/// What a source holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Keys, rows without one, bytes.
    pub counts: Counts,
    /// About how many keys differ.
    pub distinct: u64,
    /// The capacity to choose for a filter of them.
    pub capacity: u64,
}

/// Counts instead of sending.
struct Counter(Distinct);

impl Sink for Counter {
    fn form(&self) -> String {
        "counted".into()
    }

    fn pack(&self, batch: &Batch) -> Result<Packed> {
        batch.keys().for_each(|key| self.0.add(key));
        Ok(Packed { keys: batch.len() as u64, bytes: Bytes::new() })
    }

    fn send(&self, _: Who, _: &Packed) -> Result<u64> {
        Ok(0)
    }
}

/// Reads all of a source and says what is in it. Nothing is sent anywhere.
pub fn count(source: &dyn Source, lanes: usize, patience: Duration, progress: &Progress) -> Result<Counted> {
    let counter = Counter(Distinct::new()?);
    let options = Options { lanes, patience, ..Options::default() };
    let outcome = Loader::new(source, &counter, options)?.run(progress)?;
    let distinct = counter.0.estimate().min(outcome.counts.keys);
    Ok(Counted { counts: outcome.counts, distinct, capacity: size::capacity_for(distinct) })
}
