//! What takes long: without the interpreter's lock, within a time, and until Ctrl-C.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::errors;
use crate::forks::here;

/// How long a signal may go unnoticed.
const SLICE: Duration = Duration::from_millis(100);

/// The thread of all replicas and clients of this process.
///
/// That of a process that was forked is left as it is for ever: its thread is not here, and to end it would be to change what the other
/// process waits for. Nobody has the lock while Python forks, since all who take it have the interpreter's.
fn runtime(_: Python<'_>) -> PyResult<&'static Runtime> {
    static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
    let mut known = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    match *known {
        Some((process, runtime)) if process == here() => Ok(runtime),
        _ => {
            let made =
                Builder::new_multi_thread().worker_threads(1).thread_name("umbel").enable_all().build()?;
            let made: &'static Runtime = Box::leak(Box::new(made));
            *known = Some((here(), made));
            Ok(made)
        }
    }
}

/// Waits for something, for so long at most.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    most: Option<Duration>,
    future: impl Future<Output = umbel_client::Result<T>> + Send,
) -> PyResult<T> {
    let (runtime, begin) = (runtime(py)?, Instant::now());
    let mut future = pin!(future);
    loop {
        let left = most.map_or(SLICE, |most| most.saturating_sub(begin.elapsed()).min(SLICE));
        let done = py.detach(|| runtime.block_on(async { timeout(left, future.as_mut()).await }));
        if let Ok(done) = done {
            return done.map_err(|error| errors::of_client(py, error));
        }
        py.check_signals()?;
        if let Some(most) = most.filter(|most| begin.elapsed() >= *most) {
            return Err(PyTimeoutError::new_err(format!("not done in {most:?}")));
        }
    }
}

/// Seconds, as Python has them.
pub(crate) fn seconds(value: f64, what: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| PyValueError::new_err(format!("{what} is {value}: {error}")))
}

/// The same, where none is no limit.
pub(crate) fn seconds_or_none(value: Option<f64>, what: &str) -> PyResult<Option<Duration>> {
    value.map(|value| seconds(value, what)).transpose()
}
