//! The verb `show`: reads stored results and compares them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lfn_results::report::{self, Comparison, MAX_RESULT_BYTES, ReadError, StoredResult, compare};

use crate::error_kind::ErrorKind;

/// Stored results and their comparison.
#[derive(Debug)]
pub struct ShownResults {
    /// Results with the names of their files.
    pub results: Vec<(String, StoredResult)>,
    /// The same results side by side, schema `lfn.show/2`.
    pub comparison: Comparison,
}

/// Reads the results of `lfn test` and iperf3 in these files, and compares them. The path `-` reads standard input.
pub fn show(files: &[PathBuf]) -> Result<ShownResults, ShowError> {
    let read = |path: &PathBuf| Ok((path.display().to_string(), read_result(path)?));
    let results = files.iter().map(read).collect::<Result<Vec<_>, ShowError>>()?;
    let comparison = compare(&results);
    Ok(ShownResults { results, comparison })
}

/// Reasons why a result cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    #[error("{}: {source}", .file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: longer than {} MiB", .file.display(), MAX_RESULT_BYTES >> 20)]
    TooLong { file: PathBuf },
    #[error("{}: {source}", .file.display())]
    Result { file: PathBuf, source: ReadError },
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
        };
        Some(hint.to_owned())
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Failed
    }
}

fn read_result(path: &Path) -> Result<StoredResult, ShowError> {
    let file = || path.to_owned();
    let bytes = read_contents(path, MAX_RESULT_BYTES).map_err(|source| ShowError::Read { file: file(), source })?;
    if bytes.len() as u64 > MAX_RESULT_BYTES {
        return Err(ShowError::TooLong { file: file() });
    }
    report::read_result(&bytes).map_err(|source| ShowError::Result { file: file(), source })
}

/// Reads at most one byte more than `max_bytes`, since a device or a pipe may never end. The path `-` reads standard input.
pub(crate) fn read_contents(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(max_bytes + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
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
