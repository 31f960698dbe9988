//! Reads the preserved attributes of a file: owner, extended attributes and access control lists.
//!
//! Attributes are read through a descriptor of the listed file, by `/proc/self/fd`. So a link that replaces the file
//! meanwhile is not followed. As in rsync, root reads all attributes except those of the namespace `system`, and other
//! users read only those of `user`. The two access control lists in `system` have their own flag.

use std::os::fd::{AsFd, AsRawFd};

use lfn_core::transfer::byte_string::ByteString;
use lfn_core::transfer::entry::{Entry, Xattr};
use lfn_core::transfer::preserve::Preserve;
use rustix::fs::{Stat, getxattr, listxattr};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::source_file::ReadError;
use crate::transfer::accounts::Accounts;

/// Maximum length of the list of names, and of a value: XATTR_LIST_MAX and XATTR_SIZE_MAX of `linux/limits.h`.
pub(crate) const MAX_XATTR_BYTES: usize = 65_536;

/// Extended attributes that contain access control lists.
pub(crate) const ACL_ACCESS: &str = "system.posix_acl_access";
pub(crate) const ACL_DEFAULT: &str = "system.posix_acl_default";

/// Adds the owner to an entry, if owners are preserved.
pub(super) fn add_owner(entry: &mut Entry, stat: &Stat, preserve: Preserve, accounts: &Accounts) {
    if preserve.owners {
        entry.owner = Some(accounts.owner(stat.st_uid, stat.st_gid));
    }
}

/// Adds the preserved attributes to an entry. `file` may be an `O_PATH` descriptor.
pub(super) fn add_xattrs(entry: &mut Entry, file: impl AsFd, preserve: Preserve) -> Result<(), ReadError> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let failed = |error| ReadError::from_errno("read the extended attributes", error);
    let mut list = vec![0u8; MAX_XATTR_BYTES];
    let length = match listxattr(&path, &mut list[..]) {
        Ok(length) => length,
        // The file system does not support extended attributes.
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let root = geteuid().is_root();
    let mut value = vec![0u8; MAX_XATTR_BYTES];
    for name in list[..length].split(|byte| *byte == 0).filter(|name| is_preserved(name, preserve, root)) {
        match getxattr(&path, name, &mut value[..]) {
            Ok(length) => {
                entry.xattrs.push(Xattr { name: ByteString::from(name), value: ByteString::from(&value[..length]) })
            }
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(entry.check()?)
}

fn is_preserved(name: &[u8], preserve: Preserve, root: bool) -> bool {
    match name {
        [] => false,
        acl if acl == ACL_ACCESS.as_bytes() || acl == ACL_DEFAULT.as_bytes() => preserve.acls,
        system if system.starts_with(b"system.") => false,
        other => preserve.xattrs && (root || other.starts_with(b"user.")),
    }
}
