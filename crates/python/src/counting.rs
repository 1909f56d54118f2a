//! `umbel.CountingFilter`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use umbel_filter::{Counter, Kind, Spec};

use crate::errors::of_filter;
use crate::filter::{Filter, capacity_of};
use crate::keys::{Batch, answers, with_key};

/// A filter whose keys can be taken out again: it has counters instead of bits, and four to six times the memory.
///
/// counter_bits: 4 counts to 15, which is enough unless the same key is added over and over; 8 counts to 255.
#[pyclass(frozen, extends = Filter, module = "umbel")]
pub(crate) struct CountingFilter;

#[pymethods]
impl CountingFilter {
    #[new]
    #[pyo3(signature = (capacity, error = 0.001, *, family = None, counter_bits = 4, secret = None))]
    fn new(
        capacity: &Bound<'_, PyAny>,
        error: f64,
        family: Option<&str>,
        counter_bits: i64,
        secret: Option<&[u8]>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let counter = match counter_bits {
            4 => Counter::Nibble,
            8 => Counter::Byte,
            other => {
                return Err(PyValueError::new_err(format!("counter_bits is {other}; it must be 4 or 8")));
            }
        };
        let spec = Spec::counting(capacity_of(capacity)?, error).kind(Kind::Counting(counter));
        Ok(PyClassInitializer::from(Filter::made(spec, family, secret)?).add_subclass(Self))
    }

    /// Takes one occurrence of a key out. False, and nothing changed, if it is not there.
    ///
    /// Remove only what was added: a key that is there by mistake takes counters away from others.
    fn remove(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        with_key(key, |key| filter(slf).array().remove(key))?.map_err(of_filter)
    }

    /// Takes one occurrence of each key out, and says of each whether it was there.
    fn remove_many<'py>(slf: &Bound<'py, Self>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (filter, batch, mut removed) = (filter(slf), Batch::of(keys)?, Vec::new());
        let is_array = batch.is_array();
        let remove = |keys: &[_]| {
            let array = filter.array();
            for key in keys {
                removed.push(array.remove_fingerprint(*key)?);
            }
            Ok(())
        };
        batch.each_block(slf.py(), &filter.hasher, remove, of_filter)?;
        answers(slf.py(), &removed, is_array)
    }

    /// How often a key is in the filter, at most.
    fn count(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        with_key(key, |key| filter(slf).array().count(key))?.map_err(of_filter)
    }

    /// Bits of each counter.
    #[getter]
    fn counter_bits(slf: &Bound<'_, Self>) -> u32 {
        filter(slf).spec.kind.cell_bits()
    }
}

fn filter<'a>(slf: &'a Bound<'_, CountingFilter>) -> &'a Filter {
    slf.as_super().get()
}
