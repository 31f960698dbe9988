//! Reads the data of listed files, so that no other file is sent instead.
//!
//! Before and after each read, length and modification time must be the listed ones, and each reopening must find the
//! same file. A program may write to a file and put the modification time back. Then the time of the last change
//! (ctime) differs, as after a change of the mode or a new hard link. In this case, the file is read again: its content
//! must be the content that was sent. So the parts of two versions are never mixed. Only a few files stay open, however
//! many are listed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::options::Verify;
use parking_lot::Mutex;

use super::read_error::ReadError;
use super::source_file::{ListedFile, OpenedFile};
use crate::proto::schedule::BlockTask;
use crate::storage::holes::{digest_of, is_zeros, last_block_in_hole};
use crate::storage::{Metadata, ReadFile};
use crate::stream_set::StreamSet;

/// Maximum number of files that stay open for further reads.
const MAX_OPEN: usize = 16;

/// Maximum attempts to read a block while the attributes of its file change.
const MAX_ATTEMPTS: usize = 3;

/// Method and measurement of reading a file again.
#[derive(Clone, Copy)]
pub(super) struct Comparison<'a> {
    /// Method that computed the digest of the sent data.
    pub(super) verify: Verify,
    /// Measures the reads, and stops them at the end of the copy.
    pub(super) streams: &'a StreamSet,
    /// This side reads only a part of each file, because it is one of several ranks. So there is no digest to compare.
    pub(super) is_rank: bool,
}

/// Files of several blocks that are open now, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<VecDeque<(u32, Arc<dyn ReadFile>)>>);

impl OpenFiles {
    /// Reads a block into `buffer`, if the file still is the listed version. With `sparse`, holes are not read. Returns
    /// whether all bytes are zeros (only with `sparse`).
    pub(super) fn read_block(
        &self,
        task: &BlockTask<Arc<ListedFile>>,
        buffer: &mut [u8],
        sparse: bool,
        comparison: Comparison<'_>,
    ) -> Result<bool, ReadError> {
        let (source, offset) = (&task.source, task.block.offset);
        let sparse = sparse && source.storage().capabilities().holes;
        let file = self.get_file(task)?;
        let has_several_blocks = task.layout.blocks() > 1;
        let sent = source.sent_digest().filter(|_| has_several_blocks);
        if has_several_blocks && sent.is_none() {
            // After the last block, `close` compares the whole content.
            let is_zero = fill(&*file, buffer, offset, sparse)?;
            let now = source.version.check_unchanged(&*file)?;
            if comparison.is_rank {
                compare_content(task, &*file, &now, Digest([0; 32]), comparison)?;
            }
            return Ok(is_zero);
        }
        let mut before = file.metadata_at_open().map_err(read_failed)?;
        if let Some(digest) = sent {
            before = source.version.check_unchanged(&*file)?;
            compare_content(task, &*file, &before, digest, comparison)?;
        }
        for _ in 0..MAX_ATTEMPTS {
            let is_zero = fill(&*file, buffer, offset, sparse)?;
            let after = source.version.check_unchanged(&*file)?;
            if after.changed == before.changed {
                return Ok(is_zero);
            }
            if let Some(digest) = sent {
                compare_content(task, &*file, &after, digest, comparison)?;
            }
            before = after;
        }
        Err(ReadError::Changed)
    }

    /// Returns the last block that is completely in the same hole as the block of the task, if the file still is the
    /// listed version. Returns `None` if that block must be read.
    pub(super) fn last_block_in_hole(
        &self,
        task: &BlockTask<Arc<ListedFile>>,
        comparison: Comparison<'_>,
    ) -> Result<Option<u64>, ReadError> {
        if !task.source.storage().capabilities().holes {
            return Ok(None);
        }
        let file = self.open_unchanged(task, comparison)?;
        let last = last_block_in_hole(&*file, task.layout, task.block.index);
        let now = task.source.version.check_unchanged(&*file)?;
        if let Some(digest) = task.source.sent_digest() {
            compare_content(task, &*file, &now, digest, comparison)?;
        }
        Ok(last)
    }

    /// Opens the file, if it still is the listed version.
    pub(super) fn open_unchanged(
        &self,
        task: &BlockTask<Arc<ListedFile>>,
        comparison: Comparison<'_>,
    ) -> Result<Arc<dyn ReadFile>, ReadError> {
        let file = self.get_file(task)?;
        let now = task.source.version.check_unchanged(&*file)?;
        if let Some(digest) = task.source.sent_digest() {
            compare_content(task, &*file, &now, digest, comparison)?;
        }
        Ok(file)
    }

    /// Checks a file after its last block was read, and closes it. `digest` is the digest of the data that was read.
    pub(super) fn close(
        &self,
        task: &BlockTask<Arc<ListedFile>>,
        digest: Digest,
        comparison: Comparison<'_>,
    ) -> Result<(), ReadError> {
        let file = self.get_file(task)?;
        self.0.lock().retain(|(number, _)| *number != task.file);
        let now = task.source.version.check_unchanged(&*file)?;
        // A file without a name was replaced or removed, so the sent data is not the current file.
        if now.links == 0 {
            return Err(ReadError::Changed);
        }
        compare_content(task, &*file, &now, digest, comparison)?;
        if let Some(opened) = task.source.opened.lock().as_mut() {
            opened.digest = Some(digest);
        }
        Ok(())
    }

    fn get_file(&self, task: &BlockTask<Arc<ListedFile>>) -> Result<Arc<dyn ReadFile>, ReadError> {
        let has_several_blocks = task.layout.blocks() > 1;
        let known = |files: &VecDeque<(u32, Arc<dyn ReadFile>)>| {
            files.iter().find(|(number, _)| *number == task.file).map(|(_, file)| file.clone())
        };
        if has_several_blocks && let Some(file) = known(&self.0.lock()) {
            return Ok(file);
        }
        let opened = task.source.storage().open_file(&task.source.storage_name()?);
        let file: Arc<dyn ReadFile> = opened.map_err(|error| ReadError::of_listed("open", error))?.into();
        let metadata = file.metadata_at_open().map_err(read_failed)?;
        task.source.version.check(&metadata)?;
        let mut opened = task.source.opened.lock();
        let first = opened.get_or_insert_with(|| Box::new(OpenedFile { metadata, digest: None }));
        if first.metadata.id != metadata.id {
            return Err(ReadError::Changed);
        }
        drop(opened);
        if has_several_blocks {
            let mut files = self.0.lock();
            if known(&files).is_none() {
                files.push_front((task.file, file.clone()));
                files.truncate(MAX_OPEN);
            }
        }
        Ok(file)
    }
}

/// Checks that the content of a file still is the content with this digest, if the attributes `now` differ from those
/// when the file was opened. Without a digest (`--verify off`, or one of several ranks), a new mode, owner or name explains a change, and any
/// other change counts as a change of the content.
fn compare_content(
    task: &BlockTask<Arc<ListedFile>>,
    file: &dyn ReadFile,
    now: &Metadata,
    digest: Digest,
    comparison: Comparison<'_>,
) -> Result<(), ReadError> {
    let Some(before) = task.source.opened.lock().as_ref().map(|opened| opened.metadata) else { return Ok(()) };
    if before.changed == now.changed {
        return Ok(());
    }
    let is_same = match comparison.verify {
        Verify::Off => has_other_attributes(&before, now),
        _ if comparison.is_rank => has_other_attributes(&before, now),
        Verify::Blake3 | Verify::Xxh3 => {
            let Comparison { verify, streams, .. } = comparison;
            let found = digest_of(file, task.layout, verify, streams.meter()).map_err(read_error)?;
            let is_same = found == Some(digest);
            // Another change during the comparison counts as a change of the content.
            is_same && task.source.version.check_unchanged(file)?.changed == now.changed
        }
    };
    if !is_same {
        return Err(ReadError::Changed);
    }
    if let Some(opened) = task.source.opened.lock().as_mut() {
        opened.metadata = *now;
    }
    Ok(())
}

/// Returns whether the mode, the owner or the number of names differs.
fn has_other_attributes(before: &Metadata, now: &Metadata) -> bool {
    let attributes = |metadata: &Metadata| (metadata.mode, metadata.uid, metadata.gid, metadata.links);
    attributes(before) != attributes(now)
}

/// Reads bytes at `offset`. With `sparse`, holes are not read. Returns whether all bytes are zeros (only with
/// `sparse`).
fn fill(file: &dyn ReadFile, buffer: &mut [u8], offset: u64, sparse: bool) -> Result<bool, ReadError> {
    if sparse && is_hole(file, offset, buffer.len()) {
        buffer.fill(0);
        return Ok(true);
    }
    file.read_exact_at(buffer, offset).map_err(read_error)?;
    Ok(sparse && is_zeros(buffer))
}

/// Returns the reason why a read failed. A file that ends too early has changed.
fn read_error(source: io::Error) -> ReadError {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Changed,
        _ => read_failed(source),
    }
}

fn read_failed(source: io::Error) -> ReadError {
    ReadError::Io { doing: "read", source }
}

/// Returns whether the range is inside a hole. The caller checks that the file did not become shorter.
fn is_hole(file: &dyn ReadFile, offset: u64, length: usize) -> bool {
    file.next_data(offset).is_ok_and(|data| data.is_none_or(|data| data >= offset + length as u64))
}

#[cfg(test)]
mod tests;
