//! Replicas: who has a copy of which filter, as they say themselves.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use umbel_core::engine::Token;

/// How long a strong replica may answer after it was last told what to serve.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Replicas of one filter, at most.
const REPLICAS_MAX: usize = 10_000;
/// Peers that a replica is told of.
const PEERS_TOLD: usize = 3;
/// Longest name, label or address.
const TEXT_BYTES_MAX: usize = 256;
const LABELS_MAX: usize = 16;

/// What a replica says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beat {
    /// A number of its process, and of this word in it: words that come late are passed over.
    #[serde(default)]
    pub(crate) run: u64,
    #[serde(default)]
    pub(crate) sequence: u64,
    /// How it follows: pull, push, notify, delta, window, strong.
    #[serde(default)]
    pub(crate) strategy: String,
    /// The version that it answers from; none if it does not answer.
    pub(crate) version: Option<u64>,
    /// How much of the log its answers include.
    #[serde(default)]
    pub(crate) token: String,
    /// The digest of its version.
    #[serde(default)]
    pub(crate) digest: String,
    /// How long ago it knew that it had everything.
    #[serde(default)]
    pub(crate) age_ms: u64,
    /// A version that it has beside the one that it answers from, verified.
    pub(crate) staged: Option<u64>,
    /// Its own adds that the centre does not have yet.
    #[serde(default)]
    pub(crate) spooled: u64,
    /// What groups are made of.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Where it gives chunks to others.
    pub(crate) address: Option<String>,
    /// Which version its probe keys were tried on, and how many of those that should be there were not, and the other way round.
    pub(crate) probed: Option<Probed>,
    /// The version that it was last told to serve, 0 for none. One that says this can be held at a version, whatever its strategy.
    pub(crate) told: Option<u64>,
}

impl Beat {
    /// Whether it follows the log instead of versions.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(&self.strategy[..], "push" | "delta" | "window")
    }

    /// Whether it stays at a version when it is told to: replicas that follow versions do, and those that follow the log from this
    /// release on.
    pub(crate) fn can_be_held(&self) -> bool {
        !self.is_stream() || self.told.is_some()
    }

    /// Whether it answers from exactly this version, whose place in the log is `token`: one that follows the log may have gone on.
    pub(crate) fn is_at(&self, version: u64, token: &Token) -> bool {
        let is_before = || self.token.parse::<Token>().is_ok_and(|reached| token.includes(&reached));
        self.version == Some(version) && (!self.is_stream() || is_before())
    }
}

/// What probe keys said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probed {
    /// Which rollout's keys they were.
    pub(crate) id: u64,
    pub(crate) version: u64,
    pub(crate) missing: u64,
    pub(crate) unexpected: u64,
    /// Which of the keys they were, by their places in the plan; empty if the replica does not say.
    #[serde(default)]
    pub(crate) missing_at: Vec<u32>,
    #[serde(default)]
    pub(crate) unexpected_at: Vec<u32>,
}

/// A replica, and when it was last heard of.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) beat: Beat,
    pub(crate) seen: Instant,
    /// Until when it may answer from the version that it was told to serve.
    pub(crate) lease: Option<Instant>,
    /// What it was told to serve in the answer to its last beat.
    pub(crate) answer: Option<Option<u64>>,
    /// What it knew that it is to serve when it said this.
    pub(crate) obeys: Option<Option<u64>>,
    /// Whether it left or was forgotten: only its lease, and how many words it said, are remembered.
    pub(crate) has_left: bool,
}

impl Known {
    pub(crate) fn is_strong(&self) -> bool {
        self.beat.strategy == "strong"
    }
}

/// All replicas, by filter and by their own names.
#[derive(Debug, Default)]
pub(crate) struct Replicas(Mutex<HashMap<u64, BTreeMap<String, Known>>>);

impl Replicas {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, BTreeMap<String, Known>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a replica says; false if it said something newer before, or has left. Its lease is what was given to it before. Those
    /// that were not heard of for a while are gone.
    pub(crate) fn heard(
        &self,
        filter: u64,
        id: &str,
        beat: Beat,
        now: Instant,
        gone_after: Duration,
    ) -> Result<bool, String> {
        check(id, &beat)?;
        let mut all = self.lock();
        let of_filter = all.entry(filter).or_default();
        of_filter.retain(|_, known| is_there(known, now, gone_after));
        if of_filter.len() >= REPLICAS_MAX && !of_filter.contains_key(id) {
            return Err(format!("there are {REPLICAS_MAX} replicas, which is the limit"));
        }
        let before = of_filter.get(id);
        // Nor is a word heard twice: in between it may have been given leave to answer, which it did not know when it said this. Who
        // does not count its words is heard each time.
        let is_late = |known: &Known| match known.beat.sequence.cmp(&beat.sequence) {
            Ordering::Greater => true,
            Ordering::Equal => beat.run != 0,
            Ordering::Less => false,
        };
        if before.is_some_and(|known| known.beat.run == beat.run && is_late(known)) {
            return Ok(false);
        }
        // Who says that it does not answer needs no lease.
        let lease = before.and_then(|known| known.lease).filter(|_| beat.version.is_some());
        let answer = before.filter(|known| known.beat.run == beat.run).and_then(|known| known.answer);
        let told = beat.told.map(|told| (told != 0).then_some(told));
        let known = Known { obeys: told.or(answer), answer, beat, seen: now, lease, has_left: false };
        of_filter.insert(id.to_owned(), known);
        Ok(true)
    }

    /// Notes what a replica is told to serve.
    pub(crate) fn answered(&self, filter: u64, id: &str, serve: Option<u64>) {
        if let Some(known) = self.lock().get_mut(&filter).and_then(|all| all.get_mut(id)) {
            known.answer = Some(serve);
        }
    }

    /// Forgets a replica; false if it is not known. Words that it said up to `last`, its process and how many, change nothing any more.
    pub(crate) fn forget(&self, filter: u64, id: &str, last: Option<(u64, u64)>) -> bool {
        let mut all = self.lock();
        let Some(known) = all.get_mut(&filter).and_then(|all| all.get_mut(id)) else { return false };
        let was_known = !known.has_left;
        known.has_left = true;
        if let Some((run, sequence)) = last {
            (known.beat.run, known.beat.sequence) = (run, sequence);
        }
        was_known
    }

    /// Whether a replica of this process is there.
    pub(crate) fn is_run(&self, filter: u64, id: &str, run: u64) -> bool {
        self.lock().get(&filter).and_then(|all| all.get(id)).is_some_and(|known| known.beat.run == run)
    }

    /// Whether a replica may answer from what it was told to serve, also one that was forgotten.
    pub(crate) fn has_lease(&self, filter: u64, now: Instant) -> bool {
        let all = self.lock();
        all.get(&filter)
            .is_some_and(|all| all.values().any(|known| known.lease.is_some_and(|until| until > now)))
    }

    /// Gives a replica leave to answer for a while.
    pub(crate) fn grant(&self, filter: u64, id: &str, now: Instant) {
        if let Some(known) = self.lock().get_mut(&filter).and_then(|all| all.get_mut(id))
            && !known.has_left
        {
            known.lease = Some(now + LEASE);
        }
    }

    /// All replicas of a filter.
    pub(crate) fn of(&self, filter: u64, now: Instant, gone_after: Duration) -> BTreeMap<String, Known> {
        let mut all = self.lock();
        let Some(of_filter) = all.get_mut(&filter) else { return BTreeMap::new() };
        of_filter.retain(|_, known| is_there(known, now, gone_after));
        let there = of_filter.iter().filter(|(_, known)| !known.has_left);
        there.map(|(id, known)| (id.clone(), known.clone())).collect()
    }

    /// Forgets replicas that were not heard of for a while, also those of filters that nobody asks for any more.
    pub(crate) fn sweep(&self, now: Instant, gone_after: Duration) {
        self.lock().retain(|_, of_filter| {
            of_filter.retain(|_, known| is_there(known, now, gone_after));
            !of_filter.is_empty()
        });
    }

    /// Where others give chunks of a filter, those with the most of it first.
    pub(crate) fn peers(&self, filter: u64, id: &str) -> Vec<String> {
        let all = self.lock();
        let Some(of_filter) = all.get(&filter) else { return Vec::new() };
        let others = of_filter.iter().filter(|(other, known)| *other != id && !known.has_left);
        let mut found: Vec<_> =
            others.filter_map(|(_, known)| Some((known.beat.version, known.beat.address.clone()?))).collect();
        found.sort_by(|one, other| other.cmp(one));
        found.into_iter().take(PEERS_TOLD).map(|(_, address)| address).collect()
    }
}

/// A lease outlives those who are not heard of.
fn is_there(known: &Known, now: Instant, gone_after: Duration) -> bool {
    now.saturating_duration_since(known.seen) < gone_after || known.lease.is_some_and(|lease| lease > now)
}

fn check(id: &str, beat: &Beat) -> Result<(), String> {
    let texts = [id, &beat.strategy, &beat.digest, beat.address.as_deref().unwrap_or_default()];
    let labels = beat.labels.iter().flat_map(|(name, value)| [name.as_str(), value]);
    if id.is_empty() || texts.into_iter().chain(labels).any(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(format!("a replica's name, labels and address are 1 to {TEXT_BYTES_MAX} bytes"));
    }
    if beat.labels.len() > LABELS_MAX {
        return Err(format!("{} labels; at most {LABELS_MAX}", beat.labels.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHILE: Duration = Duration::from_secs(15);

    #[test]
    fn replicas_come_and_go() {
        let (replicas, start) = (Replicas::default(), Instant::now());
        let beat = |version, address: Option<&str>| Beat {
            version: Some(version),
            address: address.map(str::to_owned),
            ..Beat::default()
        };
        replicas.heard(1, "a", beat(3, None), start, WHILE).unwrap();
        replicas.heard(1, "b", beat(2, Some("http://b")), start + Duration::from_secs(9), WHILE).unwrap();
        replicas.heard(1, "c", beat(3, Some("http://c")), start + Duration::from_secs(9), WHILE).unwrap();
        assert_eq!(replicas.peers(1, "a"), ["http://c", "http://b"]);
        assert_eq!(replicas.peers(1, "c"), ["http://b"]);
        assert_eq!(replicas.of(1, start + Duration::from_secs(16), WHILE).len(), 2, "one was not heard of");
        replicas.grant(1, "b", start + Duration::from_secs(23));
        let left = replicas.of(1, start + Duration::from_secs(25), WHILE);
        assert_eq!(left.keys().collect::<Vec<_>>(), ["b"], "it may still answer");
        replicas.heard(2, "d", beat(1, None), start, WHILE).unwrap();
        replicas.sweep(start + Duration::from_secs(25), WHILE);
        assert_eq!(replicas.lock().keys().collect::<Vec<_>>(), [&1], "nobody asked for the other filter");
        assert!(replicas.heard(1, "", Beat::default(), start, WHILE).is_err());
        assert!(replicas.heard(1, &"x".repeat(257), Beat::default(), start, WHILE).is_err());
    }
    #[test]
    fn forgotten_replica_keeps_its_lease_and_late_words_do_not_bring_it_back() {
        let (replicas, start) = (Replicas::default(), Instant::now());
        let beat = |run, sequence| Beat { run, sequence, version: Some(1), ..Beat::default() };
        assert!(replicas.heard(1, "a", beat(7, 1), start, WHILE).unwrap());
        replicas.grant(1, "a", start);
        assert!(replicas.is_run(1, "a", 7) && !replicas.is_run(1, "a", 8));
        assert!(replicas.forget(1, "a", Some((7, u64::MAX))));
        assert!(!replicas.forget(1, "a", None), "it is forgotten");
        assert!(replicas.of(1, start, WHILE).is_empty());
        assert!(replicas.has_lease(1, start + LEASE / 2), "it may still answer");
        assert!(!replicas.has_lease(1, start + LEASE));
        assert!(!replicas.heard(1, "a", beat(7, 9), start, WHILE).unwrap(), "said before it left");
        assert!(replicas.of(1, start, WHILE).is_empty());
        assert!(replicas.heard(1, "a", beat(8, 0), start, WHILE).unwrap(), "it was started again");
        assert_eq!(replicas.of(1, start, WHILE).len(), 1);
    }

    #[test]
    fn a_word_that_comes_again_takes_no_leave_away() {
        let (replicas, start) = (Replicas::default(), Instant::now());
        let silent = Beat { run: 7, sequence: 1, strategy: "strong".to_owned(), ..Beat::default() };
        replicas.heard(1, "a", silent.clone(), start, WHILE).unwrap();
        replicas.grant(1, "a", start);
        // Something on the way sends "I do not answer" once more, when the answer to it has let the replica answer.
        replicas.heard(1, "a", silent.clone(), start + Duration::from_millis(1), WHILE).unwrap();
        assert!(replicas.of(1, start, WHILE)["a"].lease.is_some());
        replicas
            .heard(1, "a", Beat { sequence: 2, ..silent }, start + Duration::from_millis(2), WHILE)
            .unwrap();
        assert!(replicas.of(1, start, WHILE)["a"].lease.is_none());
    }
}
