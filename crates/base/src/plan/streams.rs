//! Number of streams of a copy: the limits of every choice.

use std::time::Duration;

use crate::units::Bytes;

/// Streams on an unknown path, and the minimum of any choice: as fast as more streams between near hosts, and a loss
/// slows only one of four.
pub const DEFAULT_STREAMS: u16 = 4;

/// Maximum streams without a request of the user. With 256 streams a path of 135 Mb/s × 539 ms is full within a second.
/// Each stream costs both hosts buffers and a handshake.
pub const MAX_AUTO_STREAMS: u16 = 256;

/// Bytes that each stream beyond [`DEFAULT_STREAMS`] must carry: three flights of slow start with an MTU of 1500. The
/// handshakes of a stream then cost at most 5 % of its data, and a small copy does not take a large share of a busy path.
pub const MIN_STREAM_BYTES: u64 = 100_000;

/// First flight of a stream, segments (RFC 6928).
const INITIAL_WINDOW: u64 = 10;

/// Maximum segment size on Ethernet with time stamps, bytes.
pub const DEFAULT_MSS: u32 = 1448;

/// Minimum duration between two changes of the streams, and minimum round trips: new streams need some to start up.
const MIN_INTERVAL: (Duration, u32) = (Duration::from_secs(2), 12);

/// Returns the minimum interval between two changes of the streams, for an RTT in seconds.
pub fn min_interval(rtt: f64) -> Duration {
    let round_trips = Duration::try_from_secs_f64(rtt * f64::from(MIN_INTERVAL.1)).unwrap_or_default();
    MIN_INTERVAL.0.max(round_trips)
}

/// Returns the maximum streams that a copy of this size can use. Each stream carries at least
/// [`MIN_STREAM_BYTES`] and its first flight, and only the flight if there are at most [`DEFAULT_STREAMS`].
pub fn usable_streams(size: Bytes, mss: u32) -> u16 {
    let flight = INITIAL_WINDOW * u64::from(mss.max(1));
    let many = size.0 / flight.max(MIN_STREAM_BYTES);
    let few = size.0.div_ceil(flight).min(DEFAULT_STREAMS.into());
    u16::try_from(many.max(few).max(1)).unwrap_or(u16::MAX)
}
