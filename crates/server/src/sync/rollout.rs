//! Rollouts: a version reaches replicas group by group, and goes back when it is not well there.
//!
//! ```text
//!  start --> group 1 --> group 2 --> ... --> decided --> pinned: done
//!              '- - - - - '- ill, late or asked to --> rolling back --> all have confirmed it: rolled back
//! ```
//!
//! It holds replicas at versions as a pin does, those that follow the log too. Strong replicas have no part in it: they switch together.
//!
//! A rollout is a value in the registry, and every step of it is made by compare-and-set. Whoever looks after replicas takes the steps, one
//! at a time: after a restart, or when another node does so, it goes on where it was. That one writes its watch into the value first, so
//! that whoever looked after it before moves nothing any more; and it takes no step before it has heard of all replicas.

mod plan;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};
use umbel_core::Error;
use umbel_core::engine::Handle;
use umbel_core::registry::{Change, Expected, Versioned};
use umbel_filter::Fingerprint;

use super::notices::{Event, Notice};
use super::{Known, Trouble, filter_of, followers_of, now_ms, replicas_of, tell_all};
use crate::names::shown;
use crate::node::Node;
pub(crate) use plan::Plan;
pub(crate) use step::{Rollout, State};

const FOLDER: &str = "rollouts/";
/// How often steps are taken.
const STEP_EVERY: Duration = Duration::from_millis(200);
/// How often it is looked whether there is a rollout that was begun elsewhere.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a change is tried that somebody else is ahead of.
const ATTEMPTS: usize = 16;
/// What somebody is told whose rollout is sent back because of it.
const ASKED: &str = "somebody asked for it";

fn name(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

fn parse(found: &Versioned) -> umbel_core::Result<Rollout> {
    serde_json::from_slice(&found.value)
        .map_err(|error| Error::Corrupt(format!("a rollout in the registry: {error}")))
}

async fn read(node: &Node, filter: u64) -> umbel_core::Result<Option<(Rollout, Versioned)>> {
    let Some(found) = node.registry.get(&name(filter)).await? else { return Ok(None) };
    Ok(Some((parse(&found)?, found)))
}

async fn write(node: &Node, filter: u64, rollout: &Rollout, expected: Expected) -> Result<bool, Trouble> {
    let value = serde_json::to_vec(rollout).map_err(|error| Trouble::Conflict(error.to_string()))?;
    Ok(matches!(node.registry.put(&name(filter), value.into(), expected, None).await?, Change::Done(_)))
}

/// Lets replicas ask at once what they are to serve.
fn tell_replicas(node: &Node, filter: u64, rollout: &Rollout) {
    let (number, digest) = (rollout.target, rollout.digest.clone());
    let current = rollout.state == State::Done;
    tell_all(node, Notice { filter, event: Event::Hold, number, digest, current });
}

/// The rollout of a filter, the last one if none is running.
pub(crate) async fn status(node: &Node, filter: u64) -> Result<Option<Rollout>, Trouble> {
    Ok(read(node, filter).await?.map(|(rollout, _)| rollout))
}

/// Versions that a rollout under way needs: where it goes, and the way back.
pub(crate) async fn needs(node: &Node, filter: u64) -> umbel_core::Result<Vec<u64>> {
    Ok(match read(node, filter).await? {
        Some((rollout, _)) if matches!(rollout.state, State::Running | State::RollingBack) => {
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
    plan.check().map_err(|why| Trouble::Engine(Error::Invalid(why)))?;
    let id = filter.id();
    let watch = node.sync.steward.watch(node)?;
    if plan.batch.is_some() {
        // How many groups there are depends on how many replicas there are.
        sleep_until(watch.knows_all_at(node).into()).await;
        if node.sync.steward.watch(node)? != watch {
            return Err(Trouble::Engine(Error::Retry("it is not known which replicas there are".into())));
        }
    }
    let guard = node.sync.steward.guard(node, id, watch).await?;
    let before = read(node, id).await?;
    match &before {
        Some((rollout, _)) if rollout.state == State::Running => {
            return Err(Trouble::Conflict("a rollout of this filter is under way".into()));
        }
        Some((rollout, _)) if rollout.state == State::RollingBack => {
            return Err(Trouble::Conflict(format!(
                "the last rollout of this filter is still rolling back: {} have not confirmed it",
                rollout.missing.join(", ")
            )));
        }
        _ => {}
    }
    let all = replicas_of(node, id);
    let apart = strong_ones(&all);
    check_members(&all, &apart, &filter.definition().name)?;
    let pinned = node.releases.pinned(id).await?;
    let previous = match pinned {
        Some(pinned) => Some(pinned),
        // What replicas have now is what they go back to.
        None => node.engine.versions(id).await?.last().copied(),
    };
    let version = match target {
        Some(number) if node.engine.versions(id).await?.contains(&number) => {
            node.engine.version(id, number).await?
        }
        Some(number) => {
            return Err(Trouble::Engine(Error::Invalid(format!("there is no version {number}"))));
        }
        None => node.releases.publish(node, filter, node.now_in_log().as_ref()).await?,
    };
    if let Some(previous) = previous
        && node.releases.pinned(id).await?.is_none()
        && node.releases.pin(node, id, previous, None, guard).await?.is_err()
    {
        return Err(Trouble::Conflict("another version was pinned meanwhile".into()));
    }
    let added = added(node, filter, &plan).await;
    let rollout = Rollout {
        target: version.number,
        digest: version.digest().to_string(),
        previous,
        stages: plan.stages(followers_of(node, id).len()),
        plan,
        state: State::Running,
        stage: 0,
        why: String::new(),
        began_ms: now_ms(),
        stage_began_ms: now_ms(),
        well_ms: None,
        paused: false,
        decided: false,
        keeper: watch.name(),
        token: version.token().to_string(),
        added,
        missing: Vec::new(),
        loose: pinned.is_none(),
        apart,
    };
    let expected = before.map_or(Expected::Absent, |(_, found)| Expected::Version(found.version));
    if !write(node, id, &rollout, expected).await? {
        return Err(Trouble::Conflict("a rollout of this filter was begun meanwhile".into()));
    }
    tell_replicas(node, id, &rollout);
    node.sync.begun.notify_one();
    Ok(rollout)
}

fn strong_ones(all: &BTreeMap<String, Known>) -> Vec<String> {
    all.iter().filter(|(_, known)| known.is_strong()).map(|(id, _)| id.clone()).collect()
}

/// Refuses a rollout that would reach no replica, or one with replicas that would not follow it.
fn check_members(all: &BTreeMap<String, Known>, strong: &[String], filter: &str) -> Result<(), Trouble> {
    if !strong.is_empty() && strong.len() == all.len() {
        return Err(Trouble::Conflict(format!(
            "all replicas are strong ({}): these switch together, by `umbel publish {} --strong`",
            strong.join(", "),
            shown(filter)
        )));
    }
    let loose = all.iter().filter(|(_, known)| !known.beat.can_be_held());
    let loose: Vec<String> = loose.map(|(id, known)| format!("{id} ({})", known.beat.strategy)).collect();
    if loose.is_empty() {
        return Ok(());
    }
    Err(Trouble::Conflict(format!(
        "a rollout cannot reach these replicas: {}. They follow the log, and their release cannot be held at a version: update them, let \
         them follow versions (pull, notify), or stop them for the time of the rollout",
        loose.join(", ")
    )))
}

/// Which of the probe keys that must be absent were added, by the log; none if it does not tell.
async fn added(node: &Node, filter: &Arc<Handle>, plan: &Plan) -> Option<Vec<u32>> {
    let keys = plan.probe_absent.iter().map(|key| filter.hasher().fingerprint(key.as_bytes()));
    let keys: Vec<Fingerprint> = keys.collect();
    if keys.is_empty() {
        return Some(Vec::new());
    }
    match node.engine.verify(filter, &keys).await {
        Ok(counts) => {
            let places = counts.iter().zip(0..).filter(|(count, _)| **count > 0);
            Some(places.map(|(_, place)| place).collect())
        }
        Err(error) => {
            tracing::info!(%error, filter = filter.definition().name, "probe keys are judged without the log");
            None
        }
    }
}

/// Changes a rollout under way, as somebody asks. What is to become of it is asked again if a step was taken meanwhile.
async fn change(node: &Node, filter: u64, change: impl Fn(&Rollout) -> Rollout) -> Result<Rollout, Trouble> {
    for _ in 0..ATTEMPTS {
        let Some((rollout, found)) = read(node, filter).await? else {
            return Err(Trouble::Conflict("there is no rollout of this filter".into()));
        };
        if !rollout.is_open() {
            return Err(Trouble::Conflict("the rollout has ended".into()));
        }
        let next = change(&rollout);
        if next == rollout {
            return Ok(rollout);
        }
        if write(node, filter, &next, Expected::Version(found.version)).await? {
            tell_replicas(node, filter, &next);
            return Ok(next);
        }
    }
    Err(Trouble::Engine(Error::Retry("others change this rollout all the time".into())))
}

/// Sends all replicas back to the version before.
pub(crate) async fn abort(node: &Node, filter: u64) -> Result<Rollout, Trouble> {
    match read(node, filter).await? {
        // Whoever asked before and did not hear of it is told so.
        Some((rollout, _))
            if matches!(rollout.state, State::RollingBack | State::RolledBack) && rollout.why == ASKED =>
        {
            Ok(rollout)
        }
        _ => change(node, filter, |rollout| rollout.back(ASKED.into())).await,
    }
}

/// Holds a rollout where it is, or lets it go on.
pub(crate) async fn hold(node: &Node, filter: u64, paused: bool) -> Result<Rollout, Trouble> {
    change(node, filter, |rollout| rollout.held(paused, now_ms())).await
}

/// Looks after all rollouts while this node is the one to do so.
pub(crate) async fn look_after(node: Arc<Node>) {
    loop {
        let pause = match look(&node).await {
            Ok(true) => STEP_EVERY,
            Ok(false) => LOOK_EVERY,
            Err(error) => {
                tracing::warn!(%error, "rollouts wait");
                LOOK_EVERY
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = node.sync.begun.notified() => {}
            () = node.stop.stopped() => return,
        }
    }
}

/// Takes a step of each rollout; says whether there are any.
async fn look(node: &Node) -> umbel_core::Result<bool> {
    if node.sync.steward.watch(node).is_err() {
        return Ok(false);
    }
    let mut any = false;
    for (name, found) in node.registry.list(FOLDER).await?.entries {
        let Some(filter) = filter_of(node, FOLDER, &name, &found).await? else { continue };
        let filter_name = filter.definition().name.clone();
        let rollout = match parse(&found) {
            Ok(rollout) => rollout,
            Err(error) => {
                tracing::error!(%error, filter = filter_name, "a rollout cannot be read");
                continue;
            }
        };
        if !matches!(rollout.state, State::Running | State::RollingBack) {
            continue;
        }
        any = true;
        match step(node, &filter, &rollout, Expected::Version(found.version)).await {
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, filter = filter_name, "a rollout waits"),
        }
    }
    Ok(any)
}

/// Takes a step, from a rollout as it was read before anything else.
async fn step(node: &Node, filter: &Handle, rollout: &Rollout, unchanged: Expected) -> Result<(), Trouble> {
    let id = filter.id();
    let watch = node.sync.steward.watch(node)?;
    let guard = node.sync.steward.guard(node, id, watch).await?;
    if rollout.keeper != watch.name() {
        // From now on, steps of whoever had it before fail. If this one does, somebody else took one meanwhile.
        let taken_over = Rollout { keeper: watch.name(), ..rollout.clone() };
        write(node, id, &taken_over, unchanged).await?;
        return Ok(());
    }
    let next = if rollout.decided {
        finish(node, id, rollout, guard).await?
    } else {
        let (now, known_at) = (node.now(), watch.knows_all_at(node));
        let Some(known_for) = now.checked_duration_since(known_at) else { return Ok(()) };
        let known_ms = now_ms().saturating_sub(known_for.as_millis() as u64);
        let all = followers_of(node, id);
        let error = filter.definition().spec.error;
        let next = match rollout.state {
            State::RollingBack => rollout.step_back(&all, node.releases.pinned(id).await?),
            _ => rollout.step(&all, error, now_ms(), known_ms),
        };
        let Some(next) = next else { return Ok(()) };
        // Whoever slept meanwhile has not heard of replicas that are there.
        if node.sync.steward.watch(node)? != watch {
            return Ok(());
        }
        next
    };
    let went = write(node, id, &next, unchanged).await?;
    if went && next.state != rollout.state {
        let (filter, version, why) = (&filter.definition().name, next.target, &next.why);
        match next.state {
            State::RollingBack => tracing::warn!(filter, version, why, "a rollout rolls back"),
            State::RolledBack => tracing::warn!(filter, version, why, "a rollout is rolled back"),
            State::Running | State::Done => tracing::info!(filter, version, "a rollout is done"),
        }
    }
    if went && (next.stage != rollout.stage || next.state != rollout.state) {
        tell_replicas(node, id, &next);
    }
    if went && next.decided && next.state == State::Running {
        node.sync.begun.notify_one();
    }
    Ok(())
}

/// Pins the version that all groups have. Nobody can send it back any more, so that what is pinned is what was decided.
async fn finish(node: &Node, filter: u64, rollout: &Rollout, guard: Option<u64>) -> Result<Rollout, Trouble> {
    let (target, previous) = (rollout.target, rollout.previous);
    match node.releases.pin(node, filter, target, previous, guard).await? {
        Ok(()) => {}
        Err(now) if now == Some(target) => {}
        Err(now) if now == previous => {
            return Err(Trouble::Conflict("another node looks after replicas now".into()));
        }
        // Somebody wanted something else meanwhile, and has it.
        Err(now) => {
            let now = now.map_or_else(|| "no version".to_owned(), |now| format!("version {now}"));
            return Ok(rollout.back(format!("{now} was pinned during the rollout")));
        }
    }
    Ok(Rollout { state: State::Done, ..rollout.clone() })
}

/// What a replica that can be held is told: by a rollout that is running, or by a pin.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// The version to stay at; none to follow the newest one or the log.
    pub(crate) serve: Option<u64>,
    /// The rollout with its probe keys.
    pub(crate) probes: Option<Rollout>,
    /// The last rollout, if its version was refused and is not served.
    pub(crate) refused: Option<Rollout>,
}

pub(super) async fn tell(node: &Node, filter: u64, id: &str) -> Result<Orders, Trouble> {
    let last = read(node, filter).await?.map(|(rollout, _)| rollout);
    if let Some(rollout) = last.as_ref().filter(|rollout| rollout.state == State::Running) {
        let all = followers_of(node, filter);
        let serve = if rollout.decided {
            Some(rollout.target)
        } else if knows_all(node)? {
            rollout.serves(id, &all)
        } else {
            rollout.serves_meanwhile(all.get(id))
        };
        return Ok(Orders { serve, probes: last, refused: None });
    }
    let serve = node.releases.pinned(filter).await?;
    let is_refused = |rollout: &Rollout| {
        matches!(rollout.state, State::RollingBack | State::RolledBack) && serve != Some(rollout.target)
    };
    Ok(Orders { serve, probes: None, refused: last.filter(is_refused) })
}

/// Whether all replicas that are there have been heard of.
fn knows_all(node: &Node) -> Result<bool, Trouble> {
    Ok(node.now() >= node.sync.steward.watch(node)?.knows_all_at(node))
}

/// What each replica is told to serve that can be held.
pub(crate) async fn serves(node: &Node, filter: u64) -> Result<BTreeMap<String, Option<u64>>, Trouble> {
    let all = followers_of(node, filter);
    let running = read(node, filter).await?.map(|(rollout, _)| rollout);
    let to_all = match running.filter(|rollout| rollout.state == State::Running) {
        Some(rollout) if rollout.decided => Some(rollout.target),
        Some(rollout) if knows_all(node)? => {
            let each = rollout.serves_each(&all).into_iter();
            return Ok(each.map(|(id, serve)| (id.to_owned(), serve)).collect());
        }
        Some(rollout) => {
            let each = all.iter().map(|(id, known)| (id.clone(), rollout.serves_meanwhile(Some(known))));
            return Ok(each.collect());
        }
        None => node.releases.pinned(filter).await?,
    };
    Ok(all.into_keys().map(|id| (id, to_all)).collect())
}
