//! What a replica or a server says of a key.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use umbel_client::Answer as Said;

/// A function and its arguments, as pickles have them.
type Call<'py> = (Bound<'py, PyAny>, (Bound<'py, PyAny>, &'static str));

/// What is known of a key.
///
/// ABSENT is certain, MAYBE is worth a look, and UNKNOWN means that the filter cannot be asked here and now, or
/// that the copy is too old to say. Only ABSENT is false as a condition: `if not answer` means "certainly not".
#[pyclass(frozen, eq, hash, rename_all = "SCREAMING_SNAKE_CASE", module = "umbel")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Absent,
    Maybe,
    Unknown,
}

#[pymethods]
impl Answer {
    fn __bool__(&self) -> bool {
        *self != Self::Absent
    }

    /// The word that the server uses: absent, maybe or unknown.
    #[getter]
    fn word(&self) -> &'static str {
        match self {
            Self::Absent => Said::Absent.word(),
            Self::Maybe => Said::Maybe.word(),
            Self::Unknown => Said::Unknown.word(),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Call<'py>> {
        let name = match self {
            Self::Absent => "ABSENT",
            Self::Maybe => "MAYBE",
            Self::Unknown => "UNKNOWN",
        };
        Ok((py.import("builtins")?.getattr("getattr")?, (py.get_type::<Self>().into_any(), name)))
    }
}

impl Answer {
    /// The one object of each answer: `is` compares them.
    pub(crate) fn shared<'py>(py: Python<'py>, said: Said) -> PyResult<&'py Bound<'py, PyAny>> {
        static ALL: PyOnceLock<[Py<PyAny>; 3]> = PyOnceLock::new();
        let all = ALL.get_or_try_init(py, || {
            let answers = py.get_type::<Self>();
            let named = |name| answers.getattr(name).map(Bound::unbind);
            PyResult::Ok([named("ABSENT")?, named("MAYBE")?, named("UNKNOWN")?])
        })?;
        let [absent, maybe, unknown] = all;
        Ok(match said {
            Said::Absent => absent.bind(py),
            Said::Maybe => maybe.bind(py),
            Said::Unknown => unknown.bind(py),
        })
    }
}
