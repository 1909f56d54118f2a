use std::time::Duration;

use umbel_filter::{Limits, Secret};

use crate::limits::SLOTS_MAX;
use crate::{Error, Result};

/// How an engine is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of slots, fixed when the deployment is created.
    pub slots: u32,
    /// Filters with larger arrays than this have a shard in every slot, others live whole in one.
    pub sharded_above_bytes: u64,
    /// Memory for the arrays of all filters.
    pub memory_bytes: u64,
    /// How full a filter is when it begins to grow.
    pub grow_at_percent: u32,
    /// Bytes of entries in a partition after which its slots get checkpoints; up to four times as many where arrays are larger.
    pub checkpoint_bytes: u64,
    /// The longest time between a change and a checkpoint that has it.
    pub checkpoint_every: Duration,
    /// If a start read its log for longer, everything gets a checkpoint at once, so that the next start is shorter.
    pub replay_max: Duration,
    /// Archive runs of a slot beyond which they are merged.
    pub runs_max: usize,
    /// The deployment's secret, for filters of the `keyed` family.
    pub secret: Option<Secret>,
    /// Bounds of each filter.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 256,
            sharded_above_bytes: 32 << 20,
            memory_bytes: 4 << 30,
            grow_at_percent: 80,
            checkpoint_bytes: 32 << 20,
            checkpoint_every: Duration::from_secs(60),
            replay_max: Duration::from_secs(1),
            runs_max: 8,
            secret: None,
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// Says what is wrong with the settings, if anything.
    pub fn check(&self) -> Result<()> {
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            return Err(Error::Invalid(format!("{} slots; it must be 1 to {SLOTS_MAX}", self.slots)));
        }
        if !(1..=100).contains(&self.grow_at_percent) {
            return Err(Error::Invalid(format!("growth at {} %; it must be 1 to 100", self.grow_at_percent)));
        }
        if self.runs_max < 2 {
            return Err(Error::Invalid(format!("{} runs; it must be 2 or more", self.runs_max)));
        }
        Ok(())
    }
}
