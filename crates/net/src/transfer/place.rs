//! The files at either end: the source read at any offset, the destination written under a partial name.
//!
//! A server's paths come from a peer, so the kernel confines them to the served root (`openat2`, `RESOLVE_BENEATH`)
//! and everything after that happens by name inside a directory held open; this host's own paths are ordinary. The
//! final name appears only in [`Partial::publish`]; a [`Partial`] that is dropped before leaves nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};
use std::sync::Arc;

use lfn_core::units::Bytes;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Stat, fallocate,
    flock, fstat, fstatvfs, ftruncate, linkat, open, openat, openat2, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::TransferError;

/// Where paths start: this process's directory, or a served root that nothing leads out of.
#[derive(Debug)]
pub(crate) enum Base {
    Here,
    Root(OwnedFd),
}

/// A regular file open for reading.
#[derive(Debug)]
pub(crate) struct SourceFile {
    file: File,
    shown: String,
    before: Stat,
}

/// A name that is free for a new file, or may be replaced.
#[derive(Debug)]
pub(crate) struct Destination {
    directory: OwnedFd,
    name: OsString,
    shown: String,
    force: bool,
}

/// The file while it is incomplete: `.NAME.lfn-partial`, locked.
#[derive(Debug)]
pub(crate) struct Partial {
    destination: Destination,
    name: OsString,
    file: Arc<File>,
    published: bool,
}

impl Base {
    /// The directory a server serves.
    pub(crate) fn root(path: &Path) -> Result<Self, TransferError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A client does not learn where the root is.
        open(path, flags, Mode::empty()).map(Base::Root).map_err(|e| file_error("open", "the served directory", e))
    }

    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let Base::Root(root) = self else { return openat(CWD, path, flags, Mode::empty()) };
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

impl SourceFile {
    pub(crate) fn open(base: &Base, path: &Path) -> Result<Self, TransferError> {
        let shown = show(path);
        // Not to wait for the writer of a FIFO, nor to make a terminal this process's own.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = or_here(path);
        let file = base.open(path, flags).map_err(|e| open_error("open", &shown, e))?;
        let before = fstat(&file).map_err(|e| file_error("open", &shown, e))?;
        only_regular(&before, &shown)?;
        Ok(SourceFile { file: file.into(), shown, before })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        // Never negative for a regular file.
        Bytes(self.before.st_size as u64)
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), TransferError> {
        self.file.read_exact_at(buffer, offset).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => TransferError::SourceChanged { path: self.shown.clone() },
            _ => TransferError::File { doing: "read", path: self.shown.clone(), source },
        })
    }

    /// Whether it still is what it was when it was opened.
    pub(crate) fn unchanged(&self) -> Result<(), TransferError> {
        let now = fstat(&self.file).map_err(|e| file_error("read", &self.shown, e))?;
        let facts = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if facts(&now) == facts(&self.before) {
            return Ok(());
        }
        Err(TransferError::SourceChanged { path: self.shown.clone() })
    }
}

impl Destination {
    /// Finds where a file shall stand: `path` itself, or `own_name` in it if it is a directory.
    pub(crate) fn find(base: &Base, path: &Path, own_name: Option<&OsStr>, force: bool) -> Result<Self, TransferError> {
        let shown = show(path);
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        let path = or_here(path);
        let destination = match base.open(path, directory) {
            Ok(directory) => {
                let Some(name) = own_name else { return Err(TransferError::Nameless { path: shown }) };
                let shown = path.strip_prefix(".").unwrap_or(path).join(name).display().to_string();
                Destination { directory, name: plain_name(name, &shown)?, shown, force }
            }
            Err(Errno::NOENT | Errno::NOTDIR) if !path.as_os_str().as_bytes().ends_with(b"/") => {
                let name = path.file_name().ok_or_else(|| open_error("open", &shown, Errno::NOENT))?;
                let parent = or_here(path.parent().unwrap_or(Path::new("")));
                let opened = base.open(parent, directory);
                let directory = opened.map_err(|e| open_error("create", &shown, e))?;
                Destination { directory, name: plain_name(name, &shown)?, shown, force }
            }
            Err(error) => return Err(open_error("open", &shown, error)),
        };
        destination.check_free()?;
        Ok(destination)
    }

    fn check_free(&self) -> Result<(), TransferError> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(file_error("create", &self.shown, error)),
            Ok(stat) => {
                only_regular(&stat, &self.shown)?;
                if self.force { Ok(()) } else { Err(TransferError::Exists { path: self.shown.clone() }) }
            }
        }
    }
}

impl Partial {
    /// Creates and locks the partial file, with room for `bytes`.
    pub(crate) fn create(destination: Destination, bytes: Bytes) -> Result<Self, TransferError> {
        let name = partial_name(&destination.name);
        let file = lock_partial(&destination, &name)?;
        let partial = Partial { destination, name, file: Arc::new(file.into()), published: false };
        partial.make_room(bytes)?;
        Ok(partial)
    }

    /// The file, for the streams that write it.
    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// What the destination is called, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.destination.shown
    }

    /// Makes the file durable, unless `stop` says so under its final name.
    pub(crate) fn publish(mut self, stop: impl Fn() -> bool) -> Result<(), TransferError> {
        let shown = self.destination.shown.clone();
        rustix::fs::fsync(&*self.file).map_err(|e| file_error("write", &shown, e))?;
        if stop() {
            return Err(TransferError::Interrupted);
        }
        self.rename().map_err(|error| match error {
            Errno::EXIST => TransferError::Exists { path: shown.clone() },
            other => file_error("rename the partial file to", &shown, other),
        })?;
        self.published = true;
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<(), TransferError> {
        // The name is on disk when the directory is; one that may not be read is left to the kernel.
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(directory) = openat(&self.destination.directory, ".", directory, Mode::empty()) {
            let synced = rustix::fs::fsync(&directory);
            synced.map_err(|e| file_error("write the directory of", &self.destination.shown, e))?;
        }
        Ok(())
    }

    fn rename(&self) -> Result<(), Errno> {
        let Destination { directory, name, force, .. } = &self.destination;
        if *force {
            return renameat(directory, &self.name, directory, name);
        }
        match renameat_with(directory, &self.name, directory, name, RenameFlags::NOREPLACE) {
            // File systems without RENAME_NOREPLACE: a hard link is as atomic.
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(directory, &self.name, directory, name, AtFlags::empty())?;
                unlinkat(directory, &self.name, AtFlags::empty())
            }
            result => result,
        }
    }

    /// Empties the file and reserves its length, so that a full disk fails before a byte has moved.
    fn make_room(&self, bytes: Bytes) -> Result<(), TransferError> {
        let shown = &self.destination.shown;
        let failed = |e| file_error("write", shown, e);
        ftruncate(&*self.file, 0).map_err(failed)?;
        let no_space = |available| TransferError::NoSpace { path: shown.clone(), needed: bytes, available };
        // Asked first: a tmpfs would fill itself up before it refuses.
        let available = available(&*self.file);
        if available.is_some_and(|available| available < bytes) {
            return Err(no_space(available.unwrap_or_default()));
        }
        if bytes.0 == 0 {
            return Ok(());
        }
        match fallocate(&*self.file, FallocateFlags::empty(), 0, bytes.0) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(no_space(available.unwrap_or_default())),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.published {
            // Still locked: it is this copy's own.
            let _ = unlinkat(&self.destination.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Opens the partial file and locks it; what an earlier copy left there is taken over.
fn lock_partial(destination: &Destination, name: &OsStr) -> Result<OwnedFd, TransferError> {
    let shown = &destination.shown;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Between open and lock another copy may publish or remove the file: then it is no longer the one of that name.
    for _ in 0..16 {
        let file = openat(&destination.directory, name, flags, Mode::from_raw_mode(0o666))
            .map_err(|e| file_error("create", shown, e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(TransferError::Busy { path: shown.clone() }),
            Err(error) => return Err(file_error("lock the partial file of", shown, error)),
        }
        let ours = fstat(&file).map_err(|e| file_error("create", shown, e))?;
        match statat(&destination.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) => {
                only_regular(&ours, &format!("the partial file of {shown}"))?;
                if ours.st_nlink == 1 {
                    return Ok(file);
                }
                let why = "its partial file has another name too: remove one of them";
                return Err(TransferError::Forbidden { path: shown.clone(), why });
            }
            _ => continue,
        }
    }
    Err(TransferError::Busy { path: shown.clone() })
}

/// `.NAME.lfn-partial`; a hash in the place of a name that would grow too long (255 bytes on most file systems).
fn partial_name(name: &OsStr) -> OsString {
    let mut partial = OsString::from(".");
    if name.len() <= 240 {
        partial.push(name);
    } else {
        partial.push(&blake3::hash(name.as_bytes()).to_hex()[..32]);
    }
    partial.push(".lfn-partial");
    partial
}

/// A path for a message; the served root itself has none.
fn show(path: &Path) -> String {
    if path.as_os_str().is_empty() { "the served root".to_owned() } else { path.display().to_string() }
}

/// The starting directory, if the path is empty.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// A name that stays in its directory.
fn plain_name(name: &OsStr, shown: &str) -> Result<OsString, TransferError> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name && !name.as_bytes().contains(&0) => Ok(name.to_owned()),
        _ => Err(TransferError::Forbidden { path: shown.to_owned(), why: "the last part is not the name of a file" }),
    }
}

fn only_regular(stat: &Stat, shown: &str) -> Result<(), TransferError> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "thing of unknown kind",
    };
    Err(TransferError::NotRegular { path: shown.to_owned(), kind })
}

/// What an ordinary user may still write; `None` where the file system does not say.
fn available(file: impl AsFd) -> Option<Bytes> {
    let stat = fstatvfs(file).ok()?;
    (stat.f_blocks > 0).then(|| Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// An error of looking up a path.
fn open_error(doing: &'static str, shown: &str, error: Errno) -> TransferError {
    let path = shown.to_owned();
    match error {
        Errno::NOENT => TransferError::NotFound { path },
        // openat2: the path leads out of the root.
        Errno::XDEV => TransferError::Forbidden { path, why: "leads out of the served directory" },
        Errno::NXIO => TransferError::NotRegular { path, kind: "socket" },
        other => file_error(doing, shown, other),
    }
}

fn file_error(doing: &'static str, shown: &str, error: Errno) -> TransferError {
    TransferError::File { doing, path: shown.to_owned(), source: error.into() }
}
