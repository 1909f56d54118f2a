//! What clients saw, written down, and looked through afterwards.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use umbel_core::engine::Token;

/// A change of a key that was acknowledged in the end. Changes of one key come one after another.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: String,
    /// Whether it is there after it.
    pub(crate) adds: bool,
    /// When it was asked for first, and when it was acknowledged.
    pub(crate) begun: Duration,
    pub(crate) done: Duration,
    pub(crate) position: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Read {
    Any,
    Current,
    Strong,
}

/// A question for a key, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) key: String,
    pub(crate) read: Read,
    pub(crate) begun: Duration,
    pub(crate) done: Duration,
    pub(crate) is_there: bool,
    /// What it was answered from.
    pub(crate) position: Token,
}

pub(crate) struct History {
    start: Instant,
    changes: Mutex<Vec<Change>>,
    looks: Mutex<Vec<Look>>,
    /// Keys that somebody began to add, to be asked for.
    known: Mutex<Vec<String>>,
    refusals: Mutex<usize>,
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap()
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            changes: Mutex::default(),
            looks: Mutex::default(),
            known: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn knows(&self, keys: &[String]) {
        lock(&self.known).extend_from_slice(keys);
    }

    /// Some keys that were begun, the newest more often.
    pub(crate) fn some_keys(&self, chance: u64, count: usize) -> Vec<String> {
        let known = lock(&self.known);
        let newest = known.len().min(if chance.is_multiple_of(3) { usize::MAX } else { 200 });
        let pick =
            |n: usize| known.get(known.len() - 1 - (chance as usize >> 8).wrapping_add(n * 7919) % newest);
        if known.is_empty() { Vec::new() } else { (0..count).filter_map(pick).cloned().collect() }
    }

    pub(crate) fn changed(&self, changes: impl Iterator<Item = Change>) {
        lock(&self.changes).extend(changes);
    }

    pub(crate) fn looked(&self, looks: impl Iterator<Item = Look>) {
        lock(&self.looks).extend(looks);
    }

    pub(crate) fn refused(&self) {
        *lock(&self.refusals) += 1;
    }

    /// Keys as they are when nothing is under way.
    pub(crate) fn last(&self) -> HashMap<String, bool> {
        lock(&self.changes).iter().map(|change| (change.key.clone(), change.adds)).collect()
    }

    /// Looks through all of it.
    pub(crate) fn check(&self) -> Summary {
        let (changes, looks) = (lock(&self.changes), lock(&self.looks));
        let mut by_key: HashMap<&str, Vec<&Change>> = HashMap::new();
        changes.iter().for_each(|change| by_key.entry(&change.key).or_default().push(change));
        by_key.values_mut().for_each(|all| all.sort_by_key(|change| change.begun));
        let mut summary =
            Summary { changes: changes.len(), refusals: *lock(&self.refusals), ..Summary::default() };
        // Of each key, when a strong look that found it was done for the first time.
        let mut found: HashMap<&str, Duration> = HashMap::new();
        for look in looks.iter().filter(|look| look.read == Read::Strong && look.is_there) {
            let first = found.entry(&look.key).or_insert(look.done);
            *first = look.done.min(*first);
        }
        let mut wrong_keys = HashSet::new();
        for look in looks.iter() {
            summary.looks[look.read as usize][usize::from(look.is_there)] += 1;
            let all = by_key.get(&*look.key).map_or(&[][..], Vec::as_slice);
            let only_added = all.len() == 1;
            let went_back = look.read == Read::Strong
                && only_added
                && !look.is_there
                && found.get(&*look.key).is_some_and(|first| *first < look.begun);
            if went_back || !is_possible(all, look) {
                summary.wrong += 1;
                wrong_keys.insert(&*look.key);
                let since = all.iter().map(|change| look.begun.saturating_sub(change.done)).min();
                summary.wrong_for = summary.wrong_for.max(since.unwrap_or_default());
                summary.first_wrong.get_or_insert_with(|| format!("{look:?} after {all:?}"));
            }
        }
        summary.wrong_keys = wrong_keys.len();
        summary
    }
}

/// Whether an answer can be right: for what was acknowledged before the question or was under way meanwhile; of `any`, for what the
/// position that it was given from has.
fn is_possible(changes: &[&Change], look: &Look) -> bool {
    if look.read == Read::Any {
        let has = |change: &&&Change| {
            look.position.positions().all(|(partition, position)| {
                let changed = change.position.position(partition);
                changed != umbel_core::Position::START && changed <= position
            })
        };
        // A key that comes and goes may be in between, so only what is added for good tells.
        let is_added_for_good = changes.iter().all(|change| change.adds);
        return look.is_there || !is_added_for_good || !changes.iter().any(|change| has(&change));
    }
    let before = changes.iter().rfind(|change| change.done < look.begun).is_some_and(|change| change.adds);
    let meanwhile = changes.iter().filter(|change| change.done >= look.begun && change.begun <= look.done);
    before == look.is_there || meanwhile.into_iter().any(|change| change.adds == look.is_there)
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) changes: usize,
    /// By how current they had to be: how many answers were no, and how many yes.
    looks: [[usize; 2]; 3],
    pub(crate) refusals: usize,
    pub(crate) wrong: usize,
    /// Of so many keys, up to so long after the acknowledgement.
    pub(crate) wrong_keys: usize,
    pub(crate) wrong_for: Duration,
    pub(crate) first_wrong: Option<String>,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.refusals += other.refusals;
        self.wrong += other.wrong;
        self.looks
            .iter_mut()
            .flatten()
            .zip(other.looks.iter().flatten())
            .for_each(|(all, more)| *all += more);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "changes acknowledged {}, requests refused or lost {}; absent/there:",
            self.changes, self.refusals
        )?;
        for (read, [absent, there]) in ["any", "current", "strong"].iter().zip(self.looks) {
            write!(f, " {read} {absent}/{there}")?;
        }
        write!(f, "; wrong {}", self.wrong)
    }
}

#[test]
fn lies_are_found_out() {
    let at = Duration::from_secs;
    let token = |text: &str| text.parse::<Token>().unwrap();
    let change = |adds, begun, done, position| Change {
        key: "k".into(),
        adds,
        begun: at(begun),
        done: at(done),
        position: token(position),
    };
    let look = |read, begun, done, is_there, position| Look {
        key: "k".into(),
        read,
        begun: at(begun),
        done: at(done),
        is_there,
        position: token(position),
    };
    let wrong = |changes: &[Change], looks: &[Look]| {
        let history = History::new();
        history.changed(changes.iter().cloned());
        history.looked(looks.iter().cloned());
        history.check().wrong
    };
    let added = [change(true, 1, 3, "0:5")];
    assert_eq!(wrong(&added, &[look(Read::Current, 4, 5, false, "")]), 1, "it was acknowledged");
    assert_eq!(wrong(&added, &[look(Read::Current, 4, 5, true, "")]), 0);
    assert_eq!(wrong(&added, &[look(Read::Current, 2, 5, false, "")]), 0, "it was under way");
    assert_eq!(wrong(&added, &[look(Read::Current, 0, 0, true, "")]), 1, "nobody had begun");
    assert_eq!(wrong(&added, &[look(Read::Any, 4, 5, false, "0:4")]), 0, "as of an older position");
    assert_eq!(wrong(&added, &[look(Read::Any, 4, 5, false, "0:5")]), 1);
    assert_eq!(wrong(&added, &[look(Read::Any, 4, 5, false, "1:5")]), 0, "another partition");
    let twice = [look(Read::Strong, 1, 1, true, ""), look(Read::Strong, 2, 2, false, "")];
    assert_eq!(wrong(&added, &twice), 1, "it was seen, and then it was not");
    let removed = [change(true, 1, 2, "0:5"), change(false, 4, 5, "0:7")];
    assert_eq!(wrong(&removed, &[look(Read::Strong, 6, 7, true, "")]), 1);
    assert_eq!(wrong(&removed, &[look(Read::Strong, 3, 4, false, "")]), 0);
    assert_eq!(wrong(&removed, &[look(Read::Strong, 3, 3, false, "")]), 1);
}
