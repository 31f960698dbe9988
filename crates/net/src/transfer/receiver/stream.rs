//! Blocks as they come off a data stream: many small ones through one buffer, a large one straight into it.

use lfn_core::transfer::intake::IntakeError;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::BlockHeader;
use lfn_core::wire::seal::SEALED;

use super::super::TransferError;
use super::super::flow::{Activity, Flow};
use super::super::line::Line;
use crate::session::{DataStream, Protection};

/// Least length of the buffer: a stream of small blocks is not read one by one.
const LEAST: usize = 64 << 10;

/// One stream's blocks.
pub(super) struct Blocks<'a> {
    flow: &'a Flow,
    stream: &'a mut DataStream,
    line: &'a Line,
    /// Room for a header and a block.
    buffer: Vec<u8>,
    /// What of it was read and not yet handed out.
    start: usize,
    end: usize,
    largest: Bytes,
    /// Nobody wants what is in them.
    skips: bool,
}

impl<'a> Blocks<'a> {
    /// The blocks of a stream, none of them longer than `largest`; `skips` if they will be passed over.
    pub(super) fn new(
        flow: &'a Flow,
        (stream, line): (&'a mut DataStream, &'a Line),
        largest: Bytes,
        skips: bool,
    ) -> Self {
        let buffer = vec![0; SEALED + (largest.0 as usize).max(LEAST)];
        Blocks { flow, stream, line, buffer, start: 0, end: 0, largest, skips }
    }

    /// The stream they come over.
    pub(super) fn line(&self) -> &'a Line {
        self.line
    }

    /// The next header; none if the stream ended where one could stand.
    pub(super) fn header(&mut self) -> Result<Option<BlockHeader>, TransferError> {
        let length = if self.stream.sealing().is_some() { SEALED } else { BlockHeader::LENGTH };
        if !self.fill(length, false)? {
            return Ok(None);
        }
        let bytes = &self.buffer[self.start..][..length];
        let header = match self.stream.sealing() {
            Some(seal) => seal.open(&field(bytes))?,
            None => BlockHeader::decode(&field(bytes))?,
        };
        self.start += length;
        let BlockHeader { offset, length, .. } = header;
        if u64::from(length) > self.largest.0 {
            return Err(IntakeError::Range { offset, length, bytes: self.largest.0 }.into());
        }
        Ok(Some(header))
    }

    /// The payload behind the header.
    pub(super) fn payload(&mut self, length: u32) -> Result<&[u8], TransferError> {
        let length = length as usize;
        self.flow.count(length.min(self.end - self.start))?;
        self.fill(length, true)?;
        let start = self.start;
        self.start += length;
        Ok(&self.buffer[start..][..length])
    }

    /// Passes over the payload behind the header: in the clear it need not even be copied.
    pub(super) fn skip(&mut self, length: u32) -> Result<(), TransferError> {
        if self.stream.protection() == Protection::Tls {
            return self.payload(length).map(drop);
        }
        let length = length as usize;
        let held = length.min(self.end - self.start);
        self.start += held;
        self.flow.count(held)?;
        let mut left = length - held;
        while left > 0 {
            let (flow, room) = (self.flow, left.min(self.buffer.len()));
            let dropped = || flow.drop_some((self.stream, self.line), &mut self.buffer[..room]);
            let dropped = flow.spend(Activity::Network, dropped)?;
            if dropped == 0 {
                return Err(flow.broken(self.line, std::io::ErrorKind::UnexpectedEof.into()));
            }
            flow.count(dropped)?;
            left -= dropped;
        }
        Ok(())
    }

    /// Reads until so many bytes are there; false if the stream ended before the first of them. What comes of a payload
    /// is `counted` as it comes: a slow path moves, however large its blocks.
    fn fill(&mut self, wanted: usize, counted: bool) -> Result<bool, TransferError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.start < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < wanted {
            // What will be passed over is not read with what stands before it.
            let end = if self.skips { self.start + wanted } else { self.buffer.len() };
            let (flow, room) = (self.flow, &mut self.buffer[self.end..end]);
            let read = flow.spend(Activity::Network, || flow.read_some((self.stream, self.line), room))?;
            let held = self.end - self.start;
            if read == 0 && (held > 0 || counted) {
                return Err(flow.broken(self.line, std::io::ErrorKind::UnexpectedEof.into()));
            }
            if read == 0 {
                return Ok(false);
            }
            if counted {
                flow.count(read.min(wanted - held))?;
            }
            self.end += read;
        }
        Ok(true)
    }
}

/// So many bytes that are there.
fn field<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[..N]);
    field
}
