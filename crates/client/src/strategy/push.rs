//! Every change as it comes, and versions too: the server sends one by itself when the arrays get another shape.

use super::Follower;
use super::stream::{self, Feed};
use crate::Result;

pub(super) async fn run(follower: &mut Follower) -> Result<()> {
    stream::run(follower, Feed { versions: true }).await
}
