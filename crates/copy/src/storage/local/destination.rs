//! The destination tree: the directory that a copy writes below, and the location of each entry in it.
//!
//! Names come from a peer, and the directories on the path to a name may change during the copy. So the kernel resolves
//! a directory below the top directory of the copy (`openat2`, `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`). No
//! symbolic link is followed there, whether it existed before or came with the copy. All other operations use the last
//! component of a name in a directory that is held open. Some directories stay open, because entries of one directory
//! arrive together.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::Name;
use lfn_session::wire::copy::{DestinationId, MAX_ANCESTORS};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, statat, unlinkat};
use rustix::io::Errno;

use super::location::{EntryLocation, TopHandle, open_readable};
use super::names::{is_reserved_name, partial_name};
use super::partial_owner::PartialOwner;
use crate::base_dir::{
    BaseDir, Inode, check_file_name, file_error, inode, inode_of, open_error, or_current_dir, path_text,
};
use crate::{ForbiddenReason, TransferError, this_host};

/// Maximum number of directories that stay open.
const MAX_CACHED_DIRECTORIES: usize = 32;

/// The directory that a copy writes below.
#[derive(Debug)]
pub(super) struct DestinationTree {
    top: Arc<TopHandle>,
    /// The name that the single file of the copy gets instead of its own name.
    single_name: Option<OsString>,
    /// The parent and the name of the directory, if this copy created the directory.
    created: Option<(Arc<OwnedFd>, OsString)>,
    /// The owner of this copy's partial files, if copies of several owners share the directory.
    owner: Option<PartialOwner>,
    /// The directory is the served root of a server, so a peer must not change its attributes.
    pub(super) is_served_root: bool,
    /// Device and inode of the root of a server.
    served_root: Option<Inode>,
    /// The directory does not exist, and a dry run must not create it.
    pub(super) is_missing: bool,
    recent_directories: Mutex<VecDeque<(Vec<u8>, Arc<OwnedFd>)>>,
}

impl DestinationTree {
    /// Opens the destination `path`. An existing directory is used as it is. Otherwise, with one source file (`single`)
    /// and no slash at the end, `path` is the name of the file. Otherwise the directory is created, except in a dry
    /// run.
    pub(super) fn open(
        base: &BaseDir,
        path: &Path,
        single: bool,
        dry_run: bool,
        owner: Option<PartialOwner>,
    ) -> Result<Self, TransferError> {
        let display_path = path_text(path);
        let path = or_current_dir(path);
        let single = single && !path.as_os_str().as_bytes().ends_with(b"/");
        let tree = |top: OwnedFd| DestinationTree {
            top: Arc::new(TopHandle { directory: Arc::new(top), display_path: display_path.clone() }),
            single_name: None,
            created: None,
            owner,
            is_served_root: false,
            served_root: base.root_inode(),
            is_missing: false,
            recent_directories: Mutex::default(),
        };
        match base.open(path, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(top) => Ok(DestinationTree {
                is_served_root: !matches!(base, BaseDir::Local) && path == Path::new("."),
                ..tree(top)
            }),
            Err(Errno::NOENT | Errno::NOTDIR) if single => {
                let name = path.file_name().ok_or_else(|| open_error("open", &display_path, Errno::NOENT))?;
                let top = open_parent(base, path, &display_path)?;
                let single_name = Some(check_file_name(name, &display_path)?);
                Ok(DestinationTree { single_name, ..tree(top) })
            }
            Err(Errno::NOENT) if !single => {
                let name = path.file_name().ok_or_else(|| open_error("open", &display_path, Errno::NOENT))?;
                let (above, name) = (open_parent(base, path, &display_path)?, check_file_name(name, &display_path)?);
                if dry_run {
                    check_creatable(&above, &name, &display_path)?;
                    return Ok(DestinationTree { is_missing: true, ..tree(above) });
                }
                let top = create_directory(&above, &name, &display_path)?;
                Ok(DestinationTree { created: Some((Arc::new(above), name)), ..tree(top) })
            }
            Err(error) => Err(open_error("open", &display_path, error)),
        }
    }

    /// Creates a directory of the name that the single file would get, because the source is more than one file.
    pub(super) fn make_directory(&mut self, dry_run: bool) -> Result<(), TransferError> {
        let Some(name) = self.single_name.clone() else { return Ok(()) };
        let display_path = self.top.display_path.clone();
        if dry_run {
            check_creatable(&self.top.directory, &name, &display_path)?;
            self.is_missing = true;
        } else {
            let directory = Arc::new(create_directory(&self.top.directory, &name, &display_path)?);
            self.created = Some((self.top.directory.clone(), name));
            self.top = Arc::new(TopHandle { directory, display_path });
        }
        self.single_name = None;
        self.recent_directories.lock().clear();
        Ok(())
    }

    /// Removes the directory again if this copy created it and it is empty.
    pub(super) fn remove_created(&self) {
        if let Some((above, name)) = &self.created {
            // `rmdir` leaves a directory with contents alone.
            let _ = unlinkat(above, name, AtFlags::REMOVEDIR);
        }
    }

    /// Returns the identity of the destination for a sender on the same host. `None` if the destination does not exist.
    pub(super) fn destination_id(&self) -> Option<DestinationId> {
        if self.is_missing {
            return None;
        }
        let top = &self.top.directory;
        let stat = fstat(top).ok()?;
        let existing = self.single_name.as_ref().and_then(|name| statat(top, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        let file = existing.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Some(DestinationId {
            host: this_host::tag(),
            directory: inode(&stat),
            ancestors: self.ancestors(inode(&stat)),
            single_name: self.single_name.as_ref().map(|name| ByteString::from(name.as_bytes())),
            file: file.as_ref().map(inode),
        })
    }

    /// Returns the directories above the destination, from the bottom. Clients must not learn about the parents of a
    /// served directory, so its root is the last one.
    fn ancestors(&self, destination: Inode) -> Vec<Inode> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (mut found, mut last) = (Vec::new(), destination);
        let mut above = openat(&self.top.directory, ".", flags, Mode::empty()).ok();
        while Some(last) != self.served_root && found.len() < MAX_ANCESTORS {
            let Some(parent) = above.and_then(|inner| openat(inner, "..", flags, Mode::empty()).ok()) else { break };
            // The root is its own parent.
            let Some(inode) = inode_of(&parent).filter(|inode| *inode != last) else { break };
            found.push(inode);
            above = Some(parent);
            last = inode;
        }
        found
    }

    /// Returns the name that the single file of the copy gets, if that is not its own name.
    pub(super) fn single_name(&self) -> Option<&OsStr> {
        self.single_name.as_deref()
    }

    /// Returns whether this copy created the directory.
    pub(super) fn is_created(&self) -> bool {
        self.created.is_some()
    }

    /// Returns the top directory.
    pub(super) fn top(&self) -> &Arc<TopHandle> {
        &self.top
    }

    /// Returns whether no existing entry can conflict with the copy.
    pub(super) fn has_no_conflicts(&self) -> bool {
        match &self.single_name {
            Some(name) => [name.clone(), partial_name(name)]
                .iter()
                .all(|name| statat(&self.top.directory, name, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)),
            None => !self.is_missing && self.is_empty().unwrap_or(false),
        }
    }

    fn is_empty(&self) -> Result<bool, Errno> {
        let mut entries = rustix::fs::Dir::new(self.open_readable()?)?;
        Ok(!entries.any(|entry| entry.is_ok_and(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))))
    }

    /// Opens the top directory for reading and syncing.
    pub(super) fn open_readable(&self) -> Result<OwnedFd, Errno> {
        open_readable(&self.top.directory)
    }

    /// Opens the parent of the top directory, if this copy created the top directory. `None` if the parent cannot be
    /// read.
    pub(super) fn open_readable_parent(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.is_created().then(|| openat(&self.top.directory, "..", flags, Mode::empty()).ok()).flatten()
    }

    /// Returns the location of an entry.
    pub(super) fn locate(&self, name: &Name) -> Result<EntryLocation, TransferError> {
        self.check_name(name)?;
        let (top, owner, display_path) = (self.top.clone(), self.owner, self.display_name(name));
        if let Some(single_name) = self.single_name.as_ref().filter(|_| !name.is_root()) {
            let (directory, name) = (top.directory.clone(), single_name.clone());
            return Ok(EntryLocation { directory, name, display_path, top, owner });
        }
        let (parent, last) = name.split();
        let directory = self.cached_directory(parent).map_err(|error| top.path_error(&display_path, error))?;
        let name = check_file_name(OsStr::from_bytes(last), &display_path)?;
        Ok(EntryLocation { directory, name, display_path, top, owner })
    }

    /// Refuses names of partial files and journals. This copy writes to such files itself, and a later copy trusts
    /// their content.
    pub(super) fn check_name(&self, name: &Name) -> Result<(), TransferError> {
        let last = self.single_name.as_ref().map_or_else(|| name.split().1, |name| name.as_bytes());
        if !is_reserved_name(last) {
            return Ok(());
        }
        Err(TransferError::Forbidden { path: self.display_name(name), reason: ForbiddenReason::ReservedName })
    }

    /// Opens the directory that an entry names. The directory must exist.
    pub(super) fn open_entry(&self, name: &Name) -> Result<Arc<OwnedFd>, TransferError> {
        let path = if name.is_root() { &b""[..] } else { name.as_bytes() };
        self.cached_directory(path).map_err(|error| self.top.path_error(&self.display_name(name), error))
    }

    /// Returns the name of an entry for messages.
    pub(super) fn display_name(&self, name: &Name) -> String {
        match self.top.display_path.as_str() {
            top if name.is_root() || self.single_name.is_some() => top.to_owned(),
            "." | "the served root" => name.to_string(),
            top => format!("{}/{name}", top.trim_end_matches('/')),
        }
    }

    /// Closes the directories at or below a name, because another object gets the name.
    pub(super) fn forget_directories(&self, name: &Name) {
        let is_at_or_below = |path: &[u8]| {
            path.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.recent_directories.lock().retain(|(path, _)| !is_at_or_below(path));
    }

    fn cached_directory(&self, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        if path.is_empty() {
            return Ok(self.top.directory.clone());
        }
        if let Some((_, directory)) = self.recent_directories.lock().iter().find(|(known, _)| known == path) {
            return Ok(directory.clone());
        }
        let directory = Arc::new(open_below(&self.top.directory, path)?);
        let mut recent_directories = self.recent_directories.lock();
        recent_directories.truncate(MAX_CACHED_DIRECTORIES - 1);
        recent_directories.push_front((path.to_vec(), directory.clone()));
        Ok(directory)
    }
}

fn open_parent(base: &BaseDir, path: &Path, display_path: &str) -> Result<OwnedFd, TransferError> {
    let parent = or_current_dir(path.parent().unwrap_or(Path::new("")));
    base.open(parent, OFlags::PATH | OFlags::DIRECTORY).map_err(|e| open_error("create", display_path, e))
}

/// Creates a directory, as rsync does for a tree. Its parent must exist.
fn create_directory(parent: &OwnedFd, name: &OsStr, display_path: &str) -> Result<OwnedFd, TransferError> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(file_error("create", display_path, error)),
    }
    open_created(parent, name).map_err(|e| open_error("open", display_path, e))
}

/// Returns an error if the directory cannot be created because a file with its name exists.
fn check_creatable(parent: &OwnedFd, name: &OsStr, display_path: &str) -> Result<(), TransferError> {
    match open_created(parent, name) {
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(open_error("open", display_path, error)),
    }
}

fn open_created(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Opens a directory below `top`, without following any link.
pub(super) fn open_below(top: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: another process renamed a directory meanwhile, so the kernel could not verify the path (openat2(2)).
    for _ in 0..16 {
        match openat2(top, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}
