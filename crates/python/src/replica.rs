//! `umbel.Replica`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use umbel_client::{Answer as Said, Options, Token, WhenStale};

use crate::answer::Answer;
use crate::errors::{Error, of_client, of_filter};
use crate::filter::secret_of;
use crate::forks::Own;
use crate::keys::{Batch, with_key};
use crate::waiting::{seconds, seconds_or_none, wait};

/// A copy of a server's filter in this process: it answers without the network and follows the server.
///
/// url: http://host:port or https://host:port; filter: its name; strategy: pull, push, notify, delta, window or
/// strong; interval: seconds between questions of pull, and those that window gathers own adds for; folder: where the
/// copy and adds that were not sent survive a restart; stale_after: seconds without the server after which it
/// says UNKNOWN, or MAYBE if when_stale says so, instead of ABSENT; or_urls: servers to go on with.
///
/// A process that was forked has to open its own.
#[pyclass(frozen, module = "umbel")]
pub(crate) struct Replica {
    replica: Own<umbel_client::Replica>,
    /// Whether unsent keys survive it.
    has_folder: bool,
}

#[pymethods]
impl Replica {
    #[new]
    #[pyo3(signature = (
        url, filter, strategy = "delta", *, folder = None, token = None, ca_file = None, interval = 5.0,
        stale_after = None, when_stale = "unknown", labels = None, or_urls = Vec::new(), secret = None,
        compression = true, timeout = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords where it is called")]
    fn new(
        py: Python<'_>,
        url: &str,
        filter: &str,
        strategy: &str,
        folder: Option<PathBuf>,
        token: Option<&str>,
        ca_file: Option<PathBuf>,
        interval: f64,
        stale_after: Option<f64>,
        when_stale: &str,
        labels: Option<BTreeMap<String, String>>,
        or_urls: Vec<String>,
        secret: Option<&[u8]>,
        compression: bool,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let named = Options::named(url, filter, strategy, seconds(interval, "interval")?);
        let mut options = named.map_err(|error| of_client(py, error))?.compression(compression);
        let has_folder = folder.is_some();
        if let Some(folder) = folder {
            options = options.folder(folder);
        }
        if let Some(token) = token {
            options = options.token(token);
        }
        if let Some(path) = ca_file {
            options = options.ca_file(path);
        }
        if let Some(time) = seconds_or_none(stale_after, "stale_after")? {
            options = options.stale_after(time);
        }
        options = options.when_stale(match when_stale {
            "unknown" => WhenStale::Unknown,
            "maybe" => WhenStale::Maybe,
            other => {
                return Err(PyValueError::new_err(format!(
                    "when_stale is {other:?}; it is unknown or maybe"
                )));
            }
        });
        if let Some(secret) = secret_of(secret)? {
            options = options.secret(secret);
        }
        options = or_urls.into_iter().fold(options, Options::or_server);
        options =
            labels.into_iter().flatten().fold(options, |options, (name, value)| options.label(name, value));
        let most = seconds_or_none(timeout, "timeout")?;
        let replica = wait(py, most, umbel_client::Replica::open(options))?;
        Ok(Self { replica: Own::new(replica), has_folder })
    }

    /// What is known of a key.
    fn contains<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let replica = self.replica.get()?;
        let said = with_key(key, |key| replica.contains(key))?;
        Ok(Answer::shared(key.py(), said)?.clone())
    }

    /// Whether a key may have been added: False is certain, and UNKNOWN is not False.
    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let replica = self.replica.get()?;
        Ok(with_key(key, |key| replica.contains(key))? != Said::Absent)
    }

    /// What is known of a key, and a position of the log that the answer includes.
    fn contains_with_position<'py>(
        &self,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, Option<String>)> {
        let replica = self.replica.get()?;
        let (said, position) = with_key(key, |key| replica.contains_with_position(key))?;
        Ok((Answer::shared(key.py(), said)?.clone(), position.map(|position| position.to_string())))
    }

    /// What is known of each of many keys: an iterable of keys, or an array of numpy.
    fn contains_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let batch = Batch::of(keys)?;
        let Some(look) = self.replica.get()?.look() else {
            let unknown = Answer::shared(py, Said::Unknown)?;
            return PyList::new(py, vec![unknown; batch.bytes()?.len()]);
        };
        let (mut all, mut block) = (Vec::new(), Vec::new());
        let run = |keys: &[_]| {
            look.contains_batch(keys, &mut block);
            all.append(&mut block);
            Ok::<_, umbel_filter::Error>(())
        };
        batch.each_block(py, look.hasher(), run, of_filter)?;
        let all = all.into_iter().map(|said| Answer::shared(py, said));
        PyList::new(py, all.collect::<PyResult<Vec<_>>>()?)
    }

    /// Adds a key: visible here now, at the server soon.
    fn add(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = with_key(key, <[u8]>::to_vec)?;
        wait(py, None, self.replica.get()?.add(&[key]))
    }

    /// Adds many keys.
    fn add_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = Batch::of(keys)?.bytes()?;
        wait(py, None, self.replica.get()?.add(&keys))
    }

    /// Takes a key out of a counting filter: visible here when the server has done it.
    fn remove(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = with_key(key, <[u8]>::to_vec)?;
        wait(py, None, self.replica.get()?.remove(&[key]))
    }

    /// Takes many keys out.
    fn remove_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = Batch::of(keys)?.bytes()?;
        wait(py, None, self.replica.get()?.remove(&keys))
    }

    /// Waits until the server has all keys that were added and removed here, and gives a position that includes them.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<String> {
        let most = seconds_or_none(timeout, "timeout")?;
        Ok(wait(py, most, self.replica.get()?.flush())?.to_string())
    }

    /// Waits until the copy includes a position: whoever wrote at the server reads it here.
    #[pyo3(signature = (position, timeout = None))]
    fn reached(&self, py: Python<'_>, position: &str, timeout: Option<f64>) -> PyResult<()> {
        let token = position.parse::<Token>().map_err(|error| of_client(py, error.into()))?;
        wait(py, seconds_or_none(timeout, "timeout")?, self.replica.get()?.reached(&token))
    }

    /// Seconds since the copy was known to have all there was; None if it never was.
    #[getter]
    fn age(&self) -> PyResult<Option<f64>> {
        Ok(self.replica.get()?.age().map(|age| age.as_secs_f64()))
    }

    /// Whether that is longer than stale_after.
    #[getter]
    fn stale(&self) -> PyResult<bool> {
        Ok(self.replica.get()?.status().stale)
    }

    /// How it is.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (status, told) = (self.replica.get()?.status(), PyDict::new(py));
        told.set_item("id", status.id)?;
        told.set_item("filter", status.filter)?;
        told.set_item("strategy", status.strategy.name())?;
        told.set_item("version", status.version)?;
        told.set_item("position", status.token.to_string())?;
        told.set_item("current", status.current)?;
        told.set_item("items", status.items)?;
        told.set_item("bytes", status.bytes)?;
        told.set_item("age", status.age.map(|age| age.as_secs_f64()))?;
        told.set_item("stale", status.stale)?;
        told.set_item("gone", status.gone)?;
        told.set_item("held", status.held)?;
        told.set_item("pinned", status.pinned)?;
        told.set_item("refused", status.refused.map(|refused| (refused.version, refused.why)))?;
        told.set_item("versions_taken", status.versions_taken)?;
        told.set_item("records_taken", status.records_taken)?;
        told.set_item("chunks_fetched", status.chunks_fetched)?;
        told.set_item("bytes_fetched", status.bytes_fetched)?;
        told.set_item("chunks_reused", status.chunks_reused)?;
        told.set_item("spooled_keys", status.spooled_keys)?;
        told.set_item("refused_keys", status.refused_keys)?;
        told.set_item("last_error", status.last_error)?;
        Ok(told)
    }

    /// Goes back to the version before, gives its number, and stays there until `resume`.
    fn roll_back(&self, py: Python<'_>) -> PyResult<u64> {
        wait(py, None, self.replica.get()?.roll_back())
    }

    /// Follows the server again.
    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, None, self.replica.get()?.resume())
    }

    /// Sends what was not sent, for so many seconds at most, and ends. The copy answers on as it is.
    ///
    /// Keys that the server does not have by then stay in the folder; without one they are lost, which is an error.
    #[pyo3(signature = (timeout = 10.0))]
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let most = seconds(timeout, "timeout")?;
        let replica = self.replica.get()?;
        let flushed = if replica.status().spooled_keys > 0 { self.flushed(py, most) } else { Ok(()) };
        let unsent = replica.status().spooled_keys;
        wait(py, None, replica.close())?;
        flushed?;
        if unsent > 0 && !self.has_folder {
            return Err(Error::new_err(format!(
                "{unsent} keys did not reach the server, and there is no folder that keeps them"
            )));
        }
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py, 10.0)
    }

    fn __repr__(&self) -> String {
        let Ok(replica) = self.replica.get() else { return "Replica(of another process)".to_owned() };
        let status = replica.status();
        format!("Replica(filter={:?}, strategy={:?})", status.filter, status.strategy.name())
    }
}

impl Replica {
    /// That time is over is no error here: what is left is counted afterwards.
    fn flushed(&self, py: Python<'_>, most: Duration) -> PyResult<()> {
        match wait(py, Some(most), self.replica.get()?.flush()) {
            Err(error) if !error.is_instance_of::<pyo3::exceptions::PyTimeoutError>(py) => Err(error),
            _ => Ok(()),
        }
    }
}
