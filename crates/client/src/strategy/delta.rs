//! Every change as it comes. When the arrays get another shape, a version is fetched while the copy that answers goes on.

use super::Follower;
use super::stream::{self, Feed};
use crate::Result;

pub(super) async fn run(follower: &mut Follower) -> Result<()> {
    stream::run(follower, Feed { versions: false }).await
}
