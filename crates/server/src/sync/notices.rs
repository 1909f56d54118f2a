//! Notices: small words to everybody who follows a filter.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use umbel_core::engine::Handle;
use umbel_core::version::Version;

use super::publisher::Publisher;
use crate::node::Node;

/// Notices that somebody may be behind with. Whoever misses one looks for itself, so few are enough.
const KEPT: usize = 64;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// A version was published, or made the current one.
    Version,
    /// Strong replicas are to ask at once what they should serve or fetch.
    Stage,
    /// What other replicas are held at has changed, by a pin or a rollout: all of them are to ask at once, also those that follow the log.
    Hold,
}

impl Event {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Stage | Self::Hold => "stage",
        }
    }
}

/// A notice. Nodes tell each other in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    pub(crate) filter: u64,
    pub(crate) event: Event,
    pub(crate) number: u64,
    pub(crate) digest: String,
    pub(crate) current: bool,
}

impl Notice {
    pub(crate) fn of(version: &Version, event: Event, current: bool) -> Self {
        let digest = version.digest().to_string();
        Self { filter: version.filter, event, number: version.number, digest, current }
    }
}

/// Everybody who listens.
#[derive(Debug)]
pub(crate) struct Notices {
    sender: broadcast::Sender<Notice>,
    /// Who publishes filters that somebody listens to, while somebody does.
    publishers: Mutex<HashMap<u64, Weak<Publisher>>>,
}

impl Default for Notices {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(KEPT), publishers: Mutex::default() }
    }
}

/// One who listens to a filter. While there is one, the filter is published when it changes.
#[derive(Debug)]
pub(crate) struct Listener {
    filter: u64,
    receiver: broadcast::Receiver<Notice>,
    _publisher: Arc<Publisher>,
}

impl Notices {
    /// Tells everybody who listens here.
    pub(crate) fn tell(&self, notice: Notice) {
        // Nobody may be listening.
        let _ = self.sender.send(notice);
    }

    /// Sees when what replicas of a filter are held at changes. No version is published because of it.
    pub(crate) fn holds(&self, filter: u64) -> Holds {
        Holds { filter, receiver: self.sender.subscribe() }
    }

    /// Listens to a filter.
    pub(crate) fn listen(&self, node: &Arc<Node>, filter: &Arc<Handle>) -> Listener {
        let receiver = self.sender.subscribe();
        let mut publishers = self.publishers.lock().unwrap_or_else(PoisonError::into_inner);
        publishers.retain(|_, publisher| publisher.strong_count() > 0);
        let running = publishers.get(&filter.id()).and_then(Weak::upgrade);
        let publisher = running.unwrap_or_else(|| {
            let publisher = Arc::new(Publisher::start(node, filter));
            publishers.insert(filter.id(), Arc::downgrade(&publisher));
            publisher
        });
        Listener { filter: filter.id(), receiver, _publisher: publisher }
    }
}

/// Changes of what replicas of a filter are held at.
#[derive(Debug)]
pub(crate) struct Holds {
    filter: u64,
    receiver: broadcast::Receiver<Notice>,
}

impl Holds {
    fn is_one(&self, notice: &Notice) -> bool {
        notice.filter == self.filter && notice.event == Event::Hold
    }

    /// Waits for the next change. One that is missed among many notices is made good by the next heartbeat.
    pub(crate) async fn next(&mut self) {
        loop {
            match self.receiver.recv().await {
                Ok(notice) if self.is_one(&notice) => return,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Whether there was a change since this was last asked.
    pub(crate) fn has_changed(&mut self) -> bool {
        loop {
            match self.receiver.try_recv() {
                Ok(notice) if self.is_one(&notice) => return true,
                Ok(_) | Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return false,
            }
        }
    }
}

impl Listener {
    /// The next notice; none if some were missed, and the one who listens should look for itself.
    pub(crate) async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.receiver.recv().await {
                Ok(notice) if notice.filter == self.filter => return Some(notice),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}
