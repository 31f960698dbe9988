//! Far paths with wildcards, expanded under the served root; what they mean is decided in [`lfn_core::transfer::glob`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lfn_core::transfer::glob::{Component, Part, is_pattern, parts};
use rustix::fs::{Dir, OFlags};

use crate::transfer::TransferError;
use crate::transfer::place::{Base, or_here};

/// Most paths that one pattern may stand for.
const MOST: usize = 65_536;

/// The paths that `path` stands for, in order: itself, if something of that very name is there.
pub(crate) fn expand(base: &Base, path: &[u8]) -> Result<Vec<PathBuf>, TransferError> {
    let typed = Path::new(OsStr::from_bytes(path));
    if !is_pattern(path) || is_there(base, typed) {
        return Ok(vec![typed.to_owned()]);
    }
    let mut found = vec![Vec::new()];
    for (depth, part) in parts(path).enumerate() {
        let slash: &[u8] = if depth == 0 { b"" } else { b"/" };
        let mut next = Vec::new();
        for path in found {
            match &part {
                Part::Name(name) => next.push([&path, slash, name].concat()),
                Part::Pattern(pattern) => in_directory(base, &path, pattern, |name| {
                    next.push([&path, slash, name].concat());
                }),
            }
            if next.len() > MOST {
                return Err(TransferError::Matches { pattern: typed.display().to_string(), most: MOST });
            }
        }
        found = next;
    }
    let found = found.into_iter().map(|path| PathBuf::from(OsStr::from_bytes(&path)));
    let found: Vec<_> = found.filter(|path| is_there(base, path)).collect();
    if found.is_empty() {
        return Err(TransferError::NoMatch { pattern: typed.display().to_string() });
    }
    Ok(found)
}

/// Whether something is there that the path may lead to; a link counts by itself.
fn is_there(base: &Base, path: &Path) -> bool {
    base.open(path, OFlags::PATH | OFlags::NOFOLLOW).is_ok()
}

/// The names in a directory that match, in order; none of one that cannot be read, as in a shell.
fn in_directory(base: &Base, path: &[u8], pattern: &Component, mut take: impl FnMut(&[u8])) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let opened = base.open(or_here(Path::new(OsStr::from_bytes(path))), flags);
    let Ok(mut dir) = opened.and_then(Dir::new) else { return };
    let mut names = Vec::new();
    while let Some(Ok(entry)) = dir.read() {
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && pattern.matches(name) && names.len() <= MOST {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    names.iter().for_each(|name| take(name));
}
