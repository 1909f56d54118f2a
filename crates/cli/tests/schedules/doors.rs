//! Requests at the door of every node without a pause, to see which doors answer, and when.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::history::{Change, History, Look, Read};
use crate::nodes::{Connection, Nodes, PORT, at, words};
use crate::{Chance, Stop};

/// Keys of one request: enough to be of nearly all partitions.
const BATCH: usize = 24;
/// How long a client waits for a reply: longer than anything here is broken.
const REPLY: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(50);
/// An answer that takes longer is not counted as the answer of a door that works. One try at a node that does not answer takes a second.
const SLOW: Duration = Duration::from_millis(1500);

/// One request and its end.
struct Asked {
    door: usize,
    is_add: bool,
    begun: Duration,
    done: Duration,
    /// Why it was not done, if so.
    refusal: Option<String>,
}

/// What came of requests at all doors between two moments.
pub(crate) struct Asks {
    asked: Vec<Asked>,
    /// Adds without an acknowledgement, and when they were begun.
    pub(crate) open: Vec<(String, Duration)>,
    from: Duration,
    to: Duration,
}

/// Breaks something, and mends it after some time. Meanwhile, and before and after that, each door is asked to add and to look up.
pub(crate) fn ask_all_doors(
    all: &mut Nodes,
    prefix: &str,
    history: &History,
    broken: Duration,
    breaks: impl FnOnce(&mut Nodes),
    mends: impl FnOnce(&mut Nodes),
) -> Asks {
    let addresses: Vec<String> = all.nodes.iter().map(|node| node.address.clone()).collect();
    let (asked, open, stop) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()), AtomicBool::new(false));
    let (mut from, mut to) = (Duration::ZERO, Duration::ZERO);
    let (tells, told): (Vec<_>, Vec<_>) = addresses.iter().map(|_| channel::<Vec<String>>()).unzip();
    std::thread::scope(|scope| {
        for ((door, address), told) in addresses.iter().enumerate().zip(told) {
            let (asked, open, stop) = (&asked, &open, &stop);
            let note = move |is_add, begun, outcome: Result<(), String>| {
                let (done, refusal) = (history.now(), outcome.err());
                asked.lock().unwrap().push(Asked { door, is_add, begun, done, refusal });
            };
            let others = tells.iter().enumerate().filter(move |(other, _)| *other != door);
            let others: Vec<_> = others.map(|(_, tell)| tell.clone()).collect();
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let begun = history.now();
                    let added = add(address, &format!("{prefix}:{door}:{number}"), history, open);
                    if let Ok(keys) = &added {
                        others.iter().for_each(|tell| _ = tell.send(keys.clone()));
                    }
                    note(true, begun, added.map(drop));
                    std::thread::sleep(PAUSE);
                }
            });
            scope.spawn(move || {
                let mut chance = Chance(door as u64);
                while !stop.load(Ordering::Relaxed) {
                    // What another door has just acknowledged is looked up here at once.
                    let newest =
                        told.recv_timeout(PAUSE).ok().map(|first| told.try_iter().last().unwrap_or(first));
                    let keys = newest.unwrap_or_else(|| history.some_keys(chance.next(), BATCH));
                    let begun = history.now();
                    note(false, begun, look(address, keys, history));
                }
            });
        }
        drop(tells);
        let _stops = Stop(&stop);
        std::thread::sleep(Duration::from_secs(1));
        breaks(all);
        from = history.now();
        std::thread::sleep(broken);
        to = history.now();
        mends(all);
        std::thread::sleep(Duration::from_secs(1));
    });
    Asks { asked: asked.into_inner().unwrap(), open: open.into_inner().unwrap(), from, to }
}

fn ask(address: &str, words: &[String]) -> Result<crate::nodes::Value, String> {
    let mut connection = Connection::open(at(address, PORT), REPLY)?;
    connection.send(words)?;
    connection.receive()
}

fn add(
    address: &str,
    prefix: &str,
    history: &History,
    open: &Mutex<Vec<(String, Duration)>>,
) -> Result<Vec<String>, String> {
    let keys: Vec<String> = (0..BATCH).map(|key| format!("{prefix}:{key}")).collect();
    history.knows(&keys);
    let begun = history.now();
    match ask(address, &[words("UMBEL.ADD seen ITEMS"), keys.clone()].concat()) {
        Ok(reply) => {
            let (done, position) = (history.now(), crate::position(&reply));
            let change = |key| Change { key, adds: true, begun, done, position: position.clone() };
            history.changed(keys.iter().cloned().map(change));
            Ok(keys)
        }
        Err(why) => {
            history.refused();
            open.lock().unwrap().extend(keys.into_iter().map(|key| (key, begun)));
            Err(why)
        }
    }
}

fn look(address: &str, mut keys: Vec<String>, history: &History) -> Result<(), String> {
    keys.retain(|key| key.starts_with("seen"));
    if keys.is_empty() {
        return Ok(());
    }
    let begun = history.now();
    let reply = ask(address, &[words("UMBEL.EXISTS seen ITEMS"), keys.clone()].concat());
    let reply = reply.inspect_err(|_| history.refused())?;
    let (done, position) = (history.now(), crate::position(&reply));
    let told: Vec<(String, String)> = keys
        .into_iter()
        .zip(reply.field("answers").list().iter().map(|answer| answer.text().to_owned()))
        .collect();
    let unknown = told.iter().filter(|(_, answer)| answer == "unknown").count();
    let looks = told.into_iter().filter(|(_, answer)| answer != "unknown").map(|(key, answer)| Look {
        key,
        read: Read::Current,
        begun,
        done,
        is_there: answer == "maybe",
        position: position.clone(),
    });
    history.looked(looks);
    if unknown == 0 { Ok(()) } else { Err(format!("{unknown} answers of {BATCH} are unknown")) }
}

/// How one door did while something was broken.
pub(crate) struct Door {
    pub(crate) done: usize,
    pub(crate) refused: usize,
    /// After how long it did all that it was asked, none of it slowly; `None` if it did not until the end.
    pub(crate) back: Option<Duration>,
    /// The longest time from a request, or a grace if that is later, to its answer.
    pub(crate) longest: Duration,
    /// The refusal that came most often.
    refusal: String,
}

impl Asks {
    /// Of adds or lookups at one door. Waits for an answer count from `grace` after the break on.
    pub(crate) fn door(&self, door: usize, is_add: bool, grace: Duration) -> Door {
        let meanwhile = |asked: &&Asked| {
            asked.door == door && asked.is_add == is_add && asked.done > self.from && asked.begun < self.to
        };
        let all: Vec<&Asked> = self.asked.iter().filter(meanwhile).collect();
        let is_bad = |asked: &&&Asked| asked.refusal.is_some() || asked.done - asked.begun > SLOW;
        let last_bad = all.iter().filter(is_bad).map(|asked| asked.done).max().unwrap_or(self.from);
        let is_back = all.iter().any(|asked| asked.begun >= last_bad) && last_bad < self.to;
        let mut refusals: HashMap<&str, usize> = HashMap::new();
        for why in all.iter().filter_map(|asked| asked.refusal.as_deref()) {
            *refusals.entry(why).or_default() += 1;
        }
        let wait = |asked: &&Asked| asked.done.saturating_sub(asked.begun.max(self.from + grace));
        Door {
            done: all.iter().filter(|asked| asked.refusal.is_none()).count(),
            refused: all.iter().filter(|asked| asked.refusal.is_some()).count(),
            back: is_back.then(|| last_bad - self.from),
            longest: all.iter().map(wait).max().unwrap_or_default(),
            refusal: refusals
                .into_iter()
                .max_by_key(|(_, count)| *count)
                .map_or("", |(why, _)| why)
                .to_owned(),
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "done {}, refused {}, ", self.done, self.refused)?;
        match self.back {
            Some(back) => write!(f, "back after {:.1} s", back.as_secs_f64())?,
            None => write!(f, "NOT back")?,
        }
        write!(f, ", longest wait {:.1} s", self.longest.as_secs_f64())?;
        if self.refusal.is_empty() { Ok(()) } else { write!(f, " ({})", self.refusal) }
    }
}

/// Waits until each of these doors has done an add and a lookup while something is broken; returns keys whose adds stayed open.
pub(crate) fn doors_work(
    all: &Nodes,
    doors: &[usize],
    prefix: &str,
    history: &History,
    bound: Duration,
) -> Vec<(String, Duration)> {
    let open = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for door in doors {
            let (address, open) = (&all.nodes[*door].address, &open);
            scope.spawn(move || {
                let end = Instant::now() + bound;
                for number in 0.. {
                    let added = add(address, &format!("{prefix}:{door}:{number}"), history, open);
                    let outcome = added.and_then(|keys| look(address, keys, history));
                    let Err(why) = outcome else { return };
                    assert!(
                        Instant::now() < end,
                        "node{} reaches a majority, and does not do what it is asked: {why}",
                        door + 1
                    );
                    std::thread::sleep(PAUSE);
                }
            });
        }
    });
    open.into_inner().unwrap()
}

/// A door answers, whatever the answer is, before a client gives it up.
pub(crate) fn door_answers(all: &Nodes, door: usize, history: &History) {
    let mut keys = history.some_keys(0, BATCH);
    keys.retain(|key| key.starts_with("seen"));
    let command = [words("UMBEL.EXISTS seen ITEMS"), keys].concat();
    let outcome = crate::nodes::call(&all.nodes[door].address, &command);
    let is_answer = outcome.as_ref().map_or_else(|why| why.starts_with('-'), |_| true);
    assert!(is_answer, "node{} let a request hang: {outcome:?}", door + 1);
}
