//! Opens and locks the partial name of an entry, whatever an earlier copy left there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::journal::Journal;
use super::location::EntryLocation;
use super::names::{journal_name, partial_name};
use crate::TransferError;
use crate::base_dir::inode;

/// Maximum number of attempts, 5 ms apart, to lock a partial name that another copy holds.
const MAX_TRIES: usize = 40;

/// Opens or creates the partial file and locks it.
pub(super) fn lock_partial_file(location: &EntryLocation, name: &OsStr, mode: u32) -> Result<OwnedFd, TransferError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode & 0o777);
    // The copy that writes the file would notice that it is opened, and would read it again.
    if Journal::is_locked(location, &journal_name(&location.name)) {
        return Err(TransferError::Locked { path: location.display_path.clone() });
    }
    // Between open and lock, another copy may publish or remove the file. Then the name leads to another file.
    for _ in 0..16 {
        let file = match openat(&location.directory, name, flags, mode) {
            Err(Errno::ACCESS) if restore_owner_access(location, name)? => continue,
            Err(Errno::LOOP) => {
                // A copy was killed before it could rename the link. Or another copy has renamed it just now.
                if is_symlink(location, name) {
                    remove_stale(location, name)?;
                }
                continue;
            }
            opened => opened.map_err(|e| location.error("create", e))?,
        };
        lock_file(&file, location)?;
        let opened = fstat(&file).map_err(|e| location.error("create", e))?;
        match statat(&location.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if inode(&named) == inode(&opened) => {
                if named.st_nlink > 1 && !has_journal(location) {
                    // Same situation for a hard link. The data stays under the other name.
                    remove_stale(location, name)?;
                    continue;
                }
                location.require_one_name(&file)?;
                if is_foreign(location, &named) {
                    // Its owner can write any content and any journal.
                    remove_stale(location, name)?;
                    continue;
                }
                remove_foreign_journal(location);
                return Ok(file);
            }
            _ => continue,
        }
    }
    Err(TransferError::Locked { path: location.display_path.clone() })
}

/// Locks the partial name, which a single-block file needs for a moment. Removes the file that an earlier copy left.
pub(super) fn take_partial_name(location: &EntryLocation, mode: u32) -> Result<OwnedFd, TransferError> {
    let name = partial_name(&location.name);
    let stale = lock_partial_file(location, &name, mode)?;
    let length = fstat(&stale).map_err(|e| location.error("read", e))?.st_size;
    if length > 0 && belongs_to_other_owner(location) {
        return Err(TransferError::Locked { path: location.display_path.clone() });
    }
    remove_stale(location, &name)?;
    let _ = unlinkat(&location.directory, journal_name(&location.name), AtFlags::empty());
    Ok(stale)
}

/// Takes the partial name. Waits up to 200 ms, because another copy of a small file holds the name only briefly.
pub(super) fn take_partial_name_soon(location: &EntryLocation) -> Result<OwnedFd, TransferError> {
    for _ in 0..MAX_TRIES {
        match take_partial_name(location, 0o600) {
            Err(TransferError::Locked { .. }) => thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
    take_partial_name(location, 0o600)
}

/// Returns whether a partial file belongs to another owner, if this copy has an owner. After a crash the journal may
/// name no owner. Then no copy can resume the file, and any may replace it.
pub(super) fn belongs_to_other_owner(location: &EntryLocation) -> bool {
    let Some(owner) = &location.owner else { return false };
    match Journal::read_source(location, &journal_name(&location.name)) {
        Ok(source) => source.is_some_and(|source| !owner.owns(&source)),
        Err(_) => true,
    }
}

/// Creates a link or a complete file in place of an existing entry. `create_object` runs while this copy holds the
/// partial name.
pub(super) fn replace_entry(
    location: &EntryLocation,
    create_object: impl Fn(&OsStr) -> Result<(), Errno>,
) -> Result<(), TransferError> {
    for _ in 0..MAX_TRIES {
        // The lock keeps other copies from the file of this name, also after its name is gone.
        let stale = take_partial_name_soon(location)?;
        match location.create_and_rename(&create_object) {
            // Another copy replaces the same entry.
            Err(TransferError::Locked { .. }) => thread::sleep(Duration::from_millis(5)),
            created => return created,
        }
        drop(stale);
    }
    Err(TransferError::Locked { path: location.display_path.clone() })
}

/// Removes an object of the partial name. Another copy may have removed or renamed it meanwhile.
fn remove_stale(location: &EntryLocation, name: &OsStr) -> Result<(), TransferError> {
    match unlinkat(&location.directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(location.error("create", error)),
    }
}

/// Returns whether a file with content belongs to another user than the files that this copy creates here. On some file
/// systems, all files have one owner.
fn is_foreign(location: &EntryLocation, stat: &Stat) -> bool {
    stat.st_size > 0 && stat.st_uid != geteuid().as_raw() && {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let new = openat(&location.directory, ".", flags, Mode::from_raw_mode(0o600)).and_then(fstat);
        new.is_ok_and(|new| new.st_uid != stat.st_uid)
    }
}

fn remove_foreign_journal(location: &EntryLocation) {
    let name = journal_name(&location.name);
    let journal = statat(&location.directory, &name, AtFlags::SYMLINK_NOFOLLOW);
    if journal.is_ok_and(|journal| is_foreign(location, &journal)) {
        let _ = unlinkat(&location.directory, &name, AtFlags::empty());
    }
}

fn is_symlink(location: &EntryLocation, name: &OsStr) -> bool {
    statat(&location.directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn has_journal(location: &EntryLocation) -> bool {
    statat(&location.directory, journal_name(&location.name), AtFlags::SYMLINK_NOFOLLOW).err() != Some(Errno::NOENT)
}

fn lock_file(file: &OwnedFd, location: &EntryLocation) -> Result<(), TransferError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(TransferError::Locked { path: location.display_path.clone() }),
        Err(error) => Err(location.error("lock the partial file of", error)),
    }
}

/// Gives the owner write access to a partial file that has its final mode already: the copy was interrupted during its
/// sync. Returns false if the mode is not the problem.
fn restore_owner_access(location: &EntryLocation, name: &OsStr) -> Result<bool, TransferError> {
    const OWNER_RW: u32 = 0o600;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&location.directory, name, flags, Mode::empty()) else { return Ok(false) };
    // The lock fails if a copy is about to rename the file.
    lock_file(&file, location)?;
    location.require_one_name(&file)?;
    let mode = fstat(&file).map_err(|e| location.error("create", e))?.st_mode & 0o777;
    Ok(mode & OWNER_RW != OWNER_RW && fchmod(&file, Mode::from_raw_mode(mode | OWNER_RW)).is_ok())
}
