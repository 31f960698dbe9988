//! Padding of the streams of small fields. It keeps their congestion window large, so that a small field leaves in one burst.
//!
//! A new connection sends padding until its congestion window has room for the small fields of one RTT. Later, each keep-alive has a
//! payload, because a connection without traffic loses its window after a retransmission timeout.

use std::time::Duration;

use super::shared::Shared;
use crate::wire::{Frame, FrameKind, HEADER_BYTES, PADDING_BYTES};

/// Part of the padding that a new stream gets before the two sides have agreed. It fits into the receive window of a connection
/// whose data are not read yet (64 KiB on Linux).
pub const FIRST_BYTES: u64 = 32 * 1024;

/// Maximum padding of a new stream.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Padding for each byte of the fields of one RTT. Slow start fills its last window in part only. The kernel halves a window that is
/// not used for a retransmission timeout (RFC 2861), as between the padding and the first step.
const MARGIN: u64 = 3;

/// Padding for the events and the keep-alives of one RTT.
const OTHER_BYTES: u64 = 16 * 1024;

/// RTT from which on padding is worth its bytes.
const LONG_RTT: Duration = Duration::from_millis(5);

/// Returns the padding that a new stream of small fields needs on a path with this RTT.
pub fn bytes(shared: &Shared, rtt: Duration) -> u64 {
    if rtt < LONG_RTT {
        return 0;
    }
    let compute = shared.coupling.components.get(&shared.component).and_then(|component| component.compute);
    let steps = compute.map_or(u64::MAX, |compute| (rtt.as_nanos() / compute.as_nanos().max(1)) as u64 + 1);
    let fields = shared.state.lock().outbox.small_bytes_in_flight(steps);
    with_margin(fields).min(MAX_BYTES)
}

/// Returns the padding for fields of this size in one RTT.
fn with_margin(fields: u64) -> u64 {
    if fields == 0 { 0 } else { MARGIN * fields + OTHER_BYTES }
}

/// Reports whether keep-alives need a payload on a path with this RTT.
pub fn is_needed(shared: &Shared, rtt: Duration) -> bool {
    bytes(shared, rtt) > 0
}

/// Returns keep-alives with at least this many bytes of payload.
pub fn frames(bytes: u64) -> Vec<u8> {
    let count = usize::try_from(bytes.div_ceil(PADDING_BYTES as u64)).unwrap_or(0);
    frame(PADDING_BYTES).repeat(count)
}

/// Returns one keep-alive with a payload of this size.
pub fn frame(length: usize) -> Vec<u8> {
    let header = Frame { kind: FrameKind::KeepAlive, variable: 0, step: 0, offset: 0, length: length as u32 };
    let mut frame = Vec::with_capacity(HEADER_BYTES + length);
    frame.extend(header.encode());
    frame.resize(HEADER_BYTES + length, 0);
    frame
}
