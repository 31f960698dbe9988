//! The archive: all entries in one SQLite file.
//!
//! `result` has one row of integers for each entry, ordered by pair, kind, time and test, so that the page of a pair reads neighbouring
//! rows. `latest` has the newest row of each pair and kind, and `day` the figures of each day. Texts that repeat are in the
//! dictionary `text`: conditions, hops, names of findings. `explanation` has verdicts, explanations of findings and errors, and
//! `document` the complete documents, both compressed. Documents are deleted some time after they were stored
//! ([`Archive::expire_details`]); the other tables keep everything.
//!
//! The statements use the SQL that PostgreSQL has too, with numbered parameters (`$1`). Only `schema` and the settings in
//! this file are for SQLite.
//!
//! An entry is stored once: its key is the pair, the kind, the time in milliseconds and the test. [`Archive::insert`] returns when the
//! entries are on disk.

mod connection;
mod detail;
mod dictionary;
mod error;
mod insert;
mod read;
mod row;
mod schema;
mod series;
mod summary;
#[cfg(test)]
mod tests;

pub use error::ArchiveError;
pub use insert::InsertCount;
pub use read::EntryFilter;
pub use summary::{ArchiveCounts, DaySummary};

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use dictionary::Dictionary;

/// An open archive. A writer and several readers may have the same file open.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    connection: Connection,
    dictionary: Dictionary,
}

impl Archive {
    /// Opens the archive for reading and writing. Creates the file, readable by this user only, if it does not exist, and
    /// migrates an archive of an earlier version.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let connection = connection::open(path)?;
        Ok(Archive { path: path.to_owned(), connection, dictionary: Dictionary::default() })
    }

    /// Opens an existing archive for reading, also while a hub writes to it.
    pub fn open_read_only(path: &Path) -> Result<Self, ArchiveError> {
        let connection = connection::open_read_only(path)?;
        Ok(Archive { path: path.to_owned(), connection, dictionary: Dictionary::default() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a consistent copy of the archive to a new file, while a hub may write to the archive.
    pub fn back_up(&self, to: &Path) -> Result<(), ArchiveError> {
        connection::back_up(&self.connection, &self.path, to)
    }

    /// Adds the path of the archive to an error of SQLite.
    fn failed(&self, error: rusqlite::Error) -> ArchiveError {
        ArchiveError::of(&self.path, error)
    }
}
