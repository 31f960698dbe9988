//! The manifest of a copy while it is written: beside its place under a name of its own until the copy has ended, so
//! that there is a whole one or none.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lfn_core::transfer::manifest::Line;
use lfn_core::transfer::raw::Raw;
use lfn_core::wire::copy::Told;

use crate::exit::Failure;

/// A manifest that is being written.
pub(super) struct Manifest {
    path: PathBuf,
    part: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: BufWriter<File>,
    lines: u64,
    /// The first error, told at the end.
    failed: Option<io::Error>,
}

impl Manifest {
    /// Begins one; that it cannot be written is known before anything is copied.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |source: io::Error| error(path, &source);
        if path.as_os_str() == "-" {
            return Err(Failure::usage(
                "--manifest -: it gets its name when the copy has ended, which standard output cannot",
            )
            .hint("give a file; ./- for one of that name"));
        }
        // A link stays, and what it leads to is replaced; a device or a pipe would be by a file.
        let path = &place(path);
        let there = fs::symlink_metadata(path).ok();
        let Some(part) = part(path).filter(|_| !there.as_ref().is_some_and(Metadata::is_dir)) else {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        };
        if there.is_some_and(|there| !there.is_file()) {
            return Err(failed(io::Error::other("it is not a regular file, which alone can be replaced by one")));
        }
        // What a killed copy left is nobody's.
        let _ = fs::remove_file(&part);
        let file = File::create_new(&part).map_err(failed)?;
        let inner = Inner { file: BufWriter::new(file), lines: 0, failed: None };
        Ok(Manifest { path: path.into(), part, inner: Mutex::new(inner) })
    }

    /// Takes a file that is whole at the destination.
    pub(super) fn take(&self, told: &Told) {
        let Some(digest) = told.digest else { return };
        let line = Line { digest, name: Raw::from(told.name.as_bytes()) }.encode();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.failed.is_none() {
            inner.lines += 1;
            inner.failed = inner.file.write_all(&line).err();
        }
    }

    /// Empties it: what was told comes again.
    pub(super) fn restart(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { file, lines, failed } = &mut *inner;
        if failed.is_none() {
            *lines = 0;
            let emptied = file.flush().and_then(|()| file.rewind()).and_then(|()| file.get_ref().set_len(0));
            *failed = emptied.err();
        }
    }

    /// Removes what is written, unless it has its name.
    pub(super) fn abandon(&self) {
        let _ = fs::remove_file(&self.part);
    }

    /// Gives it its name, and tells how many files are in it.
    pub(super) fn finish(&self) -> Result<u64, Failure> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match inner.failed.take() {
            Some(error) => Err(error),
            None => inner.file.flush().and_then(|()| inner.file.get_ref().sync_all()),
        };
        written.and_then(|()| fs::rename(&self.part, &self.path)).map_err(|source| error(&self.path, &source))?;
        Ok(inner.lines)
    }
}

/// What it is called while it is written.
fn part(path: &Path) -> Option<PathBuf> {
    let mut name = [b".", path.file_name()?.as_bytes(), b".lfn-new"].concat();
    name.truncate(255);
    Some(path.with_file_name(OsStr::from_bytes(&name)))
}

/// Where it is written: what a link leads to.
fn place(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Where a manifest at `path` stands below a directory, while it is written and at the end, and the link to it.
pub(super) fn paths_below(path: &Path, directory: &Path) -> Vec<PathBuf> {
    [path.to_owned(), place(path)].iter().flat_map(|path| stands_below(path, directory)).collect()
}

fn stands_below(path: &Path, directory: &Path) -> Vec<PathBuf> {
    let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    let (Ok(above), Ok(top)) = (above.canonicalize(), directory.canonicalize()) else { return Vec::new() };
    let Ok(below) = above.strip_prefix(&top) else { return Vec::new() };
    let names = [part(path), Some(path.to_owned())].into_iter().flatten();
    names.filter_map(|path| Some(below.join(path.file_name()?))).collect()
}

impl Drop for Manifest {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn error(path: &Path, source: &io::Error) -> Failure {
    Failure::msg(format_args!("cannot write the manifest {}: {source}", path.display())).hint("give another --manifest")
}
