//! Figures of both ends of a UDP stream, as messages and in JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_base::path::seconds;
use lfn_base::units::{BitRate, Ratio};
use serde::{Deserialize, Serialize};

use super::ramp::RampReport;

/// Number of runs with a length from `from` to `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RunCount {
    /// Minimum length of the range, inclusive.
    pub from: u64,
    /// Maximum length of the range, inclusive.
    pub to: u64,
    /// Number of runs with a length in this range.
    pub count: u64,
}

/// A stream of datagrams in an interval or a whole test. It has the part of one end: the sender's or the receiver's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UdpFigures {
    /// Figures of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<UdpSent>,
    /// Figures of the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<UdpReceived>,
    /// Result of the ramp, from the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<RampReport>,
}

/// Figures of one interval of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UdpSample {
    /// Datagrams sent, or received without duplicates.
    pub datagrams: u64,
    /// New missing datagrams. A datagram that arrives in a later interval still counts here.
    #[serde(default)]
    pub lost: u64,
    /// Datagrams that arrived after a later one.
    #[serde(default)]
    pub reordered: u64,
    /// Datagrams received again in this interval.
    #[serde(default)]
    pub duplicates: u64,
    /// Jitter of RFC 3550 at the end of the interval, from a receiver.
    #[serde(
        default,
        rename = "jitter_seconds",
        with = "lfn_base::path::optional_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub jitter: Option<Duration>,
}

/// Figures of a sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UdpSent {
    /// Datagrams that the kernel accepted.
    pub datagrams: u64,
    /// Payload of each datagram.
    pub datagram_bytes: u64,
    /// Requested payload rate; in a ramp, the rate of its last step.
    #[serde(rename = "requested_bits_per_second")]
    pub requested: BitRate,
    /// Rate that the server's limit allows, if it is lower.
    #[serde(rename = "limit_bits_per_second", default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<BitRate>,
    /// Payload over the time from the first to the last departure.
    #[serde(rename = "achieved_bits_per_second")]
    pub achieved: BitRate,
    /// Datagrams that leave together by the schedule, in one call.
    pub burst_datagrams: u32,
    /// True if the kernel segments one buffer into datagrams (GSO), so that they leave back to back.
    pub gso: bool,
    /// True if GSO was requested and the kernel or the device refused it.
    #[serde(default)]
    pub gso_refused: bool,
    /// Lateness of the datagrams behind their schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Quantiles>,
    /// Share of the time in which a burst was more than a millisecond late.
    pub behind_schedule_share: Ratio,
    /// Time of the schedule that was skipped because the sender could not catch up.
    #[serde(rename = "skipped_seconds", with = "seconds")]
    pub skipped: Duration,
    /// Calls that found the host's own queue full (`ENOBUFS`); their data was sent later.
    pub queue_full: u64,
    /// True if DF is set, so that no packet is fragmented on the path.
    pub dont_fragment: bool,
    /// Path MTU in the sender's kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
}

impl UdpSent {
    /// Returns whether the sender reached at least this share of the requested rate. A single datagram has no rate.
    pub fn reached(&self, share: f64) -> bool {
        let wanted = self.limit.map_or(self.requested, |limit| limit.min(self.requested));
        self.datagrams < 2 || self.achieved.as_f64() >= share * wanted.as_f64()
    }
}

/// Figures of a receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UdpReceived {
    /// Datagrams, each counted once.
    pub datagrams: u64,
    /// Datagrams that were sent and never arrived.
    pub lost: u64,
    /// Datagrams that were received again.
    pub duplicates: u64,
    /// Datagrams that arrived after a later one (RFC 4737 §3).
    pub reordered: u64,
    /// Reordered datagrams that arrived right after three later ones (RFC 4737 §5.4): TCP would treat them as lost.
    pub reordered_by_three: u64,
    /// Datagrams that were too old to be recognised as duplicates.
    pub too_late: u64,
    /// Datagrams at this socket that do not belong to the stream.
    #[serde(default)]
    pub unrecognised: u64,
    /// Longest run of lost datagrams.
    pub max_loss_burst: u64,
    /// Runs of lost datagrams by length (RFC 3357).
    pub loss_bursts: Vec<RunCount>,
    /// Maximum reordering extent: datagrams between the first later one and the late one (RFC 4737 §4.2).
    pub max_reordering_extent: u64,
    /// Reordering extents by length.
    pub reordering_extents: Vec<RunCount>,
    /// Jitter of RFC 3550 at the end.
    #[serde(rename = "jitter_seconds", with = "seconds")]
    pub jitter: Duration,
    /// Distribution of the difference in transit time between consecutive datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_variation: Option<Quantiles>,
    /// Overflows of the receiver's own socket buffer: this loss is not on the path. Each overflow is one datagram, or a
    /// few merged datagrams with GRO. Absent if the kernel does not report overflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows: Option<u64>,
    /// Maximum number of datagrams that the kernel merged into one (GRO); 1 means no merging.
    #[serde(default)]
    pub max_merged_datagrams: u32,
    /// True if the times are kernel timestamps of the arrival, not times of the reading thread.
    #[serde(default)]
    pub kernel_timestamps: bool,
}

impl UdpReceived {
    /// Returns the lost share of the sent datagrams; `None` if none was sent.
    pub fn loss(&self) -> Option<f64> {
        let sent = self.datagrams.saturating_add(self.lost);
        (sent > 0).then(|| self.lost as f64 / sent as f64)
    }

    /// Returns the minimum and the maximum of the loss in the receiver's own socket buffer.
    pub fn own_loss(&self) -> (u64, u64) {
        let overflows = self.overflows.unwrap_or(0);
        let max_loss = overflows.saturating_mul(u64::from(self.max_merged_datagrams.max(1)));
        (overflows.min(self.lost), max_loss.min(self.lost))
    }
}

/// Quantiles of a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Quantiles {
    /// Median of the distribution, in seconds (nearest rank).
    #[serde(rename = "p50_seconds", with = "seconds")]
    pub p50: Duration,
    /// 90 % are no longer.
    #[serde(rename = "p90_seconds", with = "seconds")]
    pub p90: Duration,
    /// 99 % are no longer.
    #[serde(rename = "p99_seconds", with = "seconds")]
    pub p99: Duration,
    /// Maximum of the distribution, in seconds.
    #[serde(rename = "max_seconds", with = "seconds")]
    pub max: Duration,
}

impl Quantiles {
    /// Computes the quantiles of nanoseconds; `None` for an empty histogram.
    pub fn of(counted: &Histogram<u64>) -> Option<Quantiles> {
        let at = |quantile| Duration::from_nanos(counted.value_at_quantile(quantile));
        let longest = Duration::from_nanos(counted.max());
        (!counted.is_empty()).then(|| Quantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: longest })
    }
}
