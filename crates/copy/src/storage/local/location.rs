//! The place of one entry: a name in an open directory.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use lfn_session::wire::copy::entry::Modified;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, StatxFlags, fstat, linkat, mkdirat, openat, renameat,
    renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::names::{journal_name, partial_name, replaced_name};
use super::partial_owner::PartialOwner;
use crate::base_dir::{file_error, inode, non_regular_kind, open_error};
use crate::{ForbiddenReason, TransferError};

/// The open top directory of a destination.
#[derive(Debug)]
pub(super) struct TopHandle {
    pub(super) directory: Arc<OwnedFd>,
    /// The destination as the user typed it, for messages.
    pub(super) display_path: String,
}

/// A name in an open directory: the place of one entry.
#[derive(Clone, Debug)]
pub(super) struct EntryLocation {
    pub(super) directory: Arc<OwnedFd>,
    pub(super) name: OsString,
    pub(super) display_path: String,
    pub(super) top: Arc<TopHandle>,
    /// The owner of this copy's partial files, if copies of several owners share the directory.
    pub(super) owner: Option<PartialOwner>,
}

impl TopHandle {
    /// Returns the error of an operation below the top. If the top was removed meanwhile, the removal is the cause.
    pub(super) fn file_error(&self, doing: &'static str, display_path: &str, error: Errno) -> TransferError {
        self.removal().unwrap_or_else(|| file_error(doing, display_path, error))
    }

    /// Returns the error of a failed path to an entry.
    pub(super) fn path_error(&self, display_path: &str, error: Errno) -> TransferError {
        let path = display_path.to_owned();
        match error {
            Errno::LOOP => TransferError::Forbidden { path, reason: ForbiddenReason::LinkInPath },
            Errno::NOTDIR => TransferError::Forbidden { path, reason: ForbiddenReason::FileInPath },
            other => self.removal().unwrap_or_else(|| open_error("open the directory of", display_path, other)),
        }
    }

    /// Returns whether the top directory has no name any more.
    pub(super) fn is_removed(&self) -> bool {
        fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0)
    }

    pub(super) fn removal_error(&self) -> TransferError {
        TransferError::DestinationRemoved { path: self.display_path.clone() }
    }

    fn removal(&self) -> Option<TransferError> {
        self.is_removed().then(|| self.removal_error())
    }
}

impl EntryLocation {
    /// Returns the location of another name in the same directory.
    pub(super) fn sibling(&self, name: OsString) -> Self {
        EntryLocation { name, ..self.clone() }
    }

    /// Returns the attributes of the existing entry, without following a link.
    pub(super) fn stat(&self) -> Result<Option<Stat>, TransferError> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) if self.top.is_removed() => Err(self.top.removal_error()),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.error("create", error)),
        }
    }

    /// Opens the object for calls that need a descriptor but no access to its data.
    pub(super) fn open_path(&self) -> Result<OwnedFd, TransferError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.directory, &self.name, flags, Mode::empty()).map_err(|e| self.error("open", e))
    }

    /// Returns whether the entry was created at `since` or later. A directory without a birth time counts as older,
    /// because each new entry in it changes its ctime.
    pub(super) fn is_newer(&self, since: Modified) -> bool {
        is_newer(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW, since)
    }

    /// Atomically renames `from`, in the same directory, to this name.
    pub(super) fn rename_from(&self, from: &OsStr, replace: bool) -> Result<(), TransferError> {
        let EntryLocation { directory, name, .. } = self;
        let renamed = match renameat_with(directory, from, directory, name, rename_flags(replace)) {
            // The file system does not support RENAME_NOREPLACE.
            Err(Errno::INVAL | Errno::NOSYS) if !replace => self.rename_if_free(from),
            Err(Errno::NOSYS) => renameat(directory, from, directory, name),
            result => result,
        };
        renamed.map_err(|error| self.name_error("rename the partial file to", error))
    }

    /// Renames to a free name, on a file system without RENAME_NOREPLACE.
    fn rename_if_free(&self, from: &OsStr) -> Result<(), Errno> {
        let EntryLocation { directory, name, .. } = self;
        match linkat(directory, from, directory, name, AtFlags::empty()) {
            // Creating a hard link is atomic too.
            Ok(()) => unlinkat(directory, from, AtFlags::empty()),
            // Without hard links (exFAT in user space), check before the rename.
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => {
                match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => Err(Errno::EXIST),
                    Err(Errno::NOENT) => renameat(directory, from, directory, name),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces another kind of entry by a new directory.
    pub(super) fn replace_with_directory(&self, mode: Mode) -> Result<(), TransferError> {
        let aside = replaced_name(&self.name);
        // Left by a copy that was killed before it could put the directory in its place.
        let _ = unlinkat(&self.directory, &aside, AtFlags::REMOVEDIR);
        self.exchange(&aside, mode).map_err(|error| match error {
            Errno::EXIST => TransferError::Forbidden {
                path: self.display_path.clone(),
                reason: ForbiddenReason::ReplacedEntryRemains,
            },
            error => self.error("replace", error),
        })
    }

    fn exchange(&self, aside: &OsStr, mode: Mode) -> Result<(), Errno> {
        let EntryLocation { directory, name, .. } = self;
        let unlink = || unlinkat(directory, aside, AtFlags::empty());
        mkdirat(directory, aside, mode)?;
        match renameat_with(directory, aside, directory, name, RenameFlags::EXCHANGE) {
            Ok(()) => return unlink(),
            Err(error) => {
                unlinkat(directory, aside, AtFlags::REMOVEDIR)?;
                // The file system does not support RENAME_EXCHANGE.
                if !matches!(error, Errno::INVAL | Errno::NOSYS) {
                    return Err(error);
                }
            }
        }
        // The file system may support only the plain rename.
        renameat(directory, name, directory, aside)?;
        match mkdirat(directory, name, mode) {
            Ok(()) => unlink(),
            Err(error) => renameat(directory, aside, directory, name).and(Err(error)),
        }
    }

    /// Removes the entry that this directory replaced, if a copy was killed before it could remove the entry.
    pub(super) fn remove_replaced(&self) {
        let _ = unlinkat(&self.directory, replaced_name(&self.name), AtFlags::empty());
    }

    /// Removes the journal of a complete file.
    pub(super) fn remove_journal(&self) {
        let _ = unlinkat(&self.directory, journal_name(&self.name), AtFlags::empty());
    }

    /// Creates an object under this name if the name is free.
    pub(super) fn create(&self, create_object: impl Fn(&OsStr) -> Result<(), Errno>) -> Result<(), TransferError> {
        create_object(&self.name).map_err(|error| self.name_error("create", error))
    }

    /// Creates an object under the partial name, and renames it to this name.
    ///
    /// # Errors
    /// [`TransferError::Locked`] if another copy uses the partial name at the same time.
    pub(super) fn create_and_rename(
        &self,
        create_object: impl Fn(&OsStr) -> Result<(), Errno>,
    ) -> Result<(), TransferError> {
        let EntryLocation { directory, name, .. } = self;
        let reserved = partial_name(name);
        // EEXIST and ENOENT: another copy has created, or removed, the object of the partial name.
        let failed = |doing, error| match error {
            Errno::EXIST | Errno::NOENT if !self.top.is_removed() => {
                TransferError::Locked { path: self.display_path.clone() }
            }
            error => self.error(doing, error),
        };
        create_object(&reserved).map_err(|error| failed("create", error))?;
        let renamed = renameat(directory, &reserved, directory, name);
        // A rename between two names of one file changes nothing (rename(2)), so remove the partial name. Any other
        // file of that name belongs to another copy.
        let inode_of = |name| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| inode(&stat));
        let is_own = match renamed {
            Ok(()) => inode_of(&reserved).is_ok_and(|inode| inode_of(name) == Ok(inode)),
            Err(error) => error != Errno::NOENT,
        };
        if is_own {
            let _ = unlinkat(directory, &reserved, AtFlags::empty());
        }
        renamed.map_err(|error| failed("rename the partial file to", error))
    }

    /// Opens the directory for reading and syncing.
    pub(super) fn open_readable(&self) -> Result<OwnedFd, Errno> {
        open_readable(&self.directory)
    }

    /// Returns an error about this entry.
    pub(super) fn error(&self, doing: &'static str, error: Errno) -> TransferError {
        self.top.file_error(doing, &self.display_path, error)
    }

    pub(super) fn name_error(&self, doing: &'static str, error: Errno) -> TransferError {
        match error {
            Errno::EXIST => TransferError::Exists { path: self.display_path.clone() },
            other => self.error(doing, other),
        }
    }

    /// Refuses a partial file or journal that does not have exactly one name. With several, it would change data under
    /// another name.
    pub(super) fn require_one_name(&self, file: &OwnedFd) -> Result<(), TransferError> {
        let stat = fstat(file).map_err(|e| self.error("create", e))?;
        let reason = match non_regular_kind(&stat) {
            Some(kind) => ForbiddenReason::PartialNotRegular(kind),
            None if stat.st_nlink == 1 => return Ok(()),
            None if stat.st_nlink == 0 && self.top.is_removed() => return Err(self.top.removal_error()),
            // Another copy of this file is ending.
            None if stat.st_nlink == 0 => return Err(TransferError::Locked { path: self.display_path.clone() }),
            None => ForbiddenReason::PartialHasTwoNames,
        };
        Err(TransferError::Forbidden { path: self.display_path.clone(), reason })
    }
}

/// Opens a directory for reading and syncing.
pub(super) fn open_readable(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns whether the entry was created at `since` or later.
pub(super) fn is_newer(directory: impl AsFd, name: &OsStr, flags: AtFlags, since: Modified) -> bool {
    let needed = StatxFlags::BTIME | StatxFlags::CTIME | StatxFlags::TYPE;
    let Ok(stat) = statx(directory, name, flags, needed) else { return false };
    let born = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    if !born && FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory {
        return false;
    }
    let time = if born { stat.stx_btime } else { stat.stx_ctime };
    Modified::new(time.tv_sec, time.tv_nsec).is_ok_and(|time| time >= since)
}

/// Gives an open file a name, whatever its names are now.
pub(super) fn link_open_file(file: impl AsFd, directory: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    match linkat(CWD, path, &directory, name, AtFlags::SYMLINK_FOLLOW) {
        // Without /proc, only privileged users may link a file by its descriptor (linkat(2)).
        Err(Errno::NOENT) => linkat(file, "", directory, name, AtFlags::EMPTY_PATH),
        result => result,
    }
}

fn rename_flags(replace: bool) -> RenameFlags {
    if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE }
}
