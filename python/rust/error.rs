//! Errors of the channel as exceptions of `lfn.couple.errors`.

use lfn_couple::ChannelError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Creates an exception of the class with this name.
pub(crate) fn new(py: Python<'_>, class: &str, message: &str, hint: Option<String>) -> PyErr {
    build(py, class, message, hint, false).map_or_else(|error| error, PyErr::from_value)
}

/// Creates the exception of a channel's error.
pub(crate) fn of_channel(py: Python<'_>, error: &ChannelError) -> PyErr {
    let exception = build(py, class_of(error), &error.to_string(), error.hint(), error.is_resumable());
    let exception = exception.and_then(|exception| {
        if let ChannelError::FilesDiffer { differences, .. } = error {
            let rows = differences.iter().map(|it| (it.key.as_str(), it.here.as_deref(), it.there.as_deref()));
            exception.setattr("differences", rows.collect::<Vec<_>>())?;
        }
        Ok(exception)
    });
    exception.map_or_else(|error| error, PyErr::from_value)
}

fn build<'py>(
    py: Python<'py>,
    class: &str,
    message: &str,
    hint: Option<String>,
    is_resumable: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    options.set_item("hint", hint)?;
    options.set_item("is_resumable", is_resumable)?;
    py.import("lfn.couple.errors")?.getattr(class)?.call((message,), Some(&options))
}

/// Returns the exception class for the causes that a program handles differently.
fn class_of(error: &ChannelError) -> &'static str {
    match error {
        ChannelError::FilesDiffer { .. } | ChannelError::SameComponent { .. } => "FilesDiffer",
        ChannelError::ModelDiffers { .. } => "ModelDiffers",
        ChannelError::FieldSize { .. } => "FieldError",
        ChannelError::NoPartner { .. } | ChannelError::PartnerLost { .. } | ChannelError::NoField { .. } => {
            "PartnerLost"
        }
        ChannelError::StoppedByPartner { .. } => "PartnerStopped",
        _ => "CoupleError",
    }
}
