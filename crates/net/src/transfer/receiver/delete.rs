//! Deletion of entries that the source does not have (`--delete`): found while the list arrives, deleted after the
//! copy.
//!
//! The list names a directory before its contents, and its contents before the entries that follow. So only the names
//! in the directories around the current entry are kept, 8 bytes for each. When the list leaves a directory, the names
//! at the destination that were not listed go to a spool, which is written to disk when it grows long. A name is
//! compared by a hash. If two hashes collide, an entry stays that could be deleted.
//!
//! If an entry of the source could not be listed or sent, nothing is deleted, as with rsync's `--delete-after`: an
//! entry that is missing from the list may still exist at the source. Nothing is deleted either if the spool is
//! incomplete. Partial files and journals belong to other copies and stay.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use lfn_core::transfer::entry::{Entry, EntryKind, Name};
use lfn_core::transfer::filter::Decision;
use lfn_core::wire::copy::{EntryAction, EntryEvent, ReportedKind};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::super::base_dir::inode;
use super::super::{ForbiddenReason, TransferError};
use super::Receiver;
use super::case_folding::{FoldCollisions, accepts_other_spelling, fold_name};
use super::tree::{DestinationTree, EntryLocation, is_reserved_name, split_path};

/// Bytes of the spool that stay in memory before the rest goes to disk.
const SPOOL_MEMORY: usize = 1 << 20;

/// Maximum number of names in memory, 8 bytes each: those in directories that are still being listed, and the
/// destination's own directories. With more names, nothing is deleted.
const MAX_NAMES: usize = 16 << 20;

/// Hash of a name.
pub(super) type Fingerprint = u64;

/// Returns the fingerprint of a name. A collision made on purpose can only save an entry from deletion.
pub(super) fn fingerprint(name: &[u8]) -> Fingerprint {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(name).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// Returns the fingerprint of an inode.
fn inode_fingerprint(stat: &Stat) -> Fingerprint {
    let (device, number) = inode(stat);
    fingerprint(&[device.to_ne_bytes(), number.to_ne_bytes()].concat())
}

/// Returns whether the entry has only one name. Each name of a hard-linked file is judged separately.
fn has_one_name(stat: &Stat) -> bool {
    stat.st_nlink == 1 || FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The entries to delete, and the state of the search for them.
#[derive(Debug)]
pub(super) struct Deletions {
    levels: Vec<DirectoryNames>,
    /// Names from sources that were listed before the destination's own directory.
    early_names: Vec<Fingerprint>,
    /// Number of names in memory, and its maximum.
    name_count: usize,
    max_names: usize,
    /// The destination's own directories that the list has left. Only these may appear again, from another source.
    finished: HashSet<Fingerprint>,
    /// The reason to delete nothing, with the directory that caused it.
    aborted: Option<(Name, TransferError)>,
    found: PathSpool,
}

/// A directory with an unfinished list of names.
#[derive(Debug)]
struct DirectoryNames {
    name: Name,
    names: Vec<Fingerprint>,
    /// Case-folded names, where they differ from the listed ones.
    folded: Vec<Fingerprint>,
    /// Inodes that existed under listed names. A file system that changes names shows these inodes under other names.
    inodes: Vec<Fingerprint>,
}

impl DirectoryNames {
    /// Returns whether this name is another name of an inode that a listed name had.
    fn has_inode(&self, directory: &OwnedFd, name: &CStr) -> bool {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| has_one_name(&stat) && self.inodes.binary_search(&inode_fingerprint(&stat)).is_ok())
    }

    /// Returns whether this name is another spelling of a listed name, on a file system that treats both as equal.
    fn has_other_spelling(&self, directory: &OwnedFd, name: &[u8], collisions: &mut Option<FoldCollisions>) -> bool {
        let folded = fingerprint(&fold_name(name));
        let is_listed = [&self.names, &self.folded].iter().any(|all| all.binary_search(&folded).is_ok());
        is_listed
            && accepts_other_spelling(directory, name)
            && !collisions.get_or_insert_with(|| FoldCollisions::of_directory(directory)).contains(folded)
    }
}

impl Default for Deletions {
    fn default() -> Self {
        Deletions {
            levels: Vec::new(),
            early_names: Vec::new(),
            name_count: 0,
            max_names: MAX_NAMES,
            finished: HashSet::new(),
            aborted: None,
            found: PathSpool::default(),
        }
    }
}

impl Deletions {
    /// Takes the next entry of the list. Searches the directories that the list leaves.
    pub(super) fn advance(&mut self, receiver: &Receiver, tree: &DestinationTree, entry: &Entry) {
        let name = entry.name.as_bytes();
        while let Some(level) = self.levels.pop_if(|level| !contains(&level.name, name)) {
            self.finish_directory(receiver, tree, level);
        }
        self.add_name(entry);
        if entry.kind != EntryKind::Directory || (entry.name.is_root() && !self.levels.is_empty()) {
            return;
        }
        if self.finished.contains(&fingerprint(relative_path(&entry.name))) {
            self.abort_forbidden(&entry.name, ForbiddenReason::DeletionFromSeveralSources);
        }
        let names = if entry.name.is_root() { std::mem::take(&mut self.early_names) } else { Vec::new() };
        self.levels.push(DirectoryNames { name: entry.name.clone(), names, folded: Vec::new(), inodes: Vec::new() });
    }

    /// Adds the name of an entry to its directory.
    fn add_name(&mut self, entry: &Entry) {
        if !self.has_room(&entry.name) {
            return;
        }
        let (parent, last) = split_path(entry.name.as_bytes());
        let names = match self.levels.last_mut() {
            Some(level) if relative_path(&level.name) == parent => {
                let folded = fold_name(last);
                if folded != last {
                    level.folded.push(fingerprint(&folded));
                    self.name_count += 1;
                }
                &mut level.names
            }
            _ if parent.is_empty() && !entry.name.is_root() => &mut self.early_names,
            _ => return,
        };
        names.push(fingerprint(last));
        self.name_count += 1;
    }

    /// Excludes the existing entry of this name from deletion, whatever spelling the file system gives the name.
    pub(super) fn exclude(&mut self, name: &Name, stat: &Stat) {
        let (parent, _) = split_path(name.as_bytes());
        let Some(at) = self.levels.iter().rposition(|level| relative_path(&level.name) == parent) else { return };
        // Before a replacement, the other names of a hard-linked file must count separately: one of them may become the
        // only one.
        if has_one_name(stat) && self.has_room(name) {
            self.levels[at].inodes.push(inode_fingerprint(stat));
            self.name_count += 1;
        }
    }

    /// Returns whether one more name fits in memory. Without the name, entries of the source could be deleted.
    fn has_room(&mut self, name: &Name) -> bool {
        if self.name_count >= self.max_names {
            self.abort_forbidden(name, ForbiddenReason::TooManyNamesToDelete);
        }
        self.name_count < self.max_names
    }

    fn abort_forbidden(&mut self, name: &Name, reason: ForbiddenReason) {
        self.abort(name, TransferError::Forbidden { path: name.to_string(), reason });
    }

    fn abort(&mut self, name: &Name, error: TransferError) {
        self.aborted.get_or_insert_with(|| (name.clone(), error));
    }

    /// Adds the path of an entry to delete in `directory`.
    fn add_path(&mut self, directory: &Name, path: &[u8], open: impl FnOnce() -> Option<File>) {
        if self.aborted.is_some() {
            return;
        }
        if let Err(source) = self.found.push(path, open) {
            let (doing, path) = ("list the files to delete in", directory.to_string());
            self.abort(directory, TransferError::File { doing, path, source });
        }
    }

    /// Deletes the entries that were found, or reports why nothing is deleted. Every entry of the list is settled now.
    pub(super) fn run(mut self, receiver: &Receiver, tree: &DestinationTree) {
        while let Some(level) = self.levels.pop() {
            self.finish_directory(receiver, tree, level);
        }
        if let Some((name, error)) = &self.aborted {
            receiver.table.report_failure(name, error);
            receiver.table.set_deletion_skipped();
        } else if receiver.table.is_source_incomplete() {
            receiver.table.set_deletion_skipped();
        } else if !receiver.is_stopped() {
            let removed =
                receiver.while_blocked_on_disk(|| self.found.for_each(|path| receiver.delete_path(tree, path)));
            if let Err(source) = removed {
                receiver.streams.fail(TransferError::File {
                    doing: "read the list of files to delete in",
                    path: tree.display_path().into(),
                    source,
                });
            }
        }
    }

    /// Searches a directory with a complete list of names.
    fn finish_directory(&mut self, receiver: &Receiver, tree: &DestinationTree, mut level: DirectoryNames) {
        let path = relative_path(&level.name);
        self.name_count -= level.names.len() + level.folded.len() + level.inodes.len();
        if !path.contains(&b'/') && self.has_room(&level.name) {
            self.name_count += usize::from(self.finished.insert(fingerprint(path)));
        }
        level.names.sort_unstable();
        level.folded.sort_unstable();
        level.inodes.sort_unstable();
        let found = receiver.while_blocked_on_disk(|| self.scan_directory(receiver, tree, &level));
        if let Err(error) = found {
            receiver.table.report_failure(&level.name, &error);
        }
    }

    fn scan_directory(
        &mut self,
        receiver: &Receiver,
        tree: &DestinationTree,
        level: &DirectoryNames,
    ) -> Result<(), TransferError> {
        let failed = |error| super::super::base_dir::file_error("list", &tree.display_name(&level.name), error);
        let directory = match tree.open_entry(&level.name) {
            Ok(directory) => directory,
            // The directory could not be created, or this is a dry run.
            Err(_) => return Ok(()),
        };
        let mut collisions = None;
        for entry in Dir::read_from(open_readable(&directory).map_err(failed)?).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || is_reserved_name(OsStr::from_bytes(name)) {
                continue;
            }
            if level.names.binary_search(&fingerprint(name)).is_ok()
                || level.has_inode(&directory, entry.file_name())
                || level.has_other_spelling(&directory, name, &mut collisions)
            {
                continue;
            }
            let path = join_path(relative_path(&level.name), name);
            if !receiver.table.may_be_unlisted(&path) && !receiver.is_protected(&directory, entry.file_name(), &path) {
                self.add_path(&level.name, &path, || open_unnamed_file(receiver, tree));
            }
        }
        Ok(())
    }
}

impl Receiver {
    /// Returns whether an exclude rule protects the entry from deletion.
    fn is_protected(&self, directory: impl AsFd, name: &CStr, path: &[u8]) -> bool {
        if self.options.protect.is_empty() {
            return false;
        }
        let is_directory = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        self.options.protect.decide(path, is_directory) == Decision::Exclude
    }

    /// Deletes an entry with its contents. Reports a failure and continues.
    fn delete_path(&self, tree: &DestinationTree, path: &[u8]) {
        // The kernel returned this name, so the name is valid.
        let Ok(name) = Name::new(path) else { return };
        let (parent, last) = split_path(path);
        let removed = tree.open_below(parent).and_then(|directory| {
            let last = std::ffi::CString::new(last).map_err(|_| Errno::INVAL)?;
            let removed = || self.delete_tree(&directory, &last, path.to_vec(), 0);
            // The top directory gets its attributes later.
            if self.options.dry_run || parent.is_empty() {
                removed()
            } else {
                self.attributes.with_attributes_restored(&directory, removed)
            }
        });
        if let Err(error) = removed.map(drop) {
            let path = tree.display_name(&name);
            self.table.report_failure(&name, &TransferError::File { doing: "delete", path, source: error.into() });
        }
    }

    /// Removes a directory that another kind of entry replaces. With `all`, its contents are deleted too, as with
    /// rsync's `--delete`; otherwise only an empty directory is removed. Returns false if an entry in it stays.
    pub(super) fn clear_directory(
        &self,
        location: &EntryLocation,
        name: &Name,
        all: bool,
    ) -> Result<bool, TransferError> {
        let failed = |error| location.error("delete", error);
        let last = std::ffi::CString::new(location.name.as_bytes()).map_err(|_| failed(Errno::INVAL))?;
        let empty = match (all, self.options.dry_run) {
            (true, _) => self
                .while_blocked_on_disk(|| self.empty_directory(&location.directory, &last, name.as_bytes(), 0))
                .map_err(failed)?,
            // `rmdir` checks this itself.
            (false, false) => true,
            (false, true) => is_empty_directory(&location.directory, &last),
        };
        if !empty || self.options.dry_run {
            return Ok(empty);
        }
        match unlinkat(&location.directory, &last, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes `name` with its contents. Returns false if an entry in it stays.
    fn delete_tree(&self, directory: impl AsFd, name: &CStr, path: Vec<u8>, depth: usize) -> Result<bool, Errno> {
        let stat = match self.do_disk_work(|| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Err(Errno::NOENT) => return Ok(true),
            result => result?,
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => ReportedKind::File,
            FileType::Directory => ReportedKind::Directory,
            FileType::Symlink => ReportedKind::Link,
            _ => ReportedKind::Other,
        };
        if kind == ReportedKind::Directory && !self.empty_directory(&directory, name, &path, depth)? {
            return Ok(false);
        }
        if !self.options.dry_run {
            let flags = if kind == ReportedKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            self.do_disk_work(|| unlinkat(&directory, name, flags))?;
        }
        self.table.count_deleted(1);
        if let Ok(name) = Name::new(path) {
            self.report_event(EntryEvent { name, kind, action: EntryAction::Delete, bytes: None, digest: None });
        }
        Ok(true)
    }

    /// Deletes the contents of a directory. Returns false if an entry in it stays.
    fn empty_directory(&self, directory: impl AsFd, name: &CStr, path: &[u8], depth: usize) -> Result<bool, Errno> {
        // Each level holds one directory open.
        if depth == MAX_DEPTH {
            return Err(Errno::MFILE);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = openat(&directory, name, flags, Mode::empty())?;
        let closed = if self.options.dry_run { None } else { self.attributes.add_owner_access(&inside) };
        let removed = self.delete_contents(&inside, path, depth);
        if let (false, Some(mode)) = (removed == Ok(true), closed) {
            let _ = self.attributes.restore_mode(&inside, mode);
        }
        removed
    }

    fn delete_contents(&self, inside: &OwnedFd, path: &[u8], depth: usize) -> Result<bool, Errno> {
        let mut entries = Dir::read_from(inside)?;
        let mut empty = true;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            if self.is_stopped() {
                return Ok(false);
            }
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                reserved if is_reserved_name(OsStr::from_bytes(reserved)) => empty = false,
                inner if self.is_protected(inside, entry.file_name(), &join_path(path, inner)) => empty = false,
                inner => empty &= self.delete_tree(inside, entry.file_name(), join_path(path, inner), depth + 1)?,
            }
        }
        Ok(empty)
    }
}

fn is_empty_directory(directory: &OwnedFd, name: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entries = openat(directory, name, flags, Mode::empty()).and_then(Dir::read_from);
    entries.is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
    })
}

/// Maximum depth of a directory below the deleted directory.
const MAX_DEPTH: usize = 256;

/// A list of paths, each with a NUL at its end. A long list goes to disk.
#[derive(Debug, Default)]
struct PathSpool {
    memory: Vec<u8>,
    written: Option<File>,
}

impl PathSpool {
    /// Adds a path. After an error the spool is incomplete.
    fn push(&mut self, path: &[u8], open: impl FnOnce() -> Option<File>) -> std::io::Result<()> {
        self.memory.extend_from_slice(path);
        self.memory.push(0);
        if self.memory.len() < SPOOL_MEMORY {
            return Ok(());
        }
        if self.written.is_none() {
            self.written = open();
        }
        if let Some(file) = &mut self.written {
            file.write_all(&self.memory)?;
            self.memory.clear();
        }
        Ok(())
    }

    /// Calls `take` for each path. A path without its end is skipped: it could name another entry.
    fn for_each(self, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
        if let Some(mut file) = self.written {
            file.rewind()?;
            let mut bytes = BufReader::new(file);
            let mut path = Vec::new();
            while bytes.read_until(0, &mut path)? > 0 {
                path.strip_suffix(b"\0").into_iter().for_each(&mut take);
                path.clear();
            }
        }
        self.memory.split_inclusive(|byte| *byte == 0).filter_map(|path| path.strip_suffix(b"\0")).for_each(take);
        Ok(())
    }
}

/// Opens a file without a name at the destination, or in this host's temporary directory for a dry run. Returns `None`
/// if the file system does not support such files; the spool then stays in memory.
fn open_unnamed_file(receiver: &Receiver, tree: &DestinationTree) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let opened = match receiver.options.dry_run {
        true => openat(CWD, std::env::temp_dir(), flags, mode),
        false => tree.open_readable().and_then(|top| openat(&top, ".", flags, mode)),
    };
    opened.ok().map(File::from)
}

pub(super) fn open_readable(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns the path of a directory below the destination; empty for the destination itself.
fn relative_path(name: &Name) -> &[u8] {
    if name.is_root() { b"" } else { name.as_bytes() }
}

/// Returns whether `name` is in the directory, at any depth.
fn contains(directory: &Name, name: &[u8]) -> bool {
    directory.is_root() || name.strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

fn join_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use lfn_core::transfer::entry::Modified;
    use lfn_core::transfer::options::TransferOptions;
    use lfn_core::units::Bytes;

    use super::super::super::base_dir::BaseDir;
    use super::super::super::entry_listener::EntryListener;
    use super::super::super::stream_set::StreamSet;
    use super::*;

    #[test]
    fn too_many_names_prevent_deletion() {
        let modified = Modified::new(0, 0).unwrap();
        let kind = || EntryKind::File { length: Bytes(1) };
        let file = |name: &str| Entry::new(Name::new(name).unwrap(), kind(), 0o644, modified).unwrap();
        let mut deletions = Deletions { max_names: 3, ..Deletions::default() };
        for name in ["a", "b", "c"] {
            deletions.add_name(&file(name));
        }
        assert!(deletions.aborted.is_none() && deletions.early_names.len() == 3);
        deletions.add_name(&file("d"));
        assert_eq!((deletions.aborted.unwrap().0.to_string(), deletions.early_names.len()), ("d".to_owned(), 3));
    }

    #[test]
    fn incomplete_spool_prevents_deletion() {
        let mut deletions = Deletions::default();
        let full = || Some(File::options().read(true).write(true).open("/dev/full").unwrap());
        let directory = Name::new("d").unwrap();
        for _ in 0..=SPOOL_MEMORY / 201 {
            assert!(deletions.aborted.is_none());
            deletions.add_path(&directory, &[b'k'; 200], full);
        }
        let (name, error) = deletions.aborted.unwrap();
        assert!(name == directory && error.is_out_of_space(), "{error}");
    }

    #[test]
    fn dry_run_writes_nothing_at_the_destination() {
        let temp = tempfile::tempdir().unwrap();
        let tree = DestinationTree::open(&BaseDir::Local, temp.path(), false, true).unwrap();
        for dry_run in [false, true] {
            let options = TransferOptions { dry_run, ..TransferOptions::default() };
            let aim = super::super::Destination::Null;
            let receiver =
                Receiver::start(aim, options, EntryListener::default(), None, Bytes(1024), StreamSet::default())
                    .unwrap();
            let file = open_unnamed_file(&receiver, &tree).unwrap();
            let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            assert_eq!(path.starts_with(temp.path()), !dry_run, "{}", path.display());
            receiver.close();
        }
    }

    #[test]
    fn path_without_its_end_is_skipped() {
        let mut written = tempfile::tempfile().unwrap();
        written.write_all(b"d/a\0d/b\0d/to").unwrap();
        let spool = PathSpool { memory: b"e\0f/to".to_vec(), written: Some(written) };
        let mut paths = Vec::new();
        spool.for_each(|path| paths.push(path.to_vec())).unwrap();
        assert_eq!(paths, [&b"d/a"[..], b"d/b", b"e"]);
    }

    #[test]
    fn long_spool_is_read_back_completely() {
        let mut spool = PathSpool::default();
        let path = |n: usize| format!("{n:0>200}").into_bytes();
        (0..15_000).for_each(|n| spool.push(&path(n), || tempfile::tempfile().ok()).unwrap());
        assert!(spool.written.is_some());
        let mut next = 0;
        let take = |read: &[u8]| {
            assert_eq!(read, path(next));
            next += 1;
        };
        spool.for_each(take).unwrap();
        assert_eq!(next, 15_000);
    }
}
