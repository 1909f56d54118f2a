//! Keys as Python has them: objects one by one, in batches, and arrays of numpy.
//!
//! | key | bytes that are hashed |
//! | --- | --- |
//! | `str` | its UTF-8 |
//! | `bytes`, `bytearray` | as they are |
//! | `int` and numpy's integers | eight bytes, little-endian, as Guava's `longFunnel` gives them |
//! | numpy `S` | the bytes without zeros at the end, as numpy itself shows them |
//! | numpy `U` | the UTF-8 of the text |

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyList, PyString, PyTuple};
use umbel_filter::{Fingerprint, Hasher};

/// Keys that are hashed before they are searched for: few enough to stay in a cache, and enough for the lock to be let go rarely.
const BLOCK_KEYS: usize = 1 << 16;
/// Fewer keys are done sooner than the lock is let go and taken again.
const FEW_KEYS: usize = 64;

/// Calls `with` with the bytes of a key.
#[inline]
pub(crate) fn with_key<R>(key: &Bound<'_, PyAny>, with: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    // Whether it is of exactly this class is seen without a call of the interpreter.
    if let Ok(text) = key.cast_exact::<PyString>() {
        return Ok(with(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = key.cast_exact::<PyBytes>() {
        return Ok(with(bytes.as_bytes()));
    }
    with_rarer(key, with)
}

#[cold]
fn with_rarer<R>(key: &Bound<'_, PyAny>, with: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(with(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(with(bytes.as_bytes()));
    }
    if let Ok(bytes) = key.cast::<PyByteArray>() {
        return Ok(with(&bytes.to_vec()));
    }
    if !key.is_instance_of::<PyBool>() {
        match key.extract::<i64>() {
            Ok(number) => return Ok(with(&number.to_le_bytes())),
            Err(error) if error.is_instance_of::<PyOverflowError>(key.py()) => {
                let number = key.extract::<u64>().map_err(|_| {
                    PyValueError::new_err(format!("{key} is no key: an int has to fit into eight bytes"))
                })?;
                return Ok(with(&number.to_le_bytes()));
            }
            Err(_) => {}
        }
    }
    let kind = key.get_type().name()?;
    Err(PyTypeError::new_err(format!("a key is str, bytes or int, not {kind}")))
}

/// A batch of keys.
pub(crate) enum Batch<'py> {
    /// Objects, one after another.
    Objects { iterator: Objects<'py>, is_array: bool },
    /// The content of an array of numpy.
    Array(Array<'py>),
}

/// What gives objects; lists and tuples without an iterator of Python's.
pub(crate) enum Objects<'py> {
    List(Bound<'py, PyList>, usize),
    Tuple(Bound<'py, PyTuple>, usize),
    Any(Bound<'py, pyo3::types::PyIterator>),
}

impl<'py> Iterator for Objects<'py> {
    type Item = PyResult<Bound<'py, PyAny>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (item, at) = match self {
            Self::List(list, at) => (list.get_item(*at), at),
            Self::Tuple(tuple, at) => (tuple.get_item(*at), at),
            Self::Any(iterator) => return iterator.next(),
        };
        *at += 1;
        // Asking for the length each time would cost more than to be told once that it is over; a list may become shorter meanwhile.
        item.map_or_else(over, |item| Some(Ok(item)))
    }
}

/// Only an item that is not there ends the items.
#[cold]
fn over<T>(error: PyErr) -> Option<PyResult<T>> {
    let is_end = Python::attach(|py| error.is_instance_of::<PyIndexError>(py));
    if is_end { None } else { Some(Err(error)) }
}

impl<'py> Batch<'py> {
    pub(crate) fn of(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = keys.cast::<PyList>() {
            return Ok(Self::objects(Objects::List(list.clone(), 0)));
        }
        if let Ok(tuple) = keys.cast::<PyTuple>() {
            return Ok(Self::objects(Objects::Tuple(tuple.clone(), 0)));
        }
        if keys.is_instance_of::<PyString>()
            || keys.is_instance_of::<PyBytes>()
            || keys.is_instance_of::<PyByteArray>()
        {
            // It would be taken apart into letters.
            let kind = keys.get_type().name()?;
            return Err(PyTypeError::new_err(format!("many keys are a list or an array, not one {kind}")));
        }
        if keys.hasattr("__array_interface__")? {
            return Array::batch(keys);
        }
        Ok(Self::objects(Objects::Any(keys.try_iter()?)))
    }

    fn objects(iterator: Objects<'py>) -> Self {
        Self::Objects { iterator, is_array: false }
    }

    /// Whether answers are to be an array too.
    pub(crate) fn is_array(&self) -> bool {
        match self {
            Self::Objects { is_array, .. } => *is_array,
            Self::Array(_) => true,
        }
    }

    /// Hashes all keys, block after block, and calls `run` with each block, without the interpreter's lock.
    ///
    /// Objects are Python's, so they are hashed under the lock; arrays are hashed without it.
    pub(crate) fn each_block<E: Send>(
        self,
        py: Python<'_>,
        hasher: &Hasher,
        mut run: impl FnMut(&[Fingerprint]) -> Result<(), E> + Send,
        error: impl Fn(E) -> PyErr,
    ) -> PyResult<()> {
        let mut block = Vec::new();
        let mut iterator = match self {
            Self::Objects { iterator, .. } => iterator,
            Self::Array(array) => {
                let content = array.content();
                let mut at = 0;
                while at < array.count {
                    let end = array.count.min(at + BLOCK_KEYS);
                    let done = py.detach(|| {
                        array.shape.hash(content, at..end, hasher, &mut block)?;
                        Ok(run(&block))
                    });
                    done.map_err(|wrong: Wrong| wrong.error(at))?.map_err(&error)?;
                    py.check_signals()?;
                    at = end;
                }
                return Ok(());
            }
        };
        loop {
            block.clear();
            for key in iterator.by_ref().take(BLOCK_KEYS) {
                block.push(with_key(&key?, |key| hasher.fingerprint(key))?);
            }
            if block.len() < FEW_KEYS {
                return run(&block).map_err(&error);
            }
            py.detach(|| run(&block)).map_err(&error)?;
            if block.len() < BLOCK_KEYS {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// The bytes of all keys, for those who send them elsewhere.
    pub(crate) fn bytes(self) -> PyResult<Vec<Vec<u8>>> {
        match self {
            Self::Objects { iterator, .. } => iterator.map(|key| with_key(&key?, <[u8]>::to_vec)).collect(),
            Self::Array(array) => {
                let (content, mut keys) = (array.content(), Vec::new());
                let all = array.shape.each(content, 0..array.count, |key| keys.push(key.to_vec()));
                all.map_err(|wrong| wrong.error(0))?;
                Ok(keys)
            }
        }
    }
}

/// The content of an array of numpy, copied once: others may write into the array while nobody has the lock.
pub(crate) struct Array<'py> {
    content: Bound<'py, PyBytes>,
    shape: Shape,
    count: usize,
}

/// How keys lie in an array.
#[derive(Clone, Copy)]
struct Shape {
    width: usize,
    element: Element,
}

#[derive(Clone, Copy)]
enum Element {
    Integers,
    Bytes,
    /// Four little-endian bytes for each letter.
    Text,
}

/// A letter of a text that is none, in the key of this number.
struct Wrong(usize);

impl Wrong {
    fn error(&self, first: usize) -> PyErr {
        PyValueError::new_err(format!(
            "the key at {} is no text: it has half of a surrogate pair",
            first + self.0
        ))
    }
}

impl<'py> Array<'py> {
    fn batch(array: &Bound<'py, PyAny>) -> PyResult<Batch<'py>> {
        let dimensions: usize = array.getattr("ndim")?.extract()?;
        if dimensions != 1 {
            return Err(PyValueError::new_err(format!(
                "an array of keys has one dimension, not {dimensions}"
            )));
        }
        let dtype = array.getattr("dtype")?;
        let kind: String = dtype.getattr("kind")?.extract()?;
        let little_endian = || dtype.call_method1("newbyteorder", ("<",));
        let (as_type, element) = match &*kind {
            "i" => (PyString::new(array.py(), "<i8").into_any(), Element::Integers),
            "u" => (PyString::new(array.py(), "<u8").into_any(), Element::Integers),
            "S" => (dtype.clone(), Element::Bytes),
            "U" => (little_endian()?, Element::Text),
            "O" => return Ok(Batch::Objects { iterator: Objects::Any(array.try_iter()?), is_array: true }),
            _ => {
                return Err(PyTypeError::new_err(format!(
                    "an array of keys has integers, bytes (S), text (U) or objects, not {dtype}"
                )));
            }
        };
        let array = array.call_method1("astype", (as_type,))?;
        let count = array.len()?;
        let content = array.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        let width = array.getattr("dtype")?.getattr("itemsize")?.extract()?;
        if count.checked_mul(width) != Some(content.as_bytes().len()) {
            return Err(PyValueError::new_err("the array has other bytes than it says"));
        }
        Ok(Batch::Array(Self { content, shape: Shape { width, element }, count }))
    }

    fn content(&self) -> &[u8] {
        self.content.as_bytes()
    }
}

impl Shape {
    fn hash(
        self,
        content: &[u8],
        range: std::ops::Range<usize>,
        hasher: &Hasher,
        out: &mut Vec<Fingerprint>,
    ) -> Result<(), Wrong> {
        out.clear();
        self.each(content, range, |key| out.push(hasher.fingerprint(key)))
    }

    /// Shows the bytes of each key of a range.
    #[inline]
    fn each(
        self,
        content: &[u8],
        range: std::ops::Range<usize>,
        mut see: impl FnMut(&[u8]),
    ) -> Result<(), Wrong> {
        let mut text = String::new();
        for (number, index) in range.enumerate() {
            let key = &content[index * self.width..(index + 1) * self.width];
            match self.element {
                Element::Integers => see(key),
                Element::Bytes => see(&key[..without_zeros(key)]),
                Element::Text => {
                    text.clear();
                    let (letters, _) = key.as_chunks::<4>();
                    let length =
                        letters.iter().rposition(|letter| *letter != [0; 4]).map_or(0, |last| last + 1);
                    for letter in &letters[..length] {
                        text.push(char::from_u32(u32::from_le_bytes(*letter)).ok_or(Wrong(number))?);
                    }
                    see(text.as_bytes());
                }
            }
        }
        Ok(())
    }
}

fn without_zeros(key: &[u8]) -> usize {
    key.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Answers for many keys: a list, or an array of numpy for an array.
pub(crate) fn answers<'py>(py: Python<'py>, answers: &[bool], is_array: bool) -> PyResult<Bound<'py, PyAny>> {
    if !is_array {
        return Ok(PyList::new(py, answers)?.into_any());
    }
    let bytes: Vec<u8> = answers.iter().map(|answer| u8::from(*answer)).collect();
    py.import("numpy")?.call_method1("frombuffer", (PyByteArray::new(py, &bytes), "?"))
}
