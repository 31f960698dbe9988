//! Reads blocks from a data stream: small blocks through one large buffer, a large block straight into the buffer.

use lfn_base::units::Bytes;
use lfn_session::DataStream;
use lfn_session::wire::copy::BlockHeader;
use lfn_session::wire::seal::SEALED_HEADER_BYTES;

use crate::TransferError;
use crate::proto::file_assembly::AssemblyError;
use crate::stream_set::StreamSet;
use crate::stream_state::StreamState;
use crate::work_meter::Activity;

/// Minimum length of the buffer, in bytes: one read must fetch many small blocks.
const MIN_BUFFER: usize = 64 << 10;

/// Reads the blocks of one stream.
pub(super) struct BlockReader<'a> {
    streams: &'a StreamSet,
    stream: &'a mut DataStream,
    state: &'a StreamState,
    /// Holds a header and a block.
    buffer: Vec<u8>,
    /// The bytes that are read and not consumed yet.
    start: usize,
    end: usize,
    max_block: Bytes,
    /// The payload is not needed.
    discard: bool,
}

impl<'a> BlockReader<'a> {
    /// Creates a reader of blocks up to `max_block` bytes. `discard` if their payload will be skipped.
    pub(super) fn new(
        streams: &'a StreamSet,
        stream: &'a mut DataStream,
        state: &'a StreamState,
        max_block: Bytes,
        discard: bool,
    ) -> Self {
        let buffer = vec![0; SEALED_HEADER_BYTES + (max_block.0 as usize).max(MIN_BUFFER)];
        BlockReader { streams, stream, state, buffer, start: 0, end: 0, max_block, discard }
    }

    /// Reads the next header. Returns `None` if the stream ended before a header.
    pub(super) fn read_header(&mut self) -> Result<Option<BlockHeader>, TransferError> {
        let length = if self.stream.seal_mut().is_some() { SEALED_HEADER_BYTES } else { BlockHeader::LENGTH };
        if !self.fill(length, false)? {
            return Ok(None);
        }
        let bytes = &self.buffer[self.start..][..length];
        let header = match self.stream.seal_mut() {
            Some(seal) => seal.open(&field(bytes))?,
            None => BlockHeader::decode(&field(bytes))?,
        };
        self.start += length;
        let BlockHeader { offset, length, .. } = header;
        if u64::from(length) > self.max_block.0 {
            return Err(AssemblyError::Range { offset, length, bytes: self.max_block.0 }.into());
        }
        Ok(Some(header))
    }

    /// Reads the payload after the header.
    pub(super) fn read_payload(&mut self, length: u32) -> Result<&[u8], TransferError> {
        let length = length as usize;
        self.streams.count_payload(length.min(self.end - self.start))?;
        self.fill(length, true)?;
        let start = self.start;
        self.start += length;
        Ok(&self.buffer[start..][..length])
    }

    /// Skips the payload after the header. If the stream has a payload socket, the kernel discards the bytes without a
    /// copy.
    pub(super) fn skip_payload(&mut self, length: u32) -> Result<(), TransferError> {
        if self.stream.payload_socket().is_none() {
            return self.read_payload(length).map(drop);
        }
        let length = length as usize;
        let buffered = length.min(self.end - self.start);
        self.start += buffered;
        self.streams.count_payload(buffered)?;
        let mut remaining = length - buffered;
        while remaining > 0 {
            let (streams, room) = (self.streams, remaining.min(self.buffer.len()));
            let dropped = || streams.drop_some(self.stream, self.state, &mut self.buffer[..room]);
            let dropped = streams.measure(Activity::Network, dropped)?;
            if dropped == 0 {
                return Err(streams.stream_error(self.state, std::io::ErrorKind::UnexpectedEof.into()));
            }
            streams.count_payload(dropped)?;
            remaining -= dropped;
        }
        Ok(())
    }

    /// Reads until `needed` bytes are available. Returns false if the stream ended before the first of them. Payload
    /// bytes (`is_payload`) count as progress at once, so that a slow path shows progress with large blocks too.
    fn fill(&mut self, needed: usize, is_payload: bool) -> Result<bool, TransferError> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.len() - self.start < needed {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < needed {
            // With `discard`, read only the header, so that the payload can be skipped.
            let end = if self.discard { self.start + needed } else { self.buffer.len() };
            let (streams, room) = (self.streams, &mut self.buffer[self.end..end]);
            let read = streams.measure(Activity::Network, || streams.read_some(self.stream, self.state, room))?;
            let buffered = self.end - self.start;
            if read == 0 && (buffered > 0 || is_payload) {
                return Err(streams.stream_error(self.state, std::io::ErrorKind::UnexpectedEof.into()));
            }
            if read == 0 {
                return Ok(false);
            }
            if is_payload {
                streams.count_payload(read.min(needed - buffered))?;
            }
            self.end += read;
        }
        Ok(true)
    }
}

/// Returns the first `N` bytes.
fn field<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[..N]);
    field
}
