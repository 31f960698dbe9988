//! The manifest of a copy. The file has a temporary name until the copy ends, so that FILE is complete or unchanged.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lfn_copy::proto::manifest::ManifestLine;
use lfn_session::wire::copy::EntryEvent;
use lfn_session::wire::copy::byte_string::ByteString;

use crate::exit::{Failure, without_error_number};
use crate::typed;

/// A manifest during the copy.
pub(super) struct Manifest {
    path: PathBuf,
    temporary_path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: BufWriter<File>,
    lines: u64,
    /// First error, reported at the end.
    failed: Option<io::Error>,
}

impl Manifest {
    /// Creates the temporary file, so that an unwritable place is detected before the copy.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |source: io::Error| error(path, &source);
        if path.as_os_str() == "-" {
            return Err(Failure::usage("--manifest -: a manifest cannot be written to standard output")
                .hint("give a file name; ./- for a file called -"));
        }
        if path.to_str().and_then(host_of).is_some() {
            let what = format!("--manifest {}: the manifest must be a file on this host", path.display());
            let name = path.to_string_lossy();
            let name = name.rsplit([':', '/']).next().filter(|name| !name.is_empty()).unwrap_or("manifest.b3");
            return Err(
                Failure::usage(what).hint(format!("write the manifest here: {}", typed::corrected("manifest", name)))
            );
        }
        // The target of a symbolic link is replaced, not the link. A device or a pipe must not be replaced by a file.
        let path = &resolve_link(path);
        let existing = fs::symlink_metadata(path).ok();
        let Some(temporary_path) = temporary_path(path).filter(|_| !existing.as_ref().is_some_and(Metadata::is_dir))
        else {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        };
        if existing.is_some_and(|existing| !existing.is_file()) {
            return Err(failed(io::Error::other("not a regular file")));
        }
        // A killed copy may have left its temporary file.
        let _ = fs::remove_file(&temporary_path);
        let file = File::create_new(&temporary_path).map_err(failed)?;
        let inner = Inner { file: BufWriter::new(file), lines: 0, failed: None };
        Ok(Manifest { path: path.into(), temporary_path, inner: Mutex::new(inner) })
    }

    /// Adds a file that is complete at the destination.
    pub(super) fn add(&self, event: &EntryEvent) {
        let Some(digest) = event.digest else { return };
        let line = ManifestLine { digest, name: ByteString::from(event.name.as_bytes()) }.encode();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.failed.is_none() {
            inner.lines += 1;
            inner.failed = inner.file.write_all(&line).err();
        }
    }

    /// Empties the manifest, since all events are repeated.
    pub(super) fn restart(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { file, lines, failed } = &mut *inner;
        if failed.is_none() {
            *lines = 0;
            let emptied = file.flush().and_then(|()| file.rewind()).and_then(|()| file.get_ref().set_len(0));
            *failed = emptied.err();
        }
    }

    /// Deletes the temporary file, if it was not renamed yet.
    pub(super) fn abandon(&self) {
        let _ = fs::remove_file(&self.temporary_path);
    }

    /// Renames the manifest to its final name, and returns the number of files in it.
    pub(super) fn finish(&self) -> Result<u64, Failure> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match inner.failed.take() {
            Some(error) => Err(error),
            None => inner.file.flush().and_then(|()| inner.file.get_ref().sync_all()),
        };
        written
            .and_then(|()| fs::rename(&self.temporary_path, &self.path))
            .map_err(|source| error(&self.path, &source))?;
        Ok(inner.lines)
    }
}

/// Returns the host, if the path is written like a place on another host.
fn host_of(path: &str) -> Option<&str> {
    let (host, _) = path.split_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'))?;
    (!Path::new(path).exists()).then_some(host)
}

/// Returns the name of the temporary file.
fn temporary_path(path: &Path) -> Option<PathBuf> {
    let mut name = [b".", path.file_name()?.as_bytes(), b".lfn-new"].concat();
    name.truncate(255);
    Some(path.with_file_name(OsStr::from_bytes(&name)))
}

/// Returns the path of the file to write: the target of a link.
fn resolve_link(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the paths of a written file below a directory: the temporary file, the final file, the link to it, and the
/// directories around them. The report has no name until the end, so its directory can look empty.
pub(super) fn paths_below(path: &Path, directory: &Path) -> Vec<PathBuf> {
    [path.to_owned(), resolve_link(path)].iter().flat_map(|path| relative_paths(path, directory)).collect()
}

fn relative_paths(path: &Path, directory: &Path) -> Vec<PathBuf> {
    let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    let (Ok(above), Ok(top)) = (above.canonicalize(), directory.canonicalize()) else { return Vec::new() };
    let Ok(below) = above.strip_prefix(&top) else { return Vec::new() };
    let names = [temporary_path(path), Some(path.to_owned())].into_iter().flatten();
    let files = names.filter_map(|path| Some(below.join(path.file_name()?)));
    let directories = below.ancestors().filter(|path| *path != Path::new("")).map(Path::to_owned);
    files.chain(directories).collect()
}

impl Drop for Manifest {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn error(path: &Path, source: &io::Error) -> Failure {
    let cause = without_error_number(&source.to_string());
    let name = path.file_name().unwrap_or(OsStr::new("manifest.b3")).display();
    Failure::msg(format_args!("cannot write the manifest {}: {cause}", path.display()))
        .hint(format!("choose a file in a directory that you can write to: --manifest /tmp/{name}"))
}
