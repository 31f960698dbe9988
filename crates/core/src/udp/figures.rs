//! What both ends of a UDP stream have to say, on the wire and in JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::ramp::RampReport;
use super::runs::RunCount;
use crate::path::seconds;
use crate::units::{BitRate, Ratio};

/// A stream of datagrams in an interval, or over all of a test: one of the two, whichever this end did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UdpFigures {
    /// By the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// By the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Received>,
    /// What the ramp found; told by the sender, who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<RampReport>,
}

/// The same in one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UdpSample {
    /// Datagrams sent, or received each once.
    pub datagrams: u64,
    /// Newly missing; one that comes in a later interval is still counted here.
    #[serde(default)]
    pub lost: u64,
    /// Came after a later one.
    #[serde(default)]
    pub reordered: u64,
    /// Came again.
    #[serde(default)]
    pub duplicates: u64,
    /// RFC 3550's jitter at the end of the interval, of a receiver.
    #[serde(
        default,
        rename = "jitter_seconds",
        with = "crate::path::optional_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub jitter: Option<Duration>,
}

/// What a sender did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sent {
    /// Datagrams the kernel took.
    pub datagrams: u64,
    /// Payload of each.
    pub datagram_bytes: u64,
    /// Asked for, payload; of a ramp, its last step.
    #[serde(rename = "asked_bits_per_second")]
    pub asked: BitRate,
    /// What the server's limit left of that, where it is less.
    #[serde(rename = "limit_bits_per_second", default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<BitRate>,
    /// Payload over the time from the first to the last departure.
    #[serde(rename = "achieved_bits_per_second")]
    pub achieved: BitRate,
    /// Datagrams that leave together by the schedule, one call each.
    pub burst_datagrams: u32,
    /// The kernel cut them out of one buffer (GSO), so that they leave back to back.
    pub gso: bool,
    /// GSO was wanted and the kernel or the device would not.
    #[serde(default)]
    pub gso_refused: bool,
    /// How late bursts left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Quantiles>,
    /// Share of the time in which a burst was more than a millisecond overdue.
    pub behind_share: Ratio,
    /// Schedule given up because it could not be caught up with.
    #[serde(rename = "given_up_seconds", with = "seconds")]
    pub given_up: Duration,
    /// Calls that found this host's own queue full (`ENOBUFS`); what they carried was sent later.
    pub queue_full: u64,
    /// DF is set: nothing is fragmented on the way.
    pub dont_fragment: bool,
    /// The path MTU the sender's kernel knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
}

impl Sent {
    /// Whether it sent this share of what it was to, at least; one datagram has no rate.
    pub fn kept(&self, share: f64) -> bool {
        let wanted = self.limit.map_or(self.asked, |limit| limit.min(self.asked));
        self.datagrams < 2 || self.achieved.as_f64() >= share * wanted.as_f64()
    }
}

/// What a receiver saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Received {
    /// Datagrams, each counted once.
    pub datagrams: u64,
    /// Sent and never come.
    pub lost: u64,
    /// Came again.
    pub duplicates: u64,
    /// Came after a later one (RFC 4737 §3).
    pub reordered: u64,
    /// Of these, came right after three later ones (RFC 4737 §5.4): TCP would have taken them for lost.
    pub reordered_by_three: u64,
    /// So old that nobody knew any more whether they were duplicates.
    pub too_late: u64,
    /// Datagrams of this socket that were none of this stream.
    #[serde(default)]
    pub foreign: u64,
    /// The longest run of lost datagrams.
    pub longest_burst: u64,
    /// Runs of lost datagrams by their length (RFC 3357).
    pub loss_bursts: Vec<RunCount>,
    /// The largest reordering extent: how many came between the first later one and it (RFC 4737 §4.2).
    pub most_extent: u64,
    /// Reordering extents.
    pub extents: Vec<RunCount>,
    /// RFC 3550's jitter at the end.
    #[serde(rename = "jitter_seconds", with = "seconds")]
    pub jitter: Duration,
    /// Spread of the difference in transit time from one datagram to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<Quantiles>,
    /// Times the receiver's own socket buffer overflowed: this loss is not the path's. Each is a datagram, or with GRO
    /// a few that had been merged. Absent where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows: Option<u64>,
    /// Most datagrams the kernel handed over as one (GRO); 1 is none merged.
    #[serde(default)]
    pub merged: u32,
    /// Times are the kernel's of arrival, not those of the reading thread.
    #[serde(default)]
    pub kernel_stamps: bool,
}

impl Received {
    /// Share of what was sent that was lost; none of nothing.
    pub fn loss(&self) -> Option<f64> {
        let sent = self.datagrams.saturating_add(self.lost);
        (sent > 0).then(|| self.lost as f64 / sent as f64)
    }

    /// The least and the most of the loss that is the receiver's own doing.
    pub fn own_loss(&self) -> (u64, u64) {
        let overflows = self.overflows.unwrap_or(0);
        let most = overflows.saturating_mul(u64::from(self.merged.max(1)));
        (overflows.min(self.lost), most.min(self.lost))
    }
}

/// How a time was distributed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Quantiles {
    /// Half were shorter.
    #[serde(rename = "p50_seconds", with = "seconds")]
    pub p50: Duration,
    /// 90 % were shorter.
    #[serde(rename = "p90_seconds", with = "seconds")]
    pub p90: Duration,
    /// 99 % were shorter.
    #[serde(rename = "p99_seconds", with = "seconds")]
    pub p99: Duration,
    /// The longest.
    #[serde(rename = "max_seconds", with = "seconds")]
    pub most: Duration,
}

impl Quantiles {
    /// Of these nanoseconds; nothing of none.
    pub(super) fn of(counted: &Histogram<u64>) -> Option<Quantiles> {
        let at = |quantile| Duration::from_nanos(counted.value_at_quantile(quantile));
        let most = Duration::from_nanos(counted.max());
        (!counted.is_empty()).then(|| Quantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), most })
    }
}
