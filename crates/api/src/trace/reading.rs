//! Reading of captures: counts the frames by kind, and passes the TCP segments on to the analysis.

use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_base::time::Instant;
use lfn_packet::capture::{CaptureError, CaptureReader, CapturedFrame};
use lfn_packet::decode::{Decoded, OtherPacket, decode};
use lfn_packet::{TcpEndpoint, TcpSegment};
use lfn_trace::{Analysis, PacketFlags};

use super::error::TraceError;
use super::filter::ConnectionFilter;
use super::input::{self, CaptureFile};
use super::options::TraceOptions;
use super::protocols::ProtocolCounts;
use super::result::{self, Traced, since_1970};
use crate::documents::{CaptureCounts, TracedFile};
use crate::error_text::error_chain;

/// Time by which a part of a capture may begin before the end of the part before.
const MAX_OVERLAP: std::time::Duration = std::time::Duration::from_secs(1);

/// Time by which a packet is before an earlier packet if the clock was set back. Packets of several interfaces are less far out
/// of order.
const MIN_STEP_BACK: std::time::Duration = std::time::Duration::from_secs(1);

/// Frames between two looks at the stop flag.
const FRAMES_PER_CHECK: u64 = 1024;

/// Source of captured frames: a file, or a live interface.
pub trait FrameSource {
    /// Returns the next frame; `None` at the end of the capture.
    fn next_frame(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError>;

    /// Returns the packets that the capture missed so far, if they are counted.
    fn dropped(&self) -> Option<u64>;
}

impl<R: Read> FrameSource for CaptureReader<R> {
    fn next_frame(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        self.next()
    }

    fn dropped(&self) -> Option<u64> {
        CaptureReader::dropped(self)
    }
}

/// A packet with flags.
#[derive(Debug, Clone, Copy)]
pub struct FlaggedPacket {
    /// Number of the packet in its file, from 1.
    pub number: u64,
    /// Number of the file in the order of reading, from 1.
    pub file: u64,
    /// Time of the capture, since 1970.
    pub at: Instant,
    /// Time of the first packet of the capture, since 1970.
    pub first: Instant,
    pub source: TcpEndpoint,
    pub destination: TcpEndpoint,
    pub flags: PacketFlags,
}

/// State of the reading of one capture.
pub(super) struct Reading<'a> {
    filter: &'a ConnectionFilter,
    analysis: Analysis,
    stop: &'a AtomicBool,
    on_flagged: &'a mut dyn FnMut(&FlaggedPacket),
    counts: FrameCounts,
    files: Vec<TracedFile>,
    /// The last file with packets, and the time of its last packet.
    before: Option<(PathBuf, Instant)>,
}

/// Counts of the frames, with the times of the first and the last one.
#[derive(Default)]
struct FrameCounts {
    counts: CaptureCounts,
    protocols: ProtocolCounts,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// Frames of one file or of one live capture.
#[derive(Default)]
struct PartCounts {
    packets: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(
        options: &'a TraceOptions,
        stop: &'a AtomicBool,
        on_flagged: &'a mut dyn FnMut(&FlaggedPacket),
    ) -> Self {
        Reading {
            filter: &options.filter,
            analysis: Analysis::new(options.analysis),
            stop,
            on_flagged,
            counts: FrameCounts::default(),
            files: Vec::new(),
            before: None,
        }
    }

    /// Reads the next part of the capture. A part that is damaged after its first packet is recorded with the damage.
    pub(super) fn read_file(&mut self, file: &CaptureFile) -> Result<(), TraceError> {
        let path = || file.path.clone();
        if let (Some((before, end)), Some(first)) = (&self.before, file.first)
            && first + MAX_OVERLAP < *end
        {
            return Err(TraceError::Overlap { file: path(), before: before.clone() });
        }
        let mut capture = input::open(&file.path, self.stop)?;
        let (part, error) = self.read(&mut capture.reader);
        match error {
            Some(source) if part.packets == 0 => return Err(TraceError::Capture { file: path(), source }),
            None if part.packets == 0 && !self.stop.load(Ordering::Relaxed) && self.files.is_empty() => {
                return Err(TraceError::NoPackets { file: path() });
            }
            error => self.files.push(TracedFile {
                name: file.path.display().to_string(),
                compression: capture.compression.map(|compression| compression.to_string()),
                packets: part.packets,
                first: part.first.map(since_1970),
                last: part.last.map(since_1970),
                damage: error.map(|error| error_chain(&error)),
            }),
        }
        self.before = part.last.map(|last| (path(), last)).or(self.before.take());
        Ok(())
    }

    /// Reads a live capture until it ends.
    pub(super) fn read_live(&mut self, interface: &str, source: &mut impl FrameSource) -> Result<(), TraceError> {
        match self.read(source).1 {
            Some(CaptureError::Read { source, .. }) => {
                Err(TraceError::Live { interface: interface.to_owned(), source })
            }
            _ => Ok(()),
        }
    }

    /// Ends the analysis and makes its result.
    pub(super) fn finish(self, interface: Option<String>) -> Traced {
        let FrameCounts { mut counts, protocols, first, last } = self.counts;
        counts.protocols = protocols.finish();
        counts.first = first.map(since_1970);
        counts.last = last.map(since_1970);
        result::result(self.analysis.finish(), counts, self.files, interface)
    }

    /// Reads all frames of a source, and returns their counts with the error that ended the reading.
    fn read(&mut self, source: &mut impl FrameSource) -> (PartCounts, Option<CaptureError>) {
        let mut part = PartCounts::default();
        let file = self.files.len() as u64 + 1;
        let error = loop {
            if part.packets.is_multiple_of(FRAMES_PER_CHECK) && self.stop.load(Ordering::Relaxed) {
                break None;
            }
            let frame = match source.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break None,
                // The end of the input is not damage if a signal ended it.
                Err(_) if self.stop.load(Ordering::Relaxed) => break None,
                Err(error) => break Some(error),
            };
            let at = Instant::from_nanos(frame.at);
            part.packets += 1;
            part.first.get_or_insert(at);
            if part.last.is_some_and(|last| at + MIN_STEP_BACK <= last) {
                self.counts.counts.time_steps_back += 1;
                self.counts.counts.first_time_step_back.get_or_insert(frame.number);
            }
            part.last = part.last.max(Some(at));
            let Some(segment) = self.counts.add(&frame, at, &mut self.analysis) else { continue };
            if !self.filter.matches(&segment) {
                self.counts.counts.excluded += 1;
                continue;
            }
            let flags = self.analysis.add(at, &segment);
            if !flags.is_empty() {
                let (source, destination) = (segment.source, segment.destination);
                let first = self.counts.first.unwrap_or(at);
                (self.on_flagged)(&FlaggedPacket { number: frame.number, file, at, first, source, destination, flags });
            }
        };
        if let Some(dropped) = source.dropped() {
            *self.counts.counts.dropped.get_or_insert(0) += dropped;
        }
        (part, error)
    }
}

impl FrameCounts {
    /// Counts a frame, and returns its TCP segment.
    fn add(&mut self, frame: &CapturedFrame<'_>, at: Instant, analysis: &mut Analysis) -> Option<TcpSegment> {
        let counts = &mut self.counts;
        counts.packets += 1;
        counts.bytes += u64::from(frame.original_length);
        counts.captured_bytes += frame.bytes.len() as u64;
        self.first.get_or_insert(at);
        self.last = self.last.max(Some(at));
        let decoded = decode(frame.link, frame.bytes, frame.original_length);
        counts.fragments += u64::from(decoded.is_fragment);
        self.protocols.add(&decoded.packet, u64::from(frame.original_length));
        match decoded.packet {
            Decoded::Tcp(segment) => return Some(segment),
            Decoded::Other(OtherPacket::Icmp { too_big: Some(message) }) => {
                if let Some(segment) = message.segment {
                    analysis.add_too_big(segment.source, segment.destination, message.mtu);
                }
            }
            Decoded::Other(_) => {}
        }
        None
    }
}
