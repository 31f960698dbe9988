//! A partial file that another host of the same copy holds open, on a file system that both share.

use std::fs::File;
use std::os::unix::fs::FileExt;

use lfn_session::wire::copy::blocks::Block;
use rustix::fs::{FileType, Mode, OFlags, fdatasync, fstat, openat};
use rustix::io::Errno;

use super::location::EntryLocation;
use super::names::partial_name;
use super::sparse::write_sparse;
use crate::storage::SharedPartial;
use crate::{ForbiddenReason, TransferError};

/// An open partial file that another host locks and records.
#[derive(Debug)]
pub(super) struct SharedPartialFile {
    file: File,
    inode: u64,
    is_sparse: bool,
    display_path: String,
}

impl SharedPartialFile {
    /// Opens the partial file of an entry. A link, or a file with other names, is refused.
    pub(super) fn open(location: &EntryLocation, is_sparse: bool) -> Result<Self, TransferError> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&location.directory, partial_name(&location.name), flags, Mode::empty());
        let file = File::from(opened.map_err(|error| match error {
            Errno::NOENT => TransferError::NotFound { path: location.display_path.clone() },
            error => location.error("open the partial file of", error),
        })?);
        let stat = fstat(&file).map_err(|error| location.error("read", error))?;
        let path = location.display_path.clone();
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
            return Err(TransferError::Forbidden { path, reason: ForbiddenReason::PartialReplaced });
        }
        Ok(SharedPartialFile { file, inode: stat.st_ino, is_sparse, display_path: path })
    }
}

impl SharedPartial for SharedPartialFile {
    fn write_block(&self, block: Block, bytes: &[u8]) -> Result<(), TransferError> {
        let written = if self.is_sparse {
            write_sparse(&self.file, block.offset, bytes)
        } else {
            self.file.write_all_at(bytes, block.offset)
        };
        written.map_err(|source| TransferError::File { doing: "write", path: self.display_path.clone(), source })
    }

    fn sync(&self) -> Result<(), TransferError> {
        fdatasync(&self.file).map_err(|error| TransferError::File {
            doing: "sync",
            path: self.display_path.clone(),
            source: error.into(),
        })
    }

    fn inode(&self) -> Option<u64> {
        Some(self.inode)
    }
}
