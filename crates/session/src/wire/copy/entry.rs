//! One entry of a directory tree, as the sender lists it: name, kind, and attributes to preserve.
//!
//! Entries from a peer are checked while they are read. An [`Entry`] always has a name below the destination and
//! bounded lengths. `lfn_copy::proto::batch` groups entries into messages. Positions of holes in sparse files are not
//! part of an entry, because finding them would delay the list.

mod weight;

use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

use super::byte_string::ByteString;
use crate::wire::copy::blocks::MAX_FILE;

/// Maximum length of a name and of a symbolic link's target: PATH_MAX of Linux, `limits.h`.
pub const MAX_NAME: usize = 4096;
/// Maximum length of a name component: NAME_MAX.
pub const MAX_COMPONENT: usize = 255;
/// Maximum bytes of one entry's extended attributes, names and values. A frame holds them in any encoding.
pub const MAX_XATTR_BYTES: usize = 1 << 20;
pub const MAX_XATTRS: usize = 1024;
/// Maximum length of a user or group name: LOGIN_NAME_MAX.
const MAX_OWNER: usize = 256;
/// Maximum JSON bytes of an entry without its names, target and attributes.
const ENTRY_OVERHEAD: usize = 400;

/// Reason why an entry is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("name '{name}': {reason}")]
    Name {
        /// At most the first 64 bytes.
        name: ByteString,
        reason: &'static str,
    },
    #[error("length {} B: at most {} B can be addressed", .0.0, MAX_FILE.0)]
    Length(Bytes),
    #[error("symbolic link target of {0} bytes: 1 to {max} bytes without NUL allowed", max = MAX_NAME - 1)]
    LinkTarget(usize),
    #[error("mode {0:#o} is out of range: at most 0o7777 allowed")]
    Mode(u32),
    #[error("{0} nanoseconds: a second has 1000000000")]
    Nanoseconds(u32),
    #[error("owner name of {0} bytes, at most {MAX_OWNER} allowed")]
    Owner(usize),
    #[error("extended attribute '{0}': a name has 1 to 255 bytes, a value at most 64 KiB")]
    Xattr(ByteString),
    #[error("{count} extended attributes of {bytes} B: at most {MAX_XATTRS} of {MAX_XATTR_BYTES} B allowed")]
    Xattrs { count: usize, bytes: usize },
}

/// A path below the root of a transfer, as bytes. Components are separated by slashes; none is empty, `.` or `..`. The
/// root itself is `.`, which only a directory may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "ByteString")]
pub struct Name(ByteString);

impl Name {
    /// Checks the bytes and creates a name.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, EntryError> {
        let bytes = bytes.into();
        let why = match bytes.as_slice() {
            b"." => None,
            [] => Some("empty"),
            [b'/', ..] => Some("absolute"),
            long if long.len() > MAX_NAME => Some("longer than 4096 bytes"),
            inner if inner.contains(&0) => Some("contains NUL"),
            inner => inner.split(|byte| *byte == b'/').find_map(component_error),
        };
        match why {
            None => Ok(Name(ByteString(bytes))),
            Some(why) => Err(EntryError::Name { name: ByteString::from(&bytes[..bytes.len().min(64)]), reason: why }),
        }
    }

    /// Reports whether this is the root of the transfer.
    pub fn is_root(&self) -> bool {
        self.as_bytes() == b"."
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Splits the name into its directory, which is empty for an entry of the root, and its last component.
    pub fn split(&self) -> (&[u8], &[u8]) {
        let bytes = self.as_bytes();
        match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (b"", bytes),
        }
    }

    /// Returns the components in order.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.as_bytes().split(|byte| *byte == b'/')
    }
}

fn component_error(component: &[u8]) -> Option<&'static str> {
    match component {
        [] => Some("has an empty component"),
        b"." => Some("has a component '.'"),
        b".." => Some("has a component '..'"),
        long if long.len() > MAX_COMPONENT => Some("has a component longer than 255 bytes"),
        _ => None,
    }
}

impl TryFrom<ByteString> for Name {
    type Error = EntryError;

    fn try_from(raw: ByteString) -> Result<Self, EntryError> {
        Name::new(raw.0)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of a list entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    Directory,
    /// A regular file, with its length at listing time.
    File {
        length: Bytes,
    },
    Symlink {
        /// Any bytes. The target may be anywhere.
        target: ByteString,
    },
    /// A further name of an earlier file.
    HardLink {
        /// Entry number of that file.
        to: u32,
    },
}

/// The modification time; in JSON `[seconds, nanoseconds]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(i64, u32)")]
pub struct Modified(i64, u32);

impl Modified {
    /// Creates a time since 1970, as in `st_mtim`.
    pub fn new(seconds: i64, nanoseconds: u32) -> Result<Self, EntryError> {
        if nanoseconds >= 1_000_000_000 {
            return Err(EntryError::Nanoseconds(nanoseconds));
        }
        Ok(Modified(seconds, nanoseconds))
    }

    /// Returns the seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.0
    }

    /// Returns the nanoseconds of the second.
    pub fn nanoseconds(&self) -> u32 {
        self.1
    }

    /// Reports whether a file system may have stored `given` as this time. Many file systems keep only whole seconds,
    /// microseconds or units of 100 ns, and truncate the rest.
    pub fn is_truncation_of(&self, given: Modified) -> bool {
        let mut grain = 1;
        while grain < 1_000_000_000 && self.1.is_multiple_of(grain * 10) {
            grain *= 10;
        }
        self.0 == given.0 && self.1 == given.1 - given.1 % grain
    }
}

impl TryFrom<(i64, u32)> for Modified {
    type Error = EntryError;

    fn try_from((seconds, nanoseconds): (i64, u32)) -> Result<Self, EntryError> {
        Modified::new(seconds, nanoseconds)
    }
}

/// The owner at the sender, with names if the sender knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ByteString>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<ByteString>,
}

/// One extended attribute. An ACL is `system.posix_acl_access` or `system.posix_acl_default`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    pub name: ByteString,
    pub value: ByteString,
}

/// One entry of a directory tree. Fields that are set after [`Entry::new`] must pass [`Entry::check`], because every
/// reader checks them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Path below the root of the transfer.
    pub name: Name,
    pub kind: EntryKind,
    pub mode: u32,
    pub modified: Modified,
    /// Present if owners are preserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Empty unless extended attributes are preserved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
    /// Later hard links may refer to this file (`lfn_copy::proto::linkable_files`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub linked: bool,
}

impl Entry {
    /// Creates an entry without owner and extended attributes.
    pub fn new(name: Name, kind: EntryKind, mode: u32, modified: Modified) -> Result<Self, EntryError> {
        let entry = Entry { name, kind, mode, modified, owner: None, xattrs: Vec::new(), linked: false };
        entry.check()?;
        Ok(entry)
    }

    /// Checks that every field is within its bounds.
    pub fn check(&self) -> Result<(), EntryError> {
        match &self.kind {
            EntryKind::File { length } if *length > MAX_FILE => return Err(EntryError::Length(*length)),
            EntryKind::Symlink { target: ByteString(target) }
                if target.is_empty() || target.len() >= MAX_NAME || target.contains(&0) =>
            {
                return Err(EntryError::LinkTarget(target.len()));
            }
            kind if self.name.is_root() && *kind != EntryKind::Directory => {
                return Err(EntryError::Name { name: ".".into(), reason: "only a directory can be the root" });
            }
            _ => {}
        }
        if self.mode > 0o7777 {
            return Err(EntryError::Mode(self.mode));
        }
        let names = self.owner.iter().flat_map(|owner| [&owner.user, &owner.group]).flatten();
        if let Some(name) = names.map(|name| name.0.len()).find(|length| *length > MAX_OWNER) {
            return Err(EntryError::Owner(name));
        }
        check_xattrs(&self.xattrs)
    }

    /// Returns an upper bound of the entry's JSON bytes.
    pub fn max_json_bytes(&self) -> usize {
        let target = match &self.kind {
            EntryKind::Symlink { target } => target.max_json_bytes(),
            _ => 0,
        };
        let owner = self.owner.iter().flat_map(|owner| [&owner.user, &owner.group]).flatten();
        let xattrs = self.xattrs.iter().map(|x| x.name.max_json_bytes() + x.value.max_json_bytes() + 32);
        ENTRY_OVERHEAD
            + self.name.0.max_json_bytes()
            + target
            + owner.map(ByteString::max_json_bytes).sum::<usize>()
            + xattrs.sum::<usize>()
    }
}

/// Checks XATTR_NAME_MAX and XATTR_SIZE_MAX of `linux/limits.h`, and the limit of a frame.
fn check_xattrs(xattrs: &[Xattr]) -> Result<(), EntryError> {
    let name_fits = |name: &ByteString| (1..=255).contains(&name.0.len()) && !name.0.contains(&0);
    if let Some(wrong) = xattrs.iter().find(|x| !name_fits(&x.name) || x.value.0.len() > 65_536) {
        let name = wrong.name.as_bytes();
        return Err(EntryError::Xattr(ByteString::from(&name[..name.len().min(64)])));
    }
    let bytes = xattrs.iter().map(|x| x.name.0.len() + x.value.0.len()).sum();
    if xattrs.len() > MAX_XATTRS || bytes > MAX_XATTR_BYTES {
        return Err(EntryError::Xattrs { count: xattrs.len(), bytes });
    }
    Ok(())
}

/// Unchecked entry from a peer.
#[derive(Deserialize)]
struct EntryForm {
    name: Name,
    kind: EntryKind,
    mode: u32,
    modified: Modified,
    owner: Option<Owner>,
    #[serde(default)]
    xattrs: Vec<Xattr>,
    #[serde(default)]
    linked: bool,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let EntryForm { name, kind, mode, modified, owner, xattrs, linked } = EntryForm::deserialize(deserializer)?;
        let entry = Entry { name, kind, mode, modified, owner, xattrs, linked };
        entry.check().map_err(serde::de::Error::custom)?;
        Ok(entry)
    }
}

/// Returns the last component of a path, which becomes the name of the copy. Returns `None` if only the contents of a
/// directory are copied: the path ends in a slash, `.` or `..` (rsync's rule).
pub fn final_name(path: &[u8]) -> Option<&[u8]> {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (!matches!(last, b"" | b"." | b"..")).then_some(last)
}

#[cfg(test)]
mod tests;
