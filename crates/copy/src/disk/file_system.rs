//! Facts of the file system of an open file or directory: its type, its device and its free space.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use lfn_base::units::Bytes;
use lfn_results::evidence::disk::{parse_file_system, parse_mount_id};
use rustix::fs::{fstat, fstatvfs, major, minor};

/// Returns the type of the file system, as `/proc/self/mountinfo` names it.
pub(super) fn type_of(file: impl AsFd) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd())).ok()?;
    parse_file_system(&fs::read_to_string("/proc/self/mountinfo").ok()?, parse_mount_id(&text)?)
}

/// Returns whether the block device rotates. A file system over a network or over several devices has none.
pub(super) fn is_rotational(file: impl AsFd) -> Option<bool> {
    let device = fstat(file).ok()?.st_dev;
    let directory = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // The queue belongs to the whole disk, above a partition.
    let files = [format!("{directory}/queue/rotational"), format!("{directory}/../queue/rotational")];
    let text = files.into_iter().find_map(|file| fs::read_to_string(file).ok())?;
    Some(text.trim() == "1")
}

/// Returns the free space for an ordinary user.
pub(super) fn free_space(file: impl AsFd) -> Option<Bytes> {
    let space = fstatvfs(file).ok()?;
    Some(Bytes(space.f_bavail.saturating_mul(space.f_frsize)))
}
