//! What of a file is kept besides its bytes, and what was left out or could not be kept.
//!
//! Both ends have to know: the sender lists only what is asked for, the receiver takes only what it was told to take.
//! Modification times and permission bits are kept always, the bits within the umask of whoever receives; everything else
//! has to be asked for, each by itself or all together (`--archive`).

use serde::{Deserialize, Serialize};

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keep {
    /// Symbolic links, as what they are; otherwise they are left out.
    pub links: bool,
    /// That several names are one file; otherwise each becomes a file of its own.
    pub hard_links: bool,
    /// Permission bits as they are, whatever the umask, also of directories that are there already.
    pub modes: bool,
    /// User and group.
    pub owners: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Access control lists.
    pub acls: bool,
    /// Holes: zeros are neither sent nor given room on the disk.
    pub sparse: bool,
}

impl Keep {
    /// Everything: `--archive`.
    pub const ALL: Keep =
        Keep { links: true, hard_links: true, modes: true, owners: true, xattrs: true, acls: true, sparse: true };
}

/// What of the sources was not listed, or not as what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// Symbolic links.
    pub links: u64,
    /// Devices, FIFOs and sockets, which are never copied.
    pub special: u64,
}

/// Entries that are there without something they were to have, because whoever received them may not give it to them,
/// or their file system has no place for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unkept {
    /// User or group.
    pub owners: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Access control lists.
    pub acls: u64,
}
