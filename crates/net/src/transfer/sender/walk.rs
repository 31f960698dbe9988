//! Lists what a source holds: itself if it is a file, the tree if it is a directory, each directory before what is in it
//! and its names in the order of their bytes.
//!
//! What is held is one directory's names for each level, never the tree; a directory of more than [`SORTED_AT_ONCE`]
//! names is listed in several sorted runs. Symbolic links inside a tree are never followed. What cannot be
//! listed is told where it stands and the rest goes on.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lfn_core::transfer::entry::{Entry, Kind, Modified, Name};
use lfn_core::transfer::filter::Decision;
use lfn_core::transfer::location::own_name;
use lfn_core::transfer::raw::Raw;
use lfn_core::units::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::{Errno, read};

use super::attributes::{add_owner, add_xattrs};
use super::origin::{Facts, Folder, Item, Origin, READ, Unsent};
use super::picked::Picked;
use super::{Listing, Source};
use crate::transfer::place::{Base, kind_of, now, or_here};

/// Names of one directory that are held and sorted together.
const SORTED_AT_ONCE: usize = if cfg!(test) { 100 } else { 1 << 16 };

/// Levels of a tree whose directories stay open; those above are opened again when the walk comes back.
const OPEN_LEVELS: usize = 32;

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    /// An entry, with what a file is read by.
    Entry(Entry, Option<Arc<Item>>),
    /// Something that cannot be listed.
    Missed { name: Name, what: String },
    /// A symbolic link, where they are left out; where it would stand in the list.
    LinkLeftOut(Vec<u8>),
    /// A device, a FIFO or a socket in a tree.
    SpecialLeftOut(Vec<u8>),
    /// Something that is not wanted. Nobody is told, but to look at it was work.
    Excluded,
}

/// A source being listed.
#[derive(Debug)]
pub(crate) struct Walk {
    how: Listing,
    /// Before the tree.
    first: VecDeque<Step>,
    /// The directory to be entered next, and where it stands in the list.
    enter: Option<(Arc<Folder>, Vec<u8>)>,
    levels: Vec<Level>,
    /// What is listed of a directory, if it is not all.
    picked: Option<Picked>,
}

/// A directory being listed.
struct Level {
    folder: Arc<Folder>,
    /// Where it stands in the list; empty if what is in it stands at the top.
    path: Vec<u8>,
    dir: Option<Dir>,
    /// Whether the directory is read to its end.
    ended: bool,
    /// In reverse.
    names: Vec<CString>,
    trouble: Option<Unsent>,
}

impl Walk {
    /// A source, or that it cannot be had.
    pub(crate) fn new(source: Source, how: Listing) -> Self {
        let typed = match &source {
            Source::File { path, .. } | Source::Some { path, .. } | Source::Unread { path, .. } => path.clone(),
            Source::Random { .. } | Source::Zero { .. } => PathBuf::new(),
        };
        Walk::try_new(source, how.clone()).unwrap_or_else(|why| Walk::missed(&typed, &why, how))
    }

    /// One that comes to nothing, and why.
    pub(super) fn missed(typed: &Path, why: &Unsent, how: Listing) -> Self {
        let name = own_name(typed.as_os_str().as_bytes()).unwrap_or_default();
        let place =
            if name == typed.as_os_str().as_bytes() { String::new() } else { format!(" ({})", typed.display()) };
        let missed = Step::Missed { name: name_near(name), what: format!("{why}{place}") };
        Walk { first: [missed].into(), ..Walk::of(how) }
    }

    /// A source that can be had.
    pub(crate) fn try_new(source: Source, how: Listing) -> Result<Self, Unsent> {
        let mut walk = Walk::of(how);
        match source {
            Source::File { base, path } => walk.typed(base, &path)?,
            Source::Some { base, path, names } => walk.pick(base, &path, names)?,
            Source::Unread { error, .. } => return Err(Unsent::File { doing: "read", source: error.into() }),
            Source::Random { seed, bytes } => walk.made("random", bytes, Origin::Random { seed })?,
            Source::Zero { bytes } => walk.made("zero", bytes, Origin::Zero)?,
        }
        Ok(walk)
    }

    fn of(how: Listing) -> Self {
        Walk { how, first: VecDeque::new(), enter: None, levels: Vec::new(), picked: None }
    }

    fn made(&mut self, name: &str, bytes: Bytes, origin: Origin) -> Result<(), Unsent> {
        let modified = self.how.made.unwrap_or_else(now);
        let entry = Entry::new(Name::new(name)?, Kind::File { length: bytes }, 0o666, modified)?;
        let item = Item::new(entry.name.clone(), origin);
        self.first.push_back(Step::Entry(entry, Some(item)));
        Ok(())
    }

    /// Names below a directory; a name of a directory stands for all that is in it.
    fn pick(&mut self, base: Arc<Base>, path: &Path, names: Vec<Name>) -> Result<(), Unsent> {
        let path = or_here(path).to_owned();
        let there = open_typed(&base, &path, OFlags::PATH)?;
        if FileType::from_raw_mode(fstat(&there).map_err(Unsent::typed)?.st_mode) != FileType::Directory {
            return Err(Unsent::NoDirectory);
        }
        self.picked = Some(Picked::new(Arc::new(Folder::Typed { base, path }), names));
        Ok(())
    }

    fn typed(&mut self, base: Arc<Base>, path: &Path) -> Result<(), Unsent> {
        let name = own_name(path.as_os_str().as_bytes());
        let path = or_here(path).to_owned();
        // A link that was typed stands for what it leads to, unless links are what is copied.
        let keep = name.is_some() && self.how.keep.links;
        let follow = if keep { OFlags::NOFOLLOW } else { OFlags::empty() };
        let there = open_typed(&base, &path, OFlags::PATH | follow)?;
        let stat = fstat(&there).map_err(Unsent::typed)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if name.is_some_and(|name| self.how.leaves_out(name, file_type)) {
            return Ok(());
        }
        match (file_type, name) {
            (FileType::Directory, name) => {
                let entry = self.how.entry(name.unwrap_or(b"."), Kind::Directory, &stat, || Ok(there))?;
                self.first.push_back(Step::Entry(entry, None));
                self.enter = Some((Arc::new(Folder::Typed { base, path }), name.unwrap_or_default().to_vec()));
            }
            // "file/" is refused by the kernel before; "." and ".." are directories.
            (_, None) => return Err(Unsent::NotFound),
            (FileType::RegularFile, Some(name)) => {
                if stat.st_size == 0 {
                    is_empty(base.open(&path, READ).map_err(Unsent::typed)?)?;
                }
                let origin = Origin::Typed { base, path, facts: Facts::of(&stat) };
                self.first.push_back(self.how.file(name, &stat, origin, || Ok(there))?);
            }
            (FileType::Symlink, Some(name)) => {
                let target = readlinkat(&there, "", Vec::new()).map_err(Unsent::typed)?;
                self.first.push_back(self.how.link(name, &stat, target)?);
            }
            (_, Some(_)) => return Err(Unsent::Kind(kind_of(&stat).unwrap_or("thing of unknown kind"))),
        }
        Ok(())
    }

    fn enter(&mut self, folder: Arc<Folder>, path: Vec<u8>) {
        self.levels.push(Level::open(folder, path));
        if let Some(above) = self.levels.len().checked_sub(1 + OPEN_LEVELS) {
            let level = &mut self.levels[above];
            if level.ended {
                level.dir = None;
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(first) = self.first.pop_front() {
                return Some(first);
            }
            if let Some((folder, path)) = self.enter.take() {
                self.enter(folder, path);
            }
            match self.levels.last_mut() {
                Some(level) => match level.next_name() {
                    Some(name) => {
                        let path = level.path_of(&name);
                        let step = told(level.look(&name, &path, &self.how), &path);
                        if let Some(Step::Entry(Entry { kind: Kind::Directory, .. }, _)) = &step {
                            self.enter = Some((level.folder_of(&name), path));
                        }
                        self.first.push_back(step.unwrap_or(Step::Excluded));
                    }
                    None => {
                        let level = self.levels.pop()?;
                        let trouble = level.trouble.and_then(|why| told(Err(why), &level.path));
                        self.first.extend(trouble);
                    }
                },
                None => {
                    let (steps, enter) = self.picked.as_mut()?.next(&self.how)?;
                    self.first.extend(steps);
                    if self.first.is_empty() {
                        self.first.push_back(Step::Excluded);
                    }
                    self.enter = enter;
                }
            }
        }
    }
}

/// What cannot be listed is told where it stands.
pub(super) fn told(step: Result<Option<Step>, Unsent>, path: &[u8]) -> Option<Step> {
    step.unwrap_or_else(|why| Some(Step::Missed { name: name_near(path), what: why.to_string() }))
}

impl Level {
    fn open(folder: Arc<Folder>, path: Vec<u8>) -> Self {
        let mut level = Level { folder, path, dir: None, ended: false, names: Vec::new(), trouble: None };
        if let Err(error) = level.reopen() {
            level.ended = true;
            level.trouble = Some(Unsent::of("open", error));
        }
        level
    }

    fn reopen(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        let dir = match self.dir.take() {
            Some(dir) => dir,
            None => Dir::new(self.folder.open(OFlags::RDONLY | OFlags::NONBLOCK)?)?,
        };
        self.dir.insert(dir).fd()
    }

    fn next_name(&mut self) -> Option<CString> {
        if self.names.is_empty() && !self.ended {
            self.read_names();
        }
        self.names.pop()
    }

    /// Reads as many names as are sorted together.
    fn read_names(&mut self) {
        let Some(dir) = &mut self.dir else { return };
        while self.names.len() < SORTED_AT_ONCE && !self.ended {
            match dir.read() {
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(Ok(entry)) => self.names.push(entry.file_name().to_owned()),
                Some(Err(error)) => {
                    self.ended = true;
                    self.trouble = Some(Unsent::of("read", error));
                }
                None => self.ended = true,
            }
        }
        self.names.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Where something in it stands in the list.
    fn path_of(&self, name: &CStr) -> Vec<u8> {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        [&self.path, slash, name.to_bytes()].concat()
    }

    fn folder_of(&self, name: &CStr) -> Arc<Folder> {
        let name = OsStr::from_bytes(name.to_bytes()).to_owned();
        Arc::new(Folder::Within { parent: self.folder.clone(), name })
    }

    fn look(&mut self, name: &CStr, path: &[u8], how: &Listing) -> Result<Option<Step>, Unsent> {
        let folder = self.folder.clone();
        let dir = self.reopen().map_err(|error| Unsent::of("open its directory", error))?;
        how.look(folder, dir, name, path)
    }
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Level").field("path", &self.path).field("names", &self.names.len()).finish_non_exhaustive()
    }
}

impl Listing {
    /// Whether the rules leave it out.
    fn leaves_out(&self, path: &[u8], file_type: FileType) -> bool {
        self.rules.decide(path, file_type == FileType::Directory) == Decision::Exclude
    }

    /// What `name` in `dir` is; nothing if it is not wanted.
    pub(super) fn look(
        &self,
        folder: Arc<Folder>,
        dir: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
    ) -> Result<Option<Step>, Unsent> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| match error {
            Errno::NOENT => Unsent::Vanished,
            error => Unsent::of("look at it", error),
        })?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if self.leaves_out(path, file_type) {
            return Ok(None);
        }
        let open = |flags| {
            let opened = openat(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            opened.map_err(|error| Unsent::of("open", error))
        };
        let step = match file_type {
            FileType::RegularFile => {
                // Nobody will open it to send it; whether it may be read is to be known all the same.
                if stat.st_size == 0 {
                    is_empty(open(READ)?)?;
                }
                let name = OsStr::from_bytes(name.to_bytes()).to_owned();
                self.file(path, &stat, Origin::Found { folder, name, facts: Facts::of(&stat) }, || open(OFlags::PATH))?
            }
            FileType::Directory if self.destination.is(dir, name, &stat) => return Err(Unsent::Destination),
            FileType::Directory => Step::Entry(self.entry(path, Kind::Directory, &stat, || open(OFlags::PATH))?, None),
            FileType::Symlink if !self.keep.links => Step::LinkLeftOut(path.to_vec()),
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new());
                self.link(path, &stat, target.map_err(|error| Unsent::of("read the link", error))?)?
            }
            _ => Step::SpecialLeftOut(path.to_vec()),
        };
        Ok(Some(step))
    }

    /// A directory on the way to what was named, whatever the rules say.
    pub(super) fn on_the_way(&self, dir: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> Result<Step, Unsent> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = openat(dir, name, flags, Mode::empty()).map_err(|error| Unsent::of("open", error))?;
        let stat = fstat(&there).map_err(|error| Unsent::of("look at it", error))?;
        if self.destination.is(dir, name, &stat) {
            return Err(Unsent::Destination);
        }
        Ok(Step::Entry(self.entry(path, Kind::Directory, &stat, || Ok(there))?, None))
    }

    fn file(
        &self,
        path: &[u8],
        stat: &Stat,
        origin: Origin,
        there: impl FnOnce() -> Result<OwnedFd, Unsent>,
    ) -> Result<Step, Unsent> {
        // Never negative for a regular file.
        let entry = self.entry(path, Kind::File { length: Bytes(stat.st_size as u64) }, stat, there)?;
        let item = Item::linked(entry.name.clone(), origin, stat);
        Ok(Step::Entry(entry, Some(item)))
    }

    /// Links have no attributes of their own that others than root could set; they are not kept.
    fn link(&self, path: &[u8], stat: &Stat, target: CString) -> Result<Step, Unsent> {
        let mut entry = plain(path, Kind::Symlink { target: Raw(target.into_bytes()) }, stat)?;
        add_owner(&mut entry, stat, self.keep, &self.accounts);
        Ok(Step::Entry(entry, None))
    }

    /// With what is kept of it; `there` opens it, if that is needed.
    fn entry(
        &self,
        path: &[u8],
        kind: Kind,
        stat: &Stat,
        there: impl FnOnce() -> Result<OwnedFd, Unsent>,
    ) -> Result<Entry, Unsent> {
        let mut entry = plain(path, kind, stat)?;
        add_owner(&mut entry, stat, self.keep, &self.accounts);
        if self.keep.xattrs || self.keep.acls {
            add_xattrs(&mut entry, there()?, self.keep)?;
        }
        Ok(entry)
    }
}

/// Opens what was typed; a link that leads nowhere is told from what is not there.
fn open_typed(base: &Base, path: &Path, flags: OFlags) -> Result<OwnedFd, Unsent> {
    base.open(path, flags).map_err(|error| {
        let link = || base.open(path, OFlags::PATH | OFlags::NOFOLLOW).and_then(fstat).ok();
        let leads_nowhere = error == Errno::NOENT
            && link().is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        if leads_nowhere { Unsent::LeadsNowhere } else { Unsent::typed(error) }
    })
}

/// Whether a file that is listed as empty is: those of /proc are not, and would come as empty ones without a word.
fn is_empty(file: OwnedFd) -> Result<(), Unsent> {
    match read(&file, &mut [0; 1]) {
        // Of one that would have to be waited for, nothing is there.
        Ok(0) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(Unsent::of("read", error)),
        Ok(_) => {
            let length = fstat(&file).map_err(|error| Unsent::of("read", error))?.st_size;
            Err(if length == 0 { Unsent::Lengthless } else { Unsent::Changed })
        }
    }
}

fn plain(path: &[u8], kind: Kind, stat: &Stat) -> Result<Entry, Unsent> {
    let modified = Modified::new(stat.st_mtime, stat.st_mtime_nsec as u32)?;
    Ok(Entry::new(Name::new(path)?, kind, stat.st_mode & 0o7777, modified)?)
}

/// The name of what failed, or of the nearest directory above it that can be named.
fn name_near(path: &[u8]) -> Name {
    let mut path = path;
    loop {
        match (Name::new(path), path.iter().rposition(|byte| *byte == b'/')) {
            (Ok(name), _) => return name,
            (Err(_), Some(slash)) => path = &path[..slash],
            (Err(_), None) => path = b".",
        }
    }
}

#[cfg(test)]
mod tests;
