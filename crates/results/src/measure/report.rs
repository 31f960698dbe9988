//! Figures that one end reports of a test: its intervals, streams and host. Unknown figures are absent.

use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use super::socket::SocketReport;
use super::work::{Mode, PayloadCheck};
use crate::block_timing::BlockTimes;
use crate::host::{HostReport, HostSample, Note, ThreadTime};
use crate::udp::figures::{UdpFigures, UdpSample};

/// A host's kernel and its buffer limits (sysctls of its network namespace). Zero if they cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Kernel {
    /// Host name of this end.
    pub host: String,
    /// Release of the kernel.
    pub release: String,
    /// `net.core.rmem_max`: cap of `SO_RCVBUF`.
    pub rmem_max_bytes: u64,
    /// `net.core.wmem_max`: cap of `SO_SNDBUF`.
    pub wmem_max_bytes: u64,
    /// `net.ipv4.tcp_rmem`: minimum, initial and maximum receive buffer of autotuning.
    pub tcp_rmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_wmem`: minimum, initial and maximum send buffer of autotuning.
    pub tcp_wmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_moderate_rcvbuf`: receive buffers are autotuned.
    pub moderate_rcvbuf: bool,
    /// `net.ipv4.tcp_window_scaling`: window scaling is enabled.
    pub window_scaling: bool,
    /// `net.ipv4.tcp_congestion_control`: congestion control of new sockets; empty if it cannot be read.
    #[serde(default)]
    pub congestion: String,
}

/// One interval of a test at one end. Times count from that end's own start: its first payload byte.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Interval {
    /// Start of the interval.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// End of the interval.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Start of the interval on the near end's clock. Present in the far end's intervals after the clocks were
    /// compared.
    #[serde(
        rename = "near_start_seconds",
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_seconds"
    )]
    pub near_start: Option<Duration>,
    /// End of the interval on the near end's clock.
    #[serde(rename = "near_end_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub near_end: Option<Duration>,
    /// Payload bytes of all streams: written by a sender, read by a receiver.
    pub bytes: u64,
    /// Each stream at the end of the interval.
    pub streams: Vec<StreamSample>,
    /// Activity of the host in the interval. Absent if the interval is too short or nothing can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSample>,
    /// Bytes of the parts of the interval, if parts were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<IntervalPart>,
}

impl Interval {
    /// Returns start and end on the near end's clock if known, otherwise on the own clock.
    pub fn placed(&self) -> (Duration, Duration) {
        (self.near_start.unwrap_or(self.start), self.near_end.unwrap_or(self.end))
    }

    /// Returns the middle of the interval on the same clock.
    pub fn middle(&self) -> Duration {
        let (start, end) = self.placed();
        start + end.saturating_sub(start) / 2
    }
}

/// A part of an interval. Each part begins at the end of the previous part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct IntervalPart {
    /// End of the part on the clock of its interval.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Payload bytes of all streams.
    pub bytes: u64,
}

/// One stream at the end of an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StreamSample {
    /// Stream number, from 0.
    pub stream: u16,
    /// Payload bytes in the interval.
    pub bytes: u64,
    /// Bytes that were received and not yet read by the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_bytes: Option<u64>,
    /// Kernel counters of the socket. Absent if they cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<TcpInfo>,
    /// Processor time of the stream's thread in the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadTime>,
    /// Figures of a UDP stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpSample>,
}

/// Report of one end after the test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct EndReport {
    /// Time from the first payload byte to the last counted byte.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// Payload bytes written or read in that time.
    pub bytes: u64,
    /// Method that moved the payload. Absent if the end does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Processor time of the threads that moved the data. Absent if the end does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Kernel of this end. Absent if the end does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Version of lfn at this end. Absent for another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfn_version: Option<String>,
    /// Rate limit of a server for all streams of the test together.
    #[serde(default, rename = "rate_limit_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<BitRate>,
    /// Start of the intervals on this end's clock, nanoseconds (`CLOCK_MONOTONIC`).
    #[serde(default, rename = "started_nanoseconds", skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// Activity of the host during the test. Absent if the end does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostReport>,
    /// Problems at this end, and figures that it cannot provide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Figures of each stream.
    pub streams: Vec<StreamReport>,
    /// The intervals. Empty in the message, because intervals are sent one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

/// Processor time of one end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Cpu {
    /// Time in user mode.
    #[serde(rename = "user_seconds", with = "seconds")]
    pub user: Duration,
    /// Time in the kernel.
    #[serde(rename = "system_seconds", with = "seconds")]
    pub system: Duration,
}

/// One stream of one end after the test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StreamReport {
    /// Stream number, from 0.
    pub stream: u16,
    /// Payload bytes written or read.
    pub bytes: u64,
    /// Socket options, requested and granted. Absent if the end does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketReport>,
    /// Kernel counters of the socket at the end. Absent if they cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<TcpInfo>,
    /// Processor time of the stream's thread, from its start to the end of the test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadTime>,
    /// Result of a receiver that checks every byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<PayloadCheck>,
    /// Record times, if they were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockTimes>,
    /// Figures of a UDP stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Box<UdpFigures>>,
}
