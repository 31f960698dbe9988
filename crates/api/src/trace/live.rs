//! Live capture of the packets of an interface.

use std::io;
use std::sync::atomic::AtomicBool;

use lfn_packet::capture::{CaptureError, CapturedFrame};

use super::error::TraceError;
use super::options::LiveOptions;
use super::reading::FrameSource;

/// Packets of an interface.
pub struct LiveCapture;

/// Opens the interface for a capture.
pub fn open(options: &LiveOptions, _stop: &AtomicBool) -> Result<LiveCapture, TraceError> {
    let source = io::Error::from(io::ErrorKind::Unsupported);
    Err(TraceError::Live { interface: options.interface.clone(), source })
}

impl FrameSource for LiveCapture {
    fn next_frame(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        Ok(None)
    }

    fn dropped(&self) -> Option<u64> {
        None
    }
}
