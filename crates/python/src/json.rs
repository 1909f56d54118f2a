//! JSON to Python and back, and keys in requests.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use umbel_client::limits::REQUEST_KEYS_MAX;

/// Most bytes of keys in a request; the server takes four times as many, and base64 adds a third.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Objects of Python: dict, list, str, int, float, bool and None.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}

/// The options that somebody gave, without those that are None.
pub(crate) fn from_python(options: &Bound<'_, PyDict>) -> PyResult<Value> {
    let given = options.copy()?;
    for (name, value) in options {
        if value.is_none() {
            given.del_item(name)?;
        }
    }
    let text: String = options.py().import("json")?.call_method1("dumps", (given,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(format!("options: {error}")))
}

/// Text as text, and other bytes in base64.
fn key(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

/// Keys in as many requests as they need.
pub(crate) fn requests(keys: &[Vec<u8>]) -> Vec<Value> {
    let (mut requests, mut request, mut bytes) = (Vec::new(), Vec::new(), 0);
    for each in keys {
        if request.len() == REQUEST_KEYS_MAX || bytes + each.len() > REQUEST_BYTES_MAX && !request.is_empty()
        {
            requests.push(Value::Array(std::mem::take(&mut request)));
            bytes = 0;
        }
        request.push(key(each));
        bytes += each.len();
    }
    if !request.is_empty() {
        requests.push(Value::Array(request));
    }
    requests
}
