//! A file that is a piece of a larger one, at its place in that file.
//!
//! The piece looks like the larger file up to its own end. The bytes before it are not known, and read as zeros. They
//! are only read in the first block, if that block starts before the piece.

use std::io;
use std::os::fd::BorrowedFd;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::{Entry, Name};
use lfn_session::wire::copy::preserve::Preserve;

use super::local::LocalTree;
use super::{Capabilities, Existing, FileData, Metadata, ReadFile, Storage, TopDirectory};
use crate::TransferError;

/// A storage with one file, which is a piece.
#[derive(Debug)]
pub(crate) struct PieceStorage {
    tree: LocalTree,
    offset: Bytes,
}

#[derive(Debug)]
struct PieceFile {
    file: Box<dyn ReadFile>,
    offset: Bytes,
}

impl PieceStorage {
    /// Creates the storage of a file whose first byte is at `offset` of the larger file.
    pub(crate) fn new(tree: LocalTree, offset: Bytes) -> Self {
        PieceStorage { tree, offset }
    }
}

/// Returns the attributes with the length up to the end of the piece.
pub(crate) fn piece_metadata(metadata: Metadata, offset: Bytes) -> Metadata {
    Metadata { length: Bytes(metadata.length.0.saturating_add(offset.0)), ..metadata }
}

impl Storage for PieceStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities { holes: false, ..self.tree.capabilities() }
    }

    fn stat(&self, name: &Name) -> Result<Existing, TransferError> {
        Ok(match self.tree.stat(name)? {
            Existing::Object(metadata) => Existing::Object(piece_metadata(metadata, self.offset)),
            other => other,
        })
    }

    fn open_file(&self, name: &Name) -> Result<Box<dyn ReadFile>, TransferError> {
        Ok(Box::new(PieceFile { file: self.tree.open_file(name)?, offset: self.offset }))
    }

    fn read_attributes(&self, entry: &mut Entry, preserve: Preserve) -> Result<(), TransferError> {
        self.tree.read_attributes(entry, preserve)
    }

    fn top(&self) -> TopDirectory {
        self.tree.top()
    }

    fn display_name(&self, name: &Name) -> String {
        self.tree.display_name(name)
    }
}

impl ReadFile for PieceFile {
    fn metadata(&self) -> io::Result<Metadata> {
        Ok(piece_metadata(self.file.metadata()?, self.offset))
    }

    fn metadata_at_open(&self) -> io::Result<Metadata> {
        Ok(piece_metadata(self.file.metadata_at_open()?, self.offset))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl FileData for PieceFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let before = self.offset.0.saturating_sub(offset).min(buffer.len() as u64);
        let (unknown, known) = buffer.split_at_mut(before as usize);
        unknown.fill(0);
        if known.is_empty() {
            return Ok(());
        }
        self.file.read_exact_at(known, offset + before - self.offset.0)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }
}
