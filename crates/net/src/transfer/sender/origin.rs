//! Where an entry's bytes are, and how they are read so that nothing else is taken for them.
//!
//! A file is named by the directory it was found in and its name there. Every directory on the way is opened by itself
//! and without following a symbolic link, so that whoever renames or swaps one while the copy runs leads it nowhere.
//! What is opened must be as it was listed (length, modification time) before it is read and after, and whoever opens
//! it again must find the same inode: no half of one version is joined to half of another. Few files are held open,
//! however many are listed.

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
use lfn_core::transfer::schedule::Piece;
use rustix::fs::{Mode, OFlags, SeekFrom, Stat, fstat, openat, seek};
use rustix::io::Errno;

use super::names::Identity;
use crate::transfer::TransferError;
use crate::transfer::error::NO_DIRECTORY;
use crate::transfer::flow::lock;
use crate::transfer::place::{Base, inode};

/// How many directories, and how many files, are kept open for whoever reads on in them.
const KEPT_OPEN: usize = 16;

/// Not to wait for the writer of a FIFO, nor to make a terminal this process's own.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Why an entry cannot be sent; reads behind its name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsent {
    /// Somebody wrote to it, removed it, or put something else in its place.
    #[error("changed while it was copied")]
    Changed,
    /// It was there when its directory was read.
    #[error("vanished while it was listed")]
    Vanished,
    /// As typed.
    #[error("no such file or directory")]
    NotFound,
    /// As typed, where links are not copied as what they are.
    #[error("is a symbolic link that leads nowhere")]
    LeadsNowhere,
    /// Its bytes are made while it is read, as in /proc: how many are to come is not known.
    #[error("is listed as empty, and is not")]
    Lengthless,
    /// A directory where none is wanted, a device, a pipe …
    #[error("is a {0}, not a regular file")]
    Kind(&'static str),
    /// Where some of what is in it is asked for.
    #[error("is no directory")]
    NoDirectory,
    /// A directory, where both ends are on one host.
    #[error("is the destination, which is not copied into itself")]
    Destination,
    /// What is copied is what the copy would make.
    #[error("source and destination are the same")]
    Same,
    /// Of a server.
    #[error("leads out of the served directory")]
    Outside,
    /// Any other error of a file system.
    #[error("cannot {doing}: {source}")]
    File { doing: &'static str, source: io::Error },
    /// No list can hold it.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Too long.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// A file that is listed, as whoever sends it knows it.
#[derive(Debug)]
pub(crate) struct Item {
    name: Name,
    origin: Origin,
    /// Device and inode, as it was first opened. Not those it was listed with: some file systems number anew what nobody
    /// has open (FUSE).
    inode: OnceLock<(u64, u64)>,
    /// What it was listed as, of a file that has other names too.
    linked: Option<Identity>,
}

/// Where bytes come from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Found in a tree.
    Found {
        folder: Arc<Folder>,
        name: OsString,
        facts: Facts,
    },
    /// Named by the user or a client, who may name a link to it.
    Typed {
        base: Arc<Base>,
        path: PathBuf,
        facts: Facts,
    },
    Random {
        seed: u64,
    },
    Zero,
}

/// A directory of a tree.
#[derive(Debug)]
pub(crate) enum Folder {
    /// Named by the user or a client, who may name a link to it.
    Typed {
        base: Arc<Base>,
        path: PathBuf,
    },
    Within {
        parent: Arc<Folder>,
        name: OsString,
    },
}

/// By which a file is known to have the content it was listed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Facts {
    length: i64,
    modified: (i64, i64),
}

/// What is open at present.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    folders: Mutex<VecDeque<(Arc<Folder>, Arc<OwnedFd>)>>,
    /// Those of more than one block, by their numbers.
    files: Mutex<VecDeque<(u32, Arc<File>)>>,
}

impl Unsent {
    /// What the kernel says of a file that was listed.
    pub(super) fn of(doing: &'static str, error: Errno) -> Self {
        match error {
            // ELOOP and ENOTDIR: a link or a file stands where a directory was.
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => Unsent::Changed,
            error => Unsent::File { doing, source: error.into() },
        }
    }

    /// What the kernel says of a path that was typed.
    pub(super) fn typed(error: Errno) -> Self {
        match error {
            Errno::NOENT => Unsent::NotFound,
            // openat2: the path leads out of the root.
            Errno::XDEV => Unsent::Outside,
            error => Unsent::File { doing: "open", source: error.into() },
        }
    }

    /// As the error of a whole copy, where there is nothing else to copy.
    pub(super) fn into_error(self, path: String) -> TransferError {
        match self {
            Unsent::Changed | Unsent::Vanished => TransferError::SourceChanged { path },
            Unsent::NotFound => TransferError::NotFound { path },
            Unsent::LeadsNowhere => TransferError::LeadsNowhere { path },
            Unsent::Lengthless => TransferError::Lengthless { path },
            Unsent::Kind(kind) => TransferError::NotRegular { path, kind },
            Unsent::NoDirectory => TransferError::Forbidden { path, why: NO_DIRECTORY },
            Unsent::Destination | Unsent::Same => TransferError::Same { path },
            Unsent::Outside => TransferError::Forbidden { path, why: "leads out of the served directory" },
            Unsent::File { doing, source } => TransferError::File { doing, path, source },
            Unsent::Layout(error) => error.into(),
            Unsent::Entry(error) => TransferError::Unlisted { path, error },
        }
    }
}

impl Item {
    pub(super) fn new(name: Name, origin: Origin) -> Arc<Self> {
        Arc::new(Item { name, origin, inode: OnceLock::new(), linked: None })
    }

    /// One that may have other names.
    pub(super) fn linked(name: Name, origin: Origin, stat: &Stat) -> Arc<Self> {
        let linked =
            (stat.st_nlink > 1).then(|| (inode(stat), Facts::of(stat), (stat.st_ctime, stat.st_ctime_nsec as i64)));
        Arc::new(Item { name, origin, inode: OnceLock::new(), linked })
    }

    /// By what its other names are known.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.linked
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Whether its bytes are in a file, and not made on the spot.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.origin, Origin::Found { .. } | Origin::Typed { .. })
    }

    #[cfg(test)]
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }
}

impl Facts {
    pub(super) fn of(stat: &Stat) -> Self {
        Facts { length: stat.st_size, modified: (stat.st_mtime, stat.st_mtime_nsec as i64) }
    }

    fn check(&self, file: &File) -> Result<Stat, Unsent> {
        let now = fstat(file).map_err(|error| Unsent::of("read", error))?;
        if Facts::of(&now) == *self { Ok(now) } else { Err(Unsent::Changed) }
    }
}

impl Folder {
    /// Opens it, directory by directory; `O_PATH` is enough for what only looks up names in it.
    pub(super) fn open(&self, how: OFlags) -> Result<OwnedFd, Errno> {
        let (mut names, mut top) = (Vec::new(), self);
        while let Folder::Within { parent, name } = top {
            names.push(name);
            top = parent.as_ref();
        }
        let Folder::Typed { base, path } = top else { return Err(Errno::NOENT) };
        let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let last = how | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = base.open(path, if names.is_empty() { last } else { on_the_way })?;
        while let Some(name) = names.pop() {
            let flags = if names.is_empty() { last } else { on_the_way };
            folder = openat(&folder, name.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(folder)
    }
}

impl Opened {
    /// Fills `buffer` with the block, if the file is the one that was listed and stayed so. What lies in a hole is not read,
    /// where holes are kept (`sparse`), and it is told whether all of it is zeros.
    pub(super) fn read(&self, piece: &Piece<Arc<Item>>, buffer: &mut [u8], sparse: bool) -> Result<bool, Unsent> {
        let offset = piece.block.offset;
        match &piece.of.origin {
            Origin::Random { seed } => fill_random(*seed, offset, buffer),
            Origin::Zero => buffer.fill(0),
            Origin::Found { facts, .. } | Origin::Typed { facts, .. } => {
                let file = self.file(piece, facts)?;
                let hole = sparse && is_hole(&file, offset, buffer.len());
                if hole {
                    buffer.fill(0);
                } else {
                    file.read_exact_at(buffer, offset).map_err(|source| match source.kind() {
                        io::ErrorKind::UnexpectedEof => Unsent::Changed,
                        _ => Unsent::File { doing: "read", source },
                    })?;
                }
                facts.check(&file)?;
                return Ok(hole || (sparse && is_zeros(buffer)));
            }
        }
        Ok(false)
    }

    /// The file, if it is as it was listed.
    pub(super) fn listed(&self, piece: &Piece<Arc<Item>>) -> Result<Arc<File>, Unsent> {
        let (Origin::Found { facts, .. } | Origin::Typed { facts, .. }) = &piece.of.origin else {
            return Err(Unsent::Changed);
        };
        let file = self.file(piece, facts)?;
        facts.check(&file)?;
        Ok(file)
    }

    /// Looks at a file whose last block was read, and lets it go.
    pub(super) fn close(&self, piece: &Piece<Arc<Item>>) -> Result<(), Unsent> {
        let (Origin::Found { facts, .. } | Origin::Typed { facts, .. }) = &piece.of.origin else { return Ok(()) };
        let file = self.file(piece, facts)?;
        lock(&self.files).retain(|(number, _)| *number != piece.file);
        // Without a name it was replaced or removed: what was sent is not what stands there.
        if facts.check(&file)?.st_nlink == 0 { Err(Unsent::Changed) } else { Ok(()) }
    }

    fn file(&self, piece: &Piece<Arc<Item>>, facts: &Facts) -> Result<Arc<File>, Unsent> {
        let several = piece.layout.blocks() > 1;
        let known = |files: &VecDeque<(u32, Arc<File>)>| {
            files.iter().find(|(number, _)| *number == piece.file).map(|(_, file)| file.clone())
        };
        if several && let Some(file) = known(&lock(&self.files)) {
            return Ok(file);
        }
        let file = Arc::new(self.open(&piece.of.origin)?);
        let stat = facts.check(&file)?;
        let inode = (stat.st_dev, stat.st_ino);
        if *piece.of.inode.get_or_init(|| inode) != inode {
            return Err(Unsent::Changed);
        }
        if several {
            let mut files = lock(&self.files);
            if known(&files).is_none() {
                keep(&mut files, (piece.file, file.clone()));
            }
        }
        Ok(file)
    }

    fn open(&self, origin: &Origin) -> Result<File, Unsent> {
        let opened = match origin {
            Origin::Found { folder, name, .. } => {
                let folder = self.folder(folder).map_err(|error| Unsent::of("open", error))?;
                openat(&*folder, name.as_os_str(), READ | OFlags::NOFOLLOW, Mode::empty())
            }
            Origin::Typed { base, path, .. } => base.open(path, READ),
            Origin::Random { .. } | Origin::Zero => Err(Errno::INVAL),
        };
        opened.map(File::from).map_err(|error| Unsent::of("open", error))
    }

    fn folder(&self, folder: &Arc<Folder>) -> Result<Arc<OwnedFd>, Errno> {
        let known = |folders: &VecDeque<(Arc<Folder>, Arc<OwnedFd>)>| {
            folders.iter().find(|(other, _)| Arc::ptr_eq(other, folder)).map(|(_, opened)| opened.clone())
        };
        if let Some(opened) = known(&lock(&self.folders)) {
            return Ok(opened);
        }
        let opened = Arc::new(folder.open(OFlags::PATH)?);
        let mut folders = lock(&self.folders);
        if known(&folders).is_none() {
            keep(&mut folders, (folder.clone(), opened.clone()));
        }
        Ok(opened)
    }
}

/// Whether there is nothing but a hole; false where that cannot be told.
fn is_hole(file: &File, offset: u64, length: usize) -> bool {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data >= offset + length as u64,
        // There is no data behind it (lseek(2)); that the file is as long as it was is checked by whoever asks.
        Err(Errno::NXIO) => true,
        Err(_) => false,
    }
}

/// Whether all of it is zeros.
fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<32>();
    words.iter().all(|word| *word == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

fn keep<T>(kept: &mut VecDeque<T>, new: T) {
    kept.push_front(new);
    kept.truncate(KEPT_OPEN);
}
