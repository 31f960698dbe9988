//! Attributes to preserve besides a file's content, and entries or attributes that were not copied.
//!
//! Both ends need these settings: the sender lists only the requested attributes, and the receiver accepts only these.
//! Modification times and permission bits are always preserved, permission bits within the receiver's umask. All other
//! attributes must be requested, each alone or all together (`--archive`).

use serde::{Deserialize, Serialize};

/// The attributes that a copy preserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preserve {
    /// Copy symbolic links as links; otherwise they are skipped.
    pub links: bool,
    /// Copy several names of one file as hard links; otherwise each becomes a separate file.
    pub hard_links: bool,
    /// Set exact permission bits regardless of the umask, also on existing directories.
    pub modes: bool,
    pub owners: bool,
    pub xattrs: bool,
    pub acls: bool,
    /// Zeros are neither sent nor allocated on disk.
    pub sparse: bool,
}

impl Preserve {
    /// All attributes, as with `--archive`.
    pub const ALL: Preserve =
        Preserve { links: true, hard_links: true, modes: true, owners: true, xattrs: true, acls: true, sparse: true };
}

/// Source entries that were not listed, or not with their own kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SkippedEntries {
    /// Symbolic links of the source.
    pub links: u64,
    /// Devices, FIFOs and sockets are never copied.
    pub special: u64,
}

/// Entries that lack a requested attribute, because the receiver lacks permission or its file system does not support
/// the attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Unpreserved {
    /// Entries with another owner or group.
    pub owners: u64,
    /// Entries without some extended attributes.
    pub xattrs: u64,
    /// Entries without their access control list.
    pub acls: u64,
}
