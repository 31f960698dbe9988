//! The figures of RFC 6349, the framework for testing TCP throughput, as the RFC computes them.
//!
//! They differ from [`crate::tcp_model`] where the RFC differs: whole frames per second, no TCP options, efficiency
//! truncated and not rounded. They are separate so that a report that names the RFC has the RFC's numbers.

use std::time::Duration;

use crate::framing::Framing;
use crate::path::PathProfile;
use crate::units::{BitRate, Bytes};

/// Returns the maximum TCP throughput (section 3.3.1): whole frames per second times the payload of each frame without
/// TCP options. It is 94.92 Mb/s on 100 Mb/s Ethernet at MTU 1500.
pub fn max_tcp_throughput(path: &PathProfile) -> BitRate {
    let plain = Framing { without_timestamps: true, ..path.framing };
    let frame_bits = plain.wire_bytes_full(path.mtu).saturating_mul(8).max(1);
    let frames_per_second = path.capacity.0 / frame_bits;
    BitRate(frames_per_second.saturating_mul(u64::from(plain.payload(path.mtu)) * 8))
}

/// Returns the transfer time ratio (section 4.1.1): actual over ideal transfer time; 1 is ideal. `None` if the ideal
/// time is zero.
pub fn transfer_time_ratio(actual: Duration, ideal: Duration) -> Option<f64> {
    (!ideal.is_zero()).then(|| actual.as_secs_f64() / ideal.as_secs_f64())
}

/// Returns the TCP efficiency (section 4.2): the per cent of the transmitted bytes, retransmissions included, that are
/// not retransmissions, truncated after two decimals as in the RFC. `None` if nothing was transmitted, or if more was
/// retransmitted than transmitted.
pub fn tcp_efficiency(transmitted: Bytes, retransmitted: Bytes) -> Option<f64> {
    let kept = transmitted.0.checked_sub(retransmitted.0)?;
    let hundredths = (u128::from(kept) * 10_000).checked_div(u128::from(transmitted.0))?;
    Some(hundredths as f64 / 100.0)
}

/// Returns the buffer delay (section 4.3): the per cent by which the average RTT under load exceeds the base RTT.
/// `None` if the base RTT is zero.
pub fn buffer_delay(average_rtt: Duration, base_rtt: Duration) -> Option<f64> {
    let base = base_rtt.as_secs_f64();
    (base > 0.0).then(|| (average_rtt.as_secs_f64() - base) / base * 100.0)
}
