//! `umbel.Filter`.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use umbel_filter::limits::CAPACITY_MAX;
use umbel_filter::{Family, Filter as Array, Hasher, Kind, Layout, Limits, Secret, Spec, Stats};

use crate::counting::CountingFilter;
use crate::errors::of_filter;
use crate::keys::{Batch, answers, with_key};

/// How many times larger the next part of a RedisBloom filter is, as there.
const EXPANSION: u32 = 2;

/// A set that answers "certainly not" or "maybe", in a few bits a key.
///
/// capacity: how many keys it is for; error: the share of absent keys that it may take for present ones, once
/// that many are in. family: murmur3 (the default), xxh3 (the fastest), redisbloom, redisson, or keyed with a
/// secret of 16 bytes, for keys that strangers choose. layout: blocked, or that of another system: guava,
/// redisbloom, redisson.
///
/// Keys are str (their UTF-8 is hashed), bytes, or int (eight bytes, little-endian, as Guava's longFunnel has
/// them): "1", b"1" and 1 are two keys, since the first two have the same bytes. Any number of threads may use a filter.
#[pyclass(frozen, subclass, module = "umbel")]
pub(crate) struct Filter {
    /// Whoever finds nobody else here adds without atomic instructions, which is twice as fast. Nobody waits to be alone: where others
    /// are, they are joined, and where one is alone, that lasts for a block of keys at most. Nobody asks for the interpreter's lock in here.
    array: RwLock<Array>,
    pub(crate) hasher: Hasher,
    pub(crate) spec: Spec,
    /// It is not stored with the filter.
    pub(crate) secret: Option<Secret>,
}

#[pymethods]
impl Filter {
    #[new]
    #[pyo3(signature = (capacity, error = 0.001, *, family = None, layout = "blocked", secret = None))]
    fn new(
        capacity: &Bound<'_, PyAny>,
        error: f64,
        family: Option<&str>,
        layout: &str,
        secret: Option<&[u8]>,
    ) -> PyResult<Self> {
        let layout = match layout {
            "blocked" => Layout::Blocked,
            "guava" => Layout::Guava,
            "redisbloom" => Layout::RedisBloom { expansion: Some(EXPANSION) },
            "redisson" => Layout::Redisson,
            other => {
                return Err(PyValueError::new_err(format!(
                    "invalid layout: {other:?}; known are blocked, guava, redisbloom, redisson"
                )));
            }
        };
        Self::made(Spec::hosted(layout, capacity_of(capacity)?, error), family, secret)
    }

    /// Adds a key. True if it was not there before.
    fn add(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = with_key(key, |key| self.hasher.fingerprint(key))?;
        let Some(mut array) = self.alone() else {
            return self.array().insert_fingerprint(key).map_err(of_filter);
        };
        let is_new = !array.contains_fingerprint(key);
        if is_new || self.spec.kind != Kind::Bloom {
            array.fill_fingerprints(&[key]).map_err(of_filter)?;
        }
        Ok(is_new)
    }

    /// Whether a key may have been added; False is certain.
    fn contains(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.__contains__(key)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = with_key(key, |key| self.hasher.fingerprint(key))?;
        Ok(self.array().contains_fingerprint(key))
    }

    /// Adds many keys: an iterable of keys, or an array of numpy with integers, bytes (S) or text (U).
    ///
    /// If one of them is no key, those before it may have been added.
    fn update(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut new = Vec::new();
        let add = |keys: &[_]| match self.alone() {
            Some(mut array) => array.fill_fingerprints(keys),
            None => self.array().insert_fingerprints(keys, &mut new),
        };
        Batch::of(keys)?.each_block(py, &self.hasher, add, of_filter)
    }

    /// Adds many keys as `update` does, and says of each whether it was not there before: in a list, or in an
    /// array of numpy if the keys are in one.
    fn add_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let add = |keys: &[_], new: &mut Vec<bool>| self.array().insert_fingerprints(keys, new);
        self.many(py, keys, add)
    }

    /// Says of each key whether it may have been added: in a list, or in an array of numpy if the keys are in one.
    fn contains_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let look = |keys: &[_], found: &mut Vec<bool>| {
            self.array().contains_fingerprints(keys, found);
            Ok(())
        };
        self.many(py, keys, look)
    }

    /// How many keys it is for.
    #[getter]
    fn capacity(&self) -> u64 {
        self.spec.capacity
    }

    /// The error rate that it has at its capacity.
    #[getter]
    fn error(&self) -> f64 {
        self.spec.error
    }

    /// The error rate as the filter is filled now. It looks at all of it, as `items` and `fill` do.
    #[getter]
    fn error_now(&self, py: Python<'_>) -> f64 {
        self.stats(py).error
    }

    /// An estimate of how many distinct keys are in it; infinite if it is as full as can be.
    #[getter]
    fn items(&self, py: Python<'_>) -> f64 {
        self.stats(py).cardinality
    }

    /// The share of its bits, or counters, that are in use.
    #[getter]
    fn fill(&self, py: Python<'_>) -> f64 {
        self.stats(py).fill
    }

    /// Bits of its memory.
    #[getter]
    fn bits(&self) -> u64 {
        self.array().bytes() * 8
    }

    /// How keys are hashed.
    #[getter]
    fn family(&self) -> &'static str {
        self.spec.family.name()
    }

    /// How bits are laid out.
    #[getter]
    fn layout(&self) -> String {
        self.spec.layout.to_string()
    }

    /// A digest, in hexadecimal: equal for filters of the same parameters and content, on every machine.
    fn digest(&self, py: Python<'_>) -> String {
        format!("{:032x}", py.detach(|| self.array().digest()))
    }

    /// Another filter with the same content.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.copied(py)?.into_python(py)
    }

    fn __copy__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.copy(py)
    }

    fn __deepcopy__<'py>(&self, py: Python<'py>, _memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.copy(py)
    }

    /// The keys of both filters, which have to have the same parameters.
    fn __or__<'py>(&self, py: Python<'py>, other: &Self) -> PyResult<Bound<'py, PyAny>> {
        let both = self.copied(py)?;
        py.detach(|| both.array().union(&other.array())).map_err(of_filter)?;
        both.into_python(py)
    }

    fn __ior__(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
        py.detach(|| self.array().union(&other.array())).map_err(of_filter)
    }

    /// An estimate of how many keys are in both filters, which have to have the same parameters.
    fn common_items(&self, py: Python<'_>, other: &Self) -> PyResult<f64> {
        py.detach(|| self.array().intersection(&other.array())).map_err(of_filter)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (name, spec) = (slf.get_type().name()?, slf.get().spec);
        Ok(format!(
            "{name}(capacity={}, error={}, family='{}', layout='{}')",
            spec.capacity, spec.error, spec.family, spec.layout
        ))
    }
}

impl Filter {
    pub(crate) fn made(spec: Spec, family: Option<&str>, secret: Option<&[u8]>) -> PyResult<Self> {
        let secret = secret_of(secret)?;
        let family = match (family, &secret) {
            (Some(name), _) => name.parse().map_err(of_filter)?,
            (None, Some(_)) => Family::Keyed,
            (None, None) => spec.family,
        };
        let (spec, limits) = (spec.family(family), Limits::default());
        let array = match &secret {
            Some(secret) if family == Family::Keyed => Array::keyed(&spec, secret, &limits),
            Some(_) => {
                return Err(PyValueError::new_err(format!(
                    "invalid secret: the family {family} uses none; keyed does"
                )));
            }
            None => Array::new(&spec, &limits),
        };
        Ok(Self::of(array.map_err(of_filter)?, secret))
    }

    pub(crate) fn of(array: Array, secret: Option<Secret>) -> Self {
        let (hasher, spec) = (array.hasher().clone(), *array.spec());
        Self { array: RwLock::new(array), hasher, spec, secret }
    }

    /// The array, with others who may be there.
    #[inline]
    pub(crate) fn array(&self) -> RwLockReadGuard<'_, Array> {
        self.array.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array, if nobody else is there and its layout gains by it.
    #[inline]
    fn alone(&self) -> Option<RwLockWriteGuard<'_, Array>> {
        if self.spec.layout != Layout::Blocked {
            return None;
        }
        match self.array.try_write() {
            Ok(array) => Some(array),
            Err(TryLockError::Poisoned(array)) => Some(array.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// An object of the class for its kind.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        if self.spec.kind == Kind::Bloom {
            return Ok(Bound::new(py, self)?.into_any());
        }
        let counting = PyClassInitializer::from(self).add_subclass(CountingFilter);
        Ok(Bound::new(py, counting)?.into_any())
    }

    fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let array = py.detach(|| {
            let (array, limits) = (self.array(), Limits::default());
            let outline = array.outline();
            let mut copy = Array::from_outline(&outline, self.secret.as_ref(), &limits)?;
            let mut bytes = Vec::new();
            for block in 0..copy.blocks() {
                array.copy_block(block, &mut bytes);
                copy.load_block(block, &bytes)?;
            }
            Ok(copy)
        });
        Ok(Self::of(array.map_err(of_filter)?, self.secret.clone()))
    }

    fn stats(&self, py: Python<'_>) -> Stats {
        py.detach(|| self.array().stats())
    }

    /// Answers for each key of a batch.
    fn many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        mut one: impl FnMut(&[umbel_filter::Fingerprint], &mut Vec<bool>) -> umbel_filter::Result<()> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = Batch::of(keys)?;
        let (mut all, mut block, is_array) = (Vec::new(), Vec::new(), batch.is_array());
        let run = |keys: &[_]| {
            one(keys, &mut block)?;
            all.extend_from_slice(&block);
            Ok(())
        };
        batch.each_block(py, &self.hasher, run, of_filter)?;
        answers(py, &all, is_array)
    }
}

/// A capacity: whatever does not fit into a number of ours is a value out of range, as Python has it.
pub(crate) fn capacity_of(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            PyValueError::new_err(format!("invalid capacity: {value}; it must be 1 to {CAPACITY_MAX}"))
        } else {
            error
        }
    })
}

pub(crate) fn secret_of(secret: Option<&[u8]>) -> PyResult<Option<Secret>> {
    let Some(bytes) = secret else { return Ok(None) };
    let bytes = bytes.try_into().map_err(|_| {
        PyValueError::new_err(format!("invalid secret: it has {} bytes; it must have 16", bytes.len()))
    })?;
    Ok(Some(Secret(bytes)))
}
