//! The state file on the disk: locked by one sweep, and synced after each line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lfn_campaign::run::SweepRun;
use lfn_campaign::state::{MAX_STATE_BYTES, StateHeader, StateLine, StoredState, read_state};
use rustix::fs::{FlockOperation, flock};

use super::error::{StateFileError, SweepError};

/// An open state file.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    path: PathBuf,
}

/// A state file that existed before.
#[derive(Debug)]
pub(super) struct ExistingState {
    file: StateFile,
    /// Contents; `None` if the file ends in its first line.
    pub(super) stored: Option<StoredState>,
    length: u64,
}

impl StateFile {
    /// Opens and locks an existing state file, and reads it. Changes nothing. `None` if there is no such file.
    pub(super) fn open_existing(path: &Path) -> Result<Option<ExistingState>, SweepError> {
        let failed = |error| state_error(path, StateFileError::Io(error));
        let mut file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(state_error(path, StateFileError::NotAFile));
        }
        lock(&file, path)?;
        let mut bytes = Vec::new();
        (&mut file).take(MAX_STATE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_STATE_BYTES {
            return Err(state_error(path, StateFileError::TooLong));
        }
        let stored = read_state(&bytes).map_err(|error| state_error(path, StateFileError::Contents(error)))?;
        let file = StateFile { file, path: path.to_owned() };
        Ok(Some(ExistingState { file, stored, length: bytes.len() as u64 }))
    }

    /// Creates the file with its first line.
    pub(super) fn create(path: &Path, header: &StateHeader) -> Result<Self, SweepError> {
        let failed = |error| state_error(path, StateFileError::Io(error));
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(path).map_err(failed)?;
        lock(&file, path)?;
        let mut state = StateFile { file, path: path.to_owned() };
        state.write(&StateLine::of_header(header))?;
        // Without a synced directory, the file may be missing after a power failure. The sweep itself needs no more.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
        Ok(state)
    }

    /// Adds a finished run, and syncs the file.
    pub(super) fn add(&mut self, run: &SweepRun) -> Result<(), SweepError> {
        self.write(&StateLine::of_run(run))
    }

    fn write(&mut self, line: &StateLine) -> Result<(), SweepError> {
        let failed = |error| state_error(&self.path, StateFileError::Io(error));
        let metadata = self.file.metadata().map_err(failed)?;
        if metadata.nlink() == 0 {
            return Err(state_error(&self.path, StateFileError::Removed));
        }
        let text = line.text().map_err(|error| failed(error.into()))?;
        // A longer file could not be read again.
        if metadata.len() + text.len() as u64 > MAX_STATE_BYTES {
            return Err(state_error(&self.path, StateFileError::TooLong));
        }
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(failed)
    }
}

impl ExistingState {
    /// Continues the file: removes an incomplete last line, and writes the first line if it is missing. Returns the file,
    /// and whether a line was removed.
    pub(super) fn resume(mut self, header: &StateHeader) -> Result<(StateFile, bool), SweepError> {
        let complete = self.stored.as_ref().map_or(0, |stored| stored.complete_length as u64);
        let is_cut = complete < self.length;
        if is_cut {
            let cut = self.file.file.set_len(complete).and_then(|()| self.file.file.sync_data());
            cut.map_err(|error| state_error(&self.file.path, StateFileError::Io(error)))?;
        }
        if self.stored.is_none() {
            self.file.write(&StateLine::of_header(header))?;
        }
        Ok((self.file, is_cut))
    }
}

/// Locks the file for this process. The kernel releases the lock when the process ends, however it ends.
fn lock(file: &File, path: &Path) -> Result<(), SweepError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(state_error(path, StateFileError::Locked)),
        Err(error) => Err(state_error(path, StateFileError::Io(error.into()))),
    }
}

pub(super) fn state_error(path: &Path, source: StateFileError) -> SweepError {
    SweepError::State { file: path.to_owned(), source }
}
