//! One partition: its writer, its readers and its syncs.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::Settings;
use super::frame::{self, ALIGNMENT, Kind, frame_bytes};
use super::recover::{Recovered, recover};
use super::segment::{HEADER_BYTES, Segment, Step};
use crate::disk::Disk;
use crate::limits::SEGMENT_BYTES_MIN;
use crate::log::{Bounds, Record};
use crate::random::Random;
use crate::{Error, Position, Result};

/// Whenever a log is opened again, offsets go on at a place that nobody can guess, behind a multiple of this. Positions that were given out
/// for entries which a crash took are thereby never given to others, and neither are those of a log that went on while this one is an
/// older copy of it: whoever followed it is told that its position is not known here.
const EPOCH: u64 = 1 << 40;
/// How many of them are passed over at most.
const EPOCHS_MAX: u64 = 32;
/// A segment takes at most this part of the space that is free, so that a small volume has room for several of them and for checkpoints.
const FREE_PART: u64 = 8;
/// Room that is kept in a segment for its last frame.
const END_BYTES: u64 = frame::HEADER_BYTES as u64;
/// A segment that is prepared ahead of its time.
const SPARE: &str = "spare.tmp";
/// A segment that is prepared when it is needed.
const NEXT: &str = "next.tmp";

#[derive(Debug)]
pub(super) struct Partition {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    number: u32,
    segment_bytes: u64,
    writer: Mutex<Writer>,
    /// One sync at a time.
    syncing: Mutex<()>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug)]
struct Writer {
    /// Where the first segment of this process begins, until it is there: on a full disk that is when there is space again. Until then the
    /// log is read, and takes nothing.
    begins: Option<u64>,
    /// In order; the last one is written to.
    segments: VecDeque<Segment>,
    /// Where the next frame goes.
    tail: u64,
    chain: u32,
    /// The end of the last entry, or a later place.
    last_entry: u64,
    /// Finished segments that are not synced yet.
    finished: Vec<Segment>,
    folder_changed: bool,
    spare_ready: bool,
    /// Whether the next segment was asked for; once is enough, also if there was no space for it.
    spare_asked: bool,
    last_kind: Kind,
    closed: Option<Error>,
}

/// How far the disk is.
#[derive(Clone, Debug)]
struct Progress {
    synced: u64,
    closed: Option<Error>,
}

impl Partition {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        settings: &Settings,
        number: u32,
        random: &dyn Random,
    ) -> Result<Self> {
        let folder = settings.folder.join(number.to_string());
        // Its name is durable before anything in it is.
        let made = disk.create_folder(&folder).and_then(|()| {
            let above = [settings.folder.parent(), Some(&*settings.folder)];
            above.into_iter().flatten().try_for_each(|above| disk.sync_folder(above))
        });
        made.map_err(|error| Error::io(format!("cannot make {}", folder.display()), &error))?;
        let segments = Segment::open_all(&*disk, &folder, number)?;
        let Recovered { segments, tail, chain, last_entry } = recover(&*disk, segments)?;
        let start = if segments.is_empty() { 0 } else { place_after(tail, random.next())? };
        let is_new = segments.is_empty();
        let writer = Writer {
            begins: Some(start),
            segments: segments.into(),
            tail,
            chain,
            last_entry,
            finished: Vec::new(),
            folder_changed: true,
            spare_ready: false,
            spare_asked: false,
            last_kind: Kind::Mark,
            closed: None,
        };
        let partition = Self {
            disk,
            folder,
            number,
            segment_bytes: settings.segment_bytes,
            writer: Mutex::new(writer),
            syncing: Mutex::new(()),
            progress: watch::Sender::new(Progress { synced: 0, closed: None }),
        };
        match partition.begin() {
            // There is no space. What is there can be read.
            Err(_) if !is_new && partition.lock().closed.is_none() => {}
            begun => begun?,
        }
        Ok(partition)
    }

    /// Whether it waits for space on the disk before it takes anything.
    pub(super) fn waits_for_space(&self) -> bool {
        self.lock().begins.is_some()
    }

    /// Readies the writer. The mark is on the disk before anything is taken: from here on the log does not look closed.
    fn begin(&self) -> Result<()> {
        {
            let mut writer = self.lock();
            let Some(start) = writer.begins else { return Ok(()) };
            if writer.segments.back().is_none_or(|newest| newest.start != start) {
                self.rotate(&mut writer, start)?;
            }
            self.write_bare(&mut writer, Kind::Mark)?;
            writer.last_entry = writer.last_entry.max(writer.segments.front().map_or(0, |first| first.start));
        }
        self.sync()?;
        self.lock().begins = None;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends entries; says where they stand, and whether the segment is so full that the next one should be prepared.
    pub(super) fn append(&self, entries: &[Bytes]) -> Result<(Vec<Position>, bool)> {
        let mut writer = self.lock();
        if writer.begins.is_some() {
            drop(writer);
            self.begin()?;
            writer = self.lock();
        }
        let mut positions = Vec::with_capacity(entries.len());
        let mut rest = entries;
        while !rest.is_empty() {
            let fitting = self.fitting(&mut writer, rest)?;
            let (now, later) = rest.split_at(fitting);
            let mut end = writer.tail;
            self.write(&mut writer, Kind::Entry, now.iter().map(|entry| &entry[..]))?;
            for entry in now {
                end += frame_bytes(entry.len()) as u64;
                positions.push(position(end));
            }
            writer.last_entry = end;
            rest = later;
        }
        let filling = !writer.spare_asked && self.wants_spare(&writer);
        writer.spare_asked |= filling;
        Ok((positions, filling))
    }

    fn wants_spare(&self, writer: &Writer) -> bool {
        let bytes = writer.segments.back().map_or(self.segment_bytes, |newest| newest.reserved);
        !writer.spare_ready && writer.closed.is_none() && writer.room() < bytes / 4 * 3
    }

    /// How many of these entries the segment takes, which is one or more: if it is full, the next one is begun.
    fn fitting(&self, writer: &mut Writer, entries: &[Bytes]) -> Result<usize> {
        let count = |writer: &Writer| {
            let mut left = writer.room();
            entries
                .iter()
                .take_while(|entry| {
                    let fits = frame_bytes(entry.len()) as u64 <= left;
                    left = left.saturating_sub(frame_bytes(entry.len()) as u64);
                    fits
                })
                .count()
        };
        let fitting = count(writer);
        if fitting > 0 {
            return Ok(fitting);
        }
        let start = writer.tail + END_BYTES;
        self.rotate(writer, start)?;
        match count(writer) {
            0 => {
                Err(Error::Invalid(format!("an entry larger than a segment of {} bytes", self.segment_bytes)))
            }
            fitting => Ok(fitting),
        }
    }

    /// Writes a frame without an entry at the tail.
    fn write_bare(&self, writer: &mut Writer, kind: Kind) -> Result<()> {
        self.write(writer, kind, [&[][..]].into_iter())
    }

    /// Writes frames of one kind at the tail.
    fn write<'a>(
        &self,
        writer: &mut Writer,
        kind: Kind,
        payloads: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<()> {
        if let Some(closed) = &writer.closed {
            return Err(closed.clone());
        }
        let synced = self.progress.borrow().synced;
        let needed = payloads.clone().map(|payload| frame_bytes(payload.len())).sum();
        let (mut bytes, mut chain) = (Vec::with_capacity(needed), writer.chain);
        for payload in payloads {
            let offset = writer.tail + bytes.len() as u64;
            chain = frame::encode(kind, payload, chain, offset, synced, &mut bytes);
        }
        let Some(segment) = writer.segments.back() else {
            return Err(Error::Closed("the log has no segment".into()));
        };
        if let Err(error) = segment.file.write_at(&bytes, segment.place_of(writer.tail)) {
            let failed = segment.failed("write", &error);
            return Err(if error.kind() == io::ErrorKind::StorageFull {
                failed
            } else {
                self.seal(writer, &failed)
            });
        }
        writer.tail += bytes.len() as u64;
        writer.chain = chain;
        writer.last_kind = kind;
        Ok(())
    }

    /// Begins a segment at `start`, and only then ends the one before it: without space for a new one nothing changes.
    fn rotate(&self, writer: &mut Writer, start: u64) -> Result<()> {
        if let Some(closed) = &writer.closed {
            return Err(closed.clone());
        }
        let begun = (|| {
            let prepared = if writer.spare_ready { SPARE } else { self.prepare(NEXT)? };
            Segment::place(&*self.disk, &self.folder, prepared, (self.number, start, self.segment_bytes))
        })();
        let next = begun.map_err(|error: io::Error| {
            let failed = Error::io(format!("cannot begin a segment in {}", self.folder.display()), &error);
            if error.kind() == io::ErrorKind::StorageFull { failed } else { self.seal(writer, &failed) }
        })?;
        writer.spare_ready = false;
        writer.spare_asked = false;
        writer.folder_changed = true;
        if writer.segments.back().is_some_and(|segment| segment.end.is_none()) {
            if let Err(error) = self.write_bare(writer, Kind::End) {
                // The segment before it is not ended: take the new one away again.
                let _ = self.disk.remove(&next.path);
                return Err(error);
            }
            let end = writer.tail;
            if let Some(segment) = writer.segments.back_mut() {
                segment.end = Some(end);
                let finished = segment.clone();
                writer.finished.push(finished);
            }
        }
        writer.segments.push_back(next);
        writer.tail = start;
        Ok(())
    }

    /// Takes no more entries: what is on the disk is not known any more.
    fn seal(&self, writer: &mut Writer, why: &Error) -> Error {
        let closed = Error::Closed(format!("the log is closed, because of this: {why}"));
        writer.closed = Some(closed.clone());
        self.progress.send_modify(|progress| progress.closed = Some(closed.clone()));
        closed
    }

    /// Makes everything that was written so far durable.
    pub(super) fn sync(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let (finished, active, folder_changed, tail) = {
            let mut writer = self.lock();
            if let Some(closed) = &writer.closed {
                return Err(closed.clone());
            }
            let active = writer.segments.back().cloned();
            (
                std::mem::take(&mut writer.finished),
                active,
                std::mem::take(&mut writer.folder_changed),
                writer.tail,
            )
        };
        let synced = (|| {
            for segment in finished.iter().chain(&active) {
                segment.file.sync()?;
            }
            if folder_changed {
                self.disk.sync_folder(&self.folder)?;
            }
            Ok(())
        })();
        if let Err(error) = synced {
            let failed = Error::io(format!("cannot sync {}", self.folder.display()), &error);
            return Err(self.seal(&mut self.lock(), &failed));
        }
        // Their frames are on the disk, so a file that is cut here cannot be taken for one that lost frames.
        for segment in &finished {
            let end = segment.end.unwrap_or(segment.start);
            // Left longer, it only takes more space.
            let _ = segment.file.set_length(segment.place_of(end));
        }
        self.progress.send_if_modified(|progress| {
            let further = tail > progress.synced;
            progress.synced = progress.synced.max(tail);
            further
        });
        Ok(())
    }

    /// Syncs, and if nothing was written meanwhile puts a mark behind the last entry, so that damage to it is noticed even if
    /// nothing follows. True if the mark is still to be synced.
    pub(super) fn sync_and_mark(&self) -> Result<bool> {
        if self.lock().tail == self.progress.borrow().synced {
            return Ok(false);
        }
        self.sync()?;
        let mut writer = self.lock();
        let idle = writer.tail == self.progress.borrow().synced;
        if !idle || writer.last_kind != Kind::Entry || writer.room() < END_BYTES {
            return Ok(false);
        }
        self.write_bare(&mut writer, Kind::Mark)?;
        Ok(true)
    }

    /// Waits until a position is on the disk.
    pub(super) async fn synced(&self, position: Position) -> Result<()> {
        let mut progress = self.progress.subscribe();
        let there = |progress: &Progress| {
            u128::from(progress.synced) >= position.number() || progress.closed.is_some()
        };
        match progress.wait_for(there).await {
            Ok(progress) if u128::from(progress.synced) >= position.number() => Ok(()),
            Ok(progress) => Err(progress.closed.clone().unwrap_or_else(gone)),
            Err(_) => Err(gone()),
        }
    }

    pub(super) fn close(&self) -> Result<()> {
        self.sync()?;
        if self.lock().begins.is_none() {
            self.write_bare(&mut self.lock(), Kind::Close)?;
            self.sync()?;
        }
        self.lock().closed = Some(gone());
        Ok(())
    }

    /// Prepares the next segment, so that no append has to wait for it. Without space there is none, until it is needed.
    pub(super) fn prepare_spare(&self) {
        let wanted = self.wants_spare(&self.lock());
        if wanted {
            let prepared = self.prepare(SPARE).is_ok();
            self.lock().spare_ready = prepared;
        }
    }

    fn prepare(&self, name: &'static str) -> io::Result<&'static str> {
        let part = (self.disk.free_bytes(&self.folder)? / FREE_PART).next_multiple_of(SEGMENT_BYTES_MIN);
        let bytes = self.segment_bytes.min(part.max(SEGMENT_BYTES_MIN));
        Segment::prepare(&*self.disk, &self.folder.join(name), self.number, bytes)?;
        Ok(name)
    }

    pub(super) fn bounds(&self) -> Bounds {
        let writer = self.lock();
        Bounds { oldest: position(writer.oldest()), tail: position(writer.last_entry.max(writer.oldest())) }
    }

    /// Whether nothing up to this place was taken by a crash.
    pub(super) fn holds(&self, position: Position) -> bool {
        let at = u64::try_from(position.number()).unwrap_or(u64::MAX);
        let writer = self.lock();
        let segment = writer.segments.iter().rfind(|segment| segment.start <= at);
        // Places between a segment's end and the next one are those that a crash took.
        at <= writer.tail && segment.and_then(|segment| segment.end).is_none_or(|end| at <= end)
    }

    pub(super) fn read(&self, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        let mut from = u64::try_from(after.number()).unwrap_or(u64::MAX);
        let (segments, oldest, tail) = {
            let writer = self.lock();
            let oldest = writer.oldest();
            if from > writer.tail {
                return Err(Error::Invalid(format!("position {after} is behind the end of the log")));
            }
            let first = writer.segments.iter().rposition(|segment| segment.start <= from).unwrap_or(0);
            (writer.segments.iter().skip(first).cloned().collect::<Vec<_>>(), oldest, writer.tail)
        };
        if from < oldest {
            return Err(Error::Trimmed { oldest: position(oldest) });
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut chain = None;
        for segment in &segments {
            from = from.max(segment.start);
            // Places behind the end of a finished segment are those that a crash took.
            if segment.end.is_some_and(|end| from >= end) {
                continue;
            }
            let mut frames = segment.frames(from);
            while frames.offset() < segment.end.unwrap_or(tail) {
                let start = frames.offset();
                let (header, entry) = match frames.next()? {
                    Step::Frame(header, payload) if chain.is_none_or(|chain| chain == header.previous) => {
                        (header, Bytes::copy_from_slice(payload))
                    }
                    Step::Frame(..) => {
                        return Err(segment.corrupt(start, "a frame that does not follow the one before it"));
                    }
                    Step::None(_) => return Err(segment.corrupt(start, "no frame where one was written")),
                };
                chain = Some(header.sum);
                if header.kind == Kind::End {
                    break;
                }
                if header.kind == Kind::Entry {
                    bytes += entry.len();
                    if bytes > bytes_max && !records.is_empty() {
                        return Ok(records);
                    }
                    records.push(Record { position: position(frames.offset()), entry });
                }
            }
        }
        Ok(records)
    }

    pub(super) fn trim(&self, upto: Position) -> Result<()> {
        // Only what a later segment's entries are beyond of: whoever has read up to `upto` can then go on from there.
        let beyond = |segment: &Segment| u128::from(segment.start) <= upto.number();
        while self.lock().segments.get(1).is_some_and(beyond) {
            // What stays has to be on the disk first: without any segment, positions would begin anew. And what went has to be
            // gone: if an older one came back alone, the log would have a hole.
            self.sync()?;
            let mut writer = self.lock();
            let Some(path) = writer.segments.front().map(|first| first.path.clone()) else { break };
            self.disk
                .remove(&path)
                .map_err(|error| Error::io(format!("cannot remove {}", path.display()), &error))?;
            writer.segments.pop_front();
            writer.finished.retain(|segment| segment.path != path);
            writer.folder_changed = true;
        }
        Ok(())
    }
}

impl Writer {
    /// Bytes that the segment has left for frames of entries.
    fn room(&self) -> u64 {
        let limit = self.segments.back().filter(|segment| segment.end.is_none()).map_or(0, Segment::limit);
        limit.saturating_sub(self.tail + END_BYTES)
    }

    fn oldest(&self) -> u64 {
        self.segments.front().map_or(0, |segment| segment.start)
    }
}

/// Where offsets go on after `tail`, by chance.
fn place_after(tail: u64, chance: u64) -> Result<u64> {
    let passed_over = EPOCH * (chance % EPOCHS_MAX);
    // Half of an epoch is left for what is written there.
    let within = (chance >> 32) % (EPOCH / 2 / ALIGNMENT as u64) * ALIGNMENT as u64;
    let start =
        (tail + 1).checked_next_multiple_of(EPOCH).and_then(|next| next.checked_add(passed_over + within));
    start.ok_or_else(|| {
        Error::Invalid(format!("a log that is at {tail:x} already and cannot go on far from there"))
    })
}

fn position(offset: u64) -> Position {
    Position::from_number(offset.into())
}

fn gone() -> Error {
    Error::Closed("the log was closed".into())
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGNMENT as u64));
