//! Base directory of the paths at either end, and path texts for messages.
//!
//! The paths of a server come from a peer. The kernel therefore confines them to the served root (`openat2`,
//! `RESOLVE_BENEATH`), and everything afterwards happens by name inside an open directory. Paths of this host's own
//! user are ordinary. [`super::storage`] reads and writes files.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::SystemTime;

use lfn_session::wire::copy::entry::Modified;
use lfn_sys::clock;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2};
use rustix::io::Errno;

use super::{FileKind, ForbiddenReason, TransferError};

/// Base directory of all paths: this process's directory, or a served root that no path can leave.
#[derive(Debug)]
pub(crate) enum BaseDir {
    Local,
    Root(OwnedFd),
}

/// Device and inode number of a file.
pub(crate) type Inode = (u64, u64);

/// Returns device and inode of a file.
pub(crate) fn inode(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}

/// Returns device and inode of an open file.
pub(crate) fn inode_of(file: impl AsFd) -> Option<Inode> {
    fstat(file).ok().as_ref().map(inode)
}

impl BaseDir {
    /// Opens the directory that a server serves.
    pub(crate) fn root(path: &Path) -> Result<Self, TransferError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The client must not learn the path of the root.
        open(path, flags, Mode::empty()).map(BaseDir::Root).map_err(|e| file_error("open", "the served directory", e))
    }

    /// Returns device and inode of the served root.
    pub(crate) fn root_inode(&self) -> Option<Inode> {
        match self {
            BaseDir::Root(root) => inode_of(root),
            BaseDir::Local => None,
        }
    }

    /// Opens an existing path. Below a root, fails if a link or `..` leads out of it.
    pub(crate) fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let BaseDir::Root(root) = self else {
            return openat(CWD, path, flags, Mode::empty());
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // EAGAIN: something was renamed during the lookup, so the kernel could not verify the path (openat2(2)).
        for _ in 0..16 {
            match openat2(root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Returns a path as text for a message. The served root itself is not shown.
pub(crate) fn path_text(path: &Path) -> String {
    if path.as_os_str().is_empty() { "the served root".to_owned() } else { path.display().to_string() }
}

/// Returns `.` if the path is empty.
pub(super) fn or_current_dir(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Checks that a name stays in its directory.
pub(super) fn check_file_name(name: &OsStr, shown: &str) -> Result<OsString, TransferError> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name && !name.as_bytes().contains(&0) => Ok(name.to_owned()),
        _ => Err(TransferError::Forbidden { path: shown.to_owned(), reason: ForbiddenReason::NotFileName }),
    }
}

pub(super) fn check_regular(stat: &Stat, shown: &str) -> Result<(), TransferError> {
    match non_regular_kind(stat) {
        None => Ok(()),
        Some(kind) => Err(TransferError::NotRegular { path: shown.to_owned(), kind }),
    }
}

/// Returns the kind of a file that is not regular, `None` for a regular file.
pub(crate) fn non_regular_kind(stat: &Stat) -> Option<FileKind> {
    FileKind::of_irregular(FileType::from_raw_mode(stat.st_mode))
}

/// Converts an error of a path lookup.
pub(super) fn open_error(doing: &'static str, shown: &str, error: Errno) -> TransferError {
    let path = shown.to_owned();
    match error {
        Errno::NOENT => TransferError::NotFound { path },
        // openat2: the path leads out of the root.
        Errno::XDEV => TransferError::Forbidden { path, reason: ForbiddenReason::OutsideRoot },
        Errno::NXIO => TransferError::NotRegular { path, kind: FileKind::Socket },
        other => file_error(doing, shown, other),
    }
}

pub(super) fn file_error(doing: &'static str, shown: &str, error: Errno) -> TransferError {
    TransferError::File { doing, path: shown.to_owned(), source: error.into() }
}

/// Returns the time of this host's clock.
pub(crate) fn now() -> Modified {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Modified::new(now.as_secs() as i64, now.subsec_nanos()).unwrap_or_default()
}

/// Reports whether the host was booted after the given time.
pub(crate) fn has_rebooted_since(then: Modified) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let started = now.saturating_sub(clock::since_boot());
    Modified::new(started.as_secs() as i64, started.subsec_nanos()).is_ok_and(|started| started > then)
}
