//! All nodes as an engine sees them, and this one among them.

mod confirm;
mod requests;
mod routing;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use umbel_core::clock::Clock;
use umbel_core::cluster::{Instance, Membership, Record, View};
use umbel_core::engine::Engine;
use umbel_core::{Error, Result};

use super::peers::Peers;
use crate::digest::Digest;
use crate::metrics::Page;
use routing::Routes;

/// The other nodes, and this one among them.
pub struct Nodes {
    membership: Arc<Membership>,
    peers: Peers,
    routes: ArcSwapOption<Routes>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    cluster: String,
    secret: Digest,
    /// This node's own engine, which has this.
    engine: OnceLock<Weak<Engine>>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("membership", &self.membership).finish_non_exhaustive()
    }
}

impl Nodes {
    /// Nodes that know each other by a secret. Connections live in the runtime.
    pub fn new(
        membership: Arc<Membership>,
        cluster: &str,
        secret: &[u8],
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let peers = Peers::new(runtime.clone(), Arc::clone(&clock), secret, cluster, membership.name());
        let (cluster, secret) = (cluster.to_owned(), Digest::of(secret));
        Self {
            membership,
            peers,
            routes: ArcSwapOption::empty(),
            clock,
            runtime,
            cluster,
            secret,
            engine: OnceLock::new(),
        }
    }

    /// Whose place in the registry it is.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// What the nodes are together.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// This node's own engine is open.
    pub fn attach(&self, engine: &Arc<Engine>) {
        // There is one.
        let _ = self.engine.set(Arc::downgrade(engine));
    }

    /// Whether somebody is one of the nodes.
    pub(crate) fn knows(&self, secret: &[u8], cluster: &[u8]) -> bool {
        Digest::of(secret) == self.secret && cluster == self.cluster.as_bytes()
    }

    /// Whether another node answers a ping in time.
    pub(super) async fn ping(&self, node: &Record, view: &View, time: Duration) -> bool {
        self.peers.ping(&self.peers.of(node, view), time).await
    }

    /// Says which processes are not asked before they answer pings again.
    pub(super) fn mark_unreached(&self, unreached: &BTreeSet<Instance>) {
        self.peers.mark_unreached(unreached);
    }

    /// Why this node is not ready yet, if so.
    pub fn ready(&self) -> Result<(), String> {
        if let Some(why) = self.membership.lost() {
            return Err(why.to_owned());
        }
        if self.membership.is_isolated() {
            return Err("the other nodes do not reach this one, or are not reached from here".to_owned());
        }
        let (view, serves) = (self.membership.view(), self.membership.serves());
        let wanted = view.wanted(self.membership.name());
        let missing = wanted.iter().filter(|partition| !serves.contains(**partition)).count();
        match missing {
            0 => Ok(()),
            missing => Err(format!("{missing} of {} partitions are being taken in", wanted.len())),
        }
    }

    /// What is counted.
    pub fn collect(&self, page: &mut Page) {
        let engine = self.here().ok();
        let hosted = engine.map(|engine| engine.hosted()).unwrap_or_default();
        super::figures::collect(&self.membership, &hosted, page);
        self.peers.collect(page);
    }

    fn here(&self) -> Result<Arc<Engine>> {
        let engine = self.engine.get().and_then(Weak::upgrade);
        engine.ok_or_else(|| Error::Retry("this node is starting or ending".into()))
    }
}
