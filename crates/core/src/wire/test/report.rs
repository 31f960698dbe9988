//! The figures one end has of a test: its intervals, its streams, its host. What an end cannot know is absent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::socket::SocketReport;
use super::work::{Check, Mode};
use crate::blocks::BlockTimes;
use crate::host::{HostReport, HostSample, Note, ThreadTime};
use crate::path::seconds;
use crate::tcp_info::{TcpInfo, optional_seconds};
use crate::udp::figures::{UdpFigures, UdpSample};
use crate::units::BitRate;

/// A host's kernel and its limits on buffers (sysctls of its network namespace); zero where they cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Kernel {
    /// What the host calls itself.
    pub host: String,
    /// Kernel release.
    pub release: String,
    /// `net.core.rmem_max`: cap of `SO_RCVBUF`.
    pub rmem_max_bytes: u64,
    /// `net.core.wmem_max`: cap of `SO_SNDBUF`.
    pub wmem_max_bytes: u64,
    /// `net.ipv4.tcp_rmem`: least, first and largest receive buffer of autotuning.
    pub tcp_rmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_wmem`: least, first and largest send buffer of autotuning.
    pub tcp_wmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_moderate_rcvbuf`: receive buffers are autotuned.
    pub moderate_rcvbuf: bool,
    /// `net.ipv4.tcp_window_scaling`.
    pub window_scaling: bool,
}

/// One slice of a test as one end saw it. Times count from the end's own start: its first payload byte.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interval {
    /// When it began.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// When it ended.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// When it began on the near end's clock: of the far end's intervals, once the two clocks were compared.
    #[serde(
        rename = "near_start_seconds",
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_seconds"
    )]
    pub near_start: Option<Duration>,
    /// When it ended there.
    #[serde(rename = "near_end_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub near_end: Option<Duration>,
    /// Payload bytes of all streams: written by a sender, read by a receiver.
    pub bytes: u64,
    /// Each stream at the end of the interval.
    pub streams: Vec<StreamSample>,
    /// What the host did in it; absent where the interval is too short, or nothing could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSample>,
    /// The bytes of its parts, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

impl Interval {
    /// Start and end on the near end's clock, as far as that is known.
    pub fn placed(&self) -> (Duration, Duration) {
        (self.near_start.unwrap_or(self.start), self.near_end.unwrap_or(self.end))
    }

    /// The middle of that.
    pub fn middle(&self) -> Duration {
        let (start, end) = self.placed();
        start + end.saturating_sub(start) / 2
    }
}

/// A part of an interval; it begins where the one before ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Part {
    /// When it ended, on the clock of its interval.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Payload bytes of all streams.
    pub bytes: u64,
}

/// One stream at the end of an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StreamSample {
    /// Its number, from 0.
    pub stream: u16,
    /// Payload bytes in the interval.
    pub bytes: u64,
    /// Bytes received that the application had not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_bytes: Option<u64>,
    /// What the kernel says; absent where nobody could ask it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<TcpInfo>,
    /// What its thread did in the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadTime>,
    /// Of a stream of datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpSample>,
}

/// What one end has to say when the test is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EndReport {
    /// From the first payload byte to the last counted one.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// Payload bytes written or read in that time.
    pub bytes: u64,
    /// How it moved them; absent of an end that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Processor time of the threads that moved the data; absent of an end that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// This end's kernel; absent of an end that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Version of the lfn there; absent of another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfn_version: Option<String>,
    /// What it holds all streams of the test together to, of a server with such a limit.
    #[serde(default, rename = "rate_limit_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<BitRate>,
    /// The start of its intervals on its own clock, nanoseconds (`CLOCK_MONOTONIC`).
    #[serde(default, rename = "started_nanoseconds", skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// What the host did meanwhile; absent of an end that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostReport>,
    /// What went wrong at this end, or could not be had there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Each stream.
    pub streams: Vec<StreamReport>,
    /// The intervals; empty on the wire, where they were told one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cpu {
    /// In user mode.
    #[serde(rename = "user_seconds", with = "seconds")]
    pub user: Duration,
    /// In the kernel.
    #[serde(rename = "system_seconds", with = "seconds")]
    pub system: Duration,
}

/// One stream of one end when the test is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StreamReport {
    /// Its number, from 0.
    pub stream: u16,
    /// Payload bytes written or read.
    pub bytes: u64,
    /// Socket options, asked and granted; absent of an end that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketReport>,
    /// What the kernel says at the end; absent where nobody could ask it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<TcpInfo>,
    /// What its thread did, from its start to the end of the test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadTime>,
    /// What was found of a receiver that looked at every byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// The times of its records, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockTimes>,
    /// Of a stream of datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Box<UdpFigures>>,
}
