//! One server for a deployment on engines: two would remove each other's checkpoints.
//!
//! A server that does not reach the registry cannot tell whether only it does not, and another one has its place by now, or nobody does. It
//! goes on with what harms nobody, and once its lease may have ended it makes no checkpoints and removes nothing. When the registry is
//! back it goes on with that, too, unless another server had the place meanwhile: then it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use umbel_core::clock::{Clock, SystemClock};
use umbel_core::engine::Claim;
use umbel_core::random::{Random, SystemRandom};
use umbel_core::registry::{Change, Expected, Lease, Registry};
use umbel_core::{Error, Result};

const NAME: &str = "serving"; // persisted, as the next
/// Who had the place last. It stays when a lease ends, so it tells those who were away that somebody came and went.
const LAST: &str = "served";
/// How long a server that was killed keeps the next one waiting.
const LEASE: Duration = Duration::from_secs(6);
/// How often the lease is kept alive.
const RENEW: Duration = Duration::from_secs(2);
/// How long a server waits for its place: for one that was killed it is long enough.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The place of the one server, as long as this lives.
pub(crate) struct Sole {
    registry: Arc<dyn Registry>,
    owner: Bytes,
    tenure: Arc<Tenure>,
    holding: JoinHandle<()>,
    /// Why the place is lost, when it is.
    lost: oneshot::Receiver<String>,
}

/// The place in the registry, and the lease that it is under.
struct Place {
    registry: Arc<dyn Registry>,
    owner: Bytes,
    /// None if it may have ended, or the place is not known to be under it.
    lease: Option<Lease>,
}

/// Until when nobody else can have the place.
#[derive(Debug, Default)]
struct Tenure {
    clock: SystemClock,
    until_millis: AtomicU64,
}

impl Tenure {
    /// The lease was kept alive by a call that began then.
    fn kept_since(&self, asked: Duration) {
        // Nine tenths of it, as nodes of a cluster do: the clock that ends it may run a little faster than this one.
        let until = (asked + LEASE * 9 / 10).as_millis() as u64;
        self.until_millis.store(until, Ordering::Relaxed);
    }
}

impl Claim for Tenure {
    fn is_held(&self) -> bool {
        (self.clock.now().as_millis() as u64) < self.until_millis.load(Ordering::Relaxed)
    }
}

impl Sole {
    /// Takes the place, if need be when another server's lease has ended.
    pub(crate) async fn take(registry: &Arc<dyn Registry>) -> Result<Self> {
        let owner = format!("process {} {:016x}", std::process::id(), SystemRandom::default().next());
        let owner = Bytes::from(owner);
        let mut place = Place { registry: Arc::clone(registry), owner: owner.clone(), lease: None };
        let end = Instant::now() + PATIENCE;
        let tenure = Arc::new(Tenure::default());
        let mut asked = tenure.clock.now();
        let mut is_told = false;
        while !place.take().await? {
            if Instant::now() > end {
                return Err(Error::Invalid(
                    "another server serves this deployment: it keeps its lease of `serving` in the registry alive".into(),
                ));
            }
            if !std::mem::replace(&mut is_told, true) {
                tracing::info!(
                    "another server has this deployment, or was killed just now; waiting for its lease to end"
                );
            }
            sleep(LOOK_AGAIN).await;
            asked = tenure.clock.now();
        }
        registry.put(LAST, owner.clone(), Expected::Anything, None).await?;
        tenure.kept_since(asked);
        let (tell, lost) = oneshot::channel();
        let ours = Arc::clone(&tenure);
        let holding = tokio::spawn(async move {
            let why = hold(place, &ours).await;
            // Nobody listens where the server has ended.
            let _ = tell.send(why);
        });
        Ok(Self { registry: Arc::clone(registry), owner, tenure, holding, lost })
    }

    /// What an engine asks before it makes checkpoints and removes something.
    pub(crate) fn claim(&self) -> Arc<dyn Claim> {
        Arc::clone(&self.tenure) as _
    }

    /// Waits until the place is lost, and says why.
    pub(crate) async fn lost(&mut self) -> String {
        match (&mut self.lost).await {
            Ok(why) => why,
            Err(_) => "nothing keeps the place of this server any more".to_owned(),
        }
    }

    /// Lets the next server in at once.
    pub(crate) async fn leave(self) -> Result<()> {
        self.holding.abort();
        match self.registry.get(NAME).await? {
            Some(held) if held.value == self.owner => {
                self.registry.delete(NAME, Expected::Version(held.version)).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        self.holding.abort();
    }
}

impl Place {
    /// Takes the place, or goes on having it, under a lease that was kept alive or granted by this call; false if another server has it.
    async fn take(&mut self) -> Result<bool> {
        let kept = match self.lease.take() {
            Some(lease) if self.registry.keep_alive(lease).await? => Some(lease),
            _ => None,
        };
        let unchanged = match self.registry.get(NAME).await? {
            Some(held) if held.value == self.owner => Expected::Version(held.version),
            Some(_) => return Ok(false),
            None => Expected::Absent,
        };
        let is_under_lease = kept.is_some() && unchanged != Expected::Absent;
        let lease = match kept {
            Some(lease) => lease,
            None => self.registry.grant(LEASE).await?,
        };
        if !is_under_lease {
            // What stands there may be under the lease of before, and would go with it.
            let put = self.registry.put(NAME, self.owner.clone(), unchanged, Some(lease)).await?;
            let Change::Done(_) = put else {
                return Err(Error::Retry("the place of the one server has just changed hands".into()));
            };
        }
        self.lease = Some(lease);
        Ok(true)
    }

    /// As `take`, for a server that had the place: false also if another one had it meanwhile and is gone again.
    async fn keep(&mut self) -> Result<bool> {
        if !self.take().await? {
            return Ok(false);
        }
        // Another server that had it meanwhile made checkpoints that this one does not know.
        match self.registry.get(LAST).await? {
            Some(last) if last.value != self.owner => {
                if let Some(lease) = self.lease.take() {
                    self.registry.revoke(lease).await?;
                }
                Ok(false)
            }
            Some(_) => Ok(true),
            None => {
                self.registry.put(LAST, self.owner.clone(), Expected::Absent, None).await?;
                Ok(true)
            }
        }
    }
}

/// Keeps the lease alive; comes back when somebody else has the place.
async fn hold(mut place: Place, tenure: &Tenure) -> String {
    let mut is_told = false;
    let mut pause = RENEW;
    loop {
        sleep(pause).await;
        let asked = tenure.clock.now();
        let kept = place.keep().await;
        match &kept {
            Ok(true) => tenure.kept_since(asked),
            Ok(false) => {
                return "another server took this deployment while the registry was not reached".to_owned();
            }
            Err(_) => {}
        }
        // An answer that took longer than the lease says nothing about now.
        pause = if kept.is_ok() && tenure.is_held() { RENEW } else { LOOK_AGAIN };
        match (tenure.is_held(), is_told) {
            (false, false) => {
                let why = kept.err().map_or_else(String::new, |error| error.to_string());
                tracing::warn!(
                    "another server may have this deployment: until the registry says that none has, no checkpoints are made. {why}"
                );
            }
            (true, true) => tracing::info!("no other server has this deployment: checkpoints are made again"),
            _ => continue,
        }
        is_told = !is_told;
    }
}
