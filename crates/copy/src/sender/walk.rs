//! Walks a source and lists its entries: a file itself, or a directory tree. Each directory comes before its contents,
//! and its names come in the order of their bytes.
//!
//! The walk keeps the names of one directory for each level, never the whole tree. A directory with more than
//! [`NAMES_PER_RUN`] names is listed in several sorted runs. Symbolic links inside a tree are never followed. An entry
//! that cannot be listed is reported in its place in the list, and the walk continues.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name, final_name};

use super::files_from::FilesFrom;
use super::list_entry::ListedObject;
use super::listing::Listing;
use super::read_error::ReadError;
use super::source::Source;
use super::source_file::SourceTree;
use super::walk_step::{WalkStep, nearest_valid_name, or_failed};
use crate::TransferError;
use crate::base_dir::{BaseDir, current_time};
use crate::storage::generated::GeneratedStorage;
use crate::storage::local::LocalTree;
use crate::storage::piece::{PieceStorage, piece_metadata};
use crate::storage::{Names, ObjectKind};

/// Maximum number of names of one directory that are kept and sorted together.
const NAMES_PER_RUN: usize = if cfg!(test) { 100 } else { 1 << 16 };

/// The walk through one source.
#[derive(Debug)]
pub(crate) struct Walk {
    listing: Listing,
    /// Steps to return before the walk continues.
    ready: VecDeque<WalkStep>,
    /// The tree of the source, except of a source that cannot be read.
    tree: Option<Arc<SourceTree>>,
    /// Path of the directory to enter next.
    next_dir: Option<Vec<u8>>,
    levels: Vec<DirLevel>,
    /// Names from a list, instead of the whole directory.
    files_from: Option<FilesFrom>,
}

/// A directory that is being listed.
struct DirLevel {
    /// Path in the list; empty if its contents are listed at the top.
    path: Vec<u8>,
    /// Names that are still to be read. `None` after the last one, so that the directory is closed.
    unread: Option<Names>,
    /// Sorted in reverse order.
    names: Vec<Vec<u8>>,
    error: Option<ReadError>,
}

impl Walk {
    /// Creates the walk of a source. If the source cannot be read, the walk reports this.
    pub(crate) fn new(source: Source, listing: Listing) -> Self {
        let typed = match &source {
            Source::File { path, .. }
            | Source::Piece { path, .. }
            | Source::FilesFrom { path, .. }
            | Source::Entries { path, .. }
            | Source::Unreadable { path, .. } => path.clone(),
            Source::Random { .. } | Source::Zero { .. } => PathBuf::new(),
        };
        Walk::try_new(source, listing.clone()).unwrap_or_else(|why| Walk::failed(&typed, &why, listing))
    }

    /// Creates a walk that only reports a failure.
    pub(super) fn failed(typed: &Path, why: &ReadError, listing: Listing) -> Self {
        let name = final_name(typed.as_os_str().as_bytes()).unwrap_or_default();
        let place =
            if name == typed.as_os_str().as_bytes() { String::new() } else { format!(" ({})", typed.display()) };
        let missed = WalkStep::Failed { name: nearest_valid_name(name), reason: format!("{why}{place}") };
        Walk { ready: [missed].into(), ..Walk::empty(listing) }
    }

    /// Creates the walk of a source.
    ///
    /// # Errors
    /// [`ReadError`] if the source cannot be read.
    pub(crate) fn try_new(source: Source, listing: Listing) -> Result<Self, ReadError> {
        let mut walk = Walk::empty(listing);
        match source {
            Source::File { base, path } => walk.add_named(base, &path)?,
            Source::Piece { base, path, offset } => walk.add_piece(base, &path, offset)?,
            Source::FilesFrom { base, path, names } => walk.add_files_from(base, &path, names)?,
            Source::Entries { base, path, names } => walk.add_entries(base, &path, names)?,
            Source::Unreadable { error, .. } => return Err(ReadError::Io { doing: "read", source: error.into() }),
            Source::Random { seed, bytes } => {
                walk.add_generated(GeneratedStorage::random(seed, bytes, walk.generated_at()))?
            }
            Source::Zero { bytes } => walk.add_generated(GeneratedStorage::zero(bytes, walk.generated_at()))?,
        }
        Ok(walk)
    }

    fn empty(listing: Listing) -> Self {
        Walk { listing, ready: VecDeque::new(), tree: None, next_dir: None, levels: Vec::new(), files_from: None }
    }

    fn generated_at(&self) -> Modified {
        self.listing.generated_at.unwrap_or_else(current_time)
    }

    fn add_generated(&mut self, source: GeneratedStorage) -> Result<(), ReadError> {
        let (name, metadata) = (Name::new(source.file_name())?, source.file_metadata());
        let tree = SourceTree::new(Arc::new(source), Vec::new());
        let object = ListedObject { tree: &tree, name: &name, path: name.as_bytes() };
        self.ready.push_back(self.listing.file_step(&object, &metadata)?);
        Ok(())
    }

    /// Adds names from a list. The name of a directory includes its contents.
    fn add_files_from(&mut self, base: Arc<BaseDir>, path: &Path, names: Vec<Name>) -> Result<(), ReadError> {
        let source = self.open_typed(base, path, true)?;
        if source.metadata_at_open().kind != ObjectKind::Directory {
            return Err(ReadError::NotDirectory);
        }
        let tree = SourceTree::new(Arc::new(source), Vec::new());
        self.files_from = Some(FilesFrom::new(tree.clone(), names));
        self.tree = Some(tree);
        Ok(())
    }

    /// Adds exactly these entries of a directory. Their names begin with that of the directory, except after a slash.
    fn add_entries(&mut self, base: Arc<BaseDir>, path: &Path, names: Vec<Name>) -> Result<(), ReadError> {
        let name = final_name(path.as_os_str().as_bytes());
        let source = self.open_typed(base, path, name.is_none() || !self.listing.preserve.links)?;
        if source.metadata_at_open().kind != ObjectKind::Directory {
            return Err(ReadError::NotDirectory);
        }
        let tree = SourceTree::new(Arc::new(source), name.unwrap_or_default().to_vec());
        self.files_from = Some(FilesFrom::exact(tree.clone(), names));
        self.tree = Some(tree);
        Ok(())
    }

    fn add_named(&mut self, base: Arc<BaseDir>, path: &Path) -> Result<(), ReadError> {
        let name = final_name(path.as_os_str().as_bytes());
        // A link given by the user is followed, unless links are copied as links.
        let source = self.open_typed(base, path, name.is_none() || !self.listing.preserve.links)?;
        let metadata = source.metadata_at_open();
        if name.is_some_and(|name| self.listing.excludes(name, metadata.kind)) {
            return Ok(());
        }
        let tree = SourceTree::new(Arc::new(source), name.unwrap_or_default().to_vec());
        let path = name.unwrap_or(b".");
        // A source that is no directory has every name.
        let own_name = Name::new(if metadata.kind == ObjectKind::Directory { b"." } else { path })?;
        let object = ListedObject { tree: &tree, name: &own_name, path };
        let step = match (metadata.kind, name) {
            (ObjectKind::Directory, name) => {
                self.next_dir = Some(name.unwrap_or_default().to_vec());
                WalkStep::Entry(self.listing.build_entry(&object, EntryKind::Directory, &metadata)?, None)
            }
            // The kernel has refused "file/" before; "." and ".." are directories.
            (_, None) => return Err(ReadError::NotFound),
            (ObjectKind::File, Some(_)) => self.listing.file_step(&object, &metadata)?,
            (ObjectKind::Symlink, Some(_)) => self.listing.symlink_step(&object, &metadata)?,
            (ObjectKind::Other(kind), Some(_)) => return Err(ReadError::NotRegular(kind)),
        };
        self.ready.push_back(step);
        self.tree = Some(tree);
        Ok(())
    }

    /// Adds a file that is a piece of a larger one.
    fn add_piece(&mut self, base: Arc<BaseDir>, path: &Path, offset: Bytes) -> Result<(), ReadError> {
        let source = self.open_typed(base, path, true)?;
        let metadata = piece_metadata(source.metadata_at_open(), offset);
        let name = Name::new(final_name(path.as_os_str().as_bytes()).ok_or(ReadError::NotFound)?)?;
        match metadata.kind {
            ObjectKind::File => {}
            ObjectKind::Other(kind) => return Err(ReadError::NotRegular(kind)),
            _ => return Err(ReadError::NotRegular(crate::FileKind::Directory)),
        }
        let tree = SourceTree::new(Arc::new(PieceStorage::new(source, offset)), name.as_bytes().to_vec());
        let object = ListedObject { tree: &tree, name: &name, path: name.as_bytes() };
        self.ready.push_back(self.listing.file_step(&object, &metadata)?);
        self.tree = Some(tree);
        Ok(())
    }

    /// Opens a path that the user or the client gave. Distinguishes a dangling link from a path that does not exist.
    fn open_typed(&self, base: Arc<BaseDir>, path: &Path, follows_link: bool) -> Result<LocalTree, ReadError> {
        let open = |follows_link| LocalTree::open(base.clone(), path, follows_link, self.listing.directories.clone());
        open(follows_link).map_err(|error| {
            let is_missing = matches!(error, TransferError::NotFound { .. });
            let is_link = || open(false).is_ok_and(|link| link.metadata_at_open().kind == ObjectKind::Symlink);
            if is_missing && is_link() { ReadError::DanglingLink } else { ReadError::of_typed(error) }
        })
    }
}

impl Iterator for Walk {
    type Item = WalkStep;

    fn next(&mut self) -> Option<WalkStep> {
        loop {
            if let Some(first) = self.ready.pop_front() {
                return Some(first);
            }
            let (Some(tree), listing) = (&self.tree, &self.listing) else { return None };
            if let Some(path) = self.next_dir.take() {
                self.levels.push(DirLevel::open(tree, path));
            }
            match self.levels.last_mut() {
                Some(level) => match level.next_name() {
                    Some(name) => {
                        let path = level.path_of(&name);
                        let step = or_failed(listing.list_entry(tree, &path), &path);
                        if let Some(WalkStep::Entry(Entry { kind: EntryKind::Directory, .. }, _)) = &step {
                            self.next_dir = Some(path);
                        }
                        self.ready.push_back(step.unwrap_or(WalkStep::Excluded));
                    }
                    None => {
                        let level = self.levels.pop()?;
                        let error = level.error.and_then(|why| or_failed(Err(why), &level.path));
                        self.ready.extend(error);
                    }
                },
                None => {
                    let (steps, enter) = self.files_from.as_mut()?.next(listing)?;
                    self.ready.extend(steps);
                    if self.ready.is_empty() {
                        self.ready.push_back(WalkStep::Excluded);
                    }
                    self.next_dir = enter;
                }
            }
        }
    }
}

impl DirLevel {
    fn open(tree: &SourceTree, path: Vec<u8>) -> Self {
        let name = tree.storage_name(&path);
        let unread = name
            .map_err(ReadError::from)
            .and_then(|name| tree.storage.list(&name).map_err(|error| ReadError::of_listed("open", error)));
        let (unread, error) = match unread {
            Ok(unread) => (Some(unread), None),
            Err(error) => (None, Some(error)),
        };
        DirLevel { path, unread, names: Vec::new(), error }
    }

    fn next_name(&mut self) -> Option<Vec<u8>> {
        if self.names.is_empty() {
            self.read_names();
        }
        self.names.pop()
    }

    /// Reads as many names as are sorted together.
    fn read_names(&mut self) {
        while self.names.len() < NAMES_PER_RUN
            && let Some(unread) = &mut self.unread
        {
            match unread.next() {
                Some(Ok(name)) => self.names.push(name),
                Some(Err(error)) => {
                    self.error = Some(ReadError::of_listed("read", error));
                    self.unread = None;
                }
                None => self.unread = None,
            }
        }
        self.names.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Returns the path of a name in this directory.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        [&self.path, slash, name].concat()
    }
}

impl std::fmt::Debug for DirLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Level").field("path", &self.path).field("names", &self.names.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
