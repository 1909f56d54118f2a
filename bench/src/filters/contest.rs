//! One contest: filters of one size and error, filled with the same keys and asked for the same keys.

use std::error::Error;

use umbel_filter::{Layout, Spec};

use super::keys::{self, Keys, Kind, with_keys};
use super::limit::{AHEAD, Limit};
use super::peers::{Fast, FastAtomic, Fuse, Mode, Peer, SplitBlock, Umbel};
use super::report::{count, power};
use crate::measure::{Progress, median, per_item, smoothed_mean};

/// Keys that a filter is given before it is the next one's turn.
pub(super) const CHUNK: u64 = 1 << 20;
/// xorf builds from all hashes at once, with some 25 bytes of scratch memory a key.
pub(super) const FUSE_KEYS_MAX: u64 = 20_000_000;
/// With more keys than these, what takes minutes and decides nothing is left out: single calls of counting filters,
/// and the classic filter at loose error rates.
pub(super) const THOROUGH_KEYS_MAX: u64 = 20_000_000;
const LOOSE_ERROR: f64 = 5e-3;
/// One part of so many of a round warms caches and predictors for the rest, which is timed.
const WARM_UP: usize = 16;

/// Who is measured against whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// Umbel's Bloom filter, which threads may share, against other libraries.
    Concurrent,
    /// Umbel's counting filter against its own Bloom filter.
    Counting,
}

impl Case {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Concurrent => "concurrent",
            Self::Counting => "counting",
        }
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Rounds of lookups; fills of filters that are filled in a moment.
    pub(super) rounds: u64,
    /// Keys that a round looks up.
    pub(super) probes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Contest {
    pub(super) case: Case,
    pub(super) n: u64,
    pub(super) error: f64,
    pub(super) kind: Kind,
}

/// What one filter achieved; times in nanoseconds.
pub(super) struct Score {
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    pub(super) ours: bool,
    /// Static filters have none.
    pub(super) insert: Option<f64>,
    pub(super) hit: f64,
    pub(super) miss: f64,
    pub(super) fpr: f64,
    pub(super) bits_per_key: f64,
}

pub(super) struct Outcome {
    pub(super) contest: Contest,
    pub(super) scores: Vec<Score>,
    /// Nanoseconds a line, where that can be compared.
    pub(super) limit: Option<Lookups>,
}

pub(super) struct Lookups {
    pub(super) hit: f64,
    pub(super) miss: f64,
}

struct Entrant {
    ours: bool,
    peer: Box<dyn Peer>,
}

impl Contest {
    pub(super) fn run(self, effort: Effort, progress: &mut Progress) -> Result<Outcome, Box<dyn Error>> {
        let Self { case, n, error, kind } = self;
        let title = format!("{}, {} keys, error {}, {}", case.name(), count(n), power(error), kind.name());

        progress.step(format!("{title}: fill"));
        let fills = if n <= CHUNK { effort.rounds } else { 1 };
        let mut entrants = Vec::new();
        let mut inserts = Vec::new();
        for fill in 0..fills {
            progress.part(fill, fills);
            // The old filters go first, so that two sets of them never need memory at once.
            entrants.clear();
            entrants = self.entrants()?;
            self.fill(&mut entrants, &mut inserts, progress)?;
        }

        let bytes = entrants.iter().find(|entrant| entrant.ours).map_or(0, |entrant| entrant.peer.bytes());
        let limit = (kind == Kind::Ready && case == Case::Concurrent).then(|| Limit::new(bytes));
        progress.step(format!("{title}: lookups"));
        let mut hits = Rounds::new(entrants.len());
        let mut misses = Rounds::new(entrants.len());
        for round in 0..effort.rounds {
            progress.part(round, effort.rounds);
            with_keys(kind, keys::present(n, effort.probes, round), |keys| {
                hits.measure(&entrants, limit.as_ref(), round, keys);
            });
            with_keys(kind, keys::absent(effort.probes, round), |keys| {
                misses.measure(&entrants, limit.as_ref(), round, keys);
            });
        }

        let probes = effort.rounds * effort.probes;
        let mut scores = Vec::new();
        for (index, Entrant { ours, peer }) in entrants.iter().enumerate() {
            let lost = probes - hits.found[index];
            if lost > 0 {
                return Err(format!("{title}: {} does not find {lost} of its keys", peer.name()).into());
            }
            scores.push(Score {
                name: peer.name(),
                mode: peer.mode(),
                ours: *ours,
                insert: peer.grows().then(|| smoothed_mean(&inserts[index])),
                hit: median(&hits.times[index]),
                miss: median(&misses.times[index]),
                fpr: misses.found[index] as f64 / probes as f64,
                bits_per_key: peer.bytes() as f64 * 8.0 / n as f64,
            });
        }
        let limit = limit.map(|_| Lookups { hit: hits.limit(), miss: misses.limit() });
        Ok(Outcome { contest: self, scores, limit })
    }

    /// Empty filters, each sized for this contest's error at this contest's number of keys.
    fn entrants(&self) -> Result<Vec<Entrant>, Box<dyn Error>> {
        let Self { case, n, error, kind } = *self;
        let mut entrants = Vec::new();
        let mut enter = |ours, peer| entrants.push(Entrant { ours, peer });
        let ours = match case {
            Case::Concurrent => Spec::bloom(n, error),
            Case::Counting => Spec::counting(n, error),
        };
        for mode in [Mode::Single, Mode::Batch] {
            if case == Case::Counting && mode == Mode::Single && n > THOROUGH_KEYS_MAX {
                continue;
            }
            enter(true, Box::new(Umbel::new("umbel", mode, &ours)?));
            if case == Case::Counting {
                enter(false, Box::new(Umbel::new("bloom", mode, &Spec::bloom(n, error))?));
            }
        }
        if case == Case::Concurrent {
            enter(false, Box::new(Fast::new(n, error)));
            enter(false, Box::new(FastAtomic::new(n, error)));
            enter(false, Box::new(SplitBlock::new(n, error)));
            // Guava takes keys, not hashes.
            if kind == Kind::Text && (n <= THOROUGH_KEYS_MAX || error < LOOSE_ERROR) {
                let spec = Spec::hosted(Layout::Guava, n, error);
                enter(false, Box::new(Umbel::new("classic", Mode::Single, &spec)?));
            }
            if n <= FUSE_KEYS_MAX {
                enter(false, Box::new(Fuse::new(n)));
            }
        }
        Ok(entrants)
    }

    /// Fills all filters, chunk by chunk in turn, and notes the time of each chunk. Memory that a filter has
    /// reserved but not touched before is counted against it.
    fn fill(
        &self,
        entrants: &mut [Entrant],
        times: &mut Vec<Vec<f64>>,
        progress: &Progress,
    ) -> Result<(), Box<dyn Error>> {
        times.resize(entrants.len(), Vec::new());
        for (turn, start) in (0..self.n).step_by(CHUNK as usize).enumerate() {
            if self.n > CHUNK {
                progress.part(start, self.n);
            }
            let numbers = start..self.n.min(start + CHUNK);
            with_keys(self.kind, numbers, |keys| -> Result<(), Box<dyn Error>> {
                for index in turns(entrants.len(), turn) {
                    let (time, new) = per_item(keys.len(), || entrants[index].peer.insert(keys));
                    new?;
                    times[index].push(time);
                }
                Ok(())
            })?;
        }
        entrants.iter_mut().try_for_each(|entrant| entrant.peer.seal())
    }
}

/// All entrants, another one first each time, so that none always follows the same one.
fn turns(entrants: usize, turn: usize) -> impl Iterator<Item = usize> {
    (0..entrants).map(move |index| (index + turn) % entrants)
}

/// Times and answers of rounds of lookups, for each entrant.
struct Rounds {
    times: Vec<Vec<f64>>,
    found: Vec<u64>,
    limits: [Vec<f64>; AHEAD.len()],
}

impl Rounds {
    fn new(entrants: usize) -> Self {
        Self { times: vec![Vec::new(); entrants], found: vec![0; entrants], limits: Default::default() }
    }

    fn measure(&mut self, entrants: &[Entrant], limit: Option<&Limit>, round: u64, keys: Keys<'_>) {
        let (warm_up, timed) = keys.split_at(keys.len() / WARM_UP);
        for index in turns(entrants.len(), round as usize) {
            let peer = &entrants[index].peer;
            let before = peer.contains(warm_up);
            let (time, found) = per_item(timed.len(), || peer.contains(timed));
            self.times[index].push(time);
            self.found[index] += (before + found) as u64;
        }
        if let (Some(limit), Keys::Ready { fingerprints, .. }) = (limit, timed) {
            let times = limit.measure(fingerprints);
            self.limits.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
        }
    }

    fn limit(&self) -> f64 {
        self.limits.iter().map(|times| median(times)).fold(f64::INFINITY, f64::min)
    }
}
