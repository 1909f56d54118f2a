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
use umbel_core::registry::{Expected, Lease, Registry, lock};
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
        let end = Instant::now() + PATIENCE;
        let tenure = Arc::new(Tenure::default());
        let mut asked = tenure.clock.now();
        let mut lease = registry.grant(LEASE).await?;
        let mut is_told = false;
        while lock::acquire(&**registry, NAME, owner.clone(), lease).await?.is_none() {
            if Instant::now() > end {
                registry.revoke(lease).await?;
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
            if !registry.keep_alive(lease).await? {
                lease = registry.grant(LEASE).await?;
            }
        }
        registry.put(LAST, owner.clone(), Expected::Anything, None).await?;
        tenure.kept_since(asked);
        let (tell, lost) = oneshot::channel();
        let (held, us, ours) = (Arc::clone(registry), owner.clone(), Arc::clone(&tenure));
        let holding = tokio::spawn(async move {
            let why = hold(&*held, &us, lease, &ours).await;
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

/// Keeps the lease alive; comes back when somebody else has the place.
async fn hold(registry: &dyn Registry, owner: &Bytes, mut lease: Lease, tenure: &Tenure) -> String {
    let mut is_told = false;
    loop {
        sleep(RENEW).await;
        let asked = tenure.clock.now();
        let standing = renew(registry, owner, &mut lease).await;
        match &standing {
            Ok(Standing::Kept) => tenure.kept_since(asked),
            Ok(Standing::Lost) => {
                return "another server took this deployment while the registry was not reached".to_owned();
            }
            Ok(Standing::Anew) | Err(_) => {}
        }
        match (tenure.is_held(), is_told) {
            (false, false) => {
                let why = standing.err().map_or_else(String::new, |error| error.to_string());
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

/// How it stands with the place.
enum Standing {
    /// The lease has never ended.
    Kept,
    /// It had. The place was free and is ours, but what stands there may yet go with the old lease.
    Anew,
    /// Another server has it, or had it.
    Lost,
}

async fn renew(registry: &dyn Registry, owner: &Bytes, lease: &mut Lease) -> Result<Standing> {
    let is_kept = registry.keep_alive(*lease).await?;
    if !is_kept {
        *lease = registry.grant(LEASE).await?;
    }
    // If the lease ended meanwhile, whoever comes first has the place.
    let Some(held) = lock::acquire(registry, NAME, owner.clone(), *lease).await? else {
        return Ok(Standing::Lost);
    };
    // Whoever had it meanwhile made checkpoints that this one does not know, also if it is gone again.
    match registry.get(LAST).await? {
        Some(last) if last.value != *owner => {
            lock::release(registry, &held).await?;
            return Ok(Standing::Lost);
        }
        Some(_) => {}
        None => _ = registry.put(LAST, owner.clone(), Expected::Absent, None).await?,
    }
    Ok(if is_kept { Standing::Kept } else { Standing::Anew })
}
