//! What a file, a directory or a link gets besides its bytes: owner, extended attributes, mode, access control lists, times.
//!
//! They are set before a file has its final name, in this order: a new owner takes set-id bits and capabilities away, and
//! a mode changes an access control list. What this user may not give, or the file system cannot hold, is
//! counted and told once at the end, as rsync does with owners; what fails otherwise fails the entry.
//!
//! Nothing that a peer sends to a server becomes more than a file: set-id bits, and attributes outside the namespace
//! `user`, are for copies that this user started, and those that give a program its owner's power are for root who
//! keeps owners.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

use lfn_core::transfer::entry::{Entry, Modified, Owner, Xattr};
use lfn_core::transfer::keep::{Keep, Unkept};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Stat, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr, fstat,
    futimens, getxattr, listxattr, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::super::accounts::Accounts;
use super::super::flow::lock;
use super::super::sender::{ACCESS, DEFAULT, LONGEST};
use super::partial::{modified_at, times};
use super::tree::Place;

/// What of a directory's mode lets its owner write in it.
const OWNERS: u32 = 0o700;

/// What of the entries' attributes is set, and how much of that could not be.
#[derive(Debug)]
pub(super) struct Dressing {
    keep: Keep,
    /// This user started the copy; it is not a peer's, on a server.
    own: bool,
    root: bool,
    accounts: Accounts,
    unkept: Mutex<Unkept>,
}

/// What is dressed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    /// A new file.
    File(&'a File),
    /// A directory, open for its path alone; whether this copy made it.
    Directory(&'a OwnedFd, bool),
    /// A file that was there, open for its path alone.
    There(&'a OwnedFd),
}

/// What could not be set, and why.
pub(super) type Undressed = (&'static str, Errno);

impl Dressing {
    /// For a copy that this user started (`own`), or one of a peer.
    pub(super) fn new(keep: Keep, own: bool) -> Self {
        Dressing { keep, own, root: geteuid().is_root(), accounts: Accounts::default(), unkept: Mutex::default() }
    }

    /// Whether zeros become holes.
    pub(super) fn is_sparse(&self) -> bool {
        self.keep.sparse
    }

    /// Whether more is set than a time, and a mode within the umask.
    pub(super) fn is_more(&self) -> bool {
        let Keep { modes, owners, xattrs, acls, .. } = self.keep;
        modes || owners || xattrs || acls
    }

    /// What was not given.
    pub(super) fn unkept(&self) -> Unkept {
        *lock(&self.unkept)
    }

    /// The mode a file is made with: its owner must be able to set its attributes.
    pub(super) fn first_mode(&self, entry: &Entry) -> u32 {
        entry.mode & 0o777 | if self.is_more() { 0o600 } else { 0 }
    }

    /// Sets everything.
    pub(super) fn dress(&self, body: Body<'_>, entry: &Entry) -> Result<(), Undressed> {
        if self.is_more() {
            let given = self.give(body, entry).map_err(|error| ("set the owner of", error))?;
            self.set_xattrs(body, entry, given).map_err(|error| ("set the extended attributes of", error))?;
            self.set_mode(body, entry, given).map_err(|error| ("set the mode of", error))?;
            self.set_acls(body, entry).map_err(|error| ("set the access control list of", error))?;
        } else {
            self.set_mode(body, entry, false).map_err(|error| ("set the mode of", error))?;
        }
        body.set_times(entry).map_err(|error| ("set the times of", error))
    }

    /// Opens a directory that is there to its owner, where a copy gave it a mode that forbids to write in it, as rsync does;
    /// gives the mode that it had, if no other will be set. One that its source may write in was closed by somebody else, and
    /// stays so.
    pub(super) fn open_up(&self, directory: &OwnedFd, entry: &Entry) -> Option<Mode> {
        if !self.keep.modes && entry.mode & OWNERS == OWNERS {
            return None;
        }
        self.open_closed(directory).filter(|_| !self.keep.modes)
    }

    /// Opens a directory to its owner; gives the mode that it had, if that did not do. What another owns stays as it is.
    pub(super) fn open_closed(&self, directory: &OwnedFd) -> Option<Mode> {
        let mode = fstat(directory).ok()?.st_mode & 0o7777;
        // Modes forbid root nothing.
        if self.root || mode & OWNERS == OWNERS {
            return None;
        }
        let opened = Body::Directory(directory, false).chmod(Mode::from_raw_mode(mode | OWNERS));
        opened.is_ok().then_some(Mode::from_raw_mode(mode))
    }

    /// Closes it again.
    pub(super) fn close_again(&self, directory: &OwnedFd, mode: Mode) -> Result<(), Undressed> {
        Body::Directory(directory, false).chmod(mode).map_err(|error| ("set the mode of", error))
    }

    /// Does something in a directory that has its attributes, and leaves it with the mode and the times that it had.
    pub(super) fn unchanged<T>(&self, directory: &OwnedFd, work: impl FnOnce() -> T) -> T {
        let (before, closed) = (fstat(directory), self.open_closed(directory));
        let result = work();
        // Where this user may not do either, nobody has done it before.
        if let Some(mode) = closed {
            let _ = self.close_again(directory, mode);
        }
        let modified = before.ok().and_then(|stat| Modified::new(stat.st_mtime, stat.st_mtime_nsec as u32).ok());
        if let Some(modified) = modified {
            let _ = Body::Directory(directory, false).touch(&modified_at(modified));
        }
        result
    }

    /// Sets what a symbolic link can have.
    pub(super) fn dress_link(&self, place: &Place, entry: &Entry) {
        let Place { directory, name, .. } = place;
        if let Some(owner) = entry.owner.as_ref().filter(|_| self.keep.owners) {
            let (uid, gid) = self.wanted(owner);
            if chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).is_err() {
                lock(&self.unkept).owners += 1;
            }
        }
        // Some file systems keep none for links.
        let _ = utimensat(directory, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW);
    }

    fn wanted(&self, owner: &Owner) -> (Uid, Gid) {
        let (uid, gid) = self.accounts.numbers(owner);
        (Uid::from_raw(uid), Gid::from_raw(gid))
    }

    /// Gives it away, or to another of this user's groups at least; tells whether it is now whose it is to be.
    fn give(&self, body: Body<'_>, entry: &Entry) -> Result<bool, Errno> {
        let Some(owner) = entry.owner.as_ref().filter(|_| self.keep.owners) else { return Ok(false) };
        let (uid, gid) = self.wanted(owner);
        let stat = body.stat()?;
        if (stat.st_uid, stat.st_gid) == (uid.as_raw(), gid.as_raw()) {
            return Ok(true);
        }
        match body.chown(Some(uid), Some(gid)) {
            Ok(()) => return Ok(true),
            // EINVAL: a number that this user namespace does not have.
            Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
        let _ = body.chown(None, Some(gid));
        lock(&self.unkept).owners += 1;
        Ok(false)
    }

    fn set_xattrs(&self, body: Body<'_>, entry: &Entry, given: bool) -> Result<(), Errno> {
        let mut unkept = 0;
        let own = |name: &[u8]| !name.starts_with(b"system.");
        for Xattr { name, value } in entry.xattrs.iter().filter(|x| self.keep.xattrs && own(x.name.as_bytes())) {
            let allowed = match name.as_bytes() {
                user if user.starts_with(b"user.") => true,
                b"security.capability" => self.own && self.root && given,
                _ => self.own && self.root,
            };
            // Of a file that may not be written even what changes nothing is not permitted.
            if !body.is_new() && body.has_xattr(name.as_bytes(), Some(value.as_bytes()))? {
                continue;
            }
            let set = if allowed { body.set_xattr(name.as_bytes(), value.as_bytes()) } else { Err(Errno::PERM) };
            unkept |= u64::from(!was_set(set)?);
        }
        if self.keep.xattrs && !body.is_new() {
            unkept |= u64::from(!self.remove_surplus(body, entry)?);
        }
        lock(&self.unkept).xattrs += unkept;
        Ok(())
    }

    /// Removes what the source does not have, as rsync does, of the namespaces that are set; tells whether all of it went.
    fn remove_surplus(&self, body: Body<'_>, entry: &Entry) -> Result<bool, Errno> {
        let mut list = vec![0; LONGEST];
        let length = match listxattr(body.path(), &mut list[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => return Ok(true),
            Err(error) => return Err(error),
        };
        let kept = |name: &[u8]| match self.own && self.root {
            true => !name.starts_with(b"system."),
            false => name.starts_with(b"user."),
        };
        let has = |name: &[u8]| entry.xattrs.iter().any(|x| x.name.as_bytes() == name);
        let mut all = true;
        for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty() && kept(name) && !has(name))
        {
            match removexattr(body.path(), name) {
                Err(Errno::NODATA) => {}
                removed => all &= was_set(removed)?,
            }
        }
        Ok(all)
    }

    fn set_acls(&self, body: Body<'_>, entry: &Entry) -> Result<(), Errno> {
        if !self.keep.acls {
            return Ok(());
        }
        let mut unkept = 0;
        let names = if matches!(body, Body::Directory(..)) { &[ACCESS, DEFAULT][..] } else { &[ACCESS] };
        for name in names {
            let acl = entry.xattrs.iter().find(|x| x.name.as_bytes() == name.as_bytes());
            // Of another user's even what changes nothing is not permitted.
            if body.has_xattr(name.as_bytes(), acl.map(|acl| acl.value.as_bytes()))? {
                continue;
            }
            let set = match acl {
                Some(acl) => body.set_xattr(name.as_bytes(), acl.value.as_bytes()),
                // One that it took over from its directory.
                None => removexattr(body.path(), *name),
            };
            unkept |= u64::from(!was_set(set)?);
        }
        lock(&self.unkept).acls += unkept;
        Ok(())
    }

    fn set_mode(&self, body: Body<'_>, entry: &Entry, given: bool) -> Result<(), Errno> {
        let now = body.stat()?.st_mode & 0o7777;
        let directory = matches!(body, Body::Directory(..));
        // A group that a directory passes on came from the one above it.
        let inherited = if directory { now & 0o7000 } else { 0 };
        let wanted = match (self.keep.modes, directory) {
            (false, _) if !body.is_new() => return Ok(()),
            // The kernel took the umask from it when it was made.
            (false, _) => now & 0o777 & entry.mode | inherited,
            (true, true) if self.own => entry.mode & 0o3777,
            (true, true) => entry.mode & 0o1777 | inherited & 0o2000,
            (true, false) if self.own && self.root && given => entry.mode,
            (true, false) => entry.mode & 0o1777,
        };
        if wanted == now { Ok(()) } else { body.chmod(Mode::from_raw_mode(wanted)) }
    }
}

/// Whether it was set; what this user may not set, and what the file system does not know, is no error. EINVAL: a number in a
/// list that this user namespace does not have (acl(5), user_namespaces(7)), or a value that this kernel knows otherwise.
fn was_set(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Body<'_> {
    fn is_new(self) -> bool {
        matches!(self, Body::File(_) | Body::Directory(_, true))
    }

    fn stat(self) -> Result<Stat, Errno> {
        match self {
            Body::File(file) => fstat(file),
            Body::Directory(path, _) | Body::There(path) => fstat(path),
        }
    }

    /// It by a path, for calls that take no descriptor of a path.
    fn path(self) -> String {
        let descriptor = match self {
            Body::File(file) => file.as_raw_fd(),
            Body::Directory(path, _) | Body::There(path) => path.as_raw_fd(),
        };
        format!("/proc/self/fd/{descriptor}")
    }

    /// Does it by its descriptor's path where `.` is denied: a directory that may not be searched has none for its owner.
    fn by_itself(self, done: Result<(), Errno>, again: impl FnOnce(String) -> Result<(), Errno>) -> Result<(), Errno> {
        if done == Err(Errno::ACCESS) { again(self.path()) } else { done }
    }

    fn chown(self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        match self {
            Body::File(file) => fchown(file, uid, gid),
            Body::Directory(path, _) | Body::There(path) => chownat(path, "", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn chmod(self, mode: Mode) -> Result<(), Errno> {
        match self {
            Body::File(file) => fchmod(file, mode),
            Body::Directory(path, _) => self.by_itself(chmodat(path, ".", mode, AtFlags::empty()), |path| {
                chmodat(CWD, path, mode, AtFlags::empty())
            }),
            Body::There(_) => chmodat(CWD, self.path(), mode, AtFlags::empty()),
        }
    }

    /// Whether it has this and nothing else under that name; or, with no value, nothing.
    fn has_xattr(self, name: &[u8], value: Option<&[u8]>) -> Result<bool, Errno> {
        let mut there = vec![0; value.map_or(0, <[u8]>::len) + 1];
        match getxattr(self.path(), name, &mut there[..]) {
            Ok(length) => Ok(value == Some(&there[..length])),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(value.is_none()),
            // A longer one, or one that this user may not read.
            Err(Errno::RANGE | Errno::PERM | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Body::File(file) => fsetxattr(file, name, value, XattrFlags::empty()),
            Body::Directory(..) | Body::There(_) => setxattr(self.path(), name, value, XattrFlags::empty()),
        }
    }

    /// Sets its times; of a file that is there they are right.
    fn touch(self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Body::File(file) => futimens(file, times),
            Body::Directory(path, _) => self.by_itself(utimensat(path, ".", times, AtFlags::empty()), |path| {
                utimensat(CWD, path, times, AtFlags::empty())
            }),
            Body::There(_) => Ok(()),
        }
    }

    fn set_times(self, entry: &Entry) -> Result<(), Errno> {
        match (self, self.touch(&times(entry))) {
            // Somebody else's, as /tmp is.
            (Body::Directory(_, false), Err(Errno::PERM | Errno::ACCESS)) => Ok(()),
            (_, set) => set,
        }
    }
}
