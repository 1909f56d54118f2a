//! What was said, written down, and looked through afterwards.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use umbel_client::Answer;

/// A key that the centre acknowledged, and when.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) key: String,
    pub(crate) at: Duration,
}

/// A question and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) strategy: &'static str,
    pub(crate) key: String,
    /// When it was asked.
    pub(crate) at: Duration,
    pub(crate) answer: Answer,
}

#[derive(Default)]
pub(crate) struct History {
    acknowledged: Mutex<Vec<Acknowledged>>,
    asked: Mutex<Vec<Asked>>,
    /// When each strong publish was asked for, and when it was done.
    switched: Mutex<Vec<(Duration, Duration)>>,
    own: Mutex<Vec<String>>,
}

impl History {
    pub(crate) fn acknowledged(&self, keys: impl Iterator<Item = Acknowledged>) {
        self.acknowledged.lock().unwrap().extend(keys);
    }

    pub(crate) fn asked(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
    }

    pub(crate) fn switched(&self, begun: Duration, done: Duration) {
        self.switched.lock().unwrap().push((begun, done));
    }

    pub(crate) fn own(&self, key: String) {
        self.own.lock().unwrap().push(key);
    }

    /// Some key: newer ones more often, for they are what may be missing.
    pub(crate) fn some_key(&self, chance: u64) -> Option<String> {
        let all = self.acknowledged.lock().unwrap();
        let newest = all.len().min(if chance.is_multiple_of(4) { usize::MAX } else { 2_000 });
        let back = (chance >> 8) as usize % newest.max(1);
        all.len().checked_sub(back + 1).map(|at| all[at].key.clone())
    }

    /// Keys that replicas added.
    pub(crate) fn own_keys(&self) -> Vec<String> {
        self.own.lock().unwrap().clone()
    }

    /// All keys that the centre acknowledged, and perhaps those that replicas added.
    pub(crate) fn all_keys(&self, with_own: bool) -> Vec<String> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let own = self.own.lock().unwrap();
        let own = own.iter().filter(|_| with_own);
        acknowledged.iter().map(|one| one.key.clone()).chain(own.cloned()).collect()
    }
}

/// What came of the look.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    acknowledged: usize,
    own: usize,
    switches: usize,
    by_strategy: HashMap<&'static str, [usize; 3]>,
    pub(crate) wrong: usize,
    first_wrong: Option<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "keys acknowledged {}, added in replicas {}, strong publishes {}; answers absent/maybe/unknown:",
            self.acknowledged, self.own, self.switches
        )?;
        let mut strategies: Vec<_> = self.by_strategy.iter().collect();
        strategies.sort();
        for (strategy, [absent, maybe, unknown]) in strategies {
            write!(f, " {strategy} {absent}/{maybe}/{unknown}")?;
        }
        write!(f, "; wrong {}", self.wrong)?;
        self.first_wrong.iter().try_for_each(|first| write!(f, ", such as {first}"))
    }
}

/// "Absent" is a lie for a key that was acknowledged longer ago than a copy may be old; from a strong replica, for one that was
/// acknowledged before a publish that was done before the question.
pub(crate) fn check(history: &History, stale_after: Duration) -> Summary {
    let acknowledged = history.acknowledged.lock().unwrap();
    let switched = history.switched.lock().unwrap();
    let at: HashMap<&str, Duration> = acknowledged.iter().map(|one| (&*one.key, one.at)).collect();
    let mut summary = Summary {
        acknowledged: acknowledged.len(),
        own: history.own.lock().unwrap().len(),
        switches: switched.len(),
        ..Summary::default()
    };
    for asked in history.asked.lock().unwrap().iter() {
        let answers = summary.by_strategy.entry(asked.strategy).or_default();
        answers[asked.answer as usize] += 1;
        if asked.answer != Answer::Absent {
            continue;
        }
        let added = at[&*asked.key];
        let is_lie = if asked.strategy == "strong" {
            switched.iter().any(|(begun, done)| added < *begun && *done < asked.at)
        } else {
            added + stale_after < asked.at
        };
        if is_lie {
            summary.wrong += 1;
            summary.first_wrong.get_or_insert_with(|| format!("{asked:?}, acknowledged at {added:?}"));
        }
    }
    summary
}
