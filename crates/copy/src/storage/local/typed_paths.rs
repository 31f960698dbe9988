//! Paths as the user or a client typed them, which may contain links and `..`.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, OFlags, Stat, fstat, stat};
use rustix::io::Errno;

use super::stat::metadata_of;
use crate::base_dir::{BaseDir, Inode, inode, or_current_dir};
use crate::storage::{FileId, Metadata};

/// Checks that a path exists. A link counts as itself.
pub(crate) fn check_exists(base: &BaseDir, path: &Path) -> Result<(), Errno> {
    base.open(path, OFlags::PATH | OFlags::NOFOLLOW).map(drop)
}

/// Returns the names in a directory, without `.` and `..`, in any order.
pub(crate) fn names_in(base: &BaseDir, path: &Path) -> Result<impl Iterator<Item = Result<Vec<u8>, Errno>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let mut directory = base.open(or_current_dir(path), flags).and_then(Dir::new)?;
    let next = move || directory.read().map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    Ok(std::iter::from_fn(next).filter(|name| !name.as_ref().is_ok_and(|name| matches!(&name[..], b"." | b".."))))
}

/// Resolves typed paths relative to a directory. Shared parent directories are resolved once.
pub(crate) struct RelativePaths {
    directory: FileId,
    known: HashMap<PathBuf, Option<PathBuf>>,
    parents: HashMap<PathBuf, Option<PathBuf>>,
}

/// A typed path as the kernel knows it.
pub(crate) struct ResolvedPath {
    pub(crate) metadata: Metadata,
    /// Path relative to the directory, if it is below the directory.
    pub(crate) path: Option<PathBuf>,
}

impl RelativePaths {
    /// Creates a resolver relative to `directory`.
    pub(crate) fn new(directory: FileId) -> Self {
        RelativePaths { directory, known: HashMap::new(), parents: HashMap::new() }
    }

    /// Resolves a path. With `follows_link`, a link at its end is followed. `None` if the path cannot be found.
    pub(crate) fn resolve(&mut self, base: &BaseDir, path: &Path, follows_link: bool) -> Option<ResolvedPath> {
        let (stat, real) = real_path(base, or_current_dir(path), follows_link)?;
        Some(ResolvedPath { metadata: metadata_of(&stat), path: self.path_below(&real, base.root_inode()) })
    }

    /// Returns the path of the directory that contains the typed name, relative to the directory.
    pub(crate) fn parent_path(&mut self, base: &BaseDir, path: &Path) -> Option<PathBuf> {
        let parent = or_current_dir(or_current_dir(path).parent()?).to_owned();
        if let Some(known) = self.parents.get(&parent) {
            return known.clone();
        }
        let real = real_path(base, &parent, true);
        let below = real.and_then(|(_, real)| self.path_below(&real, base.root_inode()));
        self.parents.insert(parent, below.clone());
        below
    }

    /// Converts a path of the kernel to a path relative to the directory. Clients must not learn about the parents of
    /// a served directory, so `top` is the last directory to be checked.
    fn path_below(&mut self, real: &Path, top: Option<Inode>) -> Option<PathBuf> {
        if let Some(known) = self.known.get(real) {
            return known.clone();
        }
        let opened = stat(real).ok().map(|stat| inode(&stat));
        let below = if opened == Some(self.directory) {
            Some(PathBuf::new())
        } else if opened.is_some() && opened == top {
            None
        } else {
            let above = real.parent().and_then(|parent| self.path_below(parent, top));
            above.zip(real.file_name()).map(|(above, name)| above.join(name))
        };
        self.known.insert(real.to_owned(), below.clone());
        below
    }
}

/// Returns the attributes of the path, and its real path without links.
fn real_path(base: &BaseDir, path: &Path, follows_link: bool) -> Option<(Stat, PathBuf)> {
    let follow = if follows_link { OFlags::empty() } else { OFlags::NOFOLLOW };
    let opened = base.open(path, OFlags::PATH | follow).ok()?;
    let real = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).ok()?;
    Some((fstat(&opened).ok()?, real))
}
