//! Frames: how entries stand in a segment. `docs/formats.md` draws them.

use crate::limits::ENTRY_BYTES_MAX;

/// Bytes before an entry.
pub(super) const HEADER_BYTES: usize = 32;
const VERSION: u8 = 1;
/// Frames begin at multiples of this.
pub(super) const ALIGNMENT: usize = 8;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// It carries an entry.
    Entry = 1, // persisted, as all tags here
    /// It carries nothing: it tells what was synced when it was written.
    Mark = 2,
    /// It carries nothing: the segment ends with it.
    End = 3,
    /// It carries nothing: the log was closed in good order, with everything on the disk.
    Close = 4,
}

/// The first part of a frame, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Its own checksum, which the next frame repeats.
    pub(super) sum: u32,
    /// The checksum of the frame before it.
    pub(super) previous: u32,
    /// Where the frame begins in the partition.
    pub(super) offset: u64,
    /// Everything before this offset was on the disk when the frame was written.
    pub(super) synced: u64,
    pub(super) payload_bytes: usize,
}

impl Header {
    /// Bytes of the whole frame.
    pub(super) fn frame_bytes(&self) -> usize {
        frame_bytes(self.payload_bytes)
    }
}

/// Bytes of a frame around so many bytes of entry.
pub(super) fn frame_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

/// Adds a frame to `out` and gives its checksum.
pub(super) fn encode(
    kind: Kind,
    payload: &[u8],
    previous: u32,
    offset: u64,
    synced: u64,
    out: &mut Vec<u8>,
) -> u32 {
    let start = out.len();
    out.extend([0; 4]);
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend([kind as u8, VERSION, 0, 0]);
    out.extend(previous.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out.extend(synced.to_le_bytes());
    debug_assert_eq!(out.len() - start, HEADER_BYTES);
    out.extend(payload);
    let sum = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    out.resize(start + frame_bytes(payload.len()), 0);
    sum
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoFrame {
    /// The bytes end before it does; it has so many.
    Cut(usize),
    /// Zeros, as in space that was never written.
    Blank,
    /// Something that cannot be.
    Damaged(&'static str),
}

/// Reads the frame at the beginning of `bytes` and checks all of it.
pub(super) fn decode(bytes: &[u8]) -> Result<Header, NoFrame> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(NoFrame::Cut(HEADER_BYTES)) };
    if head.iter().all(|byte| *byte == 0) {
        return Err(NoFrame::Blank);
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let kind = match head[8] {
        1 => Kind::Entry,
        2 => Kind::Mark,
        3 => Kind::End,
        4 => Kind::Close,
        _ => return Err(NoFrame::Damaged("an unknown kind of frame")),
    };
    let payload_bytes = word(4) as usize;
    if head[9] != VERSION || payload_bytes > ENTRY_BYTES_MAX || (kind != Kind::Entry && payload_bytes != 0) {
        return Err(NoFrame::Damaged("an impossible frame"));
    }
    let header =
        Header { kind, sum: word(0), previous: word(12), offset: long(16), synced: long(24), payload_bytes };
    let Some(frame) = bytes.get(..header.frame_bytes()) else {
        return Err(NoFrame::Cut(header.frame_bytes()));
    };
    let (body, padding) = frame.split_at(HEADER_BYTES + payload_bytes);
    if crc32c::crc32c(&body[4..]) != header.sum || padding.iter().any(|byte| *byte != 0) {
        return Err(NoFrame::Damaged("a frame whose checksum does not match"));
    }
    Ok(header)
}
