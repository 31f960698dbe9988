//! Reader of capture files (pcap and pcapng), frame by frame, in bounded time and memory.
//!
//! [`CaptureReader`] reads from any [`Read`], so that a caller can put a decompressor before it ([`Compression`]). The
//! crate `pcap-parser` parses the records and blocks. This module has the buffer and its limits, the sections with their
//! interfaces, and the errors with the number of the packet.
//!
//! Limits for hostile files: a packet or block has up to [`MAX_BLOCK`] bytes, a file up to [`MAX_INTERFACES`]
//! interfaces, and up to [`MAX_BYTES_WITHOUT_PACKET`] bytes of other blocks precede a packet. The buffer grows only when
//! the bytes for it arrive.

mod buffer;
mod compression;
mod error;
mod interface;
mod pcap;
mod record;
mod sections;
mod time_scale;

use std::io::Read;

use buffer::Buffer;
use pcap::Pcap;
use sections::Sections;

pub use buffer::MAX_BLOCK;
pub use compression::Compression;
pub use error::{CaptureError, DamageReason};
pub use interface::{CapturedInterface, MAX_INTERFACES};
pub use sections::MAX_BYTES_WITHOUT_PACKET;

use crate::LinkLayer;

/// Frame of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedFrame<'a> {
    /// Number of the frame in the file, from 1.
    pub number: u64,
    /// Time of the capture, nanoseconds since 1970. A simple packet block has no time and repeats the time before it.
    pub at: u64,
    /// Number of the interface in the file, from 0. A later section continues to count.
    pub interface: u32,
    pub link: LinkLayer,
    /// Captured part of the frame, from its start.
    pub bytes: &'a [u8],
    /// Bytes of the whole frame as the file states it, and at least the captured bytes.
    pub original_length: u32,
}

/// Reader of a capture file of any format.
#[derive(Debug)]
pub struct CaptureReader<R> {
    buffer: Buffer<R>,
    format: Format,
    frames: u64,
    is_finished: bool,
}

/// Format of the file, with what the reader knows from its headers.
#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Sections),
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file header, and fails if the bytes are not a capture.
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        let mut buffer = Buffer::new(reader);
        let count = buffer.fill(Compression::MAGIC_LENGTH, 0)?;
        let first = buffer.bytes();
        if count == 0 {
            return Err(CaptureError::Empty);
        }
        if let Some(compression) = Compression::of(first) {
            return Err(CaptureError::Compressed(compression));
        }
        let format = if Sections::is_start(first) {
            Format::Pcapng(Sections::new(&mut buffer)?)
        } else {
            Format::Pcap(Pcap::read(&mut buffer)?)
        };
        Ok(CaptureReader { buffer, format, frames: 0, is_finished: false })
    }

    /// Reads the next frame; `None` at the end of the file.
    ///
    /// After an error, the reader returns `None`. All frames before the error were returned.
    #[expect(clippy::should_implement_trait, reason = "a frame borrows the buffer, which an iterator cannot")]
    pub fn next(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        if self.is_finished {
            return Ok(None);
        }
        let number = self.frames + 1;
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.buffer, number),
            Format::Pcapng(sections) => sections.next(&mut self.buffer, number),
        };
        let Ok(Some(record)) = record else {
            self.is_finished = true;
            return record.map(|_| None);
        };
        self.frames = number;
        let bytes = &self.buffer.take(record.length)[record.frame_at..][..record.captured];
        Ok(Some(CapturedFrame {
            number,
            at: record.at,
            interface: record.interface,
            link: record.link,
            bytes,
            original_length: record.original_length.max(record.captured as u32),
        }))
    }

    /// Returns the interfaces that were read until now.
    pub fn interfaces(&self) -> &[CapturedInterface] {
        match &self.format {
            Format::Pcap(pcap) => std::slice::from_ref(pcap.interface()),
            Format::Pcapng(sections) => sections.interfaces(),
        }
    }

    /// Returns the frames that the capture missed, as far as the file has counts.
    pub fn dropped(&self) -> Option<u64> {
        self.interfaces().iter().filter_map(CapturedInterface::dropped).reduce(u64::saturating_add)
    }
}
