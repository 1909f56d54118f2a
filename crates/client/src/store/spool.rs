//! Keys that the centre has not acknowledged, in order, in memory and in a file.
//!
//! ```text
//!  | length u32 | kind u8 | payload | CRC32C of kind and payload u32 |
//!    opened:  session u64, sequence u64, filter u64, how it hashes and its first name as text      sequence: the last that is done
//!    adds, removals: 16 bytes for each fingerprint
//!    sealed:  sequence u64, keys u64      the oldest so many keys are one request from here on, whatever happens
//!    done:    sequence u64, position as text      the centre has it, at this position
//!    settled: sequence u64                the copy has it, and all before it
//! ```
//!
//! A request that was sent may have been done although nobody heard of it. So what is in it is on the disk before it is sent, and
//! after a restart it is sent again with the same keys and the same number. Keys that the centre has are kept until the copy has
//! them too: whoever added them would not find them after a restart. When most of the file is over, the rest is written into a
//! new one, which takes its place.

mod target;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use umbel_core::disk::{Disk, DiskFile};
use umbel_core::engine::Token;
use umbel_core::random::Random;
use umbel_filter::Fingerprint;

use super::{Store, read_whole, replace};
use crate::limits::{ANSWERED_KEYS_MAX, REQUEST_KEYS_MAX, SPOOL_FILE_BYTES, SPOOL_FILE_BYTES_MAX};
use crate::overlay::Overlay;
use crate::{Error, Result};
pub(crate) use target::Target;

const NAME: &str = "spool";
const HEAD_BYTES: usize = 5;
const SUM_BYTES: usize = 4;
/// Most keys of a record.
const RECORD_KEYS_MAX: usize = 1 << 16;
const RECORD_BYTES_MAX: usize = 16 * RECORD_KEYS_MAX;

mod tag {
    pub(super) const OPENED: u8 = 1; // persisted, as all tags here
    pub(super) const ADDS: u8 = 2;
    pub(super) const REMOVALS: u8 = 3;
    pub(super) const SEALED: u8 = 4;
    pub(super) const DONE: u8 = 5;
    pub(super) const SETTLED: u8 = 6;
}

/// What is done to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    Remove,
}

/// A request: what is sent at once, and again until it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) session: u64,
    pub(crate) sequence: u64,
    pub(crate) change: Change,
    pub(crate) keys: Vec<Fingerprint>,
    /// How many keys were given, some of them perhaps more than once.
    pub(crate) given: usize,
    /// All tickets up to here are in it or in those before it.
    pub(crate) through: u64,
}

/// A request that the centre has done, and the copy perhaps does not have yet.
#[derive(Debug)]
struct Answered {
    batch: Batch,
    position: Token,
}

#[derive(Debug)]
struct Group {
    change: Change,
    keys: Vec<Fingerprint>,
    ticket: u64,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Option<SpoolFile>,
    session: u64,
    /// The last request that was sealed.
    sequence: u64,
    target: Target,
    sealed: Option<Batch>,
    /// The seal is not known to be on the disk.
    unwritten: bool,
    waiting: VecDeque<Group>,
    keys: usize,
    answered: VecDeque<Answered>,
    answered_keys: usize,
}

#[derive(Debug)]
struct SpoolFile {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// None if it has to be written anew, because it is not known what is in it.
    file: Option<Arc<dyn DiskFile>>,
    length: u64,
}

impl Spool {
    /// The spool of a filter: from the folder, or empty. What is there for another filter is dropped, unless this one took its place.
    pub(crate) fn open(store: Option<&Store>, target: Target, random: &dyn Random) -> Result<Self> {
        let session = random.next().max(1);
        let mut spool = Self {
            file: None,
            session,
            sequence: 0,
            target: target.clone(),
            sealed: None,
            unwritten: false,
            waiting: VecDeque::new(),
            keys: 0,
            answered: VecDeque::new(),
            answered_keys: 0,
        };
        let Some(store) = store else { return Ok(spool) };
        match read_whole(&*store.disk, &store.folder.join(NAME), SPOOL_FILE_BYTES_MAX) {
            Ok(bytes) => spool.replay(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Keys that were acknowledged are in it: better not to begin than to forget them.
            Err(error) => return Err(Error::disk("cannot read the spool", &error)),
        }
        let (disk, folder) = (Arc::clone(&store.disk), store.folder.clone());
        spool.file = Some(SpoolFile { disk, folder, file: None, length: 0 });
        let dropped = spool.go_on_with(target)?;
        if dropped > 0 {
            tracing::warn!(keys = dropped, "keys of a filter that is gone are dropped from the spool");
        }
        Ok(spool)
    }

    /// Makes keys visible that were added before a restart. Gives the ticket of those that the centre has, and where.
    pub(crate) fn show(&mut self, overlay: &Overlay) -> Result<Option<(u64, Token)>> {
        let adds = |batches: &mut dyn Iterator<Item = (Change, &Vec<Fingerprint>)>| -> Vec<Fingerprint> {
            batches.filter(|(change, _)| *change == Change::Add).flat_map(|(_, keys)| keys).copied().collect()
        };
        let ticket = |keys: &[Fingerprint]| {
            let mut ticket = 0;
            overlay.add(keys, |given| {
                ticket = given;
                Ok(())
            })?;
            Ok::<_, Error>(ticket)
        };
        let answered = self.answered.iter().map(|answered| (answered.batch.change, &answered.batch.keys));
        let answered = ticket(&adds(&mut { answered }))?;
        let sealed = self.sealed.iter().map(|batch| (batch.change, &batch.keys));
        let waiting = self.waiting.iter().map(|group| (group.change, &group.keys));
        let ticket = ticket(&adds(&mut sealed.chain(waiting)))?;
        // All of them are at the centre when the last one is.
        match (self.waiting.back_mut(), &mut self.sealed) {
            (Some(last), _) => last.ticket = ticket,
            (None, Some(batch)) => batch.through = ticket,
            (None, None) => {}
        }
        Ok(self.answered.back().map(|last| (answered, last.position.clone())))
    }

    /// The filter that the keys are for.
    pub(crate) fn filter(&self) -> u64 {
        self.target.filter
    }

    /// Goes on with a filter. Keys of another one that is gone are forgotten, unless this one took its place: then they are for this
    /// one. What was sent to the other one may be sent again: the centre remembers requests by their session, whichever filter they
    /// were for. Gives how many keys were forgotten.
    pub(crate) fn go_on_with(&mut self, target: Target) -> Result<usize> {
        let mut forgotten = 0;
        if target.filter != self.target.filter && !target.takes_place_of(&self.target) {
            forgotten = std::mem::take(&mut self.keys);
            self.sealed = None;
            self.unwritten = false;
            self.waiting.clear();
            self.answered.clear();
            self.answered_keys = 0;
        }
        self.target = target;
        self.rewrite()?;
        Ok(forgotten)
    }

    /// Whether it survives a restart.
    pub(crate) fn is_durable(&self) -> bool {
        self.file.is_some()
    }

    /// Keys that were given and are not done.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Keys that are in no request yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().map(|group| group.keys.len()).sum()
    }

    /// Takes keys; they are on the disk when this returns.
    pub(crate) fn push(&mut self, groups: Vec<(Change, Vec<Fingerprint>, u64)>) -> Result<()> {
        let mut records = Vec::new();
        for (change, keys, _) in &groups {
            put_keys(&mut records, *change, keys);
        }
        let (groups_before, keys_before) = (self.waiting.len(), self.keys);
        for (change, keys, ticket) in groups {
            self.keys += keys.len();
            self.waiting.push_back(Group { change, keys, ticket });
        }
        let written = self.write(&records);
        if written.is_err() {
            // Whoever gave them is told that they were not taken.
            self.waiting.truncate(groups_before);
            self.keys = keys_before;
        }
        written
    }

    /// Makes the oldest keys a request, if there are some and none is under way. It may be sent when this returns.
    pub(crate) fn seal(&mut self) -> Result<Option<&Batch>> {
        if self.sealed.is_none() && !self.waiting.is_empty() {
            let batch = self.next_batch(REQUEST_KEYS_MAX);
            self.sequence = batch.sequence;
            self.sealed = Some(batch);
            self.unwritten = true;
        }
        if let Some(batch) = self.sealed.as_ref().filter(|_| self.unwritten) {
            let mut record = Vec::new();
            put(&mut record, tag::SEALED, &[batch.sequence, batch.given as u64]);
            self.write(&record)?;
            self.unwritten = false;
        }
        Ok(self.sealed.as_ref())
    }

    /// The request was answered: the centre has it at a position. This need not be on the disk: sent again, it would be answered
    /// again.
    pub(crate) fn done(&mut self, position: &Token) -> Option<Batch> {
        let batch = self.sealed.take()?;
        self.keys -= batch.given;
        if let Some(file) = &mut self.file {
            let mut record = Vec::new();
            put_done(&mut record, batch.sequence, position);
            file.append(&record);
            self.answer(batch.clone(), position.clone());
        }
        Some(batch)
    }

    /// Remembers what the centre has and the copy perhaps has not, of which the oldest are forgotten when they become too many.
    fn answer(&mut self, batch: Batch, position: Token) {
        self.answered_keys += batch.keys.len();
        self.answered.push_back(Answered { batch, position });
        while self.answered_keys > ANSWERED_KEYS_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> Option<u64> {
        let oldest = self.answered.pop_front()?;
        self.answered_keys -= oldest.batch.keys.len();
        Some(oldest.batch.sequence)
    }

    /// Forgets keys that the copy has.
    pub(crate) fn settle(&mut self, has: impl Fn(&Token) -> bool) {
        let mut settled = None;
        while self.answered.front().is_some_and(|oldest| has(&oldest.position)) {
            settled = self.forget_oldest();
        }
        if let (Some(sequence), Some(file)) = (settled, &mut self.file) {
            let mut record = Vec::new();
            put(&mut record, tag::SETTLED, &[sequence]);
            file.append(&record);
        }
    }

    /// The oldest keys of one kind, at most so many.
    fn next_batch(&mut self, most: usize) -> Batch {
        let change = self.waiting.front().map_or(Change::Add, |group| group.change);
        let (mut keys, mut through) = (Vec::new(), 0);
        while let Some(group) = self.waiting.front_mut() {
            let room = most - keys.len();
            if group.change != change || room == 0 {
                break;
            }
            if group.keys.len() > room {
                let rest = group.keys.split_off(room);
                keys.append(&mut group.keys);
                group.keys = rest;
                break;
            }
            keys.append(&mut group.keys);
            through = group.ticket.max(through);
            self.waiting.pop_front();
        }
        let given = keys.len();
        if self.target.dedup {
            keys.sort_unstable();
            keys.dedup();
        }
        Batch { session: self.session, sequence: self.sequence + 1, change, keys, given, through }
    }

    fn write(&mut self, records: &[u8]) -> Result<()> {
        let keys = (self.keys + self.answered_keys) as u64;
        let Some(file) = &mut self.file else { return Ok(()) };
        // What is in memory is all there is to keep, so a file that is long for that, or that failed, is written anew.
        if file.file.is_none() || file.length > SPOOL_FILE_BYTES.max(2 * 16 * keys) {
            return self.rewrite();
        }
        file.append(records);
        file.sync()
    }

    /// Puts a file with what is left in place of the one that is there.
    fn rewrite(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        let put_batch = |bytes: &mut Vec<u8>, batch: &Batch| {
            put_keys(bytes, batch.change, &batch.keys);
            put(bytes, tag::SEALED, &[batch.sequence, batch.keys.len() as u64]);
        };
        let done = self.sequence - u64::from(self.sealed.is_some());
        put_opened(&mut bytes, &[self.session, done, self.target.filter], &self.target.line);
        for Answered { batch, position } in &self.answered {
            put_batch(&mut bytes, batch);
            put_done(&mut bytes, batch.sequence, position);
        }
        self.sealed.iter().for_each(|batch| put_batch(&mut bytes, batch));
        self.waiting.iter().for_each(|group| put_keys(&mut bytes, group.change, &group.keys));
        let Some(file) = &mut self.file else { return Ok(()) };
        file.file = None;
        let written = replace(&*file.disk, &file.folder, NAME, &bytes)
            .and_then(|()| file.disk.open(&file.folder.join(NAME)));
        file.file = Some(written.map_err(|error| Error::disk("cannot write the spool", &error))?);
        file.length = bytes.len() as u64;
        self.unwritten = false;
        Ok(())
    }

    /// Takes over what a file says, up to the first record that is not whole.
    fn replay(&mut self, mut bytes: &[u8]) {
        while let Some((kind, payload)) = take(&mut bytes) {
            let numbers: Vec<u64> =
                payload.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
            match (kind, &*numbers) {
                (tag::OPENED, &[session, sequence, filter, ..]) => {
                    (self.session, self.sequence) = (session.max(1), sequence);
                    let line = String::from_utf8_lossy(&payload[24..]).into_owned();
                    self.target = Target { filter, line, ..self.target.clone() };
                }
                (tag::ADDS | tag::REMOVALS, _) => {
                    let keys = payload.as_chunks::<16>().0;
                    let keys: Vec<_> = keys.iter().map(|key| Fingerprint::from_bytes(*key)).collect();
                    let change = if kind == tag::ADDS { Change::Add } else { Change::Remove };
                    self.keys += keys.len();
                    self.waiting.push_back(Group { change, keys, ticket: 0 });
                }
                (tag::SEALED, &[sequence, keys]) => {
                    let batch = self.next_batch(usize::try_from(keys).unwrap_or(usize::MAX));
                    self.sequence = sequence;
                    self.sealed = Some(Batch { sequence, ..batch });
                }
                (tag::DONE, &[sequence, ..]) => {
                    let position = std::str::from_utf8(&payload[8..]).ok().and_then(|text| text.parse().ok());
                    if let Some(batch) = self.sealed.take_if(|batch| batch.sequence == sequence) {
                        self.keys -= batch.given;
                        self.answer(batch, position.unwrap_or_default());
                    }
                }
                (tag::SETTLED, &[sequence]) => {
                    while self.answered.front().is_some_and(|oldest| oldest.batch.sequence <= sequence) {
                        self.forget_oldest();
                    }
                }
                _ => return,
            }
        }
    }
}

impl SpoolFile {
    fn append(&mut self, records: &[u8]) {
        let written = self.file.as_ref().map(|file| file.write_at(records, self.length));
        match written {
            Some(Ok(())) => self.length += records.len() as u64,
            _ => self.file = None,
        }
    }

    /// Makes what was appended durable. What failed once is never trusted again.
    fn sync(&mut self) -> Result<()> {
        let broken = || io::Error::other("a write failed");
        let synced = self.file.as_ref().map_or_else(|| Err(broken()), |file| file.sync());
        synced.map_err(|error| {
            self.file = None;
            Error::disk("cannot write the spool", &error)
        })
    }
}

fn put_keys(out: &mut Vec<u8>, change: Change, keys: &[Fingerprint]) {
    let kind = if change == Change::Add { tag::ADDS } else { tag::REMOVALS };
    for keys in keys.chunks(RECORD_KEYS_MAX) {
        let payload: Vec<u8> = keys.iter().flat_map(|key| key.to_bytes()).collect();
        put_record(out, kind, &payload);
    }
}

fn put(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    let payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    put_record(out, kind, &payload);
}

fn put_opened(out: &mut Vec<u8>, numbers: &[u64; 3], line: &str) {
    let mut payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    payload.extend(line.as_bytes());
    put_record(out, tag::OPENED, &payload);
}

fn put_done(out: &mut Vec<u8>, sequence: u64, position: &Token) {
    let mut payload = Vec::from(sequence.to_le_bytes());
    payload.extend(position.to_string().into_bytes());
    put_record(out, tag::DONE, &payload);
}

fn put_record(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    out.extend((payload.len() as u32).to_le_bytes());
    let start = out.len();
    out.push(kind);
    out.extend_from_slice(payload);
    let sum = crc32c::crc32c(&out[start..]);
    out.extend(sum.to_le_bytes());
}

/// The next whole record.
fn take<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    if length > RECORD_BYTES_MAX {
        return None;
    }
    let end = HEAD_BYTES + length;
    let sum = *bytes.get(end..)?.first_chunk::<SUM_BYTES>()?;
    let content = &bytes[4..end];
    if crc32c::crc32c(content).to_le_bytes() != sum {
        return None;
    }
    *bytes = &bytes[end + SUM_BYTES..];
    Some((content[0], &content[1..]))
}

#[cfg(test)]
mod tests;
