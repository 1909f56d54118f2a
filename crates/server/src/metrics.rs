//! What is counted.

use std::time::Duration;

use crate::commands::table::Id;

/// What one event loop counts.
#[derive(Debug, Default)]
pub struct LoopMetrics {}

impl LoopMetrics {
    /// Counts commands.
    pub fn record(&self, _id: Id, _commands: u64, _took: Duration, _is_error: bool) {}
}
