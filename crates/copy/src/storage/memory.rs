//! A storage in memory, for tests.
//!
//! Times are those of a counter: each change is one second later than the change before.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Block, Layout, Subtree};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{Entry, Modified, Name};
use lfn_session::wire::copy::options::Verify;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::memory_file::{Content, MemoryReadFile, Object, ObjectState, Pages};
use super::{
    Capabilities, Existing, FileId, Metadata, Names, ObjectKind, OpenedPartial, PartialRequest, ReadFile, Removal,
    RemovalVisitor, Storage, TopDirectory, UnpublishedFile,
};
use crate::{ForbiddenReason, TransferError};

/// Device number of all objects.
const DEVICE: u64 = 1;

/// A storage in memory. Clones share its contents, so a clone is the destination of the next copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStorage(Arc<Mutex<Contents>>);

/// The objects by their paths. The top directory has no entry.
#[derive(Debug, Default)]
struct Contents {
    objects: BTreeMap<Vec<u8>, Arc<Object>>,
    partials: BTreeMap<Vec<u8>, Partial>,
    clock: i64,
    next_id: u64,
}

/// An incomplete file with its finished blocks.
#[derive(Debug)]
struct Partial {
    object: Arc<Object>,
    source: PartialSource,
    blocks: BTreeMap<Subtree, BlockHash>,
    is_open: bool,
}

/// The source of an incomplete file. A file of another source is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartialSource {
    layout: Layout,
    modified: Modified,
    verify: Verify,
}

/// A file without a final name.
#[derive(Debug)]
struct MemoryFile {
    storage: MemoryStorage,
    object: Arc<Object>,
    name: Name,
    /// The file is in [`Contents::partials`] until it is published.
    /// Set for an incomplete file of several blocks.
    layout: Option<Layout>,
    is_useless: AtomicBool,
    is_published: AtomicBool,
}

impl Contents {
    fn now(&mut self) -> Modified {
        self.clock += 1;
        Modified::new(self.clock, 0).unwrap_or_default()
    }

    fn new_object(&mut self, content: Content, mode: u32, modified: Modified) -> Arc<Object> {
        let created = self.now();
        self.next_id += 1;
        let state = ObjectState { content, mode, modified, changed: created, links: 0 };
        Arc::new(Object { id: (DEVICE, self.next_id), created, state: Mutex::new(state) })
    }

    /// Checks that every directory on the path to a name exists.
    fn check_parents(&self, name: &Name) -> Result<(), TransferError> {
        let path = name.as_bytes();
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let reason = match self.objects.get(&path[..at]).map(|object| object.kind()) {
                None => return Err(TransferError::NotFound { path: name.to_string() }),
                Some(ObjectKind::Directory) => continue,
                Some(ObjectKind::Symlink) => ForbiddenReason::LinkInPath,
                Some(_) => ForbiddenReason::FileInPath,
            };
            return Err(TransferError::Forbidden { path: name.to_string(), reason });
        }
        Ok(())
    }

    fn find(&self, name: &Name) -> Result<Option<&Arc<Object>>, TransferError> {
        self.check_parents(name)?;
        Ok(self.objects.get(name.as_bytes()))
    }

    /// Gives an object a name, in place of an existing one if `replace` is set.
    fn insert(&mut self, name: &Name, object: Arc<Object>, replace: bool) -> Result<(), TransferError> {
        match self.find(name)?.map(|existing| existing.kind()) {
            None => {}
            Some(_) if !replace => return Err(TransferError::Exists { path: name.to_string() }),
            Some(ObjectKind::Directory) => return Err(failed("replace", name, Errno::ISDIR)),
            Some(_) => {}
        }
        let now = self.now();
        {
            let mut state = object.state.lock();
            state.links += 1;
            state.changed = now;
        }
        if let Some(replaced) = self.objects.insert(name.as_bytes().to_vec(), object) {
            replaced.state.lock().links -= 1;
        }
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) {
        if let Some(removed) = self.objects.remove(path) {
            removed.state.lock().links -= 1;
        }
    }

    /// Returns the paths below a directory, and whether it contains incomplete files.
    fn paths_below(&self, path: &[u8]) -> (Vec<Vec<u8>>, bool) {
        let prefix = if path == b"." { Vec::new() } else { [path, b"/"].concat() };
        let below = |other: &&Vec<u8>| other.starts_with(&prefix);
        let objects = self.objects.range(prefix.clone()..).map(|(path, _)| path).take_while(below).cloned().collect();
        (objects, self.partials.keys().any(|path| path.starts_with(&prefix)))
    }
}

impl MemoryStorage {
    fn object(&self, name: &Name) -> Result<Arc<Object>, TransferError> {
        let found = self.0.lock().find(name)?.cloned();
        found.ok_or_else(|| TransferError::NotFound { path: name.to_string() })
    }

    /// Changes the attributes of an existing object.
    fn change(&self, name: &Name, change: impl FnOnce(&mut ObjectState)) -> Result<(), TransferError> {
        if name.is_root() {
            return Ok(());
        }
        let object = self.object(name)?;
        let now = self.0.lock().now();
        let mut state = object.state.lock();
        state.changed = now;
        change(&mut state);
        Ok(())
    }
}

impl Storage for MemoryStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            reads: true,
            writes: true,
            keeps_data: true,
            resumes: true,
            links: true,
            holes: true,
            attributes: false,
            reveals_existing: true,
        }
    }

    fn stat(&self, name: &Name) -> Result<Existing, TransferError> {
        if name.is_root() {
            return Ok(Existing::Object(Metadata { mode: 0o755, ..Metadata::of_new(ObjectKind::Directory) }));
        }
        let contents = self.0.lock();
        Ok(contents.find(name)?.map_or(Existing::Nothing, |object| Existing::Object(object.metadata())))
    }

    fn list(&self, directory: &Name) -> Result<Names, TransferError> {
        if !directory.is_root() && self.object(directory)?.kind() != ObjectKind::Directory {
            return Err(failed("list", directory, Errno::NOTDIR));
        }
        let (below, _) = self.0.lock().paths_below(directory.as_bytes());
        let start = if directory.is_root() { 0 } else { directory.as_bytes().len() + 1 };
        let names: Vec<_> =
            below.iter().map(|path| path[start..].to_vec()).filter(|path| !path.contains(&b'/')).collect();
        Ok(Box::new(names.into_iter().map(Ok)))
    }

    fn read_link(&self, name: &Name) -> Result<ByteString, TransferError> {
        match &self.object(name)?.state.lock().content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(failed("read the link", name, Errno::INVAL)),
        }
    }

    fn open_file(&self, name: &Name) -> Result<Box<dyn ReadFile>, TransferError> {
        if name.is_root() {
            return Err(TransferError::NotRegular { path: name.to_string(), kind: crate::FileKind::Directory });
        }
        let object = self.object(name)?;
        match object.kind() {
            ObjectKind::File => Ok(Box::new(MemoryReadFile(object))),
            ObjectKind::Symlink => Err(failed("read", name, Errno::LOOP)),
            _ => Err(TransferError::NotRegular { path: name.to_string(), kind: crate::FileKind::Directory }),
        }
    }

    fn top(&self) -> TopDirectory {
        let contents = self.0.lock();
        let is_empty = contents.objects.is_empty() && contents.partials.is_empty();
        TopDirectory { has_no_conflicts: is_empty, ..TopDirectory::default() }
    }

    fn was_created_since(&self, name: &Name, since: Modified) -> bool {
        self.object(name).is_ok_and(|object| object.created >= since)
    }

    fn has_partial(&self, name: &Name) -> Result<bool, TransferError> {
        Ok(self.0.lock().partials.contains_key(name.as_bytes()))
    }

    fn create_directory(&self, entry: &Entry, replace: bool) -> Result<(), TransferError> {
        let mut contents = self.0.lock();
        let directory = contents.new_object(Content::Directory, entry.mode & 0o777 | 0o700, Modified::default());
        contents.insert(&entry.name, directory, replace)
    }

    fn create_symlink(&self, entry: &Entry, target: &ByteString, replace: bool) -> Result<(), TransferError> {
        let mut contents = self.0.lock();
        let link = contents.new_object(Content::Symlink(target.clone()), 0o777, entry.modified);
        contents.insert(&entry.name, link, replace)
    }

    fn create_hard_link(
        &self,
        entry: &Entry,
        target: &Name,
        expected: Option<FileId>,
        replace: bool,
    ) -> Result<(), TransferError> {
        let object = self.object(target)?;
        if expected.is_some_and(|expected| expected != object.id) {
            let reason = ForbiddenReason::LinkTargetReplaced;
            return Err(TransferError::Forbidden { path: target.to_string(), reason });
        }
        if object.kind() == ObjectKind::Directory {
            return Err(failed("create", &entry.name, Errno::PERM));
        }
        self.0.lock().insert(&entry.name, object, replace)
    }

    fn write_file(&self, entry: &Entry, bytes: &[u8]) -> Result<Arc<dyn UnpublishedFile>, TransferError> {
        let mut contents = self.0.lock();
        contents.check_parents(&entry.name)?;
        let object = contents.new_object(Content::File(Pages::default()), entry.mode, entry.modified);
        drop(contents);
        object.write_at(bytes, 0);
        Ok(self.new_file(object, &entry.name, None))
    }

    fn open_partial(&self, request: &PartialRequest<'_>) -> Result<OpenedPartial, TransferError> {
        let PartialRequest { entry, layout, verify, .. } = request;
        let source = PartialSource { layout: *layout, modified: entry.modified, verify: *verify };
        let path = entry.name.as_bytes();
        let mut contents = self.0.lock();
        contents.check_parents(&entry.name)?;
        match contents.partials.get_mut(path) {
            Some(partial) if partial.is_open => return Err(TransferError::Locked { path: entry.name.to_string() }),
            Some(partial) if partial.source == source => partial.is_open = true,
            _ => {
                let pages = Pages::of_length(layout.bytes().0);
                let object = contents.new_object(Content::File(pages), entry.mode, entry.modified);
                let partial = Partial { object, source, blocks: BTreeMap::new(), is_open: true };
                contents.partials.insert(path.to_vec(), partial);
            }
        }
        let partial = &contents.partials[path];
        let (object, kept) = (partial.object.clone(), partial.blocks.clone());
        drop(contents);
        let file = self.new_file(object, &entry.name, Some(*layout));
        let present: u64 = kept.keys().map(|blocks| layout.subtree_bytes(*blocks)).sum();
        (request.afford)(Bytes(layout.bytes().0 - present))?;
        Ok(OpenedPartial { file, kept: kept.into_iter().collect() })
    }

    fn remove_directory(&self, name: &Name, dry_run: bool) -> Result<bool, TransferError> {
        let mut contents = self.0.lock();
        match contents.find(name)?.map(|object| object.kind()) {
            None => return Ok(true),
            Some(ObjectKind::Directory) => {}
            Some(_) => return Err(failed("delete", name, Errno::NOTDIR)),
        }
        let (below, has_partials) = contents.paths_below(name.as_bytes());
        let is_empty = below.is_empty() && !has_partials;
        if is_empty && !dry_run {
            contents.remove(name.as_bytes());
        }
        Ok(is_empty)
    }

    fn remove_tree(
        &self,
        name: &Name,
        removal: Removal<'_>,
        visitor: &mut dyn RemovalVisitor,
    ) -> Result<bool, TransferError> {
        let mut contents = self.0.lock();
        let Some(top) = contents.find(name)? else { return Ok(true) };
        let mut found = vec![(name.as_bytes().to_vec(), top.kind())];
        let (below, _) = contents.paths_below(name.as_bytes());
        found.extend(below.into_iter().map(|path| (path.clone(), contents.objects[&path].kind())));
        // A kept entry keeps its contents, and the directories around it.
        let (mut kept, mut skipped): (BTreeSet<Vec<u8>>, Option<Vec<u8>>) = (BTreeSet::new(), None);
        for (path, kind) in &found[1..] {
            if skipped.as_ref().is_some_and(|directory| path.starts_with(directory)) {
                kept.insert(path.clone());
            } else if !visitor.may_remove(path, *kind) {
                kept.insert(path.clone());
                skipped = Some([path.as_slice(), b"/"].concat());
            }
        }
        let unfinished: Vec<_> = contents.partials.keys().cloned().collect();
        for path in kept.clone().iter().chain(&unfinished) {
            kept.extend(path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| path[..at].to_vec()));
        }
        for (path, kind) in found.iter().rev().filter(|(path, _)| !kept.contains(path)) {
            if removal.meter.is_stopped() {
                return Ok(false);
            }
            if !removal.dry_run {
                contents.remove(path);
            }
            visitor.removed(path, *kind);
        }
        Ok(!kept.contains(name.as_bytes()))
    }

    fn finish_directory(&self, entry: &Entry, is_new: bool, _previous_mode: Option<u32>) -> Result<(), TransferError> {
        self.change(&entry.name, |state| {
            state.modified = entry.modified;
            state.mode = if is_new { entry.mode & 0o777 } else { state.mode };
        })
    }

    fn update_attributes(&self, entry: &Entry) -> Result<(), TransferError> {
        self.change(&entry.name, |_| ())
    }

    fn set_modified(&self, entry: &Entry) -> Result<(), TransferError> {
        self.change(&entry.name, |state| state.modified = entry.modified)
    }
}

impl MemoryStorage {
    fn new_file(&self, object: Arc<Object>, name: &Name, layout: Option<Layout>) -> Arc<dyn UnpublishedFile> {
        Arc::new(MemoryFile {
            storage: self.clone(),
            object,
            name: name.clone(),
            layout,
            is_useless: AtomicBool::new(false),
            is_published: AtomicBool::new(false),
        })
    }
}

impl MemoryFile {
    /// Records that blocks are written.
    fn record(&self, blocks: Subtree, hash: BlockHash) {
        if let Some(partial) =
            self.storage.0.lock().partials.get_mut(self.name.as_bytes()).filter(|_| self.layout.is_some())
        {
            partial.blocks.insert(blocks, hash);
        }
    }
}

impl UnpublishedFile for MemoryFile {
    fn write_block(&self, block: Block, hash: BlockHash, bytes: &[u8]) -> Result<(), TransferError> {
        self.object.write_at(bytes, block.offset);
        self.record(Subtree::of_block(block.index), hash);
        Ok(())
    }

    fn record_block(&self, block: Block, hash: BlockHash) -> Result<(), TransferError> {
        self.record(Subtree::of_block(block.index), hash);
        Ok(())
    }

    fn write_hole(&self, hole: Subtree, hash: BlockHash) -> Result<(), TransferError> {
        if let Some(layout) = self.layout {
            self.object.write_hole(hole.first * layout.block_size().0, layout.subtree_bytes(hole));
        }
        self.record(hole, hash);
        Ok(())
    }

    fn set_attributes(&self, entry: &Entry) -> Result<(), TransferError> {
        let mut state = self.object.state.lock();
        state.mode = entry.mode;
        state.modified = entry.modified;
        Ok(())
    }

    fn publish(&self, replace: bool) -> Result<(), TransferError> {
        let mut contents = self.storage.0.lock();
        let inserted = contents.insert(&self.name, self.object.clone(), replace);
        match &inserted {
            Ok(()) => {
                self.is_published.store(true, Ordering::SeqCst);
                if self.layout.is_some() {
                    contents.partials.remove(self.name.as_bytes());
                }
            }
            // Another copy was first and finished the file.
            Err(TransferError::Exists { .. }) => self.discard_on_close(),
            Err(_) => {}
        }
        inserted
    }

    fn discard_on_close(&self) {
        self.is_useless.store(true, Ordering::SeqCst);
    }

    fn id(&self) -> Option<FileId> {
        Some(self.object.id)
    }

    fn was_created_since(&self, since: Modified) -> bool {
        self.object.created >= since
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

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if self.layout.is_none() || self.is_published.load(Ordering::SeqCst) {
            return;
        }
        let mut contents = self.storage.0.lock();
        let Some(partial) = contents.partials.get_mut(self.name.as_bytes()) else { return };
        partial.is_open = false;
        if self.is_useless.load(Ordering::SeqCst) || partial.blocks.is_empty() {
            contents.partials.remove(self.name.as_bytes());
        }
    }
}

fn failed(doing: &'static str, name: &Name, error: Errno) -> TransferError {
    TransferError::File { doing, path: name.to_string(), source: error.into() }
}
