//! Rollouts: a version reaches replicas group by group, and goes back when it is not well there.
//!
//! A rollout is a value in the registry. Whoever runs it takes one step at a time, so it goes on after a restart where it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use umbel_core::engine::Handle;
use umbel_core::registry::{Change, Expected, Versioned};
use xxhash_rust::xxh3::xxh3_64;

use super::notices::{Event, Notice};
use super::replicas::Known;
use super::{Trouble, now_ms};
use crate::node::Node;

const FOLDER: &str = "rollouts/";
const LOOK_EVERY: Duration = Duration::from_millis(200);
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Running,
    Done,
    RolledBack,
}

/// A rollout, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rollout {
    pub(crate) target: u64,
    pub(crate) digest: String,
    pub(crate) previous: Option<u64>,
    pub(crate) plan: Plan,
    pub(crate) state: State,
    /// Which groups have it: all up to this one.
    pub(crate) stage: usize,
    pub(crate) stages: usize,
    /// Why it went back, or what it waits for.
    pub(crate) why: String,
    pub(crate) began_ms: u64,
    pub(crate) stage_began_ms: u64,
    /// When all of the group were well, if they are.
    pub(crate) well_ms: Option<u64>,
}

impl Plan {
    fn check(&self) -> Result<(), String> {
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
    fn stages(&self, replicas: usize) -> usize {
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
fn grouped<'a>(
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

/// How a replica is.
enum Health {
    Well,
    Waits,
    Ill(String),
}

impl Rollout {
    /// What a replica is to serve while it runs.
    fn serves(&self, id: &str, all: &BTreeMap<String, Known>) -> Option<u64> {
        let mut groups = grouped(&self.plan, self.stages, all);
        let stage = groups.find(|(_, other, _)| *other == id).map_or(self.stages, |(stage, ..)| stage);
        if stage <= self.stage { Some(self.target) } else { self.previous }
    }

    fn health(&self, known: &Known, error: f64) -> Health {
        let beat = &known.beat;
        if beat.version != Some(self.target) {
            return Health::Waits;
        }
        if beat.digest != self.digest {
            return Health::Ill(format!("its checksum is {}", beat.digest));
        }
        if self.plan.probe_present.is_empty() && self.plan.probe_absent.is_empty() {
            return Health::Well;
        }
        let Some(probed) =
            beat.probed.filter(|probed| probed.id == self.began_ms && probed.version == self.target)
        else {
            return Health::Waits;
        };
        // Three standard deviations more than the error rate lets expect.
        let expected = self.plan.probe_absent.len() as f64 * error;
        let most = (expected + 3.0 * expected.sqrt()).ceil() as u64;
        if probed.missing > 0 {
            Health::Ill(format!("{} probe keys are absent that should be there", probed.missing))
        } else if probed.unexpected > most {
            Health::Ill(format!("{} probe keys are there that should not be; {most} may", probed.unexpected))
        } else {
            Health::Well
        }
    }

    /// The next state, if it is another one.
    fn step(&self, all: &BTreeMap<String, Known>, error: f64, now_ms: u64) -> Option<Self> {
        let groups: Vec<_> = grouped(&self.plan, self.stages, all).collect();
        let (mut ill, mut waiting, mut well) = (Vec::new(), 0, 0);
        for (_, id, known) in groups.iter().filter(|(stage, ..)| *stage <= self.stage) {
            match self.health(known, error) {
                Health::Well => well += 1,
                Health::Waits => waiting += 1,
                Health::Ill(why) => ill.push(format!("{id}: {why}")),
            }
        }
        let back = |why: String| Some(Self { state: State::RolledBack, why, ..self.clone() });
        if ill.len() > self.plan.error_budget as usize {
            return back(ill.join("; "));
        }
        if waiting > 0 {
            let late = now_ms.saturating_sub(self.stage_began_ms) > self.plan.timeout_ms;
            if late {
                return back(format!(
                    "{waiting} replicas of group {} did not take it in time",
                    self.stage + 1
                ));
            }
            let why = format!("group {}: {well} well, {waiting} to come", self.stage + 1);
            return (why != self.why || self.well_ms.is_some()).then(|| Self {
                why,
                well_ms: None,
                ..self.clone()
            });
        }
        let Some(well_ms) = self.well_ms else {
            let why = format!("group {} of {} is well: {well} replicas", self.stage + 1, self.stages);
            return Some(Self { well_ms: Some(now_ms), why, ..self.clone() });
        };
        if self.stage + 1 == self.stages {
            return Some(Self { state: State::Done, why: String::new(), ..self.clone() });
        }
        let waited = now_ms.saturating_sub(well_ms) >= self.plan.pause_ms;
        let next = Self { stage: self.stage + 1, stage_began_ms: now_ms, well_ms: None, ..self.clone() };
        waited.then_some(next)
    }
}

fn name(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

async fn read(node: &Node, filter: u64) -> umbel_core::Result<Option<(Rollout, Versioned)>> {
    let Some(found) = node.registry.get(&name(filter)).await? else { return Ok(None) };
    let rollout = serde_json::from_slice(&found.value)
        .map_err(|error| umbel_core::Error::Corrupt(format!("a rollout in the registry: {error}")))?;
    Ok(Some((rollout, found)))
}

async fn write(node: &Node, filter: u64, rollout: &Rollout, expected: Expected) -> Result<bool, Trouble> {
    let value = serde_json::to_vec(rollout).map_err(|error| Trouble::Conflict(error.to_string()))?;
    Ok(matches!(node.registry.put(&name(filter), value.into(), expected, None).await?, Change::Done(_)))
}

/// The rollout of a filter, the last one if none is running.
pub(crate) async fn status(node: &Node, filter: u64) -> Result<Option<Rollout>, Trouble> {
    Ok(read(node, filter).await?.map(|(rollout, _)| rollout))
}

/// Versions that a rollout under way needs: where it goes, and the way back.
pub(crate) async fn needs(node: &Node, filter: u64) -> umbel_core::Result<Vec<u64>> {
    Ok(match read(node, filter).await? {
        Some((rollout, _)) if rollout.state == State::Running => {
            rollout.previous.into_iter().chain([rollout.target]).collect()
        }
        _ => Vec::new(),
    })
}

/// Begins to roll a version out.
pub(crate) async fn start(
    node: &Arc<Node>,
    filter: &Arc<Handle>,
    target: Option<u64>,
    plan: Plan,
) -> Result<Rollout, Trouble> {
    plan.check().map_err(|why| Trouble::Engine(umbel_core::Error::Invalid(why)))?;
    let id = filter.id();
    let before = read(node, id).await?;
    if before.as_ref().is_some_and(|(rollout, _)| rollout.state == State::Running) {
        return Err(Trouble::Conflict("a rollout of this filter is under way".into()));
    }
    let previous = match node.releases.pinned(id).await? {
        Some(pinned) => Some(pinned),
        // What replicas have now is what they go back to.
        None => node.engine.versions(id).await?.last().copied(),
    };
    let version = match target {
        Some(number) if node.engine.versions(id).await?.contains(&number) => {
            node.engine.version(id, number).await?
        }
        Some(number) => {
            return Err(Trouble::Engine(umbel_core::Error::Invalid(format!("there is no version {number}"))));
        }
        None => node.releases.publish(node, filter, node.now_in_log().as_ref()).await?,
    };
    if let Some(previous) = previous
        && node.releases.pinned(id).await?.is_none()
        && node.releases.pin(node, id, previous, None).await?.is_err()
    {
        return Err(Trouble::Conflict("another version was pinned meanwhile".into()));
    }
    let stages = plan.stages(node.sync.replicas.of(id, node.now()).len());
    let rollout = Rollout {
        target: version.number,
        digest: version.digest().to_string(),
        previous,
        plan,
        state: State::Running,
        stage: 0,
        stages,
        why: String::new(),
        began_ms: now_ms(),
        stage_began_ms: now_ms(),
        well_ms: None,
    };
    let expected = before.map_or(Expected::Absent, |(_, found)| Expected::Version(found.version));
    if !write(node, id, &rollout, expected).await? {
        return Err(Trouble::Conflict("a rollout of this filter was begun meanwhile".into()));
    }
    node.sync.notices.tell(Notice::of(&version, Event::Stage, false));
    tokio::spawn(run(Arc::clone(node), Arc::clone(filter)));
    Ok(rollout)
}

/// Sends all replicas back to the version before.
pub(crate) async fn abort(node: &Node, filter: u64) -> Result<Rollout, Trouble> {
    let Some((rollout, found)) = read(node, filter).await? else {
        return Err(Trouble::Conflict("there is no rollout of this filter".into()));
    };
    if rollout.state != State::Running {
        return Err(Trouble::Conflict("the rollout has ended".into()));
    }
    let next = Rollout { state: State::RolledBack, why: "somebody asked for it".into(), ..rollout };
    match write(node, filter, &next, Expected::Version(found.version)).await? {
        true => Ok(next),
        false => Err(Trouble::Conflict("the rollout went on meanwhile; ask again".into())),
    }
}

/// Goes on with rollouts that a restart interrupted.
pub(crate) async fn resume(node: &Arc<Node>) {
    for filter in node.engine.filters() {
        if let Ok(Some((Rollout { state: State::Running, .. }, _))) = read(node, filter.id()).await {
            tokio::spawn(run(Arc::clone(node), filter));
        }
    }
}

/// Takes steps until it ends.
async fn run(node: Arc<Node>, filter: Arc<Handle>) {
    loop {
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = node.stop.stopped() => return,
        }
        match step(&node, &filter).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => tracing::warn!(%error, filter = filter.definition().name, "a rollout waits"),
        }
    }
}

/// Takes a step; false if that was the last one.
async fn step(node: &Node, filter: &Handle) -> Result<bool, Trouble> {
    let id = filter.id();
    let Some((rollout, found)) = read(node, id).await? else { return Ok(false) };
    if rollout.state != State::Running {
        return Ok(false);
    }
    let all = node.sync.replicas.of(id, node.now());
    let Some(next) = rollout.step(&all, filter.definition().spec.error, now_ms()) else { return Ok(true) };
    if next.state == State::Done
        && let Err(now) = node.releases.pin(node, id, next.target, next.previous).await?
        && now != Some(next.target)
    {
        return Err(Trouble::Conflict(format!("version {now:?} was pinned during the rollout")));
    }
    let went = write(node, id, &next, Expected::Version(found.version)).await?;
    if went && (next.stage != rollout.stage || next.state != rollout.state) {
        let version = node.engine.version(id, next.target).await?;
        node.sync.notices.tell(Notice::of(&version, Event::Stage, next.state == State::Done));
    }
    Ok(next.state == State::Running || !went)
}

/// What a replica is told by a rollout, if one is running: what to serve, and the rollout with its probe keys.
pub(super) async fn tell(
    node: &Node,
    filter: u64,
    id: &str,
) -> Result<Option<(Option<u64>, Rollout)>, Trouble> {
    let Some((rollout, _)) = read(node, filter).await? else { return Ok(None) };
    if rollout.state != State::Running {
        return Ok(None);
    }
    let all = node.sync.replicas.of(filter, node.now());
    Ok(Some((rollout.serves(id, &all), rollout)))
}
