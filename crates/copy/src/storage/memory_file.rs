//! Objects of the memory storage: files with holes, directories and links.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::Modified;
use parking_lot::Mutex;

use super::{FileData, FileId, Metadata, ObjectKind, ReadFile};

/// Unit of allocation, in bytes. A page of zeros is a hole.
const PAGE: u64 = 4096;

/// An object in memory, which may have several names.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: FileId,
    pub(super) created: Modified,
    pub(super) state: Mutex<ObjectState>,
}

/// Content and attributes of an object.
#[derive(Debug)]
pub(super) struct ObjectState {
    pub(super) content: Content,
    pub(super) mode: u32,
    pub(super) modified: Modified,
    pub(super) changed: Modified,
    pub(super) links: u64,
}

#[derive(Debug)]
pub(super) enum Content {
    File(Pages),
    Directory,
    Symlink(ByteString),
}

/// The data of a file. Pages that do not exist are holes.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) length: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Object {
    pub(super) fn kind(&self) -> ObjectKind {
        match self.state.lock().content {
            Content::File(_) => ObjectKind::File,
            Content::Directory => ObjectKind::Directory,
            Content::Symlink(_) => ObjectKind::Symlink,
        }
    }

    pub(super) fn metadata(&self) -> Metadata {
        let kind = self.kind();
        let state = self.state.lock();
        let length = match &state.content {
            Content::File(pages) => pages.length,
            Content::Directory => 0,
            Content::Symlink(target) => target.as_bytes().len() as u64,
        };
        Metadata {
            length: Bytes(length),
            modified: state.modified,
            changed: state.changed,
            mode: state.mode,
            id: self.id,
            links: state.links,
            ..Metadata::of_new(kind)
        }
    }

    /// Makes a range of a file a hole.
    pub(super) fn write_hole(&self, offset: u64, length: u64) {
        if let Content::File(pages) = &mut self.state.lock().content {
            pages.write_hole(offset, length);
        }
    }

    /// Writes to a file.
    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) {
        if let Content::File(pages) = &mut self.state.lock().content {
            pages.write(bytes, offset);
        }
    }
}

impl Pages {
    pub(super) fn of_length(length: u64) -> Self {
        Pages { length, pages: BTreeMap::new() }
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        self.length = self.length.max(offset + bytes.len() as u64);
        let mut at = 0;
        while at < bytes.len() {
            let position = offset + at as u64;
            let (number, start) = (position / PAGE, (position % PAGE) as usize);
            let length = (PAGE as usize - start).min(bytes.len() - at);
            let page = self.pages.entry(number).or_insert_with(|| vec![0; PAGE as usize]);
            page[start..start + length].copy_from_slice(&bytes[at..at + length]);
            if page.iter().all(|byte| *byte == 0) {
                self.pages.remove(&number);
            }
            at += length;
        }
    }

    fn write_hole(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first >= last {
            self.write(&vec![0; length as usize], offset);
            return;
        }
        self.write(&vec![0; (first * PAGE - offset) as usize], offset);
        self.write(&vec![0; (end - last * PAGE) as usize], last * PAGE);
        let numbers: Vec<u64> = self.pages.range(first..last).map(|(number, _)| *number).collect();
        numbers.iter().for_each(|number| drop(self.pages.remove(number)));
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = 0;
        while at < buffer.len() {
            let position = offset + at as u64;
            let (number, start) = (position / PAGE, (position % PAGE) as usize);
            let length = (PAGE as usize - start).min(buffer.len() - at);
            let part = &mut buffer[at..at + length];
            match self.pages.get(&number) {
                Some(page) => part.copy_from_slice(&page[start..start + length]),
                None => part.fill(0),
            }
            at += length;
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        let page = self.pages.range(offset / PAGE..).next().map(|(number, _)| number * PAGE);
        page.map(|start| start.max(offset)).filter(|data| *data < self.length)
    }
}

/// A file that is open for reading.
#[derive(Debug)]
pub(super) struct MemoryReadFile(pub(super) Arc<Object>);

impl MemoryReadFile {
    fn with_pages<T>(&self, read: impl FnOnce(&Pages) -> io::Result<T>) -> io::Result<T> {
        match &self.0.state.lock().content {
            Content::File(pages) => read(pages),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl ReadFile for MemoryReadFile {
    fn metadata(&self) -> io::Result<Metadata> {
        Ok(self.0.metadata())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl FileData for MemoryReadFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with_pages(|pages| pages.read(buffer, offset))
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.with_pages(|pages| Ok(pages.next_data(offset)))
    }
}
