//! Everything that a copy reads and writes, behind one interface.
//!
//! A [`Storage`] is a tree of entries below one top directory. Names are relative to the top and never leave it. The
//! sender reads from a storage and the receiver writes to one; neither knows where the entries are.
//! [`Capabilities`] states what a storage can do. Every storage passes the conformance suite in `tests`.
//!
//! A file is written in two steps. [`Storage::write_file`] and [`Storage::open_partial`] create an [`UnpublishedFile`],
//! which no reader can find under its final name. [`UnpublishedFile::publish`] gives the complete file this name in one
//! step.

pub(crate) mod generated;
pub(crate) mod holes;
pub(crate) mod local;
#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod memory_file;
pub(crate) mod null;
pub(crate) mod piece;
#[cfg(test)]
mod tests;
pub(crate) mod write_only;

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::{fmt, io};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Block, Layout, Subtree};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{Entry, Modified, Name};
use lfn_session::wire::copy::options::{FsyncPolicy, Verify};
use lfn_session::wire::copy::preserve::{Preserve, Unpreserved};
use lfn_session::wire::copy::{DestinationId, overwrite};

use super::TransferError;
use super::work_meter::WorkMeter;

/// Identity of an object in a storage: device and inode number, or an equivalent.
pub(crate) type FileId = (u64, u64);

/// The names in a directory.
pub(crate) type Names = Box<dyn Iterator<Item = Result<Vec<u8>, TransferError>> + Send>;

/// Abilities of a storage. An operation whose flag is false answers with an error. The conformance suite compares the
/// flags with what the storage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Entries can be listed and files can be read.
    pub(crate) reads: bool,
    /// Entries can be created, replaced and removed.
    pub(crate) writes: bool,
    /// The storage keeps what is written. If not, the caller may discard the payload of a block and write the block
    /// without it.
    pub(crate) keeps_data: bool,
    /// An incomplete file survives the copy, and the next copy resumes it.
    pub(crate) resumes: bool,
    /// Symbolic links and hard links are stored as such.
    pub(crate) links: bool,
    /// A hole in a file takes no space, and [`FileData::next_data`] finds it.
    pub(crate) holes: bool,
    /// Modes, owners, extended attributes and access control lists are stored, as far as the user may set them.
    pub(crate) attributes: bool,
    /// The peer may learn about existing entries: times, sizes, digests, and whether an entry was replaced.
    pub(crate) reveals_existing: bool,
}

/// Kind of an object in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    File,
    Directory,
    Symlink,
    /// A device, a socket or a FIFO.
    Other(crate::FileKind),
}

/// Attributes of an object in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) kind: ObjectKind,
    pub(crate) length: Bytes,
    pub(crate) modified: Modified,
    /// Last change of the data or the attributes (ctime).
    pub(crate) changed: Modified,
    /// Permission bits with set-id and sticky bits: 12 bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) id: FileId,
    /// Number of names of the object.
    pub(crate) links: u64,
}

impl Metadata {
    /// Returns the attributes of an object that has only a kind.
    fn of_new(kind: ObjectKind) -> Self {
        Metadata {
            kind,
            length: Bytes(0),
            modified: Modified::default(),
            changed: Modified::default(),
            mode: 0,
            uid: 0,
            gid: 0,
            id: (0, 0),
            links: 1,
        }
    }
}

/// The object under a name, as far as the caller may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Nothing,
    Object(Metadata),
    /// The name is in use. The caller must not learn more.
    Hidden,
}

impl Existing {
    /// Returns whether it is a directory that the caller may see.
    pub(crate) fn is_directory(self) -> bool {
        matches!(self, Existing::Object(metadata) if metadata.kind == ObjectKind::Directory)
    }

    /// Returns the object as the decision about an entry sees it.
    pub(crate) fn for_decision(self) -> overwrite::Existing {
        match self {
            Existing::Nothing => overwrite::Existing::Nothing,
            Existing::Hidden => overwrite::Existing::Hidden,
            Existing::Object(Metadata { kind, length, modified, .. }) => match kind {
                ObjectKind::File => overwrite::Existing::File { length, modified },
                ObjectKind::Directory => overwrite::Existing::Directory,
                ObjectKind::Symlink => overwrite::Existing::Symlink,
                ObjectKind::Other(_) => overwrite::Existing::Other,
            },
        }
    }
}

/// The top directory of a storage that a copy writes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopDirectory {
    /// The destination as the user typed it, for messages. `None` if the storage has no path.
    pub(crate) display_path: Option<String>,
    /// This copy created the directory.
    pub(crate) is_new: bool,
    /// The directory does not exist, and a dry run must not create it.
    pub(crate) is_missing: bool,
    /// The directory is the served root of a server, so its attributes stay.
    pub(crate) is_shared: bool,
    /// No existing entry can conflict with the copy. Otherwise the sender waits for the plan before it sends.
    pub(crate) has_no_conflicts: bool,
    /// Identity for a sender on the same host.
    pub(crate) id: Option<DestinationId>,
    /// The name that the single file of the copy gets instead of its own name.
    pub(crate) single_name: Option<ByteString>,
}

/// A file to open for writing in blocks.
pub(crate) struct PartialRequest<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) layout: Layout,
    pub(crate) verify: Verify,
    /// Reserve the disk space of the whole file before the first block is written.
    pub(crate) reserve: bool,
    /// Checks that a quota allows this many missing bytes. Called before the file grows.
    pub(crate) afford: &'a dyn Fn(Bytes) -> Result<(), TransferError>,
    /// Measures the verification of existing blocks, and stops it.
    pub(crate) meter: &'a Arc<WorkMeter>,
}

/// A file that is open for writing in blocks, with the intact blocks that an earlier copy left in it.
pub(crate) struct OpenedPartial {
    pub(crate) file: Arc<dyn UnpublishedFile>,
    pub(crate) kept: Vec<(Subtree, BlockHash)>,
}

/// Scope of a [`Storage::sync`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum SyncScope<'a> {
    /// All that the copy wrote or found up to date.
    Everything,
    /// One entry and its name. `existing` is the name of a file that was up to date.
    OneEntry { existing: Option<&'a Name> },
}

/// Decides about each entry of a tree that is removed, and learns what was removed. Paths are relative to the top.
pub(crate) trait RemovalVisitor {
    /// Returns whether an entry in the removed tree may be removed. An entry that stays keeps its contents and the
    /// directories around it. The top of the removed tree is not asked about.
    fn may_remove(&mut self, path: &[u8], kind: ObjectKind) -> bool;

    /// Reports a removed entry, in a dry run an entry that would be removed. Contents come before their directory.
    fn removed(&mut self, path: &[u8], kind: ObjectKind);
}

/// Options of a removal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal<'a> {
    /// Remove nothing, and only report.
    pub(crate) dry_run: bool,
    /// Stops the removal, and measures it as disk work.
    pub(crate) meter: &'a WorkMeter,
}

/// A tree of entries that a copy reads from or writes to. All methods may block on a disk or a network. Errors name the
/// entry as the user knows it. The default methods are those of a storage without the ability.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    fn capabilities(&self) -> Capabilities;

    /// Returns the attributes of an entry, without following a link.
    fn stat(&self, name: &Name) -> Result<Existing, TransferError>;

    /// Returns the names in a directory, without `.` and `..`, in any order.
    fn list(&self, directory: &Name) -> Result<Names, TransferError> {
        Err(self.unsupported(directory, "list entries"))
    }

    /// Returns the target of a symbolic link.
    fn read_link(&self, name: &Name) -> Result<ByteString, TransferError> {
        Err(self.unsupported(name, "read links"))
    }

    /// Opens a regular file for reading, without following a link.
    fn open_file(&self, name: &Name) -> Result<Box<dyn ReadFile>, TransferError> {
        Err(self.unsupported(name, "read files"))
    }

    /// Adds the owner, extended attributes and access control lists of an object to its entry, as far as `preserve`
    /// asks for them.
    fn read_attributes(&self, entry: &mut Entry, preserve: Preserve) -> Result<(), TransferError> {
        let _ = preserve;
        Err(self.unsupported(&entry.name, "read attributes"))
    }

    /// Returns the top directory as a destination. This looks into the directory, so call it once.
    fn top(&self) -> TopDirectory;

    /// Creates a directory with the [`TopDirectory::single_name`], which becomes the top. Does nothing if there is no
    /// such name.
    fn make_top_directory(&mut self) -> Result<(), TransferError> {
        Ok(())
    }

    /// Removes the top directory again if this copy created it and it is empty.
    fn remove_new_top(&self) {}

    /// Checks that the storage can hold an entry of this name.
    fn check_name(&self, name: &Name) -> Result<(), TransferError> {
        let _ = name;
        Ok(())
    }

    /// Returns whether the last component of a path is reserved for the storage's own files. Such entries are no part
    /// of the tree and are never deleted.
    fn is_reserved(&self, file_name: &[u8]) -> bool {
        let _ = file_name;
        false
    }

    /// Returns the name of an entry for messages.
    fn display_name(&self, name: &Name) -> String {
        name.to_string()
    }

    /// Returns whether the entry was created at `since` or later. An entry without a known time is older.
    fn was_created_since(&self, name: &Name, since: Modified) -> bool {
        let _ = (name, since);
        false
    }

    /// Returns whether an earlier copy left an incomplete file of this name.
    fn has_partial(&self, name: &Name) -> Result<bool, TransferError> {
        let _ = name;
        Ok(false)
    }

    /// Returns whether the copy that holds the incomplete file of this name is over, and only waits for a disk.
    fn is_partial_released(&self, name: &Name) -> bool {
        let _ = name;
        false
    }

    /// Checks that the hidden object under a name is a directory. A storage without hidden objects accepts every name.
    ///
    /// # Errors
    /// [`TransferError::Conflict`] if it is another object. The error is the same for every kind.
    fn check_directory(&self, name: &Name) -> Result<(), TransferError> {
        let _ = name;
        Ok(())
    }

    /// Removes what a killed copy left of a file or directory that is complete.
    fn remove_leftovers(&self, name: &Name) {
        let _ = name;
    }

    /// Creates a directory that its owner can write to. With `replace`, it replaces an entry of another kind.
    fn create_directory(&self, entry: &Entry, replace: bool) -> Result<(), TransferError> {
        let _ = replace;
        Err(self.unsupported(&entry.name, "create directories"))
    }

    /// Creates a symbolic link with its attributes. With `replace`, it replaces an existing entry.
    fn create_symlink(&self, entry: &Entry, target: &ByteString, replace: bool) -> Result<(), TransferError> {
        let _ = (target, replace);
        Err(self.unsupported(&entry.name, "create links"))
    }

    /// Creates another name of the file `target`, if that file still is `expected`. Without an expected file, any file
    /// is accepted.
    fn create_hard_link(
        &self,
        entry: &Entry,
        target: &Name,
        expected: Option<FileId>,
        replace: bool,
    ) -> Result<(), TransferError> {
        let _ = (target, expected, replace);
        Err(self.unsupported(&entry.name, "create links"))
    }

    /// Writes a whole file of at most one block, with its attributes.
    fn write_file(&self, entry: &Entry, bytes: &[u8]) -> Result<Arc<dyn UnpublishedFile>, TransferError> {
        let _ = bytes;
        Err(self.unsupported(&entry.name, "write files"))
    }

    /// Opens a file for writing in blocks, and resumes what an earlier copy of the same source left.
    ///
    /// # Errors
    /// [`TransferError::Locked`] if another copy writes the file, [`TransferError::NoSpace`], or the error of
    /// [`PartialRequest::afford`].
    fn open_partial(&self, request: &PartialRequest<'_>) -> Result<OpenedPartial, TransferError> {
        Err(self.unsupported(&request.entry.name, "write files"))
    }

    /// Opens the partial file of this name that another host holds open, to write blocks into it. Creates nothing.
    ///
    /// # Errors
    /// [`TransferError::NotFound`] if there is no such file, and [`TransferError::Unsupported`] by default.
    fn open_shared(&self, name: &Name) -> Result<Box<dyn SharedPartial>, TransferError> {
        Err(self.unsupported(name, "write into the files of another host"))
    }

    /// Creates an empty file with this random name at the top, by which other hosts recognise the storage.
    fn create_marker(&self, marker: &str) -> Result<(), TransferError> {
        let _ = marker;
        Ok(())
    }

    /// Returns whether the file of [`Storage::create_marker`] is here.
    fn has_marker(&self, marker: &str) -> bool {
        let _ = marker;
        false
    }

    /// Removes the file of [`Storage::create_marker`].
    fn remove_marker(&self, marker: &str) {
        let _ = marker;
    }

    /// Removes a directory if it is empty. Returns whether it is gone, in a dry run whether it would be. A directory
    /// that does not exist is gone.
    fn remove_directory(&self, name: &Name, dry_run: bool) -> Result<bool, TransferError> {
        let _ = dry_run;
        Err(self.unsupported(name, "remove entries"))
    }

    /// Removes an entry with all its contents, at any depth, except reserved names and what the visitor keeps. Returns
    /// whether the entry is gone, in a dry run whether it would be. The directory around the entry keeps its time and
    /// mode.
    fn remove_tree(
        &self,
        name: &Name,
        removal: Removal<'_>,
        visitor: &mut dyn RemovalVisitor,
    ) -> Result<bool, TransferError> {
        let _ = (removal, visitor);
        Err(self.unsupported(name, "remove entries"))
    }

    /// Gives the owner write access to an existing directory. Returns the mode to restore afterwards, if there is one.
    fn make_directory_writable(&self, entry: &Entry) -> Option<u32> {
        let _ = entry;
        None
    }

    /// Sets the attributes of a directory after the last write in it, and restores a mode of
    /// [`Storage::make_directory_writable`].
    fn finish_directory(&self, entry: &Entry, is_new: bool, previous_mode: Option<u32>) -> Result<(), TransferError> {
        let _ = (is_new, previous_mode);
        Err(self.unsupported(&entry.name, "change attributes"))
    }

    /// Sets the preserved attributes of an existing file or symbolic link, except the modification time of a file.
    fn update_attributes(&self, entry: &Entry) -> Result<(), TransferError> {
        Err(self.unsupported(&entry.name, "change attributes"))
    }

    /// Sets the modification time of an existing file to that of its entry.
    fn set_modified(&self, entry: &Entry) -> Result<(), TransferError> {
        Err(self.unsupported(&entry.name, "change attributes"))
    }

    /// Returns the numbers of attributes that could not be set.
    fn unpreserved(&self) -> Unpreserved {
        Unpreserved::default()
    }

    /// Registers a file that is up to date, so that [`Storage::sync`] flushes it too.
    fn note_up_to_date(&self, name: &Name) {
        let _ = name;
    }

    /// Returns whether the file may be published now, because [`Storage::sync`] flushes it later.
    fn is_synced_later(&self, file: &dyn UnpublishedFile) -> bool {
        let _ = file;
        true
    }

    /// Flushes the data of complete files if `policy` requires this before they are published. Returns one result for
    /// each file.
    fn sync_files(&self, files: &[Arc<dyn UnpublishedFile>], policy: FsyncPolicy) -> Vec<io::Result<()>> {
        let _ = policy;
        files.iter().map(|_| Ok(())).collect()
    }

    /// Flushes names and data.
    fn sync(&self, scope: SyncScope<'_>) -> Result<(), TransferError> {
        let _ = scope;
        Ok(())
    }

    /// Returns the error of an operation that needs an ability of another storage.
    fn unsupported(&self, name: &Name, what: &'static str) -> TransferError {
        TransferError::Unsupported { path: self.display_name(name), what }
    }

    /// Opens a file without a name for data that does not fit in memory. With `dry_run` the file is outside the
    /// storage. `None` if that is impossible.
    fn create_scratch_file(&self, dry_run: bool) -> Option<File> {
        let _ = dry_run;
        None
    }
}

/// A file that is being written and that has no final name yet. Dropping the last handle keeps the file if the next
/// copy can resume it, and removes the file otherwise.
pub(crate) trait UnpublishedFile: fmt::Debug + Send + Sync {
    /// Writes a block and records that the block is written. Several threads may write different blocks.
    fn write_block(&self, block: Block, hash: BlockHash, bytes: &[u8]) -> Result<(), TransferError>;

    /// Records a block that another host has written into this file ([`SharedPartial`]).
    fn record_block(&self, block: Block, hash: BlockHash) -> Result<(), TransferError>;

    /// Writes blocks of zeros as a hole, and records that they are written. The storage must have
    /// [`Capabilities::holes`].
    fn write_hole(&self, hole: Subtree, hash: BlockHash) -> Result<(), TransferError>;

    /// Sets the preserved attributes, before the file is synced. A file of [`Storage::write_file`] has them already.
    fn set_attributes(&self, entry: &Entry) -> Result<(), TransferError>;

    /// Gives the file its final name. With `replace`, it replaces an existing entry.
    ///
    /// # Errors
    /// [`TransferError::Exists`] if the name is in use and `replace` is false. [`TransferError::PartialFileChanged`] if
    /// another program wrote to the file, which is then useless.
    fn publish(&self, replace: bool) -> Result<(), TransferError>;

    /// Marks the file as useless, so that dropping it removes it.
    fn discard_on_close(&self);

    fn id(&self) -> Option<FileId>;

    /// Returns whether the file was created at `since` or later.
    fn was_created_since(&self, since: Modified) -> bool;

    /// Returns the number of descriptors that the file holds open, without its directory.
    fn descriptors(&self) -> usize;

    /// Returns a number that is equal for files whose directory is one open descriptor.
    fn directory_key(&self) -> usize;

    /// Returns the open file, if there is one.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A partial file that another host holds open. This host writes blocks into it, and the other host records them.
pub(crate) trait SharedPartial: fmt::Debug + Send + Sync {
    fn write_block(&self, block: Block, bytes: &[u8]) -> Result<(), TransferError>;

    /// Writes the blocks to the disk, so that the other host finds them.
    fn sync(&self) -> Result<(), TransferError>;

    /// Returns the inode number. `None` if nothing is written.
    fn inode(&self) -> Option<u64>;
}

/// The data of a file.
pub(crate) trait FileData: fmt::Debug + Send + Sync {
    /// Fills the buffer from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Returns the offset of the next data at `offset` or after it, or `None` if only a hole follows. Without
    /// [`Capabilities::holes`], data follows at once.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>>;
}

/// A file that is open for reading.
pub(crate) trait ReadFile: FileData {
    /// Returns the present attributes.
    fn metadata(&self) -> io::Result<Metadata>;

    /// Returns the attributes at the time when the file was opened, without a further operation if possible.
    fn metadata_at_open(&self) -> io::Result<Metadata> {
        self.metadata()
    }

    /// Returns the open file for `sendfile`, if there is one.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}
