//! Where a partition ends, after whatever happened to it.
//!
//! The end is the first place where no frame follows. What stands behind it decides what to make of it: nothing, or frames that
//! were written while that place was not yet known to be on the disk, is what a crash leaves, and is cut off. A frame written
//! when that place *was* known to be on the disk means that bytes were damaged later: then nothing is cut, and the log is
//! refused with the name of the file and the place.

use super::frame::{self, ALIGNMENT, Kind, NoFrame};
use super::segment::{HEADER_BYTES, Segment, Step};
use crate::disk::Disk;
use crate::{Error, Result};

/// Bytes that are read at once behind the end.
const PIECE_BYTES: usize = 1 << 20;
const _: () = assert!(PIECE_BYTES.is_multiple_of(ALIGNMENT));

/// What is known of a partition after it was opened.
#[derive(Debug)]
pub(super) struct Recovered {
    /// Whole segments, in order; those but the last are finished. The last one has its end set if it is, too.
    pub(super) segments: Vec<Segment>,
    /// Where the next frame goes.
    pub(super) tail: u64,
    /// The checksum of the last frame.
    pub(super) chain: u32,
    /// The end of the last entry that was seen, or a later place.
    pub(super) last_entry: u64,
}

/// Finds the end of a partition and cuts off what a crash left behind it.
pub(super) fn recover(disk: &dyn Disk, mut segments: Vec<Segment>) -> Result<Recovered> {
    let (first, mut chain) = first_to_scan(&mut segments)?;
    let mut tail = segments.get(first).map_or(0, |segment| segment.start);
    let mut last_entry = tail;
    for index in first..segments.len() {
        let scanned = scan(&segments[index], &mut chain)?;
        tail = scanned.end;
        last_entry = scanned.last_entry.unwrap_or(last_entry);
        let finished = scanned.finished;
        segments[index].end = finished.then_some(tail);
        let newest = index + 1 == segments.len();
        if !newest && finished {
            cut_to_length(&segments[index], tail);
            continue;
        }
        // The log ends here. Nothing that is known to have been on the disk may follow.
        refuse_damage(&segments[index..], tail)?;
        for later in segments.drain(index + 1..) {
            disk.remove(&later.path).map_err(|error| later.failed("remove", &error))?;
        }
        if !finished {
            blank_rest(&segments[index], tail, scanned.torn)?;
        }
        break;
    }
    Ok(Recovered { segments, tail, chain: chain.unwrap_or(0), last_entry })
}

/// The segment to begin with, and the checksum of the frame before it. Segments before it end with their last frame in order;
/// what is inside them is checked when it is read.
fn first_to_scan(segments: &mut [Segment]) -> Result<(usize, Option<u32>)> {
    let mut chain = None;
    let finished = segments.len().saturating_sub(1);
    for (index, segment) in segments[..finished].iter_mut().enumerate() {
        // A power cut may have undone that it was cut to its length: then its end is to be found.
        let Some((end, sum)) = end_by_length(segment)? else { return Ok((index, chain)) };
        segment.end = Some(end);
        chain = Some(sum);
    }
    Ok((finished, chain))
}

/// The end of a segment that was cut to its length, and the checksum of its last frame.
fn end_by_length(segment: &Segment) -> Result<Option<(u64, u32)>> {
    let length = segment.file.length().map_err(|error| segment.failed("open", &error))?;
    let end = (segment.start + length).saturating_sub(HEADER_BYTES);
    let Some(last) = end.checked_sub(frame::HEADER_BYTES as u64).filter(|last| *last >= segment.start) else {
        return Ok(None);
    };
    match segment.frames(last).next()? {
        Step::Frame(header, _) if header.kind == Kind::End => Ok(Some((end, header.sum))),
        _ => Ok(None),
    }
}

struct Scanned {
    end: u64,
    last_entry: Option<u64>,
    finished: bool,
    /// Something stands where the next frame would.
    torn: bool,
}

fn scan(segment: &Segment, chain: &mut Option<u32>) -> Result<Scanned> {
    let mut frames = segment.frames(segment.start);
    let mut scanned = Scanned { end: segment.start, last_entry: None, finished: false, torn: false };
    loop {
        scanned.end = frames.offset();
        let header = match frames.next()? {
            Step::Frame(header, _) if chain.is_none_or(|chain| chain == header.previous) => header,
            Step::Frame(..) => {
                scanned.torn = true;
                break;
            }
            Step::None(none) => {
                scanned.torn = !matches!(none, NoFrame::Blank | NoFrame::Cut(frame::HEADER_BYTES));
                break;
            }
        };
        *chain = Some(header.sum);
        match header.kind {
            Kind::Entry => scanned.last_entry = Some(frames.offset()),
            Kind::Mark | Kind::Close => {}
            Kind::End => {
                scanned.end = frames.offset();
                scanned.finished = true;
                return Ok(scanned);
            }
        }
    }
    // The space of an unfinished segment was reserved and made durable before it got its name.
    let length = segment.file.length().map_err(|error| segment.failed("open", &error))?;
    if length < segment.reserved {
        let why = format!("the file was cut: it has {length} bytes of {}", segment.reserved);
        return Err(segment.corrupt(scanned.end, &why));
    }
    Ok(scanned)
}

/// Cuts a finished segment to its length, so that the next start need not look for its end. Left longer, it only takes time.
fn cut_to_length(segment: &Segment, end: u64) {
    let _ = segment.file.set_length(segment.place_of(end)).and_then(|()| segment.file.sync());
}

/// Looks for frames behind `end` that were written when `end` was already on the disk.
fn refuse_damage(segments: &[Segment], end: u64) -> Result<()> {
    let Some(damaged) = segments.first() else { return Ok(()) };
    for segment in segments {
        let start = if segment.start == damaged.start { end } else { segment.start };
        if let Some(later) = frame_written_after(segment, start, end)? {
            let why = format!("damaged: it was on the disk when the frame at offset {later} was written");
            return Err(damaged.corrupt(end, &why));
        }
    }
    Ok(())
}

/// The first frame of a segment, at or behind `start`, that was written when `end` was already on the disk. Most of what is looked
/// at was never written: it is read in pieces, and a blank piece is passed over at once.
fn frame_written_after(segment: &Segment, start: u64, end: u64) -> Result<Option<u64>> {
    let length = segment.file.length().map_err(|error| segment.failed("open", &error))?;
    let space = length.saturating_sub(segment.place_of(start));
    let read = |bytes: &mut Vec<u8>, offset: u64, wanted: usize| {
        bytes.resize(wanted, 0);
        let read = segment.file.read_at(bytes, segment.place_of(offset));
        bytes.truncate(read.map_err(|error| segment.failed("read", &error))?);
        Ok(())
    };
    let (mut piece, mut whole) = (Vec::new(), Vec::new());
    for offset in (start..start + space).step_by(PIECE_BYTES) {
        read(&mut piece, offset, PIECE_BYTES)?;
        if is_blank(&piece) {
            continue;
        }
        for at in (0..piece.len()).step_by(ALIGNMENT) {
            let offset = offset + at as u64;
            let mut header = frame::decode(&piece[at..]);
            // One that goes on in the next piece is read by itself.
            while let Err(NoFrame::Cut(bytes)) = header {
                read(&mut whole, offset, bytes)?;
                if whole.len() < bytes {
                    break;
                }
                header = frame::decode(&whole);
            }
            if header.is_ok_and(|header| header.offset == offset && header.synced > end) {
                return Ok(Some(offset));
            }
        }
    }
    Ok(None)
}

fn is_blank(bytes: &[u8]) -> bool {
    // In pieces, so that the processor looks at many bytes at once and still stops early.
    bytes.chunks(4096).all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Makes the space behind `end` blank again, so that a later look finds there only what was written later. It stays reserved: on a full
/// disk, what was given back might not be had again.
fn blank_rest(segment: &Segment, end: u64, torn: bool) -> Result<()> {
    if !torn {
        return Ok(());
    }
    let blank = || {
        let length = segment.file.length()?;
        let mut piece = Vec::new();
        for place in (segment.place_of(end)..length).step_by(PIECE_BYTES) {
            piece.resize(PIECE_BYTES.min((length - place) as usize), 0);
            let read = segment.file.read_at(&mut piece, place)?;
            piece.truncate(read);
            if !is_blank(&piece) {
                piece.fill(0);
                segment.file.write_at(&piece, place)?;
            }
        }
        segment.file.sync()
    };
    blank().map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull => segment.failed("restore", &error),
        _ => Error::Closed(format!("cannot restore {}: {error}", segment.path.display())),
    })
}
