//! Live capture of the packets of an interface.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_packet::LinkLayer;
use lfn_packet::capture::{CaptureError, CapturedFrame};
use lfn_sys::packet::{LiveCapture as Capture, LiveFilter};

use super::error::TraceError;
use super::filter::ConnectionFilter;
use super::options::{LiveOptions, LiveProgress};
use super::reading::FrameSource;

/// Bytes that are captured of each packet: the headers of Ethernet, IPv6 and TCP with all options, also in a tunnel.
const SNAP_LENGTH: u32 = 192;
/// Interval at which the stop flag and the time are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Frames between two of these checks while packets arrive.
const FRAMES_PER_CHECK: u64 = 256;
/// Interval of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Packets of an interface.
pub struct LiveCapture<'a> {
    capture: Capture,
    stop: &'a AtomicBool,
    begun: Instant,
    time: Option<Duration>,
    on_progress: fn(&LiveProgress),
    progress_at: Duration,
    progress: LiveProgress,
    dropped: u64,
}

/// Opens the capture on the interface of the options, for the hosts of the filter.
pub fn open<'a>(
    options: &LiveOptions,
    filter: &ConnectionFilter,
    stop: &'a AtomicBool,
) -> Result<LiveCapture<'a>, TraceError> {
    let hosts = LiveFilter { hosts: filter.addresses.clone() };
    let failed = |source| TraceError::Live { interface: options.interface.clone(), source };
    Ok(LiveCapture {
        capture: Capture::open(&options.interface, SNAP_LENGTH, &hosts).map_err(failed)?,
        stop,
        begun: Instant::now(),
        time: options.time,
        on_progress: options.on_progress,
        progress_at: Duration::ZERO,
        progress: LiveProgress::default(),
        dropped: 0,
    })
}

impl LiveCapture<'_> {
    /// Reports the progress if it is due, and returns whether the capture is over.
    fn is_over(&mut self) -> io::Result<bool> {
        let elapsed = self.begun.elapsed();
        if elapsed >= self.progress_at {
            self.progress_at = elapsed + PROGRESS_INTERVAL;
            self.dropped = self.capture.dropped()?;
            self.progress = LiveProgress { elapsed, dropped: self.dropped, ..self.progress };
            (self.on_progress)(&self.progress);
        }
        Ok(self.stop.load(Ordering::Relaxed) || self.time.is_some_and(|time| elapsed >= time))
    }
}

impl FrameSource for LiveCapture<'_> {
    fn next_frame(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        let packet = self.progress.packets + 1;
        let failed = |source| CaptureError::Read { packet, source };
        loop {
            let is_read = self.capture.read(POLL_INTERVAL).map_err(failed)?;
            if (!is_read || packet.is_multiple_of(FRAMES_PER_CHECK)) && self.is_over().map_err(failed)? {
                return Ok(None);
            }
            if is_read {
                break;
            }
        }
        let Some(frame) = self.capture.frame() else { return Ok(None) };
        self.progress.packets += 1;
        self.progress.bytes += u64::from(frame.original_length);
        Ok(Some(CapturedFrame {
            number: self.progress.packets,
            at: frame.at,
            interface: 0,
            link: LinkLayer::from_number(frame.link_type),
            bytes: frame.bytes,
            original_length: frame.original_length,
        }))
    }

    fn dropped(&self) -> Option<u64> {
        Some(self.dropped)
    }
}
