//! The destination tree: the directory that a copy writes below, and the location of each entry in it.
//!
//! Names come from a peer, and the directories on the path to a name may change during the copy. So the kernel resolves
//! a directory below the top directory of the copy (`openat2`, `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`). No
//! symbolic link is followed there, whether it existed before or came with the copy. All other operations use the last
//! component of a name in a directory that is held open. Some directories stay open, because entries of one directory
//! arrive together.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use lfn_core::transfer::byte_string::ByteString;
use lfn_core::transfer::entry::{Modified, Name};
use lfn_core::transfer::leftover::{JOURNAL, PARTIAL, REPLACED};
use lfn_core::transfer::overwrite::Existing;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{DestinationId, MAX_ANCESTORS};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatxFlags, fstat, linkat, mkdirat, openat,
    openat2, renameat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::super::base_dir::{
    BaseDir, Inode, check_file_name, file_error, inode, inode_of, open_error, or_current_dir, path_text,
};
use super::super::stream_set::lock;
use super::super::this_host;
use super::super::write_only::WriteOnlyClient;
use super::super::{ForbiddenReason, TransferError};

/// Maximum number of directories that stay open.
const MAX_CACHED_DIRECTORIES: usize = 32;

/// The directory that a copy writes below.
#[derive(Debug)]
pub(super) struct DestinationTree {
    top: Arc<OwnedFd>,
    /// The name that the single file of the copy gets instead of its own name.
    single_name: Option<OsString>,
    /// The parent and the name of the directory, if this copy created the directory.
    created: Option<(Arc<OwnedFd>, OsString)>,
    /// The client, if it is write-only.
    write_only: Option<WriteOnlyClient>,
    /// The directory is the served root of a server, so a peer must not change its attributes.
    is_served_root: bool,
    /// Device and inode of the root of a server.
    served_root: Option<Inode>,
    /// The directory does not exist, and a dry run must not create it.
    is_missing: bool,
    display_path: String,
    recent_directories: Mutex<VecDeque<(Vec<u8>, Arc<OwnedFd>)>>,
}

/// A name in an open directory: the place of one entry.
#[derive(Clone, Debug)]
pub(super) struct EntryLocation {
    pub(super) directory: Arc<OwnedFd>,
    pub(super) name: OsString,
    pub(super) display_path: String,
    /// The client, if it is write-only.
    pub(super) write_only: Option<WriteOnlyClient>,
}

impl DestinationTree {
    /// Opens the destination `path`. An existing directory is used as it is. Otherwise, with one source file (`single`)
    /// and no slash at the end, `path` is the name of the file. Otherwise the directory is created, except in a dry
    /// run.
    pub(super) fn open(base: &BaseDir, path: &Path, single: bool, dry_run: bool) -> Result<Self, TransferError> {
        let (display_path, write_only) = (path_text(path), base.write_only_client());
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        let path = or_current_dir(path);
        let single = single && !path.as_os_str().as_bytes().ends_with(b"/");
        let tree = |top: OwnedFd| DestinationTree {
            top: Arc::new(top),
            single_name: None,
            created: None,
            write_only,
            is_served_root: false,
            served_root: base.root_inode(),
            is_missing: false,
            display_path: display_path.clone(),
            recent_directories: Mutex::default(),
        };
        match base.open(path, directory) {
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

    /// Converts the tree for a source that is more than one file: creates a directory of the name that a single file
    /// would get.
    pub(super) fn into_directory(self, dry_run: bool) -> Result<Self, TransferError> {
        let Some(name) = self.single_name.clone() else { return Ok(self) };
        if dry_run {
            check_creatable(&self.top, &name, &self.display_path)?;
            return Ok(DestinationTree { single_name: None, is_missing: true, ..self });
        }
        let top = Arc::new(create_directory(&self.top, &name, &self.display_path)?);
        Ok(DestinationTree {
            single_name: None,
            created: Some((self.top, name)),
            top,
            recent_directories: Mutex::default(),
            ..self
        })
    }

    /// Removes the directory again if this copy created it and it is empty.
    pub(super) fn remove_created(&self) {
        if let Some((above, name)) = &self.created {
            // `rmdir` leaves a directory with contents alone.
            let _ = unlinkat(above, name, AtFlags::REMOVEDIR);
        }
    }

    /// Returns whether the directory is missing because this is a dry run.
    pub(super) fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Returns the identity of the destination for a sender on the same host. `None` if the destination does not exist.
    pub(super) fn destination_id(&self) -> Option<DestinationId> {
        if self.is_missing {
            return None;
        }
        let stat = fstat(&self.top).ok()?;
        let existing =
            self.single_name.as_ref().and_then(|name| statat(&self.top, name, AtFlags::SYMLINK_NOFOLLOW).ok());
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
        let (mut found, mut last) = (Vec::new(), destination);
        let mut above = self.top.clone();
        while Some(last) != self.served_root && found.len() < MAX_ANCESTORS {
            let parent = openat(&above, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            let Ok(parent) = parent else { break };
            // The root is its own parent.
            let Some(inode) = inode_of(&parent).filter(|inode| *inode != last) else { break };
            found.push(inode);
            above = Arc::new(parent);
            last = inode;
        }
        found
    }

    /// Returns the name that the single file of the copy gets, if that is not its own name.
    pub(super) fn single_name(&self) -> Option<&OsStr> {
        self.single_name.as_deref()
    }

    /// Opens a directory below the top, without the cache.
    pub(super) fn open_below(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_below(&self.top, if path.is_empty() { b"." } else { path })
    }

    /// Returns whether this copy created the directory.
    pub(super) fn is_created(&self) -> bool {
        self.created.is_some()
    }

    /// Returns whether the directory is the served root of a server.
    pub(super) fn is_served_root(&self) -> bool {
        self.is_served_root
    }

    /// Returns the client, if it is write-only.
    pub(super) fn write_only(&self) -> Option<WriteOnlyClient> {
        self.write_only
    }

    /// Returns the destination as the user typed it, for messages.
    pub(super) fn display_path(&self) -> &str {
        &self.display_path
    }

    /// Returns whether the single file of the copy gets the name of the destination path.
    pub(super) fn has_single_name(&self) -> bool {
        self.single_name.is_some()
    }

    /// Returns whether no existing entry can conflict with the copy. Otherwise the sender waits for the plan before it
    /// sends.
    pub(super) fn has_no_conflicts(&self) -> bool {
        // The answer would reveal whether entries exist. In a create-only area, a copy has its own directory.
        if self.write_only.is_some_and(|write_only| write_only.keeps_partial_files) {
            return false;
        }
        match &self.single_name {
            Some(name) => [name.clone(), partial_name(name)]
                .iter()
                .all(|name| statat(&self.top, name, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)),
            None => self.is_empty().unwrap_or(false),
        }
    }

    fn is_empty(&self) -> Result<bool, Errno> {
        let directory = self.open_readable()?;
        let mut entries = rustix::fs::Dir::read_from(directory)?;
        Ok(!entries.any(|entry| entry.is_ok_and(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))))
    }

    /// Opens the top directory for reading and syncing.
    pub(super) fn open_readable(&self) -> Result<OwnedFd, Errno> {
        openat(&self.top, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens the parent of the top directory, if this copy created the top directory. `None` if the parent cannot be
    /// read.
    pub(super) fn open_readable_parent(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.is_created().then(|| openat(&self.top, "..", flags, Mode::empty()).ok()).flatten()
    }

    /// Returns the location of an entry.
    pub(super) fn locate(&self, name: &Name) -> Result<EntryLocation, TransferError> {
        self.check_name(name)?;
        if let Some(single_name) = &self.single_name {
            let (directory, name) = (self.top.clone(), single_name.clone());
            return Ok(EntryLocation {
                directory,
                name,
                display_path: self.display_path.clone(),
                write_only: self.write_only,
            });
        }
        let display_path = self.display_name(name);
        let (parent, last) = split_path(name.as_bytes());
        let directory = self.cached_directory(parent).map_err(|error| path_error(&display_path, error))?;
        let name = check_file_name(OsStr::from_bytes(last), &display_path)?;
        Ok(EntryLocation { directory, name, display_path, write_only: self.write_only })
    }

    /// Refuses names of partial files and journals. This copy writes to such files itself, and a later copy trusts
    /// their content.
    pub(super) fn check_name(&self, name: &Name) -> Result<(), TransferError> {
        let last = self.single_name.as_deref().unwrap_or_else(|| OsStr::from_bytes(split_path(name.as_bytes()).1));
        if !is_reserved_name(last) {
            return Ok(());
        }
        Err(TransferError::Forbidden { path: self.display_name(name), reason: ForbiddenReason::ReservedName })
    }

    /// Opens the directory that an entry names. The directory must exist.
    pub(super) fn open_entry(&self, name: &Name) -> Result<Arc<OwnedFd>, TransferError> {
        let path = if name.is_root() { &b""[..] } else { name.as_bytes() };
        self.cached_directory(path).map_err(|error| path_error(&self.display_name(name), error))
    }

    /// Returns the name of an entry for messages.
    pub(super) fn display_name(&self, name: &Name) -> String {
        match self.display_path.as_str() {
            _ if name.is_root() || self.single_name.is_some() => self.display_path.clone(),
            "." | "the served root" => name.to_string(),
            top => format!("{}/{name}", top.trim_end_matches('/')),
        }
    }

    fn cached_directory(&self, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        if path.is_empty() {
            return Ok(self.top.clone());
        }
        if let Some((_, directory)) = lock(&self.recent_directories).iter().find(|(known, _)| known == path) {
            return Ok(directory.clone());
        }
        let directory = Arc::new(open_below(&self.top, path)?);
        let mut recent_directories = lock(&self.recent_directories);
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

fn open_below(top: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
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

/// Returns the error for a failed path to an entry.
fn path_error(display_path: &str, error: Errno) -> TransferError {
    let path = display_path.to_owned();
    match error {
        Errno::LOOP => TransferError::Forbidden { path, reason: ForbiddenReason::LinkInPath },
        Errno::NOTDIR => TransferError::Forbidden { path, reason: ForbiddenReason::FileInPath },
        other => open_error("open the directory of", display_path, other),
    }
}

impl EntryLocation {
    /// Returns the attributes of the existing entry, without following a link.
    pub(super) fn stat(&self) -> Result<Option<Stat>, TransferError> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.error("create", error)),
        }
    }

    /// Returns whether the entry was created at `since` or later. A directory without a birth time counts as older,
    /// because each new entry in it changes its ctime.
    pub(super) fn is_newer(&self, since: Modified) -> bool {
        is_newer(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW, since)
    }

    /// Atomically renames `from`, in the same directory, to this name.
    pub(super) fn rename_from(&self, from: &OsStr, replace: bool) -> Result<(), TransferError> {
        let EntryLocation { directory, name, .. } = self;
        let renamed = match renameat_with(directory, from, directory, name, rename_flags(replace)) {
            // The file system does not support RENAME_NOREPLACE.
            Err(Errno::INVAL | Errno::NOSYS) if !replace => self.rename_if_free(from),
            Err(Errno::NOSYS) => renameat(directory, from, directory, name),
            result => result,
        };
        renamed.map_err(|error| self.name_error("rename the partial file to", error))
    }

    /// Renames to a free name, on a file system without RENAME_NOREPLACE.
    fn rename_if_free(&self, from: &OsStr) -> Result<(), Errno> {
        let EntryLocation { directory, name, .. } = self;
        match linkat(directory, from, directory, name, AtFlags::empty()) {
            // Creating a hard link is atomic too.
            Ok(()) => unlinkat(directory, from, AtFlags::empty()),
            // Without hard links (exFAT in user space), check before the rename.
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

    /// Replaces another kind of entry by a new directory.
    pub(super) fn replace_with_directory(&self, mode: Mode) -> Result<(), TransferError> {
        let aside = reserved_name(&self.name, REPLACED);
        // Left by a copy that was killed before it could put the directory in its place.
        let _ = unlinkat(&self.directory, &aside, AtFlags::REMOVEDIR);
        self.exchange(&aside, mode).map_err(|error| match error {
            Errno::EXIST => TransferError::Forbidden {
                path: self.display_path.clone(),
                reason: ForbiddenReason::ReplacedEntryRemains,
            },
            error => self.error("replace", error),
        })
    }

    fn exchange(&self, aside: &OsStr, mode: Mode) -> Result<(), Errno> {
        let EntryLocation { directory, name, .. } = self;
        let unlink = || unlinkat(directory, aside, AtFlags::empty());
        mkdirat(directory, aside, mode)?;
        match renameat_with(directory, aside, directory, name, RenameFlags::EXCHANGE) {
            Ok(()) => return unlink(),
            Err(error) => {
                unlinkat(directory, aside, AtFlags::REMOVEDIR)?;
                // The file system does not support RENAME_EXCHANGE.
                if !matches!(error, Errno::INVAL | Errno::NOSYS) {
                    return Err(error);
                }
            }
        }
        // The file system may support only the plain rename.
        renameat(directory, name, directory, aside)?;
        match mkdirat(directory, name, mode) {
            Ok(()) => unlink(),
            Err(error) => renameat(directory, aside, directory, name).and(Err(error)),
        }
    }

    /// Removes the entry that this directory replaced, if a copy was killed before it could remove the entry.
    pub(super) fn remove_replaced(&self) {
        let _ = unlinkat(&self.directory, reserved_name(&self.name, REPLACED), AtFlags::empty());
    }

    /// Removes the journal of a complete file.
    pub(super) fn remove_journal(&self) {
        let _ = unlinkat(&self.directory, journal_name(&self.name), AtFlags::empty());
    }

    /// Creates an object that needs a name from the start: under this name if it is free, otherwise under the partial
    /// name with a rename afterwards.
    pub(super) fn create(
        &self,
        replace: bool,
        create_object: impl Fn(&OsStr) -> Result<(), Errno>,
    ) -> Result<(), TransferError> {
        if !replace {
            return create_object(&self.name).map_err(|error| self.name_error("create", error));
        }
        let reserved = partial_name(&self.name);
        create_object(&reserved).map_err(|error| self.name_error("create", error))?;
        let renamed = self.rename_from(&reserved, true);
        // A rename between two names of one file changes nothing (rename(2)), so remove the partial name. Any other
        // file of that name belongs to another copy.
        let inode_of = |name| statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| inode(&stat));
        if renamed.is_err() || inode_of(&reserved).is_ok_and(|inode| inode_of(&self.name) == Ok(inode)) {
            let _ = unlinkat(&self.directory, &reserved, AtFlags::empty());
        }
        renamed
    }

    /// Opens the directory for reading and syncing.
    pub(super) fn open_readable(&self) -> Result<OwnedFd, Errno> {
        openat(&self.directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Returns an error about this entry.
    pub(super) fn error(&self, doing: &'static str, error: Errno) -> TransferError {
        file_error(doing, &self.display_path, error)
    }

    fn name_error(&self, doing: &'static str, error: Errno) -> TransferError {
        match error {
            Errno::EXIST => TransferError::Exists { path: self.display_path.clone() },
            other => self.error(doing, other),
        }
    }
}

/// Returns whether the entry was created at `since` or later.
pub(super) fn is_newer(directory: impl AsFd, name: &OsStr, flags: AtFlags, since: Modified) -> bool {
    let needed = StatxFlags::BTIME | StatxFlags::CTIME | StatxFlags::TYPE;
    let Ok(stat) = statx(directory, name, flags, needed) else { return false };
    let born = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    if !born && FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory {
        return false;
    }
    let time = if born { stat.stx_btime } else { stat.stx_ctime };
    Modified::new(time.tv_sec, time.tv_nsec).is_ok_and(|time| time >= since)
}

fn rename_flags(replace: bool) -> RenameFlags {
    if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE }
}

/// Gives an open file a name, whatever its names are now.
pub(super) fn link_open_file(file: impl AsFd, directory: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    match linkat(CWD, path, &directory, name, AtFlags::SYMLINK_FOLLOW) {
        // Without /proc, only privileged users may link a file by its descriptor (linkat(2)).
        Err(Errno::NOENT) => linkat(file, "", directory, name, AtFlags::EMPTY_PATH),
        result => result,
    }
}

/// Converts the attributes of an existing entry for [`decide`](lfn_core::transfer::overwrite::decide).
pub(super) fn existing_from(stat: Option<&Stat>) -> Existing {
    let Some(stat) = stat else { return Existing::Nothing };
    match FileType::from_raw_mode(stat.st_mode) {
        // The kernel's lengths and nanoseconds are always in range.
        FileType::RegularFile => Existing::File {
            length: Bytes(stat.st_size as u64),
            modified: Modified::new(stat.st_mtime, stat.st_mtime_nsec as u32).unwrap_or_default(),
        },
        FileType::Directory => Existing::Directory,
        FileType::Symlink => Existing::Symlink,
        _ => Existing::Other,
    }
}

/// Splits a path into its directory and its last component.
pub(super) fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Returns `.NAME.lfn-partial`, the name of an incomplete file.
pub(in super::super) fn partial_name(name: &OsStr) -> OsString {
    reserved_name(name, PARTIAL)
}

/// Returns `.NAME.lfn-journal`, the name of its journal.
pub(super) fn journal_name(name: &OsStr) -> OsString {
    reserved_name(name, JOURNAL)
}

/// Returns whether the name has the form of a partial file, a journal or a replaced entry. Upper and lower case count
/// as equal.
pub(super) fn is_reserved_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let ends = |suffix: &str| {
        let end = name.len().checked_sub(suffix.len()).and_then(|at| name.get(at..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
    };
    name.starts_with(b".") && [PARTIAL, JOURNAL, REPLACED].into_iter().any(ends)
}

/// Builds a reserved name. A hash replaces a name that would make it too long (255 bytes on most file systems).
fn reserved_name(name: &OsStr, suffix: &str) -> OsString {
    let mut reserved = vec![b'.'];
    match name.len() {
        ..=240 => reserved.extend(name.as_bytes()),
        _ => reserved.extend(&blake3::hash(name.as_bytes()).to_hex().as_bytes()[..32]),
    }
    reserved.extend(suffix.as_bytes());
    OsString::from_vec(reserved)
}
