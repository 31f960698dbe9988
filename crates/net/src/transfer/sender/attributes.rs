//! What is read of a file besides its bytes, where it is to be kept: owner, extended attributes, access control lists.
//!
//! Attributes are read through a descriptor that names the one thing that was listed, by way of `/proc/self/fd`: so a link
//! that takes its place meanwhile is not followed. Which attributes: all but those of the namespace `system` where root
//! reads, those of `user` otherwise, as rsync does; the two of `system` that are access control lists by their own flag.

use std::os::fd::{AsFd, AsRawFd};

use lfn_core::transfer::entry::{Entry, Xattr};
use lfn_core::transfer::keep::Keep;
use lfn_core::transfer::raw::Raw;
use rustix::fs::{Stat, getxattr, listxattr};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::origin::Unsent;
use crate::transfer::accounts::Accounts;

/// Longest list of names, and longest value: XATTR_LIST_MAX and XATTR_SIZE_MAX of `linux/limits.h`.
pub(crate) const LONGEST: usize = 65_536;

/// The attributes that are access control lists.
pub(crate) const ACCESS: &str = "system.posix_acl_access";
pub(crate) const DEFAULT: &str = "system.posix_acl_default";

/// Adds the owner to an entry, if owners are kept.
pub(super) fn add_owner(entry: &mut Entry, stat: &Stat, keep: Keep, accounts: &Accounts) {
    if keep.owners {
        entry.owner = Some(accounts.owner(stat.st_uid, stat.st_gid));
    }
}

/// Adds the attributes that are kept; `there` may be open for its path alone.
pub(super) fn add_xattrs(entry: &mut Entry, there: impl AsFd, keep: Keep) -> Result<(), Unsent> {
    let path = format!("/proc/self/fd/{}", there.as_fd().as_raw_fd());
    let failed = |error| Unsent::of("read the extended attributes", error);
    let mut list = vec![0u8; LONGEST];
    let length = match listxattr(&path, &mut list[..]) {
        Ok(length) => length,
        // A file system without them.
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let root = geteuid().is_root();
    let mut value = vec![0u8; LONGEST];
    for name in list[..length].split(|byte| *byte == 0).filter(|name| is_kept(name, keep, root)) {
        match getxattr(&path, name, &mut value[..]) {
            Ok(length) => entry.xattrs.push(Xattr { name: Raw::from(name), value: Raw::from(&value[..length]) }),
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(entry.check()?)
}

fn is_kept(name: &[u8], keep: Keep, root: bool) -> bool {
    match name {
        [] => false,
        acl if acl == ACCESS.as_bytes() || acl == DEFAULT.as_bytes() => keep.acls,
        system if system.starts_with(b"system.") => false,
        other => keep.xattrs && (root || other.starts_with(b"user.")),
    }
}
