//! Attributes of files, directories and links: owner, extended attributes, mode, access control lists and times.
//!
//! Attributes are set before a file gets its final name. The order matters: a new owner clears the set-id bits and
//! capabilities, and a mode changes an access control list. An attribute that this user may not set, or that the file
//! system cannot store, is counted and reported once at the end, as rsync does with owners. Any other error fails the
//! entry.
//!
//! A peer of a server can create nothing with more rights than a plain file. Set-id bits, and extended attributes
//! outside the namespace `user`, need a copy that the local user started. Those that give a program the power of its
//! owner also need root and the option to preserve owners.

use std::os::fd::BorrowedFd;

use lfn_session::wire::copy::entry::{Entry, Modified, Owner, Xattr};
use lfn_session::wire::copy::preserve::{Preserve, Unpreserved};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Gid, Mode, Uid, chownat, fstat, listxattr, removexattr, utimensat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::attribute_target::{AttributeError, AttributeTarget, entry_times, modified_timestamps};
use super::location::EntryLocation;
use super::xattrs::{ACL_ACCESS, ACL_DEFAULT, MAX_XATTR_BYTES};
use crate::accounts::Accounts;

/// The mode bits that a directory's owner needs to write in the directory.
const OWNER_RWX: u32 = 0o700;

/// Sets the preserved attributes of entries, and counts the ones that could not be set.
#[derive(Debug)]
pub(super) struct AttributeWriter {
    preserve: Preserve,
    /// The local user started the copy, so the copy is not a request to a server.
    is_local: bool,
    is_root: bool,
    accounts: Accounts,
    unpreserved: Mutex<Unpreserved>,
}

impl AttributeWriter {
    /// Creates a writer for a copy that the local user started (`is_local`), or for a copy of a peer.
    pub(super) fn new(preserve: Preserve, is_local: bool) -> Self {
        AttributeWriter {
            preserve,
            is_local,
            is_root: geteuid().is_root(),
            accounts: Accounts::default(),
            unpreserved: Mutex::default(),
        }
    }

    /// Returns whether zeros become holes.
    pub(super) fn is_sparse(&self) -> bool {
        self.preserve.sparse
    }

    /// Returns whether more is preserved than the time, and than a mode within the umask.
    pub(super) fn preserves_metadata(&self) -> bool {
        let Preserve { modes, owners, xattrs, acls, .. } = self.preserve;
        modes || owners || xattrs || acls
    }

    /// Returns the numbers of attributes that could not be set.
    pub(super) fn unpreserved(&self) -> Unpreserved {
        *self.unpreserved.lock()
    }

    /// Returns the mode for creating a file. The owner must be able to set attributes.
    pub(super) fn creation_mode(&self, entry: &Entry) -> u32 {
        entry.mode & 0o777 | if self.preserves_metadata() { 0o600 } else { 0 }
    }

    /// Sets all preserved attributes in the required order.
    pub(super) fn apply(&self, target: AttributeTarget<'_>, entry: &Entry) -> Result<(), AttributeError> {
        if self.preserves_metadata() {
            let owner_is_set = self.set_owner(target, entry).map_err(|error| ("set the owner of", error))?;
            self.set_xattrs(target, entry, owner_is_set).map_err(|error| ("set the extended attributes of", error))?;
            self.set_mode(target, entry, owner_is_set).map_err(|error| ("set the mode of", error))?;
            self.set_acls(target, entry).map_err(|error| ("set the access control list of", error))?;
        } else {
            self.set_mode(target, entry, false).map_err(|error| ("set the mode of", error))?;
        }
        target.set_times(entry).map_err(|error| ("set the times of", error))
    }

    /// Gives the owner write access to an existing directory if its preserved mode denies it, as rsync does. Returns
    /// the old mode if no other mode will be set later. If the source's mode allows writing, another user has closed
    /// the directory, and it stays closed.
    pub(super) fn make_writable(&self, directory: BorrowedFd<'_>, entry: &Entry) -> Option<Mode> {
        if !self.preserve.modes && entry.mode & OWNER_RWX == OWNER_RWX {
            return None;
        }
        self.add_owner_access(directory).filter(|_| !self.preserve.modes)
    }

    /// Gives the owner full access to a directory. Returns the old mode if the mode had to change. A directory of
    /// another user stays as it is.
    pub(super) fn add_owner_access(&self, directory: BorrowedFd<'_>) -> Option<Mode> {
        let mode = fstat(directory).ok()?.st_mode & 0o7777;
        // Modes do not restrict root.
        if self.is_root || mode & OWNER_RWX == OWNER_RWX {
            return None;
        }
        let opened = AttributeTarget::Directory(directory, false).chmod(Mode::from_raw_mode(mode | OWNER_RWX));
        opened.is_ok().then_some(Mode::from_raw_mode(mode))
    }

    /// Restores the old mode of a directory.
    pub(super) fn restore_mode(&self, directory: BorrowedFd<'_>, mode: Mode) -> Result<(), AttributeError> {
        AttributeTarget::Directory(directory, false).chmod(mode).map_err(|error| ("set the mode of", error))
    }

    /// Runs `work` in a directory that has its final attributes. Restores its mode and times afterwards.
    pub(super) fn with_attributes_restored<T>(&self, directory: BorrowedFd<'_>, work: impl FnOnce() -> T) -> T {
        let (before, closed) = (fstat(directory), self.add_owner_access(directory));
        let result = work();
        // Errors are ignored: a user who may not restore these attributes could not have changed them.
        if let Some(mode) = closed {
            let _ = self.restore_mode(directory, mode);
        }
        let modified = before.ok().and_then(|stat| Modified::new(stat.st_mtime, stat.st_mtime_nsec as u32).ok());
        if let Some(modified) = modified {
            let _ = AttributeTarget::Directory(directory, false).set_modified(&modified_timestamps(modified));
        }
        result
    }

    /// Sets the owner and the times of a symbolic link.
    pub(super) fn apply_to_symlink(&self, location: &EntryLocation, entry: &Entry) {
        let EntryLocation { directory, name, .. } = location;
        if let Some(owner) = entry.owner.as_ref().filter(|_| self.preserve.owners) {
            let (uid, gid) = self.owner_numbers(owner);
            if chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).is_err() {
                self.unpreserved.lock().owners += 1;
            }
        }
        // Some file systems store no times for links.
        let _ = utimensat(directory, name, &entry_times(entry), AtFlags::SYMLINK_NOFOLLOW);
    }

    fn owner_numbers(&self, owner: &Owner) -> (Uid, Gid) {
        let (uid, gid) = self.accounts.numbers(owner);
        (Uid::from_raw(uid), Gid::from_raw(gid))
    }

    /// Changes the owner, or at least the group if this user is a member of it. Returns whether owner and group are now
    /// the requested ones.
    fn set_owner(&self, target: AttributeTarget<'_>, entry: &Entry) -> Result<bool, Errno> {
        let Some(owner) = entry.owner.as_ref().filter(|_| self.preserve.owners) else { return Ok(false) };
        let (uid, gid) = self.owner_numbers(owner);
        let stat = target.stat()?;
        if (stat.st_uid, stat.st_gid) == (uid.as_raw(), gid.as_raw()) {
            return Ok(true);
        }
        match target.chown(Some(uid), Some(gid)) {
            Ok(()) => return Ok(true),
            // EINVAL: this user namespace does not map the number.
            Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
        let _ = target.chown(None, Some(gid));
        self.unpreserved.lock().owners += 1;
        Ok(false)
    }

    fn set_xattrs(&self, target: AttributeTarget<'_>, entry: &Entry, owner_is_set: bool) -> Result<(), Errno> {
        let mut unset = 0;
        let is_not_acl = |name: &[u8]| !name.starts_with(b"system.");
        for Xattr { name, value } in
            entry.xattrs.iter().filter(|x| self.preserve.xattrs && is_not_acl(x.name.as_bytes()))
        {
            let allowed = match name.as_bytes() {
                user if user.starts_with(b"user.") => true,
                b"security.capability" => self.is_local && self.is_root && owner_is_set,
                _ => self.is_local && self.is_root,
            };
            // The kernel refuses to set an attribute of a read-only file, even to the value that it has.
            if !target.is_new() && target.has_xattr(name.as_bytes(), Some(value.as_bytes()))? {
                continue;
            }
            let set = if allowed { target.set_xattr(name.as_bytes(), value.as_bytes()) } else { Err(Errno::PERM) };
            unset |= u64::from(!ignore_unsupported(set)?);
        }
        if self.preserve.xattrs && !target.is_new() {
            unset |= u64::from(!self.remove_extra_xattrs(target, entry)?);
        }
        self.unpreserved.lock().xattrs += unset;
        Ok(())
    }

    /// Removes extended attributes that the source does not have, as rsync does, in the namespaces that this copy sets.
    /// Returns whether all of them were removed.
    fn remove_extra_xattrs(&self, target: AttributeTarget<'_>, entry: &Entry) -> Result<bool, Errno> {
        let mut list = vec![0; MAX_XATTR_BYTES];
        let length = match listxattr(target.path(), &mut list[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => return Ok(true),
            Err(error) => return Err(error),
        };
        let kept = |name: &[u8]| {
            if self.is_local && self.is_root { !name.starts_with(b"system.") } else { name.starts_with(b"user.") }
        };
        let has = |name: &[u8]| entry.xattrs.iter().any(|x| x.name.as_bytes() == name);
        let mut all = true;
        for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty() && kept(name) && !has(name))
        {
            match removexattr(target.path(), name) {
                Err(Errno::NODATA) => {}
                removed => all &= ignore_unsupported(removed)?,
            }
        }
        Ok(all)
    }

    fn set_acls(&self, target: AttributeTarget<'_>, entry: &Entry) -> Result<(), Errno> {
        if !self.preserve.acls {
            return Ok(());
        }
        let mut unset = 0;
        let names = if matches!(target, AttributeTarget::Directory(..)) {
            &[ACL_ACCESS, ACL_DEFAULT][..]
        } else {
            &[ACL_ACCESS]
        };
        for name in names {
            let acl = entry.xattrs.iter().find(|x| x.name.as_bytes() == name.as_bytes());
            // The kernel refuses to set an attribute of another user's file, even to the value that it has.
            if target.has_xattr(name.as_bytes(), acl.map(|acl| acl.value.as_bytes()))? {
                continue;
            }
            let set = match acl {
                Some(acl) => target.set_xattr(name.as_bytes(), acl.value.as_bytes()),
                // The file inherited this list from its directory.
                None => removexattr(target.path(), *name),
            };
            unset |= u64::from(!ignore_unsupported(set)?);
        }
        self.unpreserved.lock().acls += unset;
        Ok(())
    }

    fn set_mode(&self, target: AttributeTarget<'_>, entry: &Entry, owner_is_set: bool) -> Result<(), Errno> {
        let now = target.stat()?.st_mode & 0o7777;
        let directory = matches!(target, AttributeTarget::Directory(..));
        // A new directory inherits its set-group-id bit from its parent.
        let inherited = if directory { now & 0o7000 } else { 0 };
        let needed = match (self.preserve.modes, directory) {
            (false, _) if !target.is_new() => return Ok(()),
            // The kernel applied the umask when the file was created.
            (false, _) => now & 0o777 & entry.mode | inherited,
            (true, true) if self.is_local => entry.mode & 0o3777,
            (true, true) => entry.mode & 0o1777 | inherited & 0o2000,
            (true, false) if self.is_local && self.is_root && owner_is_set => entry.mode,
            (true, false) => entry.mode & 0o1777,
        };
        if needed == now { Ok(()) } else { target.chmod(Mode::from_raw_mode(needed)) }
    }
}

/// Returns whether the attribute was set. An attribute that this user may not set, or that the file system does not
/// support, is no error. EINVAL: a list contains a number that this user namespace does not map (acl(5),
/// user_namespaces(7)), or this kernel reads the value differently.
fn ignore_unsupported(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
