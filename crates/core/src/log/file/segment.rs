//! Segments: the files of a partition, each named after the offset at which it begins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{self, Header, NoFrame};
use crate::disk::{Disk, DiskFile};
use crate::limits::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::{Error, Result};

/// Bytes before the first frame.
pub(super) const HEADER_BYTES: u64 = 64;
/// The first bytes of every segment.
pub const MAGIC: [u8; 8] = *b"\x89UMBLOG\n";
const VERSION: u16 = 1;
const SUFFIX: &str = ".log";
/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// One file of a partition.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) partition: u32,
    /// The offset of its first frame.
    pub(super) start: u64,
    /// The offset after its last frame, once it is finished.
    pub(super) end: Option<u64>,
    /// Bytes of the file, as reserved when it was made.
    pub(super) reserved: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
}

impl Segment {
    /// Makes a file with space and a header, durably, but without a place in the log: a crash leaves nothing that could be
    /// mistaken for a segment that lost its content.
    pub(super) fn prepare(disk: &dyn Disk, path: &Path, partition: u32, bytes: u64) -> std::io::Result<()> {
        let file = disk.create(path)?;
        file.allocate(bytes)?;
        file.write_at(&header(partition, bytes), 0)?;
        file.sync()
    }

    /// Gives a prepared file its place. It is durable when the folder is synced.
    pub(super) fn place(
        disk: &dyn Disk,
        folder: &Path,
        prepared: &str,
        (partition, start, reserved): (u32, u64, u64),
    ) -> std::io::Result<Self> {
        let path = folder.join(format!("{start:020}{SUFFIX}"));
        disk.rename(&folder.join(prepared), &path)?;
        let file = disk.open(&path)?;
        Ok(Self { partition, start, end: None, reserved, path, file })
    }

    /// Opens the segment in a file, wherever it is from.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("cannot open {}", path.display()), &error);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let start = start_of(&name).ok_or_else(|| {
            Error::Invalid(format!("{} is not named after an offset, as a segment is", path.display()))
        })?;
        Self::read_header(path.to_owned(), disk.open(path).map_err(failed)?, start)
    }

    /// Opens all segments of a partition, in order.
    pub(super) fn open_all(disk: &dyn Disk, folder: &Path, partition: u32) -> Result<Vec<Self>> {
        let failed = |error| Error::io(format!("cannot open the log in {}", folder.display()), &error);
        let names = disk.list(folder).map_err(failed)?;
        let mut segments = Vec::new();
        for name in names {
            if let Some(start) = start_of(&name) {
                let path = folder.join(&name);
                let file = disk.open(&path).map_err(failed)?;
                let segment = Self::read_header(path, file, start)?;
                if segment.partition != partition {
                    let why = format!("it is one of partition {}, not {partition}", segment.partition);
                    return Err(segment.corrupt_header(&why));
                }
                segments.push(segment);
            }
        }
        segments.sort_by_key(|segment| segment.start);
        Ok(segments)
    }

    /// Reads and checks the header of the segment that begins at `start`.
    fn read_header(path: PathBuf, file: Arc<dyn DiskFile>, start: u64) -> Result<Self> {
        let mut bytes = [0; HEADER_BYTES as usize];
        let read = file.read_at(&mut bytes, 0);
        let partition = u32::from_le_bytes(std::array::from_fn(|i| bytes[12 + i]));
        let reserved = u64::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
        let segment = Self { partition, start, end: None, reserved, path, file };
        let read = read.map_err(|error| segment.failed("read", &error))?;
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if read < bytes.len() {
            return Err(segment.corrupt_header(&format!("the file has {read} bytes, less than its header")));
        }
        if bytes[..8] != MAGIC {
            return Err(segment.corrupt_header("it does not begin as a log segment does"));
        }
        if version != VERSION {
            let why = format!("version {version} of the log's format; this is {VERSION}");
            return Err(segment.corrupt_header(&why));
        }
        if bytes != header(partition, reserved)
            || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&reserved)
        {
            return Err(segment.corrupt_header("its header is damaged"));
        }
        Ok(segment)
    }

    fn corrupt_header(&self, why: &str) -> Error {
        Error::Corrupt(format!("{} at byte 0: {why}", self.path.display()))
    }

    /// Where a frame of this segment stands in the file.
    pub(super) fn place_of(&self, offset: u64) -> u64 {
        HEADER_BYTES + (offset - self.start)
    }

    /// The offset after the last byte that the file may ever have.
    pub(super) fn limit(&self) -> u64 {
        self.start + self.reserved - HEADER_BYTES
    }

    pub(super) fn corrupt(&self, offset: u64, why: &str) -> Error {
        Error::Corrupt(format!("{} at byte {}: {why}", self.path.display(), self.place_of(offset)))
    }

    pub(super) fn failed(&self, doing: &str, error: &std::io::Error) -> Error {
        Error::io(format!("cannot {doing} {}", self.path.display()), error)
    }

    /// Reads frames from an offset on.
    pub(super) fn frames(&self, from: u64) -> Frames<'_> {
        Frames { segment: self, offset: from, bytes: Vec::new(), used: 0 }
    }
}

/// Frames of a segment, one after the other.
pub(super) struct Frames<'a> {
    segment: &'a Segment,
    /// Where the next frame begins.
    offset: u64,
    bytes: Vec<u8>,
    used: usize,
}

/// A frame, or why there is none.
pub(super) enum Step<'a> {
    Frame(Header, &'a [u8]),
    None(NoFrame),
}

impl Frames<'_> {
    /// Where the next frame begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next frame. One that carries another offset than its own was not written there.
    pub(super) fn next(&mut self) -> Result<Step<'_>> {
        let mut wanted = frame::HEADER_BYTES;
        loop {
            match frame::decode(&self.bytes[self.used..]) {
                Ok(header) if header.offset != self.offset => {
                    return Ok(Step::None(NoFrame::Damaged("a frame of another place")));
                }
                Ok(header) => {
                    let payload = self.used + frame::HEADER_BYTES
                        ..self.used + frame::HEADER_BYTES + header.payload_bytes;
                    self.used += header.frame_bytes();
                    self.offset += header.frame_bytes() as u64;
                    return Ok(Step::Frame(header, &self.bytes[payload]));
                }
                Err(NoFrame::Cut(needed)) if needed > self.bytes.len() - self.used => {
                    if !self.read_more(wanted.max(needed))? {
                        return Ok(Step::None(NoFrame::Cut(needed)));
                    }
                    wanted = needed;
                }
                Err(none) => return Ok(Step::None(none)),
            }
        }
    }

    /// Reads on, so that `wanted` bytes are there; false if the file has not so many.
    fn read_more(&mut self, wanted: usize) -> Result<bool> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let have = self.bytes.len();
        self.bytes.resize(have + wanted.max(READ_BYTES), 0);
        let at = self.segment.place_of(self.offset) + have as u64;
        let read = self.segment.file.read_at(&mut self.bytes[have..], at);
        let read = read.map_err(|error| self.segment.failed("read", &error))?;
        self.bytes.truncate(have + read);
        Ok(self.bytes.len() >= wanted)
    }
}

fn header(partition: u32, reserved: u64) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&partition.to_le_bytes());
    bytes[16..24].copy_from_slice(&reserved.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The offset that a segment's name tells.
fn start_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}
