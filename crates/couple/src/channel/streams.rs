//! Number of data streams of a connection.

use std::time::Duration;

use crate::coupling::Coupling;
use crate::fields::Outbox;

/// Bytes in flight that one stream reaches with the usual limits of autotuning (`tcp_rmem` 6 MB, half of it as window).
const STREAM_WINDOW: u64 = 3_000_000;

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
    // Within 1 to 8.
    let automatic = bdp.div_ceil(STREAM_WINDOW).clamp(1, MAX_STREAMS) as u16;
    2 + 2 * requested.unwrap_or(automatic).clamp(1, 64)
}

/// Returns the streams of each direction.
pub fn per_direction(count: u16) -> u16 {
    count / 2
}

fn is_large(coupling: &Coupling, variable: &crate::coupling::Variable) -> bool {
    coupling.field_bytes(variable).0 > crate::fields::SMALL_FIELD
}
