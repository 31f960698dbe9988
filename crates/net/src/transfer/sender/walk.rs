//! Walks a source and lists its entries: a file itself, or a directory tree. Each directory comes before its contents,
//! and its names come in the order of their bytes.
//!
//! The walk keeps the names of one directory for each level, never the whole tree. A directory with more than
//! [`NAMES_PER_RUN`] names is listed in several sorted runs. Symbolic links inside a tree are never followed. An entry
//! that cannot be listed is reported in its place in the list, and the walk continues.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lfn_core::transfer::byte_string::ByteString;
use lfn_core::transfer::entry::{Entry, EntryKind, Modified, Name};
use lfn_core::transfer::filter::Decision;
use lfn_core::transfer::location::final_name;
use lfn_core::units::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::{Errno, read};

use super::attributes::{add_owner, add_xattrs};
use super::files_from::FilesFrom;
use super::source_file::{FileVersion, ListedFile, READ_FLAGS, ReadError, SourceDir, SourceFile};
use super::{Listing, Source};
use crate::transfer::FileKind;
use crate::transfer::base_dir::{BaseDir, non_regular_kind, now, or_current_dir};

/// Maximum number of names of one directory that are kept and sorted together.
const NAMES_PER_RUN: usize = if cfg!(test) { 100 } else { 1 << 16 };

/// Number of levels with open directories. Directories above them are reopened when the walk returns.
const MAX_OPEN_LEVELS: usize = 32;

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum WalkStep {
    /// An entry, with the data of a file.
    Entry(Entry, Option<Arc<ListedFile>>),
    /// An entry that cannot be listed.
    Failed { name: Name, reason: String },
    /// A symbolic link that is skipped, with its path in the list.
    SkippedLink(Vec<u8>),
    /// A device, a FIFO or a socket that is skipped.
    SkippedSpecial(Vec<u8>),
    /// An excluded entry. It is not reported, but finding it counts as progress.
    Excluded,
}

/// The walk through one source.
#[derive(Debug)]
pub(crate) struct Walk {
    listing: Listing,
    /// Steps to return before the walk continues.
    ready: VecDeque<WalkStep>,
    /// The directory to enter next, and its path in the list.
    next_dir: Option<(Arc<SourceDir>, Vec<u8>)>,
    levels: Vec<DirLevel>,
    /// Names from a list, instead of the whole directory.
    files_from: Option<FilesFrom>,
}

/// A directory that is being listed.
struct DirLevel {
    source_dir: Arc<SourceDir>,
    /// Path in the list; empty if its contents are listed at the top.
    path: Vec<u8>,
    dir: Option<Dir>,
    is_complete: bool,
    /// Sorted in reverse order.
    names: Vec<CString>,
    error: Option<ReadError>,
}

impl Walk {
    /// Creates the walk of a source. If the source cannot be read, the walk reports this.
    pub(crate) fn new(source: Source, listing: Listing) -> Self {
        let typed = match &source {
            Source::File { path, .. } | Source::FilesFrom { path, .. } | Source::Unreadable { path, .. } => {
                path.clone()
            }
            Source::Random { .. } | Source::Zero { .. } => PathBuf::new(),
        };
        Walk::try_new(source, listing.clone()).unwrap_or_else(|why| Walk::failed(&typed, &why, listing))
    }

    /// Creates a walk that only reports a failure.
    pub(super) fn failed(typed: &Path, why: &ReadError, listing: Listing) -> Self {
        let name = final_name(typed.as_os_str().as_bytes()).unwrap_or_default();
        let place =
            if name == typed.as_os_str().as_bytes() { String::new() } else { format!(" ({})", typed.display()) };
        let missed = WalkStep::Failed { name: nearest_valid_name(name), reason: format!("{why}{place}") };
        Walk { ready: [missed].into(), ..Walk::empty(listing) }
    }

    /// Creates the walk of a source.
    ///
    /// # Errors
    /// [`ReadError`] if the source cannot be read.
    pub(crate) fn try_new(source: Source, listing: Listing) -> Result<Self, ReadError> {
        let mut walk = Walk::empty(listing);
        match source {
            Source::File { base, path } => walk.add_named(base, &path)?,
            Source::FilesFrom { base, path, names } => walk.add_files_from(base, &path, names)?,
            Source::Unreadable { error, .. } => return Err(ReadError::Io { doing: "read", source: error.into() }),
            Source::Random { seed, bytes } => walk.add_generated("random", bytes, SourceFile::Random { seed })?,
            Source::Zero { bytes } => walk.add_generated("zero", bytes, SourceFile::Zero)?,
        }
        Ok(walk)
    }

    fn empty(listing: Listing) -> Self {
        Walk { listing, ready: VecDeque::new(), next_dir: None, levels: Vec::new(), files_from: None }
    }

    fn add_generated(&mut self, name: &str, bytes: Bytes, file: SourceFile) -> Result<(), ReadError> {
        let modified = self.listing.generated_at.unwrap_or_else(now);
        let entry = Entry::new(Name::new(name)?, EntryKind::File { length: bytes }, 0o666, modified)?;
        let listed_file = ListedFile::new(entry.name.clone(), file);
        self.ready.push_back(WalkStep::Entry(entry, Some(listed_file)));
        Ok(())
    }

    /// Adds names from a list. The name of a directory includes its contents.
    fn add_files_from(&mut self, base: Arc<BaseDir>, path: &Path, names: Vec<Name>) -> Result<(), ReadError> {
        let path = or_current_dir(path).to_owned();
        let opened = open_named(&base, &path, OFlags::PATH)?;
        if FileType::from_raw_mode(fstat(&opened).map_err(ReadError::from_named)?.st_mode) != FileType::Directory {
            return Err(ReadError::NotDirectory);
        }
        self.files_from = Some(FilesFrom::new(Arc::new(SourceDir::Named { base, path }), names));
        Ok(())
    }

    fn add_named(&mut self, base: Arc<BaseDir>, path: &Path) -> Result<(), ReadError> {
        let name = final_name(path.as_os_str().as_bytes());
        let path = or_current_dir(path).to_owned();
        // A link given by the user is followed, unless links are copied as links.
        let keeps_link = name.is_some() && self.listing.preserve.links;
        let follow = if keeps_link { OFlags::NOFOLLOW } else { OFlags::empty() };
        let opened = open_named(&base, &path, OFlags::PATH | follow)?;
        let stat = fstat(&opened).map_err(ReadError::from_named)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if name.is_some_and(|name| self.listing.excludes(name, file_type)) {
            return Ok(());
        }
        match (file_type, name) {
            (FileType::Directory, name) => {
                let entry =
                    self.listing.build_entry(name.unwrap_or(b"."), EntryKind::Directory, &stat, || Ok(opened))?;
                self.ready.push_back(WalkStep::Entry(entry, None));
                self.next_dir = Some((Arc::new(SourceDir::Named { base, path }), name.unwrap_or_default().to_vec()));
            }
            // The kernel has refused "file/" before; "." and ".." are directories.
            (_, None) => return Err(ReadError::NotFound),
            (FileType::RegularFile, Some(name)) => {
                if stat.st_size == 0 {
                    check_empty(base.open(&path, READ_FLAGS).map_err(ReadError::from_named)?)?;
                }
                let file = SourceFile::Named { base, path, version: FileVersion::from_stat(&stat) };
                self.ready.push_back(self.listing.file_step(name, &stat, file, || Ok(opened))?);
            }
            (FileType::Symlink, Some(name)) => {
                let target = readlinkat(&opened, "", Vec::new()).map_err(ReadError::from_named)?;
                self.ready.push_back(self.listing.symlink_step(name, &stat, target)?);
            }
            (_, Some(_)) => {
                return Err(ReadError::NotRegular(non_regular_kind(&stat).unwrap_or(FileKind::Unknown)));
            }
        }
        Ok(())
    }

    fn enter_dir(&mut self, source_dir: Arc<SourceDir>, path: Vec<u8>) {
        self.levels.push(DirLevel::open(source_dir, path));
        if let Some(above) = self.levels.len().checked_sub(1 + MAX_OPEN_LEVELS) {
            let level = &mut self.levels[above];
            if level.is_complete {
                level.dir = None;
            }
        }
    }
}

impl Iterator for Walk {
    type Item = WalkStep;

    fn next(&mut self) -> Option<WalkStep> {
        loop {
            if let Some(first) = self.ready.pop_front() {
                return Some(first);
            }
            if let Some((source_dir, path)) = self.next_dir.take() {
                self.enter_dir(source_dir, path);
            }
            match self.levels.last_mut() {
                Some(level) => match level.next_name() {
                    Some(name) => {
                        let path = level.path_of(&name);
                        let step = or_failed(level.list_entry(&name, &path, &self.listing), &path);
                        if let Some(WalkStep::Entry(Entry { kind: EntryKind::Directory, .. }, _)) = &step {
                            self.next_dir = Some((level.dir_of(&name), path));
                        }
                        self.ready.push_back(step.unwrap_or(WalkStep::Excluded));
                    }
                    None => {
                        let level = self.levels.pop()?;
                        let error = level.error.and_then(|why| or_failed(Err(why), &level.path));
                        self.ready.extend(error);
                    }
                },
                None => {
                    let (steps, enter) = self.files_from.as_mut()?.next(&self.listing)?;
                    self.ready.extend(steps);
                    if self.ready.is_empty() {
                        self.ready.push_back(WalkStep::Excluded);
                    }
                    self.next_dir = enter;
                }
            }
        }
    }
}

/// Converts an error to a step that reports the failure.
pub(super) fn or_failed(step: Result<Option<WalkStep>, ReadError>, path: &[u8]) -> Option<WalkStep> {
    step.unwrap_or_else(|why| Some(WalkStep::Failed { name: nearest_valid_name(path), reason: why.to_string() }))
}

impl DirLevel {
    fn open(source_dir: Arc<SourceDir>, path: Vec<u8>) -> Self {
        let mut level = DirLevel { source_dir, path, dir: None, is_complete: false, names: Vec::new(), error: None };
        if let Err(error) = level.reopen() {
            level.is_complete = true;
            level.error = Some(ReadError::from_errno("open", error));
        }
        level
    }

    fn reopen(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        let dir = match self.dir.take() {
            Some(dir) => dir,
            None => Dir::new(self.source_dir.open(OFlags::RDONLY | OFlags::NONBLOCK)?)?,
        };
        self.dir.insert(dir).fd()
    }

    fn next_name(&mut self) -> Option<CString> {
        if self.names.is_empty() && !self.is_complete {
            self.read_names();
        }
        self.names.pop()
    }

    /// Reads as many names as are sorted together.
    fn read_names(&mut self) {
        let Some(dir) = &mut self.dir else { return };
        while self.names.len() < NAMES_PER_RUN && !self.is_complete {
            match dir.read() {
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(Ok(entry)) => self.names.push(entry.file_name().to_owned()),
                Some(Err(error)) => {
                    self.is_complete = true;
                    self.error = Some(ReadError::from_errno("read", error));
                }
                None => self.is_complete = true,
            }
        }
        self.names.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Returns the path of a name in this directory.
    fn path_of(&self, name: &CStr) -> Vec<u8> {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        [&self.path, slash, name.to_bytes()].concat()
    }

    fn dir_of(&self, name: &CStr) -> Arc<SourceDir> {
        let name = OsStr::from_bytes(name.to_bytes()).to_owned();
        Arc::new(SourceDir::Within { parent: self.source_dir.clone(), name })
    }

    fn list_entry(&mut self, name: &CStr, path: &[u8], listing: &Listing) -> Result<Option<WalkStep>, ReadError> {
        let source_dir = self.source_dir.clone();
        let dir = self.reopen().map_err(|error| ReadError::from_errno("open its directory", error))?;
        listing.list_entry(source_dir, dir, name, path)
    }
}

impl std::fmt::Debug for DirLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Level").field("path", &self.path).field("names", &self.names.len()).finish_non_exhaustive()
    }
}

impl Listing {
    /// Returns whether the filter rules exclude the path.
    fn excludes(&self, path: &[u8], file_type: FileType) -> bool {
        self.rules.decide(path, file_type == FileType::Directory) == Decision::Exclude
    }

    /// Returns the step for `name` in `dir`; `None` if the rules exclude it.
    pub(super) fn list_entry(
        &self,
        source_dir: Arc<SourceDir>,
        dir: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
    ) -> Result<Option<WalkStep>, ReadError> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| match error {
            Errno::NOENT => ReadError::Vanished,
            error => ReadError::from_errno("read the attributes", error),
        })?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if self.excludes(path, file_type) {
            return Ok(None);
        }
        let open = |flags| {
            let opened = openat(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            opened.map_err(|error| ReadError::from_errno("open", error))
        };
        let step = match file_type {
            FileType::RegularFile => {
                // No stream opens an empty file, so check here whether it can be read.
                if stat.st_size == 0 {
                    check_empty(open(READ_FLAGS)?)?;
                }
                let name = OsStr::from_bytes(name.to_bytes()).to_owned();
                self.file_step(
                    path,
                    &stat,
                    SourceFile::InTree { dir: source_dir, name, version: FileVersion::from_stat(&stat) },
                    || open(OFlags::PATH),
                )?
            }
            FileType::Directory if self.destination.matches(dir, name, &stat) => return Err(ReadError::IsDestination),
            FileType::Directory => {
                WalkStep::Entry(self.build_entry(path, EntryKind::Directory, &stat, || open(OFlags::PATH))?, None)
            }
            FileType::Symlink if !self.preserve.links => WalkStep::SkippedLink(path.to_vec()),
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new());
                self.symlink_step(path, &stat, target.map_err(|error| ReadError::from_errno("read the link", error))?)?
            }
            _ => WalkStep::SkippedSpecial(path.to_vec()),
        };
        Ok(Some(step))
    }

    /// Lists a parent directory of a name from a list. Filter rules do not apply.
    pub(super) fn list_parent_dir(&self, dir: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> Result<WalkStep, ReadError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(dir, name, flags, Mode::empty()).map_err(|error| ReadError::from_errno("open", error))?;
        let stat = fstat(&opened).map_err(|error| ReadError::from_errno("read the attributes", error))?;
        if self.destination.matches(dir, name, &stat) {
            return Err(ReadError::IsDestination);
        }
        Ok(WalkStep::Entry(self.build_entry(path, EntryKind::Directory, &stat, || Ok(opened))?, None))
    }

    fn file_step(
        &self,
        path: &[u8],
        stat: &Stat,
        file: SourceFile,
        open: impl FnOnce() -> Result<OwnedFd, ReadError>,
    ) -> Result<WalkStep, ReadError> {
        // The length of a regular file is never negative.
        let entry = self.build_entry(path, EntryKind::File { length: Bytes(stat.st_size as u64) }, stat, open)?;
        let listed_file = ListedFile::linked(entry.name.clone(), file, stat);
        Ok(WalkStep::Entry(entry, Some(listed_file)))
    }

    /// Builds the step of a symbolic link. Only root can set extended attributes of links, so they are not preserved.
    fn symlink_step(&self, path: &[u8], stat: &Stat, target: CString) -> Result<WalkStep, ReadError> {
        let mut entry = basic_entry(path, EntryKind::Symlink { target: ByteString(target.into_bytes()) }, stat)?;
        add_owner(&mut entry, stat, self.preserve, &self.accounts);
        Ok(WalkStep::Entry(entry, None))
    }

    /// Builds an entry with its preserved attributes. `open` opens the file if necessary.
    fn build_entry(
        &self,
        path: &[u8],
        kind: EntryKind,
        stat: &Stat,
        open: impl FnOnce() -> Result<OwnedFd, ReadError>,
    ) -> Result<Entry, ReadError> {
        let mut entry = basic_entry(path, kind, stat)?;
        add_owner(&mut entry, stat, self.preserve, &self.accounts);
        if self.preserve.xattrs || self.preserve.acls {
            add_xattrs(&mut entry, open()?, self.preserve)?;
        }
        Ok(entry)
    }
}

/// Opens a path that the user or the client gave. Distinguishes a dangling link from a path that does not exist.
fn open_named(base: &BaseDir, path: &Path, flags: OFlags) -> Result<OwnedFd, ReadError> {
    base.open(path, flags).map_err(|error| {
        let link = || base.open(path, OFlags::PATH | OFlags::NOFOLLOW).and_then(fstat).ok();
        let leads_nowhere = error == Errno::NOENT
            && link().is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        if leads_nowhere { ReadError::DanglingLink } else { ReadError::from_named(error) }
    })
}

/// Checks that a file of length 0 is empty. Files of /proc have length 0 and contain data, and must not be copied as
/// empty files.
fn check_empty(file: OwnedFd) -> Result<(), ReadError> {
    match read(&file, &mut [0; 1]) {
        // EAGAIN: a read would have to wait, so the file contains no data now.
        Ok(0) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(ReadError::from_errno("read", error)),
        Ok(_) => {
            let length = fstat(&file).map_err(|error| ReadError::from_errno("read", error))?.st_size;
            Err(if length == 0 { ReadError::UnknownLength } else { ReadError::Changed })
        }
    }
}

fn basic_entry(path: &[u8], kind: EntryKind, stat: &Stat) -> Result<Entry, ReadError> {
    let modified = Modified::new(stat.st_mtime, stat.st_mtime_nsec as u32)?;
    Ok(Entry::new(Name::new(path)?, kind, stat.st_mode & 0o7777, modified)?)
}

/// Returns the name of a failed entry, or of its nearest parent directory with a valid name.
fn nearest_valid_name(path: &[u8]) -> Name {
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
