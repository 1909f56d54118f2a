//! Pauses between tries.

use std::time::{Duration, Instant};

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN};
use crate::progress::Progress;
use crate::{Error, Result};

/// Tries that fail, until one succeeds or patience is over.
#[derive(Debug)]
pub(crate) struct Tries {
    patience: Duration,
    failing_since: Option<Instant>,
    pause: Duration,
}

impl Tries {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, failing_since: None, pause: BACKOFF_MIN }
    }

    /// The next failure is the first.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::new(self.patience);
    }

    /// Waits for the next try, unless the error says that it would fail as well, or patience is over.
    pub(crate) fn wait(&mut self, error: Error, progress: &Progress) -> Result<()> {
        let Error::Retry(why) = error else { return Err(error) };
        let failing = self.failing_since.get_or_insert_with(Instant::now).elapsed();
        if failing >= self.patience {
            return Err(Error::Retry(format!("{why} (tried for {} s)", failing.as_secs())));
        }
        progress.tried_again(why);
        progress.sleep(self.pause)?;
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_and_success_renews_it() {
        let (progress, retry) = (Progress::default(), || Error::Retry("away".into()));
        let mut tries = Tries::new(Duration::from_millis(150));
        assert!(matches!(tries.wait(Error::Invalid("no".into()), &progress), Err(Error::Invalid(_))));
        tries.wait(retry(), &progress).unwrap();
        tries.succeeded();
        tries.wait(retry(), &progress).unwrap();
        tries.wait(retry(), &progress).unwrap();
        assert!(matches!(tries.wait(retry(), &progress), Err(Error::Retry(why)) if why.contains("away")));
        progress.stop();
        assert!(matches!(Tries::new(Duration::MAX).wait(retry(), &progress), Err(Error::Stopped)));
    }
}
