//! The feed: what changed a filter after a place in the log, for those who keep a copy of it.
//!
//! ```text
//!  | length u32 | kind u8 | payload | CRC32C of kind and payload u32 |
//!    record:  partition u32, position 16, entry     the entry as the log has it, with the keys on which it had an effect
//!    reached: partition u32, position 16            nothing was left out up to here
//!    version: a version                             what follows is after it; its chunks that the reader lacks come first
//!    chunk:   a chunk of the next version
//!    packed:  partition u32, position 16, changes   a record in half the bytes, for a reader whose arrays have the shape
//! ```
//!
//! A feed comes at least once: whoever reads it passes over records up to the position that it has. `docs/formats.md` draws it.

mod packed;

use bytes::{Buf, Bytes, BytesMut};

pub use packed::{Packed, Shape};

use crate::limits::{ENTRY_BYTES_MAX, MANIFEST_BYTES_MAX};
use crate::log::Record;
use crate::version::CHUNK_BYTES_MAX;
use crate::{Error, Position, Result};

const LENGTH_BYTES: usize = 4;
const SUM_BYTES: usize = 4;
const PLACE_BYTES: usize = 4 + 16;

/// Tags of the frames.
mod tag {
    pub(super) const RECORD: u8 = 1; // persisted, as all tags here
    pub(super) const REACHED: u8 = 2;
    pub(super) const VERSION: u8 = 3;
    pub(super) const CHUNK: u8 = 4;
    pub(super) const PACKED: u8 = 5;
}

/// Longest payload of a kind; none if there is no such kind. A length that was damaged on the way keeps nobody waiting for more than this.
fn payload_bytes_max(kind: u8) -> Option<usize> {
    Some(match kind {
        tag::RECORD => PLACE_BYTES + ENTRY_BYTES_MAX,
        tag::REACHED => PLACE_BYTES,
        tag::VERSION => MANIFEST_BYTES_MAX,
        tag::CHUNK => CHUNK_BYTES_MAX,
        // A key that is alone in its shard takes more than it does in an entry, though not twice as much.
        tag::PACKED => PLACE_BYTES + 2 * ENTRY_BYTES_MAX,
        _ => return None,
    })
}

/// A piece of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A change of the filter.
    Record {
        /// The partition that it stands in.
        partition: u32,
        /// The entry and its place.
        record: Record,
    },
    /// There is nothing else up to this place.
    Reached {
        /// The partition.
        partition: u32,
        /// The place.
        position: Position,
    },
    /// A version, encoded: the reader goes on from it.
    Version(Bytes),
    /// A chunk that a version which follows needs.
    Chunk(Bytes),
    /// A change of the filter, as [`Shape::pack`] gave it.
    Packed {
        /// The partition that it stands in.
        partition: u32,
        /// Its place.
        position: Position,
        /// What changes.
        changes: Bytes,
    },
}

impl Frame {
    /// Puts the frame behind others.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Record { partition, record } => {
                put(out, tag::RECORD, &place(*partition, record.position), &record.entry);
            }
            Self::Reached { partition, position } => {
                put(out, tag::REACHED, &place(*partition, *position), &[]);
            }
            Self::Version(bytes) => put(out, tag::VERSION, &[], bytes),
            Self::Chunk(bytes) => put(out, tag::CHUNK, &[], bytes),
            Self::Packed { partition, position, changes } => {
                put(out, tag::PACKED, &place(*partition, *position), changes);
            }
        }
    }

    /// Takes the next frame out of what has come so far; none if the rest of it is still to come.
    pub fn take(buffer: &mut BytesMut) -> Result<Option<Self>> {
        let Some((length, [kind, ..])) = buffer.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let (length, kind) = (u32::from_le_bytes(*length) as usize, *kind);
        let corrupt = |why: &str| Err(Error::Corrupt(format!("a frame of {length} bytes of a feed: {why}")));
        let Some(most) = payload_bytes_max(kind) else { return corrupt("its kind is not known") };
        if length > most {
            return corrupt("none of its kind is so long");
        }
        let whole = LENGTH_BYTES + 1 + length + SUM_BYTES;
        if buffer.len() < whole {
            return Ok(None);
        }
        let mut frame = buffer.split_to(whole).freeze();
        frame.advance(LENGTH_BYTES);
        let sum = frame.split_off(1 + length);
        if crc32c::crc32c(&frame).to_le_bytes() != sum[..] {
            return corrupt("its checksum does not match");
        }
        frame.advance(1);
        Ok(Some(match kind {
            tag::RECORD | tag::REACHED | tag::PACKED if frame.len() < PLACE_BYTES => {
                return corrupt("it has no place");
            }
            tag::RECORD => {
                let (partition, position) = take_place(&mut frame);
                Self::Record { partition, record: Record { position, entry: frame } }
            }
            tag::REACHED if frame.len() == PLACE_BYTES => {
                let (partition, position) = take_place(&mut frame);
                Self::Reached { partition, position }
            }
            tag::VERSION => Self::Version(frame),
            tag::CHUNK => Self::Chunk(frame),
            tag::PACKED => {
                let (partition, position) = take_place(&mut frame);
                Self::Packed { partition, position, changes: frame }
            }
            _ => return corrupt("its kind is not known"),
        }))
    }
}

fn put(out: &mut Vec<u8>, kind: u8, head: &[u8], body: &[u8]) {
    out.extend(((head.len() + body.len()) as u32).to_le_bytes());
    let start = out.len();
    out.push(kind);
    out.extend_from_slice(head);
    out.extend_from_slice(body);
    let sum = crc32c::crc32c(&out[start..]);
    out.extend(sum.to_le_bytes());
}

fn place(partition: u32, position: Position) -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    place[..4].copy_from_slice(&partition.to_le_bytes());
    place[4..].copy_from_slice(&position.to_bytes());
    place
}

/// The place that a payload begins with, which is at least so long.
fn take_place(payload: &mut Bytes) -> (u32, Position) {
    let partition = payload.get_u32_le();
    let mut position = [0; 16];
    payload.copy_to_slice(&mut position);
    (partition, Position::from_bytes(position))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        let position = Position::from_number(7 << 64);
        vec![
            Frame::Record {
                partition: 3,
                record: Record { position, entry: Bytes::from_static(b"an entry") },
            },
            Frame::Reached { partition: 1, position },
            Frame::Version(Bytes::from_static(b"a version")),
            Frame::Chunk(Bytes::new()),
            Frame::Packed { partition: 2, position, changes: Bytes::from_static(b"changes") },
        ]
    }

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let mut bytes = Vec::new();
        frames().iter().for_each(|frame| frame.encode(&mut bytes));
        for piece in 1..=bytes.len() {
            let (mut buffer, mut back) = (BytesMut::new(), Vec::new());
            for part in bytes.chunks(piece) {
                buffer.extend_from_slice(part);
                while let Some(frame) = Frame::take(&mut buffer).unwrap() {
                    back.push(frame);
                }
            }
            assert_eq!(back, frames());
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn what_is_damaged_is_refused() {
        for frame in frames() {
            let mut whole = Vec::new();
            frame.encode(&mut whole);
            for at in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[at / 8] ^= 1 << (at % 8);
                let taken = Frame::take(&mut BytesMut::from(&bytes[..]));
                // A longer length waits for more, if it is one of that kind; everything else is noticed.
                let length = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
                let may_wait = length > whole.len() - 9
                    && payload_bytes_max(bytes[4]).is_some_and(|most| length <= most);
                assert!(
                    matches!(taken, Err(Error::Corrupt(_))) || may_wait && matches!(taken, Ok(None)),
                    "bit {at} of {frame:?}: {taken:?}"
                );
            }
        }
    }

    #[test]
    fn a_damaged_length_is_waited_for_only_if_a_frame_may_have_it() {
        // Bits of the length that make it longer than anything of the kind: of what says how far it is, every one.
        for (frame, first) in frames().iter().zip([20, 0, 28, 19, 21]) {
            let mut whole = Vec::new();
            frame.encode(&mut whole);
            for bit in first..32_usize {
                let mut bytes = whole.clone();
                bytes[bit / 8] |= 1 << (bit % 8);
                let taken = Frame::take(&mut BytesMut::from(&bytes[..]));
                assert!(bytes == whole || taken.is_err(), "bit {bit} of {frame:?}: {taken:?}");
            }
        }
    }
}
