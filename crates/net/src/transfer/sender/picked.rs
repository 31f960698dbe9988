//! Some names below a directory, as a list names them (`--files-from`): each with the directories on the way to it.
//!
//! The names are sorted, so that a directory is listed once, before what is in it. A name of a directory stands for all
//! that is in it, and what else is named in there is in that. Rules are asked about the names, and about what is in
//! directories that are named, not about directories on the way (as rsync does). A directory on the way is listed once a name
//! in it is: where rules leave them all out, or none is there, it is not made.

use std::ffi::{CString, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::vec;

use lfn_core::transfer::entry::{Entry, Kind, Name};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Listing;
use super::origin::{Folder, Unsent};
use super::walk::{Step, told};

/// Names that are still to be listed.
#[derive(Debug)]
pub(super) struct Picked {
    names: vec::IntoIter<Name>,
    /// The directory below which they are, and those on the way to the last one.
    way: Vec<OnTheWay>,
    /// A directory that was named.
    whole: Option<Vec<u8>>,
}

/// A directory that names lead through.
#[derive(Debug)]
struct OnTheWay {
    inside: Inside,
    /// Its entry, until a name in it is listed.
    unlisted: Option<Step>,
}

/// A directory, and where it stands in the list.
type Inside = (Arc<Folder>, Vec<u8>);

/// What a name comes to: entries, and a directory that is to be entered behind them.
pub(super) type Found = (Vec<Step>, Option<Inside>);

impl Picked {
    pub(super) fn new(top: Arc<Folder>, mut names: Vec<Name>) -> Self {
        names.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        names.dedup();
        if let Some(root) = names.iter().find(|name| name.is_root()) {
            names = vec![root.clone()];
        }
        let way = vec![OnTheWay { inside: (top, Vec::new()), unlisted: None }];
        Picked { names: names.into_iter(), way, whole: None }
    }

    /// What the next name is.
    pub(super) fn next(&mut self, how: &Listing) -> Option<Found> {
        loop {
            let name = self.names.next()?;
            if self.whole.as_ref().is_some_and(|whole| is_below(name.as_bytes(), whole)) {
                continue;
            }
            if name.is_root() {
                return Some((Vec::new(), self.way.first().map(|top| top.inside.clone())));
            }
            let mut steps = Vec::new();
            let enter = self.find(&name, how, &mut steps).unwrap_or_else(|why| {
                steps.extend(told(Err(why), name.as_bytes()));
                None
            });
            self.whole = enter.as_ref().map(|(_, path)| path.clone());
            return Some((steps, enter));
        }
    }

    /// Goes to a name, from the last directory on the way that is on its way too.
    fn find(&mut self, name: &Name, how: &Listing, steps: &mut Vec<Step>) -> Result<Option<Inside>, Unsent> {
        let path = name.as_bytes();
        while self.way.len() > 1 && self.way.last().is_some_and(|way| !is_below(path, &way.inside.1)) {
            self.way.pop();
        }
        loop {
            let (folder, at) = self.way.last().map(|way| way.inside.clone()).ok_or(Unsent::NotFound)?;
            let start = if at.is_empty() { 0 } else { at.len() + 1 };
            let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |slash| start + slash);
            let (last, own) = (&path[start..end], OsStr::from_bytes(&path[start..end]).to_owned());
            let inside = Arc::new(Folder::Within { parent: folder.clone(), name: own });
            let dir = folder.open(OFlags::PATH).map_err(not_there)?;
            let c_name = CString::new(last).map_err(|_| Unsent::NotFound)?;
            if end == path.len() {
                let step = how.look(folder, dir.as_fd(), &c_name, path).map_err(vanished)?;
                let enters = matches!(&step, Some(Step::Entry(Entry { kind: Kind::Directory, .. }, _)));
                if matches!(step, Some(Step::Entry(..))) {
                    steps.extend(self.way.iter_mut().filter_map(|way| way.unlisted.take()));
                }
                steps.extend(step);
                return Ok(enters.then(|| (inside, path.to_vec())));
            }
            let unlisted = Some(how.on_the_way(dir.as_fd(), &c_name, &path[..end]).map_err(vanished)?);
            self.way.push(OnTheWay { inside: (inside, path[..end].to_vec()), unlisted });
        }
    }
}

/// It was not seen before: it need not have been there.
fn vanished(why: Unsent) -> Unsent {
    match why {
        Unsent::Vanished | Unsent::Changed => Unsent::NotFound,
        why => why,
    }
}

fn not_there(error: Errno) -> Unsent {
    vanished(Unsent::of("open its directory", error))
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}
