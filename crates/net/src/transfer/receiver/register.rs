//! The register of a copy: looks at each listed entry, and at what stands in its place, and decides what is to happen.
//!
//! It goes through the list in order, so that a directory is there before what is in it. Directories get their times and
//! modes last, when nothing is written in them any more.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, Kind, Name};
use lfn_core::transfer::verdict::{Allowed, Obstacle, Skipped, There, Verdict, decide, decide_blind};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Fate, FromReceiver};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, symlinkat, utimensat};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::flow::lock;
use super::super::place::{Inode, inode, inode_of, only_regular, was_started_since};
use super::attributes::Body;
use super::compare::Job;
use super::directories::{Directories, Directory, is_below};
use super::dry::Made;
use super::extra::Extras;
use super::item::{Compared, Done, Item, Leads, Next};
use super::partial::{Partial, times};
use super::small::{Small, take_briefly};
use super::sources::{Before, Sources};
use super::tree::{Place, Tree, link_open, there};
use super::{Aim, Receiver, Sync};

/// How long it waits for directories to be finished while nothing comes: those that stand within each other wait for it.
const DIRECTORIES_WAIT: Duration = Duration::from_secs(20);

/// What the register knows while the list goes by.
pub(super) struct Pass {
    pub(super) allowed: Allowed,
    directories: Directories,
    pub(super) made: Made,
    pub(super) sources: Sources,
    /// What is to go, with `--delete`.
    extras: Extras,
    /// The directory that failed last: while the list is below it, no entry has a place.
    failed: Option<Name>,
}

impl Receiver {
    /// What the register thread does.
    pub(super) fn register(&self, aim: Aim) {
        if let Err(error) = self.look_at_all(aim) {
            self.flow.fail(error);
        }
    }

    fn look_at_all(&self, aim: Aim) -> Result<(), TransferError> {
        let dry_run = self.manner.dry_run;
        let (mut tree, allowed) = match aim {
            Aim::Null => (None, Allowed::default()),
            Aim::Path { base, path, allowed, single, .. } => {
                if let Some(written) = base.written() {
                    // This thread alone sets it.
                    let _ = self.written.set(written);
                }
                (Some(Tree::open(&base, &path, single, dry_run)?), allowed)
            }
        };
        // Blocks of a file that a quota does not let in are not to be paid for.
        let asks = self.set_aside.counts() || tree.as_ref().is_some_and(|tree| dry_run || !tree.is_fresh());
        self.asks.store(asks, Ordering::SeqCst);
        let path = tree.as_ref().map(|tree| tree.shown().to_owned());
        // Whoever may not look learns nothing of ages.
        let since = tree.as_ref().is_none_or(|tree| tree.guest().is_none()).then_some(self.since);
        let ground = tree.as_ref().filter(|tree| self.manner.here && tree.guest().is_none()).and_then(Tree::ground);
        self.table.say(FromReceiver::Ready { path, asks, since, ground });
        if tree.as_ref().is_some_and(Tree::is_alone) && !self.table.is_one_file(|| self.stopped()) && !self.stopped() {
            tree = tree.map(|tree| tree.for_directory(dry_run)).transpose()?;
        }
        // From before anything is written.
        if let Some(top) = tree.as_ref().filter(|_| !dry_run).and_then(|tree| tree.readable().ok()) {
            let _ = self.devices.note(&top.into());
        }
        // This thread alone sets it.
        let _ = self.tree.set(tree);
        let (directories, made, sources) = (Directories::default(), Made::default(), Sources::of(self.manner.several));
        let mut pass = Pass { allowed, directories, made, sources, extras: Extras::default(), failed: None };
        while let Some(next) = self.table.next(|| self.stopped()) {
            // Hard links and what was compared come back.
            if next.first {
                pass.directories.reach(next.number, &next.entry.name);
                if let Some(tree) = self.tree().filter(|_| self.manner.delete) {
                    pass.extras.pass(self, tree, &next.entry);
                }
            }
            self.look_at(next, &mut pass);
            let through = self.table.unsettled(|unsettled| pass.directories.through(unsettled));
            // What is removed from a directory is removed before it may be closed.
            self.graves.close(self);
            self.dress_all(through);
        }
        // Nobody is told that the copy has ended before the next one may have its partial files.
        self.graves.close(self);
        if self.stopped() { Ok(()) } else { self.finish(pass.directories, pass.extras) }
    }

    fn look_at(&self, next: Next, pass: &mut Pass) {
        let (number, name) = (next.number, next.entry.name.clone());
        let (first, is_directory) = (next.first, next.entry.kind == Kind::Directory);
        if first && pass.failed.as_ref().is_some_and(|failed| is_below(&name, failed)) {
            return self.table.settle(number, &name, Done::Below);
        }
        let before = if first { pass.sources.pass(number, &next.entry) } else { Before::Nothing };
        let result = match (self.tree(), before.objection(pass.allowed)) {
            (Some(tree), Some(why)) => {
                if self.manner.dry_run {
                    self.tell_of(&next.entry, Fate::Refuse);
                }
                Err(TransferError::Forbidden { path: tree.show(&name), why })
            }
            (Some(_), None) if before == Before::Same => Ok(Some(skipped(&next.entry))),
            (Some(tree), None) if self.manner.dry_run => self.would(tree, next, pass),
            (Some(tree), None) => self.find_room(tree, next, pass),
            (None, _) => self.forget(number, next.entry),
        };
        match result {
            Ok(Some(done)) => self.table.settle(number, &name, done),
            Ok(None) => {}
            Err(error) => {
                if is_directory && !name.is_root() {
                    pass.failed = Some(name.clone());
                }
                self.table.settle(number, &name, Done::Failed(error));
            }
        }
    }

    /// `null:` wants every file and nothing else.
    fn forget(&self, number: u32, entry: Entry) -> Result<Option<Done>, TransferError> {
        match entry.kind {
            Kind::File { length } => self.want(None, number, entry, length, false),
            Kind::Directory => Ok(Some(Done::Directory)),
            Kind::Symlink { .. } | Kind::HardLink { .. } => Ok(Some(Done::Link)),
        }
    }

    fn find_room(&self, tree: &Tree, next: Next, pass: &mut Pass) -> Result<Option<Done>, TransferError> {
        let Next { number, entry, compared, .. } = next;
        if entry.kind == Kind::Directory {
            self.wait_for_directories(tree, &entry, &mut pass.directories)?;
        }
        if entry.name.is_root() {
            let made = tree.is_made();
            if !tree.is_served_root() && (made || tree.guest().is_none()) {
                let was = self.open_up(tree, &entry);
                pass.directories.enter(Directory { number, entry, made, was });
            }
            return Ok(Some(if made { Done::Directory } else { Done::Skipped(Bytes(0)) }));
        }
        let place = tree.place(&entry.name)?;
        let Some((entry, file, apart)) = self.resolve(number, entry, tree, &place)? else { return Ok(None) };
        let stat = place.stat()?;
        let there = there(stat.as_ref());
        self.keep_what_stands(&entry.name, stat.as_ref(), pass);
        let equal = compared
            .map(|compared| compared.equal)
            .or_else(|| is_equal(&entry, &place, file.as_ref().and_then(inode_of)));
        let own = self.is_guests_own(tree, stat.as_ref());
        let verdict = match tree.guest() {
            // Of their own even a guest may know; no digest is computed for it.
            Some(_) if own => decide(&entry, there, equal, Allowed { checksum: false, ..pass.allowed }),
            Some(_) => decide_blind(&entry, there, pass.allowed),
            None if apart => decide_apart(&entry, &place, there, pass.allowed)?,
            None => decide(&entry, there, equal, pass.allowed),
        };
        let gives_way = matches!(verdict, Verdict::Replace | Verdict::Refuse(Obstacle::Directory));
        if gives_way && pass.sources.meet() && place.is_newer(self.since) {
            return Err(TransferError::Forbidden {
                path: place.shown,
                why: "another source of this copy has brought it",
            });
        }
        let verdict = if self.may_be_hollow(&place, verdict) { Verdict::Replace } else { verdict };
        if let (Verdict::Skip(_), Some(stat)) = (verdict, &stat) {
            self.note_there(number, &entry, &place, stat);
        }
        if verdict == Verdict::Skip(Skipped::Newer) && tree.guest().is_none() {
            self.note_left(number, &entry);
        }
        let replace = match verdict {
            Verdict::Take => false,
            Verdict::Skip(_) if tree.guest().is_some() => return Ok(Some(there_of_guest(&entry, own))),
            Verdict::Skip(why) => return self.skip(number, entry, place, (why, compared), pass),
            // An empty one holds nothing that could be lost.
            Verdict::Refuse(Obstacle::Directory) if self.make_way(&place, &entry.name, false)? => false,
            Verdict::Refuse(obstacle) => return Err(TransferError::InTheWay { path: place.shown, obstacle }),
            Verdict::Replace if there == There::Directory => {
                if !self.make_way(&place, &entry.name, !pass.sources.meet())? {
                    return Err(directory_in_the_way(place.shown));
                }
                false
            }
            Verdict::CompareDigests if self.manner.verify.tells_apart() => {
                return self.ask_digest(number, entry);
            }
            Verdict::Replace | Verdict::CompareDigests => true,
        };
        if compared.is_some() {
            // Its sender waits to hear that, though what it was compared with may be gone by now.
            self.table.differs(number);
        }
        let directory = Some((entry.name.clone(), place.clone())).filter(|_| entry.kind == Kind::Directory);
        let done = self.make(number, entry, place, file, replace, &mut pass.directories)?;
        if let Some((name, place)) = directory {
            self.keep_what_stands(&name, place.stat()?.as_ref(), pass);
        }
        Ok(done)
    }

    /// What an entry is a name of, if that is known by now: itself; with another name the file, held; or, where a newer one
    /// stays in the place of that, a file apart.
    fn resolve(
        &self,
        number: u32,
        entry: Entry,
        tree: &Tree,
        place: &Place,
    ) -> Result<Option<(Entry, Option<OwnedFd>, bool)>, TransferError> {
        let Kind::HardLink { to } = entry.kind else { return Ok(Some((entry, None, false))) };
        match self.leads(number, to, entry) {
            Leads::There(name, entry) => Ok(Some((entry, Some(self.hold(to, tree.place(&name)?)?), false))),
            Leads::Left(entry) => Ok(Some((entry, None, true))),
            Leads::Later => Ok(None),
            Leads::Gone => Err(TransferError::Forbidden {
                path: place.shown.clone(),
                why: "the file it is another name of is not there",
            }),
        }
    }

    /// What stands where an entry belongs is not deleted, whatever the file system calls it.
    pub(super) fn keep_what_stands(&self, name: &Name, stat: Option<&Stat>, pass: &mut Pass) {
        if let Some(stat) = stat.filter(|_| self.manner.delete) {
            pass.extras.stands(name, stat);
        }
    }

    /// Whether a file that is as it should be by its length and time may hold zeros: this copy named it before it was on
    /// disk, and the host was started anew since.
    fn may_be_hollow(&self, place: &Place, verdict: Verdict) -> bool {
        let same = verdict == Verdict::Skip(Skipped::Same) && self.manner.fsync != Sync::File;
        same && self.is_ours(place) && was_started_since(self.since)
    }

    /// Holds the file that a hard link leads to, if it is still what this copy left under its name.
    fn hold(&self, number: u32, place: Place) -> Result<OwnedFd, TransferError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&place.directory, &place.name, flags, Mode::empty());
        let file = opened.map_err(|e| place.error("open", e))?;
        if inode_of(&file).is_none_or(|there| self.table.noted(number).inode != Some(there)) {
            let why = "something else stands there by now: other names of it cannot be made";
            return Err(TransferError::Forbidden { path: place.shown, why });
        }
        Ok(file)
    }

    /// What a hard link leads to: where a newer file stays in the place of its own, it is no name of that one.
    pub(super) fn leads(&self, number: u32, to: u32, entry: Entry) -> Leads {
        match (self.table.linked(number, to, entry), self.table.noted(to).left) {
            (Leads::There(_, entry), Some(length)) => Leads::Left(Entry { kind: Kind::File { length }, ..entry }),
            (leads, _) => leads,
        }
    }

    /// Remembers of a file that a newer one stays in its place, if it has other names.
    pub(super) fn note_left(&self, number: u32, entry: &Entry) {
        if let (Kind::File { length }, true) = (&entry.kind, entry.linked) {
            self.table.note(number, |note| note.left = Some(*length));
        }
    }

    /// Remembers which file is there already, if it has other names, and that its file system holds what is to be on disk.
    fn note_there(&self, number: u32, entry: &Entry, place: &Place, stat: &Stat) {
        if entry.linked {
            self.table.note(number, |note| note.inode = Some(inode(stat)));
        }
        if entry.kind != Kind::Directory && self.manner.fsync != Sync::None {
            self.devices.note_there(stat.st_dev, || place.readable());
        }
    }

    /// Waits until one more directory may be held; those before it are through when what is in them has come.
    fn wait_for_directories(
        &self,
        tree: &Tree,
        entry: &Entry,
        directories: &mut Directories,
    ) -> Result<(), TransferError> {
        let came = || self.flow.progress().bytes;
        let (mut bytes, mut deadline) = (came(), Instant::now() + DIRECTORIES_WAIT);
        while !directories.have_room_for(entry) && !self.stopped() {
            if came() != bytes {
                (bytes, deadline) = (came(), Instant::now() + DIRECTORIES_WAIT);
            }
            if Instant::now() >= deadline {
                let why = "the names and attributes of directories that are not finished take more than 32 MiB";
                return Err(TransferError::Forbidden { path: tree.show(&entry.name), why });
            }
            let through = self.table.unsettled(|unsettled| directories.through_now(unsettled));
            if through.is_empty() {
                self.while_busy(|| thread::sleep(Duration::from_millis(10)));
            }
            self.graves.close(self);
            self.dress_all(through);
        }
        Ok(())
    }

    /// What stands there stays. A file of the same content takes the time too, so that the next copy need not compare.
    fn skip(
        &self,
        number: u32,
        entry: Entry,
        place: Place,
        (why, compared): (Skipped, Option<Compared>),
        pass: &mut Pass,
    ) -> Result<Option<Done>, TransferError> {
        let ours = self.is_ours(&place);
        let Kind::File { length } = entry.kind else {
            let done = |made| if ours { made } else { Done::Skipped(Bytes(0)) };
            if entry.kind == Kind::Directory {
                place.forget_replaced();
                let was = self.tree().and_then(|tree| self.open_up(tree, &entry));
                pass.directories.enter(Directory { number, entry, made: ours, was });
                return Ok(Some(done(Done::Directory)));
            }
            if why == Skipped::Newer {
                return Ok(Some(skipped(&entry)));
            }
            if matches!(entry.kind, Kind::Symlink { .. }) {
                self.dressing.dress_link(&place, &entry);
            }
            return self.link_is_there(number, entry, place, (Fate::There, done(Done::Link)));
        };
        if length > self.block && !Partial::is_there(&place)? {
            // A copy was killed when it had named the file.
            place.forget_journal();
        }
        // As with rsync a newer one stays as it is.
        if why == Skipped::Same && self.dressing.is_more() {
            self.dress_again(&place, &entry)?;
        }
        if why == Skipped::Same && compared.is_some() {
            let set = utimensat(&place.directory, &place.name, &times(&entry), AtFlags::SYMLINK_NOFOLLOW);
            // Another user's, whose time is right already.
            let right = || {
                Ok::<_, TransferError>(
                    there(place.stat()?.as_ref()) == There::File { length, modified: entry.modified },
                )
            };
            match set {
                Err(Errno::PERM | Errno::ACCESS) if right()? => {}
                set => set.map_err(|e| place.error("set the times of", e))?,
            }
        }
        let done = if ours { Done::Earlier(length) } else { Done::Skipped(length) };
        match compared.and_then(|compared| compared.digest) {
            _ if !self.manner.digests || why == Skipped::Newer => {}
            Some(digest) => self.tell_there(number, &entry, Fate::There, digest),
            None => {
                let layout = Layout::new(length, self.block)?;
                self.compare.push(Job { number, name: entry.name.clone(), layout, there: Some((entry, done)) });
                return Ok(None);
            }
        }
        Ok(Some(done))
    }

    /// Has the digest of a file computed at both ends.
    pub(super) fn ask_digest(&self, number: u32, entry: Entry) -> Result<Option<Done>, TransferError> {
        let Kind::File { length } = entry.kind else { return Ok(Some(skipped(&entry))) };
        let (layout, name) = (Layout::new(length, self.block)?, entry.name.clone());
        self.table.compare(number, entry);
        if layout.blocks() == 0 {
            self.table.theirs(number, Digest(*blake3::hash(&[]).as_bytes()));
        }
        self.compare.push(Job { number, name, layout, there: None });
        Ok(None)
    }

    /// Makes a directory or a link, and asks for a file; `file` is what a hard link leads to.
    fn make(
        &self,
        number: u32,
        entry: Entry,
        place: Place,
        file: Option<OwnedFd>,
        replace: bool,
        directories: &mut Directories,
    ) -> Result<Option<Done>, TransferError> {
        match &entry.kind {
            Kind::Directory => make_directory(&place, &entry, replace).map(|()| {
                directories.enter(Directory { number, entry, made: true, was: None });
                Some(Done::Directory)
            }),
            Kind::Symlink { target } => {
                let link = |name: &OsStr| symlinkat(target.as_bytes(), &place.directory, name);
                make_link(&place, replace, link)?;
                self.dressing.dress_link(&place, &entry);
                self.note_written(&entry.name);
                Ok(Some(Done::Link))
            }
            Kind::HardLink { .. } => {
                let Some(file) = file else { return Err(TransferError::Incomplete) };
                make_link(&place, replace, |name| link_open(&file, &place.directory, name))?;
                // Its time of change is a new one.
                self.note_written(&entry.name);
                let fate = if replace { Fate::Replace } else { Fate::New };
                self.link_is_there(number, entry, place, (fate, Done::Link))
            }
            &Kind::File { length } => self.want(Some(place), number, entry, length, replace),
        }
    }

    /// Asks for a file, less what an earlier copy left of it; an empty one is made at once.
    fn want(
        &self,
        place: Option<Place>,
        number: u32,
        entry: Entry,
        length: Bytes,
        replace: bool,
    ) -> Result<Option<Done>, TransferError> {
        let layout = Layout::new(length, self.block)?;
        let item = Arc::new(Item::new(number, entry, layout, replace, self.held.clone()));
        match place {
            Some(place) if layout.blocks() == 0 => {
                self.whole_small(&item, Small::write(place, &item.entry, &[], &self.dressing)?);
            }
            None if layout.blocks() == 0 => self.settle(&item, Ok(())),
            Some(place) if layout.blocks() > 1 && Partial::is_there(&place)? => {
                let mut words = Vec::new();
                if let Some(tree) = self.tree() {
                    // Those before it are wanted already, so that they come to their ends.
                    self.wait_for_partials(Duration::MAX);
                    let mut state = lock(&item.state);
                    let blocks = self.open_partial(tree, &item, &mut state).inspect_err(|_| self.give_up(&item))?;
                    if !blocks.is_empty() {
                        words.push(FromReceiver::Have { file: number, blocks });
                    }
                }
                self.table.want(item.clone(), words);
                self.try_complete(&item, true);
            }
            _ => {
                self.set_aside(&item, length)?;
                self.table.want(item, Vec::new());
            }
        }
        Ok(None)
    }

    /// Sets what is kept of a file that is there already, as rsync does.
    fn dress_again(&self, place: &Place, entry: &Entry) -> Result<(), TransferError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&place.directory, &place.name, flags, Mode::empty());
        let there = opened.map_err(|e| place.error("open", e))?;
        only_regular(&fstat(&there).map_err(|e| place.error("open", e))?, &place.shown)?;
        self.dressing.dress(Body::There(&there), entry).map_err(|(doing, e)| place.error(doing, e))
    }
}

/// That a directory stands in the place of something else.
pub(super) fn directory_in_the_way(path: String) -> TransferError {
    TransferError::Forbidden {
        path,
        why: "a directory is there, and something in it stays: excluded, or another copy's",
    }
}

/// What becomes of something that is there and a guest may know of.
fn there_of_guest(entry: &Entry, own: bool) -> Done {
    match entry.kind {
        Kind::File { length } if own => Done::Earlier(length),
        Kind::Symlink { .. } | Kind::HardLink { .. } if own => Done::Link,
        _ => skipped(entry),
    }
}

/// Something is there and stays.
pub(super) fn skipped(entry: &Entry) -> Done {
    match entry.kind {
        Kind::File { length } => Done::Skipped(length),
        _ => Done::Skipped(Bytes(0)),
    }
}

/// Whether what stands there is the same, where that can be told without reading files.
pub(super) fn is_equal(entry: &Entry, place: &Place, file: Option<Inode>) -> Option<bool> {
    match &entry.kind {
        Kind::Symlink { target } => {
            let there = readlinkat(&place.directory, &place.name, Vec::new()).ok()?;
            Some(there.to_bytes() == target.as_bytes())
        }
        Kind::HardLink { .. } => {
            let there = place.stat().ok()??;
            Some(inode(&there) == file?)
        }
        Kind::File { .. } | Kind::Directory => None,
    }
}

/// Makes a link; what a cut copy of a file left beside it goes.
fn make_link(place: &Place, replace: bool, link: impl Fn(&OsStr) -> Result<(), Errno>) -> Result<(), TransferError> {
    let stale = replace.then(|| take_briefly(place)).transpose()?;
    let made = place.make(replace, link);
    drop(stale);
    made
}

/// Decides about another name of a file in whose place a newer one stays: it is no name of that one, and what the source has
/// comes once only. One that is there of itself is as good.
pub(super) fn decide_apart(
    entry: &Entry,
    place: &Place,
    there: There,
    allowed: Allowed,
) -> Result<Verdict, TransferError> {
    match decide(entry, there, None, Allowed { checksum: false, ..allowed }) {
        skip @ Verdict::Skip(_) => Ok(skip),
        _ => Err(TransferError::Forbidden {
            path: place.shown.clone(),
            why: "a newer file stays in the place of the one it is another name of: without --hard-links it is copied",
        }),
    }
}

fn make_directory(place: &Place, entry: &Entry, replace: bool) -> Result<(), TransferError> {
    // Its owner writes into it before it gets its own mode.
    let mode = Mode::from_raw_mode(entry.mode & 0o777 | 0o700);
    let make = |name: &OsStr| mkdirat(&place.directory, name, mode);
    if !replace {
        return make(&place.name).map_err(|e| place.error("create", e));
    }
    // What a cut copy of a file left beside it goes.
    let stale = take_briefly(place)?;
    let made = place.make_directory(mode);
    drop(stale);
    made
}
