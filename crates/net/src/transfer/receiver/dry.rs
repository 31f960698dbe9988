//! A dry run: what would become of each entry is found out as a copy finds it out, told, and not done.
//!
//! What is below a directory that would be made is new; everything else is looked at where it stands. What only a write
//! finds out (a full disk, a directory that may not be written) is not known here, nor is what a source's files hold.

use lfn_core::transfer::entry::{Entry, Kind, Name};
use lfn_core::transfer::verdict::{Obstacle, Skipped, There, Verdict, decide};
use lfn_core::wire::copy::{Fate, Thing, Told};

use super::super::TransferError;
use super::super::place::inode;
use super::Receiver;
use super::item::{Done, Leads, Next};
use super::register::{Pass, decide_apart, is_equal, skipped};
use super::tree::{Tree, there};

/// What a dry run remembers from entry to entry.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The topmost directory that would be made, on the way to the present entry.
    top: Option<Name>,
}

impl Made {
    fn holds(&self, name: &Name) -> bool {
        let within =
            |top: &Name| name.as_bytes().strip_prefix(top.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
        self.top.as_ref().is_some_and(within)
    }
}

impl Receiver {
    /// Tells what would become of an entry.
    pub(super) fn would(&self, tree: &Tree, next: Next, pass: &mut Pass) -> Result<Option<Done>, TransferError> {
        let Next { number, entry, compared, .. } = next;
        tree.may_be_given(&entry.name)?;
        if tree.is_missing() || pass.made.holds(&entry.name) {
            self.tell_of(&entry, Fate::New);
            return Ok(Some(planned(&entry)));
        }
        if entry.name.is_root() {
            return Ok(Some(skipped(&entry)));
        }
        let place = tree.place(&entry.name)?;
        let (entry, file, apart) = match entry.kind {
            Kind::HardLink { to } => match self.leads(number, to, entry) {
                Leads::There(name, entry) => {
                    (entry, tree.place(&name).and_then(|place| place.stat()).ok().flatten(), false)
                }
                Leads::Left(entry) => (entry, None, true),
                Leads::Later => return Ok(None),
                Leads::Gone => return Ok(Some(Done::Link)),
            },
            _ => (entry, None, false),
        };
        let stat = place.stat()?;
        self.keep_what_stands(&entry.name, stat.as_ref(), pass);
        let there = there(stat.as_ref());
        let equal =
            compared.map(|compared| compared.equal).or_else(|| is_equal(&entry, &place, file.as_ref().map(inode)));
        let decided = match apart {
            true => {
                decide_apart(&entry, &place, there, pass.allowed).inspect_err(|_| self.tell_of(&entry, Fate::Refuse))?
            }
            false => decide(&entry, there, equal, pass.allowed),
        };
        let fate = match decided {
            Verdict::Take => Fate::New,
            Verdict::Skip(Skipped::Same) => return Ok(Some(skipped(&entry))),
            Verdict::Skip(Skipped::Newer) => {
                self.note_left(number, &entry);
                self.tell_of(&entry, Fate::Newer);
                return Ok(Some(skipped(&entry)));
            }
            Verdict::CompareDigests if self.manner.verify.tells_apart() => {
                return self.ask_digest(number, entry);
            }
            Verdict::Refuse(Obstacle::Directory) if self.make_way(&place, &entry.name, false)? => Fate::Replace,
            Verdict::Refuse(obstacle) => {
                self.tell_of(&entry, Fate::Refuse);
                return Err(TransferError::InTheWay { path: place.shown, obstacle });
            }
            Verdict::Replace
                if there == There::Directory && self.make_way(&place, &entry.name, !pass.sources.meet())? =>
            {
                Fate::Replace
            }
            Verdict::Replace if there == There::Directory => {
                self.tell_of(&entry, Fate::Refuse);
                return Err(super::register::directory_in_the_way(place.shown));
            }
            Verdict::Replace | Verdict::CompareDigests => Fate::Replace,
        };
        self.tell_of(&entry, fate);
        if entry.kind == Kind::Directory {
            pass.made.top = Some(entry.name.clone());
        }
        Ok(Some(planned(&entry)))
    }

    pub(super) fn tell_of(&self, entry: &Entry, fate: Fate) {
        if !self.manner.tell {
            return;
        }
        let (kind, bytes) = match entry.kind {
            Kind::Directory => (Thing::Directory, None),
            Kind::File { length } => (Thing::File, Some(length)),
            Kind::Symlink { .. } | Kind::HardLink { .. } => (Thing::Link, None),
        };
        self.tell(Told { name: self.name_of(&entry.name), kind, fate, bytes, digest: None });
    }
}

fn planned(entry: &Entry) -> Done {
    match entry.kind {
        Kind::File { length } => Done::Planned(length),
        Kind::Directory => Done::Directory,
        Kind::Symlink { .. } | Kind::HardLink { .. } => Done::Link,
    }
}
