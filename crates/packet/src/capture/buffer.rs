//! Buffer between a reader and the parser of its blocks.

use std::io::{ErrorKind, Read};

use super::error::CaptureError;

/// Maximum bytes of a packet or block, and of the buffer. The largest snap length of tcpdump is 256 KiB.
pub const MAX_BLOCK: usize = 16 << 20;

const INITIAL_SIZE: usize = 1 << 20;

/// Bytes that were read and are not taken yet.
#[derive(Debug)]
pub(super) struct Buffer<R> {
    reader: R,
    storage: Vec<u8>,
    start: usize,
    end: usize,
    is_ended: bool,
}

impl<R: Read> Buffer<R> {
    pub(super) fn new(reader: R) -> Self {
        Buffer { reader, storage: vec![0; INITIAL_SIZE], start: 0, end: 0, is_ended: false }
    }

    /// Returns the bytes that are not taken yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// Takes the first `length` bytes. They stay in the buffer until the next fill.
    pub(super) fn take(&mut self, length: usize) -> &[u8] {
        let start = self.start;
        self.start = self.end.min(start + length);
        &self.storage[start..self.start]
    }

    /// Reads until the buffer has `length` bytes or the input ends, and returns the bytes in the buffer.
    pub(super) fn fill(&mut self, length: usize, packet: u64) -> Result<usize, CaptureError> {
        let available = self.end - self.start;
        if available >= length {
            return Ok(available);
        }
        self.read_more(length, packet)
    }

    #[cold]
    fn read_more(&mut self, length: usize, packet: u64) -> Result<usize, CaptureError> {
        debug_assert!(length <= MAX_BLOCK, "the caller checks the length");
        self.storage.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < length && !self.is_ended {
            if self.end == self.storage.len() {
                self.storage.resize((self.storage.len() * 2).min(MAX_BLOCK), 0);
            }
            match self.reader.read(&mut self.storage[self.end..]) {
                Ok(0) => self.is_ended = true,
                Ok(count) => self.end = self.storage.len().min(self.end + count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(CaptureError::Read { packet, source }),
            }
        }
        Ok(self.end)
    }
}
