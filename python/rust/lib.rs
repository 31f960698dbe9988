//! The extension module `lfn._couple`: a channel of `lfn-couple` for Python.
//!
//! The module is private. The Python sources in `src/lfn/couple` check arrays and arguments, and have the documentation for users.
//! Fields pass as buffers of bytes. JSON carries plans, reports and events.

#![forbid(unsafe_code)]

mod channel;
mod error;
mod event;
mod interrupt;
mod options;
mod summary;

use lfn_couple::document::{PathOverrides, plan_document};
use pyo3::prelude::*;

/// Checks the text of a coupling file, and returns its contents as JSON.
#[pyfunction]
fn parse(py: Python<'_>, text: &str) -> PyResult<String> {
    json(py, &options::coupling(py, text)?)
}

/// Predicts the run of a coupling file over the path of the file, and returns the document of the plan as JSON.
#[pyfunction]
fn predict(py: Python<'_>, text: &str) -> PyResult<String> {
    let coupling = options::coupling(py, text)?;
    let planned = plan_document(&coupling, PathOverrides::default());
    json(py, &planned.map_err(|error| error::new(py, "CoupleError", &error.to_string(), error.hint()))?)
}

/// Returns the value as JSON.
fn json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| error::new(py, "CoupleError", &error.to_string(), None))
}

#[pymodule]
mod _couple {
    #[pymodule_export]
    use super::channel::{PyChannel, PyField, open};
    #[pymodule_export]
    use super::{parse, predict};
}
