//! Removes a tree of any depth with a bounded number of open directories.
//!
//! The walk holds only the deepest directories open. It returns to a closed directory by `..` of the directory below
//! it, and compares the inode: a directory that was moved meanwhile leads nowhere else. No link is ever followed,
//! because each name is opened in the directory that contains it.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::attributes::AttributeWriter;
use super::names::is_reserved_name;
use super::stat::kind_of;
use crate::base_dir::{Inode, inode};
use crate::storage::{ObjectKind, Removal, RemovalVisitor};
use crate::work_meter::Activity;

/// Number of levels with open directories.
const MAX_OPEN_LEVELS: usize = 24;

/// Reason why a tree was not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemovalError {
    #[error(transparent)]
    Errno(#[from] Errno),
    /// The `..` of a directory is not the directory that the walk came from.
    #[error("a directory in it was moved meanwhile")]
    Moved,
}

/// The removal of one tree.
pub(super) struct TreeRemoval<'a> {
    worker: Worker<'a>,
    /// The directories around the current entry, the outermost first.
    levels: Vec<Level>,
}

/// Removes single entries, and reports them.
struct Worker<'a> {
    attributes: &'a AttributeWriter,
    removal: Removal<'a>,
    visitor: &'a mut dyn RemovalVisitor,
    /// Path of the current entry, relative to the top of the storage.
    path: Vec<u8>,
}

/// A directory whose contents are being removed.
struct Level {
    name: CString,
    id: Inode,
    /// `None` while the walk is far below.
    entries: Option<Dir>,
    /// Hashes of the names that stay. After the directory was opened again, the walk skips these names.
    handled: HashSet<u64>,
    has_kept_entry: bool,
    /// The mode to restore if the directory stays.
    previous_mode: Option<Mode>,
}

impl<'a> TreeRemoval<'a> {
    /// Creates the removal of the entry with this path, relative to the top of the storage.
    pub(super) fn new(
        attributes: &'a AttributeWriter,
        removal: Removal<'a>,
        visitor: &'a mut dyn RemovalVisitor,
        path: &[u8],
    ) -> Self {
        TreeRemoval { worker: Worker { attributes, removal, visitor, path: path.to_vec() }, levels: Vec::new() }
    }

    /// Removes the entry `name` in `parent` with all its contents. Returns false if an entry in it stays.
    pub(super) fn run(mut self, parent: &OwnedFd, name: &CStr) -> Result<bool, RemovalError> {
        let Some(kind) = self.worker.kind(parent.as_fd(), name)? else { return Ok(true) };
        if kind != ObjectKind::Directory {
            self.worker.remove_entry(parent.as_fd(), name, kind)?;
            return Ok(true);
        }
        self.levels.push(self.worker.open_level(parent.as_fd(), name)?);
        let removed = self.remove_levels(parent);
        // After an error or a stop, the directories that stay get their modes back.
        while let Some(level) = self.levels.pop() {
            let _ = self.open_above(&level);
            self.worker.restore_mode(&level);
        }
        removed
    }

    fn remove_levels(&mut self, parent: &OwnedFd) -> Result<bool, RemovalError> {
        let mut removed = false;
        while let Some(level) = self.levels.last_mut() {
            if self.worker.removal.meter.is_stopped() {
                return Ok(false);
            }
            match level.next_name()? {
                Some(name) => self.visit(&name)?,
                None => removed = self.finish_level(parent)?,
            }
        }
        Ok(removed)
    }

    /// Removes a file, or enters a directory.
    fn visit(&mut self, name: &CStr) -> Result<(), RemovalError> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let directory = level.directory()?;
        // Another process may have removed the entry.
        let Some(kind) = self.worker.kind(directory, name)? else { return Ok(()) };
        let path_length = self.worker.enter(name);
        if is_reserved_name(name.to_bytes()) || !self.worker.visitor.may_remove(&self.worker.path, kind) {
            level.has_kept_entry = true;
            level.handled.insert(name_hash(name));
        } else if kind == ObjectKind::Directory {
            let inner = self.worker.open_level(directory, name)?;
            self.levels.push(inner);
            if let Some(far) = self.levels.len().checked_sub(1 + MAX_OPEN_LEVELS) {
                self.levels[far].entries = None;
            }
            return Ok(());
        } else {
            self.worker.remove_entry(directory, name, kind)?;
            if self.worker.removal.dry_run {
                level.handled.insert(name_hash(name));
            }
        }
        self.worker.path.truncate(path_length);
        Ok(())
    }

    /// Removes the innermost directory if nothing in it stays. Returns whether the directory is gone.
    fn finish_level(&mut self, parent: &OwnedFd) -> Result<bool, RemovalError> {
        let Some(level) = self.levels.pop() else { return Ok(true) };
        // The mode may close the way to the directory above, so it is restored afterwards.
        let opened = self.open_above(&level);
        if level.has_kept_entry || opened.is_err() {
            self.worker.restore_mode(&level);
        }
        opened?;
        let (above, worker) = (self.levels.last_mut(), &mut self.worker);
        let directory = match &above {
            Some(above) => above.directory()?,
            None => parent.as_fd(),
        };
        if !level.has_kept_entry {
            worker.remove_entry(directory, &level.name, ObjectKind::Directory)?;
        }
        if let Some(above) = above {
            above.has_kept_entry |= level.has_kept_entry;
            if level.has_kept_entry || worker.removal.dry_run {
                above.handled.insert(name_hash(&level.name));
            }
            worker.leave(&level.name);
        }
        Ok(!level.has_kept_entry)
    }

    /// Opens the directory above `level` again, if it was closed.
    fn open_above(&mut self, level: &Level) -> Result<(), RemovalError> {
        let Some(above) = self.levels.last_mut().filter(|above| above.entries.is_none()) else { return Ok(()) };
        let opened = openat(level.directory()?, "..", DIRECTORY_FLAGS, Mode::empty())?;
        if inode(&fstat(&opened)?) != above.id {
            return Err(RemovalError::Moved);
        }
        above.entries = Some(Dir::new(opened)?);
        Ok(())
    }
}

impl Worker<'_> {
    /// Returns the kind of an entry, and `None` if there is no such entry.
    fn kind(&self, directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<ObjectKind>, Errno> {
        let stat = || statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        match self.removal.meter.measure(Activity::Disk, stat) {
            Ok(stat) => Ok(Some(kind_of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes an entry and reports it. A directory must be empty.
    fn remove_entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, kind: ObjectKind) -> Result<(), Errno> {
        if !self.removal.dry_run {
            let flags = if kind == ObjectKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            self.removal.meter.measure(Activity::Disk, || unlinkat(directory, name, flags))?;
        }
        self.visitor.removed(&self.path, kind);
        Ok(())
    }

    /// Opens a directory for its removal.
    fn open_level(&self, directory: BorrowedFd<'_>, name: &CStr) -> Result<Level, Errno> {
        let opened = openat(directory, name, DIRECTORY_FLAGS, Mode::empty())?;
        let id = inode(&fstat(&opened)?);
        let previous_mode = if self.removal.dry_run { None } else { self.attributes.add_owner_access(opened.as_fd()) };
        let entries = Some(Dir::new(opened)?);
        Ok(Level { name: name.to_owned(), id, entries, handled: HashSet::new(), has_kept_entry: false, previous_mode })
    }

    fn restore_mode(&self, level: &Level) {
        if let (Some(mode), Ok(directory)) = (level.previous_mode, level.directory()) {
            let _ = self.attributes.restore_mode(directory, mode);
        }
    }

    /// Appends a name to the path. Returns the length before.
    fn enter(&mut self, name: &CStr) -> usize {
        let length = self.path.len();
        self.path.push(b'/');
        self.path.extend_from_slice(name.to_bytes());
        length
    }

    fn leave(&mut self, name: &CStr) {
        self.path.truncate(self.path.len().saturating_sub(1 + name.count_bytes()));
    }
}

impl Level {
    fn directory(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.entries.as_ref().ok_or(Errno::BADF)?.fd()
    }

    /// Returns the next name that is not handled yet.
    fn next_name(&mut self) -> Result<Option<CString>, Errno> {
        let entries = self.entries.as_mut().ok_or(Errno::BADF)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") && !self.handled.contains(&name_hash(name)) {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }
}

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns a hash of a name. Two names with one hash can only save an entry from removal.
fn name_hash(name: &CStr) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(name.to_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}
