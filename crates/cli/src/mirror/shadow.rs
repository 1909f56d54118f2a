//! The new server: it is sent what the old one was, in the same order, and its replies are compared. Whatever becomes of it, nobody waits for
//! it but the thread that does this.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::chance::{asked, rate};
use super::compare::{Difference, Tally, agree, check, is_lookup, name};
use super::follow::OWN_NAME;
use crate::resp::{Address, Connection, Value};

/// Commands that wait for the new server, at most.
const QUEUE_MAX: usize = 65_536;
/// Bytes of them.
const QUEUE_BYTES_MAX: u64 = 64 << 20;
/// Commands that are sent at once.
const BATCH_MAX: usize = 128;
/// How long the new server may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is left alone after it failed.
const REST: Duration = Duration::from_millis(500);
/// When lookups that differ are asked for once more: what was under way has come through by then.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Commands that wait for that.
const AGAIN_MAX: usize = 8192;
/// How often somebody looks whether it is the end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A command that the old server had.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) words: Vec<Vec<u8>>,
    /// What it said, if that is known.
    pub(crate) reply: Option<Value>,
}

impl Seen {
    fn bytes(&self) -> u64 {
        self.words.iter().map(|word| word.len() as u64 + 32).sum()
    }
}

/// The error rates of the old filter and of the new one, as far as they say.
type Rates = [Option<f64>; 2];

/// What all parts of a mirror share.
#[derive(Debug)]
pub(crate) struct Shared {
    tally: Mutex<Tally>,
    queued_bytes: AtomicU64,
    /// Why the new server does not answer, if it does not.
    trouble: Mutex<Option<String>>,
    /// Differences that nobody was told of yet.
    news: Mutex<VecDeque<Difference>>,
}

impl Shared {
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn take_news(&self) -> Vec<Difference> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }

    fn differs(&self, words: &[Vec<u8>], old: &Value, new: &Value) {
        let difference = Difference::of(words, old, new);
        self.tell(difference.clone());
        self.tally().differs(&name(words), difference);
    }

    /// Replies that differ as those of two filters do now and then.
    fn differs_perhaps(&self, words: &[Vec<u8>], old: &Value, new: &Value, rates: Rates) {
        let is_chance = self.tally().chance.differs(words, old, new, rates);
        self.tell(Difference { is_chance, ..Difference::of(words, old, new) });
    }

    fn tell(&self, difference: Difference) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if news.len() < AGAIN_MAX {
            news.push_back(difference);
        }
    }
}

/// Where commands go that the old server had.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    sender: SyncSender<Seen>,
    pub(crate) shared: Arc<Shared>,
}

impl Queue {
    /// A queue, and what takes commands out of it.
    pub(crate) fn new(old: Address, new: Address) -> (Self, Shadow) {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let shared = Arc::new(Shared {
            tally: Mutex::default(),
            queued_bytes: AtomicU64::new(0),
            trouble: Mutex::default(),
            news: Mutex::default(),
        });
        let shadow = Shadow {
            receiver,
            shared: Arc::clone(&shared),
            old: Side::new(old),
            new: Side::new(new),
            again: VecDeque::new(),
        };
        (Self { sender, shared }, shadow)
    }

    /// Lets the new server have a command. If too many wait already, it is missed: nobody waits here.
    pub(crate) fn push(&self, seen: Seen) {
        let bytes = seen.bytes();
        let before = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let pushed = match before + bytes > QUEUE_BYTES_MAX {
            true => Err(()),
            false => self.sender.try_send(seen).map_err(|error: TrySendError<Seen>| drop(error)),
        };
        if pushed.is_err() {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.missed(1);
        }
    }

    /// Commands went by that the new server is not sent.
    pub(crate) fn missed(&self, commands: u64) {
        self.shared.tally().missed += commands;
    }
}

/// A server that is asked, and connected to when that is needed.
#[derive(Debug)]
struct Side {
    address: Address,
    connection: Option<Connection>,
    rests_until: Option<Instant>,
}

impl Side {
    fn new(address: Address) -> Self {
        Self { address, connection: None, rests_until: None }
    }

    fn ask(&mut self, requests: &[Vec<Vec<u8>>]) -> Result<Vec<Value>, String> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return Err(format!("{}: it is left alone for a moment", self.address));
        }
        let asked = match &mut self.connection {
            Some(connection) => connection.ask_all(requests),
            None => Connection::open(&self.address, PATIENCE).and_then(|mut connection| {
                // Whoever follows the old server knows by it whom not to follow. A server that knows no names does no harm.
                connection.ask(&["CLIENT", "SETNAME", OWN_NAME])?;
                let replies = connection.ask_all(requests);
                self.connection = Some(connection);
                replies
            }),
        };
        self.rests_until = None;
        if asked.is_err() {
            self.connection = None;
            self.rests_until = Some(Instant::now() + REST);
        }
        asked
    }

    fn rest(&self) {
        if let Some(until) = self.rests_until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// What both are to be asked once more.
#[derive(Debug)]
struct Again {
    /// What it is counted as.
    words: Vec<Vec<u8>>,
    asked: Vec<Vec<u8>>,
    /// What both said to an add: one that a key was there, the other that it was not. Now both have to have it.
    said: Option<(Value, Value)>,
    at: Instant,
}

impl Again {
    fn new(words: Vec<Vec<u8>>, asked: Vec<Vec<u8>>, said: Option<(Value, Value)>) -> Self {
        Self { words, asked, said, at: Instant::now() + AGAIN_AFTER }
    }
}

/// Whether a reply says of all items that they are there.
fn has_all(reply: &Value) -> bool {
    matches!(reply, Value::Array(values) if values.iter().all(|value| *value == Value::Integer(1)))
}

/// Whoever sends commands to the new server.
#[derive(Debug)]
pub(crate) struct Shadow {
    receiver: Receiver<Seen>,
    shared: Arc<Shared>,
    old: Side,
    new: Side,
    again: VecDeque<Again>,
}

impl Shadow {
    /// Goes on until all queues to it are gone and empty, or `is_over` says that nobody wants to wait for that.
    pub(crate) fn run(mut self, is_over: impl Fn() -> bool) {
        loop {
            match self.receiver.recv_timeout(LOOK_EVERY) {
                Ok(first) => {
                    let batch: Vec<Seen> =
                        std::iter::once(first).chain(self.receiver.try_iter().take(BATCH_MAX - 1)).collect();
                    let bytes = batch.iter().map(Seen::bytes).sum();
                    self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                    self.pass_on(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.ask_again(Instant::now());
            if is_over() {
                break;
            }
        }
        let left = self.receiver.try_iter().count() as u64;
        self.shared.tally().missed += left;
        // What was under way has had its time, or gets it now.
        if let Some(last) = self.again.back() {
            std::thread::sleep(last.at.saturating_duration_since(Instant::now()));
        }
        self.ask_again(Instant::now() + AGAIN_AFTER);
    }

    fn pass_on(&mut self, batch: Vec<Seen>) {
        // Lookups whose first reply nobody knows are asked for with the checks below.
        let is_sent = |seen: &&Seen| seen.reply.is_some() || !is_lookup(&name(&seen.words));
        let requests: Vec<_> = batch.iter().filter(is_sent).map(|seen| seen.words.clone()).collect();
        let replies = match self.new.ask(&requests) {
            Ok(replies) => replies,
            Err(why) => return self.failed(batch.len() as u64, why),
        };
        let mut replies = replies.into_iter();
        let mut checks = Vec::new();
        for seen in batch {
            let new = if is_sent(&&seen) { replies.next() } else { None };
            match (seen.reply, new) {
                (Some(old), Some(new)) => self.compare(seen.words, &old, &new),
                _ => checks.push(seen.words),
            }
        }
        self.check(checks);
    }

    fn compare(&mut self, words: Vec<Vec<u8>>, old: &Value, new: &Value) {
        let command = name(&words);
        let mut tally = self.shared.tally();
        let is_known = tally.chance.take(&words, old, new);
        if agree(old, new) {
            return tally.count(&command, true);
        }
        drop(tally);
        let has_room = self.again.len() < AGAIN_MAX;
        match check(&words) {
            Some(asked) if has_room && is_lookup(&command) => {
                self.again.push_back(Again::new(words, asked, None));
            }
            Some(asked) if has_room && is_known => {
                let said = Some((old.clone(), new.clone()));
                self.again.push_back(Again::new(words, asked, said));
            }
            _ => self.shared.differs(&words, old, new),
        }
    }

    /// Asks both what commands have left.
    fn check(&mut self, commands: Vec<Vec<Vec<u8>>>) {
        let (mut known, mut asked) = (Vec::new(), Vec::new());
        for words in commands {
            match check(&words) {
                Some(check) => {
                    known.push(words);
                    asked.push(check);
                }
                None => self.shared.tally().unchecked += 1,
            }
        }
        let answers = self.old.ask(&asked).and_then(|old| Ok((old, self.new.ask(&asked)?)));
        match answers {
            Err(why) => self.failed(known.len() as u64, why),
            Ok((old, new)) => {
                for (((words, asked), old), new) in known.into_iter().zip(asked).zip(old).zip(new) {
                    let mut tally = self.shared.tally();
                    tally.chance.take(&asked, &old, &new);
                    if agree(&old, &new) {
                        tally.count(&name(&words), true);
                        continue;
                    }
                    drop(tally);
                    if self.again.len() < AGAIN_MAX {
                        self.again.push_back(Again::new(words, asked, None));
                    } else {
                        self.shared.differs(&words, &old, &new);
                    }
                }
            }
        }
    }

    /// Asks both once more for what differed; from then on it does, or is chance.
    fn ask_again(&mut self, now: Instant) {
        let due = self.again.iter().take(BATCH_MAX).take_while(|again| again.at <= now).count();
        let due: Vec<Again> = self.again.drain(..due).collect();
        let asked: Vec<_> = due.iter().map(|again| again.asked.clone()).collect();
        let (old, new) = match self.old.ask(&asked).and_then(|old| Ok((old, self.new.ask(&asked)?))) {
            Err(why) => return self.failed(due.len() as u64, why),
            Ok(both) => both,
        };
        let mut rates = HashMap::new();
        for ((again, old), new) in due.into_iter().zip(old).zip(new) {
            let Again { words, said, .. } = again;
            match said {
                // One of them took the key for its own before it was.
                Some((first_old, first_new)) if has_all(&old) && has_all(&new) => {
                    let rates = self.rates(&words, &mut rates);
                    self.shared.differs_perhaps(&words, &first_old, &first_new, rates);
                }
                Some((first_old, first_new)) => self.shared.differs(&words, &first_old, &first_new),
                None if agree(&old, &new) => {
                    let mut tally = self.shared.tally();
                    tally.raced += 1;
                    tally.count(&name(&words), true);
                }
                None if is_lookup(&name(&words)) && self.shared.tally().chance.take(&words, &old, &new) => {
                    let rates = self.rates(&words, &mut rates);
                    self.shared.differs_perhaps(&words, &old, &new, rates);
                }
                // What was added is there, whatever else may be by chance.
                None => self.shared.differs(&words, &old, &new),
            }
        }
    }

    /// The error rates of a command's filter, asked for once and then known.
    fn rates(&mut self, words: &[Vec<u8>], known: &mut HashMap<Vec<u8>, Rates>) -> Rates {
        let Some((filter, _)) = asked(words) else { return [None, None] };
        if let Some(rates) = known.get(filter) {
            return *rates;
        }
        let request = [vec![b"BF.DEBUG".to_vec(), filter.to_vec()]];
        let rates = [&mut self.old, &mut self.new]
            .map(|side| side.ask(&request).ok().and_then(|mut told| rate(told.pop()?)));
        known.insert(filter.to_vec(), rates);
        rates
    }

    /// Nothing came of some commands.
    fn failed(&mut self, commands: u64, why: String) {
        self.shared.tally().missed += commands;
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        // What comes meanwhile waits in the queue, as long as there is room.
        self.new.rest();
        self.old.rest();
    }
}
