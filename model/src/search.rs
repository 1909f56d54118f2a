//! Breadth-first search through all states.

use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use crate::state::State;
use crate::system::{Action, Configuration, Sight};

/// How often progress is told, in states.
const TELL_EVERY: usize = 1 << 18;

/// The outcome of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Different states that were reached.
    pub states: usize,
    /// Steps that were tried.
    pub steps: usize,
    /// Steps on the way to the last state, by the shortest way.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// Whether a wrong state was found.
    pub verdict: Verdict,
    /// What was seen on the way.
    pub seen: Vec<Sight>,
}

/// Whether a wrong state was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no state left, and none is wrong.
    Holds,
    /// The shortest way to a wrong state, and what is wrong there.
    Broken {
        /// The first state.
        from: State,
        /// The steps, each with the state that it led to.
        way: Vec<(Action, State)>,
        /// What is wrong.
        fault: &'static str,
    },
    /// There are more states than the search may hold.
    Unfinished,
}

/// How far a search is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Different states that were reached.
    pub states: usize,
    /// Those whose next steps were not tried yet.
    pub waiting: usize,
    /// Steps on the way to the present states.
    pub depth: usize,
}

/// Visits all states of a configuration, the nearest first, and stops at a wrong one or at `states_max`.
pub fn search(configuration: &Configuration, states_max: usize, mut tell: impl FnMut(Progress)) -> Outcome {
    let start = Instant::now();
    let mut visited = Visited::default();
    for state in configuration.initial() {
        visited.insert(state, u32::MAX);
    }
    let mut seen = Vec::new();
    let (mut next, mut level_end, mut depth, mut steps) = (0, visited.states.len(), 0, 0);
    let mut verdict = Verdict::Holds;
    while next < visited.states.len() {
        if next == level_end {
            (depth, level_end) = (depth + 1, visited.states.len());
        }
        let state = visited.states[next];
        if let Some(fault) = configuration.fault(&state) {
            let (from, way) = visited.way_to(configuration, next);
            verdict = Verdict::Broken { from, way, fault };
            break;
        }
        for sight in Sight::ALL {
            if !seen.contains(&sight) && configuration.shows(&state, sight) {
                seen.push(sight);
            }
        }
        if visited.states.len() >= states_max.min(u32::MAX as usize - 1) {
            verdict = Verdict::Unfinished;
            break;
        }
        configuration.steps(&state, |_, to| {
            steps += 1;
            visited.insert(to, next as u32);
        });
        next += 1;
        if next % TELL_EVERY == 0 {
            tell(Progress { states: visited.states.len(), waiting: visited.states.len() - next, depth });
        }
    }
    Outcome { states: visited.states.len(), steps, depth, time: start.elapsed(), verdict, seen }
}

/// All states that were reached, in the order in which they were.
#[derive(Default)]
struct Visited {
    states: Vec<State>,
    /// Of each state, the one from which it was reached first.
    parents: Vec<u32>,
    /// Numbers of states by hash, with open addressing; 0 is free, and others are one more than the number.
    table: Vec<u32>,
}

impl Visited {
    fn insert(&mut self, state: State, parent: u32) {
        if self.states.len() * 4 >= self.table.len() * 3 {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut place = hash(&state) as usize & mask;
        while self.table[place] != 0 {
            if self.states[self.table[place] as usize - 1] == state {
                return;
            }
            place = (place + 1) & mask;
        }
        self.states.push(state);
        self.parents.push(parent);
        self.table[place] = self.states.len() as u32;
    }

    fn grow(&mut self) {
        let size = (self.table.len() * 2).max(1 << 12);
        self.table.clear();
        self.table.resize(size, 0);
        for (number, state) in self.states.iter().enumerate() {
            let mut place = hash(state) as usize & (size - 1);
            while self.table[place] != 0 {
                place = (place + 1) & (size - 1);
            }
            self.table[place] = number as u32 + 1;
        }
    }

    /// The first state, and the steps that lead from it to another one.
    fn way_to(&self, configuration: &Configuration, number: usize) -> (State, Vec<(Action, State)>) {
        let mut way = Vec::new();
        let mut number = number as u32;
        loop {
            let (state, parent) = (self.states[number as usize], self.parents[number as usize]);
            if parent == u32::MAX {
                way.reverse();
                return (state, way);
            }
            let mut found = None;
            configuration.steps(&self.states[parent as usize], |action, to| {
                if to == state && found.is_none() {
                    found = Some(action);
                }
            });
            way.extend(found.map(|action| (action, state)));
            number = parent;
        }
    }
}

fn hash(state: &State) -> u64 {
    Mixer.hash_one(state)
}

/// A hasher that is fast for a few small fields. Nothing depends on it but speed: states are compared whole.
#[derive(Clone, Copy, Default)]
struct Mixer;

impl BuildHasher for Mixer {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(0)
    }
}

struct Mixed(u64);

impl Mixed {
    fn mix(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    }
}
