//! A domain's filter that is copied into this process as soon as that can be.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;
use umbel_client::{Options, Replica};
use umbel_core::engine::Answer;

use crate::held::{Held, unknown};
use crate::{Error, Keys};

/// How long it is waited before the next try to get a first copy: twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A copy that follows a filter elsewhere. Until it is there, because the domain is down or has no such filter yet, every answer is
/// `Unknown`, and it is tried again and again. It ends when it is dropped.
#[derive(Debug)]
pub struct CopiedFilter {
    replica: Arc<OnceLock<Replica>>,
    opening: AbortHandle,
}

impl CopiedFilter {
    /// Begins to copy. It has to be called within a runtime, on which the copy lives.
    pub fn begin(options: Options) -> Self {
        let replica = Arc::new(OnceLock::new());
        let opened = Arc::clone(&replica);
        let opening = tokio::spawn(async move {
            let mut pause = PAUSE_MIN;
            loop {
                match Replica::open(options.clone()).await {
                    Ok(replica) => {
                        // Nobody else sets it.
                        let _ = opened.set(replica);
                        return;
                    }
                    Err(error) => {
                        let error = Error::from(error);
                        tracing::debug!(%error, "a filter of another domain cannot be copied yet");
                    }
                }
                sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        });
        Self { replica, opening: opening.abort_handle() }
    }

    /// The copy, once it is there.
    pub fn replica(&self) -> Option<&Replica> {
        self.replica.get()
    }
}

impl Drop for CopiedFilter {
    fn drop(&mut self) {
        self.opening.abort();
    }
}

impl Held for CopiedFilter {
    fn look(&self, keys: &mut Keys<'_>, answers: &mut Vec<Answer>) {
        match self.replica() {
            Some(replica) => Held::look(replica, keys, answers),
            None => unknown(keys.len(), answers),
        }
    }

    fn age(&self) -> Option<Duration> {
        self.replica()?.age()
    }

    fn is_stale(&self) -> bool {
        self.replica().is_none_or(Replica::is_stale)
    }
}
