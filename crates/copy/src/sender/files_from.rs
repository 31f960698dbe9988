//! Names from a list (`--files-from`), each with its parent directories.
//!
//! The names are sorted, so that a directory is listed once, before its contents. The name of a directory includes all
//! its contents, so other names in this directory add nothing. Filter rules apply to the names and to the contents of
//! named directories, but not to parent directories (as in rsync). A parent directory is listed only when a name in it
//! is listed. So a parent directory without existing or included names is not created.

use std::sync::Arc;
use std::vec;

use lfn_session::wire::copy::entry::{Entry, EntryKind, Name};

use super::listing::Listing;
use super::read_error::ReadError;
use super::source_file::SourceTree;
use super::walk_step::{WalkStep, or_failed};

/// The names that are still to be listed.
#[derive(Debug)]
pub(super) struct FilesFrom {
    tree: Arc<SourceTree>,
    names: vec::IntoIter<Name>,
    /// The top directory, and the parent directories of the last name.
    parents: Vec<ParentDir>,
    /// Path of the last directory that was named itself.
    named_dir: Option<Vec<u8>>,
    /// The name of a directory does not include its contents.
    is_exact: bool,
}

/// A parent directory of the current name.
#[derive(Debug)]
struct ParentDir {
    /// Its path in the list; empty for the top directory.
    path: Vec<u8>,
    /// The entry of the directory, until a name in it is listed.
    unlisted: Option<WalkStep>,
}

/// The steps for one name, and the path of the directory to enter after them.
pub(super) type FoundName = (Vec<WalkStep>, Option<Vec<u8>>);

impl FilesFrom {
    pub(super) fn new(tree: Arc<SourceTree>, mut names: Vec<Name>) -> Self {
        names.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        names.dedup();
        if let Some(root) = names.iter().find(|name| name.is_root()) {
            names = vec![root.clone()];
        }
        let parents = vec![ParentDir { path: Vec::new(), unlisted: None }];
        FilesFrom { tree, names: names.into_iter(), parents, named_dir: None, is_exact: false }
    }

    /// Creates a list of exactly these names: a directory is listed without its contents.
    pub(super) fn exact(tree: Arc<SourceTree>, mut names: Vec<Name>) -> Self {
        names.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        names.dedup();
        let parents = vec![ParentDir { path: Vec::new(), unlisted: None }];
        FilesFrom { tree, names: names.into_iter(), parents, named_dir: None, is_exact: true }
    }

    /// Returns the steps for the next name.
    pub(super) fn next(&mut self, listing: &Listing) -> Option<FoundName> {
        loop {
            let name = self.names.next()?;
            if self.named_dir.as_ref().is_some_and(|named_dir| is_below(name.as_bytes(), named_dir)) {
                continue;
            }
            if name.is_root() && !self.is_exact {
                return Some((Vec::new(), Some(Vec::new())));
            }
            let mut steps = Vec::new();
            let enter = self.look_up(&name, listing, &mut steps).unwrap_or_else(|why| {
                steps.extend(or_failed(Err(why), name.as_bytes()));
                None
            });
            if self.is_exact {
                // A later name in this directory must not list it again.
                self.parents.extend(enter.map(|path| ParentDir { path, unlisted: None }));
                return Some((steps, None));
            }
            self.named_dir = enter.clone();
            return Some((steps, enter));
        }
    }

    /// Looks up a name, starting at the last parent directory that the previous name shares with it.
    fn look_up(
        &mut self,
        name: &Name,
        listing: &Listing,
        steps: &mut Vec<WalkStep>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let path = name.as_bytes();
        while self.parents.len() > 1 && self.parents.last().is_some_and(|parent| !is_below(path, &parent.path)) {
            self.parents.pop();
        }
        loop {
            let parent = self.parents.last().map(|parent| parent.path.len()).unwrap_or_default();
            let start = if parent == 0 { 0 } else { parent + 1 };
            let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |slash| start + slash);
            if end == path.len() {
                let step = listing.list_entry(&self.tree, path).map_err(as_not_found)?;
                let enters = matches!(&step, Some(WalkStep::Entry(Entry { kind: EntryKind::Directory, .. }, _)));
                if matches!(step, Some(WalkStep::Entry(..))) {
                    steps.extend(self.parents.iter_mut().filter_map(|parent| parent.unlisted.take()));
                }
                steps.extend(step);
                return Ok(enters.then(|| path.to_vec()));
            }
            let unlisted = Some(listing.list_parent_dir(&self.tree, &path[..end]).map_err(as_not_found)?);
            self.parents.push(ParentDir { path: path[..end].to_vec(), unlisted });
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

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}
