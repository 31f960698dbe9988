//! Guards a copy within one host against copying a tree into itself.
//!
//! Before the list starts, the receiver reports the device and inode of its destination directory. The walk does not
//! enter that directory, whatever path leads to it. A source is equal to its destination if the kernel's path of the
//! source, relative to the destination directory, is the path that the copy would write. If the source's path is
//! longer, the source is inside the area that `--delete` clears. The paths as typed do not show this, because links,
//! patterns and lists of names hide it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lfn_session::wire::copy::DestinationId;
use lfn_session::wire::copy::entry::final_name;

use super::listing::Listing;
use super::read_error::ReadError;
use super::shared::{Shared, wait};
use super::source::Source;
use super::walk::Walk;
use crate::TransferError;
use crate::base_dir::{BaseDir, path_text};
use crate::storage::local::typed_paths::RelativePaths;
use crate::storage::{FileId, ObjectKind};

/// A source as the user or the client gave it.
#[derive(Debug)]
pub(super) struct TypedSource {
    /// The path of the source; `None` for generated data.
    location: Option<(Arc<BaseDir>, PathBuf)>,
    /// The name at the destination; `None` for the contents of a directory.
    name: Option<Vec<u8>>,
    /// A given link is followed.
    follows_link: bool,
}

/// A source with its path as the kernel knows it.
struct ResolvedSource {
    id: FileId,
    /// Path relative to the destination directory, if the source is below it.
    path: Option<PathBuf>,
    /// The same for the given name, which may be a link.
    typed_path: Option<PathBuf>,
    /// The path that the copy would write, relative to the destination directory.
    target: PathBuf,
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
            let mut state = self.state.lock();
            while !self.destination.is_known() {
                if self.streams.is_stopped() {
                    return None;
                }
                wait(&self.room_in_list, &mut state);
            }
        }
        let conflicts = match self.destination.get().map(|destination| check_sources(destination, typed, listing)) {
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
    let mut paths = RelativePaths::new(destination.directory);
    let found: Vec<_> = typed.iter().map(|typed| ResolvedSource::new(typed, destination, &mut paths)).collect();
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
            Source::File { base, path } | Source::Piece { base, path, .. } | Source::Entries { base, path, .. } => {
                (Some((base, path)), final_name(path.as_os_str().as_bytes()))
            }
            // Names from a list keep their path below the directory.
            Source::FilesFrom { base, path, .. } => (Some((base, path)), None),
            Source::Unreadable { .. } | Source::Random { .. } | Source::Zero { .. } => (None, None),
        };
        let follows_link = name.is_none() || !listing.preserve.links;
        let at = at.map(|(base, path)| (base.clone(), path.clone()));
        TypedSource { location: at, name: name.map(Into::into), follows_link }
    }

    fn display_path(&self) -> String {
        self.location.as_ref().map(|(_, path)| path_text(path)).unwrap_or_default()
    }
}

impl ResolvedSource {
    /// Reports whether the destination is inside the source. A deletion there would delete entries of the source.
    fn contains(&self, destination: &DestinationId) -> bool {
        destination.ancestors.contains(&self.id)
            || (destination.directory == self.id && !self.target.as_os_str().is_empty())
    }

    /// Resolves a source. `None` if it cannot be found; the walk reports the error.
    fn new(typed: &TypedSource, destination: &DestinationId, paths: &mut RelativePaths) -> Option<Self> {
        let (base, path) = typed.location.as_ref()?;
        let found = paths.resolve(base, path, typed.follows_link)?;
        let name = typed.name.as_deref().map(|name| Path::new(OsStr::from_bytes(name)));
        let single = destination.single_name.as_ref().map(|name| Path::new(OsStr::from_bytes(name.as_bytes())));
        // A single file gets the name of the destination; a directory goes into a directory of that name.
        let is_file = found.metadata.kind != ObjectKind::Directory;
        let target = single.into_iter().chain(name.filter(|_| single.is_none() || !is_file)).collect();
        let typed_path = name.and_then(|name| Some(paths.parent_path(base, path)?.join(name)));
        Some(ResolvedSource { id: found.metadata.id, path: found.path, typed_path, target })
    }

    fn conflict(&self, destination: &DestinationId) -> Option<ReadError> {
        let is_target = |path: &Option<PathBuf>| path.as_ref() == Some(&self.target);
        if is_target(&self.path) || is_target(&self.typed_path) || destination.file == Some(self.id) {
            return Some(ReadError::SameFile);
        }
        (destination.single_name.is_none() && self.id == destination.directory).then_some(ReadError::IsDestination)
    }
}
