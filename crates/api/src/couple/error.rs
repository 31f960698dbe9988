//! Reasons why a plan or a run of two coupled models does not start.

use std::io;
use std::path::PathBuf;

use lfn_couple::coupling::CouplingErrors;
use lfn_couple::document::PlanRequestError;

use crate::error_kind::ErrorKind;

/// Reasons why a coupling file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CoupleError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The text has every problem of the file.
    #[error("{}: {}", .path.display(), problems(.errors))]
    File { path: PathBuf, errors: CouplingErrors },
    #[error("{}: {source}", .path.display())]
    Plan { path: PathBuf, source: PlanRequestError },
}

/// Returns the problems of a file in one line.
fn problems(errors: &CouplingErrors) -> String {
    errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl CoupleError {
    /// Returns an action that fixes the first problem.
    pub fn hint(&self) -> Option<String> {
        match self {
            CoupleError::Read { .. } => None,
            CoupleError::File { errors, .. } => errors.0.iter().find_map(|problem| problem.hint()),
            CoupleError::Plan { source, .. } => source.hint(),
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}
