//! The verb `show`: reads stored results, and compares those of tests and of sweeps.

mod contents;
mod error;
mod stored;

use std::path::PathBuf;

use lfn_campaign::comparison::{SweepComparison, compare_sweeps};
use lfn_campaign::document::SweepDocument;
use lfn_results::report::{Comparison, DoctorDocument, StoredResult, compare};

use crate::documents::{CopyDocument, EmulateDocument, TraceDocument};
use crate::pictures::{self, Album};
pub(crate) use contents::read_contents;
pub use error::ShowError;
pub use stored::StoredDocument;

/// Results that are shown together.
#[derive(Debug)]
pub enum Shown {
    /// Results of `lfn test` and iperf3.
    Tests(ShownResults),
    /// A result of `lfn sweep`, or its state file.
    Sweep(Box<SweepDocument>),
    /// An examination, diagnosed with the rules of this version.
    Doctor(Box<DoctorDocument>),
    /// Several sweeps with the names of their files, and the same side by side.
    Sweeps { sweeps: Vec<(String, SweepDocument)>, comparison: SweepComparison },
    /// A copy, or the error of one.
    Copy(Box<CopyDocument>),
    /// Accuracy report of an emulation.
    Emulation(Box<EmulateDocument>),
    /// An analysis of a capture.
    Trace(Box<TraceDocument>),
}

/// Stored results of tests and their comparison.
#[derive(Debug)]
pub struct ShownResults {
    /// Results with the names of their files.
    pub results: Vec<(String, StoredResult)>,
    /// The same results side by side, schema `lfn.show/2`.
    pub comparison: Comparison,
}

/// Reads the results in these files. Compares several results of tests. The path `-` reads standard input.
pub fn show(files: &[PathBuf]) -> Result<Shown, ShowError> {
    let mut documents = Vec::with_capacity(files.len());
    for file in files {
        documents.push((file.display().to_string(), stored::read(file)?));
    }
    let first = documents.first().map(|(file, document)| (file.clone(), document.command()));
    let other = documents.iter().find(|(_, document)| Some(document.command()) != first.as_ref().map(|first| first.1));
    if let (Some((first_file, first)), Some((file, document))) = (first, other) {
        return Err(ShowError::Mixed { first_file, first, file: file.clone(), second: document.command() });
    }
    let is_compared = matches!(documents.first(), Some((_, StoredDocument::Test(_) | StoredDocument::Sweep(_))));
    if documents.len() > 1 && !is_compared {
        return Err(ShowError::Several { command: documents[0].1.command() });
    }
    let (mut results, mut sweeps) = (Vec::new(), Vec::new());
    for (file, document) in documents {
        match document {
            StoredDocument::Test(result) => results.push((file, result)),
            StoredDocument::Sweep(document) if files.len() == 1 => return Ok(Shown::Sweep(document)),
            StoredDocument::Sweep(document) => sweeps.push((file, *document)),
            StoredDocument::Doctor(document) => return Ok(Shown::Doctor(document)),
            StoredDocument::Copy(document) => return Ok(Shown::Copy(document)),
            StoredDocument::Emulation(document) => return Ok(Shown::Emulation(document)),
            StoredDocument::Trace(document) => return Ok(Shown::Trace(document)),
        }
    }
    if !sweeps.is_empty() {
        let comparison = compare_sweeps(&sweeps)?;
        return Ok(Shown::Sweeps { sweeps, comparison });
    }
    let comparison = compare(&results);
    Ok(Shown::Tests(ShownResults { results, comparison }))
}

impl Shown {
    /// Returns the command of lfn that writes such results.
    pub fn command(&self) -> &'static str {
        match self {
            Shown::Tests(_) => "test",
            Shown::Sweep(_) | Shown::Sweeps { .. } => "sweep",
            Shown::Doctor(_) => "doctor",
            Shown::Copy(_) => "copy",
            Shown::Emulation(_) => "emulate",
            Shown::Trace(_) => "trace",
        }
    }

    /// Reports whether the results have a table (CSV).
    pub fn has_table(&self) -> bool {
        matches!(self, Shown::Tests(_) | Shown::Sweep(_) | Shown::Sweeps { .. })
    }

    /// Returns the charts of the results; `None` for the documents of a command without the samples of its charts.
    pub fn album(&self) -> Option<Album> {
        match self {
            Shown::Tests(tests) => Some(pictures::of_results(&tests.results)),
            Shown::Sweep(document) => Some(pictures::of_sweep(document)),
            Shown::Sweeps { sweeps, .. } => Some(pictures::of_sweeps(sweeps)),
            Shown::Doctor(document) => Some(pictures::of_doctor(document)),
            Shown::Emulation(document) => Some(pictures::of_emulation(&document.outcome)),
            Shown::Copy(_) | Shown::Trace(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn unreadable_results_are_errors_with_a_hint() {
        let home = tempfile::tempdir().unwrap();
        let missing = home.path().join("missing.json");
        let error = show(&[missing]).unwrap_err();
        assert!(matches!(error, ShowError::Read { .. }) && error.hint().is_some(), "{error}");
        let damaged = home.path().join("damaged.json");
        std::fs::write(&damaged, "{").unwrap();
        assert!(matches!(show(&[damaged]).unwrap_err(), ShowError::Result { .. }));
    }
}
