//! Names from a list (`--files-from`), each with its parent directories.
//!
//! The names are sorted, so that a directory is listed once, before its contents. The name of a directory includes all
//! its contents, so other names in this directory add nothing. Filter rules apply to the names and to the contents of
//! named directories, but not to parent directories (as in rsync). A parent directory is listed only when a name in it
//! is listed. So a parent directory without existing or included names is not created.

use std::ffi::{CString, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::vec;

use lfn_core::transfer::entry::{Entry, EntryKind, Name};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Listing;
use super::source_file::{ReadError, SourceDir};
use super::walk::{WalkStep, or_failed};

/// The names that are still to be listed.
#[derive(Debug)]
pub(super) struct FilesFrom {
    names: vec::IntoIter<Name>,
    /// The top directory, and the parent directories of the last name.
    parents: Vec<ParentDir>,
    /// Path of the last directory that was named itself.
    named_dir: Option<Vec<u8>>,
}

/// A parent directory of the current name.
#[derive(Debug)]
struct ParentDir {
    dir: ListedDir,
    /// The entry of the directory, until a name in it is listed.
    unlisted: Option<WalkStep>,
}

/// A directory, and its path in the list.
type ListedDir = (Arc<SourceDir>, Vec<u8>);

/// The steps for one name, and the directory to enter after them.
pub(super) type FoundName = (Vec<WalkStep>, Option<ListedDir>);

impl FilesFrom {
    pub(super) fn new(top: Arc<SourceDir>, mut names: Vec<Name>) -> Self {
        names.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        names.dedup();
        if let Some(root) = names.iter().find(|name| name.is_root()) {
            names = vec![root.clone()];
        }
        let parents = vec![ParentDir { dir: (top, Vec::new()), unlisted: None }];
        FilesFrom { names: names.into_iter(), parents, named_dir: None }
    }

    /// Returns the steps for the next name.
    pub(super) fn next(&mut self, listing: &Listing) -> Option<FoundName> {
        loop {
            let name = self.names.next()?;
            if self.named_dir.as_ref().is_some_and(|named_dir| is_below(name.as_bytes(), named_dir)) {
                continue;
            }
            if name.is_root() {
                return Some((Vec::new(), self.parents.first().map(|top| top.dir.clone())));
            }
            let mut steps = Vec::new();
            let enter = self.look_up(&name, listing, &mut steps).unwrap_or_else(|why| {
                steps.extend(or_failed(Err(why), name.as_bytes()));
                None
            });
            self.named_dir = enter.as_ref().map(|(_, path)| path.clone());
            return Some((steps, enter));
        }
    }

    /// Looks up a name, starting at the last parent directory that the previous name shares with it.
    fn look_up(
        &mut self,
        name: &Name,
        listing: &Listing,
        steps: &mut Vec<WalkStep>,
    ) -> Result<Option<ListedDir>, ReadError> {
        let path = name.as_bytes();
        while self.parents.len() > 1 && self.parents.last().is_some_and(|parent| !is_below(path, &parent.dir.1)) {
            self.parents.pop();
        }
        loop {
            let (parent_dir, at) = self.parents.last().map(|parent| parent.dir.clone()).ok_or(ReadError::NotFound)?;
            let start = if at.is_empty() { 0 } else { at.len() + 1 };
            let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |slash| start + slash);
            let (last, own) = (&path[start..end], OsStr::from_bytes(&path[start..end]).to_owned());
            let dir = Arc::new(SourceDir::Within { parent: parent_dir.clone(), name: own });
            let opened = parent_dir.open(OFlags::PATH).map_err(dir_error)?;
            let c_name = CString::new(last).map_err(|_| ReadError::NotFound)?;
            if end == path.len() {
                let step = listing.list_entry(parent_dir, opened.as_fd(), &c_name, path).map_err(as_not_found)?;
                let enters = matches!(&step, Some(WalkStep::Entry(Entry { kind: EntryKind::Directory, .. }, _)));
                if matches!(step, Some(WalkStep::Entry(..))) {
                    steps.extend(self.parents.iter_mut().filter_map(|parent| parent.unlisted.take()));
                }
                steps.extend(step);
                return Ok(enters.then(|| (dir, path.to_vec())));
            }
            let unlisted = Some(listing.list_parent_dir(opened.as_fd(), &c_name, &path[..end]).map_err(as_not_found)?);
            self.parents.push(ParentDir { dir: (dir, path[..end].to_vec()), unlisted });
        }
    }
}

/// Replaces errors that assume an earlier existence: the name may never have existed.
fn as_not_found(why: ReadError) -> ReadError {
    match why {
        ReadError::Vanished | ReadError::Changed => ReadError::NotFound,
        why => why,
    }
}

fn dir_error(error: Errno) -> ReadError {
    as_not_found(ReadError::from_errno("open its directory", error))
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}
