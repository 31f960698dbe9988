//! Limits and defaults of test requests.

use std::time::Duration;

use lfn_base::units::Bytes;

/// Maximum data streams of a test.
pub const MAX_STREAMS: u16 = 256;
/// Maximum record size: the bytes of one write call.
pub const MAX_RECORD: Bytes = Bytes(64 << 20);
/// Maximum memory of the buffers of all streams at one end, which one client can make a server allocate.
pub const MAX_BUFFERS: Bytes = Bytes(256 << 20);
/// Default record size. A kernel packet, before the network card splits it into segments, holds 60 KiB in whole pages
/// (64 KiB with its headers). Two such packets leave no short remainder.
///
/// Gb/s and CPU s/GB of both ends on loopback, one stream and four, 2 CPUs, Linux 6.18: 60 KiB 35, 0.33 and 62, 0.25;
/// 120 KiB 38, 0.30 and 67, 0.23; 128 KiB 24, 0.46 and 50, 0.31; 256 KiB 31, 0.36 and 50, 0.32.
pub const DEFAULT_RECORD: Bytes = Bytes(120 << 10);
/// Default record size in lock-step: the 64 KiB packet of "stop and wait" in the report of 1995.
pub const DEFAULT_LOCKSTEP_RECORD: Bytes = Bytes(64 << 10);
/// Default size of one read call: large enough that system calls cost little, small enough for the second-level cache.
pub const DEFAULT_READ: Bytes = Bytes(128 << 10);
/// Maximum parts of an interval.
pub const MAX_PARTS: u16 = 100;
/// Minimum interval of reports.
pub const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum samples of a timed test, one per stream and interval: an end may have to store them.
pub(super) const MAX_SAMPLES: u128 = 1_000_000;
pub(super) const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(5);
pub(super) const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum datagram of a test, bytes: its header.
pub const MIN_DATAGRAM: usize = 36;

/// Maximum datagram of a test, bytes: the maximum payload of an IPv4 packet.
pub const MAX_DATAGRAM: usize = 65_507;
