//! Access to the bytes of a file, and a reader of the numbers in its headers.

use std::io;

use super::error::NetcdfError;

/// Bytes of a file, at any offset.
pub trait ByteSource {
    /// Returns the number of bytes.
    fn length(&self) -> u64;

    /// Fills the buffer from this offset on. Fails if the bytes end before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ByteSource for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Size of the window, which saves system calls, bytes.
const WINDOW: usize = 4096;

/// A position in a file, from which headers are read. Part of the file is in memory.
pub(super) struct Cursor<'a> {
    source: &'a dyn ByteSource,
    /// Part of the file that is read, for errors.
    part: &'static str,
    offset: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a dyn ByteSource, part: &'static str, offset: u64) -> Self {
        Cursor { source, part, offset, window: Vec::new(), window_start: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves forward over bytes that are not needed.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), NetcdfError> {
        let end = self.offset.checked_add(count).filter(|end| *end <= self.source.length());
        self.offset = end.ok_or(self.truncated())?;
        Ok(())
    }

    /// Reads bytes. The caller bounds `count`.
    pub(super) fn bytes(&mut self, count: usize) -> Result<Vec<u8>, NetcdfError> {
        let start = self.offset;
        self.skip(count as u64)?;
        if count > WINDOW {
            let mut bytes = vec![0; count];
            self.source.read_at(start, &mut bytes)?;
            return Ok(bytes);
        }
        let within = start.checked_sub(self.window_start).and_then(|at| usize::try_from(at).ok());
        if let Some(bytes) = within.and_then(|at| self.window.get(at..)?.get(..count)) {
            return Ok(bytes.to_vec());
        }
        let length = (self.source.length() - start).min(WINDOW as u64);
        self.window.resize(length as usize, 0);
        self.source.read_at(start, &mut self.window)?;
        self.window_start = start;
        Ok(self.window.get(..count).ok_or(self.truncated())?.to_vec())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], NetcdfError> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| self.truncated())
    }

    /// Reads a little-endian number of at most 8 bytes.
    pub(super) fn number(&mut self, size: usize) -> Result<u64, NetcdfError> {
        let bytes = self.bytes(size)?;
        let mut number = [0; 8];
        number.get_mut(..size).ok_or(NetcdfError::Damaged("the size of a number"))?.copy_from_slice(&bytes);
        Ok(u64::from_le_bytes(number))
    }

    pub(super) fn u16(&mut self) -> Result<u16, NetcdfError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, NetcdfError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, NetcdfError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn truncated(&self) -> NetcdfError {
        NetcdfError::Truncated { part: self.part, length: self.source.length() }
    }
}
