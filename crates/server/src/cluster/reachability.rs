//! Finds out which other nodes this one does not reach although they have their place in the registry (rule V5).
//!
//! A node that was killed loses its record when its lease ends. A node that has not answered for longer than a lease and has its record still
//! is alive and cut off; then this node says so in its own record, and the view decides who leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use umbel_core::clock::Clock;
use umbel_core::cluster::Instance;

use super::nodes::Nodes;

/// Pings within the time of a lease.
const PINGS_PER_LEASE: u32 = 10;
/// Longest time in which a node has to answer a ping, in parts of a lease.
const ANSWERS_PER_LEASE: u32 = 5;

/// What is known of connections to other nodes.
#[derive(Debug)]
struct Reachability {
    lease: Duration,
    /// Of each process that has a record, when it answered.
    peers: BTreeMap<Instance, Peer>,
    ticked: Duration,
}

#[derive(Debug)]
struct Peer {
    last_answer: Duration,
    /// Since when it has answered every ping; none if it did not answer the last one.
    answers_since: Option<Duration>,
    is_reported: bool,
}

impl Reachability {
    fn new(lease: Duration, now: Duration) -> Self {
        Self { lease, peers: BTreeMap::new(), ticked: now }
    }

    /// Takes the outcome of one round of pings to all processes that have a record; gives those that are to be reported.
    fn tick(&mut self, now: Duration, answers: &[(Instance, bool)]) -> BTreeSet<Instance> {
        // A node that slept itself knows nothing of the others' silence.
        let slept = now.saturating_sub(self.ticked) > self.lease / 2;
        self.ticked = now;
        self.peers.retain(|instance, _| answers.iter().any(|(answered, _)| answered == instance));
        for (instance, answered) in answers {
            let new = || Peer { last_answer: now, answers_since: None, is_reported: false };
            let peer = self.peers.entry(instance.clone()).or_insert_with(new);
            if slept {
                peer.last_answer = now;
            }
            if *answered {
                peer.last_answer = now;
                let since = *peer.answers_since.get_or_insert(now);
                // A connection that comes and goes stays reported, so that leaders do not come and go with it.
                peer.is_reported &= now.saturating_sub(since) < self.lease / 2;
            } else {
                peer.answers_since = None;
                // A quarter more than a lease: the record of a node that was killed is gone by then.
                peer.is_reported |= now.saturating_sub(peer.last_answer) > self.lease + self.lease / 4;
            }
        }
        let reported = self.peers.iter().filter(|(_, peer)| peer.is_reported);
        reported.map(|(instance, _)| instance.clone()).collect()
    }
}

/// Pings all other nodes, and reports those that do not answer, for as long as it is polled.
pub(super) async fn watch(nodes: Arc<Nodes>, clock: Arc<dyn Clock>) {
    let membership = Arc::clone(nodes.membership());
    let lease = membership.settings().lease;
    let mut reachability = Reachability::new(lease, clock.now());
    let mut reported = BTreeSet::new();
    loop {
        let view = membership.view();
        let others = view.nodes().iter().filter(|node| node.name != membership.name());
        let pings = others.map(|node| {
            let (nodes, view) = (&nodes, &view);
            async move {
                let answered = nodes.ping(node, view, lease / ANSWERS_PER_LEASE).await;
                ((node.name.clone(), node.instance), answered)
            }
        });
        let answers = join_all(pings).await;
        let unreached = reachability.tick(clock.now(), &answers);
        for (name, _) in unreached.difference(&reported) {
            tracing::warn!(
                "node {name} has not answered for longer than its lease, though the registry has its record: \
                 reported as not reached"
            );
        }
        for (name, _) in reported.difference(&unreached) {
            tracing::info!("node {name} is reached again, or gone");
        }
        nodes.mark_unreached(&unreached);
        membership.report_unreached(unreached.clone());
        reported = unreached;
        sleep(lease / PINGS_PER_LEASE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(4);
    const STEP: Duration = Duration::from_millis(400);

    fn b() -> Instance {
        ("b".to_owned(), 1)
    }

    /// Ticks for a time with the same answer; gives the last report.
    fn pass(reachability: &mut Reachability, now: &mut Duration, time: Duration, answers: bool) -> bool {
        let end = *now + time;
        let mut is_reported = false;
        while *now < end {
            *now += STEP;
            is_reported = reachability.tick(*now, &[(b(), answers)]).contains(&b());
        }
        is_reported
    }

    #[test]
    fn silence_longer_than_a_lease_is_reported_until_answers_last() {
        let mut now = Duration::from_secs(100);
        let mut reachability = Reachability::new(LEASE, now);
        assert!(!pass(&mut reachability, &mut now, LEASE * 3, true));
        assert!(!pass(&mut reachability, &mut now, LEASE, false));
        // One answer begins the time from the start.
        assert!(!pass(&mut reachability, &mut now, STEP, true));
        assert!(!pass(&mut reachability, &mut now, LEASE, false));
        assert!(pass(&mut reachability, &mut now, LEASE / 2, false));
        // A single answer is not enough to take the report back.
        assert!(pass(&mut reachability, &mut now, STEP, true));
        assert!(pass(&mut reachability, &mut now, STEP, false));
        assert!(!pass(&mut reachability, &mut now, LEASE, true));
    }

    #[test]
    fn a_node_that_slept_reports_no_node() {
        let mut now = Duration::from_secs(100);
        let mut reachability = Reachability::new(LEASE, now);
        assert!(!pass(&mut reachability, &mut now, LEASE, true));
        now += LEASE * 10;
        assert!(reachability.tick(now, &[(b(), false)]).is_empty());
        assert!(!pass(&mut reachability, &mut now, LEASE, false));
        assert!(pass(&mut reachability, &mut now, LEASE, false));
    }

    #[test]
    fn a_process_that_was_started_again_is_another_one() {
        let mut now = Duration::from_secs(100);
        let mut reachability = Reachability::new(LEASE, now);
        assert!(pass(&mut reachability, &mut now, LEASE * 2, false));
        assert!(reachability.tick(now + STEP, &[(("b".to_owned(), 2), false)]).is_empty());
        assert_eq!(reachability.peers.len(), 1);
    }
}
