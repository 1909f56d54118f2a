//! The module `umbel._umbel` of the Python wheel: filters, replicas and a client.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `keys` | from Python's objects and numpy's arrays to fingerprints |
//! | `filter`, `counting` | `umbel.Filter` and `umbel.CountingFilter` |
//! | `files` | filters as bytes and files |
//! | `answer` | `umbel.Answer` |
//! | `replica` | `umbel.Replica` |
//! | `client`, `json` | `umbel.Client` |
//! | `forks` | what a process that was forked may not touch |
//! | `waiting` | what takes long, without the interpreter's lock, and with Ctrl-C |
//! | `errors` | exceptions |
// Arguments come from Python as values of our own.
#![allow(clippy::needless_pass_by_value)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answer;
mod client;
mod counting;
mod errors;
mod files;
mod filter;
mod forks;
mod json;
mod keys;
mod replica;
mod waiting;

/// What `umbel/__init__.py` shows.
#[pyo3::pymodule(name = "_umbel")]
mod module {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::answer::Answer;
    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::counting::CountingFilter;
    #[pymodule_export]
    use super::errors::{
        ClosedError, CorruptError, Error, FullError, MismatchError, RefusedError, UnreachableError,
        UnsupportedError,
    };
    #[pymodule_export]
    use super::filter::Filter;
    #[pymodule_export]
    use super::replica::Replica;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::forks::watch(module)
    }
}
