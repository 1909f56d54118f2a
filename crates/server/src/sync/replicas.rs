//! Replicas: who has a copy of which filter, as they say themselves.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

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
}

/// What probe keys said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probed {
    /// Which rollout's keys they were.
    pub(crate) id: u64,
    pub(crate) version: u64,
    pub(crate) missing: u64,
    pub(crate) unexpected: u64,
}

/// A replica, and when it was last heard of.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) beat: Beat,
    pub(crate) seen: Instant,
    /// Until when it may answer from the version that it was told to serve.
    pub(crate) lease: Option<Instant>,
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

    /// Notes what a replica says. Its lease is what was given to it before. Those that were not heard of for a while are gone.
    pub(crate) fn heard(
        &self,
        filter: u64,
        id: &str,
        beat: Beat,
        now: Instant,
        gone_after: Duration,
    ) -> Result<(), String> {
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
            return Ok(());
        }
        // Who says that it does not answer needs no lease.
        let lease = before.and_then(|known| known.lease).filter(|_| beat.version.is_some());
        of_filter.insert(id.to_owned(), Known { beat, seen: now, lease });
        Ok(())
    }

    /// Gives a replica leave to answer for a while.
    pub(crate) fn grant(&self, filter: u64, id: &str, now: Instant) {
        if let Some(known) = self.lock().get_mut(&filter).and_then(|all| all.get_mut(id)) {
            known.lease = Some(now + LEASE);
        }
    }

    /// All replicas of a filter.
    pub(crate) fn of(&self, filter: u64, now: Instant, gone_after: Duration) -> BTreeMap<String, Known> {
        let mut all = self.lock();
        let Some(of_filter) = all.get_mut(&filter) else { return BTreeMap::new() };
        of_filter.retain(|_, known| is_there(known, now, gone_after));
        of_filter.clone()
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
        let others = of_filter.iter().filter(|(other, _)| *other != id);
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
