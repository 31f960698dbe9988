//! The sources `random:SIZE` and `zero:SIZE`: one file with generated data.

use std::io;
use std::os::fd::BorrowedFd;

use lfn_base::random_data::fill_random;
use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::{Modified, Name};

use super::{Capabilities, Existing, FileData, Metadata, Names, ObjectKind, ReadFile, Storage, TopDirectory};
use crate::TransferError;

/// A storage with one file, whose name is that of its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GeneratedStorage {
    content: Content,
    length: Bytes,
    modified: Modified,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Random { seed: u64 },
    Zero,
}

impl GeneratedStorage {
    /// Creates a source of reproducible random bytes.
    pub(crate) fn random(seed: u64, length: Bytes, modified: Modified) -> Self {
        GeneratedStorage { content: Content::Random { seed }, length, modified }
    }

    /// Creates a source of zeros. They are data, not a hole: they are sent.
    pub(crate) fn zero(length: Bytes, modified: Modified) -> Self {
        GeneratedStorage { content: Content::Zero, length, modified }
    }

    /// Returns the name of the file.
    pub(crate) fn file_name(&self) -> &'static str {
        match self.content {
            Content::Random { .. } => "random",
            Content::Zero => "zero",
        }
    }

    /// Returns the attributes of the file.
    pub(crate) fn file_metadata(&self) -> Metadata {
        Metadata {
            length: self.length,
            modified: self.modified,
            changed: self.modified,
            mode: 0o666,
            ..Metadata::of_new(ObjectKind::File)
        }
    }
}

impl Storage for GeneratedStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            reads: true,
            writes: false,
            keeps_data: true,
            resumes: false,
            links: false,
            holes: false,
            attributes: false,
            reveals_existing: true,
        }
    }

    fn stat(&self, name: &Name) -> Result<Existing, TransferError> {
        Ok(match name.as_bytes() {
            b"." => Existing::Object(Metadata { mode: 0o755, ..Metadata::of_new(ObjectKind::Directory) }),
            file if file == self.file_name().as_bytes() => Existing::Object(self.file_metadata()),
            _ => Existing::Nothing,
        })
    }

    fn list(&self, directory: &Name) -> Result<Names, TransferError> {
        if !directory.is_root() {
            return Err(TransferError::NotFound { path: self.display_name(directory) });
        }
        Ok(Box::new(std::iter::once(Ok(self.file_name().into()))))
    }

    fn open_file(&self, name: &Name) -> Result<Box<dyn ReadFile>, TransferError> {
        if name.as_bytes() != self.file_name().as_bytes() {
            return Err(TransferError::NotFound { path: self.display_name(name) });
        }
        Ok(Box::new(*self))
    }

    fn top(&self) -> TopDirectory {
        TopDirectory::default()
    }
}

impl ReadFile for GeneratedStorage {
    fn metadata(&self) -> io::Result<Metadata> {
        Ok(self.file_metadata())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl FileData for GeneratedStorage {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.length.0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self.content {
            Content::Random { seed } => fill_random(seed, offset, buffer),
            Content::Zero => buffer.fill(0),
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.length.0).then_some(offset))
    }
}
