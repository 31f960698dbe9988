//! Remote paths with wildcards, expanded below the served root. [`lfn_session::wire::copy::glob`] defines the patterns.
//!
//! A short pattern can be expensive to expand. So all patterns of a request share an [`ExpansionBudget`] of bytes and
//! time.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lfn_session::SessionError;
use lfn_session::wire::copy::entry::MAX_NAME;
use lfn_session::wire::copy::glob::{NamePattern, PathPart, is_pattern, split_pattern};
use rustix::io::Errno;

use crate::base_dir::BaseDir;
use crate::storage::local::typed_paths::{check_exists, names_in};
use crate::{ExpansionLimit, TransferError};

/// Maximum number of paths that match one pattern, and maximum bytes of all paths of a request, including partial
/// paths.
const MAX_PATHS: usize = 65_536;
const MAX_PATH_BYTES: usize = 8 << 20;

/// Maximum time for all patterns of a request. The client gets no message meanwhile, and could assume an outage.
const EXPANSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits for the patterns of one request.
pub(crate) struct ExpansionBudget<'a> {
    bytes: usize,
    deadline: Instant,
    /// Returns an error if the session must end.
    check: &'a dyn Fn() -> Result<(), SessionError>,
}

impl<'a> ExpansionBudget<'a> {
    /// Creates the budget for a new request. `check` is called regularly.
    pub(crate) fn new(check: &'a dyn Fn() -> Result<(), SessionError>) -> Self {
        ExpansionBudget { bytes: MAX_PATH_BYTES, deadline: Instant::now() + EXPANSION_TIMEOUT, check }
    }

    /// Takes the bytes of one path from the budget.
    fn take_bytes(&mut self, typed: &Path, bytes: usize) -> Result<(), TransferError> {
        let remaining = self.bytes.checked_sub(bytes);
        self.bytes = remaining.ok_or_else(|| limit_error(typed, ExpansionLimit::Bytes))?;
        Ok(())
    }

    /// Checks the time limit and the session, before each operation that may wait for a disk.
    fn check_time(&self, typed: &Path) -> Result<(), TransferError> {
        (self.check)()?;
        if Instant::now() < self.deadline { Ok(()) } else { Err(limit_error(typed, ExpansionLimit::Time)) }
    }
}

fn limit_error(typed: &Path, limit: ExpansionLimit) -> TransferError {
    TransferError::ExpansionLimit { pattern: typed.display().to_string(), limit }
}

/// The paths that a pattern matches.
#[derive(Debug, Default)]
pub(crate) struct Expansion {
    /// The matching paths, in order.
    pub(crate) paths: Vec<PathBuf>,
    /// Directories that could not be read completely. They may contain further matches.
    pub(crate) unreadable: Vec<(PathBuf, Errno)>,
}

/// Expands `path`. A path that exists under exactly this name is not expanded.
///
/// # Errors
/// [`TransferError::NoMatch`], [`TransferError::TooManyMatches`], [`TransferError::ExpansionLimit`], or the error of
/// the session.
pub(crate) fn expand(
    base: &BaseDir,
    path: &[u8],
    budget: &mut ExpansionBudget<'_>,
) -> Result<Expansion, TransferError> {
    let typed = Path::new(OsStr::from_bytes(path));
    budget.check_time(typed)?;
    let mut expanded = Expansion::default();
    if !is_pattern(path) || check_exists(base, typed).is_ok() {
        expanded.paths.push(typed.to_owned());
        return Ok(expanded);
    }
    let mut found = vec![Vec::new()];
    for (depth, part) in split_pattern(path).enumerate() {
        let slash: &[u8] = if depth == 0 { b"" } else { b"/" };
        let mut next = Vec::new();
        for path in found {
            let names = match &part {
                PathPart::Name(name) => vec![name.to_vec()],
                PathPart::Pattern(pattern) => {
                    let (names, error_at) = matching_names(base, &path, pattern, || budget.check_time(typed))?;
                    let unreadable = error_at.map(|error| (PathBuf::from(OsStr::from_bytes(&path)), error));
                    expanded.unreadable.extend(unreadable);
                    names
                }
            };
            for name in names {
                budget.take_bytes(typed, path.len() + slash.len() + name.len())?;
                next.push([&path, slash, &name].concat());
            }
            if next.len() > MAX_PATHS {
                return Err(TransferError::TooManyMatches { pattern: typed.display().to_string(), max: MAX_PATHS });
            }
        }
        found = next;
    }
    for path in found {
        budget.check_time(typed)?;
        let path = PathBuf::from(OsString::from_vec(path));
        match check_exists(base, &path) {
            Ok(()) => expanded.paths.push(path),
            Err(error) if means_no_match(&path, error) => {}
            Err(error) => expanded.unreadable.push((path, error)),
        }
    }
    if expanded.paths.is_empty() && expanded.unreadable.is_empty() {
        return Err(TransferError::NoMatch { pattern: typed.display().to_string() });
    }
    Ok(expanded)
}

/// Returns whether the error means that the path does not exist, or that it leads out of the root.
fn means_no_match(path: &Path, error: Errno) -> bool {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::INVAL => true,
        // If the path is not too long, one of its names is: no file can have this name.
        Errno::NAMETOOLONG => path.as_os_str().len() < MAX_NAME,
        _ => false,
    }
}

/// Returns the matching names in a directory, in order and at most one more than [`MAX_PATHS`], and the error that
/// stopped the reading.
fn matching_names(
    base: &BaseDir,
    path: &[u8],
    pattern: &NamePattern,
    check: impl Fn() -> Result<(), TransferError>,
) -> Result<(Vec<Vec<u8>>, Option<Errno>), TransferError> {
    check()?;
    let path = Path::new(OsStr::from_bytes(path));
    let found = match names_in(base, path) {
        Ok(found) => found,
        Err(error) if means_no_match(path, error) => return Ok((Vec::new(), None)),
        Err(error) => return Ok((Vec::new(), Some(error))),
    };
    let (mut names, mut bytes, mut error_at) = (Vec::new(), 0, None);
    for name in found {
        check()?;
        let name = match name {
            Ok(name) => name,
            Err(error) => {
                error_at = Some(error);
                break;
            }
        };
        // One name beyond a limit is enough to refuse the pattern.
        let room = names.len() <= MAX_PATHS && bytes <= MAX_PATH_BYTES;
        if room && pattern.matches(&name) {
            bytes += name.len();
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok((names, error_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs;
    use std::os::fd::AsRawFd;

    /// Creates directories with files, at a depth that makes every path long. Returns the path to them.
    fn create_tree(directories: &[&str], files: usize) -> (tempfile::TempDir, String) {
        let (home, deep) = (tempfile::tempdir().unwrap(), vec!["n".repeat(250); 12].join("/"));
        for directory in directories {
            let directory = home.path().join(&deep).join(directory);
            fs::create_dir_all(&directory).unwrap();
            (0..files).for_each(|n| fs::write(directory.join(format!("{n:04}")), []).unwrap());
        }
        (home, deep)
    }

    fn outcome(found: Result<Expansion, TransferError>) -> String {
        found.map_or_else(|error| error.to_string(), |found| format!("{} paths", found.paths.len()))
    }

    #[test]
    fn bytes_of_all_patterns_are_bounded() {
        // Each directory has 2 MB of paths.
        let (home, deep) = create_tree(&["a", "b", "c", "d", "e"], 700);
        let base = BaseDir::root(home.path()).unwrap();
        let in_all = |last: &str| format!("{deep}/{last}").into_bytes();
        let mut budget = ExpansionBudget::new(&|| Ok(()));
        assert_eq!(outcome(expand(&base, &in_all("a/*"), &mut budget)), "700 paths");
        let error = outcome(expand(&base, &in_all("*/*"), &mut budget));
        assert!(error.ends_with("exceed 8 MiB in total"), "{error}");
        assert_eq!(outcome(expand(&base, &in_all("[a-d]/06*"), &mut ExpansionBudget::new(&|| Ok(())))), "400 paths");
    }

    #[test]
    fn paths_too_long_to_open_are_reported() {
        let (home, deep) = create_tree(&["a"], 1);
        let (base, name) = (BaseDir::root(home.path()).unwrap(), "n".repeat(250));
        // The path is too long to create it directly.
        let bottom = fs::File::open(home.path().join(&deep)).unwrap();
        let inside = format!("/proc/self/fd/{}", bottom.as_raw_fd());
        fs::create_dir_all(Path::new(&inside).join([name.as_str(); 5].join("/"))).unwrap();
        let tried = |pattern: String| expand(&base, pattern.as_bytes(), &mut ExpansionBudget::new(&|| Ok(()))).unwrap();
        let levels = |levels: usize| vec!["n*"; levels].join("/");
        assert_eq!(tried(levels(16)).paths.len(), 1);
        let too_deep = tried(levels(17));
        assert_eq!((too_deep.paths.len(), too_deep.unreadable.len()), (0, 1));
        assert_eq!(too_deep.unreadable[0].1, Errno::NAMETOOLONG);
        let nothing = expand(&base, format!("*/{}", "m".repeat(300)).as_bytes(), &mut ExpansionBudget::new(&|| Ok(())));
        assert!(matches!(nothing, Err(TransferError::NoMatch { .. })), "no name is so long");
    }

    #[test]
    fn expansion_time_is_bounded() {
        let (home, deep) = create_tree(&["a"], 100);
        let base = BaseDir::root(&home.path().join(deep)).unwrap();
        let expired = ExpansionBudget { deadline: Instant::now(), ..ExpansionBudget::new(&|| Ok(())) };
        for pattern in ["a/*", "a/0001"] {
            let error = outcome(expand(&base, pattern.as_bytes(), &mut ExpansionBudget { ..expired }));
            assert!(error.contains("took too long"), "{pattern}: {error}");
        }
        let calls = Cell::new(0);
        let ends = || {
            calls.set(calls.get() + 1);
            let silent = SessionError::Closed { peer: "the client", while_doing: "in a test" };
            if calls.get() > 20 { Err(silent) } else { Ok(()) }
        };
        assert!(expand(&base, b"a/*", &mut ExpansionBudget::new(&ends)).is_err());
        assert_eq!(calls.get(), 21, "while the directory was read");
    }
}
