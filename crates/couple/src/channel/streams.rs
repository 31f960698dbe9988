//! Number of data streams of a connection.

use std::time::Duration;

use lfn_sys::sysctl;

use crate::coupling::Coupling;
use crate::fields::Outbox;

/// Bytes in flight that one stream reaches if the limits of autotuning are unknown: half of the usual `tcp_rmem` of 6 MB.
const USUAL_WINDOW: u64 = 3_000_000;

/// Limits of autotuning. The third number of each is the maximum buffer of a connection, bytes.
const BUFFERS: [&str; 2] = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];

/// Maximum number of streams for large fields in each direction, unless the caller sets another number.
const MAX_STREAMS: u64 = 8;

/// Returns the number of streams in both directions: one for small fields and events, and those for large fields.
pub fn count(outbox: &Outbox, coupling: &Coupling, requested: Option<u16>, rtt: Duration) -> u16 {
    let has_large =
        outbox.has_large_fields() || coupling.variables.values().any(|variable| is_large(coupling, variable));
    if !has_large {
        return 2;
    }
    let bdp = coupling.path.map_or(0, |path| path.rate.times(rtt).0);
    // Within 1 to 8. One stream is faster than several, if its buffers permit: several overflow the queue in start-up.
    let automatic = bdp.div_ceil(stream_window()).clamp(1, MAX_STREAMS) as u16;
    2 + 2 * requested.unwrap_or(automatic).clamp(1, 64)
}

/// Returns the bytes in flight that one stream of this host reaches. About half of a buffer is payload.
fn stream_window() -> u64 {
    let maximum = |name| -> Option<u64> { sysctl::read(name).ok()?.split_whitespace().nth(2)?.parse().ok() };
    let smallest = BUFFERS.into_iter().filter_map(maximum).min();
    smallest.map_or(USUAL_WINDOW, |bytes| (bytes / 2).max(1))
}

/// Returns the streams of each direction.
pub fn per_direction(count: u16) -> u16 {
    count / 2
}

fn is_large(coupling: &Coupling, variable: &crate::coupling::Variable) -> bool {
    coupling.field_bytes(variable).0 > crate::fields::SMALL_FIELD
}
