//! The data of listed files, read so that no other file is sent instead.
//!
//! A file is identified by its directory and its name there. Every parent directory is opened separately, without
//! following symbolic links. So a directory that is renamed or replaced during the copy leads nowhere else. Before and
//! after each read, length and modification time must be the listed ones, and each reopening must find the same inode.
//! So the parts of two versions are never mixed. Only a few files stay open, however many are listed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use lfn_core::transfer::blocks::LayoutError;
use lfn_core::transfer::content::fill_random;
use lfn_core::transfer::entry::{EntryError, Name};
use lfn_core::transfer::schedule::BlockTask;
use rustix::fs::{Mode, OFlags, SeekFrom, Stat, fstat, openat, seek};
use rustix::io::Errno;

use super::hard_links::FileIdentity;
use crate::transfer::TransferError;
use crate::transfer::base_dir::{BaseDir, inode};
use crate::transfer::stream_set::lock;
use crate::transfer::{FileKind, ForbiddenReason};

/// Maximum number of directories, and of files, that stay open for further reads.
const MAX_OPEN: usize = 16;

/// Flags for opening without waiting for the writer of a FIFO, and without taking a terminal as the controlling
/// terminal.
pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The reason why an entry cannot be sent. The text follows the name of the entry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The file was written to, removed or replaced.
    #[error("changed during the copy")]
    Changed,
    /// The entry existed when its directory was read.
    #[error("disappeared during the listing")]
    Vanished,
    /// The path that the user or the client gave does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// A path that the user or the client gave, while links are followed.
    #[error("is a symbolic link to a missing file")]
    DanglingLink,
    /// The kernel generates the data during the read, as in /proc, so the length is not known.
    #[error("size is reported as 0 but reading returns data (a /proc or /sys file?)")]
    UnknownLength,
    /// A directory in the place of a file, a device, a FIFO or a socket.
    #[error("is a {0}, not a regular file")]
    NotRegular(FileKind),
    /// Names from a list need a directory.
    #[error("is not a directory")]
    NotDirectory,
    /// The directory is the destination of the copy, on one host.
    #[error("is the destination of the copy: a directory cannot be copied into itself")]
    IsDestination,
    /// The file is the destination of the copy.
    #[error("source and destination are the same")]
    SameFile,
    /// The path leads out of the root of a server.
    #[error("leads out of the served directory")]
    OutsideRoot,
    /// Any other error of a file system.
    #[error("cannot {doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
    /// The entry is not valid in a list.
    #[error(transparent)]
    InvalidEntry(#[from] EntryError),
    /// The file is too long for the block size.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// A file on the list, as the sender knows it.
#[derive(Debug)]
pub(crate) struct ListedFile {
    name: Name,
    file: SourceFile,
    /// Device and inode when the file was first opened. The inode at listing time would be wrong on some FUSE file
    /// systems, which renumber files that are not open.
    inode: OnceLock<(u64, u64)>,
    /// Identity at listing time, if the file has several names.
    linked: Option<FileIdentity>,
}

/// The origin of a file's data.
#[derive(Debug)]
pub(crate) enum SourceFile {
    /// A file found in a tree.
    InTree {
        dir: Arc<SourceDir>,
        name: OsString,
        version: FileVersion,
    },
    /// A path that the user or the client gave. It may be a link.
    Named {
        base: Arc<BaseDir>,
        path: PathBuf,
        version: FileVersion,
    },
    Random {
        seed: u64,
    },
    Zero,
}

/// A directory of a source tree.
#[derive(Debug)]
pub(crate) enum SourceDir {
    /// A path that the user or the client gave. It may be a link.
    Named {
        base: Arc<BaseDir>,
        path: PathBuf,
    },
    Within {
        parent: Arc<SourceDir>,
        name: OsString,
    },
}

/// Length and modification time (seconds, nanoseconds): the version of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileVersion {
    length: i64,
    modified: (i64, i64),
}

/// Directories and files that are open now.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    dirs: Mutex<VecDeque<(Arc<SourceDir>, Arc<OwnedFd>)>>,
    /// Files of several blocks, by their numbers.
    files: Mutex<VecDeque<(u32, Arc<File>)>>,
}

impl ReadError {
    /// Converts an error of the kernel about a listed file.
    pub(super) fn from_errno(doing: &'static str, error: Errno) -> Self {
        match error {
            // ELOOP and ENOTDIR: a link or a file has replaced a directory.
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => ReadError::Changed,
            error => ReadError::Io { doing, source: error.into() },
        }
    }

    /// Converts an error of the kernel about a path that the user or the client gave.
    pub(super) fn from_named(error: Errno) -> Self {
        match error {
            Errno::NOENT => ReadError::NotFound,
            // openat2(2): the path leads out of the root.
            Errno::XDEV => ReadError::OutsideRoot,
            error => ReadError::Io { doing: "open", source: error.into() },
        }
    }

    /// Converts the reason to the error of a whole copy, if this was the only source.
    pub(super) fn into_transfer_error(self, path: String) -> TransferError {
        match self {
            ReadError::Changed | ReadError::Vanished => TransferError::SourceChanged { path },
            ReadError::NotFound => TransferError::SourceNotFound { path },
            ReadError::DanglingLink => TransferError::DanglingLink { path },
            ReadError::UnknownLength => TransferError::UnknownLength { path },
            ReadError::NotRegular(kind) => TransferError::NotRegular { path, kind },
            ReadError::NotDirectory => TransferError::Forbidden { path, reason: ForbiddenReason::SourceNotDirectory },
            ReadError::IsDestination | ReadError::SameFile => TransferError::SameFile { path },
            ReadError::OutsideRoot => TransferError::Forbidden { path, reason: ForbiddenReason::OutsideRoot },
            ReadError::Io { doing, source } => TransferError::File { doing, path, source },
            ReadError::Layout(error) => error.into(),
            ReadError::InvalidEntry(error) => TransferError::InvalidEntry { path, error },
        }
    }
}

impl ListedFile {
    pub(super) fn new(name: Name, file: SourceFile) -> Arc<Self> {
        Arc::new(ListedFile { name, file, inode: OnceLock::new(), linked: None })
    }

    /// Creates a listed file that may have several names.
    pub(super) fn linked(name: Name, file: SourceFile, stat: &Stat) -> Arc<Self> {
        let linked = (stat.st_nlink > 1)
            .then(|| (inode(stat), FileVersion::from_stat(stat), (stat.st_ctime, stat.st_ctime_nsec as i64)));
        Arc::new(ListedFile { name, file, inode: OnceLock::new(), linked })
    }

    /// Returns the identity under which other names of the file are recognised.
    pub(super) fn identity(&self) -> Option<FileIdentity> {
        self.linked
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Returns whether the data is in a file, and not generated.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.file, SourceFile::InTree { .. } | SourceFile::Named { .. })
    }

    #[cfg(test)]
    pub(super) fn file(&self) -> &SourceFile {
        &self.file
    }
}

impl FileVersion {
    pub(super) fn from_stat(stat: &Stat) -> Self {
        FileVersion { length: stat.st_size, modified: (stat.st_mtime, stat.st_mtime_nsec as i64) }
    }

    fn check_unchanged(&self, file: &File) -> Result<Stat, ReadError> {
        let now = fstat(file).map_err(|error| ReadError::from_errno("read", error))?;
        if FileVersion::from_stat(&now) == *self { Ok(now) } else { Err(ReadError::Changed) }
    }
}

impl SourceDir {
    /// Opens the directory, one component at a time. `O_PATH` is enough for looking up names in it.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (mut names, mut top) = (Vec::new(), self);
        while let SourceDir::Within { parent, name } = top {
            names.push(name);
            top = parent.as_ref();
        }
        let SourceDir::Named { base, path } = top else { return Err(Errno::NOENT) };
        let parent_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let last = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir = base.open(path, if names.is_empty() { last } else { parent_flags })?;
        while let Some(name) = names.pop() {
            let flags = if names.is_empty() { last } else { parent_flags };
            dir = openat(&dir, name.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(dir)
    }
}

impl OpenFiles {
    /// Reads a block into `buffer`, if the file still is the listed version. With `sparse`, holes are not read. Returns
    /// whether all bytes are zeros (only with `sparse`).
    pub(super) fn read_block(
        &self,
        task: &BlockTask<Arc<ListedFile>>,
        buffer: &mut [u8],
        sparse: bool,
    ) -> Result<bool, ReadError> {
        let offset = task.block.offset;
        match &task.source.file {
            SourceFile::Random { seed } => fill_random(*seed, offset, buffer),
            SourceFile::Zero => buffer.fill(0),
            SourceFile::InTree { version, .. } | SourceFile::Named { version, .. } => {
                let file = self.get_file(task, version)?;
                let hole = sparse && is_hole(&file, offset, buffer.len());
                if hole {
                    buffer.fill(0);
                } else {
                    file.read_exact_at(buffer, offset).map_err(|source| match source.kind() {
                        io::ErrorKind::UnexpectedEof => ReadError::Changed,
                        _ => ReadError::Io { doing: "read", source },
                    })?;
                }
                version.check_unchanged(&file)?;
                return Ok(hole || (sparse && is_zeros(buffer)));
            }
        }
        Ok(false)
    }

    /// Opens the file, if it still is the listed version.
    pub(super) fn open_unchanged(&self, task: &BlockTask<Arc<ListedFile>>) -> Result<Arc<File>, ReadError> {
        let (SourceFile::InTree { version, .. } | SourceFile::Named { version, .. }) = &task.source.file else {
            return Err(ReadError::Changed);
        };
        let file = self.get_file(task, version)?;
        version.check_unchanged(&file)?;
        Ok(file)
    }

    /// Checks a file after its last block was read, and closes it.
    pub(super) fn close(&self, task: &BlockTask<Arc<ListedFile>>) -> Result<(), ReadError> {
        let (SourceFile::InTree { version, .. } | SourceFile::Named { version, .. }) = &task.source.file else {
            return Ok(());
        };
        let file = self.get_file(task, version)?;
        lock(&self.files).retain(|(number, _)| *number != task.file);
        // A file without a name was replaced or removed, so the sent data is not the current file.
        if version.check_unchanged(&file)?.st_nlink == 0 { Err(ReadError::Changed) } else { Ok(()) }
    }

    fn get_file(&self, task: &BlockTask<Arc<ListedFile>>, version: &FileVersion) -> Result<Arc<File>, ReadError> {
        let has_several_blocks = task.layout.blocks() > 1;
        let known = |files: &VecDeque<(u32, Arc<File>)>| {
            files.iter().find(|(number, _)| *number == task.file).map(|(_, file)| file.clone())
        };
        if has_several_blocks && let Some(file) = known(&lock(&self.files)) {
            return Ok(file);
        }
        let file = Arc::new(self.open(&task.source.file)?);
        let stat = version.check_unchanged(&file)?;
        let inode = (stat.st_dev, stat.st_ino);
        if *task.source.inode.get_or_init(|| inode) != inode {
            return Err(ReadError::Changed);
        }
        if has_several_blocks {
            let mut files = lock(&self.files);
            if known(&files).is_none() {
                cache(&mut files, (task.file, file.clone()));
            }
        }
        Ok(file)
    }

    fn open(&self, source: &SourceFile) -> Result<File, ReadError> {
        let opened = match source {
            SourceFile::InTree { dir, name, .. } => {
                let dir = self.get_dir(dir).map_err(|error| ReadError::from_errno("open", error))?;
                openat(&*dir, name.as_os_str(), READ_FLAGS | OFlags::NOFOLLOW, Mode::empty())
            }
            SourceFile::Named { base, path, .. } => base.open(path, READ_FLAGS),
            SourceFile::Random { .. } | SourceFile::Zero => Err(Errno::INVAL),
        };
        opened.map(File::from).map_err(|error| ReadError::from_errno("open", error))
    }

    fn get_dir(&self, dir: &Arc<SourceDir>) -> Result<Arc<OwnedFd>, Errno> {
        let known = |dirs: &VecDeque<(Arc<SourceDir>, Arc<OwnedFd>)>| {
            dirs.iter().find(|(other, _)| Arc::ptr_eq(other, dir)).map(|(_, opened)| opened.clone())
        };
        if let Some(opened) = known(&lock(&self.dirs)) {
            return Ok(opened);
        }
        let opened = Arc::new(dir.open(OFlags::PATH)?);
        let mut dirs = lock(&self.dirs);
        if known(&dirs).is_none() {
            cache(&mut dirs, (dir.clone(), opened.clone()));
        }
        Ok(opened)
    }
}

/// Returns whether the range is inside a hole. False if the file system does not report holes.
fn is_hole(file: &File, offset: u64, length: usize) -> bool {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data >= offset + length as u64,
        // No data follows the offset (lseek(2)). The caller checks that the file did not become shorter.
        Err(Errno::NXIO) => true,
        Err(_) => false,
    }
}

fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<32>();
    words.iter().all(|word| *word == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

fn cache<T>(cached: &mut VecDeque<T>, new: T) {
    cached.push_front(new);
    cached.truncate(MAX_OPEN);
}
