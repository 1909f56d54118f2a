//! How far a rollout is, and what comes next: decided from what replicas said, without a look at anything else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use umbel_core::engine::Token;

use super::plan::{Plan, grouped};
use crate::sync::replicas::Probed;
use crate::sync::{Beat, Known};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Running,
    Done,
    /// Replicas are told to go back, and not all of them have confirmed it.
    RollingBack,
    /// No replica answers from the refused version any more.
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
    /// Whether somebody holds it: then it goes back if it has to, but not on.
    #[serde(default)]
    pub(crate) paused: bool,
    /// Whether all groups were well: the version is pinned now, and only another pin leads back.
    #[serde(default)]
    pub(crate) decided: bool,
    /// Whose watch it is in.
    #[serde(default)]
    pub(crate) keeper: String,
    /// The place of its version in the log, which a replica that follows the log must not have passed.
    #[serde(default)]
    pub(crate) token: String,
    /// The probe keys that must be absent and were added, by the log: their places in the plan. None if the log does not tell.
    #[serde(default)]
    pub(crate) added: Option<Vec<u32>>,
    /// Replicas that have not confirmed that they went back.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
    /// Whether nothing was pinned when it began: replicas that follow the log do so until it is their turn.
    #[serde(default)]
    pub(crate) loose: bool,
    /// Strong replicas that were there when it began: it does not move them.
    #[serde(default)]
    pub(crate) apart: Vec<String>,
}

/// Names that a sentence has at most.
const NAMED_MAX: usize = 10;
/// How rarely a version that is as it should be may be refused because of keys that are there by chance.
const FALSE_ALARM: f64 = 1e-3;

/// The most of `keys` that may be there although none was added: more happen less often than once in a thousand times.
fn most_by_chance(keys: usize, error: f64) -> u64 {
    let odds = error / (1.0 - error);
    let mut of_exactly = (1.0 - error).powf(keys as f64);
    let mut left = 1.0 - of_exactly;
    let mut most = 0;
    while left >= FALSE_ALARM && most < keys {
        most += 1;
        of_exactly *= odds * (keys + 1 - most) as f64 / most as f64;
        left -= of_exactly;
    }
    most as u64
}

/// Some names, and how many more there are.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    let named = all[..all.len() - more].join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// Keys in quotation marks after a colon, by their places; nothing if there are none.
fn quoted(keys: &[String], places: &[u32]) -> String {
    let keys: Vec<String> =
        places.iter().filter_map(|at| keys.get(*at as usize)).map(|key| format!("{key:?}")).collect();
    if keys.is_empty() { String::new() } else { format!(": {}", names(keys.iter().map(String::as_str))) }
}

fn shown(version: Option<u64>) -> String {
    version.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"))
}

/// How a replica is.
enum Health {
    Well,
    Waits,
    Ill(String),
}

impl Rollout {
    /// Whether it can still be held or sent back.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Running && !self.decided
    }

    /// What a replica is to serve while it runs.
    pub(super) fn serves(&self, id: &str, all: &BTreeMap<String, Known>) -> Option<u64> {
        self.serves_each(all).remove(id).unwrap_or(self.previous)
    }

    /// The same for all of them.
    pub(super) fn serves_each<'a>(&self, all: &'a BTreeMap<String, Known>) -> BTreeMap<&'a str, Option<u64>> {
        let serves = |(stage, id, known): (usize, &'a str, &'a Known)| {
            let serve = if stage <= self.stage { Some(self.target) } else { self.waits_with(&known.beat) };
            (id, serve)
        };
        grouped(&self.plan, self.stages, all).map(serves).collect()
    }

    /// What a replica serves whose turn it is not.
    fn waits_with(&self, beat: &Beat) -> Option<u64> {
        if self.loose && beat.is_stream() { None } else { self.previous }
    }

    /// What a replica is to serve while it is not known which others there are: what it has, if that is of this rollout.
    pub(super) fn serves_meanwhile(&self, known: Option<&Known>) -> Option<u64> {
        match known {
            // One that follows the log may have begun with the version.
            Some(known) if known.beat.is_at(self.target, &self.token()) => Some(self.target),
            Some(known) => self.waits_with(&known.beat),
            None => self.previous,
        }
    }

    fn health(&self, known: &Known, error: f64) -> Health {
        let beat = &known.beat;
        if !beat.can_be_held() {
            return Health::Ill(
                "it follows the log, and its release cannot be held at a version: update it, or stop it for the time of the rollout"
                    .to_owned(),
            );
        }
        if !beat.is_at(self.target, &self.token()) {
            return Health::Waits;
        }
        if beat.digest != self.digest {
            return Health::Ill(format!(
                "its checksum of version {} is {}, not {}",
                self.target, beat.digest, self.digest
            ));
        }
        if self.plan.probe_present.is_empty() && self.plan.probe_absent.is_empty() {
            return Health::Well;
        }
        let is_of_this = |probed: &&Probed| probed.id == self.began_ms && probed.version == self.target;
        let Some(probed) = beat.probed.as_ref().filter(is_of_this) else { return Health::Waits };
        if probed.missing > 0 {
            let keys = quoted(&self.plan.probe_present, &probed.missing_at);
            return Health::Ill(format!(
                "{} probe keys are absent that should be there{keys}",
                probed.missing
            ));
        }
        match self.excess(probed, error) {
            Some(why) => Health::Ill(why),
            None => Health::Well,
        }
    }

    /// Why keys that must be absent are there, unless it can be by chance. A key that was added, by the log, is never there by chance. If
    /// the log does not tell, each of a few keys counts: there is no other way to see one of them.
    fn excess(&self, probed: &Probed, error: f64) -> Option<String> {
        let all = &self.plan.probe_absent;
        let is_added = |at: &&u32| self.added.as_ref().is_some_and(|added| added.contains(*at));
        let added: Vec<u32> = probed.unexpected_at.iter().filter(is_added).copied().collect();
        if !added.is_empty() {
            let keys = quoted(all, &added);
            return Some(format!(
                "{} probe keys are there that should not be: they were added{keys}",
                added.len()
            ));
        }
        // A replica that does not say which keys they were may mean those that were added.
        let says = probed.unexpected_at.len() as u64 == probed.unexpected;
        let never_added = self.added.as_ref().is_some_and(|added| says || added.is_empty());
        let is_few = all.len() as f64 * error < 1.0;
        let most = if !never_added && is_few { 0 } else { most_by_chance(all.len(), error) };
        (probed.unexpected > most).then(|| {
            let keys = quoted(all, &probed.unexpected_at);
            format!(
                "{} of {} probe keys are there that should not be{keys}; at an error rate of {error} {most} may be by chance",
                probed.unexpected,
                all.len()
            )
        })
    }

    fn token(&self) -> Token {
        self.token.parse().unwrap_or_default()
    }

    /// The next state, if it is another one. A group's time does not begin before all replicas could be heard of.
    pub(super) fn step(
        &self,
        all: &BTreeMap<String, Known>,
        error: f64,
        now_ms: u64,
        known_ms: u64,
    ) -> Option<Self> {
        let groups: Vec<_> = grouped(&self.plan, self.stages, all).collect();
        let (mut ill, mut late, mut well) = (Vec::new(), Vec::new(), 0);
        for (_, id, known) in groups.iter().filter(|(stage, ..)| *stage <= self.stage) {
            match self.health(known, error) {
                Health::Well => well += 1,
                Health::Waits => late.push((*id, *known)),
                Health::Ill(why) => ill.push(format!("{id} ({}): {why}", known.beat.strategy)),
            }
        }
        if ill.len() > self.plan.error_budget as usize {
            return Some(self.back(ill.join("; ")));
        }
        if !late.is_empty() {
            let waiting = late.len();
            let waited_ms = now_ms.saturating_sub(self.stage_began_ms.max(known_ms));
            if !self.paused && waited_ms > self.plan.timeout_ms {
                let described: Vec<String> = late
                    .iter()
                    .map(|(id, known)| {
                        format!("{id} ({}) is at {}", known.beat.strategy, shown(known.beat.version))
                    })
                    .collect();
                return Some(self.back(format!(
                    "{waiting} replicas of group {} did not take version {} within {} ms: {}",
                    self.stage + 1,
                    self.target,
                    self.plan.timeout_ms,
                    names(described.iter().map(String::as_str))
                )));
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
        if self.paused {
            return None;
        }
        if self.stage + 1 == self.stages {
            return Some(Self { decided: true, why: String::new(), ..self.clone() });
        }
        let waited = now_ms.saturating_sub(well_ms) >= self.plan.pause_ms;
        let next = Self { stage: self.stage + 1, stage_began_ms: now_ms, well_ms: None, ..self.clone() };
        waited.then_some(next)
    }

    /// The same, sent back: replicas are told so, and it has gone back when all of them have confirmed it.
    pub(super) fn back(&self, why: String) -> Self {
        Self { state: State::RollingBack, why, decided: false, paused: false, ..self.clone() }
    }

    /// The next state of one that is rolling back, if it is another one. `pinned` is what replicas are told to serve. A replica confirms by
    /// a word that it said after it was told, and that names another version; one that is not heard of any more is not in `all`.
    pub(super) fn step_back(&self, all: &BTreeMap<String, Known>, pinned: Option<u64>) -> Option<Self> {
        let over =
            |why: String| Some(Self { state: State::RolledBack, why, missing: Vec::new(), ..self.clone() });
        if pinned == Some(self.target) {
            return over(format!("{}; version {} is pinned, so replicas stay at it", self.why, self.target));
        }
        if pinned.is_none() && self.previous.is_none() {
            return over(format!("{}; there is no version before it to go back to", self.why));
        }
        let has_confirmed = |known: &Known| {
            let is_told = known.obeys.is_some_and(|told| told != Some(self.target));
            is_told && known.beat.version != Some(self.target)
        };
        let missing: Vec<String> =
            all.iter().filter(|(_, known)| !has_confirmed(known)).map(|(id, _)| id.clone()).collect();
        if missing.is_empty() {
            return over(self.why.clone());
        }
        (missing != self.missing).then(|| Self { missing, ..self.clone() })
    }

    /// The same, held or let go on. While it is held, no time passes for its group.
    pub(super) fn held(&self, paused: bool, now_ms: u64) -> Self {
        let stage_began_ms = if paused == self.paused { self.stage_began_ms } else { now_ms };
        Self { paused, stage_began_ms, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn rollout() -> Rollout {
        Rollout {
            target: 2,
            digest: "good".into(),
            previous: Some(1),
            plan: Plan {
                by: Some("region".into()),
                order: vec!["eu".into()],
                timeout_ms: 100,
                ..Plan::default()
            },
            state: State::Running,
            stage: 0,
            stages: 2,
            why: String::new(),
            began_ms: 1000,
            stage_began_ms: 1000,
            well_ms: None,
            paused: false,
            decided: false,
            keeper: String::new(),
            token: String::new(),
            added: None,
            missing: Vec::new(),
            loose: false,
            apart: Vec::new(),
        }
    }

    /// Replicas of regions, and what they have.
    fn replicas(all: &[(&str, u64, &str)]) -> BTreeMap<String, Known> {
        let known = |(number, (region, version, digest)): (usize, &(&str, u64, &str))| {
            let beat = Beat {
                version: Some(*version),
                digest: (*digest).to_owned(),
                strategy: "pull".to_owned(),
                labels: BTreeMap::from([("region".to_owned(), (*region).to_owned())]),
                ..Beat::default()
            };
            let known = Known {
                beat,
                seen: Instant::now(),
                lease: None,
                answer: None,
                obeys: Some(Some(*version)),
                has_left: false,
            };
            (number.to_string(), known)
        };
        all.iter().enumerate().map(known).collect()
    }

    #[test]
    fn it_goes_on_when_all_of_a_group_are_well_unless_it_is_held() {
        let (first, both) = (
            replicas(&[("eu", 2, "good"), ("us", 1, "")]),
            replicas(&[("eu", 2, "good"), ("us", 2, "good")]),
        );
        let next = |rollout: &Rollout, all, now_ms| rollout.step(all, 0.01, now_ms, 0);
        let well = next(&rollout(), &first, 1010).unwrap();
        assert_eq!((well.well_ms, well.stage), (Some(1010), 0), "{}", well.why);
        let held = well.held(true, 1020);
        assert_eq!(next(&held, &first, 9000), None);
        let second = next(&held.held(false, 9000), &first, 9001).unwrap();
        assert_eq!((second.stage, second.well_ms), (1, None));
        assert_eq!(second.serves("1", &first), Some(2));
        let well = next(&second, &both, 9010).unwrap();
        let decided = next(&well, &both, 9011).unwrap();
        assert!(decided.decided && decided.state == State::Running && !decided.is_open());
    }

    #[test]
    fn it_goes_back_when_a_replica_is_ill_or_late_also_if_it_is_held() {
        let late = replicas(&[("eu", 1, ""), ("us", 1, "")]);
        let waits = rollout().step(&late, 0.01, 1050, 0).unwrap();
        assert_eq!(waits.state, State::Running, "{}", waits.why);
        assert_eq!(waits.step(&late, 0.01, 1150, 1100), None, "others were not known before");
        let back = waits.step(&late, 0.01, 1201, 1100).unwrap();
        assert_eq!(back.state, State::RollingBack);
        assert!(back.why.contains("0 (pull) is at version 1"), "{}", back.why);
        let held = waits.held(true, 1050);
        assert_eq!(held.step(&late, 0.01, 9000, 0), None);
        let ill = replicas(&[("eu", 2, "bad"), ("us", 1, "")]);
        let back = held.step(&ill, 0.01, 9000, 0).unwrap();
        assert_eq!((back.state, back.is_open()), (State::RollingBack, false));
        assert!(back.why.contains("bad"), "{}", back.why);
    }

    #[test]
    fn who_does_not_know_all_replicas_sends_none_of_them_on() {
        let rollout = Rollout { plan: Plan { batch: Some(1), ..Plan::default() }, ..rollout() };
        let heard_of = replicas(&[("eu", 1, "")]);
        assert_eq!(rollout.serves("0", &heard_of), Some(2), "it seems to be the first");
        assert_eq!(rollout.serves_meanwhile(heard_of.get("0")), Some(1));
        assert_eq!(rollout.serves_meanwhile(replicas(&[("eu", 2, "good")]).get("0")), Some(2));
        assert_eq!(rollout.serves_meanwhile(None), Some(1));
        // One that follows the log and was not held before goes on with it until its turn.
        let rollout = Rollout { loose: true, ..rollout };
        let mut streams = replicas(&[("eu", 1, "good"), ("us", 1, "good")]);
        streams.values_mut().for_each(|known| known.beat.strategy = "delta".to_owned());
        let told: Vec<_> =
            Rollout { stages: 2, ..rollout.clone() }.serves_each(&streams).into_values().collect();
        assert!(told.contains(&Some(2)) && told.contains(&None), "{told:?}");
        assert_eq!(rollout.serves_meanwhile(streams.get("0")), None);
    }

    #[test]
    fn rolled_back_waits_for_every_replica_that_may_have_the_version() {
        let back = rollout().back("it lacks a key".into());
        let step = |all: &BTreeMap<String, Known>| back.step_back(all, Some(1));
        let mut all = replicas(&[("eu", 2, "good"), ("us", 1, "good"), ("eu", 1, "good")]);
        all.get_mut("2").unwrap().obeys = Some(Some(2));
        let waits = step(&all).unwrap();
        assert_eq!((waits.state, &waits.missing[..]), (State::RollingBack, &["0".into(), "2".into()][..]));
        assert_eq!(waits.step_back(&all, Some(1)), None, "nothing new");
        // It says that it has the old version, but was not told yet that it is to have that.
        all.get_mut("0").unwrap().beat.version = Some(1);
        all.get_mut("0").unwrap().obeys = Some(Some(2));
        assert_eq!(waits.step_back(&all, Some(1)), None);
        all.get_mut("0").unwrap().obeys = Some(Some(1));
        assert_eq!(waits.step_back(&all, Some(1)).unwrap().missing, ["2"]);
        // It was not heard of for so long that it is gone.
        all.remove("2");
        let ended = step(&all).unwrap();
        assert_eq!(
            (ended.state, ended.missing.len(), &ended.why[..]),
            (State::RolledBack, 0, "it lacks a key")
        );
        let pinned = back.step_back(&replicas(&[("eu", 2, "good")]), Some(2)).unwrap();
        assert_eq!(pinned.state, State::RolledBack, "the version was pinned meanwhile: {}", pinned.why);
    }

    #[test]
    fn one_absent_probe_key_is_enough_and_many_are_judged_by_chance() {
        for (keys, error, most) in
            [(1, 0.01, 1), (10, 0.01, 2), (1_000, 0.01, 21), (1_000, 0.001, 5), (100, 1e-9, 0)]
        {
            assert_eq!(most_by_chance(keys, error), most, "{keys} at {error}");
        }
        let keys = |count: usize| (0..count).map(|number| format!("k{number}")).collect::<Vec<_>>();
        let judged = |count: usize, at: &[u32], added: Option<Vec<u32>>| {
            let plan = Plan { probe_absent: keys(count), ..Plan::default() };
            let rollout = Rollout { plan, added, stages: 1, ..rollout() };
            let mut all = replicas(&[("eu", 2, "good")]);
            let unexpected = at.len() as u64;
            let (missing_at, unexpected_at) = (Vec::new(), at.to_vec());
            let probed = Probed {
                id: rollout.began_ms,
                version: 2,
                missing: 0,
                unexpected,
                missing_at,
                unexpected_at,
            };
            all.get_mut("0").unwrap().beat.probed = Some(probed);
            let next = rollout.step(&all, 0.01, 1010, 0).unwrap();
            (next.state == State::Running).then_some(()).ok_or(next.why)
        };
        assert_eq!(judged(1, &[], None), Ok(()));
        let why = judged(1, &[0], None).unwrap_err();
        assert!(why.contains("0 (pull): 1 of 1 probe keys") && why.contains("\"k0\""), "{why}");
        assert!(judged(1, &[0], Some(vec![0])).unwrap_err().contains("they were added: \"k0\""));
        assert_eq!(judged(1, &[0], Some(vec![])), Ok(()), "the log proves that it was never added");
        assert!(judged(1_000, &[7], Some(vec![7])).is_err(), "one of many was added");
        let many: Vec<u32> = (0..21).collect();
        assert_eq!(judged(1_000, &many, None), Ok(()));
        assert!(judged(1_000, &(0..22).collect::<Vec<_>>(), None).is_err());
    }

    #[test]
    fn replica_that_follows_the_log_is_well_only_when_it_is_held() {
        let token = |number: u64| format!("0:{number:x}");
        let rollout = Rollout { token: token(100), stages: 1, ..rollout() };
        let step = |strategy: &str, told: Option<u64>, at: u64| {
            let mut all = replicas(&[("eu", 2, "good")]);
            let beat = &mut all.get_mut("0").unwrap().beat;
            (beat.strategy, beat.told, beat.token) = (strategy.to_owned(), told, token(at));
            rollout.step(&all, 0.01, 1010, 0).unwrap()
        };
        assert!(step("delta", Some(2), 100).well_ms.is_some());
        let goes_on = step("delta", Some(2), 101);
        assert_eq!((goes_on.state, goes_on.well_ms), (State::Running, None), "{}", goes_on.why);
        let old = step("delta", None, 100);
        assert_eq!(old.state, State::RollingBack);
        assert!(old.why.contains("0 (delta): it follows the log"), "{}", old.why);
        assert!(step("pull", None, 101).well_ms.is_some());
    }

    #[test]
    fn one_that_was_kept_before_there_were_watches_is_read() {
        let mut kept = serde_json::to_value(rollout()).unwrap();
        for name in ["paused", "decided", "keeper", "token", "added", "missing", "loose", "apart"] {
            kept.as_object_mut().unwrap().remove(name).unwrap();
        }
        assert_eq!(serde_json::from_value::<Rollout>(kept).unwrap(), rollout());
    }
}
