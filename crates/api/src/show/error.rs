//! Errors of stored results.

use std::io;
use std::path::PathBuf;

use lfn_campaign::comparison::NoCommonFactor;
use lfn_campaign::stored::StoredSweepError;
use lfn_results::report::ReadError;

use crate::error_kind::ErrorKind;

/// Reasons why results cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    #[error("{}: {source}", .file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: longer than {} MiB", .file.display(), .max >> 20)]
    TooLong {
        file: PathBuf,
        /// Maximum length of such a file, bytes.
        max: u64,
    },
    #[error("{}: {source}", .file.display())]
    Result { file: PathBuf, source: ReadError },
    #[error("{}: {source}", .file.display())]
    Sweep { file: PathBuf, source: Box<StoredSweepError> },
    #[error("{}: written by a newer version of lfn ({schema})", .file.display())]
    Newer { file: PathBuf, schema: String },
    #[error("{}: a document with the schema {schema} cannot be shown", .file.display())]
    Schema { file: PathBuf, schema: String },
    #[error(
        "{first_file} is a result of lfn {first}, and {file} is a result of lfn {second}: only results of one command are compared"
    )]
    Mixed { first_file: String, first: &'static str, file: String, second: &'static str },
    #[error(transparent)]
    NoCommonFactor(#[from] NoCommonFactor),
    #[error("only results of lfn test, iperf3 and lfn sweep are compared, not those of lfn {command}")]
    Several { command: &'static str },
}

impl ShowError {
    /// Returns one action that may fix the error.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            ShowError::Read { .. } | ShowError::TooLong { .. } => {
                "check the path; `lfn test HOST --report result.json` creates a result"
            }
            ShowError::Result { source: ReadError::Schema(schema), .. } if schema.starts_with("lfn.test") => {
                "measure again with this version: lfn test HOST --report result.json"
            }
            ShowError::Result { source: ReadError::Iperf3Failed(_), .. } => "run iperf3 again",
            ShowError::Result { source: ReadError::Trailing, .. } => "put each result into its own file",
            ShowError::Result { .. } => {
                "create a result with `lfn test HOST --report result.json` or `iperf3 -c HOST -J > result.json`"
            }
            ShowError::Sweep { source, .. } if matches!(**source, StoredSweepError::NoEnd) => {
                "show the state file of the sweep: lfn show lfn-sweep-ID.ndjson"
            }
            ShowError::Sweep { .. } => "create a result with `lfn sweep HOST --report sweep.json`",
            ShowError::Newer { .. } => "use the version of lfn that wrote the file, or a later one",
            ShowError::Schema { .. } => {
                "lfn show prints results of test, sweep, doctor, copy, emulate, trace and iperf3"
            }
            ShowError::Mixed { first_file, .. } => return Some(format!("lfn show {first_file}")),
            ShowError::Several { .. } | ShowError::NoCommonFactor(_) => "show one file at a time",
        };
        Some(hint.to_owned())
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ShowError::Mixed { .. } | ShowError::Several { .. } | ShowError::NoCommonFactor(_) => ErrorKind::Usage,
            _ => ErrorKind::Failed,
        }
    }
}
