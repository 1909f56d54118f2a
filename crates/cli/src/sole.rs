//! One server for a deployment on engines: two would remove each other's checkpoints.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use umbel_core::random::{Random, SystemRandom};
use umbel_core::registry::{Expected, Lease, Registry, lock};
use umbel_core::{Error, Result};

const NAME: &str = "serving"; // persisted
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
    holding: JoinHandle<()>,
    /// Why the place is lost, when it is.
    lost: oneshot::Receiver<String>,
}

impl Sole {
    /// Takes the place, if need be when another server's lease has ended.
    pub(crate) async fn take(registry: &Arc<dyn Registry>) -> Result<Self> {
        let owner = format!("process {} {:016x}", std::process::id(), SystemRandom::default().next());
        let owner = Bytes::from(owner);
        let end = Instant::now() + PATIENCE;
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
            if !registry.keep_alive(lease).await? {
                lease = registry.grant(LEASE).await?;
            }
        }
        let (tell, lost) = oneshot::channel();
        let (held, us) = (Arc::clone(registry), owner.clone());
        let holding = tokio::spawn(async move {
            let why = hold(&*held, &us, lease).await;
            // Nobody listens where the server has ended.
            let _ = tell.send(why);
        });
        Ok(Self { registry: Arc::clone(registry), owner, holding, lost })
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
async fn hold(registry: &dyn Registry, owner: &Bytes, mut lease: Lease) -> String {
    loop {
        sleep(RENEW).await;
        // While the registry is away, nobody else gets the place either.
        match registry.keep_alive(lease).await {
            Ok(true) => {}
            Ok(false) => match registry.grant(LEASE).await {
                Ok(next) => lease = next,
                Err(_) => continue,
            },
            Err(_) => continue,
        }
        // If the lease ended meanwhile, whoever comes first has the place.
        if let Ok(None) = lock::acquire(registry, NAME, owner.clone(), lease).await {
            return "another server took this deployment while the registry was not reached".to_owned();
        }
    }
}
