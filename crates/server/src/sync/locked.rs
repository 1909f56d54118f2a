//! Locks in the registry that end with whoever holds them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_core::Result;
use umbel_core::registry::{Lease, Registry, lock};

use crate::node::Node;

/// How long a lock outlives one who died.
const LOCK: Duration = Duration::from_secs(10);
/// How often whoever holds a lock has to say so.
pub(super) const HOLD_EVERY: Duration = Duration::from_millis(2500);

/// A lock that is held while somebody says so.
pub(super) struct Locked {
    registry: Arc<dyn Registry>,
    lease: Lease,
    renewed: Instant,
}

impl Locked {
    /// Takes a lock; none if somebody has it.
    pub(super) async fn take(node: &Node, name: &str) -> Result<Option<Self>> {
        let registry = Arc::clone(&node.registry);
        let lease = registry.grant(LOCK).await?;
        // Of this one alone: the node may be asked for the same once more meanwhile.
        let owner = format!("{} {}", node.run_id, lease.0);
        if lock::acquire(&*registry, name, owner.into(), lease).await?.is_some() {
            return Ok(Some(Self { registry, lease, renewed: Instant::now() }));
        }
        registry.revoke(lease).await?;
        Ok(None)
    }

    /// Says that it is held, if the last time is a while ago; false if it was lost.
    pub(super) async fn is_held(&mut self) -> Result<bool> {
        if self.renewed.elapsed() < HOLD_EVERY {
            return Ok(true);
        }
        let asked = Instant::now();
        let is_held = self.registry.keep_alive(self.lease).await?;
        self.renewed = asked;
        Ok(is_held)
    }

    pub(super) async fn free(self) -> Result<()> {
        self.registry.revoke(self.lease).await
    }
}
