//! Far paths with wildcards, expanded under the served root; what they mean is decided in [`lfn_core::transfer::glob`].
//!
//! A pattern is cheap to send and may be dear to expand: all of a request together have a [`Budget`] of bytes and of time.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lfn_core::transfer::entry::MAX_NAME;
use lfn_core::transfer::glob::{Component, Part, is_pattern, parts};
use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;

use crate::session::SessionError;
use crate::transfer::TransferError;
use crate::transfer::place::{Base, or_here};

/// Most paths that one pattern may stand for, and most bytes of all paths of a request, those on the way to them included.
const MOST: usize = 65_536;
const MOST_BYTES: usize = 8 << 20;

/// How long all patterns of a request may take: whoever asked hears nothing meanwhile, and takes silence for an outage.
const WITHIN: Duration = Duration::from_secs(10);

/// What the patterns of one request may take, all together.
pub(crate) struct Budget<'a> {
    bytes: usize,
    until: Instant,
    /// An error if the session is to end.
    check: &'a dyn Fn() -> Result<(), SessionError>,
}

impl<'a> Budget<'a> {
    /// For a request that came just now; `check` is asked now and then.
    pub(crate) fn new(check: &'a dyn Fn() -> Result<(), SessionError>) -> Self {
        Budget { bytes: MOST_BYTES, until: Instant::now() + WITHIN, check }
    }

    /// Keeps a path of that many bytes.
    fn keep(&mut self, typed: &Path, bytes: usize) -> Result<(), TransferError> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes =
            left.ok_or_else(|| unexpanded(typed, "what it stands for has names of more than 8 MiB together"))?;
        Ok(())
    }

    /// Asked before whatever may wait for a disk.
    fn go_on(&self, typed: &Path) -> Result<(), TransferError> {
        (self.check)()?;
        if Instant::now() < self.until {
            Ok(())
        } else {
            Err(unexpanded(typed, "looking for what it stands for took too long"))
        }
    }
}

fn unexpanded(typed: &Path, why: &'static str) -> TransferError {
    TransferError::Unexpanded { pattern: typed.display().to_string(), why }
}

/// What a path stands for.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    /// In order.
    pub(crate) paths: Vec<PathBuf>,
    /// Directories on the way that could not be read, or not to their end: what else there is, nobody knows.
    pub(crate) unread: Vec<(PathBuf, Errno)>,
}

/// The paths that `path` stands for: itself, if something of that very name is there.
pub(crate) fn expand(base: &Base, path: &[u8], budget: &mut Budget<'_>) -> Result<Expanded, TransferError> {
    let typed = Path::new(OsStr::from_bytes(path));
    budget.go_on(typed)?;
    let mut expanded = Expanded::default();
    if !is_pattern(path) || look(base, typed).is_ok() {
        expanded.paths.push(typed.to_owned());
        return Ok(expanded);
    }
    let mut found = vec![Vec::new()];
    for (depth, part) in parts(path).enumerate() {
        let slash: &[u8] = if depth == 0 { b"" } else { b"/" };
        let mut next = Vec::new();
        for path in found {
            let names = match &part {
                Part::Name(name) => vec![name.to_vec()],
                Part::Pattern(pattern) => {
                    let (names, trouble) = in_directory(base, &path, pattern, || budget.go_on(typed))?;
                    let unread = trouble.map(|error| (PathBuf::from(OsStr::from_bytes(&path)), error));
                    expanded.unread.extend(unread);
                    names
                }
            };
            for name in names {
                budget.keep(typed, path.len() + slash.len() + name.len())?;
                next.push([&path, slash, &name].concat());
            }
            if next.len() > MOST {
                return Err(TransferError::Matches { pattern: typed.display().to_string(), most: MOST });
            }
        }
        found = next;
    }
    for path in found {
        budget.go_on(typed)?;
        let path = PathBuf::from(OsString::from_vec(path));
        match look(base, &path) {
            Ok(()) => expanded.paths.push(path),
            Err(error) if is_nothing(&path, error) => {}
            Err(error) => expanded.unread.push((path, error)),
        }
    }
    if expanded.paths.is_empty() && expanded.unread.is_empty() {
        return Err(TransferError::NoMatch { pattern: typed.display().to_string() });
    }
    Ok(expanded)
}

/// Looks whether something is there that the path may lead to; a link counts by itself.
fn look(base: &Base, path: &Path) -> Result<(), Errno> {
    base.open(path, OFlags::PATH | OFlags::NOFOLLOW).map(drop)
}

/// Whether it says that nothing is there, or nothing that names are in, or that it is out of the root.
fn is_nothing(path: &Path, error: Errno) -> bool {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::INVAL => true,
        // Of a shorter path it is one name that is too long for anything to have it.
        Errno::NAMETOOLONG => path.as_os_str().len() < MAX_NAME,
        _ => false,
    }
}

/// The names in a directory that match, in order, at most one more than [`MOST`], and why it was not read
/// to its end.
fn in_directory(
    base: &Base,
    path: &[u8],
    pattern: &Component,
    go_on: impl Fn() -> Result<(), TransferError>,
) -> Result<(Vec<Vec<u8>>, Option<Errno>), TransferError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    go_on()?;
    let path = or_here(Path::new(OsStr::from_bytes(path)));
    let opened = base.open(path, flags);
    let mut dir = match opened.and_then(Dir::new) {
        Ok(dir) => dir,
        Err(error) if is_nothing(path, error) => return Ok((Vec::new(), None)),
        Err(error) => return Ok((Vec::new(), Some(error))),
    };
    let (mut names, mut bytes, mut trouble) = (Vec::new(), 0, None);
    while let Some(entry) = dir.read() {
        go_on()?;
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                trouble = Some(error);
                break;
            }
        };
        let name = entry.file_name().to_bytes();
        // One beyond either bound is enough to be refused for.
        let room = names.len() <= MOST && bytes <= MOST_BYTES;
        if room && !matches!(name, b"." | b"..") && pattern.matches(name) {
            bytes += name.len();
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok((names, trouble))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs;
    use std::os::fd::AsRawFd;

    /// Directories with files, so deep that every path is long; tells how deep.
    fn plant(directories: &[&str], files: usize) -> (tempfile::TempDir, String) {
        let (home, deep) = (tempfile::tempdir().unwrap(), vec!["n".repeat(250); 12].join("/"));
        for directory in directories {
            let directory = home.path().join(&deep).join(directory);
            fs::create_dir_all(&directory).unwrap();
            (0..files).for_each(|n| fs::write(directory.join(format!("{n:04}")), []).unwrap());
        }
        (home, deep)
    }

    fn said(found: Result<Expanded, TransferError>) -> String {
        found.map_or_else(|error| error.to_string(), |found| format!("{} paths", found.paths.len()))
    }

    #[test]
    fn long_names_are_bounded_by_their_bytes_over_all_patterns() {
        // 2 MB a directory.
        let (home, deep) = plant(&["a", "b", "c", "d", "e"], 700);
        let base = Base::root(home.path()).unwrap();
        let in_all = |last: &str| format!("{deep}/{last}").into_bytes();
        let mut budget = Budget::new(&|| Ok(()));
        assert_eq!(said(expand(&base, &in_all("a/*"), &mut budget)), "700 paths");
        let error = said(expand(&base, &in_all("*/*"), &mut budget));
        assert!(error.ends_with("of more than 8 MiB together"), "{error}");
        assert_eq!(said(expand(&base, &in_all("[a-d]/06*"), &mut Budget::new(&|| Ok(())))), "400 paths");
    }

    #[test]
    fn what_is_too_deep_to_be_opened_is_told() {
        let (home, deep) = plant(&["a"], 1);
        let (base, name) = (Base::root(home.path()).unwrap(), "n".repeat(250));
        // By its whole path it could not be made.
        let bottom = fs::File::open(home.path().join(&deep)).unwrap();
        let inside = format!("/proc/self/fd/{}", bottom.as_raw_fd());
        fs::create_dir_all(Path::new(&inside).join([name.as_str(); 5].join("/"))).unwrap();
        let tried = |pattern: String| expand(&base, pattern.as_bytes(), &mut Budget::new(&|| Ok(()))).unwrap();
        let levels = |levels: usize| vec!["n*"; levels].join("/");
        assert_eq!(tried(levels(16)).paths.len(), 1);
        let too_deep = tried(levels(17));
        assert_eq!((too_deep.paths.len(), too_deep.unread.len()), (0, 1));
        assert_eq!(too_deep.unread[0].1, Errno::NAMETOOLONG);
        let nothing = expand(&base, format!("*/{}", "m".repeat(300)).as_bytes(), &mut Budget::new(&|| Ok(())));
        assert!(matches!(nothing, Err(TransferError::NoMatch { .. })), "no name is so long");
    }

    #[test]
    fn time_is_bounded_and_a_session_that_ends_is_not_kept() {
        let (home, deep) = plant(&["a"], 100);
        let base = Base::root(&home.path().join(deep)).unwrap();
        let over = Budget { until: Instant::now(), ..Budget::new(&|| Ok(())) };
        for pattern in ["a/*", "a/0001"] {
            let error = said(expand(&base, pattern.as_bytes(), &mut Budget { ..over }));
            assert!(error.contains("took too long"), "{pattern}: {error}");
        }
        let asked = Cell::new(0);
        let ends = || {
            asked.set(asked.get() + 1);
            let silent = SessionError::Closed { peer: "the client", while_doing: "in a test" };
            if asked.get() > 20 { Err(silent) } else { Ok(()) }
        };
        assert!(expand(&base, b"a/*", &mut Budget::new(&ends)).is_err());
        assert_eq!(asked.get(), 21, "while the directory was read");
    }
}
