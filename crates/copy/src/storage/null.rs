//! The storage `null:`, which accepts everything and keeps nothing.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lfn_session::wire::copy::blocks::{Block, Subtree};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{Entry, Modified, Name};

use super::{
    Capabilities, Existing, FileId, Metadata, ObjectKind, OpenedPartial, PartialRequest, Removal, RemovalVisitor,
    SharedPartial, Storage, TopDirectory, UnpublishedFile,
};
use crate::TransferError;

/// A storage that accepts everything and keeps nothing.
#[derive(Debug, Default)]
pub(crate) struct NullStorage;

/// A file whose data is discarded.
#[derive(Debug)]
struct NullFile;

impl Storage for NullStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            reads: false,
            writes: true,
            keeps_data: false,
            resumes: false,
            links: true,
            // A hole and zeros are the same here, because nothing is written.
            holes: true,
            attributes: false,
            reveals_existing: true,
        }
    }

    fn stat(&self, name: &Name) -> Result<Existing, TransferError> {
        if name.is_root() {
            Ok(Existing::Object(Metadata::of_new(ObjectKind::Directory)))
        } else {
            Ok(Existing::Nothing)
        }
    }

    fn top(&self) -> TopDirectory {
        TopDirectory { is_new: true, has_no_conflicts: true, ..TopDirectory::default() }
    }

    fn create_directory(&self, _entry: &Entry, _replace: bool) -> Result<(), TransferError> {
        Ok(())
    }

    fn create_symlink(&self, _entry: &Entry, _target: &ByteString, _replace: bool) -> Result<(), TransferError> {
        Ok(())
    }

    fn create_hard_link(
        &self,
        _entry: &Entry,
        _target: &Name,
        _expected: Option<FileId>,
        _replace: bool,
    ) -> Result<(), TransferError> {
        Ok(())
    }

    fn write_file(&self, _entry: &Entry, _bytes: &[u8]) -> Result<Arc<dyn UnpublishedFile>, TransferError> {
        Ok(Arc::new(NullFile))
    }

    fn open_partial(&self, request: &PartialRequest<'_>) -> Result<OpenedPartial, TransferError> {
        (request.afford)(request.layout.bytes())?;
        Ok(OpenedPartial { file: Arc::new(NullFile), kept: Vec::new() })
    }

    fn has_marker(&self, _marker: &str) -> bool {
        true
    }

    fn open_shared(&self, _name: &Name) -> Result<Box<dyn SharedPartial>, TransferError> {
        Ok(Box::new(NullFile))
    }

    fn remove_directory(&self, _name: &Name, _dry_run: bool) -> Result<bool, TransferError> {
        Ok(true)
    }

    fn remove_tree(
        &self,
        _name: &Name,
        _removal: Removal<'_>,
        _visitor: &mut dyn RemovalVisitor,
    ) -> Result<bool, TransferError> {
        Ok(true)
    }

    fn finish_directory(
        &self,
        _entry: &Entry,
        _is_new: bool,
        _previous_mode: Option<u32>,
    ) -> Result<(), TransferError> {
        Ok(())
    }

    fn update_attributes(&self, _entry: &Entry) -> Result<(), TransferError> {
        Ok(())
    }

    fn set_modified(&self, _entry: &Entry) -> Result<(), TransferError> {
        Ok(())
    }
}

impl SharedPartial for NullFile {
    fn write_block(&self, _block: Block, _bytes: &[u8]) -> Result<(), TransferError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn inode(&self) -> Option<u64> {
        None
    }
}

impl UnpublishedFile for NullFile {
    fn write_block(&self, _block: Block, _hash: BlockHash, _bytes: &[u8]) -> Result<(), TransferError> {
        Ok(())
    }

    fn record_block(&self, _block: Block, _hash: BlockHash) -> Result<(), TransferError> {
        Ok(())
    }

    fn write_hole(&self, _hole: Subtree, _hash: BlockHash) -> Result<(), TransferError> {
        Ok(())
    }

    fn set_attributes(&self, _entry: &Entry) -> Result<(), TransferError> {
        Ok(())
    }

    fn publish(&self, _replace: bool) -> Result<(), TransferError> {
        Ok(())
    }

    fn discard_on_close(&self) {}

    fn id(&self) -> Option<FileId> {
        None
    }

    fn was_created_since(&self, _since: Modified) -> bool {
        true
    }

    fn descriptors(&self) -> usize {
        0
    }

    fn directory_key(&self) -> usize {
        0
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
