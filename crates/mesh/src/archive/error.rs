//! Errors of the archive.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Reasons why the archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("there is no archive at {}", .0.display())]
    Missing(PathBuf),
    /// Another program wrote the file.
    #[error("{} is not an archive of lfn mesh", .0.display())]
    Foreign(PathBuf),
    #[error("{} has version {found}, and this lfn reads versions up to {known}", .path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{}: disk full", .0.display())]
    Full(PathBuf),
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} is in use by another program", .0.display())]
    Busy(PathBuf),
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The file is a restored backup, and the write-ahead log belongs to the archive that it replaced.
    #[error("{} is a restored backup, and {} belongs to the archive before it", .path.display(), .log.display())]
    OldLog { path: PathBuf, log: PathBuf, shared: PathBuf },
    #[error("{}: {source}", .path.display())]
    Sql { path: PathBuf, source: rusqlite::Error },
}

impl ArchiveError {
    /// Classifies an error of SQLite.
    pub(super) fn of(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => ArchiveError::Full(path),
            Some(ErrorCode::NotADatabase) => ArchiveError::Foreign(path),
            Some(ErrorCode::DatabaseCorrupt) => ArchiveError::Damaged { path, reason: error.to_string() },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ArchiveError::Busy(path),
            _ => ArchiveError::Sql { path, source: error },
        }
    }

    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ArchiveError::Missing(_) => Some(
                "give the archive of the hub with --archive FILE, or import results: lfn mesh import FILE".to_owned(),
            ),
            ArchiveError::Newer { .. } => Some("install the version of lfn that wrote the archive".to_owned()),
            ArchiveError::Full(path) => Some(format!("free space on the disk of {}", path.display())),
            ArchiveError::Foreign(_) => Some("give another file with --archive FILE".to_owned()),
            ArchiveError::Damaged { path, .. } => {
                let path = path.display();
                Some(format!(
                    "delete {path}, {path}-wal and {path}-shm, then copy a backup made with `lfn mesh backup` there"
                ))
            }
            ArchiveError::OldLog { log, shared, .. } => Some(format!(
                "delete both files of the archive before it: rm -f {} {}",
                log.display(),
                shared.display()
            )),
            ArchiveError::Exists(_) => Some("give the name of a new file".to_owned()),
            ArchiveError::Busy(_) | ArchiveError::Io { .. } | ArchiveError::Sql { .. } => None,
        }
    }
}
