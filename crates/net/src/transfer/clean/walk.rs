//! Going through directories for names that copies give to what is incomplete.
//!
//! Directories are opened by name inside the one above, and no symbolic link below a place is followed. What stands in a
//! directory is looked at as the kernel names it: nothing is sorted or held, but one open directory for each level.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lfn_core::transfer::leftover::{Beside, Rule};
use lfn_core::transfer::raw::Raw;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::place::{Base, open_error, or_here, show};
use super::pair::Pair;
use super::{Say, Seen};

/// How deep a directory may be below a place: each level holds two descriptors.
const DEEPEST: usize = 128;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory that is gone through.
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

/// Looks at everything below `place`; where that is no directory, at what a copy to it left.
pub(super) fn walk(base: &Base, place: &Path, rule: Rule, say: Say<'_>) -> Result<(), TransferError> {
    let failed = |error| open_error("look into", &show(place), error);
    let top = match base.open(or_here(place), DIRECTORY) {
        Ok(directory) => Level::new(directory, place.as_os_str().as_bytes().to_vec()).map_err(failed)?,
        Err(error @ (Errno::NOENT | Errno::NOTDIR)) => {
            return if one(base, place, rule, say)? { Ok(()) } else { Err(failed(error)) };
        }
        Err(error) => return Err(failed(error)),
    };
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        say(None)?;
        let entry = match level.entries.read() {
            Some(Ok(entry)) => entry,
            Some(Err(error)) => {
                say(Some(trouble(level.path.clone(), error)))?;
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
            // File systems that do not say it with the name.
            FileType::Unknown => is_directory(&level.directory, name),
            _ => false,
        };
        match Beside::of(name.to_bytes()).map(|(which, stem)| (which, Pair { directory: &level.directory, stem })) {
            // One that was to take the place of a file holds nothing yet.
            Some((which @ Beside::Replaced, pair)) if pair.is_empty_directory() => {
                look(level, which, &pair, rule, say)?
            }
            _ if is_directory => enter(&mut levels, name, say)?,
            Some((which, pair)) => look(level, which, &pair, rule, say)?,
            None => {}
        }
    }
    Ok(())
}

/// Looks at what has such a name.
fn look(level: &Level, which: Beside, pair: &Pair<'_>, rule: Rule, say: Say<'_>) -> Result<(), TransferError> {
    let left = match which {
        Beside::Replaced => pair.replaced(rule),
        // Where both are there it is told with the partial file.
        Beside::Journal if pair.has_partial() => None,
        _ => pair.look(rule, &mut || say(None))?,
    };
    match left.map(|left| left.below(|name| level.join(name))) {
        Some(left) => say(Some(Seen::Left(left))),
        None => Ok(()),
    }
}

fn is_directory(directory: &OwnedFd, name: &CStr) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn enter(levels: &mut Vec<Level>, name: &CStr, say: Say<'_>) -> Result<(), TransferError> {
    let Some(level) = levels.last() else { return Ok(()) };
    let path = level.join(name.to_bytes());
    // As many as the kernel's ELOOP would be for links.
    let opened = match levels.len() {
        DEEPEST.. => Err(Errno::NAMETOOLONG),
        _ => openat(&level.directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()),
    };
    match opened.and_then(|directory| Level::new(directory, path.clone())) {
        Ok(level) => levels.push(level),
        // It went meanwhile, or gave way to something else.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
        Err(error) => say(Some(trouble(path, error)))?,
    }
    Ok(())
}

fn trouble(path: Vec<u8>, error: Errno) -> Seen {
    let what = match error {
        Errno::NAMETOOLONG => format!("more than {DEEPEST} levels below the place: give one that is nearer"),
        error => format!("cannot look into it: {}", std::io::Error::from(error)),
    };
    Seen::Trouble { path: Raw(path), what }
}

/// Looks at what a copy to this one file left; false if there is nothing.
fn one(base: &Base, place: &Path, rule: Rule, say: Say<'_>) -> Result<bool, TransferError> {
    let (Some(name), parent) = (place.file_name(), place.parent().unwrap_or(Path::new(""))) else { return Ok(false) };
    let Ok(directory) = base.open(or_here(parent), OFlags::PATH | OFlags::DIRECTORY) else { return Ok(false) };
    let beside = super::super::receiver::partial_name(name);
    let Some((_, stem)) = Beside::of(beside.as_bytes()) else { return Ok(false) };
    let pair = Pair { directory: &directory, stem };
    let all = [pair.look(rule, &mut || say(None))?, pair.replaced(rule)];
    let mut any = false;
    for left in all.into_iter().flatten() {
        any = true;
        say(Some(Seen::Left(
            left.below(|name| parent.join(std::ffi::OsStr::from_bytes(name)).into_os_string().into_encoded_bytes()),
        )))?;
    }
    Ok(any)
}
