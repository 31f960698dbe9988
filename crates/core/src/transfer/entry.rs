//! One thing of a tree, as the sender lists it: its name, what it is, and what is to be kept of it.
//!
//! A list from a peer is checked where it is read: what has become an [`Entry`] has a name that stays below the
//! destination, and lengths that are bounded; [`super::batch`] makes messages of them. Where the holes of a
//! sparse file are is no part of an entry: the list would wait for it.

use serde::{Deserialize, Serialize};

use super::blocks::MAX_FILE;
use super::raw::Raw;
use crate::units::Bytes;

/// Longest name, and longest target of a symbolic link: PATH_MAX of Linux, `limits.h`.
pub const MAX_NAME: usize = 4096;
/// Longest component of a name: NAME_MAX.
pub const MAX_COMPONENT: usize = 255;
/// Most bytes of extended attributes one entry may have, names and values; a frame holds them in any form.
pub const MAX_XATTR_BYTES: usize = 1 << 20;
/// Most extended attributes of an entry.
pub const MAX_XATTRS: usize = 1024;
/// Longest name of a user or group: LOGIN_NAME_MAX.
const MAX_OWNER: usize = 256;
/// The JSON of an entry but for its names, target and attributes: keys, and numbers at their longest.
const ENTRY_OVERHEAD: usize = 400;

/// Why something cannot be an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// What a name may not be, and the name.
    #[error("name '{name}': {why}")]
    Name {
        /// Its beginning, if it is long.
        name: Raw,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file longer than offsets reach.
    #[error("length {} B: at most {} B can be addressed", .0.0, MAX_FILE.0)]
    Length(Bytes),
    /// Empty, too long, or with a NUL inside.
    #[error("target of a symbolic link: {0} bytes, from 1 to {max} without NUL allowed", max = MAX_NAME - 1)]
    Target(usize),
    /// More than permission bits.
    #[error("mode {0:#o}: only permission bits, up to 0o7777")]
    Mode(u32),
    /// A second and more.
    #[error("{0} nanoseconds: a second has 1000000000")]
    Nanoseconds(u32),
    /// The name of a user or group.
    #[error("name of an owner: {0} bytes, at most {MAX_OWNER} allowed")]
    Owner(usize),
    /// One extended attribute.
    #[error("extended attribute '{0}': a name has 1 to 255 bytes, a value at most 64 KiB")]
    Xattr(Raw),
    /// All of them.
    #[error("{count} extended attributes of {bytes} B: at most {MAX_XATTRS} of {MAX_XATTR_BYTES} B allowed")]
    Xattrs {
        /// How many.
        count: usize,
        /// Names and values.
        bytes: usize,
    },
}

/// A path below the root of a transfer, as bytes: components between slashes, none of them empty, `.` or `..`. The root
/// itself is `.`, which only a directory may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Name(Raw);

impl Name {
    /// Checks a name.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, EntryError> {
        let bytes = bytes.into();
        let why = match bytes.as_slice() {
            b"." => None,
            [] => Some("empty"),
            [b'/', ..] => Some("absolute"),
            long if long.len() > MAX_NAME => Some("longer than 4096 bytes"),
            inner if inner.contains(&0) => Some("contains NUL"),
            inner => inner.split(|byte| *byte == b'/').find_map(wrong_component),
        };
        match why {
            None => Ok(Name(Raw(bytes))),
            Some(why) => Err(EntryError::Name { name: Raw::from(&bytes[..bytes.len().min(64)]), why }),
        }
    }

    /// Whether it is the root of the transfer.
    pub fn is_root(&self) -> bool {
        self.as_bytes() == b"."
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Its components in order.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.as_bytes().split(|byte| *byte == b'/')
    }
}

fn wrong_component(component: &[u8]) -> Option<&'static str> {
    match component {
        [] => Some("has an empty component"),
        b"." => Some("has a component '.'"),
        b".." => Some("has a component '..'"),
        long if long.len() > MAX_COMPONENT => Some("has a component longer than 255 bytes"),
        _ => None,
    }
}

impl TryFrom<Raw> for Name {
    type Error = EntryError;

    fn try_from(raw: Raw) -> Result<Self, EntryError> {
        Name::new(raw.0)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file; `length` when it was listed.
    File {
        /// Bytes.
        length: Bytes,
    },
    /// A symbolic link.
    Symlink {
        /// What it holds; any bytes, and may lead anywhere.
        target: Raw,
    },
    /// Another name of a file that was listed before.
    HardLink {
        /// The number of that entry.
        to: u32,
    },
}

/// When the content was changed; in JSON `[seconds, nanoseconds]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "(i64, u32)")]
pub struct Modified(i64, u32);

impl Modified {
    /// Since 1970, as `st_mtim` has it.
    pub fn new(seconds: i64, nanoseconds: u32) -> Result<Self, EntryError> {
        if nanoseconds >= 1_000_000_000 {
            return Err(EntryError::Nanoseconds(nanoseconds));
        }
        Ok(Modified(seconds, nanoseconds))
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.0
    }

    /// Nanoseconds of that second.
    pub fn nanoseconds(&self) -> u32 {
        self.1
    }

    /// Whether this is what a file system may have made of `given`: many keep whole seconds, microseconds or units of
    /// 100 ns, and cut off the rest.
    pub fn keeps(&self, given: Modified) -> bool {
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

/// Who owns it at the sender; names where the sender knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Name of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Raw>,
    /// Name of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Raw>,
}

/// One extended attribute; an ACL is `system.posix_acl_access` or `system.posix_acl_default`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// With its namespace.
    pub name: Raw,
    /// Any bytes.
    pub value: Raw,
}

/// One thing of a tree. A field set after [`Entry::new`] is held to its bounds by [`super::batch::Batch::push`] and by
/// every reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Where it stands below the root of the transfer.
    pub name: Name,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// When its content was changed.
    pub modified: Modified,
    /// Who owns it, where that is to be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Extended attributes, where those are to be kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
    /// A file that hard links may follow ([`super::linked`]).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub linked: bool,
}

impl Entry {
    /// An entry without owner and attributes.
    pub fn new(name: Name, kind: Kind, mode: u32, modified: Modified) -> Result<Self, EntryError> {
        let entry = Entry { name, kind, mode, modified, owner: None, xattrs: Vec::new(), linked: false };
        entry.check()?;
        Ok(entry)
    }

    /// Whether every field is within its bounds.
    pub fn check(&self) -> Result<(), EntryError> {
        match &self.kind {
            Kind::File { length } if *length > MAX_FILE => return Err(EntryError::Length(*length)),
            Kind::Symlink { target: Raw(target) }
                if target.is_empty() || target.len() >= MAX_NAME || target.contains(&0) =>
            {
                return Err(EntryError::Target(target.len()));
            }
            kind if self.name.is_root() && *kind != Kind::Directory => {
                return Err(EntryError::Name { name: ".".into(), why: "only a directory can be the root" });
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

    /// At least as many bytes as its JSON takes.
    pub fn json_bound(&self) -> usize {
        let target = match &self.kind {
            Kind::Symlink { target } => target.json_bound(),
            _ => 0,
        };
        let owner = self.owner.iter().flat_map(|owner| [&owner.user, &owner.group]).flatten();
        let xattrs = self.xattrs.iter().map(|x| x.name.json_bound() + x.value.json_bound() + 32);
        ENTRY_OVERHEAD
            + self.name.0.json_bound()
            + target
            + owner.map(Raw::json_bound).sum::<usize>()
            + xattrs.sum::<usize>()
    }
}

/// XATTR_NAME_MAX and XATTR_SIZE_MAX of `linux/limits.h`, and what a frame holds.
fn check_xattrs(xattrs: &[Xattr]) -> Result<(), EntryError> {
    let name_fits = |name: &Raw| (1..=255).contains(&name.0.len()) && !name.0.contains(&0);
    if let Some(wrong) = xattrs.iter().find(|x| !name_fits(&x.name) || x.value.0.len() > 65_536) {
        let name = wrong.name.as_bytes();
        return Err(EntryError::Xattr(Raw::from(&name[..name.len().min(64)])));
    }
    let bytes = xattrs.iter().map(|x| x.name.0.len() + x.value.0.len()).sum();
    if xattrs.len() > MAX_XATTRS || bytes > MAX_XATTR_BYTES {
        return Err(EntryError::Xattrs { count: xattrs.len(), bytes });
    }
    Ok(())
}

/// As it comes from a peer.
#[derive(Deserialize)]
struct Form {
    name: Name,
    kind: Kind,
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
        let Form { name, kind, mode, modified, owner, xattrs, linked } = Form::deserialize(deserializer)?;
        let entry = Entry { name, kind, mode, modified, owner, xattrs, linked };
        entry.check().map_err(serde::de::Error::custom)?;
        Ok(entry)
    }
}

#[cfg(test)]
mod tests;
