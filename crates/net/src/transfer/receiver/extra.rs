//! What is at the destination and not in the source: found while the list goes by, removed after everything was copied.
//!
//! The list names a directory before what is in it, and everything in it before what stands behind it. So the names
//! of the directories on the way to the present entry are all that is held, eight bytes for each; when the list leaves a
//! directory, what stands in it at the destination and was not named goes to a list of its own, which is on disk where it
//! grows long. A name is known by a hash: should two be alike, the wrong one stays.
//!
//! Nothing is removed if anything of the source could not be listed or sent, as with rsync's `--delete-after`: what is
//! missing from such a list may be there still. Nor is anything if the list of what goes could not be kept whole.
//! Partial files and journals are other copies' and stay.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use lfn_core::transfer::entry::{Entry, Kind, Name};
use lfn_core::transfer::filter::Decision;
use lfn_core::wire::copy::{Fate, Thing, Told};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::place::inode;
use super::Receiver;
use super::folded::{Alike, folded, has_another_spelling};
use super::tree::{Place, Tree, is_beside, split};

/// What is held of the list of what goes before it is written to disk.
const HELD: usize = 1 << 20;

/// Most names that are held, eight bytes each: those in directories that are still being listed, and those of the
/// destination's own directories. Where there are more, nothing is deleted.
const MOST_NAMES: usize = 16 << 20;

/// What a name is known by.
pub(super) type Fingerprint = u64;

/// The fingerprint of a name; that nobody can make two alike protects only what would be removed.
pub(super) fn fingerprint(name: &[u8]) -> Fingerprint {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(name).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// The same of what stands somewhere.
fn fingerprint_of(stat: &Stat) -> Fingerprint {
    let (device, number) = inode(stat);
    fingerprint(&[device.to_ne_bytes(), number.to_ne_bytes()].concat())
}

/// Whether it has one name; of several each is for itself.
fn is_single(stat: &Stat) -> bool {
    stat.st_nlink == 1 || FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// What is to be removed.
#[derive(Debug)]
pub(super) struct Extras {
    levels: Vec<Level>,
    /// Names of sources that stood in the list before the directory they go to.
    before: Vec<Fingerprint>,
    /// How many names are held in all, and how many may be.
    held: usize,
    most: usize,
    /// The destination's own directories that the list has left: only those may come again, from another source.
    left: HashSet<Fingerprint>,
    /// Why nothing may be deleted, and because of which directory.
    spoilt: Option<(Name, TransferError)>,
    found: Spool,
}

/// A directory whose names are still coming.
#[derive(Debug)]
struct Level {
    name: Name,
    names: Vec<Fingerprint>,
    /// The same of names as a file system that folds them may have them, where that is another.
    folded: Vec<Fingerprint>,
    /// What stood there already under the names of the list. A file system that changes names has it under others.
    known: Vec<Fingerprint>,
}

impl Level {
    /// Whether it is what a name of the list stands for, under another name.
    fn knows(&self, directory: &OwnedFd, name: &CStr) -> bool {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| is_single(&stat) && self.known.binary_search(&fingerprint_of(&stat)).is_ok())
    }

    /// Whether it is another spelling of a name of the list, and the file system takes the one for the other.
    fn spells(&self, directory: &OwnedFd, name: &[u8], alike: &mut Option<Alike>) -> bool {
        let folded = fingerprint(&folded(name));
        let is_listed = [&self.names, &self.folded].iter().any(|all| all.binary_search(&folded).is_ok());
        is_listed
            && has_another_spelling(directory, name)
            && !alike.get_or_insert_with(|| Alike::within(directory)).has(folded)
    }
}

impl Default for Extras {
    fn default() -> Self {
        Extras {
            levels: Vec::new(),
            before: Vec::new(),
            held: 0,
            most: MOST_NAMES,
            left: HashSet::new(),
            spoilt: None,
            found: Spool::default(),
        }
    }
}

impl Extras {
    /// Takes the next entry of the list; what it leaves is looked through.
    pub(super) fn pass(&mut self, receiving: &Receiver, tree: &Tree, entry: &Entry) {
        let name = entry.name.as_bytes();
        while let Some(level) = self.levels.pop_if(|level| !holds(&level.name, name)) {
            self.leave(receiving, tree, level);
        }
        self.note(entry);
        if entry.kind != Kind::Directory || (entry.name.is_root() && !self.levels.is_empty()) {
            return;
        }
        if self.left.contains(&fingerprint(stands_for(&entry.name))) {
            self.forbid(&entry.name, "comes from several sources: nothing is deleted");
        }
        let names = if entry.name.is_root() { std::mem::take(&mut self.before) } else { Vec::new() };
        self.levels.push(Level { name: entry.name.clone(), names, folded: Vec::new(), known: Vec::new() });
    }

    /// Holds the name of an entry with the directory it stands in.
    fn note(&mut self, entry: &Entry) {
        if !self.has_room(&entry.name) {
            return;
        }
        let (parent, last) = split(entry.name.as_bytes());
        let names = match self.levels.last_mut() {
            Some(level) if stands_for(&level.name) == parent => {
                let folded = folded(last);
                if folded != last {
                    level.folded.push(fingerprint(&folded));
                    self.held += 1;
                }
                &mut level.names
            }
            _ if parent.is_empty() && !entry.name.is_root() => &mut self.before,
            _ => return,
        };
        names.push(fingerprint(last));
        self.held += 1;
    }

    /// What stands under the name of an entry stays, whatever it is called there.
    pub(super) fn stands(&mut self, name: &Name, stat: &Stat) {
        let (parent, _) = split(name.as_bytes());
        let Some(at) = self.levels.iter().rposition(|level| stands_for(&level.name) == parent) else { return };
        // Before it is replaced: then one of its other names may be the only one.
        if is_single(stat) && self.has_room(name) {
            self.levels[at].known.push(fingerprint_of(stat));
            self.held += 1;
        }
    }

    /// Whether one more name may be held; without it nobody could tell what the source has.
    fn has_room(&mut self, name: &Name) -> bool {
        if self.held >= self.most {
            self.forbid(name, "is one name more than are remembered: nothing is deleted");
        }
        self.held < self.most
    }

    fn forbid(&mut self, name: &Name, why: &'static str) {
        self.spoil(name, TransferError::Forbidden { path: name.to_string(), why });
    }

    fn spoil(&mut self, name: &Name, error: TransferError) {
        self.spoilt.get_or_insert_with(|| (name.clone(), error));
    }

    /// Keeps the path of something to be removed, which stands in `directory`.
    fn keep(&mut self, directory: &Name, path: &[u8], open: impl FnOnce() -> Option<File>) {
        if self.spoilt.is_some() {
            return;
        }
        if let Err(source) = self.found.push(path, open) {
            let (doing, path) = ("note what to delete in", directory.to_string());
            self.spoil(directory, TransferError::File { doing, path, source });
        }
    }

    /// The list is complete, and all of it is settled: removes what was found, or says why not.
    pub(super) fn end(mut self, receiving: &Receiver, tree: &Tree) {
        while let Some(level) = self.levels.pop() {
            self.leave(receiving, tree, level);
        }
        if let Some((name, error)) = &self.spoilt {
            receiving.table.complain(name, error);
            receiving.table.not_deleted();
        } else if receiving.table.source_is_unknown() {
            receiving.table.not_deleted();
        } else if !receiving.stopped() {
            let removed = receiving.while_busy(|| self.found.each(|path| receiving.remove(tree, path)));
            if let Err(source) = removed {
                receiving.flow.fail(TransferError::File {
                    doing: "read what to delete in",
                    path: tree.shown().into(),
                    source,
                });
            }
        }
    }

    /// Looks through a directory that nothing more is listed of.
    fn leave(&mut self, receiving: &Receiver, tree: &Tree, mut level: Level) {
        let stood = stands_for(&level.name);
        self.held -= level.names.len() + level.folded.len() + level.known.len();
        if !stood.contains(&b'/') && self.has_room(&level.name) {
            self.held += usize::from(self.left.insert(fingerprint(stood)));
        }
        level.names.sort_unstable();
        level.folded.sort_unstable();
        level.known.sort_unstable();
        let found = receiving.while_busy(|| self.look_through(receiving, tree, &level));
        if let Err(error) = found {
            receiving.table.complain(&level.name, &error);
        }
    }

    fn look_through(&mut self, receiving: &Receiver, tree: &Tree, level: &Level) -> Result<(), TransferError> {
        let failed = |error| super::super::place::file_error("list", &tree.show(&level.name), error);
        let directory = match tree.inside(&level.name) {
            Ok(directory) => directory,
            // It could not be made, or would be.
            Err(_) => return Ok(()),
        };
        let mut alike = None;
        for entry in Dir::read_from(readable(&directory).map_err(failed)?).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || is_beside(OsStr::from_bytes(name)) {
                continue;
            }
            if level.names.binary_search(&fingerprint(name)).is_ok()
                || level.knows(&directory, entry.file_name())
                || level.spells(&directory, name, &mut alike)
            {
                continue;
            }
            let path = join(stands_for(&level.name), name);
            if !receiving.table.is_left_out(&path) && !receiving.protects(&directory, entry.file_name(), &path) {
                self.keep(&level.name, &path, || nameless(receiving, tree));
            }
        }
        Ok(())
    }
}

impl Receiver {
    /// Whether the rules of the copy exclude it, so that it stays.
    fn protects(&self, directory: impl AsFd, name: &CStr, path: &[u8]) -> bool {
        if self.manner.protect.is_empty() {
            return false;
        }
        let is_directory = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        self.manner.protect.decide(path, is_directory) == Decision::Exclude
    }

    /// Removes something with all it holds; what cannot be removed is said, and the rest goes on.
    fn remove(&self, tree: &Tree, path: &[u8]) {
        // What the kernel calls it can be named.
        let Ok(name) = Name::new(path) else { return };
        let (parent, last) = split(path);
        let removed = tree.beneath(parent).and_then(|directory| {
            let last = std::ffi::CString::new(last).map_err(|_| Errno::INVAL)?;
            let removed = || self.remove_in(&directory, &last, path.to_vec(), 0);
            // The top gets its attributes afterwards.
            if self.manner.dry_run || parent.is_empty() {
                removed()
            } else {
                self.dressing.unchanged(&directory, removed)
            }
        });
        if let Err(error) = removed.map(drop) {
            let path = tree.show(&name);
            self.table.complain(&name, &TransferError::File { doing: "delete", path, source: error.into() });
        }
    }

    /// Makes room where a directory stands and something else is to: with `all` whatever is in it goes, as with rsync's
    /// `--delete`, else only an empty one does. False if something in it stays.
    pub(super) fn make_way(&self, place: &Place, name: &Name, all: bool) -> Result<bool, TransferError> {
        let failed = |error| place.error("delete", error);
        let last = std::ffi::CString::new(place.name.as_bytes()).map_err(|_| failed(Errno::INVAL))?;
        let empty = match (all, self.manner.dry_run) {
            (true, _) => self.while_busy(|| self.empty(&place.directory, &last, name.as_bytes(), 0)).map_err(failed)?,
            // Whether it is, rmdir tells.
            (false, false) => true,
            (false, true) => is_empty(&place.directory, &last),
        };
        if !empty || self.manner.dry_run {
            return Ok(empty);
        }
        match unlinkat(&place.directory, &last, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes `name` from its directory; false if something in it stays.
    fn remove_in(&self, directory: impl AsFd, name: &CStr, path: Vec<u8>, depth: usize) -> Result<bool, Errno> {
        let stat = match self.on_disk(|| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Err(Errno::NOENT) => return Ok(true),
            result => result?,
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Thing::File,
            FileType::Directory => Thing::Directory,
            FileType::Symlink => Thing::Link,
            _ => Thing::Other,
        };
        if kind == Thing::Directory && !self.empty(&directory, name, &path, depth)? {
            return Ok(false);
        }
        if !self.manner.dry_run {
            let flags = if kind == Thing::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            self.on_disk(|| unlinkat(&directory, name, flags))?;
        }
        self.table.count_deleted(1);
        if let Ok(name) = Name::new(path) {
            self.tell(Told { name, kind, fate: Fate::Delete, bytes: None, digest: None });
        }
        Ok(true)
    }

    /// Removes what is in a directory; false if something stays.
    fn empty(&self, directory: impl AsFd, name: &CStr, path: &[u8], depth: usize) -> Result<bool, Errno> {
        // Each level holds a directory open.
        if depth == DEEPEST {
            return Err(Errno::MFILE);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = openat(&directory, name, flags, Mode::empty())?;
        let closed = if self.manner.dry_run { None } else { self.dressing.open_closed(&inside) };
        let removed = self.remove_all_in(&inside, path, depth);
        if let (false, Some(mode)) = (removed == Ok(true), closed) {
            let _ = self.dressing.close_again(&inside, mode);
        }
        removed
    }

    fn remove_all_in(&self, inside: &OwnedFd, path: &[u8], depth: usize) -> Result<bool, Errno> {
        let mut entries = Dir::read_from(inside)?;
        let mut empty = true;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            if self.stopped() {
                return Ok(false);
            }
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                beside if is_beside(OsStr::from_bytes(beside)) => empty = false,
                inner if self.protects(inside, entry.file_name(), &join(path, inner)) => empty = false,
                inner => empty &= self.remove_in(inside, entry.file_name(), join(path, inner), depth + 1)?,
            }
        }
        Ok(empty)
    }
}

fn is_empty(directory: &OwnedFd, name: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entries = openat(directory, name, flags, Mode::empty()).and_then(Dir::read_from);
    entries.is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
    })
}

/// How deep a directory may be below one that is removed.
const DEEPEST: usize = 256;

/// Paths with a NUL behind each, on disk where they are many.
#[derive(Debug, Default)]
struct Spool {
    held: Vec<u8>,
    written: Option<File>,
}

impl Spool {
    /// After an error what is held is not whole.
    fn push(&mut self, path: &[u8], open: impl FnOnce() -> Option<File>) -> std::io::Result<()> {
        self.held.extend_from_slice(path);
        self.held.push(0);
        if self.held.len() < HELD {
            return Ok(());
        }
        if self.written.is_none() {
            self.written = open();
        }
        if let Some(file) = &mut self.written {
            file.write_all(&self.held)?;
            self.held.clear();
        }
        Ok(())
    }

    /// A path that lost its end may be that of something else: it is none.
    fn each(self, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
        if let Some(mut file) = self.written {
            file.rewind()?;
            let mut bytes = BufReader::new(file);
            let mut path = Vec::new();
            while bytes.read_until(0, &mut path)? > 0 {
                path.strip_suffix(b"\0").into_iter().for_each(&mut take);
                path.clear();
            }
        }
        self.held.split_inclusive(|byte| *byte == 0).filter_map(|path| path.strip_suffix(b"\0")).for_each(take);
        Ok(())
    }
}

/// A file without a name at the destination, or where nothing may be written there, among this host's temporary ones; a file
/// system that knows no such files keeps all of it in memory.
fn nameless(receiving: &Receiver, tree: &Tree) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let opened = match receiving.manner.dry_run {
        true => openat(CWD, std::env::temp_dir(), flags, mode),
        false => tree.readable().and_then(|top| openat(&top, ".", flags, mode)),
    };
    opened.ok().map(File::from)
}

pub(super) fn readable(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The path of a directory below the destination; empty for the destination itself.
fn stands_for(name: &Name) -> &[u8] {
    if name.is_root() { b"" } else { name.as_bytes() }
}

/// Whether `name` stands somewhere in the directory.
fn holds(directory: &Name, name: &[u8]) -> bool {
    directory.is_root() || name.strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use lfn_core::transfer::entry::Modified;
    use lfn_core::transfer::manner::Manner;
    use lfn_core::units::Bytes;

    use super::super::super::flow::Flow;
    use super::super::super::place::Base;
    use super::super::super::teller::Teller;
    use super::*;

    #[test]
    fn names_that_cannot_all_be_held_are_no_ground_to_delete() {
        let modified = Modified::new(0, 0).unwrap();
        let kind = || Kind::File { length: Bytes(1) };
        let file = |name: &str| Entry::new(Name::new(name).unwrap(), kind(), 0o644, modified).unwrap();
        let mut extras = Extras { most: 3, ..Extras::default() };
        for name in ["a", "b", "c"] {
            extras.note(&file(name));
        }
        assert!(extras.spoilt.is_none() && extras.before.len() == 3);
        extras.note(&file("d"));
        assert_eq!((extras.spoilt.unwrap().0.to_string(), extras.before.len()), ("d".to_owned(), 3));
    }

    #[test]
    fn a_list_that_a_full_disk_keeps_in_part_is_no_ground_to_delete() {
        let mut extras = Extras::default();
        let full = || Some(File::options().read(true).write(true).open("/dev/full").unwrap());
        let directory = Name::new("d").unwrap();
        for _ in 0..=HELD / 201 {
            assert!(extras.spoilt.is_none());
            extras.keep(&directory, &[b'k'; 200], full);
        }
        let (name, error) = extras.spoilt.unwrap();
        assert!(name == directory && error.is_full(), "{error}");
    }

    #[test]
    fn a_dry_run_writes_nothing_where_it_would_delete() {
        let place = tempfile::tempdir().unwrap();
        let tree = Tree::open(&Base::Here, place.path(), false, true).unwrap();
        for dry_run in [false, true] {
            let manner = Manner { dry_run, ..Manner::default() };
            let aim = super::super::Aim::Null;
            let receiving =
                Receiver::start(aim, manner, Teller::default(), None, Bytes(1024), Flow::default()).unwrap();
            let file = nameless(&receiving, &tree).unwrap();
            let stands = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            assert_eq!(stands.starts_with(place.path()), !dry_run, "{}", stands.display());
            receiving.close();
        }
    }

    #[test]
    fn what_lost_its_end_is_no_path() {
        let mut written = tempfile::tempfile().unwrap();
        written.write_all(b"d/a\0d/b\0d/to").unwrap();
        let spool = Spool { held: b"e\0f/to".to_vec(), written: Some(written) };
        let mut paths = Vec::new();
        spool.each(|path| paths.push(path.to_vec())).unwrap();
        assert_eq!(paths, [&b"d/a"[..], b"d/b", b"e"]);
    }

    #[test]
    fn a_long_list_comes_back_whole() {
        let mut spool = Spool::default();
        let path = |n: usize| format!("{n:0>200}").into_bytes();
        (0..15_000).for_each(|n| spool.push(&path(n), || tempfile::tempfile().ok()).unwrap());
        assert!(spool.written.is_some());
        let mut next = 0;
        let take = |read: &[u8]| {
            assert_eq!(read, path(next));
            next += 1;
        };
        spool.each(take).unwrap();
        assert_eq!(next, 15_000);
    }
}
