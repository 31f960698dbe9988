//! A local source: a directory, or one file, that a copy reads.
//!
//! A copy may have thousands of sources, and their trees may be deep and wide. So all sources of a copy share
//! [`OpenDirectories`], which keeps the few directories open that were used last. The path of a source is opened when it
//! is needed; a link in this path is followed, and no link below it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::{Entry, Modified, Name};
use lfn_session::wire::copy::preserve::{Preserve, Unpreserved};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::destination::open_below;
use super::read_file::{LocalReadFile, READ_FLAGS, names_in};
use super::stat::metadata_of;
use super::xattrs::read_attributes;
use crate::TransferError;
use crate::accounts::Accounts;
use crate::base_dir::{BaseDir, file_error, open_error, or_current_dir, path_text};
use crate::storage::{Capabilities, Existing, Metadata, Names, ObjectKind, ReadFile, Storage, TopDirectory};

/// Maximum number of directories that stay open for one purpose, over all sources of a copy.
const MAX_OPEN_DIRECTORIES: usize = 16;

/// A local source. If its path is no directory, every name means the path itself.
#[derive(Debug)]
pub(crate) struct LocalTree {
    base: Arc<BaseDir>,
    path: PathBuf,
    /// Attributes of the path when the source was opened.
    at_open: Metadata,
    /// A link at the end of the path is followed.
    follows_link: bool,
    display_path: String,
    accounts: Accounts,
    directories: Arc<OpenDirectories>,
    /// Number of this source in `directories`.
    number: u64,
}

/// The directories of all sources of a copy that stay open. Listing runs far ahead of reading, so each has its own.
#[derive(Debug, Default)]
pub(crate) struct OpenDirectories {
    sources: AtomicU64,
    listed: DirectoryCache,
    read: DirectoryCache,
}

/// Open directories, those of the last use first.
#[derive(Debug, Default)]
struct DirectoryCache(Mutex<VecDeque<OpenDirectory>>);

#[derive(Debug)]
struct OpenDirectory {
    source: u64,
    path: Vec<u8>,
    opened: Arc<OwnedFd>,
}

impl DirectoryCache {
    fn get(&self, source: u64, path: &[u8]) -> Option<Arc<OwnedFd>> {
        let mut directories = self.0.lock();
        let at = directories.iter().position(|known| known.source == source && known.path == path)?;
        let found = directories.remove(at)?;
        let opened = found.opened.clone();
        directories.push_front(found);
        Some(opened)
    }

    fn add(&self, source: u64, path: &[u8], opened: Arc<OwnedFd>) {
        let mut directories = self.0.lock();
        directories.truncate(MAX_OPEN_DIRECTORIES - 1);
        directories.push_front(OpenDirectory { source, path: path.to_vec(), opened });
    }
}

impl LocalTree {
    /// Opens a source. All sources of a copy share `directories`.
    pub(crate) fn open(
        base: Arc<BaseDir>,
        path: &Path,
        follows_link: bool,
        directories: Arc<OpenDirectories>,
    ) -> Result<Self, TransferError> {
        let display_path = path_text(path);
        let path = or_current_dir(path).to_owned();
        let opened = open_top(&base, &path, follows_link, OFlags::PATH).and_then(fstat);
        let at_open = metadata_of(&opened.map_err(|error| open_error("open", &display_path, error))?);
        let number = directories.sources.fetch_add(1, Ordering::Relaxed);
        let accounts = Accounts::default();
        Ok(LocalTree { base, path, at_open, follows_link, display_path, accounts, directories, number })
    }

    /// Returns the attributes of the path when the source was opened.
    pub(crate) fn metadata_at_open(&self) -> Metadata {
        self.at_open
    }

    fn is_top(&self, name: &Name) -> bool {
        self.at_open.kind != ObjectKind::Directory || name.is_root()
    }

    fn open_top(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_top(&self.base, &self.path, self.follows_link, flags)
    }

    /// Opens an entry, without following a link.
    fn open_entry(&self, cache: &DirectoryCache, name: &Name, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.is_top(name) {
            return self.open_top(flags);
        }
        let (parent, last) = name.split();
        let directory = self.directory(cache, parent)?;
        openat(&*directory, OsStr::from_bytes(last), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }

    /// Returns a directory that is open for looking up names in it. The empty path is the top.
    fn directory(&self, cache: &DirectoryCache, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(opened) = cache.get(self.number, path) {
            return Ok(opened);
        }
        let opened = Arc::new(match path {
            [] => self.open_top(OFlags::PATH | OFlags::DIRECTORY)?,
            below => open_below(&*self.directory(cache, b"")?, below)?,
        });
        cache.add(self.number, path, opened.clone());
        Ok(opened)
    }
}

fn open_top(base: &BaseDir, path: &Path, follows_link: bool, flags: OFlags) -> Result<OwnedFd, Errno> {
    base.open(path, if follows_link { flags } else { flags | OFlags::NOFOLLOW })
}

impl Storage for LocalTree {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            reads: true,
            writes: false,
            keeps_data: true,
            resumes: false,
            links: true,
            holes: true,
            attributes: true,
            reveals_existing: true,
        }
    }

    fn stat(&self, name: &Name) -> Result<Existing, TransferError> {
        let stat = if self.is_top(name) {
            self.open_top(OFlags::PATH).and_then(fstat)
        } else {
            let (parent, last) = name.split();
            self.directory(&self.directories.listed, parent)
                .and_then(|directory| statat(&*directory, OsStr::from_bytes(last), AtFlags::SYMLINK_NOFOLLOW))
        };
        match stat {
            Ok(stat) => Ok(Existing::Object(metadata_of(&stat))),
            Err(Errno::NOENT) => Ok(Existing::Nothing),
            Err(error) => Err(open_error("read the attributes of", &self.display_name(name), error)),
        }
    }

    fn list(&self, directory: &Name) -> Result<Names, TransferError> {
        let display_path = self.display_name(directory);
        let opened =
            self.open_entry(&self.directories.listed, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK);
        let opened = opened.map_err(|error| open_error("list", &display_path, error))?;
        Ok(Box::new(names_in(opened, display_path)?))
    }

    fn read_link(&self, name: &Name) -> Result<ByteString, TransferError> {
        let target = self
            .open_entry(&self.directories.listed, name, OFlags::PATH)
            .and_then(|link| readlinkat(link, "", Vec::new()));
        let failed = |error| match error {
            // An empty path of an object that is no link (readlinkat(2)).
            Errno::NOENT => file_error("read the link", &self.display_name(name), Errno::INVAL),
            error => open_error("read the link", &self.display_name(name), error),
        };
        Ok(ByteString::from(target.map_err(failed)?.to_bytes()))
    }

    fn open_file(&self, name: &Name) -> Result<Box<dyn ReadFile>, TransferError> {
        let opened = self.open_entry(&self.directories.read, name, READ_FLAGS);
        let opened = opened.map_err(|error| open_error("open", &self.display_name(name), error))?;
        Ok(Box::new(LocalReadFile::new(opened, || self.display_name(name))?))
    }

    fn read_attributes(&self, entry: &mut Entry, preserve: Preserve) -> Result<(), TransferError> {
        let display_path = self.display_name(&entry.name);
        let opened = self.open_entry(&self.directories.listed, &entry.name, OFlags::PATH);
        let opened = opened.map_err(|error| open_error("open", &display_path, error))?;
        read_attributes(entry, opened, preserve, &self.accounts, &display_path)
    }

    fn top(&self) -> TopDirectory {
        TopDirectory { display_path: Some(self.display_path.clone()), ..TopDirectory::default() }
    }

    fn display_name(&self, name: &Name) -> String {
        match self.display_path.as_str() {
            top if self.is_top(name) => top.to_owned(),
            "." | "the served root" => name.to_string(),
            top => format!("{}/{name}", top.trim_end_matches('/')),
        }
    }

    fn was_created_since(&self, _name: &Name, _since: Modified) -> bool {
        false
    }

    fn unpreserved(&self) -> Unpreserved {
        Unpreserved::default()
    }
}
