//! Reasons why an examination has no result.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_base::units::{BitRate, show_duration};
use lfn_results::report::{CommandError, DoctorDocument, MAX_DOCTOR_BYTES, ReadError};

use super::disks::DiskPathError;
use super::options::{MAX_TIME, MIN_MAX_LOAD};
use crate::error_kind::ErrorKind;
use crate::error_text::error_chain;
use crate::hosts::HostError;
use crate::test::TestVerbError;

/// Reasons why an examination did not finish.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The server was not reached, or no load had a result.
    #[error(transparent)]
    Test(#[from] TestVerbError),
    /// The time of the load is zero or too long.
    #[error("a load of {}: the time must be above 0 s and at most {}", show_duration(*.0), show_duration(MAX_TIME))]
    Time(Duration),
    /// The path of a disk is not valid.
    #[error(transparent)]
    Disk(#[from] DiskPathError),
    /// The load would be too small for a result.
    #[error("a maximum load of {0}: the minimum is {MIN_MAX_LOAD}")]
    MaxLoad(BitRate),
}

/// A failed examination: the error, and the document with the parts before it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DoctorFailure {
    pub error: DoctorError,
    /// Results up to the failure; none if the options are invalid or the server was not reached.
    pub document: Option<Box<DoctorDocument>>,
}

/// Reasons why an evidence file cannot be diagnosed.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    #[error("{}: {source}", shown_file(.file))]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: longer than {} MiB", shown_file(.file), MAX_DOCTOR_BYTES >> 20)]
    TooLong { file: PathBuf },
    #[error("{}: {source}", shown_file(.file))]
    Content { file: PathBuf, source: ReadError },
}

/// Returns the name of a file for a message.
fn shown_file(file: &Path) -> Cow<'_, str> {
    if file == Path::new("-") { Cow::Borrowed("standard input") } else { file.to_string_lossy() }
}

impl EvidenceError {
    /// Returns one action that may fix the error.
    pub fn hint(&self) -> Option<String> {
        Some("create evidence with: lfn doctor HOST --report evidence.json".to_owned())
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Failed
    }
}

impl DoctorError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            // The hint of a test names its command.
            DoctorError::Test(error) => error.hint().map(|hint| hint.replace("lfn test", "lfn doctor")),
            DoctorError::Disk(error) => error.hint(),
            DoctorError::Time(_) => Some("--time 10s".to_owned()),
            DoctorError::MaxLoad(_) => Some("--max-load 50mbit".to_owned()),
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            DoctorError::Test(error) => error.kind(),
            DoctorError::Time(_) | DoctorError::Disk(_) | DoctorError::MaxLoad(_) => ErrorKind::Usage,
        }
    }

    /// Returns the error as a part of a result.
    pub(super) fn command_error(&self) -> CommandError {
        CommandError { message: error_chain(self), hint: self.hint() }
    }
}

impl From<HostError> for DoctorError {
    fn from(error: HostError) -> Self {
        DoctorError::Test(error.into())
    }
}

impl From<DoctorError> for DoctorFailure {
    fn from(error: DoctorError) -> Self {
        DoctorFailure { error, document: None }
    }
}
