//! The directory that a copy writes below, and the one place in it that an entry's name stands for.
//!
//! Names come from a peer, and what stands on the way to them may change while the copy runs. So a directory is looked up
//! by the kernel below the one the copy began with (`openat2`, `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`): no symbolic
//! link is followed there, neither one that was there nor one that came with the copy. Everything else happens by the
//! last component of a name inside a directory held open. A few directories are kept open, since entries of one
//! directory come together.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use lfn_core::transfer::entry::{Modified, Name};
use lfn_core::transfer::leftover::{JOURNAL, PARTIAL, REPLACED};
use lfn_core::transfer::raw::Raw;
use lfn_core::transfer::verdict::There;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::Ground;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatxFlags, fstat, linkat, mkdirat, openat,
    openat2, renameat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::flow::lock;
use super::super::guest::Guest;
use super::super::place::{Base, file_error, inode, open_error, or_here, plain_name, show};

/// How many directories are kept open.
const RECENT: usize = 32;

/// What a copy writes below.
#[derive(Debug)]
pub(super) struct Tree {
    top: Arc<OwnedFd>,
    /// The name that the one file of the copy takes instead of its own.
    alone: Option<OsString>,
    /// Where the directory stands and what it is called there, if it is this copy's own.
    made: Option<(Arc<OwnedFd>, OsString)>,
    /// For whom it is, if that is somebody who may not look.
    guest: Option<Guest>,
    /// It is what a server serves, and not a peer's to change.
    served: bool,
    /// The directory is not there, and nothing is to be made.
    missing: bool,
    shown: String,
    recent: Mutex<VecDeque<(Vec<u8>, Arc<OwnedFd>)>>,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) directory: Arc<OwnedFd>,
    pub(super) name: OsString,
    pub(super) shown: String,
    /// Who may write there and not look, if it is such a one.
    pub(super) guest: Option<Guest>,
}

impl Tree {
    /// Opens what `path` means: a directory that is there; else, for one file (`single`), that name itself, unless a slash
    /// behind it says otherwise; else a directory that is made, except in a dry run.
    pub(super) fn open(base: &Base, path: &Path, single: bool, dry_run: bool) -> Result<Self, TransferError> {
        let (shown, guest) = (show(path), base.guest());
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        let path = or_here(path);
        let single = single && !path.as_os_str().as_bytes().ends_with(b"/");
        let tree = |top: OwnedFd| Tree {
            top: Arc::new(top),
            alone: None,
            made: None,
            guest,
            served: false,
            missing: false,
            shown: shown.clone(),
            recent: Mutex::default(),
        };
        match base.open(path, directory) {
            Ok(top) => Ok(Tree { served: !matches!(base, Base::Here) && path == Path::new("."), ..tree(top) }),
            Err(Errno::NOENT | Errno::NOTDIR) if single => {
                let name = path.file_name().ok_or_else(|| open_error("open", &shown, Errno::NOENT))?;
                let top = parent(base, path, &shown)?;
                let alone = Some(plain_name(name, &shown)?);
                Ok(Tree { alone, ..tree(top) })
            }
            Err(Errno::NOENT) if !single => {
                let name = path.file_name().ok_or_else(|| open_error("open", &shown, Errno::NOENT))?;
                let (above, name) = (parent(base, path, &shown)?, plain_name(name, &shown)?);
                if dry_run {
                    may_be_made(&above, &name, &shown)?;
                    return Ok(Tree { missing: true, ..tree(above) });
                }
                let top = make(&above, &name, &shown)?;
                Ok(Tree { made: Some((Arc::new(above), name)), ..tree(top) })
            }
            Err(error) => Err(open_error("open", &shown, error)),
        }
    }

    /// The same for a source that turns out to be more than a file: a directory is made, where a file would have taken
    /// the name.
    pub(super) fn for_directory(self, dry_run: bool) -> Result<Self, TransferError> {
        let Some(name) = self.alone.clone() else { return Ok(self) };
        if dry_run {
            may_be_made(&self.top, &name, &self.shown)?;
            return Ok(Tree { alone: None, missing: true, ..self });
        }
        let top = Arc::new(make(&self.top, &name, &self.shown)?);
        Ok(Tree { alone: None, made: Some((self.top, name)), top, recent: Mutex::default(), ..self })
    }

    /// Removes the directory again, if it was made for nothing.
    pub(super) fn unmake(&self) {
        if let Some((above, name)) = &self.made {
            // What holds something stays.
            let _ = unlinkat(above, name, AtFlags::REMOVEDIR);
        }
    }

    /// Whether it would be made, if this were no dry run.
    pub(super) fn is_missing(&self) -> bool {
        self.missing
    }

    /// What it is to a sender on this host; nothing, where it is not there.
    pub(super) fn ground(&self) -> Option<Ground> {
        if self.missing {
            return None;
        }
        let stat = fstat(&self.top).ok()?;
        let there = self.alone.as_ref().and_then(|name| statat(&self.top, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        let file = there.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Some(Ground {
            directory: inode(&stat),
            alone: self.alone.as_ref().map(|name| Raw::from(name.as_bytes())),
            file: file.as_ref().map(inode),
        })
    }

    /// What the one file of the copy is called there, if not by its own name.
    pub(super) fn alone(&self) -> Option<&OsStr> {
        self.alone.as_deref()
    }

    /// A directory below it, opened anew.
    pub(super) fn beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        beneath(&self.top, if path.is_empty() { b"." } else { path })
    }

    /// Whether the directory was made for this copy.
    pub(super) fn is_made(&self) -> bool {
        self.made.is_some()
    }

    /// Whether it is the directory that a server serves.
    pub(super) fn is_served_root(&self) -> bool {
        self.served
    }

    /// Whoever writes there and may not look, if it is such a one.
    pub(super) fn guest(&self) -> Option<Guest> {
        self.guest
    }

    /// What the destination is called.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether the one file of the copy takes the name of the destination.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// Whether nothing can stand in the way: what has to be looked at is said to the sender before it sends.
    pub(super) fn is_fresh(&self) -> bool {
        // Whether it is tells what is there; in a directory of their own it is.
        if self.guest.is_some_and(|guest| guest.resumes) {
            return false;
        }
        match &self.alone {
            Some(name) => [name.clone(), partial_name(name)]
                .iter()
                .all(|name| statat(&self.top, name, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)),
            None => self.is_empty().unwrap_or(false),
        }
    }

    fn is_empty(&self) -> Result<bool, Errno> {
        let directory = self.readable()?;
        let mut entries = rustix::fs::Dir::read_from(directory)?;
        Ok(!entries.any(|entry| entry.is_ok_and(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))))
    }

    /// The top, open in a way that can be read and synced.
    pub(super) fn readable(&self) -> Result<OwnedFd, Errno> {
        openat(&self.top, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// The directory that the top stands in, if the top was made for this copy; none if it may not be read.
    pub(super) fn readable_above(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.is_made().then(|| openat(&self.top, "..", flags, Mode::empty()).ok()).flatten()
    }

    /// The place of an entry.
    pub(super) fn place(&self, name: &Name) -> Result<Place, TransferError> {
        self.may_be_given(name)?;
        if let Some(alone) = &self.alone {
            let (directory, name) = (self.top.clone(), alone.clone());
            return Ok(Place { directory, name, shown: self.shown.clone(), guest: self.guest });
        }
        let shown = self.show(name);
        let (parent, last) = split(name.as_bytes());
        let directory = self.directory(parent).map_err(|error| way_error(&shown, error))?;
        let name = plain_name(OsStr::from_bytes(last), &shown)?;
        Ok(Place { directory, name, shown, guest: self.guest })
    }

    /// Names of partial files and journals are not to be given: this copy writes to them, and a later one believes what
    /// stands in them.
    pub(super) fn may_be_given(&self, name: &Name) -> Result<(), TransferError> {
        let last = self.alone.as_deref().unwrap_or_else(|| OsStr::from_bytes(split(name.as_bytes()).1));
        if !is_beside(last) {
            return Ok(());
        }
        Err(TransferError::Forbidden { path: self.show(name), why: "the name is kept for incomplete files" })
    }

    /// The directory that an entry is, once it is there.
    pub(super) fn inside(&self, name: &Name) -> Result<Arc<OwnedFd>, TransferError> {
        let path = if name.is_root() { &b""[..] } else { name.as_bytes() };
        self.directory(path).map_err(|error| way_error(&self.show(name), error))
    }

    /// What an entry is called in messages.
    pub(super) fn show(&self, name: &Name) -> String {
        match self.shown.as_str() {
            _ if name.is_root() || self.alone.is_some() => self.shown.clone(),
            "." | "the served root" => name.to_string(),
            top => format!("{}/{name}", top.trim_end_matches('/')),
        }
    }

    fn directory(&self, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        if path.is_empty() {
            return Ok(self.top.clone());
        }
        if let Some((_, directory)) = lock(&self.recent).iter().find(|(known, _)| known == path) {
            return Ok(directory.clone());
        }
        let directory = Arc::new(beneath(&self.top, path)?);
        let mut recent = lock(&self.recent);
        recent.truncate(RECENT - 1);
        recent.push_front((path.to_vec(), directory.clone()));
        Ok(directory)
    }
}

fn parent(base: &Base, path: &Path, shown: &str) -> Result<OwnedFd, TransferError> {
    let parent = or_here(path.parent().unwrap_or(Path::new("")));
    base.open(parent, OFlags::PATH | OFlags::DIRECTORY).map_err(|e| open_error("create", shown, e))
}

/// Makes a directory, as rsync does for a tree; those on the way to it must be there.
fn make(parent: &OwnedFd, name: &OsStr, shown: &str) -> Result<OwnedFd, TransferError> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(file_error("create", shown, error)),
    }
    open_made(parent, name).map_err(|e| open_error("open", shown, e))
}

/// Whether it would be, as far as that can be seen: what is no directory stands in the way.
fn may_be_made(parent: &OwnedFd, name: &OsStr, shown: &str) -> Result<(), TransferError> {
    match open_made(parent, name) {
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(open_error("open", shown, error)),
    }
}

fn open_made(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn beneath(top: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: something was renamed meanwhile, and the kernel could not be sure (openat2(2)).
    for _ in 0..16 {
        match openat2(top, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// An error on the way to an entry.
fn way_error(shown: &str, error: Errno) -> TransferError {
    let path = shown.to_owned();
    match error {
        Errno::LOOP => TransferError::Forbidden { path, why: "a symbolic link stands on the way to it" },
        Errno::NOTDIR => {
            TransferError::Forbidden { path, why: "something that is no directory stands on the way to it" }
        }
        other => open_error("open the directory of", shown, other),
    }
}

impl Place {
    /// What stands there; no link is followed.
    pub(super) fn stat(&self) -> Result<Option<Stat>, TransferError> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.error("create", error)),
        }
    }

    /// Whether what stands there came to be at `since` or after it. A directory whose file system does not tell its birth
    /// passes for older: it changes with all that is made in it.
    pub(super) fn is_newer(&self, since: Modified) -> bool {
        is_newer(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW, since)
    }

    /// Gives what stands beside it under `from` this name, all at once.
    pub(super) fn rename(&self, from: &OsStr, replace: bool) -> Result<(), TransferError> {
        let Place { directory, name, .. } = self;
        let renamed = match renameat_with(directory, from, directory, name, flags(replace)) {
            // File systems without RENAME_NOREPLACE.
            Err(Errno::INVAL | Errno::NOSYS) if !replace => self.rename_if_free(from),
            Err(Errno::NOSYS) => renameat(directory, from, directory, name),
            result => result,
        };
        renamed.map_err(|error| self.taken("rename the partial file to", error))
    }

    /// The same where nothing stands under this name, on a file system that cannot ask for that.
    fn rename_if_free(&self, from: &OsStr) -> Result<(), Errno> {
        let Place { directory, name, .. } = self;
        match linkat(directory, from, directory, name, AtFlags::empty()) {
            // A hard link is as atomic.
            Ok(()) => unlinkat(directory, from, AtFlags::empty()),
            // Without those (exFAT in user space) it is looked at before.
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => {
                match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => Err(Errno::EXIST),
                    Err(Errno::NOENT) => renameat(directory, from, directory, name),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a directory in the place of something else, which goes.
    pub(super) fn make_directory(&self, mode: Mode) -> Result<(), TransferError> {
        let aside = beside(&self.name, REPLACED);
        // One that a copy was killed before it could put it in its place.
        let _ = unlinkat(&self.directory, &aside, AtFlags::REMOVEDIR);
        self.exchange(&aside, mode).map_err(|error| match error {
            Errno::EXIST => TransferError::Forbidden {
                path: self.shown.clone(),
                why: "what an earlier copy put aside for a directory stands beside it: `lfn copy --clean` tells its name",
            },
            error => self.error("replace", error),
        })
    }

    fn exchange(&self, aside: &OsStr, mode: Mode) -> Result<(), Errno> {
        let Place { directory, name, .. } = self;
        let unlink = || unlinkat(directory, aside, AtFlags::empty());
        mkdirat(directory, aside, mode)?;
        match renameat_with(directory, aside, directory, name, RenameFlags::EXCHANGE) {
            Ok(()) => return unlink(),
            Err(error) => {
                unlinkat(directory, aside, AtFlags::REMOVEDIR)?;
                // File systems without RENAME_EXCHANGE.
                if !matches!(error, Errno::INVAL | Errno::NOSYS) {
                    return Err(error);
                }
            }
        }
        // They may know no other way to rename but the plain one.
        renameat(directory, name, directory, aside)?;
        match mkdirat(directory, name, mode) {
            Ok(()) => unlink(),
            Err(error) => renameat(directory, aside, directory, name).and(Err(error)),
        }
    }

    /// Removes what this directory took the place of, if a copy was killed before it could.
    pub(super) fn forget_replaced(&self) {
        let _ = unlinkat(&self.directory, beside(&self.name, REPLACED), AtFlags::empty());
    }

    /// Removes the journal of a file that is whole.
    pub(super) fn forget_journal(&self) {
        let _ = unlinkat(&self.directory, journal_name(&self.name), AtFlags::empty());
    }

    /// Makes something that has a name from the start: under this one if it is free, else beside it and renamed.
    pub(super) fn make(&self, replace: bool, make: impl Fn(&OsStr) -> Result<(), Errno>) -> Result<(), TransferError> {
        if !replace {
            return make(&self.name).map_err(|error| self.taken("create", error));
        }
        let beside = partial_name(&self.name);
        make(&beside).map_err(|error| self.taken("create", error))?;
        let renamed = self.rename(&beside, true);
        // Two names of one file stay as they are (rename(2)); what else is there by now is another copy's.
        let inode_of = |name| statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| inode(&stat));
        if renamed.is_err() || inode_of(&beside).is_ok_and(|there| inode_of(&self.name) == Ok(there)) {
            let _ = unlinkat(&self.directory, &beside, AtFlags::empty());
        }
        renamed
    }

    /// Its directory, open in a way that can be synced.
    pub(super) fn readable(&self) -> Result<OwnedFd, Errno> {
        openat(&self.directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// An error of something done there.
    pub(super) fn error(&self, doing: &'static str, error: Errno) -> TransferError {
        file_error(doing, &self.shown, error)
    }

    fn taken(&self, doing: &'static str, error: Errno) -> TransferError {
        match error {
            Errno::EXIST => TransferError::Exists { path: self.shown.clone() },
            other => self.error(doing, other),
        }
    }
}

/// Whether a file came to be at `since` or after it.
pub(super) fn is_newer(directory: impl AsFd, name: &OsStr, flags: AtFlags, since: Modified) -> bool {
    let wanted = StatxFlags::BTIME | StatxFlags::CTIME | StatxFlags::TYPE;
    let Ok(stat) = statx(directory, name, flags, wanted) else { return false };
    let born = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    if !born && FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory {
        return false;
    }
    let time = if born { stat.stx_btime } else { stat.stx_ctime };
    Modified::new(time.tv_sec, time.tv_nsec).is_ok_and(|time| time >= since)
}

fn flags(replace: bool) -> RenameFlags {
    if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE }
}

/// Gives an open file a name, whatever it is called by now.
pub(super) fn link_open(file: impl AsFd, directory: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    match linkat(CWD, path, &directory, name, AtFlags::SYMLINK_FOLLOW) {
        // Without /proc only some may link a file by itself (linkat(2)).
        Err(Errno::NOENT) => linkat(file, "", directory, name, AtFlags::EMPTY_PATH),
        result => result,
    }
}

/// A file's facts as the verdict wants them.
pub(super) fn there(stat: Option<&Stat>) -> There {
    let Some(stat) = stat else { return There::Nothing };
    match FileType::from_raw_mode(stat.st_mode) {
        // Lengths and nanoseconds of the kernel are in range.
        FileType::RegularFile => There::File {
            length: Bytes(stat.st_size as u64),
            modified: Modified::new(stat.st_mtime, stat.st_mtime_nsec as u32).unwrap_or_default(),
        },
        FileType::Directory => There::Directory,
        FileType::Symlink => There::Symlink,
        _ => There::Other,
    }
}

/// The directory something stands in, and its name there.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// `.NAME.lfn-partial`.
pub(in super::super) fn partial_name(name: &OsStr) -> OsString {
    beside(name, PARTIAL)
}

/// `.NAME.lfn-journal`.
pub(super) fn journal_name(name: &OsStr) -> OsString {
    beside(name, JOURNAL)
}

/// Whether it is a name of what stands beside a file while it is incomplete, also where upper and lower case are the same.
pub(super) fn is_beside(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let ends = |suffix: &str| {
        let end = name.len().checked_sub(suffix.len()).and_then(|at| name.get(at..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
    };
    name.starts_with(b".") && [PARTIAL, JOURNAL, REPLACED].into_iter().any(ends)
}

/// A hash in the place of a name that would grow too long (255 bytes on most file systems).
fn beside(name: &OsStr, suffix: &str) -> OsString {
    let mut beside = vec![b'.'];
    match name.len() {
        ..=240 => beside.extend(name.as_bytes()),
        _ => beside.extend(&blake3::hash(name.as_bytes()).to_hex().as_bytes()[..32]),
    }
    beside.extend(suffix.as_bytes());
    OsString::from_vec(beside)
}
