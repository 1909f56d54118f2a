//! How far a rollout is, and what comes next: decided from what replicas said, without a look at anything else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::{Plan, grouped};
use crate::sync::Known;

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
    /// Whether somebody holds it: then it goes back if it has to, but not on.
    #[serde(default)]
    pub(crate) paused: bool,
    /// Whether all groups were well: the version is pinned now, and only another pin leads back.
    #[serde(default)]
    pub(crate) decided: bool,
    /// Whose watch it is in.
    #[serde(default)]
    pub(crate) keeper: String,
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
        let mut groups = grouped(&self.plan, self.stages, all);
        let stage = groups.find(|(_, other, _)| *other == id).map_or(self.stages, |(stage, ..)| stage);
        if stage <= self.stage { Some(self.target) } else { self.previous }
    }

    /// What a replica is to serve while it is not known which others there are: what it has, if that is of this rollout.
    pub(super) fn serves_meanwhile(&self, has: Option<u64>) -> Option<u64> {
        if has == Some(self.target) { has } else { self.previous }
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

    /// The next state, if it is another one. A group's time does not begin before all replicas could be heard of.
    pub(super) fn step(
        &self,
        all: &BTreeMap<String, Known>,
        error: f64,
        now_ms: u64,
        known_ms: u64,
    ) -> Option<Self> {
        let groups: Vec<_> = grouped(&self.plan, self.stages, all).collect();
        let (mut ill, mut waiting, mut well) = (Vec::new(), 0, 0);
        for (_, id, known) in groups.iter().filter(|(stage, ..)| *stage <= self.stage) {
            match self.health(known, error) {
                Health::Well => well += 1,
                Health::Waits => waiting += 1,
                Health::Ill(why) => ill.push(format!("{id}: {why}")),
            }
        }
        if ill.len() > self.plan.error_budget as usize {
            return Some(self.back(ill.join("; ")));
        }
        if waiting > 0 {
            let waited_ms = now_ms.saturating_sub(self.stage_began_ms.max(known_ms));
            if !self.paused && waited_ms > self.plan.timeout_ms {
                return Some(self.back(format!(
                    "{waiting} replicas of group {} did not take it in time",
                    self.stage + 1
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

    /// The same, sent back.
    pub(super) fn back(&self, why: String) -> Self {
        Self { state: State::RolledBack, why, decided: false, ..self.clone() }
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
    use crate::sync::Beat;

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
        }
    }

    /// Replicas of regions, and what they have.
    fn replicas(all: &[(&str, u64, &str)]) -> BTreeMap<String, Known> {
        let known = |(number, (region, version, digest)): (usize, &(&str, u64, &str))| {
            let beat = Beat {
                version: Some(*version),
                digest: (*digest).to_owned(),
                labels: BTreeMap::from([("region".to_owned(), (*region).to_owned())]),
                ..Beat::default()
            };
            (number.to_string(), Known { beat, seen: Instant::now(), lease: None })
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
        assert_eq!(waits.step(&late, 0.01, 1201, 1100).unwrap().state, State::RolledBack);
        let held = waits.held(true, 1050);
        assert_eq!(held.step(&late, 0.01, 9000, 0), None);
        let ill = replicas(&[("eu", 2, "bad"), ("us", 1, "")]);
        let back = held.step(&ill, 0.01, 9000, 0).unwrap();
        assert_eq!((back.state, back.is_open()), (State::RolledBack, false));
        assert!(back.why.contains("bad"), "{}", back.why);
    }

    #[test]
    fn who_does_not_know_all_replicas_sends_none_of_them_on() {
        let rollout = Rollout { plan: Plan { batch: Some(1), ..Plan::default() }, ..rollout() };
        let heard_of = replicas(&[("eu", 1, "")]);
        assert_eq!(rollout.serves("0", &heard_of), Some(2), "it seems to be the first");
        assert_eq!(rollout.serves_meanwhile(Some(1)), Some(1));
        assert_eq!(rollout.serves_meanwhile(Some(2)), Some(2));
        assert_eq!(rollout.serves_meanwhile(None), Some(1));
    }

    #[test]
    fn one_that_was_kept_before_there_were_watches_is_read() {
        let mut kept = serde_json::to_value(rollout()).unwrap();
        for name in ["paused", "decided", "keeper"] {
            kept.as_object_mut().unwrap().remove(name).unwrap();
        }
        assert_eq!(serde_json::from_value::<Rollout>(kept).unwrap(), rollout());
    }
}
