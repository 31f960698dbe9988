//! The journal of a partial file, as bytes: which blocks of which source are in, so that a later run goes on from there.
//!
//! A line of text says what the source was; records of one fixed length follow, each with the number and hash of a block.
//! Whatever a crash left of the file is read: every record carries a check bound to the very line before it, so that
//! zeros, another file's records and torn ones are none, and what stands behind the first that is none is cut off. A
//! record tells what was received, not that it reached the disk: after an unclean stop its block is read and hashed
//! again. A clean one is told by a last record, with the time at which the partial file was changed last: where that is
//! another by then, somebody else has written to it. No file is opened here; the reader is fed, and holds one record at
//! most.

use serde::{Deserialize, Serialize};

use super::blocks::{Layout, LayoutError};
use super::digest::BlockHash;
use super::entry::{MAX_NAME, Modified};
use super::manner::Verify;
use super::raw::Raw;
use crate::units::Bytes;

/// Bytes of a record: number of the block (big-endian), its hash, check.
pub const RECORD: usize = 8 + 32 + CHECK;

/// Longest header line, its newline included.
pub const MAX_HEADER: usize = 16 * 1024;

/// What the line begins with, before the version.
const MAGIC: &str = "lfn-journal";
const VERSION: u32 = 1;
const CHECK: usize = 8;
/// The number of the record that tells a clean stop; no block has it.
const CLEAN: u64 = u64::MAX;

/// What a journal is about: another source, or the same one changed, and it is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length and blocks.
    pub layout: Layout,
    /// When the source was changed.
    pub modified: Modified,
    /// What the source is called where it comes from.
    pub source: Raw,
    /// What made the hashes: those of another kind are none to go on with.
    pub verify: Verify,
}

/// One block that is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub index: u64,
    /// Its hash; where a block stands twice, the last counts.
    pub hash: BlockHash,
}

/// Why a file is no journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Of another program, or garbled.
    #[error("not a journal: it does not begin with '{MAGIC} {VERSION}' and a description")]
    Magic,
    /// Of another version of this one.
    #[error("journal of version {0}, only {VERSION} is understood")]
    Version(u32),
    /// The line and its check do not belong together.
    #[error("the first line of the journal is damaged")]
    Damaged,
    /// The file it describes cannot be.
    #[error("journal: {0}")]
    Layout(#[from] LayoutError),
    /// The name is longer than names are.
    #[error("journal: name of {0} bytes, at most {MAX_NAME} allowed")]
    Name(usize),
}

/// The description as JSON.
#[derive(Serialize, Deserialize)]
struct Line {
    length: Bytes,
    modified: Modified,
    block: Bytes,
    source: Raw,
    #[serde(default, skip_serializing_if = "Verify::has_digest")]
    verify: Verify,
}

/// Writes what stands behind a certain header line.
#[derive(Clone, Debug)]
pub struct Writer {
    key: [u8; 32],
}

impl Header {
    /// The first bytes of a journal, and the writer of the rest.
    pub fn encode(&self) -> Result<(Vec<u8>, Writer), JournalError> {
        if self.source.0.len() > MAX_NAME {
            return Err(JournalError::Name(self.source.0.len()));
        }
        let (length, block) = (self.layout.bytes(), self.layout.block_size());
        let line = Line { length, modified: self.modified, block, source: self.source.clone(), verify: self.verify };
        let json = serde_json::to_string(&line).map_err(|_| JournalError::Magic)?;
        let mut line = format!("{MAGIC} {VERSION} {json} ").into_bytes();
        let check = data_encoding::HEXLOWER.encode(&line_check(&line));
        line.extend_from_slice(check.as_bytes());
        line.push(b'\n');
        let writer = Writer::new(&line);
        Ok((line, writer))
    }

    fn decode(line: &[u8]) -> Result<Self, JournalError> {
        let text =
            line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok()).ok_or(JournalError::Magic)?;
        let rest = text.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' ')).ok_or(JournalError::Magic)?;
        let (version, rest) = rest.split_once(' ').ok_or(JournalError::Magic)?;
        match version.parse() {
            Ok(VERSION) => {}
            Ok(other) => return Err(JournalError::Version(other)),
            Err(_) => return Err(JournalError::Magic),
        }
        let (json, check) = rest.rsplit_once(' ').ok_or(JournalError::Magic)?;
        let checked = &line[..text.len() - check.len()];
        if check != data_encoding::HEXLOWER.encode(&line_check(checked)) {
            return Err(JournalError::Damaged);
        }
        let Line { length, modified, block, source, verify } =
            serde_json::from_str(json).map_err(|_| JournalError::Damaged)?;
        if source.0.len() > MAX_NAME {
            return Err(JournalError::Name(source.0.len()));
        }
        Ok(Header { layout: Layout::new(length, block)?, modified, source, verify })
    }
}

fn line_check(line: &[u8]) -> [u8; CHECK] {
    first_bytes(&blake3::derive_key("lfn 2026 journal header", line))
}

fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&bytes[..N]);
    first
}

impl Writer {
    fn new(line: &[u8]) -> Self {
        Writer { key: blake3::derive_key("lfn 2026 journal record", line) }
    }

    /// The bytes that say that a block is in.
    pub fn record(&self, record: Record) -> [u8; RECORD] {
        self.seal(record.index, record.hash.0)
    }

    /// The bytes that say that all before was synced; the last ones of a journal, or nothing. `changed` is when anything
    /// about the partial file was changed last (`st_ctime`).
    pub fn clean(&self, changed: Modified) -> [u8; RECORD] {
        let mut when = [0; 32];
        when[..8].copy_from_slice(&changed.seconds().to_be_bytes());
        when[8..12].copy_from_slice(&changed.nanoseconds().to_be_bytes());
        self.seal(CLEAN, when)
    }

    fn seal(&self, index: u64, hash: [u8; 32]) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..8].copy_from_slice(&index.to_be_bytes());
        bytes[8..40].copy_from_slice(&hash);
        let check = blake3::keyed_hash(&self.key, &bytes[..40]);
        bytes[40..].copy_from_slice(&check.as_bytes()[..CHECK]);
        bytes
    }

    /// The number and hash, if these are bytes of this writer.
    fn open(&self, bytes: &[u8; RECORD]) -> Option<(u64, [u8; 32])> {
        let (index, hash) = (u64::from_be_bytes(first_bytes(bytes)), first_bytes(&bytes[8..]));
        (self.seal(index, hash) == *bytes).then_some((index, hash))
    }
}

/// Reads a journal in pieces.
#[derive(Debug, Default)]
pub struct Reader {
    /// Of the header line, or of a record.
    held: Vec<u8>,
    opened: Option<(Header, Writer)>,
    sound: u64,
    clean: Option<Modified>,
    over: bool,
}

/// How a journal ended.
#[derive(Debug, Clone)]
pub struct Ending {
    /// What it is about.
    pub header: Header,
    /// Goes on with it, once it was cut to `sound`.
    pub writer: Writer,
    /// Bytes from the start that are good.
    pub sound: u64,
    /// Stopped in order: every block in it was on disk, and the partial file was last changed at this time.
    pub clean: Option<Modified>,
    /// Something stood behind the good part.
    pub torn: bool,
}

impl Reader {
    /// Takes the next bytes, hands out the records in them, and says whether more are wanted: behind the end of the good
    /// part there is nothing to read. On an error the journal is of no use.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(Record)) -> Result<bool, JournalError> {
        let mut rest = bytes;
        while !self.over && !rest.is_empty() {
            rest = match self.opened {
                None => self.header(rest)?,
                Some(_) => self.record(rest, &mut take),
            };
        }
        Ok(!self.over)
    }

    /// What it is about, once that was read.
    pub fn opened(&self) -> Option<&Header> {
        self.opened.as_ref().map(|(header, _)| header)
    }

    /// There are no more bytes, or no more are wanted.
    pub fn finish(self) -> Result<Ending, JournalError> {
        let (header, writer) = self.opened.ok_or(JournalError::Magic)?;
        let torn = self.over || !self.held.is_empty();
        Ok(Ending { header, writer, sound: self.sound, clean: self.clean.filter(|_| !torn), torn })
    }

    fn header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], JournalError> {
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(newline.map_or(bytes.len(), |at| at + 1));
        if self.held.len() + line.len() > MAX_HEADER {
            return Err(JournalError::Magic);
        }
        self.held.extend_from_slice(line);
        if newline.is_some() {
            self.opened = Some((Header::decode(&self.held)?, Writer::new(&self.held)));
            self.sound = self.held.len() as u64;
            self.held.clear();
        }
        Ok(rest)
    }

    fn record<'a>(&mut self, bytes: &'a [u8], take: &mut impl FnMut(Record)) -> &'a [u8] {
        let (part, rest) = bytes.split_at(bytes.len().min(RECORD - self.held.len()));
        self.held.extend_from_slice(part);
        let Some(whole) = self.held.first_chunk::<RECORD>() else { return rest };
        let opened = self.opened.as_ref().and_then(|(header, writer)| {
            let (index, hash) = writer.open(whole)?;
            (index == CLEAN || index < header.layout.blocks()).then_some((index, hash))
        });
        match opened {
            None => {
                self.over = true;
                return rest;
            }
            Some((CLEAN, when)) => self.clean = clean_at(&when),
            Some((index, hash)) => {
                self.clean = None;
                take(Record { index, hash: BlockHash(hash) });
            }
        }
        self.held.clear();
        self.sound += RECORD as u64;
        rest
    }
}

/// What a clean record tells.
fn clean_at(when: &[u8; 32]) -> Option<Modified> {
    let (seconds, nanoseconds) = (i64::from_be_bytes(first_bytes(when)), u32::from_be_bytes(first_bytes(&when[8..])));
    Modified::new(seconds, nanoseconds).ok()
}

#[cfg(test)]
mod tests;
