//! Processes that were forked: they have the memory of the one that they come from, and none of its threads. What they would tell the system of
//! its sockets, the system would do to those of both.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Error;

/// The process that this is. Asking the system each time would cost a lookup as much as the lookup itself.
static HERE: AtomicU32 = AtomicU32::new(0);

pub(crate) fn here() -> u32 {
    HERE.load(Ordering::Relaxed)
}

#[pyfunction]
fn was_forked() {
    HERE.store(std::process::id(), Ordering::Relaxed);
}

/// Lets Python say when this is another process, which all do that fork and go on in Python.
pub(crate) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    was_forked();
    // Where nothing forks there is no such function.
    if let Ok(register) = module.py().import("os")?.getattr("register_at_fork") {
        let told = PyDict::new(module.py());
        told.set_item("after_in_child", wrap_pyfunction!(was_forked, module)?)?;
        register.call((), Some(&told))?;
    }
    Ok(())
}

/// Something with threads and sockets, which only the process has that made it.
pub(crate) struct Own<T> {
    /// There until it goes.
    thing: Option<T>,
    process: u32,
}

impl<T> Own<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self { thing: Some(thing), process: here() }
    }

    /// Refuses whoever is another process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.thing.as_ref().filter(|_| self.process == here()).ok_or_else(|| {
            Error::new_err(format!(
                "it was opened by the process {}, and this is {}: open another one after the fork",
                self.process,
                here()
            ))
        })
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.process != here() {
            // Ending it properly would end it for the process that still uses it.
            std::mem::forget(self.thing.take());
        }
    }
}
