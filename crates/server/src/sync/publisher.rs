//! Publishes a filter as it changes, while somebody listens.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use umbel_core::Error;
use umbel_core::engine::{Handle, Token};

use super::notices::{Event, Notice};
use crate::node::Node;

/// How long it waits after it could not publish.
const AFTER_FAILURE: std::time::Duration = std::time::Duration::from_secs(1);

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Publisher(JoinHandle<()>);

impl Publisher {
    pub(super) fn start(node: &Arc<Node>, filter: &Arc<Handle>) -> Self {
        Self(tokio::spawn(publish(Arc::clone(node), Arc::clone(filter))))
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn publish(node: Arc<Node>, filter: Arc<Handle>) {
    let mut seen = Token::default();
    let mut newest = None;
    loop {
        let earliest = Instant::now() + node.config.load().publish_interval;
        match node.releases.publish(&node, &filter, None).await {
            Ok(version) => {
                seen = version.token();
                if newest.replace(version.number) != Some(version.number) {
                    // Where others listen, somebody finds the same.
                    node.sync.notices.tell(Notice::of(&version, Event::Version, true));
                }
            }
            // It was dropped.
            Err(Error::Invalid(_)) => return,
            Err(error) => {
                tracing::warn!(%error, filter = filter.definition().name, "a filter is not published");
                sleep(AFTER_FAILURE).await;
            }
        }
        changed(&node, &filter, &mut seen).await;
        sleep_until(earliest).await;
    }
}

/// Waits until the filter changed.
async fn changed(node: &Node, filter: &Arc<Handle>, seen: &mut Token) {
    loop {
        node.moved(filter, seen).await;
        match node.engine.changes(filter, seen).await {
            Ok(changes) if changes.records.is_empty() => *seen = changes.token,
            // Something did, or nobody knows any more.
            _ => return,
        }
    }
}
