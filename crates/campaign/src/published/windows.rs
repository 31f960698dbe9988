//! The path of the report, and its runs with three windows.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};

/// One nettest run with a fixed receive window.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Share of the BDP.
    pub share: f64,
    /// Window given to `nettest -b`. The demo uses the same.
    pub bytes: Bytes,
    /// Window scale used in the report.
    pub scale: u8,
    /// Rate of the `write` line.
    pub goodput: BitRate,
}

/// Report 000, "Batteries of nettest/nettestd suites": 1000 × 1,000,000 bytes at 0.5, 1 and 1.5 times the BDP.
pub const WINDOWS: [Window; 3] = [
    Window { share: 0.5, bytes: Bytes(4_547_813), scale: 7, goodput: BitRate(64_044_000) },
    Window { share: 1.0, bytes: Bytes(9_095_625), scale: 8, goodput: BitRate(111_094_000) },
    Window { share: 1.5, bytes: Bytes(13_643_438), scale: 8, goodput: BitRate(60_848_000) },
];

/// Report 000: RTT computed from the geometry, as printed.
pub const GEOMETRIC_RTT: Duration = Duration::from_millis(502);

/// Report 000: RTT measured with ping.
pub const PING_RTT: Duration = Duration::from_millis(539);

/// Report 000: "100 × 3000000 bytes" with a window of 10 MB.
pub const TRANSFER: Bytes = Bytes(300_000_000);

/// Duration of this transfer: `write 28.9430`.
pub const TRANSFER_TIME: Duration = Duration::from_millis(28_943);

/// Report 000, raw HIPPI blocks through the terminal in loopback, without TCP: "Overall data rate was 111.954".
pub const RAW_HIPPI: BitRate = BitRate(111_954_000);

/// Rate of the fastest raw HIPPI block.
pub const RAW_HIPPI_BEST: BitRate = BitRate(122_269_000);

/// Returns the path as the report describes it: OC-3c with 135 Mb/s for data, and a queue of one BDP.
pub fn path() -> PathProfile {
    let mut path = PathProfile::new(BitRate(135_000_000), PING_RTT);
    path.queue = Some(path.bdp());
    path
}
