//! Exceptions: Umbel's sentences, in classes that say what can be done about them.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(umbel, Error, PyException, "What went wrong; the others are kinds of it.");
create_exception!(umbel, CorruptError, Error, "Bytes are not what was written or sent.");
create_exception!(umbel, FullError, Error, "There is no room for more keys.");
create_exception!(umbel, MismatchError, Error, "Two filters that should fit together do not.");
create_exception!(umbel, UnsupportedError, Error, "This kind or layout of filter cannot do that.");
create_exception!(umbel, UnreachableError, Error, "Nobody answered: the same call may succeed later.");
create_exception!(umbel, ClosedError, Error, "The replica was closed.");
create_exception!(
    umbel,
    RefusedError,
    Error,
    "The server said no: `status` is that of HTTP, and `code` is for programs."
);

/// What a filter said. Arguments that make no sense are what Python calls a `ValueError`.
pub(crate) fn of_filter(error: umbel_filter::Error) -> PyErr {
    use umbel_filter::Error as Said;
    let text = error.to_string();
    match error {
        Said::Invalid { .. } | Said::TooLarge { .. } => PyValueError::new_err(text),
        Said::NoMemory { .. } => PyMemoryError::new_err(text),
        Said::Mismatch { .. } => MismatchError::new_err(text),
        Said::Unsupported { .. } => UnsupportedError::new_err(text),
        Said::Full { .. } => FullError::new_err(text),
        Said::Corrupt { .. } | Said::Truncated { .. } => CorruptError::new_err(text),
        Said::Io(error) => PyErr::from(error),
        _ => Error::new_err(text),
    }
}

/// What a replica or a server said.
pub(crate) fn of_client(py: Python<'_>, error: umbel_client::Error) -> PyErr {
    use umbel_client::Error as Said;
    let text = error.to_string();
    match error {
        Said::Unreachable(_) => UnreachableError::new_err(text),
        Said::Refused { status, code, .. } => refused(py, text, status, &code),
        Said::Invalid(_) => PyValueError::new_err(text),
        Said::Corrupt(_) => CorruptError::new_err(text),
        Said::Disk(_) => PyOSError::new_err(text),
        Said::Full(_) => FullError::new_err(text),
        Said::Closed => ClosedError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// What a server refused, with what programs look at.
pub(crate) fn refused(py: Python<'_>, text: String, status: u16, code: &str) -> PyErr {
    let error = RefusedError::new_err(text);
    let value = error.value(py);
    let told = value.setattr("status", status).and_then(|()| value.setattr("code", code));
    told.err().unwrap_or(error)
}
