//! The figures of an entry that a line over time needs. A line has thousands of points, and an entry is much larger.

use std::time::Duration;

use lfn_base::units::BitRate;

use super::Marks;

/// One measurement of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Point {
    /// Start of the measurement: time since 1970.
    pub time: Duration,
    pub goodput: Option<BitRate>,
    pub predicted: Option<BitRate>,
    pub base_rtt: Option<Duration>,
    pub rtt: Option<Duration>,
    pub packets: Option<u64>,
    pub lost_packets: Option<u64>,
    pub marks: Marks,
    /// Number of the conditions in the archive; `None` if they are unknown. Equal numbers are equal conditions.
    pub conditions: Option<i64>,
}
