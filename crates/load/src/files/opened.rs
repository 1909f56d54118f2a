//! A file, or standard input, as bytes that are not packed any more.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
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

/// How many bytes of a file were taken, for whoever asks now and then.
pub(super) struct Taken {
    all: Arc<AtomicU64>,
    told: u64,
}

impl Taken {
    /// What was taken so far is told to nobody.
    fn from_now_on(all: Arc<AtomicU64>) -> Self {
        let told = all.load(Ordering::Relaxed);
        Self { all, told }
    }

    /// How many since this was last asked.
    pub(super) fn more(&mut self) -> u64 {
        let all = self.all.load(Ordering::Relaxed);
        all - std::mem::replace(&mut self.told, all)
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

/// Counts what goes through it.
struct Counted<R> {
    inner: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
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
            let counted = Counted { inner: file, taken: Arc::clone(&taken) };
            Reader::Streamed(unpacked(&magic[..length], counted)?)
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
        let counted = Counted { inner: whole, taken: Arc::clone(&taken) };
        let reader = Reader::Streamed(unpacked(&magic[..length], counted)?);
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
        match self.reader {
            Reader::Plain(mut file) => {
                if at > self.bytes {
                    return Err(short());
                }
                file.seek(SeekFrom::Start(at)).map_err(wrong)?;
                let counted = Counted { inner: file, taken: Arc::clone(&self.taken) };
                Ok((Box::new(counted), Taken::from_now_on(self.taken)))
            }
            Reader::Streamed(mut reader) => {
                let passed = io::copy(&mut (&mut reader).take(at), &mut io::sink()).map_err(wrong)?;
                if passed < at {
                    return Err(short());
                }
                Ok((reader, Taken::from_now_on(self.taken)))
            }
        }
    }
}

fn is_packed(magic: &[u8]) -> bool {
    magic.starts_with(&GZIP) || magic.starts_with(&ZSTD)
}

/// By what the bytes say, not the name: files are renamed, and standard input has none.
fn unpacked(magic: &[u8], reader: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    if magic.starts_with(&GZIP) {
        // Several in one file, as `cat a.gz b.gz` makes them, are one.
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(io::BufReader::with_capacity(
            1 << 17,
            reader,
        ))));
    }
    if magic.starts_with(&ZSTD) {
        let mut decoder = zstd::Decoder::new(reader)?;
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
