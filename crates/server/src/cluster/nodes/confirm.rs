//! Changes of the catalog wait here until every node has folded them (rule A2).
//!
//! ```text
//!  this node: append --> settled view? --> REACH to all its nodes at once --> acknowledge
//!                             ^                        |
//!                             '---- the view changed --'
//! ```
//!
//! A node that is not in the view that was asked comes later: it makes the view unsettled, and reads the catalog to its end before it uses it
//! (rule B3). A node that does not answer holds the change up until its lease has ended, because then the view is another one.

use std::time::Duration;

use futures_util::future::{Either, join, join_all, select};
use umbel_core::engine::NO_LEASE;
use umbel_core::{Error, Position, Result};

use super::Nodes;
use super::routing::{Overdue, PATIENCE, Place, Repeat, Routes};
use crate::cluster::link::Failure;
use crate::cluster::peers::Errand;
use crate::cluster::wire;

impl Nodes {
    /// Waits until this node and all others of the settled view have folded the catalog up to a position.
    pub(super) async fn confirm_everywhere(&self, catalog: u32, position: Position) -> Result<()> {
        let (end, overdue) = (self.clock.now() + PATIENCE, Overdue::since_now(&self.membership));
        loop {
            let mut changes = self.membership.changes();
            let mut routes = self.routes();
            let mut why = "not all nodes act on the same listing of nodes yet".to_owned();
            if let Some(view) = self.membership.settled_view() {
                routes = self.routes_of(view);
                let asked = Box::pin(self.ask_confirmers(&routes, catalog, position, end));
                // Whichever node is missing, the next view says who has to be asked.
                match select(asked, Box::pin(changes.changed())).await {
                    Either::Left((Ok(()), _)) => return Ok(()),
                    // It is behind, or cannot read the log at this moment.
                    Either::Left((Err(Failure::Refused(Error::Retry(behind))), _)) => why = behind,
                    Either::Left((Err(failure), _)) => why = self.may_repeat(failure, Repeat::Always)?,
                    Either::Right(_) => why = "the nodes changed meanwhile".to_owned(),
                }
            }
            // All nodes know that this one does not reach them, and act without it.
            if self.membership.is_isolated() {
                return Err(Error::Retry(format!("{why}; ask another node")));
            }
            if overdue.is_long() {
                return Err(Error::Retry(NO_LEASE.into()));
            }
            if self.clock.now() >= end {
                return Err(Error::Retry(format!("after {} s, {why}", PATIENCE.as_secs())));
            }
            self.wait(&routes).await;
        }
    }

    /// Asks all confirmers of a view at once.
    async fn ask_confirmers(
        &self,
        routes: &Routes,
        catalog: u32,
        position: Position,
        end: Duration,
    ) -> Result<(), Failure> {
        let payload = wire::put_reach(catalog, position);
        let payload = &payload;
        let ask = |number: u16| async move {
            let Ok(Place::There(peer)) = self.place_of(routes, number) else { return Ok(()) };
            let time = end.saturating_sub(self.clock.now());
            self.peers.ask(&peer, Errand::Read, "REACH", payload, time).await.map(drop)
        };
        let asked = routes.view.confirmers(catalog).iter().map(|number| ask(*number));
        // This node knows what it has done, whether others wait for it or not.
        let here = async {
            let engine = self.here().map_err(Failure::Refused)?;
            engine.reach_for_peer(catalog, position).await.map_err(Failure::Refused)
        };
        let (others, here) = join(join_all(asked), here).await;
        others.into_iter().chain([here]).collect()
    }
}
