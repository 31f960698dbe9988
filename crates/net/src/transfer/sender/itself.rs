//! Copies from one place of a host to another: what is not copied because the copy goes there.
//!
//! The receiver says which directory it writes below, by device and inode, before anything is listed. A tree is not
//! entered there, whatever led to it. A source is the same as its destination if the kernel's path of it, seen from
//! that directory, is the path it would be copied to; if it is longer, the source is in what `--delete` clears. Paths
//! as they were typed tell none of that: links, patterns and lists of names hide it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::iter;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lfn_core::transfer::location::own_name;
use lfn_core::wire::copy::Ground;
use rustix::fs::{OFlags, Stat, fstat, stat};

use super::origin::Unsent;
use super::walk::Walk;
use super::{Listing, Shared, Source, wait};
use crate::transfer::TransferError;
use crate::transfer::flow::lock;
use crate::transfer::place::{Base, Inode, inode, or_here, show};

/// What the receiver writes below, once it has said so; of another host nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Destination(Arc<OnceLock<Option<Ground>>>);

/// A source as somebody typed it.
#[derive(Debug)]
pub(super) struct Typed {
    /// Where it is found; nowhere, for what is made on the spot.
    at: Option<(Arc<Base>, PathBuf)>,
    /// What it is called at the destination; nothing, for what is in a directory.
    name: Option<Vec<u8>>,
    /// A link that was typed is followed.
    follow: OFlags,
}

/// A source as the kernel knows it.
struct Found {
    /// Device and inode.
    inode: Inode,
    /// Seen from the destination, if it is below that.
    below: Option<PathBuf>,
    /// The same of the name that was typed, which may be a link's.
    named: Option<PathBuf>,
    /// Where it would be copied to, seen from there.
    target: PathBuf,
}

/// Finds paths below the destination; what is above many sources is looked at once.
struct Below<'a> {
    ground: &'a Ground,
    known: HashMap<PathBuf, Option<PathBuf>>,
    parents: HashMap<PathBuf, Option<PathBuf>>,
}

impl Destination {
    /// The receiver says it.
    pub(super) fn tell(&self, ground: Option<Ground>) {
        // A second word of it is not heard.
        let _ = self.0.set(ground);
    }

    /// Whether the directory `name` in `dir` is it.
    pub(super) fn is(&self, dir: BorrowedFd<'_>, name: &std::ffi::CStr, stat: &Stat) -> bool {
        let Some(Some(ground)) = self.0.get() else { return false };
        match &ground.alone {
            None => inode(stat) == ground.directory,
            Some(alone) => {
                alone.as_bytes() == name.to_bytes() && fstat(dir).is_ok_and(|above| inode(&above) == ground.directory)
            }
        }
    }
}

impl Shared {
    /// The walks, less those of sources that are their own destination, once it is known what that is; none if the copy is
    /// over, or must not be.
    pub(super) fn less_destination(
        &self,
        walks: impl Iterator<Item = Walk> + Send,
        typed: &[Typed],
        how: &Listing,
    ) -> Option<impl Iterator<Item = Walk>> {
        if how.here {
            let mut state = lock(&self.state);
            while self.destination.0.get().is_none() {
                if self.flow.is_stopped() {
                    return None;
                }
                state = wait(&self.room, state);
            }
        }
        let troubles = match self.destination.0.get().and_then(Option::as_ref).map(|ground| look(ground, typed, how)) {
            Some(Err(error)) => {
                self.flow.fail(error);
                return None;
            }
            Some(Ok(troubles)) => troubles,
            None => Vec::new(),
        };
        let walk = |(walk, trouble): (Walk, Option<Walk>)| trouble.unwrap_or(walk);
        Some(walks.zip(troubles.into_iter().chain(iter::repeat_with(|| None))).map(walk))
    }
}

/// In the place of each source that is its own destination, a walk that says so; an error, if it is the only one or anything
/// would be deleted that is to be copied.
fn look(ground: &Ground, typed: &[Typed], how: &Listing) -> Result<Vec<Option<Walk>>, TransferError> {
    let mut below = Below { ground, known: HashMap::new(), parents: HashMap::new() };
    let found: Vec<_> = typed.iter().map(|typed| below.find(typed)).collect();
    if how.delete
        && let Some(at) = would_delete(&found)
    {
        return Err(TransferError::WouldDelete { path: typed[at].shown() });
    }
    let troubles = found.iter().map(|found| found.as_ref().and_then(|found| found.trouble(ground)));
    let instead = |(source, why): (&Typed, Option<Unsent>)| match (why, &source.at) {
        (Some(why), _) if typed.len() == 1 => Err(why.into_error(source.shown())),
        (Some(why), Some((_, path))) => Ok(Some(Walk::missed(path, &why, how.clone()))),
        _ => Ok(None),
    };
    typed.iter().zip(troubles).map(instead).collect()
}

/// The first source that is in a place which another, or it itself, is copied to: there everything else is deleted.
fn would_delete(found: &[Option<Found>]) -> Option<usize> {
    let mut targets: HashMap<&Path, usize> = HashMap::new();
    for found in found.iter().flatten() {
        *targets.entry(&found.target).or_default() += 1;
    }
    found.iter().position(|found| {
        let Some(Found { below: Some(below), target, .. }) = found else { return false };
        below.ancestors().any(|above| {
            let own = usize::from(above == below && above == target);
            targets.get(above).is_some_and(|times| *times > own)
        })
    })
}

impl Typed {
    pub(super) fn of(source: &Source, how: &Listing) -> Self {
        let (at, name) = match source {
            Source::File { base, path } => (Some((base, path)), own_name(path.as_os_str().as_bytes())),
            // What is picked goes where it stands in the directory.
            Source::Some { base, path, .. } => (Some((base, path)), None),
            Source::Unread { .. } | Source::Random { .. } | Source::Zero { .. } => (None, None),
        };
        let follow = if name.is_some() && how.keep.links { OFlags::NOFOLLOW } else { OFlags::empty() };
        let at = at.map(|(base, path)| (base.clone(), path.clone()));
        Typed { at, name: name.map(Into::into), follow }
    }

    fn shown(&self) -> String {
        self.at.as_ref().map(|(_, path)| show(path)).unwrap_or_default()
    }
}

impl Found {
    fn trouble(&self, ground: &Ground) -> Option<Unsent> {
        let itself = |path: &Option<PathBuf>| path.as_ref() == Some(&self.target);
        if itself(&self.below) || itself(&self.named) || ground.file == Some(self.inode) {
            return Some(Unsent::Same);
        }
        (ground.alone.is_none() && self.inode == ground.directory).then_some(Unsent::Destination)
    }
}

impl Below<'_> {
    /// Nothing of what cannot be found: who lists it will say so.
    fn find(&mut self, typed: &Typed) -> Option<Found> {
        let (base, path) = typed.at.as_ref()?;
        let top = base.top();
        let path = or_here(path);
        let (stat, way) = real(base, path, typed.follow).ok()?;
        let name = typed.name.as_deref().map(|name| Path::new(std::ffi::OsStr::from_bytes(name)));
        let alone = self.ground.alone.as_ref().map(|alone| Path::new(std::ffi::OsStr::from_bytes(alone.as_bytes())));
        // The one file takes the name of the destination, a directory goes into one of that name.
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory;
        let target = alone.into_iter().chain(name.filter(|_| alone.is_none() || !is_file)).collect();
        let named = name.and_then(|name| Some(self.parent(base, path)?.join(name)));
        Some(Found { inode: inode(&stat), below: self.of(&way, top), named, target })
    }

    /// Where the directory is that the name was typed in.
    fn parent(&mut self, base: &Base, path: &Path) -> Option<PathBuf> {
        let parent = or_here(path.parent()?).to_owned();
        if let Some(known) = self.parents.get(&parent) {
            return known.clone();
        }
        let below = real(base, &parent, OFlags::empty()).ok().and_then(|(_, way)| self.of(&way, base.top()));
        self.parents.insert(parent, below.clone());
        below
    }

    /// A path of the kernel's, seen from the destination. What a served directory is in is not for its clients to
    /// learn: `top` is the last one that is looked at.
    fn of(&mut self, way: &Path, top: Option<Inode>) -> Option<PathBuf> {
        if let Some(known) = self.known.get(way) {
            return known.clone();
        }
        let there = stat(way).ok().map(|stat| inode(&stat));
        let below = if there == Some(self.ground.directory) {
            Some(PathBuf::new())
        } else if there.is_some() && there == top {
            None
        } else {
            let above = way.parent().and_then(|parent| self.of(parent, top));
            above.zip(way.file_name()).map(|(above, name)| above.join(name))
        };
        self.known.insert(way.to_owned(), below.clone());
        below
    }
}

/// What it is, and its path without any link in it.
fn real(base: &Base, path: &Path, follow: OFlags) -> io::Result<(Stat, PathBuf)> {
    let there = base.open(path, OFlags::PATH | follow)?;
    let way = fs::read_link(format!("/proc/self/fd/{}", there.as_raw_fd()))?;
    Ok((fstat(&there)?, way))
}
