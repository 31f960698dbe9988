//! Comparison of two captures of the same packets: reads both at the same pace.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_base::time::Instant;
use lfn_packet::TcpSegment;
use lfn_packet::capture::{CaptureReader, Compression};
use lfn_packet::decode::{Decoded, decode};
use lfn_results::evidence::pair::PairEvidence;
use lfn_trace::{CaptureSide, OffsetEstimate, PairMatcher};

use super::error::TraceError;
use super::filter::ConnectionFilter;
use super::input::{self, Bytes};
use super::result::since_1970;
use crate::documents::TracedFile;
use crate::error_text::error_chain;

/// Segments of each capture that the estimate of the clock offset uses.
const ESTIMATE_SEGMENTS: usize = 100_000;

/// Result of a comparison.
pub struct ComparedCaptures {
    pub evidence: PairEvidence,
    /// File of the far capture.
    pub far: TracedFile,
}

/// Compares the segments of both captures.
pub fn compare(
    near: &Path,
    far: &Path,
    filter: &ConnectionFilter,
    stop: &AtomicBool,
) -> Result<ComparedCaptures, TraceError> {
    let nothing = || TraceError::NothingInCommon { near: near.to_owned(), far: far.to_owned() };
    for path in [near, far] {
        if input::is_standard_input(path) {
            return Err(TraceError::StandardInputAmongFiles);
        }
    }
    input::refuse_same_file(&[near, far])?;
    let offset = estimate(near, far, filter, stop)?.ok_or_else(nothing)?;
    let mut matcher = PairMatcher::new(offset);
    let mut near = Segments::open(near, filter, stop)?;
    let mut far = Segments::open(far, filter, stop)?;
    let (mut next_near, mut next_far) = (near.next()?, far.next()?);
    while !stop.load(Ordering::Relaxed) {
        let is_near = match (&next_near, &next_far) {
            (Some((near_at, _)), Some((far_at, _))) => *near_at <= matcher.near_time(CaptureSide::Far, *far_at),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        let (side, source, next) = if is_near {
            (CaptureSide::Near, &mut near, &mut next_near)
        } else {
            (CaptureSide::Far, &mut far, &mut next_far)
        };
        if let Some((at, segment)) = next {
            matcher.add(side, *at, segment);
        }
        *next = source.next()?;
    }
    let evidence = matcher.finish();
    if evidence.connections == 0 {
        return Err(nothing());
    }
    Ok(ComparedCaptures { evidence, far: far.file })
}

/// Estimates the clock offset from the first segments.
fn estimate(near: &Path, far: &Path, filter: &ConnectionFilter, stop: &AtomicBool) -> Result<Option<i64>, TraceError> {
    let mut estimate = OffsetEstimate::default();
    for (side, path) in [(CaptureSide::Near, near), (CaptureSide::Far, far)] {
        let mut segments = Segments::open(path, filter, stop)?;
        for _ in 0..ESTIMATE_SEGMENTS {
            let Some((at, segment)) = segments.next()?.filter(|_| !stop.load(Ordering::Relaxed)) else { break };
            estimate.add(side, at, &segment);
        }
    }
    Ok(estimate.offset())
}

/// TCP segments of one capture, without those that the filter excludes.
struct Segments<'a> {
    path: PathBuf,
    reader: CaptureReader<Bytes<'a>>,
    filter: &'a ConnectionFilter,
    file: TracedFile,
}

impl<'a> Segments<'a> {
    fn open(path: &Path, filter: &'a ConnectionFilter, stop: &'a AtomicBool) -> Result<Self, TraceError> {
        let capture = input::open(path, stop)?;
        let name = path.display().to_string();
        let compression = capture.compression.as_ref().map(Compression::to_string);
        let file = TracedFile { name, compression, ..TracedFile::default() };
        Ok(Segments { path: path.to_owned(), reader: capture.reader, filter, file })
    }

    /// Returns the next segment. A capture that is damaged after its first packet ends there.
    fn next(&mut self) -> Result<Option<(Instant, TcpSegment)>, TraceError> {
        loop {
            let frame = match self.reader.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(source) if self.file.packets == 0 => {
                    return Err(TraceError::Capture { file: self.path.clone(), source });
                }
                Err(error) => {
                    self.file.damage = Some(error_chain(&error));
                    return Ok(None);
                }
            };
            let at = Instant::from_nanos(frame.at);
            self.file.packets += 1;
            self.file.first.get_or_insert(since_1970(at));
            self.file.last = self.file.last.max(Some(since_1970(at)));
            if let Decoded::Tcp(segment) = decode(frame.link, frame.bytes, frame.original_length).packet
                && self.filter.matches(&segment)
            {
                return Ok(Some((at, segment)));
            }
        }
    }
}
