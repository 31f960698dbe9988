//! The object that gets attributes, by an open descriptor.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use lfn_session::wire::copy::entry::{Entry, Modified};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat, fchmod, fchown,
    fsetxattr, fstat, futimens, getxattr, setxattr, utimensat,
};
use rustix::io::Errno;

/// The object that gets the attributes.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttributeTarget<'a> {
    NewFile(&'a File),
    /// A directory, opened with `O_PATH`, and whether this copy created the directory.
    Directory(BorrowedFd<'a>, bool),
    /// A file that existed before, opened with `O_PATH`.
    ExistingFile(BorrowedFd<'a>),
}

/// The failed action, as a phrase for the error text, and its cause.
pub(super) type AttributeError = (&'static str, Errno);

impl AttributeTarget<'_> {
    pub(super) fn is_new(self) -> bool {
        matches!(self, AttributeTarget::NewFile(_) | AttributeTarget::Directory(_, true))
    }

    pub(super) fn stat(self) -> Result<Stat, Errno> {
        match self {
            AttributeTarget::NewFile(file) => fstat(file),
            AttributeTarget::Directory(path, _) | AttributeTarget::ExistingFile(path) => fstat(path),
        }
    }

    /// Returns a path to the target, for calls that accept no `O_PATH` descriptor.
    pub(super) fn path(self) -> String {
        let descriptor = match self {
            AttributeTarget::NewFile(file) => file.as_raw_fd(),
            AttributeTarget::Directory(path, _) | AttributeTarget::ExistingFile(path) => path.as_raw_fd(),
        };
        format!("/proc/self/fd/{descriptor}")
    }

    /// Calls `retry` with the path of the descriptor if access to `.` was denied. The owner of a directory without
    /// search permission cannot reach its `.`.
    pub(super) fn retry_by_path(
        self,
        result: Result<(), Errno>,
        retry: impl FnOnce(String) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if result == Err(Errno::ACCESS) { retry(self.path()) } else { result }
    }

    pub(super) fn chown(self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        match self {
            AttributeTarget::NewFile(file) => fchown(file, uid, gid),
            AttributeTarget::Directory(path, _) | AttributeTarget::ExistingFile(path) => {
                chownat(path, "", uid, gid, AtFlags::EMPTY_PATH)
            }
        }
    }

    pub(super) fn chmod(self, mode: Mode) -> Result<(), Errno> {
        match self {
            AttributeTarget::NewFile(file) => fchmod(file, mode),
            AttributeTarget::Directory(path, _) => self
                .retry_by_path(chmodat(path, ".", mode, AtFlags::empty()), |path| {
                    chmodat(CWD, path, mode, AtFlags::empty())
                }),
            AttributeTarget::ExistingFile(_) => chmodat(CWD, self.path(), mode, AtFlags::empty()),
        }
    }

    /// Returns whether the attribute has exactly this value. With no value: whether the attribute does not exist.
    pub(super) fn has_xattr(self, name: &[u8], value: Option<&[u8]>) -> Result<bool, Errno> {
        let mut value_now = vec![0; value.map_or(0, <[u8]>::len) + 1];
        match getxattr(self.path(), name, &mut value_now[..]) {
            Ok(length) => Ok(value == Some(&value_now[..length])),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(value.is_none()),
            // The value is longer, or this user may not read it.
            Err(Errno::RANGE | Errno::PERM | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            AttributeTarget::NewFile(file) => fsetxattr(file, name, value, XattrFlags::empty()),
            AttributeTarget::Directory(..) | AttributeTarget::ExistingFile(_) => {
                setxattr(self.path(), name, value, XattrFlags::empty())
            }
        }
    }

    /// Sets the modification time. An existing file has the right time already.
    pub(super) fn set_modified(self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            AttributeTarget::NewFile(file) => futimens(file, times),
            AttributeTarget::Directory(path, _) => self
                .retry_by_path(utimensat(path, ".", times, AtFlags::empty()), |path| {
                    utimensat(CWD, path, times, AtFlags::empty())
                }),
            AttributeTarget::ExistingFile(_) => Ok(()),
        }
    }

    pub(super) fn set_times(self, entry: &Entry) -> Result<(), Errno> {
        match (self, self.set_modified(&entry_times(entry))) {
            // The directory belongs to another user, as /tmp does.
            (AttributeTarget::Directory(_, false), Err(Errno::PERM | Errno::ACCESS)) => Ok(()),
            (_, set) => set,
        }
    }
}

/// Sets the modification time, and leaves the time of the last access.
pub(super) fn set_modified(file: impl AsFd, entry: &Entry) -> Result<(), Errno> {
    futimens(file, &entry_times(entry))
}

/// Returns the times of an entry for the kernel.
pub(super) fn entry_times(entry: &Entry) -> Timestamps {
    modified_timestamps(entry.modified)
}

/// Returns a modification time for the kernel. The time of the last access stays.
pub(super) fn modified_timestamps(modified: Modified) -> Timestamps {
    let modified = Timespec { tv_sec: modified.seconds(), tv_nsec: i64::from(modified.nanoseconds()) };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: modified }
}
