//! What a segment holds, for people who look into it.

use std::path::Path;

use bytes::Bytes;

use super::frame::{Kind, NoFrame};
use super::segment::{Segment, Step};
use crate::Result;
use crate::disk::Disk;
use crate::entry::{Entry, Operation};

/// What was found in a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// The partition that it belongs to.
    pub partition: u32,
    /// Bytes reserved for it.
    pub reserved: u64,
    /// The offset of its first frame.
    pub start: u64,
    /// The offset after its last frame.
    pub end: u64,
    /// Entries in it.
    pub entries: u64,
    /// Entries that are none by their own checksum or form.
    pub unreadable: u64,
    /// Fingerprints that are added.
    pub added: u64,
    /// Fingerprints that are removed.
    pub removed: u64,
    /// Everything before this offset was on the disk when the last frame was written.
    pub synced: u64,
    /// Whether the log goes on in another segment.
    pub finished: bool,
    /// Whether the log was closed here in good order.
    pub closed: bool,
    /// Why the frames end before the file does, if something else than blank space follows.
    pub damage: Option<String>,
}

/// Reads a segment from beginning to end and changes nothing.
pub fn inspect(disk: &dyn Disk, path: &Path) -> Result<SegmentReport> {
    let segment = Segment::open(disk, path)?;
    let (partition, reserved, start) = (segment.partition, segment.reserved, segment.start);
    let mut report = SegmentReport { partition, reserved, start, end: start, ..SegmentReport::default() };
    let mut frames = segment.frames(start);
    let mut previous = None;
    loop {
        let end = frames.offset();
        report.end = end;
        let (header, payload) = match frames.next()? {
            Step::Frame(header, payload) => (header, Bytes::copy_from_slice(payload)),
            Step::None(NoFrame::Blank | NoFrame::Cut(_)) => return Ok(report),
            Step::None(NoFrame::Damaged(why)) => {
                report.damage = Some(segment.corrupt(end, why).to_string());
                return Ok(report);
            }
        };
        if previous.is_some_and(|previous| previous != header.previous) {
            let why = "a frame that does not follow the one before it";
            report.damage = Some(segment.corrupt(end, why).to_string());
            return Ok(report);
        }
        previous = Some(header.sum);
        report.synced = header.synced;
        report.closed = header.kind == Kind::Close;
        if header.kind == Kind::End {
            report.end = frames.offset();
            report.finished = true;
            return Ok(report);
        }
        if header.kind == Kind::Entry {
            report.entries += 1;
            match Entry::decode(&payload).map(|entry| entry.operation) {
                Ok(Operation::Add(keys) | Operation::AddAbsent(keys)) => report.added += keys.len() as u64,
                Ok(Operation::Remove(keys)) => report.removed += keys.len() as u64,
                Ok(_) => {}
                Err(_) => report.unreadable += 1,
            }
        }
    }
}
