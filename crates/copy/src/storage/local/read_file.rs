//! A local file that is open for reading.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{Dir, OFlags, SeekFrom, fstat, seek};
use rustix::io::Errno;

use super::stat::metadata_of;
use crate::TransferError;
use crate::base_dir::{check_regular, file_error, non_regular_kind};
use crate::storage::{FileData, Metadata, ReadFile};

/// Flags for opening without waiting for the writer of a FIFO, and without taking a terminal as the controlling
/// terminal.
pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A local file that is open for reading.
#[derive(Debug)]
pub(super) struct LocalReadFile {
    file: File,
    at_open: Metadata,
}

impl LocalReadFile {
    /// Accepts a regular file.
    pub(super) fn new(file: OwnedFd, display_path: impl Fn() -> String) -> Result<Self, TransferError> {
        let stat = fstat(&file).map_err(|error| file_error("read", &display_path(), error))?;
        if non_regular_kind(&stat).is_some() {
            check_regular(&stat, &display_path())?;
        }
        Ok(LocalReadFile { file: file.into(), at_open: metadata_of(&stat) })
    }
}

impl ReadFile for LocalReadFile {
    fn metadata(&self) -> io::Result<Metadata> {
        Ok(metadata_of(&fstat(&self.file)?))
    }

    fn metadata_at_open(&self) -> io::Result<Metadata> {
        Ok(self.at_open)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl FileData for LocalReadFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.file, buffer, offset)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.file.next_data(offset)
    }
}

impl FileData for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match seek(self, SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            // No data follows the offset (lseek(2)).
            Err(Errno::NXIO) => Ok(None),
            // The file system does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the names in an open directory, without `.` and `..`.
pub(super) fn names_in(
    directory: OwnedFd,
    display_path: String,
) -> Result<impl Iterator<Item = Result<Vec<u8>, TransferError>> + Send, TransferError> {
    let mut entries = Dir::new(directory).map_err(|error| file_error("list", &display_path, error))?;
    Ok(std::iter::from_fn(move || {
        loop {
            match entries.read()? {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => return Some(Ok(entry.file_name().to_bytes().to_vec())),
                Err(error) => return Some(Err(file_error("list", &display_path, error))),
            }
        }
    }))
}
