//! `umbel.Client`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::{Value, json};
use umbel_client::limits::MEMORY_BYTES_MAX;
use umbel_client::{Answer as Said, Server, Token, Web, escaped};

use crate::answer::Answer;
use crate::errors::{CorruptError, of_client, refused};
use crate::forks::Own;
use crate::json::{from_python, requests, to_python};
use crate::keys::Batch;
use crate::waiting::{seconds, wait};

/// What makes something large may take as long as this.
const LONG: Duration = Duration::from_secs(600);
/// How long leases may take to end, beside the time that a majority has.
const LEASES: Duration = Duration::from_secs(60);

/// The filters of a server, over HTTP.
///
/// url: http://host:port or https://host:port; token: who asks, if the server wants to know; ca_file: a PEM file
/// with the authorities that vouch for the server, instead of the system's; timeout: seconds that a call may take.
///
/// Where keys are asked for, any number may be given: an iterable, or an array of numpy.
///
/// A process that was forked has to open its own.
#[pyclass(frozen, module = "umbel")]
pub(crate) struct Client {
    url: String,
    links: Own<Links>,
    timeout: Duration,
    /// Includes all that was written here.
    written: Mutex<Token>,
}

/// How a server is asked.
struct Links {
    server: Server,
    /// The same server, for what is no JSON.
    web: Web,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url = "http://127.0.0.1:6381", token = None, *, ca_file = None, timeout = 60.0))]
    fn new(
        py: Python<'_>,
        url: &str,
        token: Option<&str>,
        ca_file: Option<PathBuf>,
        timeout: f64,
    ) -> PyResult<Self> {
        let ca = ca_file.as_deref();
        let server = Server::trusting(url, token, ca).map_err(|error| of_client(py, error))?;
        let web = Web::new(url, token, ca).map_err(|error| of_client(py, error))?;
        let timeout = seconds(timeout, "timeout")?;
        let links = Own::new(Links { server, web });
        Ok(Self { url: url.to_owned(), links, timeout, written: Mutex::default() })
    }

    /// Makes a filter and describes it. Options are those of the server: kind (bloom, counting or counting8),
    /// family, layout, growth, grow_at_percent, retain, shards, expire_seconds, window, buckets.
    #[pyo3(signature = (name, capacity, error = 0.001, **options))]
    fn create<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        capacity: u64,
        error: f64,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut new = options.map_or_else(|| Ok(json!({})), from_python)?;
        (new["name"], new["capacity"], new["error"]) = (name.into(), capacity.into(), error.into());
        let made = wait(py, Some(self.timeout), self.server()?.post("/v1/filters", &new, self.timeout))?;
        to_python(py, &made)
    }

    /// Removes a filter.
    fn drop(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        wait(py, Some(self.timeout), self.server()?.delete(Server::path(name, ""))).map(drop)
    }

    /// Describes all filters whose names begin with something.
    #[pyo3(signature = (prefix = ""))]
    fn list<'py>(&self, py: Python<'py>, prefix: &str) -> PyResult<Bound<'py, PyList>> {
        let (filters, mut after) = (PyList::empty(py), String::new());
        loop {
            let path = format!("/v1/filters?limit=1000&prefix={}{after}", escaped(prefix));
            let page = wait(py, Some(self.timeout), self.server()?.get(path))?;
            for filter in page["filters"].as_array().into_iter().flatten() {
                filters.append(to_python(py, filter)?)?;
            }
            let Some(next) = page["next"].as_str() else { return Ok(filters) };
            after = format!("&after={}", escaped(next));
        }
    }

    /// Describes a filter.
    fn describe<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let described = wait(py, Some(self.timeout), self.server()?.get(Server::path(name, "")))?;
        to_python(py, &described)
    }

    /// Adds keys, and says of each whether it was not there before. They survive what the server's log survives.
    fn add(&self, py: Python<'_>, name: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        self.change(py, name, "add", keys)
    }

    /// Takes keys out of a counting filter, each once, and says of each whether it was there.
    fn remove(&self, py: Python<'_>, name: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        self.change(py, name, "remove", keys)
    }

    /// What is known of each key. after: a position that the answers have to include; read: any, current or strong.
    #[pyo3(signature = (name, keys, *, after = None, read = None))]
    fn check<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        keys: &Bound<'py, PyAny>,
        after: Option<&str>,
        read: Option<&str>,
    ) -> PyResult<Bound<'py, PyList>> {
        let answers = PyList::empty(py);
        for keys in requests(&Batch::of(keys)?.bytes()?) {
            let count = keys.as_array().map_or(0, Vec::len);
            let mut body = json!({ "keys": keys });
            if let Some(after) = after {
                body["after"] = after.into();
            }
            if let Some(read) = read {
                body["read"] = read.into();
            }
            let told = self.post(py, name, "check", &body)?;
            for answer in all(&told, "answers", count)? {
                let said = [Said::Absent, Said::Maybe, Said::Unknown];
                let said = said.into_iter().find(|said| answer == said.word());
                answers.append(Answer::shared(py, said.unwrap_or(Said::Unknown))?)?;
            }
        }
        Ok(answers)
    }

    /// How often each key is in a filter, exactly: the server looks into its archive.
    fn verify(&self, py: Python<'_>, name: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let mut counts = Vec::new();
        for keys in requests(&Batch::of(keys)?.bytes()?) {
            let count = keys.as_array().map_or(0, Vec::len);
            let told = self.post(py, name, "verify", &json!({ "keys": keys }))?;
            counts
                .extend(all(&told, "counts", count)?.iter().map(|count| count.as_u64().unwrap_or_default()));
        }
        Ok(counts)
    }

    /// A position of the log that includes all that this client has written: for `check` and `Replica.reached`.
    #[getter]
    fn position(&self) -> String {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).to_string()
    }

    /// Gives a filter another capacity or error rate, or another way to grow: capacity, error, growth, grow_at_percent.
    #[pyo3(signature = (name, **options))]
    fn resize<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let size = options.map_or_else(|| Ok(json!({})), from_python)?;
        let path = Server::path(name, "resize");
        to_python(py, &wait(py, Some(LONG), self.server()?.post(path, &size, LONG))?)
    }

    /// Forgets all keys of a filter.
    fn clear<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.post(py, name, "clear", &json!({}))?)
    }

    /// Lists the versions of a filter that replicas may have.
    fn versions<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let listed = wait(py, Some(self.timeout), self.server()?.get(Server::path(name, "versions")))?;
        to_python(py, &listed)
    }

    /// Makes a version of a filter as it is now. strong: all strong replicas switch to it together once a majority
    /// of them, or of those with the labels in group, has it, for which they have so many seconds.
    #[pyo3(signature = (name, *, strong = false, group = None, timeout = 30.0))]
    fn publish<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        strong: bool,
        group: Option<BTreeMap<String, String>>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let within = seconds(timeout, "timeout")?;
        let (of_it, body, patience) = if strong {
            let milliseconds = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            let body = json!({ "group": group.unwrap_or_default(), "timeout_ms": milliseconds });
            ("switch", body, within.saturating_add(LEASES))
        } else {
            ("versions", json!({}), LONG)
        };
        let path = Server::path(name, of_it);
        to_python(py, &wait(py, Some(patience), self.server()?.post(path, &body, patience))?)
    }

    /// Makes an older version the current one, which pull and notify follow; None follows the newest again.
    #[pyo3(signature = (name, version))]
    fn rollback<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        version: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (path, body) = (Server::path(name, "current"), json!({ "version": version }));
        to_python(py, &wait(py, Some(self.timeout), self.server()?.put(path, &body))?)
    }

    /// Who has a copy of a filter, and how old it is.
    fn replicas<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let listed = wait(py, Some(self.timeout), self.server()?.get(Server::path(name, "replicas")))?;
        to_python(py, &listed)
    }

    /// A whole filter, as it is now or as it was in a version, as bytes: native for `Filter.from_bytes`, guava for
    /// `Filter.from_guava`, or redisbloom.
    #[pyo3(signature = (name, format = "native", *, version = None))]
    fn snapshot<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        format: &str,
        version: Option<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let version = version.map(|version| format!("&version={version}")).unwrap_or_default();
        let path = format!("{}?format={}{version}", Server::path(name, "snapshot"), escaped(format));
        let most = usize::try_from(MEMORY_BYTES_MAX).unwrap_or(usize::MAX);
        let body = wait(py, Some(LONG), self.links.get()?.web.get(path, most))?;
        Ok(PyBytes::new(py, &body.bytes))
    }

    fn __repr__(&self) -> String {
        format!("Client({:?})", self.url)
    }
}

impl Client {
    fn server(&self) -> PyResult<&Server> {
        Ok(&self.links.get()?.server)
    }

    fn post(&self, py: Python<'_>, name: &str, of_it: &str, body: &Value) -> PyResult<Value> {
        wait(py, Some(self.timeout), self.server()?.post(Server::path(name, of_it), body, self.timeout))
    }

    fn change(
        &self,
        py: Python<'_>,
        name: &str,
        change: &str,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<bool>> {
        let mut answers = Vec::new();
        for keys in requests(&Batch::of(keys)?.bytes()?) {
            let count = keys.as_array().map_or(0, Vec::len);
            let told = self.post(py, name, change, &json!({ "keys": keys }))?;
            let position = told["position"].as_str().unwrap_or_default().parse::<Token>();
            let position = position.map_err(|error| PyValueError::new_err(error.to_string()))?;
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            position.positions().for_each(|(partition, at)| written.see(partition, at));
            drop(written);
            let done = all(&told, "answers", count)?;
            if let Some(why) = told["refused"].as_str() {
                let taken = answers.len() + done.iter().filter(|answer| answer.is_boolean()).count();
                return Err(refused(py, format!("{why} ({taken} keys were taken)"), 409, "conflict"));
            }
            answers.extend(done.iter().map(|answer| answer.as_bool().unwrap_or_default()));
        }
        Ok(answers)
    }
}

/// As many answers as were asked for.
fn all<'a>(told: &'a Value, name: &str, count: usize) -> PyResult<&'a [Value]> {
    let answers = told[name].as_array().filter(|answers| answers.len() == count);
    let answers =
        answers.ok_or_else(|| CorruptError::new_err("the server gave another number of answers"))?;
    Ok(answers)
}
