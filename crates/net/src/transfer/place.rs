//! Where the paths of either end start, and how they are named in messages.
//!
//! A server's paths come from a peer, so the kernel confines them to the served root (`openat2`, `RESOLVE_BENEATH`)
//! and everything after that happens by name inside a directory held open; this host's own paths are ordinary. What is
//! written stands in [`super::sink`].

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::SystemTime;

use lfn_core::transfer::entry::Modified;
use lfn_sys::clock;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2};
use rustix::io::Errno;

use super::TransferError;
use super::guest::Guest;
use crate::server::written::Written;

/// Where paths start: this process's directory, or a served root that nothing leads out of.
#[derive(Debug)]
pub(crate) enum Base {
    Here,
    Root(OwnedFd),
    /// One for somebody who may write there and not look.
    Guest(OwnedFd, Guest, Option<Arc<Written>>),
}

/// Device and inode.
pub(crate) type Inode = (u64, u64);

/// Which file it is.
pub(crate) fn inode(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}

/// Which file an open one is.
pub(crate) fn inode_of(file: impl AsFd) -> Option<Inode> {
    fstat(file).ok().as_ref().map(inode)
}

impl Base {
    /// The directory a server serves.
    pub(crate) fn root(path: &Path) -> Result<Self, TransferError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A client does not learn where the root is.
        open(path, flags, Mode::empty()).map(Base::Root).map_err(|e| file_error("open", "the served directory", e))
    }

    /// The same for somebody who may not look; there is no such thing without a root.
    pub(crate) fn kept_from(self, guest: Guest, written: Option<Arc<Written>>) -> Option<Self> {
        match self {
            Base::Root(root) => Some(Base::Guest(root, guest, written)),
            Base::Here | Base::Guest(..) => None,
        }
    }

    /// Device and inode of the directory that nothing leads out of.
    pub(crate) fn top(&self) -> Option<Inode> {
        match self {
            Base::Root(root) | Base::Guest(root, ..) => inode_of(root),
            Base::Here => None,
        }
    }

    /// Whoever may write there and not look.
    pub(crate) fn guest(&self) -> Option<Guest> {
        match self {
            Base::Guest(_, guest, _) => Some(*guest),
            Base::Here | Base::Root(_) => None,
        }
    }

    /// What such a one has written there, if that is remembered.
    pub(crate) fn written(&self) -> Option<Arc<Written>> {
        match self {
            Base::Guest(.., written) => written.clone(),
            Base::Here | Base::Root(_) => None,
        }
    }

    /// Opens what is there; from a root, nothing that a link or `..` leads out to.
    pub(crate) fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let (Base::Root(root) | Base::Guest(root, ..)) = self else {
            return openat(CWD, path, flags, Mode::empty());
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // EAGAIN: something was renamed meanwhile, and the kernel could not be sure (openat2(2)).
        for _ in 0..16 {
            match openat2(root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// A path for a message; the served root itself has none.
pub(super) fn show(path: &Path) -> String {
    if path.as_os_str().is_empty() { "the served root".to_owned() } else { path.display().to_string() }
}

/// The starting directory, if the path is empty.
pub(super) fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// A name that stays in its directory.
pub(super) fn plain_name(name: &OsStr, shown: &str) -> Result<OsString, TransferError> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name && !name.as_bytes().contains(&0) => Ok(name.to_owned()),
        _ => Err(TransferError::Forbidden { path: shown.to_owned(), why: "the last part is not the name of a file" }),
    }
}

pub(super) fn only_regular(stat: &Stat, shown: &str) -> Result<(), TransferError> {
    match kind_of(stat) {
        None => Ok(()),
        Some(kind) => Err(TransferError::NotRegular { path: shown.to_owned(), kind }),
    }
}

/// What it is, if it is no regular file.
pub(crate) fn kind_of(stat: &Stat) -> Option<&'static str> {
    Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return None,
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "thing of unknown kind",
    })
}

/// An error of looking up a path.
pub(super) fn open_error(doing: &'static str, shown: &str, error: Errno) -> TransferError {
    let path = shown.to_owned();
    match error {
        Errno::NOENT => TransferError::NotFound { path },
        // openat2: the path leads out of the root.
        Errno::XDEV => TransferError::Forbidden { path, why: "leads out of the served directory" },
        Errno::NXIO => TransferError::NotRegular { path, kind: "socket" },
        other => file_error(doing, shown, other),
    }
}

pub(super) fn file_error(doing: &'static str, shown: &str, error: Errno) -> TransferError {
    TransferError::File { doing, path: shown.to_owned(), source: error.into() }
}

/// The time by this host's clock.
pub(crate) fn now() -> Modified {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Modified::new(now.as_secs() as i64, now.subsec_nanos()).unwrap_or_default()
}

/// Whether the host was started anew since then.
pub(crate) fn was_started_since(then: Modified) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let started = now.saturating_sub(clock::since_boot());
    Modified::new(started.as_secs() as i64, started.subsec_nanos()).is_ok_and(|started| started > then)
}
