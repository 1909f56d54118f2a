//! Clients of a cluster: writers that note what was acknowledged and when, and readers that ask for it at any node.

use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::{ANSWER_TIME, FILTER};
use crate::session::link::{Link, Trouble};
use crate::step::Failure;

pub(super) const WRITERS: usize = 4;
pub(super) const READERS: usize = 2;
/// Keys of a request.
pub(super) const BATCH: u64 = 100;
/// Keys with which all partitions are asked.
const FIRST_KEYS: u64 = 2000;
/// Pause before what was refused is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// What clients do, and what they saw.
pub(super) struct Traffic {
    begun: Instant,
    is_over: AtomicBool,
    /// Nodes that clients know of. They are not told which of them live.
    ports: Mutex<Vec<u16>>,
    /// How many batches of each writer were acknowledged; they come in order.
    acknowledged: [AtomicU64; WRITERS],
    /// When.
    times: Mutex<Vec<Duration>>,
    writes: Refusals,
    reads: Refusals,
    looks: AtomicU64,
    /// Keys that were acknowledged before somebody was told that they are absent, and by which node.
    wrong: Mutex<Vec<(String, u16)>>,
    /// Why a client could not go on.
    failure: Mutex<Option<String>>,
}

/// Requests that were not done at once.
#[derive(Default)]
pub(super) struct Refusals {
    /// A node said so.
    refused: AtomicU64,
    /// There was no node, it went, or it did not answer in time.
    unreached: AtomicU64,
}

impl Refusals {
    fn note(&self, trouble: &Trouble) {
        let count = match trouble {
            Trouble::Refused(_) => &self.refused,
            Trouble::Away(_) => &self.unreached,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Display for Refusals {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let [refused, unreached] =
            [&self.refused, &self.unreached].map(|count| count.load(Ordering::Relaxed));
        write!(out, "{refused} by a node, {unreached} without a connection or an answer")
    }
}

/// Ends the clients' work, whatever happens.
pub(super) struct Stop<'a>(pub(super) &'a Traffic);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// What is behind a lock is whole even if somebody died while having it: every change is one push or assignment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(writer: usize, number: u64) -> String {
    format!("writer:{writer}:{number}")
}

impl Traffic {
    pub(super) fn new(ports: Vec<u16>) -> Self {
        Self {
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
            ports: Mutex::new(ports),
            acknowledged: Default::default(),
            times: Mutex::default(),
            writes: Refusals::default(),
            reads: Refusals::default(),
            looks: AtomicU64::new(0),
            wrong: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Sets all clients to work.
    pub(super) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        for writer in 0..WRITERS {
            scope.spawn(move || self.note(self.write(writer)));
        }
        for reader in 0..READERS {
            scope.spawn(move || self.note(self.read(reader)));
        }
    }

    fn note(&self, outcome: Result<(), Trouble>) {
        if let Err(trouble) = outcome {
            locked(&self.failure).get_or_insert_with(|| trouble.to_string());
        }
    }

    /// Whether a client was told what it must not be told.
    pub(super) fn failure(&self) -> Result<(), Failure> {
        locked(&self.failure).clone().map_or(Ok(()), |why| Err(why.into()))
    }

    /// Tells clients of one more node.
    pub(super) fn knows(&self, port: u16) {
        locked(&self.ports).push(port);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Adds batch after batch. What is refused, or broken off, is sent again to the next node: to add a key twice does no harm.
    fn write(&self, writer: usize) -> Result<(), Trouble> {
        // One half of the clients speaks to RedisBloom, as far as they know.
        let command: &[&str] =
            if writer.is_multiple_of(2) { &["UMBEL.ADD", FILTER, "ITEMS"] } else { &["BF.MADD", FILTER] };
        let (mut turn, mut batch, mut clients) = (writer, 0, Clients::default());
        while !self.is_over() {
            let keys: Vec<String> =
                (batch * BATCH..(batch + 1) * BATCH).map(|number| key(writer, number)).collect();
            let port = self.port(turn);
            match clients.each(port, command, &keys) {
                Ok(_) => {
                    batch += 1;
                    locked(&self.times).push(self.begun.elapsed());
                    self.acknowledged[writer].store(batch, Ordering::Release);
                }
                Err(trouble) if trouble.is_passing() => {
                    self.writes.note(&trouble);
                    turn += 1;
                    std::thread::sleep(RETRY);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Asks for keys that were acknowledged, at one node after another.
    fn read(&self, reader: usize) -> Result<(), Trouble> {
        let (mut turn, mut clients, mut chance) = (reader, Clients::default(), 0x9e37_79b9_7f4a_7c15_u64);
        while !self.is_over() {
            turn += 1;
            let writer = turn % WRITERS;
            let batches = self.acknowledged[writer].load(Ordering::Acquire);
            if batches == 0 {
                std::thread::sleep(RETRY);
                continue;
            }
            // Every other time the newest keys, which a copy that is behind would not have.
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let batch = if turn % 2 == 0 { batches - 1 } else { (chance >> 33) % batches };
            let keys: Vec<String> =
                (batch * BATCH..(batch + 1) * BATCH).map(|number| key(writer, number)).collect();
            let port = self.port(turn / WRITERS);
            match clients.each(port, &["BF.MEXISTS", FILTER], &keys) {
                Ok(answers) => {
                    self.looks.fetch_add(BATCH, Ordering::Relaxed);
                    let absent = keys.into_iter().zip(answers).filter(|(_, answer)| *answer == 0);
                    locked(&self.wrong).extend(absent.map(|(key, _)| (key, port)));
                }
                Err(trouble) if trouble.is_passing() => {
                    self.reads.note(&trouble);
                    std::thread::sleep(RETRY);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    fn port(&self, turn: usize) -> u16 {
        let ports = locked(&self.ports);
        ports[turn % ports.len()]
    }

    /// Keys that were acknowledged.
    pub(super) fn keys(&self) -> u64 {
        self.acknowledged.iter().map(|batches| batches.load(Ordering::Acquire)).sum::<u64>() * BATCH
    }

    /// All keys that were acknowledged, some at a time.
    pub(super) fn some_keys(&self, together: u64) -> impl Iterator<Item = Vec<String>> {
        self.acknowledged.iter().enumerate().flat_map(move |(writer, batches)| {
            let keys = batches.load(Ordering::Acquire) * BATCH;
            (0..keys).step_by(together as usize).map(move |first| {
                (first..keys.min(first + together)).map(|number| key(writer, number)).collect()
            })
        })
    }

    /// As many keys as let every partition be asked, if there are so many.
    pub(super) fn first_keys(&self) -> Vec<String> {
        self.some_keys(FIRST_KEYS).next().unwrap_or_default()
    }

    /// Answers for single keys.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// What was not done at once, of writes and of reads.
    pub(super) fn refusals(&self) -> [&Refusals; 2] {
        [&self.writes, &self.reads]
    }

    /// Requests that a node refused.
    pub(super) fn refused(&self) -> u64 {
        self.refusals().iter().map(|refusals| refusals.refused.load(Ordering::Relaxed)).sum()
    }

    /// Wrong answers: the key, and the port of the node.
    pub(super) fn wrong(&self) -> Vec<(String, u16)> {
        locked(&self.wrong).clone()
    }

    /// The longest time in which no write was acknowledged.
    pub(super) fn longest_wait(&self) -> Duration {
        let mut times = locked(&self.times).clone();
        times.sort_unstable();
        times.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
    }
}

/// The connections of a client, one to each node. One that fails is made anew.
#[derive(Default)]
struct Clients {
    links: HashMap<u16, Link>,
}

impl Clients {
    fn each(&mut self, port: u16, command: &[&str], keys: &[String]) -> Result<Vec<i64>, Trouble> {
        let mut link = match self.links.remove(&port) {
            Some(link) => link,
            None => Link::patient(port, ANSWER_TIME)?,
        };
        let answers = link.each(command, keys)?;
        self.links.insert(port, link);
        Ok(answers)
    }
}
