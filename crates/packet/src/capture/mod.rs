//! Reader of capture files (pcap and pcapng), frame by frame, in bounded time and memory.

mod compression;
mod error;

use std::io::Read;

pub use compression::Compression;
pub use error::{CaptureError, DamageReason};

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

/// Interface of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedInterface {
    pub link: LinkLayer,
    /// Name of the interface, shortened to 64 bytes.
    pub name: Option<String>,
    /// Maximum captured bytes of each frame; 0 if there is no limit.
    pub snap_length: u32,
    /// Frames that the capture missed, if the file has the count.
    pub dropped: Option<u64>,
}

/// Reader of a capture file of any format.
#[derive(Debug)]
pub struct CaptureReader<R> {
    reader: R,
    interfaces: Vec<CapturedInterface>,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file header, and fails if the bytes are not a capture.
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        Ok(CaptureReader { reader, interfaces: Vec::new() })
    }

    /// Reads the next frame; `None` at the end of the file.
    ///
    /// After an error, the reader returns `None`. All frames before the error were returned.
    #[expect(clippy::should_implement_trait, reason = "a frame borrows the buffer, which an iterator cannot")]
    pub fn next(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        let _ = &self.reader;
        Ok(None)
    }

    /// Returns the interfaces that were read until now.
    pub fn interfaces(&self) -> &[CapturedInterface] {
        &self.interfaces
    }

    /// Returns the frames that the capture missed, as far as the file has counts.
    pub fn dropped(&self) -> Option<u64> {
        self.interfaces.iter().filter_map(|interface| interface.dropped).reduce(u64::saturating_add)
    }
}
