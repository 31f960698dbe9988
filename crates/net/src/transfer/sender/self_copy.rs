//! Guards a copy within one host against copying a tree into itself.
//!
//! Before the list starts, the receiver reports the device and inode of its destination directory. The walk does not
//! enter that directory, whatever path leads to it. A source is equal to its destination if the kernel's path of the
//! source, relative to the destination directory, is the path that the copy would write. If the source's path is
//! longer, the source is inside the area that `--delete` clears. The paths as typed do not show this, because links,
//! patterns and lists of names hide it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::iter;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lfn_core::transfer::location::final_name;
use lfn_core::wire::copy::DestinationId;
use rustix::fs::{OFlags, Stat, fstat, stat};

use super::source_file::ReadError;
use super::walk::Walk;
use super::{Listing, Shared, Source, wait};
use crate::transfer::TransferError;
use crate::transfer::base_dir::{BaseDir, Inode, inode, or_current_dir, path_text};
use crate::transfer::stream_set::lock;
use crate::transfer::this_host;

/// The destination that the receiver reports, once it is known. `None` on another host.
#[derive(Debug, Clone, Default)]
pub(super) struct DestinationSlot(Arc<OnceLock<Option<DestinationId>>>);

/// A source as the user or the client gave it.
#[derive(Debug)]
pub(super) struct TypedSource {
    /// The path of the source; `None` for generated data.
    location: Option<(Arc<BaseDir>, PathBuf)>,
    /// The name at the destination; `None` for the contents of a directory.
    name: Option<Vec<u8>>,
    /// Flags for opening the source: a given link is followed or not.
    open_flags: OFlags,
}

/// A source with its path as the kernel knows it.
struct ResolvedSource {
    inode: Inode,
    /// Path relative to the destination directory, if the source is below it.
    path: Option<PathBuf>,
    /// The same for the given name, which may be a link.
    typed_path: Option<PathBuf>,
    /// The path that the copy would write, relative to the destination directory.
    target: PathBuf,
}

/// Resolves paths relative to the destination. Shared parent directories are resolved once.
struct DestinationFilter<'a> {
    destination: &'a DestinationId,
    known: HashMap<PathBuf, Option<PathBuf>>,
    parents: HashMap<PathBuf, Option<PathBuf>>,
}

impl DestinationSlot {
    /// Sets the destination that the receiver reported.
    pub(super) fn set(&self, destination: Option<DestinationId>) {
        // The numbers of another kernel mean other directories. A second report is ignored.
        let _ = self.0.set(destination.filter(|destination| this_host::is_tagged(destination.host.as_ref())));
    }

    /// Returns whether the directory `name` in `dir` is the destination.
    pub(super) fn matches(&self, dir: BorrowedFd<'_>, name: &std::ffi::CStr, stat: &Stat) -> bool {
        let Some(Some(destination)) = self.0.get() else { return false };
        match &destination.single_name {
            None => inode(stat) == destination.directory,
            Some(alone) => {
                alone.as_bytes() == name.to_bytes()
                    && fstat(dir).is_ok_and(|above| inode(&above) == destination.directory)
            }
        }
    }
}

impl Shared {
    /// Waits for the report of the destination. Returns the walks, without the sources that are their own destination.
    /// Returns `None` if the copy is over or must not start.
    pub(super) fn without_destination(
        &self,
        walks: impl Iterator<Item = Walk> + Send,
        typed: &[TypedSource],
        listing: &Listing,
    ) -> Option<impl Iterator<Item = Walk>> {
        if listing.same_host {
            let mut state = lock(&self.state);
            while self.destination.0.get().is_none() {
                if self.streams.is_stopped() {
                    return None;
                }
                state = wait(&self.room_in_list, state);
            }
        }
        let conflicts = match self
            .destination
            .0
            .get()
            .and_then(Option::as_ref)
            .map(|destination| check_sources(destination, typed, listing))
        {
            Some(Err(error)) => {
                self.streams.fail(error);
                return None;
            }
            Some(Ok(conflicts)) => conflicts,
            None => Vec::new(),
        };
        let walk = |(walk, conflict): (Walk, Option<Walk>)| conflict.unwrap_or(walk);
        Some(walks.zip(conflicts.into_iter().chain(iter::repeat_with(|| None))).map(walk))
    }
}

/// Replaces each source that is its own destination by a walk that reports the failure. Returns an error if that is the
/// only source, if `--delete` would delete a source, or if it would delete entries of a source around the destination.
fn check_sources(
    destination: &DestinationId,
    typed: &[TypedSource],
    listing: &Listing,
) -> Result<Vec<Option<Walk>>, TransferError> {
    let mut filter = DestinationFilter { destination, known: HashMap::new(), parents: HashMap::new() };
    let found: Vec<_> = typed.iter().map(|typed| filter.resolve(typed)).collect();
    if listing.delete
        && let Some(at) = find_deleted_source(&found)
    {
        return Err(TransferError::WouldDelete { path: typed[at].display_path() });
    }
    if listing.delete
        && !listing.has_several_sources
        && listing.rules.is_empty()
        && let Some(at) = found.iter().position(|found| found.as_ref().is_some_and(|found| found.contains(destination)))
    {
        return Err(TransferError::IntoItself { path: typed[at].display_path() });
    }
    let conflicts = found.iter().map(|found| found.as_ref().and_then(|found| found.conflict(destination)));
    let replacement = |(source, why): (&TypedSource, Option<ReadError>)| match (why, &source.location) {
        (Some(why), _) if typed.len() == 1 => Err(why.into_transfer_error(source.display_path())),
        (Some(why), Some((_, path))) => Ok(Some(Walk::failed(path, &why, listing.clone()))),
        _ => Ok(None),
    };
    typed.iter().zip(conflicts).map(replacement).collect()
}

/// Returns the first source inside a path that this or another source is copied to. `--delete` would delete it there.
fn find_deleted_source(found: &[Option<ResolvedSource>]) -> Option<usize> {
    let mut targets: HashMap<&Path, usize> = HashMap::new();
    for found in found.iter().flatten() {
        *targets.entry(&found.target).or_default() += 1;
    }
    found.iter().position(|found| {
        let Some(ResolvedSource { path: Some(path), target, .. }) = found else { return false };
        path.ancestors().any(|above| {
            let self_count = usize::from(above == path && above == target);
            targets.get(above).is_some_and(|times| *times > self_count)
        })
    })
}

impl TypedSource {
    pub(super) fn new(source: &Source, listing: &Listing) -> Self {
        let (at, name) = match source {
            Source::File { base, path } => (Some((base, path)), final_name(path.as_os_str().as_bytes())),
            // Names from a list keep their path below the directory.
            Source::FilesFrom { base, path, .. } => (Some((base, path)), None),
            Source::Unreadable { .. } | Source::Random { .. } | Source::Zero { .. } => (None, None),
        };
        let open_flags = if name.is_some() && listing.preserve.links { OFlags::NOFOLLOW } else { OFlags::empty() };
        let at = at.map(|(base, path)| (base.clone(), path.clone()));
        TypedSource { location: at, name: name.map(Into::into), open_flags }
    }

    fn display_path(&self) -> String {
        self.location.as_ref().map(|(_, path)| path_text(path)).unwrap_or_default()
    }
}

impl ResolvedSource {
    /// Reports whether the destination is inside the source. A deletion there would delete entries of the source.
    fn contains(&self, destination: &DestinationId) -> bool {
        destination.ancestors.contains(&self.inode)
            || (destination.directory == self.inode && !self.target.as_os_str().is_empty())
    }

    fn conflict(&self, destination: &DestinationId) -> Option<ReadError> {
        let is_target = |path: &Option<PathBuf>| path.as_ref() == Some(&self.target);
        if is_target(&self.path) || is_target(&self.typed_path) || destination.file == Some(self.inode) {
            return Some(ReadError::SameFile);
        }
        (destination.single_name.is_none() && self.inode == destination.directory).then_some(ReadError::IsDestination)
    }
}

impl DestinationFilter<'_> {
    /// Resolves a source. `None` if it cannot be found; the walk reports the error.
    fn resolve(&mut self, typed: &TypedSource) -> Option<ResolvedSource> {
        let (base, path) = typed.location.as_ref()?;
        let top = base.root_inode();
        let path = or_current_dir(path);
        let (stat, real) = real_path(base, path, typed.open_flags).ok()?;
        let name = typed.name.as_deref().map(|name| Path::new(std::ffi::OsStr::from_bytes(name)));
        let single =
            self.destination.single_name.as_ref().map(|name| Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())));
        // A single file gets the name of the destination; a directory goes into a directory of that name.
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory;
        let target = single.into_iter().chain(name.filter(|_| single.is_none() || !is_file)).collect();
        let named = name.and_then(|name| Some(self.parent_path(base, path)?.join(name)));
        Some(ResolvedSource { inode: inode(&stat), path: self.path_below(&real, top), typed_path: named, target })
    }

    /// Returns the path of the directory that contains the given name.
    fn parent_path(&mut self, base: &BaseDir, path: &Path) -> Option<PathBuf> {
        let parent = or_current_dir(path.parent()?).to_owned();
        if let Some(known) = self.parents.get(&parent) {
            return known.clone();
        }
        let below = real_path(base, &parent, OFlags::empty())
            .ok()
            .and_then(|(_, real)| self.path_below(&real, base.root_inode()));
        self.parents.insert(parent, below.clone());
        below
    }

    /// Converts a path of the kernel to a path relative to the destination. Clients must not learn about the parents of
    /// a served directory, so `top` is the last directory to be checked.
    fn path_below(&mut self, real: &Path, top: Option<Inode>) -> Option<PathBuf> {
        if let Some(known) = self.known.get(real) {
            return known.clone();
        }
        let opened = stat(real).ok().map(|stat| inode(&stat));
        let below = if opened == Some(self.destination.directory) {
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
fn real_path(base: &BaseDir, path: &Path, open_flags: OFlags) -> io::Result<(Stat, PathBuf)> {
    let opened = base.open(path, OFlags::PATH | open_flags)?;
    let real = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    Ok((fstat(&opened)?, real))
}
