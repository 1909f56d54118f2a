//! Asks for a version on a timer. What it answers is as old as the interval, twice: once because a version may be so old, once
//! because the last question was so long ago.

use std::time::Duration;

use tokio::time::timeout;

use super::Follower;
use crate::Result;
use crate::backoff::jitter;
use crate::fetch::{self, Wanted};

pub(super) async fn run(follower: &mut Follower, interval: Duration) -> Result<()> {
    loop {
        pull(follower, interval).await?;
        // Chance spreads the questions of many replicas that were started at once.
        let pause = jitter(interval, &*follower.shared.options.random);
        let _sooner = timeout(pause, follower.shared.look.notified()).await;
    }
}

/// Takes the version that is to be served, if it is another one, and not older than this.
pub(super) async fn pull(follower: &mut Follower, age: Duration) -> Result<()> {
    let asked_at = follower.shared.now();
    let live = follower.live()?;
    let told = follower.shared.told();
    // In a rollout each replica is told what to serve; at other times that is what all serve.
    let wanted = if told == 0 { Wanted::Current(age) } else { Wanted::Number(told) };
    let version = fetch::version(&follower.shared, &wanted, Some(&live)).await?;
    if let Some(version) = version {
        let fresh = fetch::assemble(&follower.shared, version, Vec::new()).await?;
        if !follower.adopt_told(fresh, told).await {
            // The centre wants another one by now, which is asked for at once.
            return Ok(());
        }
    }
    follower.shared.confirm(asked_at.saturating_sub(age));
    follower.shared.step();
    Ok(())
}
