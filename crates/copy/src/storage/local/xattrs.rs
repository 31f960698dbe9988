//! Reads the preserved attributes of an object: owner, extended attributes and access control lists.
//!
//! Attributes are read through a descriptor of the object, by `/proc/self/fd`. So a link that replaces the object
//! meanwhile is not followed. As in rsync, root reads all attributes except those of the namespace `system`, and other
//! users read only those of `user`. The two access control lists in `system` have their own flag.

use std::os::fd::{AsFd, AsRawFd};

use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::{Entry, Xattr};
use lfn_session::wire::copy::preserve::Preserve;
use rustix::fs::{fstat, getxattr, listxattr};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::TransferError;
use crate::accounts::Accounts;
use crate::base_dir::file_error;

/// Maximum length of the list of names, and of a value: XATTR_LIST_MAX and XATTR_SIZE_MAX of `linux/limits.h`.
pub(super) const MAX_XATTR_BYTES: usize = 65_536;

/// Extended attributes that contain access control lists.
pub(super) const ACL_ACCESS: &str = "system.posix_acl_access";
pub(super) const ACL_DEFAULT: &str = "system.posix_acl_default";

/// Adds the preserved attributes of an object to its entry. `object` may be an `O_PATH` descriptor.
pub(super) fn read_attributes(
    entry: &mut Entry,
    object: impl AsFd,
    preserve: Preserve,
    accounts: &Accounts,
    display_path: &str,
) -> Result<(), TransferError> {
    if preserve.owners {
        let stat = fstat(&object).map_err(|error| file_error("read the attributes of", display_path, error))?;
        entry.owner = Some(accounts.owner(stat.st_uid, stat.st_gid));
    }
    if preserve.xattrs || preserve.acls {
        add_xattrs(entry, object, preserve)
            .map_err(|error| file_error("read the extended attributes of", display_path, error))?;
    }
    let checked = entry.check();
    checked.map_err(|error| TransferError::InvalidEntry { path: display_path.to_owned(), error })
}

fn add_xattrs(entry: &mut Entry, object: impl AsFd, preserve: Preserve) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", object.as_fd().as_raw_fd());
    let mut list = vec![0u8; MAX_XATTR_BYTES];
    let length = match listxattr(&path, &mut list[..]) {
        Ok(length) => length,
        // The file system does not support extended attributes.
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_root = geteuid().is_root();
    let mut value = vec![0u8; MAX_XATTR_BYTES];
    for name in list[..length].split(|byte| *byte == 0).filter(|name| is_preserved(name, preserve, is_root)) {
        match getxattr(&path, name, &mut value[..]) {
            Ok(length) => {
                entry.xattrs.push(Xattr { name: ByteString::from(name), value: ByteString::from(&value[..length]) })
            }
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_preserved(name: &[u8], preserve: Preserve, is_root: bool) -> bool {
    match name {
        [] => false,
        acl if acl == ACL_ACCESS.as_bytes() || acl == ACL_DEFAULT.as_bytes() => preserve.acls,
        system if system.starts_with(b"system.") => false,
        other => preserve.xattrs && (is_root || other.starts_with(b"user.")),
    }
}
