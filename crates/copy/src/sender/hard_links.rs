//! Recognises several names of one file, to preserve hard links.
//!
//! [`LinkableFiles`] computes which files the receiver still remembers. A file that could not be sent is removed, and
//! its next name becomes a separate file. A file with the inode number of an earlier file is not automatically the same
//! file: inode numbers are used again after a deletion, and trees change while they are listed.

use std::collections::HashMap;

use lfn_session::wire::copy::entry::Modified;

use super::file_version::FileVersion;
use crate::proto::linkable_files::LinkableFiles;
use crate::storage::FileId;

/// Identity of a file with several names: device and inode, content version and ctime. The ctime is necessary: if the
/// files of a tree have equal times, another file may get the same inode number and have the same length.
pub(super) type FileIdentity = (FileId, FileVersion, Modified);

/// The listed files that have several names.
#[derive(Debug)]
pub(super) struct LinkedFiles {
    is_enabled: bool,
    linkable: LinkableFiles,
    numbers: HashMap<FileIdentity, u32>,
    files: HashMap<u32, FileIdentity>,
}

impl LinkedFiles {
    /// Creates an empty set. A disabled set stays empty.
    pub(super) fn new(is_enabled: bool) -> Self {
        LinkedFiles { is_enabled, linkable: LinkableFiles::default(), numbers: HashMap::new(), files: HashMap::new() }
    }

    /// Returns the number of the entry that listed another name of the file.
    pub(super) fn number_of(&self, file: FileIdentity) -> Option<u32> {
        self.numbers.get(&file).copied()
    }

    /// Adds the first name of a file.
    pub(super) fn add(&mut self, number: u32, name: usize, file: FileIdentity) {
        for old in self.linkable.push(number, name) {
            if let Some(file) = self.files.remove(&old) {
                self.numbers.remove(&file);
            }
        }
        self.numbers.insert(file, number);
        self.files.insert(number, file);
    }

    /// Returns whether hard links are preserved.
    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Removes a file that does not exist at the receiver.
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(file) = self.files.remove(&number) {
            self.numbers.remove(&file);
        }
    }
}
