//! The manifest of a copy. The file has a temporary name until the copy ends, so that FILE is complete or unchanged.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lfn_copy::proto::manifest::ManifestLine;
use lfn_session::atomic_file::{self, AtomicFile};
use lfn_session::wire::copy::EntryEvent;
use lfn_session::wire::copy::byte_string::ByteString;
use parking_lot::Mutex;

use crate::exit::{Failure, without_error_number};
use crate::typed;

/// A manifest during the copy.
pub(super) struct Manifest {
    path: PathBuf,
    hidden_path: Option<PathBuf>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// `None` after the end of the copy.
    file: Option<AtomicFile>,
    lines: u64,
    /// First error, reported at the end.
    failed: Option<io::Error>,
}

impl Manifest {
    /// Creates the file, so that an unwritable place is detected before the copy.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
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
        let file = AtomicFile::create(path, 0o666).map_err(|source| error(path, &source))?;
        let hidden_path = file.hidden_path().map(Path::to_owned);
        let inner = Mutex::new(Inner { file: Some(file), ..Inner::default() });
        Ok(Manifest { path: path.into(), hidden_path, inner })
    }

    /// Returns the present path of the file, if it has a name before the end.
    pub(super) fn hidden_path(&self) -> Option<&Path> {
        self.hidden_path.as_deref()
    }

    /// Adds a file that is complete at the destination.
    pub(super) fn add(&self, event: &EntryEvent) {
        let Some(digest) = event.digest else { return };
        let line = ManifestLine { digest, name: ByteString::from(event.name.as_bytes()) }.encode();
        let Inner { file: Some(file), lines, failed: failed @ None } = &mut *self.inner.lock() else { return };
        *lines += 1;
        *failed = file.write_all(&line).err();
    }

    /// Empties the manifest, since all events are repeated.
    pub(super) fn restart(&self) {
        if let Inner { file: Some(file), lines, failed: failed @ None } = &mut *self.inner.lock() {
            *lines = 0;
            *failed = file.clear().err();
        }
    }

    /// Deletes the file, if it has no final name yet.
    pub(super) fn abandon(&self) {
        self.inner.lock().file = None;
    }

    /// Gives the manifest its final name, and returns the number of files in it.
    pub(super) fn finish(&self) -> Result<u64, Failure> {
        let Inner { file, lines, failed } = std::mem::take(&mut *self.inner.lock());
        let written = failed.map_or(Ok(()), Err).and_then(|()| file.map_or(Ok(()), AtomicFile::commit));
        written.map(|()| lines).map_err(|source| error(&self.path, &source))
    }
}

/// Returns the host, if the path is written like a place on another host.
fn host_of(path: &str) -> Option<&str> {
    let (host, _) = path.split_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'))?;
    (!Path::new(path).exists()).then_some(host)
}

/// Returns the paths of a written file below a directory: the path as typed, the file itself, its hidden path, and the
/// directories around them. The file has no name until the end, so its directory can look empty.
pub(super) fn paths_below(typed: &Path, hidden: Option<&Path>, directory: &Path) -> Vec<PathBuf> {
    let file = atomic_file::resolve(typed).unwrap_or_else(|_| typed.to_owned());
    [Some(typed), Some(&file), hidden].into_iter().flatten().flat_map(|path| relative_paths(path, directory)).collect()
}

fn relative_paths(path: &Path, directory: &Path) -> Vec<PathBuf> {
    let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    let (Ok(above), Ok(top), Some(name)) = (above.canonicalize(), directory.canonicalize(), path.file_name()) else {
        return Vec::new();
    };
    let Ok(below) = above.strip_prefix(&top) else { return Vec::new() };
    let file = below.join(name);
    file.ancestors().filter(|path| *path != Path::new("")).map(Path::to_owned).collect()
}

fn error(path: &Path, source: &io::Error) -> Failure {
    let cause = without_error_number(&source.to_string());
    let name = path.file_name().unwrap_or(OsStr::new("manifest.b3")).display();
    Failure::msg(format_args!("cannot write the manifest {}: {cause}", path.display()))
        .hint(format!("choose a file in a directory that you can write to: --manifest /tmp/{name}"))
}
