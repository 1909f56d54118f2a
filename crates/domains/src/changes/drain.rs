use std::sync::Arc;

use tokio::task::spawn_blocking;
use umbel_core::entry::Request;

use super::{Batch, Counting, Net, Outbox};
use crate::{Error, Hot, Result};

/// How often a filter is corrected before it is said that it cannot be.
const CORRECTIONS_MAX: usize = 3;
/// A request that nobody repeats.
const ONCE: Request = Request { session: 0, sequence: 0 };

/// Tells a filter of the changes in an outbox. There is one for each outbox: two of them would correct what the other is about to do.
#[derive(Debug)]
pub struct Drain {
    outbox: Arc<dyn Outbox>,
    filter: Arc<dyn Counting>,
    hot: Option<Arc<Hot>>,
    turn: tokio::sync::Mutex<()>,
}

impl Drain {
    /// From an outbox to a filter.
    pub fn new(outbox: Arc<dyn Outbox>, filter: Arc<dyn Counting>) -> Self {
        Self { outbox, filter, hot: None, turn: tokio::sync::Mutex::default() }
    }

    /// Answers that were kept here are forgotten when their records change.
    #[must_use]
    pub fn forgetting(self, hot: Arc<Hot>) -> Self {
        Self { hot: Some(hot), ..self }
    }

    /// Tells the filter all that waits now, and gives how many changes that were. What was in the outbox before the call is in the filter
    /// when it returns. It may be given up at any time.
    pub async fn run(&self) -> Result<u64> {
        let _alone = self.turn.lock().await;
        let mut told = 0;
        while let Some(batch) = self.claim().await? {
            self.apply(&batch).await?;
            self.finish(batch.number).await?;
            told += batch.changes.len() as u64;
        }
        Ok(told)
    }

    async fn claim(&self) -> Result<Option<Batch>> {
        let outbox = Arc::clone(&self.outbox);
        blocking(move || outbox.claim()).await
    }

    async fn finish(&self, number: u64) -> Result<()> {
        let outbox = Arc::clone(&self.outbox);
        blocking(move || outbox.finish(number)).await
    }

    async fn apply(&self, batch: &Batch) -> Result<()> {
        let net = batch.net();
        if !net.adds.is_empty() {
            unless_known(self.filter.add(&net.adds, batch.adding()).await)?;
        }
        if !net.removes.is_empty() {
            unless_known(self.filter.remove(&net.removes, batch.removing()).await)?;
        }
        self.verify(&net).await?;
        // Rows that are gone are never told again, so what they told must not be lost with the power.
        self.filter.sync().await?;
        if let Some(hot) = &self.hot {
            net.keys.iter().for_each(|key| hot.forget_key(key));
        }
        Ok(())
    }

    /// Looks whether the filter holds every key as often as it should. It does, unless it has forgotten who told it what, was full, or was
    /// filled by others at the same time; then it is corrected.
    async fn verify(&self, net: &Net) -> Result<()> {
        for _ in 0..=CORRECTIONS_MAX {
            let counts = self.filter.counts(&net.keys).await?;
            if counts.len() != net.keys.len() {
                return Err(Error::Corrupt(format!("{} counts for {} keys", counts.len(), net.keys.len())));
            }
            let (mut missing, mut surplus) = (Vec::new(), Vec::new());
            for ((key, is_there), count) in net.keys.iter().zip(&net.is_there).zip(counts) {
                match (is_there, count) {
                    (true, 1) | (false, 0) => {}
                    (true, 0) => missing.push(key.clone()),
                    _ => surplus.push(key.clone()),
                }
            }
            if missing.is_empty() && surplus.is_empty() {
                return Ok(());
            }
            if !missing.is_empty() {
                self.filter.add(&missing, ONCE).await?;
            }
            // One occurrence goes each time: a count may be a thousand only where somebody else adds, who should not.
            if !surplus.is_empty() {
                self.filter.remove(&surplus, ONCE).await?;
            }
        }
        Err(Error::Retry("the filter does not hold what it was told: somebody else changes it".into()))
    }
}

/// A filter refuses batches with earlier numbers than it has seen, as those of a database are that was restored from a copy. Then it is
/// corrected as a whole. Whatever else it refuses it refuses again.
fn unless_known(told: Result<()>) -> Result<()> {
    match told {
        Err(Error::Invalid(_)) => Ok(()),
        told => told,
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.map_err(|error| Error::Retry(format!("the outbox was given up: {error}")))?
}
