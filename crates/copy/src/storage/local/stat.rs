//! Converts the attributes that the kernel reports.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::Modified;
use rustix::fs::{FileType, Stat};

use crate::base_dir::{inode, non_regular_kind};
use crate::storage::{Metadata, ObjectKind};

/// Returns the kind of an object.
pub(super) fn kind_of(stat: &Stat) -> ObjectKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => ObjectKind::File,
        FileType::Directory => ObjectKind::Directory,
        FileType::Symlink => ObjectKind::Symlink,
        _ => ObjectKind::Other(non_regular_kind(stat).unwrap_or(crate::FileKind::Unknown)),
    }
}

/// Returns the attributes of an object.
#[allow(clippy::useless_conversion, reason = "the number of names has 32 bits on some architectures")]
pub(super) fn metadata_of(stat: &Stat) -> Metadata {
    // The kernel's lengths and nanoseconds are always in range.
    let time = |seconds, nanoseconds: u32| Modified::new(seconds, nanoseconds).unwrap_or_default();
    Metadata {
        kind: kind_of(stat),
        length: Bytes(stat.st_size as u64),
        modified: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: time(stat.st_ctime, stat.st_ctime_nsec as u32),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        id: inode(stat),
        links: stat.st_nlink.into(),
    }
}
