//! First estimate of the clock offset, from the first segments of both captures.

use std::collections::HashMap;

use lfn_base::time::Instant;
use lfn_packet::{TcpEndpoint, TcpSegment};

use super::side::CaptureSide;

/// Maximum number of remembered segments of the near capture.
const MAX_REMEMBERED: usize = 100_000;

/// Fields that are equal in both captures of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SegmentKey {
    source: TcpEndpoint,
    destination: TcpEndpoint,
    sequence: u32,
    acknowledgement: u32,
    flags: u16,
    timestamps: Option<(u32, u32)>,
}

/// Estimates the clock offset. All near segments come first, then the far ones.
#[derive(Debug, Default)]
pub struct OffsetEstimate {
    near: HashMap<SegmentKey, Instant>,
    /// Minimum and maximum difference of the segments whose source is the smaller endpoint, and of the others.
    differences: [Option<(i64, i64)>; 2],
}

impl OffsetEstimate {
    /// Adds a segment. Of equal segments, the first one counts.
    pub fn add(&mut self, side: CaptureSide, at: Instant, segment: &TcpSegment) {
        let key = SegmentKey {
            source: segment.source,
            destination: segment.destination,
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            // PSH differs between a super-packet and its parts.
            flags: segment.flags.0 & 0x17 & !0x08,
            timestamps: segment.options.timestamps.map(|stamps| (stamps.value, stamps.echo)),
        };
        match side {
            CaptureSide::Near if self.near.len() < MAX_REMEMBERED => _ = self.near.entry(key).or_insert(at),
            CaptureSide::Near => {}
            CaptureSide::Far => {
                let Some(near) = self.near.remove(&key) else { return };
                let difference = signed_difference(at, near);
                let range = &mut self.differences[usize::from(segment.source > segment.destination)];
                let (min, max) = range.unwrap_or((difference, difference));
                *range = Some((min.min(difference), max.max(difference)));
            }
        }
    }

    /// Returns the clock of the far capture minus the clock of the near capture, nanoseconds; none without a common
    /// segment.
    pub fn offset(&self) -> Option<i64> {
        match self.differences {
            // Delays are positive, so the direction from near to far has the larger differences.
            [Some(up), Some(down)] => {
                let (forward, back) = if up.0 >= down.0 { (up, down) } else { (down, up) };
                Some(back.1.midpoint(forward.0))
            }
            [one, other] => one.or(other).map(|(min, _)| min),
        }
    }
}

/// Returns `one` minus `other`, nanoseconds.
pub(super) fn signed_difference(one: Instant, other: Instant) -> i64 {
    one.as_nanos().wrapping_sub(other.as_nanos()) as i64
}
