//! A file, or standard input, as bytes that are not packed any more.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Memory that a file of zstd may ask for: what its own tool allows unless it is told otherwise.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What is compared before a bookmark in a file is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    bytes: u64,
    /// The number that the system gave it, where there is one.
    inode: u64,
    modified_ms: u64,
}

impl Identity {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let found = std::fs::metadata(path).map_err(|error| Error::file(path.display(), &error))?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&found);
        #[cfg(not(unix))]
        let inode = 0;
        let modified = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ms = modified.map_or(0, |time| time.as_millis() as u64);
        Ok(Self { bytes: found.len(), inode, modified_ms })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// That of an object, which others replace and nobody changes: the mark that its store gave it is its number.
    #[cfg(feature = "s3")]
    pub(super) fn of_object(bytes: u64, mark: &str, modified_ms: u64) -> Self {
        Self { bytes, inode: crc32c::crc32c(mark.as_bytes()).into(), modified_ms }
    }

    /// Refuses a file that is another one now. One that has only become longer is what it was, as logs are.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let now = Self::of(path)?;
        let is_longer = now.bytes > self.bytes;
        if now.inode == self.inode && (is_longer || now == *self) {
            return Ok(());
        }
        Err(Error::Corrupt(format!("{} was changed since it began to be read: begin anew", path.display())))
    }
}

/// Bytes that are read at once.
pub(super) const PIECE_BYTES: usize = 1 << 18;
/// The same of what is packed.
const PACKED_PIECE_BYTES: usize = 1 << 17;

/// How many bytes of a file were read for the records that came of it. Readers hold more than that, and what is packed is small
/// beside what comes of it: the bytes that were taken of the file count in proportion to those that the records had.
pub(super) struct Taken {
    /// Bytes taken of the file, and how many of them came before this place in it.
    file: Arc<AtomicU64>,
    before: u64,
    /// Bytes that came of them, unpacked.
    unpacked: Arc<AtomicU64>,
    told: u64,
}

impl Taken {
    /// How many since this was last asked, when records had so many of the unpacked bytes.
    pub(super) fn more(&mut self, used: u64) -> u64 {
        let taken = self.file.load(Ordering::Relaxed).saturating_sub(self.before);
        let unpacked = self.unpacked.load(Ordering::Relaxed);
        let share = u128::from(taken) * u128::from(used.min(unpacked)) / u128::from(unpacked.max(1));
        let now = u64::try_from(share).unwrap_or(taken).max(self.told);
        now - std::mem::replace(&mut self.told, now)
    }
}

/// Bytes to read, and how many of the file they took.
pub(super) struct Opened {
    reader: Reader,
    bytes: u64,
    taken: Arc<AtomicU64>,
}

/// Bytes that can be read from any place on.
pub(super) trait Seekable: Read + Seek + Send {}

impl<T: Read + Seek + Send> Seekable for T {}

enum Reader {
    Plain(Box<dyn Seekable>),
    Streamed(Box<dyn Read + Send>),
}

/// Counts what goes through it; of a buffer, what is used of it.
struct Counted<R> {
    inner: R,
    taken: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    fn new(inner: R, taken: &Arc<AtomicU64>) -> Self {
        Self { inner, taken: Arc::clone(taken) }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl Opened {
    pub(super) fn file(path: &Path) -> Result<Self> {
        let wrong = |error: io::Error| Error::file(path.display(), &error);
        let file = File::open(path).map_err(wrong)?;
        let found = file.metadata().map_err(wrong)?;
        Self::whole(file, found.len()).map_err(wrong)
    }

    /// What can be read from any place on, and has so many bytes.
    pub(super) fn whole(mut file: impl Seekable + 'static, bytes: u64) -> io::Result<Self> {
        let mut magic = [0; 4];
        let length = read_up_to(&mut file, &mut magic)?;
        file.rewind()?;
        let taken = Arc::new(AtomicU64::new(0));
        let reader = if is_packed(&magic[..length]) {
            Reader::Streamed(unpacked(&magic[..length], file, &taken)?)
        } else {
            Reader::Plain(Box::new(file))
        };
        Ok(Self { reader, bytes, taken })
    }

    pub(super) fn stdin() -> Result<Self> {
        Self::streamed(io::stdin()).map_err(|error| Error::file("standard input", &error))
    }

    fn streamed(mut input: impl Read + Send + 'static) -> io::Result<Self> {
        let mut magic = [0; 4];
        let length = read_up_to(&mut input, &mut magic)?;
        let taken = Arc::new(AtomicU64::new(0));
        let whole = io::Cursor::new(magic).take(length as u64).chain(input);
        let reader = Reader::Streamed(unpacked(&magic[..length], whole, &taken)?);
        Ok(Self { reader, bytes: 0, taken })
    }

    /// Whether any byte of it can be gone to at once.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.reader, Reader::Plain(_))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its bytes from a place on, and who knows how many of the file are taken from then on. What is packed is unpacked up to there.
    pub(super) fn from(self, at: u64, name: &str) -> Result<(Box<dyn Read + Send>, Taken)> {
        let wrong = |error: io::Error| Error::file(name, &error);
        let short = || Error::Corrupt(format!("{name} ends before byte {at}, where it was to go on"));
        let reader: Box<dyn Read + Send> = match self.reader {
            Reader::Plain(mut file) => {
                if at > self.bytes {
                    return Err(short());
                }
                file.seek(SeekFrom::Start(at)).map_err(wrong)?;
                Box::new(Counted::new(file, &self.taken))
            }
            Reader::Streamed(mut reader) => {
                let passed = io::copy(&mut (&mut reader).take(at), &mut io::sink()).map_err(wrong)?;
                if passed < at {
                    return Err(short());
                }
                reader
            }
        };
        let unpacked = Arc::new(AtomicU64::new(0));
        let counted = Counted::new(reader, &unpacked);
        let before = self.taken.load(Ordering::Relaxed);
        Ok((Box::new(counted), Taken { file: self.taken, before, unpacked, told: 0 }))
    }
}

fn is_packed(magic: &[u8]) -> bool {
    magic.starts_with(&GZIP) || magic.starts_with(&ZSTD)
}

/// By what the bytes say, not the name: files are renamed, and standard input has none. Counts what is used of the bytes.
fn unpacked(
    magic: &[u8],
    reader: impl Read + Send + 'static,
    taken: &Arc<AtomicU64>,
) -> io::Result<Box<dyn Read + Send>> {
    let reader = Counted::new(BufReader::with_capacity(PACKED_PIECE_BYTES, reader), taken);
    if magic.starts_with(&GZIP) {
        // Several in one file, as `cat a.gz b.gz` makes them, are one.
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(reader)));
    }
    if magic.starts_with(&ZSTD) {
        let mut decoder = zstd::Decoder::with_buffer(reader)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(reader))
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
