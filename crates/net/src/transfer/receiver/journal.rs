//! The journal of a partial file on disk; what its bytes mean is decided in [`lfn_core::transfer::journal`].
//!
//! It is written under the lock of the partial file, one record a block, each by one write behind the last good one. It
//! is not synced with every block: what a crash takes of it costs sending again, and what it leaves is verified.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::entry::Modified;
use lfn_core::transfer::journal::{Ending, Header, MAX_HEADER, RECORD, Reader, Record, Writer};
use lfn_core::transfer::raw::Raw;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;

use super::super::TransferError;
use super::partial::only_one;
use super::tree::Place;

/// Most blocks that are gone on with, in 320 MiB: 8 TiB in blocks of 1 MiB, 128 TiB in the largest. What a journal has beyond
/// them is sent again.
const MOST_LEFT: usize = if cfg!(test) { 1000 } else { 1 << 23 };

/// Records that are written together.
const TOGETHER: usize = 1024;

/// Blocks that an earlier copy noted, by their numbers.
pub(super) type Noted = Vec<(u64, BlockHash)>;

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    line: Vec<u8>,
    writer: Writer,
    /// Where the next record goes.
    end: u64,
    blocks: u64,
}

/// What an earlier copy left.
#[derive(Debug)]
pub(super) enum Left {
    /// Nothing of use.
    Nothing,
    /// Blocks that were on disk when it ended, and that nobody has changed since.
    Synced(Noted),
    /// Blocks that were written, and may not have reached the disk or not be what they were.
    Written(Noted),
    /// The same, of a copy that cut the file into blocks of another size; the journal is to be [renewed](Journal::renew).
    Recut {
        /// As it cut the file.
        earlier: Layout,
        /// What it noted.
        blocks: Noted,
        /// They were on disk when it ended, and nobody has changed them since.
        synced: bool,
    },
}

impl Journal {
    /// Opens the journal; it is begun anew if it is not about `facts`, or if its partial file is not there. Otherwise `changed`
    /// is when that was changed last: at another time than the copy says that ended in order, and nobody knows what is in it.
    pub(super) fn open(
        place: &Place,
        name: &OsStr,
        facts: &Header,
        changed: Option<Modified>,
    ) -> Result<(Self, Left), TransferError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&place.directory, name, flags, Mode::from_raw_mode(0o600));
        let file = opened.map_err(|e| place.error("create the journal of", e))?;
        only_one(&file, place)?;
        let failed = |source| TransferError::File { doing: "write the journal of", path: place.shown.clone(), source };
        let (line, writer) = facts.encode().map_err(|error| failed(io::Error::other(error)))?;
        let mut journal = Journal { file: file.into(), line, writer, end: 0, blocks: 0 };
        let left = if changed.is_some() { journal.read(facts).map_err(failed)? } else { None };
        let Some((blocks, ending)) = left else {
            journal.renew(&[]).map_err(failed).inspect_err(|_| {
                // One without its first line is good for nothing, and no more has room.
                let _ = unlinkat(&place.directory, name, AtFlags::empty());
            })?;
            return Ok((journal, Left::Nothing));
        };
        let synced = ending.clean.is_some() && ending.clean == changed;
        if ending.header.layout != facts.layout {
            return Ok((journal, Left::Recut { earlier: ending.header.layout, blocks, synced }));
        }
        journal.file.set_len(ending.sound).map_err(failed)?;
        (journal.end, journal.blocks) = (ending.sound, blocks.len() as u64);
        let left = if synced { Left::Synced(blocks) } else { Left::Written(blocks) };
        Ok((journal, left))
    }

    /// Says that the copy that writes it goes on. Who holds the partial file without this is about to let it go.
    pub(super) fn hold(&self) {
        // Whoever asks holds it for a moment; that the answer is wrong then costs a longer wait.
        let _ = flock(&self.file, FlockOperation::NonBlockingLockExclusive);
    }

    /// Says that nothing more is written.
    pub(super) fn let_go(&self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// Whether there is one that nobody holds.
    pub(super) fn is_let_go(place: &Place, name: &OsStr) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&place.directory, name, flags, Mode::empty());
        file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
    }

    /// What the journal that is there says of its source; nothing, if there is none or its first line is torn.
    pub(super) fn source(place: &Place, name: &OsStr) -> Result<Option<Raw>, TransferError> {
        let failed = |error| place.error("read the journal of", error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&place.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        only_one(&file, place)?;
        let mut line = Vec::new();
        let read = File::from(file).take(MAX_HEADER as u64).read_to_end(&mut line);
        read.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let mut reader = Reader::default();
        // Of the records only the first few were read: that is no matter here.
        let _ = reader.feed(&line, |_| ());
        Ok(reader.opened().map(|header| header.source.clone()))
    }

    /// How many blocks it has.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Notes that a block is written.
    pub(super) fn note(&mut self, index: u64, hash: BlockHash) -> io::Result<()> {
        let record = self.writer.record(Record { index, hash });
        self.append(&record)?;
        self.blocks += 1;
        Ok(())
    }

    /// Notes that everything in it is on disk, and when the partial file was changed last.
    pub(super) fn close(&mut self, changed: Modified) -> io::Result<()> {
        let clean = self.writer.clean(changed);
        self.append(&clean)?;
        self.file.sync_data()
    }

    /// Begins anew, with these blocks.
    pub(super) fn renew(&mut self, blocks: &[(u64, BlockHash)]) -> io::Result<()> {
        self.file.set_len(0)?;
        let mut bytes = self.line.clone();
        self.end = 0;
        for &(index, hash) in blocks {
            bytes.extend_from_slice(&self.writer.record(Record { index, hash }));
            if bytes.len() >= TOGETHER * RECORD {
                self.append(&bytes)?;
                bytes.clear();
            }
        }
        self.append(&bytes)?;
        self.blocks = blocks.len() as u64;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// What stands in it, if it is about `facts`, however that cuts the file.
    fn read(&mut self, facts: &Header) -> io::Result<Option<(Noted, Ending)>> {
        let mut reader = Reader::default();
        let most = self.file.metadata()?.len() / RECORD as u64;
        let mut blocks = Vec::with_capacity(MOST_LEFT.min(most as usize));
        let mut buffer = vec![0; 64 << 10];
        let same = |header: &Header| {
            let recut = Header { layout: facts.layout, ..header.clone() };
            recut == *facts && header.layout.bytes() == facts.layout.bytes()
        };
        loop {
            let read = self.file.read(&mut buffer)?;
            let take = |record: Record| {
                if blocks.len() < MOST_LEFT {
                    blocks.push((record.index, record.hash));
                }
            };
            match reader.feed(&buffer[..read], take) {
                Ok(more) if more && read > 0 => {}
                Ok(_) => break,
                Err(_) => return Ok(None),
            }
            if reader.opened().is_some_and(|header| !same(header)) {
                return Ok(None);
            }
        }
        let ending = reader.finish().ok().filter(|ending| same(&ending.header));
        // Of those about one block the last counts.
        blocks.sort_by_key(|(index, _)| *index);
        blocks.dedup_by(|later, earlier| {
            later.0 == earlier.0 && {
                earlier.1 = later.1;
                true
            }
        });
        Ok(ending.map(|ending| (blocks, ending)))
    }
}
