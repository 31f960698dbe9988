//! Walks directories in search of the names that copies give to incomplete files.
//!
//! Directories are opened by name inside their parent, and no symbolic link below the top is followed. Entries are
//! examined in the order of the kernel. Nothing is sorted or kept, except one open directory for each level.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lfn_session::wire::copy::byte_string::ByteString;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::base_dir::{open_error, or_current_dir, path_text};
use super::leftover_pair::LeftoverPair;
use crate::proto::leftover::{CleanRule, Leftover, LeftoverKind};

/// Maximum depth of directories: each level holds two descriptors.
const MAX_DEPTH: usize = 128;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An event of the search.
#[derive(Debug)]
pub enum CleanEvent {
    /// A file that a copy left, or a file with the name of one.
    Leftover(Leftover),
    /// A directory that could not be read.
    Unreadable { path: ByteString, reason: String },
}

/// Reports an event, or `None` for progress only. An error ends the search.
type Report<'a> = &'a mut dyn FnMut(Option<CleanEvent>) -> Result<(), TransferError>;

/// A directory that is being read.
struct Level {
    directory: OwnedFd,
    entries: Dir,
    path: Vec<u8>,
}

impl Level {
    fn new(directory: OwnedFd, path: Vec<u8>) -> Result<Self, Errno> {
        let entries = Dir::read_from(&directory)?;
        Ok(Level { directory, entries, path })
    }

    fn join(&self, name: &[u8]) -> Vec<u8> {
        match self.path.as_slice() {
            b"" => name.to_vec(),
            path if path.ends_with(b"/") => [path, name].concat(),
            path => [path, b"/", name].concat(),
        }
    }
}

/// Cleans everything below `place`. If `place` is not a directory, cleans the leftovers of a copy to this file.
pub(super) fn walk(place: &Path, rule: CleanRule, report: Report<'_>) -> Result<(), TransferError> {
    let failed = |error| open_error("read", &path_text(place), error);
    let top = match openat(CWD, or_current_dir(place), DIRECTORY, Mode::empty()) {
        Ok(directory) => Level::new(directory, place.as_os_str().as_bytes().to_vec()).map_err(failed)?,
        Err(error @ (Errno::NOENT | Errno::NOTDIR)) => {
            return if clean_single_file(place, rule, report)? { Ok(()) } else { Err(failed(error)) };
        }
        Err(error) => return Err(failed(error)),
    };
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        report(None)?;
        let entry = match level.entries.read() {
            Some(Ok(entry)) => entry,
            Some(Err(error)) => {
                report(Some(unreadable(level.path.clone(), error)))?;
                levels.pop();
                continue;
            }
            None => {
                levels.pop();
                continue;
            }
        };
        let name = entry.file_name();
        let is_directory = match entry.file_type() {
            _ if matches!(name.to_bytes(), b"." | b"..") => continue,
            FileType::Directory => true,
            // Some file systems do not report the type with the name.
            FileType::Unknown => is_directory(&level.directory, name),
            _ => false,
        };
        match LeftoverKind::parse_name(name.to_bytes())
            .map(|(kind, stem)| (kind, LeftoverPair { directory: &level.directory, stem }))
        {
            // A directory that was to replace a file is empty.
            Some((kind @ LeftoverKind::Replaced, pair)) if pair.is_empty_directory() => {
                clean_pair(level, kind, &pair, rule, report)?
            }
            _ if is_directory => enter(&mut levels, name, report)?,
            Some((kind, pair)) => clean_pair(level, kind, &pair, rule, report)?,
            None => {}
        }
    }
    Ok(())
}

/// Cleans the files that belong to a name.
fn clean_pair(
    level: &Level,
    kind: LeftoverKind,
    pair: &LeftoverPair<'_>,
    rule: CleanRule,
    report: Report<'_>,
) -> Result<(), TransferError> {
    let left = match kind {
        LeftoverKind::Replaced => pair.clean_replaced(rule),
        // If both files exist, they are reported with the partial file.
        LeftoverKind::Journal if pair.has_partial() => None,
        _ => pair.clean(rule, &mut || report(None))?,
    };
    match left.map(|left| left.with_path(|name| level.join(name))) {
        Some(left) => report(Some(CleanEvent::Leftover(left))),
        None => Ok(()),
    }
}

fn is_directory(directory: &OwnedFd, name: &CStr) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn enter(levels: &mut Vec<Level>, name: &CStr, report: Report<'_>) -> Result<(), TransferError> {
    let Some(level) = levels.last() else { return Ok(()) };
    let path = level.join(name.to_bytes());
    // The limit is in the order of the kernel's limit for symbolic links (ELOOP).
    let opened = match levels.len() {
        MAX_DEPTH.. => Err(Errno::NAMETOOLONG),
        _ => openat(&level.directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()),
    };
    match opened.and_then(|directory| Level::new(directory, path.clone())) {
        Ok(level) => levels.push(level),
        // The directory was removed or replaced meanwhile.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
        Err(error) => report(Some(unreadable(path, error)))?,
    }
    Ok(())
}

fn unreadable(path: Vec<u8>, error: Errno) -> CleanEvent {
    let reason = match error {
        Errno::NAMETOOLONG => {
            format!("more than {MAX_DEPTH} levels deep: run lfn copy --clean on a directory nearer to it")
        }
        error => format!("cannot read the directory: {}", std::io::Error::from(error)),
    };
    CleanEvent::Unreadable { path: ByteString(path), reason }
}

/// Cleans the leftovers of a copy to this file. Returns false if there are none.
fn clean_single_file(place: &Path, rule: CleanRule, report: Report<'_>) -> Result<bool, TransferError> {
    let (Some(name), parent) = (place.file_name(), place.parent().unwrap_or(Path::new(""))) else { return Ok(false) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = openat(CWD, or_current_dir(parent), flags, Mode::empty()) else { return Ok(false) };
    let partial_name = super::super::storage::local::partial_name(name);
    let Some((_, stem)) = LeftoverKind::parse_name(partial_name.as_bytes()) else { return Ok(false) };
    let pair = LeftoverPair { directory: &directory, stem };
    let all = [pair.clean(rule, &mut || report(None))?, pair.clean_replaced(rule)];
    let mut any = false;
    for left in all.into_iter().flatten() {
        any = true;
        report(Some(CleanEvent::Leftover(
            left.with_path(|name| parent.join(std::ffi::OsStr::from_bytes(name)).into_os_string().into_encoded_bytes()),
        )))?;
    }
    Ok(any)
}
