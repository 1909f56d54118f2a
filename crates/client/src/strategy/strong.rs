//! Answers only while the centre allows it: all strong replicas that answer, answer from the same version.
//!
//! The centre says at every heartbeat which version to serve, and for how long. A lease counts from when it was asked for, so it ends
//! here before it ends there. Without one the replica says `Unknown`: it refuses rather than lies.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Follower;
use crate::Result;
use crate::fetch::{self, Wanted};
use crate::heartbeat::{self, Orders};
use crate::http::{Ask, Reply};
use crate::shared::Live;

/// How often the centre is asked, if it says nothing by itself: a lease lasts three of these.
const BEAT: Duration = Duration::from_secs(1);

pub(super) async fn run(follower: &mut Follower) -> Result<()> {
    // Without a lease from this connection nothing is known, whatever the one before said.
    let ended = follow(follower).await;
    follower.shared.lease.end();
    ended
}

async fn follow(follower: &mut Follower) -> Result<()> {
    let shared = Arc::clone(&follower.shared);
    let path = shared.sources.path("notices");
    let mut notices = shared.sources.ask(&Ask::get(path)).await?;
    let mut staged = None;
    loop {
        let asked_at = shared.now();
        let staged_number = staged.as_ref().map(|live: &Arc<Live>| live.number());
        let orders = heartbeat::beat(&shared, staged_number).await?;
        if !obey(follower, &orders, asked_at, &mut staged).await? {
            // What is to be told again at once: that something is ready, or that nothing is answered any more.
            continue;
        }
        wait(&mut notices).await?;
    }
}

/// Does what the centre says; false if the centre has to hear of it.
async fn obey(
    follower: &mut Follower,
    orders: &Orders,
    asked_at: Duration,
    staged: &mut Option<Arc<Live>>,
) -> Result<bool> {
    let shared = Arc::clone(&follower.shared);
    let Some(serve) = orders.serve else {
        let answered = shared.lease.end();
        return Ok(!stage(follower, orders, staged).await? && !answered);
    };
    if shared.live().is_none_or(|live| !orders.mean(&live, serve)) {
        shared.lease.end();
        let ready = staged.take().filter(|live| orders.mean(live, serve));
        let live = match ready {
            Some(live) => live,
            None => fetched(follower, serve).await?,
        };
        follower.adopt(live).await;
        return Ok(false);
    }
    shared.lease.begin(asked_at.saturating_add(Duration::from_millis(orders.lease_ms)));
    shared.confirm(asked_at);
    shared.step();
    Ok(!stage(follower, orders, staged).await?)
}

/// Gets a version ready; whether that is news.
async fn stage(follower: &Follower, orders: &Orders, staged: &mut Option<Arc<Live>>) -> Result<bool> {
    let Some(number) = orders.stage else {
        *staged = None;
        return Ok(false);
    };
    if staged.as_ref().is_some_and(|live| orders.mean(live, number)) {
        return Ok(false);
    }
    *staged = Some(fetched(follower, number).await?);
    Ok(true)
}

/// A version by its number, fetched and verified.
async fn fetched(follower: &Follower, number: u64) -> Result<Arc<Live>> {
    let version = fetch::version(&follower.shared, &Wanted::Number(number), None).await?;
    let version = version.ok_or_else(|| crate::Error::Corrupt(format!("version {number} did not come")))?;
    fetch::assemble(&follower.shared, version, Vec::new()).await
}

/// Waits until the centre has something to say, or for a while.
async fn wait(notices: &mut Reply) -> Result<()> {
    match timeout(BEAT, notices.next()).await {
        // Whatever it is, to ask is what it is for.
        Ok(Ok(Some(_))) | Err(_) => Ok(()),
        Ok(Ok(None)) => Err(crate::Error::Unreachable("the server ended its notices".to_owned())),
        Ok(Err(error)) => Err(error),
    }
}
