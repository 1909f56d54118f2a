//! Filters as bytes and files: Umbel's own format, Guava's and RedisBloom's.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use umbel_filter::format::native::{Compression, Reader};
use umbel_filter::format::{guava, native, redisbloom};
use umbel_filter::{Error, Family, Kind, Limits, Result, Secret};

use crate::counting::CountingFilter;
use crate::errors::{UnsupportedError, of_filter};
use crate::filter::{Filter, secret_of};

#[pymethods]
impl Filter {
    /// The filter as bytes, in Umbel's own format, with checksums.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.written(Vec::new())).map_err(of_filter)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads what `to_bytes` gave; it needs the secret of a keyed filter.
    #[classmethod]
    #[pyo3(signature = (data, secret = None))]
    fn from_bytes<'py>(
        cls: &Bound<'py, PyType>,
        data: &Bound<'py, PyBytes>,
        secret: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (bytes, secret) = (data.as_bytes(), secret_of(secret)?);
        let filter = cls.py().detach(|| Self::read(bytes, secret)).map_err(of_filter)?;
        filter.into_class(cls)
    }

    /// Writes the filter into a file, which is there as a whole or not at all.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.write_file(&path)).map_err(of_filter)
    }

    /// Reads a file that `save` wrote; it needs the secret of a keyed filter.
    #[classmethod]
    #[pyo3(signature = (path, secret = None))]
    fn load<'py>(
        cls: &Bound<'py, PyType>,
        path: PathBuf,
        secret: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let secret = secret_of(secret)?;
        let read = || Self::read(BufReader::new(File::open(&path)?), secret);
        let filter = cls.py().detach(read).map_err(of_filter)?;
        filter.into_class(cls)
    }

    /// A filter of layout guava as Guava's `BloomFilter.writeTo` would write it.
    fn to_guava<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let written = py.detach(|| {
            let mut bytes = Vec::new();
            guava::write(&self.array(), &mut bytes).map(|()| bytes)
        });
        Ok(PyBytes::new(py, &written.map_err(of_filter)?))
    }

    /// Reads what Guava's `BloomFilter.writeTo` wrote. Its keys are str where it had a stringFunnel of UTF-8,
    /// bytes for a byteArrayFunnel, and int for a longFunnel.
    #[classmethod]
    fn from_guava<'py>(cls: &Bound<'py, PyType>, data: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = data.as_bytes();
        // The array is there as it is: one that says that it is larger takes no memory. A filter has a line at least.
        let length = bytes.len() as u64;
        let limits = Limits { filter_bytes_max: length.next_multiple_of(64).max(64), ..Limits::default() };
        let read = cls.py().detach(|| guava::read(bytes, &limits));
        let array = read.map_err(|error| match error {
            Error::TooLarge { asked, .. } => {
                let missing = u64::try_from(asked).unwrap_or(u64::MAX).saturating_sub(length);
                of_filter(Error::Truncated { format: "Guava", offset: length, missing })
            }
            other => of_filter(other),
        })?;
        Self::of(array, None).into_class(cls)
    }

    /// A filter of layout redisbloom as `BF.SCANDUMP` gives it: pairs of a cursor and a chunk, for `BF.LOADCHUNK`.
    fn to_redisbloom<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
        let chunks = py.detach(|| redisbloom::chunks(&self.array()).collect::<Result<Vec<_>>>());
        let chunks = chunks.map_err(of_filter)?.into_iter();
        Ok(chunks.map(|(cursor, chunk)| (cursor, PyBytes::new(py, &chunk))).collect())
    }

    /// Reads the chunks that `BF.SCANDUMP` gave, with their cursors; the header, of cursor 1, comes first.
    #[classmethod]
    fn from_redisbloom<'py>(
        cls: &Bound<'py, PyType>,
        chunks: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut loader: Option<redisbloom::Loader> = None;
        for chunk in chunks.try_iter()? {
            let (cursor, chunk): (u64, Bound<'py, PyBytes>) = chunk?.extract()?;
            let taken = match &mut loader {
                None => redisbloom::Loader::new(chunk.as_bytes(), &Limits::default())
                    .map(|new| loader = Some(new)),
                Some(loader) => loader.load(cursor, chunk.as_bytes()),
            };
            taken.map_err(of_filter)?;
        }
        let nothing = || Error::Truncated { format: "RedisBloom", offset: 0, missing: 1 };
        let array = loader.ok_or_else(nothing).and_then(redisbloom::Loader::finish).map_err(of_filter)?;
        Self::of(array, None).into_class(cls)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        if slf.get().spec.family == Family::Keyed {
            return Err(UnsupportedError::new_err(
                "a keyed filter is not pickled, because its secret is not stored with it: use to_bytes and from_bytes",
            ));
        }
        let bytes = slf.get().to_bytes(py)?;
        Ok((slf.get_type().getattr("from_bytes")?, PyTuple::new(py, [bytes])?))
    }
}

impl Filter {
    fn written<W: Write>(&self, mut out: W) -> Result<W> {
        native::write(&self.array(), Compression::None, &mut out)?;
        Ok(out)
    }

    fn read(from: impl Read, secret: Option<Secret>) -> Result<Self> {
        let array = Reader::open(from, &Limits::default())?.filter(secret.as_ref())?;
        Ok(Self::of(array, secret))
    }

    fn write_file(&self, path: &Path) -> Result<()> {
        // Two threads may save to the same place at once.
        static SAVES: AtomicU64 = AtomicU64::new(0);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{}.tmp", std::process::id(), SAVES.fetch_add(1, Ordering::Relaxed)));
        let beside = PathBuf::from(name);
        let write = || -> Result<()> {
            let out = self.written(BufWriter::new(File::create(&beside)?))?;
            out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
            Ok(fs::rename(&beside, path)?)
        };
        write().inspect_err(|_| {
            // What was wrong is said already; the rest of a file is of no use to anybody.
            let _ = fs::remove_file(&beside);
        })
    }

    /// An object of a class, if it may be one: whoever asks for a counting filter is to get one.
    fn into_class<'py>(self, cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        if self.spec.kind == Kind::Bloom && cls.is_subclass_of::<CountingFilter>()? {
            return Err(UnsupportedError::new_err("these bytes are a Bloom filter, which has no counters"));
        }
        self.into_python(py)
    }
}
