//! How a rollout is to go, and which replicas are in which of its groups.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::sync::Known;

const STAGES_MAX: usize = 100;
const PROBES_MAX: usize = 1_000;
const PROBE_BYTES_MAX: usize = 1_024;

/// How a rollout goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Plan {
    /// A label, if groups are made by its values, and in which order; all others come last.
    pub(crate) by: Option<String>,
    pub(crate) order: Vec<String>,
    /// Or shares of all replicas.
    pub(crate) percent: Vec<u8>,
    /// Or so many more each time.
    pub(crate) batch: Option<u32>,
    /// What it waits between groups.
    pub(crate) pause_ms: u64,
    /// How long a group may take.
    pub(crate) timeout_ms: u64,
    /// Replicas that may fail before all go back.
    pub(crate) error_budget: u32,
    /// Keys that must be there, and keys that must not, within the error rate.
    pub(crate) probe_present: Vec<String>,
    pub(crate) probe_absent: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            by: None,
            order: Vec::new(),
            percent: Vec::new(),
            batch: None,
            pause_ms: 0,
            timeout_ms: 60_000,
            error_budget: 0,
            probe_present: Vec::new(),
            probe_absent: Vec::new(),
        }
    }
}

impl Plan {
    pub(super) fn check(&self) -> Result<(), String> {
        let ways = [self.by.is_some(), !self.percent.is_empty(), self.batch.is_some()];
        if ways.into_iter().filter(|way| *way).count() > 1 {
            return Err("groups are made by a label, by percent or by batch: one of them".into());
        }
        if self.by.is_none() && !self.order.is_empty() {
            return Err("order is that of the values of a label: by names it".into());
        }
        let rises = self.percent.is_sorted() && self.percent.iter().all(|share| (1..=100).contains(share));
        if !rises || self.batch == Some(0) {
            return Err("percent are shares from 1 to 100 that grow, and a batch is at least 1".into());
        }
        if self.order.len().max(self.percent.len()) > STAGES_MAX {
            return Err(format!("more than {STAGES_MAX} groups"));
        }
        let probes = self.probe_present.iter().chain(&self.probe_absent);
        if probes.clone().count() > PROBES_MAX || probes.clone().any(|probe| probe.len() > PROBE_BYTES_MAX) {
            return Err(format!("at most {PROBES_MAX} probe keys of at most {PROBE_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// How many groups there are, of so many replicas.
    pub(super) fn stages(&self, replicas: usize) -> usize {
        if self.by.is_some() {
            self.order.len() + 1
        } else if let Some(batch) = self.batch {
            replicas.div_ceil(batch as usize).clamp(1, STAGES_MAX)
        } else {
            self.percent.len().max(1)
        }
    }

    /// The group of a replica among all, which are in the order of their digests.
    fn stage_of(&self, id: &str, known: &Known, rank: usize, stages: usize) -> usize {
        if let Some(by) = &self.by {
            let value = known.beat.labels.get(by);
            return self.order.iter().position(|known| Some(known) == value).unwrap_or(self.order.len());
        }
        if let Some(batch) = self.batch {
            return (rank / batch as usize).min(stages - 1);
        }
        let share = ((u128::from(xxh3_64(id.as_bytes())) * 100) >> 64) as u8;
        let stage = self.percent.iter().position(|percent| share < *percent);
        // Those beyond the last share come with the last group, in which everything ends.
        stage.unwrap_or(stages - 1)
    }
}

/// Replicas and their groups.
pub(super) fn grouped<'a>(
    plan: &Plan,
    stages: usize,
    all: &'a BTreeMap<String, Known>,
) -> impl Iterator<Item = (usize, &'a str, &'a Known)> {
    let mut ranked: Vec<_> = all.iter().map(|(id, known)| (xxh3_64(id.as_bytes()), id, known)).collect();
    ranked.sort_unstable_by_key(|(digest, ..)| *digest);
    let of = |(rank, (_, id, known)): (usize, (u64, &'a String, &'a Known))| {
        (plan.stage_of(id, known, rank, stages), id.as_str(), known)
    };
    ranked.into_iter().enumerate().map(of).collect::<Vec<_>>().into_iter()
}
