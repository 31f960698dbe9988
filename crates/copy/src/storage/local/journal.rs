//! The journal of a partial file on disk. [`crate::proto::journal`] defines its format.
//!
//! The journal is written under the lock of the partial file: one record for each block, written with one call after
//! the last intact record. It is not synced after each block. If a crash removes records, their blocks are sent again.
//! The blocks of the remaining records are verified.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;

use lfn_session::wire::copy::blocks::{Layout, Subtree};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::Modified;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;

use super::location::EntryLocation;
use crate::TransferError;
use crate::proto::journal::{
    JournalEnd, JournalHeader, JournalReader, JournalRecord, JournalWriter, MAX_HEADER, RECORD_BYTES,
};

/// Maximum number of records that a copy resumes (384 MiB of memory): 8 TiB in blocks of 1 MiB, 128 TiB in the largest
/// blocks. The blocks of
/// further records are sent again.
pub(super) const MAX_RESUMED_BLOCKS: usize = if cfg!(test) { 1000 } else { 1 << 23 };

/// Number of records in one write.
const RECORDS_PER_WRITE: usize = 1024;

/// Blocks that an earlier copy recorded, and holes of several blocks, with their hashes.
pub(super) type BlockRecords = Vec<(Subtree, BlockHash)>;

/// An open journal of a partial file.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    header_line: Vec<u8>,
    writer: JournalWriter,
    /// Offset of the next record.
    end: u64,
    record_count: u64,
}

/// The blocks that an earlier copy left.
#[derive(Debug)]
pub(super) enum JournalContents {
    Empty,
    /// The blocks were on disk when that copy ended, and the file has not changed since.
    Synced(BlockRecords),
    /// The blocks were written, but may not have reached the disk or may have changed.
    Written(BlockRecords),
    /// The earlier copy used another block size. The journal must be [rewritten](Journal::rewrite).
    Resized {
        /// The layout of the earlier copy.
        earlier: Layout,
        blocks: BlockRecords,
        /// The blocks were on disk when that copy ended, and the file has not changed since.
        synced: bool,
    },
}

impl Journal {
    /// Opens the journal. Rewrites it if its header differs from `expected`, or if the partial file is missing
    /// (`changed` is `None`). Otherwise `changed` is the ctime of the partial file. If a clean journal has another
    /// ctime, the content of the file is unknown.
    pub(super) fn open(
        location: &EntryLocation,
        name: &OsStr,
        expected: &JournalHeader,
        changed: Option<Modified>,
    ) -> Result<(Self, JournalContents), TransferError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&location.directory, name, flags, Mode::from_raw_mode(0o600));
        let file = opened.map_err(|e| location.error("create the journal of", e))?;
        location.require_one_name(&file)?;
        let failed =
            |source| TransferError::File { doing: "write the journal of", path: location.display_path.clone(), source };
        let (header_line, writer) = expected.encode().map_err(|error| failed(io::Error::other(error)))?;
        let mut journal = Journal { file: file.into(), header_line, writer, end: 0, record_count: 0 };
        let contents = if changed.is_some() { journal.read_contents(expected).map_err(failed)? } else { None };
        let Some((blocks, ending)) = contents else {
            journal.rewrite(&[]).map_err(failed).inspect_err(|_| {
                // A journal without a header is useless, and the disk has no room for more.
                let _ = unlinkat(&location.directory, name, AtFlags::empty());
            })?;
            return Ok((journal, JournalContents::Empty));
        };
        let synced = ending.clean_stop.is_some() && ending.clean_stop == changed;
        if ending.header.layout != expected.layout {
            return Ok((journal, JournalContents::Resized { earlier: ending.header.layout, blocks, synced }));
        }
        journal.file.set_len(ending.valid_bytes).map_err(failed)?;
        journal.end = ending.valid_bytes;
        journal.record_count = blocks.len() as u64;
        let contents = if synced { JournalContents::Synced(blocks) } else { JournalContents::Written(blocks) };
        Ok((journal, contents))
    }

    /// Marks this copy as active. A copy that holds the partial file without this lock is about to release it.
    pub(super) fn lock(&self) {
        // Another process may hold the lock for a moment to test it. A wrong answer then only costs a longer wait.
        let _ = flock(&self.file, FlockOperation::NonBlockingLockExclusive);
    }

    /// Marks this copy as finished with writing.
    pub(super) fn unlock(&self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// Returns whether a journal exists that no active copy holds.
    pub(super) fn is_unlocked(location: &EntryLocation, name: &OsStr) -> bool {
        Self::test_lock(location, name) == Some(Ok(()))
    }

    /// Returns whether an active copy holds the journal.
    pub(super) fn is_locked(location: &EntryLocation, name: &OsStr) -> bool {
        Self::test_lock(location, name) == Some(Err(Errno::WOULDBLOCK))
    }

    /// `None` if there is no readable journal.
    fn test_lock(location: &EntryLocation, name: &OsStr) -> Option<Result<(), Errno>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&location.directory, name, flags, Mode::empty()).ok()?;
        Some(flock(&file, FlockOperation::NonBlockingLockShared))
    }

    /// Reads the source in the header of a journal. `None` if there is no journal, or if its header is incomplete.
    pub(super) fn read_source(location: &EntryLocation, name: &OsStr) -> Result<Option<ByteString>, TransferError> {
        let failed = |error| location.error("read the journal of", error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&location.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        location.require_one_name(&file)?;
        let mut header_line = Vec::new();
        let read = File::from(file).take(MAX_HEADER as u64).read_to_end(&mut header_line);
        read.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let mut reader = JournalReader::default();
        // Only the first records were read, which does not matter here.
        let _ = reader.feed(&header_line, |_| ());
        Ok(reader.header().map(|header| header.source.clone()))
    }

    /// Returns the number of records.
    pub(super) fn record_count(&self) -> u64 {
        self.record_count
    }

    /// Records that blocks are written.
    pub(super) fn record(&mut self, subtree: Subtree, hash: BlockHash) -> io::Result<()> {
        let record = self.writer.record(JournalRecord { subtree, hash });
        self.append(&record)?;
        self.record_count += 1;
        Ok(())
    }

    /// Records that all blocks are on disk, with the ctime of the partial file.
    pub(super) fn mark_clean(&mut self, changed: Modified) -> io::Result<()> {
        let clean = self.writer.clean_stop_record(changed);
        self.append(&clean)?;
        self.file.sync_data()
    }

    /// Rewrites the journal with these blocks.
    pub(super) fn rewrite(&mut self, blocks: &[(Subtree, BlockHash)]) -> io::Result<()> {
        self.file.set_len(0)?;
        let mut bytes = self.header_line.clone();
        self.end = 0;
        for &(subtree, hash) in blocks {
            bytes.extend_from_slice(&self.writer.record(JournalRecord { subtree, hash }));
            if bytes.len() >= RECORDS_PER_WRITE * RECORD_BYTES {
                self.append(&bytes)?;
                bytes.clear();
            }
        }
        self.append(&bytes)?;
        self.record_count = blocks.len() as u64;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Reads the blocks that are recorded now.
    pub(super) fn read_back(&mut self, expected: &JournalHeader) -> io::Result<BlockRecords> {
        self.file.rewind()?;
        Ok(self.read_contents(expected)?.map(|(blocks, _)| blocks).unwrap_or_default())
    }

    /// Reads the records, if the header matches `expected` except for the block size.
    fn read_contents(&mut self, expected: &JournalHeader) -> io::Result<Option<(BlockRecords, JournalEnd)>> {
        let mut reader = JournalReader::default();
        let most = self.file.metadata()?.len() / RECORD_BYTES as u64;
        let mut blocks = Vec::with_capacity(MAX_RESUMED_BLOCKS.min(most as usize));
        let mut buffer = vec![0; 64 << 10];
        let same = |header: &JournalHeader| {
            let resized = JournalHeader { layout: expected.layout, ..header.clone() };
            resized == *expected && header.layout.bytes() == expected.layout.bytes()
        };
        loop {
            let read = self.file.read(&mut buffer)?;
            let take = |record: JournalRecord| {
                if blocks.len() < MAX_RESUMED_BLOCKS {
                    blocks.push((record.subtree, record.hash));
                }
            };
            match reader.feed(&buffer[..read], take) {
                Ok(more) if more && read > 0 => {}
                Ok(_) => break,
                Err(_) => return Ok(None),
            }
            if reader.header().is_some_and(|header| !same(header)) {
                return Ok(None);
            }
        }
        let ending = reader.finish().ok().filter(|ending| same(&ending.header));
        // The last record of a block counts. A hole that contains other records does not count.
        blocks.sort_by_key(|(subtree, _)| *subtree);
        blocks.dedup_by(|later, earlier| {
            let overlaps = later.0.first <= earlier.0.last();
            if overlaps && later.0.level <= earlier.0.level {
                *earlier = *later;
            }
            overlaps
        });
        Ok(ending.map(|ending| (blocks, ending)))
    }
}
