//! Entries, requests and visitors for tests of a storage.

use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name};
use lfn_session::wire::copy::options::Verify;

use crate::TransferError;
use crate::storage::{
    Existing, Metadata, ObjectKind, OpenedPartial, PartialRequest, Removal, RemovalVisitor, Storage, UnpublishedFile,
};
use crate::work_meter::WorkMeter;

/// Block size of all test files.
pub(in crate::storage) const BLOCK: usize = 1024;

pub(in crate::storage) fn name(bytes: impl AsRef<[u8]>) -> Name {
    Name::new(bytes.as_ref()).unwrap()
}

pub(in crate::storage) fn modified() -> Modified {
    Modified::new(1_700_000_000, 0).unwrap()
}

fn entry(path: impl AsRef<[u8]>, kind: EntryKind, mode: u32) -> Entry {
    Entry::new(name(path), kind, mode, modified()).unwrap()
}

pub(in crate::storage) fn file_entry(path: impl AsRef<[u8]>, length: usize) -> Entry {
    entry(path, EntryKind::File { length: Bytes(length as u64) }, 0o644)
}

pub(in crate::storage) fn directory_entry(path: impl AsRef<[u8]>) -> Entry {
    entry(path, EntryKind::Directory, 0o755)
}

pub(in crate::storage) fn symlink_entry(path: impl AsRef<[u8]>, target: &str) -> Entry {
    entry(path, EntryKind::Symlink { target: ByteString::from(target) }, 0o777)
}

pub(in crate::storage) fn hard_link_entry(path: impl AsRef<[u8]>) -> Entry {
    entry(path, EntryKind::HardLink { to: 0 }, 0o644)
}

/// Writes a file of one block and gives it its name.
pub(in crate::storage) fn write(
    storage: &dyn Storage,
    path: impl AsRef<[u8]>,
    bytes: &[u8],
) -> Result<(), TransferError> {
    storage.write_file(&file_entry(path, bytes.len()), bytes)?.publish(false)
}

pub(in crate::storage) fn read(storage: &dyn Storage, path: impl AsRef<[u8]>) -> Vec<u8> {
    let file = storage.open_file(&name(path)).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().length.0 as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

pub(in crate::storage) fn metadata(storage: &dyn Storage, path: impl AsRef<[u8]>) -> Metadata {
    match storage.stat(&name(path)).unwrap() {
        Existing::Object(metadata) => metadata,
        other => panic!("{other:?}"),
    }
}

pub(in crate::storage) fn exists(storage: &dyn Storage, path: impl AsRef<[u8]>) -> bool {
    storage.stat(&name(path)).unwrap() != Existing::Nothing
}

/// Returns the sorted names in a directory.
pub(in crate::storage) fn list(storage: &dyn Storage, path: impl AsRef<[u8]>) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = storage.list(&name(path)).unwrap().map(Result::unwrap).collect();
    names.sort();
    names
}

/// A file of several blocks, and a request to write it.
pub(in crate::storage) struct LargeFile {
    pub(in crate::storage) entry: Entry,
    pub(in crate::storage) layout: Layout,
    pub(in crate::storage) verify: Verify,
    pub(in crate::storage) bytes: Vec<u8>,
    pub(in crate::storage) meter: Arc<WorkMeter>,
}

impl LargeFile {
    pub(in crate::storage) fn new(path: impl AsRef<[u8]>, blocks: usize) -> Self {
        let bytes: Vec<u8> = (0..blocks * BLOCK - 100).map(|n| (n / BLOCK * 7 + n) as u8 | 1).collect();
        LargeFile {
            entry: file_entry(path, bytes.len()),
            layout: Layout::new(Bytes(bytes.len() as u64), Bytes(BLOCK as u64)).unwrap(),
            verify: Verify::Blake3,
            bytes,
            meter: Arc::default(),
        }
    }

    pub(in crate::storage) fn open(&self, storage: &dyn Storage) -> Result<OpenedPartial, TransferError> {
        storage.open_partial(&PartialRequest {
            entry: &self.entry,
            layout: self.layout,
            verify: self.verify,
            reserve: true,
            afford: &|_| Ok(()),
            meter: &self.meter,
        })
    }

    pub(in crate::storage) fn hash(&self, index: u64) -> BlockHash {
        let block = self.layout.block(index).unwrap();
        let bytes = &self.bytes[block.offset as usize..][..block.length as usize];
        self.verify.hash(&self.layout, block, bytes)
    }

    pub(in crate::storage) fn write_blocks(
        &self,
        file: &Arc<dyn UnpublishedFile>,
        indices: impl IntoIterator<Item = u64>,
    ) {
        for index in indices {
            let block = self.layout.block(index).unwrap();
            let bytes = &self.bytes[block.offset as usize..][..block.length as usize];
            file.write_block(block, self.hash(index), bytes).unwrap();
        }
    }

    /// Writes all blocks that the storage does not have, and gives the file its name.
    pub(in crate::storage) fn complete(&self, storage: &dyn Storage, replace: bool) -> Result<(), TransferError> {
        let OpenedPartial { file, kept } = self.open(storage)?;
        let is_missing = |index: &u64| kept.iter().all(|(kept, _)| kept.first != *index);
        self.write_blocks(&file, (0..self.layout.blocks()).filter(is_missing));
        file.set_attributes(&self.entry)?;
        file.publish(replace)
    }
}

/// Removes everything except some names, and records what is gone.
#[derive(Debug, Default)]
pub(in crate::storage) struct Recorder {
    pub(in crate::storage) kept: Vec<&'static [u8]>,
    pub(in crate::storage) removed: Vec<(Vec<u8>, ObjectKind)>,
}

impl RemovalVisitor for Recorder {
    fn may_remove(&mut self, path: &[u8], _kind: ObjectKind) -> bool {
        !self.kept.contains(&path)
    }

    fn removed(&mut self, path: &[u8], kind: ObjectKind) {
        self.removed.push((path.to_vec(), kind));
    }
}

/// Removes a tree, and returns the removed paths in order.
pub(in crate::storage) fn remove(
    storage: &dyn Storage,
    path: impl AsRef<[u8]>,
    kept: &[&'static [u8]],
    dry_run: bool,
) -> (bool, Vec<Vec<u8>>) {
    let mut recorder = Recorder { kept: kept.to_vec(), ..Recorder::default() };
    let meter = WorkMeter::default();
    let gone = storage.remove_tree(&name(path), Removal { dry_run, meter: &meter }, &mut recorder).unwrap();
    (gone, recorder.removed.into_iter().map(|(path, _)| path).collect())
}
