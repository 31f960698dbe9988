//! Encodes and decodes the journal of a partial file: the blocks that were received of a source, so that a later copy
//! resumes.
//!
//! The first line describes the source. Records of a fixed length follow, each with the number and hash of one block,
//! or of a hole of several blocks. The reader accepts any remains of a crash: each record has a check value that is
//! bound to the exact first line. Zeros, records of another file and torn records are therefore invalid, and everything
//! from the first invalid record on is truncated. A record means that the block was received, not that it is on disk.
//! After an unclean stop, the blocks are therefore read and hashed again. A clean stop is marked by a final record with
//! the last change time of the partial file. If the file's change time differs from the record, another program wrote
//! to the file. This module opens no file. The reader is fed bytes and buffers at most one record.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Layout, LayoutError, Subtree};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{MAX_NAME, Modified};
use lfn_session::wire::copy::options::Verify;
use serde::{Deserialize, Serialize};

/// Bytes of a record: level of the subtree (1 byte) and number of its first block (7 bytes, big-endian), hash, check
/// value.
pub const RECORD_BYTES: usize = 8 + 32 + CHECK_BYTES;

/// Maximum bytes of the header line, including its newline.
pub const MAX_HEADER: usize = 16 * 1024;

/// Start of the header line, before the version.
const MAGIC: &str = "lfn-journal";
const VERSION: u32 = 1;
const CHECK_BYTES: usize = 8;
/// Record number of a clean stop. No subtree has this number.
const CLEAN_STOP: u64 = u64::MAX;
/// Bits of a record number for the first block. The bits above are the level.
const FIRST_BITS: u32 = 56;

/// The source that a journal describes. A journal of another or a changed source is useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    pub layout: Layout,
    pub modified: Modified,
    /// Name of the source on its host.
    pub source: ByteString,
    /// Method of the block hashes. Hashes of another method cannot be used to resume.
    pub verify: Verify,
}

/// Journal record of one received block, or of a received hole of several blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    pub subtree: Subtree,
    /// If a block has several records, the last one counts.
    pub hash: BlockHash,
}

/// Reason why a file is no valid journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Written by another program, or damaged.
    #[error("not a journal: it does not begin with '{MAGIC} {VERSION}' and a description")]
    Magic,
    #[error("journal of version {0}: only version {VERSION} is supported")]
    Version(u32),
    /// The check value of the header line is wrong.
    #[error("the first line of the journal is damaged")]
    Damaged,
    #[error("journal: {0}")]
    Layout(#[from] LayoutError),
    #[error("journal: name of {0} bytes, at most {MAX_NAME} allowed")]
    Name(usize),
}

/// The description in the header line, as JSON.
#[derive(Serialize, Deserialize)]
struct HeaderLine {
    length: Bytes,
    modified: Modified,
    block: Bytes,
    source: ByteString,
    #[serde(default, skip_serializing_if = "Verify::has_digest")]
    verify: Verify,
}

/// Encodes the records that follow a specific header line.
#[derive(Clone, Debug)]
pub struct JournalWriter {
    key: [u8; 32],
}

impl JournalHeader {
    /// Returns the header line of a journal and the writer of its records.
    pub fn encode(&self) -> Result<(Vec<u8>, JournalWriter), JournalError> {
        if self.source.0.len() > MAX_NAME {
            return Err(JournalError::Name(self.source.0.len()));
        }
        let (length, block) = (self.layout.bytes(), self.layout.block_size());
        let line =
            HeaderLine { length, modified: self.modified, block, source: self.source.clone(), verify: self.verify };
        let json = serde_json::to_string(&line).map_err(|_| JournalError::Magic)?;
        let mut line = format!("{MAGIC} {VERSION} {json} ").into_bytes();
        let check = data_encoding::HEXLOWER.encode(&line_check(&line));
        line.extend_from_slice(check.as_bytes());
        line.push(b'\n');
        let writer = JournalWriter::new(&line);
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
        let HeaderLine { length, modified, block, source, verify } =
            serde_json::from_str(json).map_err(|_| JournalError::Damaged)?;
        if source.0.len() > MAX_NAME {
            return Err(JournalError::Name(source.0.len()));
        }
        Ok(JournalHeader { layout: Layout::new(length, block)?, modified, source, verify })
    }
}

fn line_check(line: &[u8]) -> [u8; CHECK_BYTES] {
    first_bytes(&blake3::derive_key("lfn 2026 journal header", line))
}

fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&bytes[..N]);
    first
}

impl JournalWriter {
    fn new(line: &[u8]) -> Self {
        JournalWriter { key: blake3::derive_key("lfn 2026 journal record", line) }
    }

    /// Returns the record of a received block.
    pub fn record(&self, record: JournalRecord) -> [u8; RECORD_BYTES] {
        let Subtree { first, level } = record.subtree;
        self.sign(u64::from(level) << FIRST_BITS | first, record.hash.0)
    }

    /// Returns the final record of a clean stop: all earlier blocks are synced to disk. `changed` is the last change
    /// time of the partial file (`st_ctime`).
    pub fn clean_stop_record(&self, changed: Modified) -> [u8; RECORD_BYTES] {
        let mut when = [0; 32];
        when[..8].copy_from_slice(&changed.seconds().to_be_bytes());
        when[8..12].copy_from_slice(&changed.nanoseconds().to_be_bytes());
        self.sign(CLEAN_STOP, when)
    }

    fn sign(&self, index: u64, hash: [u8; 32]) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&index.to_be_bytes());
        bytes[8..40].copy_from_slice(&hash);
        let check = blake3::keyed_hash(&self.key, &bytes[..40]);
        bytes[40..].copy_from_slice(&check.as_bytes()[..CHECK_BYTES]);
        bytes
    }

    /// Returns the number and hash of a record, if its check value is right.
    fn verify(&self, bytes: &[u8; RECORD_BYTES]) -> Option<(u64, [u8; 32])> {
        let (index, hash) = (u64::from_be_bytes(first_bytes(bytes)), first_bytes(&bytes[8..]));
        (self.sign(index, hash) == *bytes).then_some((index, hash))
    }
}

/// Decodes a journal from pieces of its bytes.
#[derive(Debug, Default)]
pub struct JournalReader {
    /// Partial header line or record.
    buffer: Vec<u8>,
    header: Option<(JournalHeader, JournalWriter)>,
    valid_bytes: u64,
    clean_stop: Option<Modified>,
    finished: bool,
}

/// Result of reading a journal to its end.
#[derive(Debug, Clone)]
pub struct JournalEnd {
    pub header: JournalHeader,
    /// Appends further records, after the file is truncated to `valid_bytes`.
    pub writer: JournalWriter,
    /// Valid bytes from the start of the file.
    pub valid_bytes: u64,
    /// Change time of the partial file at a clean stop. Every recorded block was on disk.
    pub clean_stop: Option<Modified>,
    /// Invalid bytes follow the valid part.
    pub has_invalid_tail: bool,
}

impl JournalReader {
    /// Decodes the next bytes, passes their records to `take`, and reports whether more bytes are useful. An error
    /// means that the journal is useless.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(JournalRecord)) -> Result<bool, JournalError> {
        let mut rest = bytes;
        while !self.finished && !rest.is_empty() {
            rest = match self.header {
                None => self.read_header(rest)?,
                Some(_) => self.read_record(rest, &mut take),
            };
        }
        Ok(!self.finished)
    }

    /// Returns the header once it is decoded.
    pub fn header(&self) -> Option<&JournalHeader> {
        self.header.as_ref().map(|(header, _)| header)
    }

    /// Ends the journal and returns the result.
    pub fn finish(self) -> Result<JournalEnd, JournalError> {
        let (header, writer) = self.header.ok_or(JournalError::Magic)?;
        let torn = self.finished || !self.buffer.is_empty();
        Ok(JournalEnd {
            header,
            writer,
            valid_bytes: self.valid_bytes,
            clean_stop: self.clean_stop.filter(|_| !torn),
            has_invalid_tail: torn,
        })
    }

    fn read_header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], JournalError> {
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(newline.map_or(bytes.len(), |at| at + 1));
        if self.buffer.len() + line.len() > MAX_HEADER {
            return Err(JournalError::Magic);
        }
        self.buffer.extend_from_slice(line);
        if newline.is_some() {
            self.header = Some((JournalHeader::decode(&self.buffer)?, JournalWriter::new(&self.buffer)));
            self.valid_bytes = self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(rest)
    }

    fn read_record<'a>(&mut self, bytes: &'a [u8], take: &mut impl FnMut(JournalRecord)) -> &'a [u8] {
        let (part, rest) = bytes.split_at(bytes.len().min(RECORD_BYTES - self.buffer.len()));
        self.buffer.extend_from_slice(part);
        let Some(whole) = self.buffer.first_chunk::<RECORD_BYTES>() else { return rest };
        let opened = self.header.as_ref().and_then(|(header, writer)| {
            let (index, hash) = writer.verify(whole)?;
            (index == CLEAN_STOP || header.layout.has_subtree(subtree(index))).then_some((index, hash))
        });
        match opened {
            None => {
                self.finished = true;
                return rest;
            }
            Some((CLEAN_STOP, when)) => self.clean_stop = clean_stop_time(&when),
            Some((index, hash)) => {
                self.clean_stop = None;
                take(JournalRecord { subtree: subtree(index), hash: BlockHash(hash) });
            }
        }
        self.buffer.clear();
        self.valid_bytes += RECORD_BYTES as u64;
        rest
    }
}

/// Returns the subtree with this record number.
fn subtree(number: u64) -> Subtree {
    // A level has at most 8 bits.
    Subtree { first: number & ((1 << FIRST_BITS) - 1), level: (number >> FIRST_BITS) as u32 }
}

/// Returns the change time in a clean-stop record.
fn clean_stop_time(when: &[u8; 32]) -> Option<Modified> {
    let (seconds, nanoseconds) = (i64::from_be_bytes(first_bytes(when)), u32::from_be_bytes(first_bytes(&when[8..])));
    Modified::new(seconds, nanoseconds).ok()
}

#[cfg(test)]
mod tests;
