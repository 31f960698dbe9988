//! Names the current bottleneck of a copy, from the time that both sides' streams spend and from the sender's kernel
//! counters.
//!
//! The result is a classification for a progress line, not a diagnosis. It covers the last interval only, and names the
//! first bottleneck that the numbers show. `lfn doctor` and the findings analyse deeper ([`crate::diagnose`]).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{BitRate, Bytes};

/// Time that one side's streams spent since the copy began, in seconds, summed over the streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamTime {
    /// Reading the source or writing the destination.
    #[serde(rename = "disk_seconds")]
    pub disk: f64,
    #[serde(rename = "hash_seconds")]
    pub hash: f64,
    /// Writing to or reading from the network, including waiting.
    #[serde(rename = "network_seconds")]
    pub network: f64,
    /// Part of the network time: waiting for this server's rate limiter.
    #[serde(rename = "rate_limited_seconds", default)]
    pub rate_limited: f64,
}

/// Current activity of one side's streams: the number of streams in each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamActivity {
    /// Reading the source or writing the destination.
    pub disk: u32,
    pub hash: u32,
    /// Writing to or reading from the network.
    pub network: u32,
}

/// Reason why nothing moves although both sides are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallCause {
    /// The sender waits for a read.
    SourceDisk,
    /// The receiver waits for a write.
    DestinationDisk,
    /// The sender sends, but nothing arrives.
    Network,
    /// Neither side is active: one of them waits for a message that does not arrive.
    Deadlock,
}

/// Returns why nothing moves, from the activity of both sides.
pub fn stall_cause(sender: &StreamActivity, receiver: &StreamActivity) -> StallCause {
    // If the receiver's disk hangs, the network fills up. If the sender's disk hangs, the network is empty.
    match (sender, receiver) {
        (_, StreamActivity { disk: 1.., .. }) => StallCause::DestinationDisk,
        (StreamActivity { disk: 1.., network: 0, .. }, _) => StallCause::SourceDisk,
        (StreamActivity { network: 1.., .. }, _) => StallCause::Network,
        _ => StallCause::Deadlock,
    }
}

/// Kernel counters of the sender's data streams, summed over the streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketEvidence {
    /// Receive windows that the peer offers (`tcpi_snd_wnd`), bytes; 0 if the kernel does not report them.
    #[serde(rename = "receive_window_bytes")]
    pub receive_window: Bytes,
    /// Congestion windows (`tcpi_snd_cwnd` × `tcpi_snd_mss`), bytes.
    #[serde(rename = "congestion_window_bytes")]
    pub congestion_window: Bytes,
    /// Seconds with data in flight (`tcpi_busy_time`).
    pub busy_seconds: f64,
    /// Seconds limited by the receive window (`tcpi_rwnd_limited`).
    pub rwnd_limited_seconds: f64,
    /// Seconds limited by the send buffer (`tcpi_sndbuf_limited`).
    pub sndbuf_limited_seconds: f64,
    /// Count of retransmitted segments (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Sent segments, including retransmissions (`tcpi_segs_out`); 0 if the kernel does not report them.
    #[serde(default)]
    pub segments_sent: u64,
    /// Maximum smoothed RTT of the streams at present (`tcpi_rtt`), seconds.
    #[serde(default)]
    pub rtt_seconds: f64,
    /// The sender changed its congestion control to BBR during the copy.
    #[serde(default)]
    pub switched_to_bbr: bool,
    /// Minimum RTT of the streams (`tcpi_min_rtt`), seconds.
    pub min_rtt_seconds: f64,
    /// Streams in slow start (`tcpi_snd_cwnd` < `tcpi_snd_ssthresh`).
    pub in_slow_start: u16,
}

/// Totals of the entries that are listed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTotals {
    /// Length of all files.
    pub bytes: Bytes,
    /// Bytes that need not be sent: up to date, received by an earlier copy, in a hole, or of a failed file.
    #[serde(default)]
    pub not_needed: Bytes,
    /// Files, directories and links.
    pub entries: u64,
    /// Entries that are copied, up to date, or failed.
    pub finished: u64,
    /// The list is complete.
    pub complete: bool,
}

/// Counters of both sides at one moment, cumulative since the copy began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressSample {
    /// Time since the copy began.
    #[serde(rename = "seconds", with = "crate::units::seconds")]
    pub at: Duration,
    /// Payload bytes that this side counts: resent blocks count twice, holes do not count.
    pub bytes: Bytes,
    pub sender: StreamTime,
    pub receiver: StreamTime,
    /// Present if the sender reports its sockets.
    pub sockets: Option<SocketEvidence>,
}

/// The bottleneck of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CopyBottleneck {
    StartUp,
    /// Within 10 % of the predicted goodput.
    LinkFull {
        /// Share of the predicted goodput, from 0.
        share: f64,
    },
    SourceDisk,
    DestinationDisk,
    /// The rate limit of a server.
    ServerRateLimit,
    /// Hashing, encryption and copying.
    Cpu,
    /// The receive windows are smaller than the BDP.
    ReceiveWindow,
    /// The send buffers are smaller than the BDP.
    SendBuffer,
    /// Loss, or a full link without a prediction.
    CongestionWindow,
    /// The connection was lost for a part of the time.
    Outage,
    /// Nothing moved, or the counters show no cause.
    Unknown,
}

/// Below both bounds, only dialling, disks and the peer's reply time are visible.
const MIN_CLASSIFIED: (Bytes, Duration) = (Bytes(1 << 20), Duration::from_secs(1));

/// Returns the bottleneck of the copy between two samples.
pub fn classify(
    earlier: &ProgressSample,
    later: &ProgressSample,
    streams: u16,
    predicted: Option<BitRate>,
) -> CopyBottleneck {
    let elapsed = later.at.saturating_sub(earlier.at);
    let moved = Bytes(later.bytes.0.saturating_sub(earlier.bytes.0));
    if elapsed.is_zero() || moved.0 == 0 || (moved < MIN_CLASSIFIED.0 && elapsed < MIN_CLASSIFIED.1) {
        return CopyBottleneck::Unknown;
    }
    let goodput = moved.per(elapsed);
    if let Some(predicted) = predicted.filter(|rate| rate.0 > 0) {
        let share = goodput.as_f64() / predicted.as_f64();
        // Far above the prediction, the prediction was wrong and does not describe the link.
        if (0.9..1.1).contains(&share) {
            return CopyBottleneck::LinkFull { share };
        }
    }
    let thread_time = elapsed.as_secs_f64() * f64::from(streams.max(1));
    let part = |later: f64, earlier: f64| (later - earlier).max(0.0) / thread_time;
    // The rate limiter admits one stream after another. The criterion is therefore the share of the network time, if
    // the streams spent enough time in the network at all.
    let is_held = |later: &StreamTime, earlier: &StreamTime| {
        let (held, network) = (later.rate_limited - earlier.rate_limited, later.network - earlier.network);
        held > 0.5 * network && network > 0.25 * thread_time
    };
    let held = part(later.receiver.rate_limited, earlier.receiver.rate_limited)
        + part(later.sender.rate_limited, earlier.sender.rate_limited);
    if held > 0.5 || is_held(&later.receiver, &earlier.receiver) || is_held(&later.sender, &earlier.sender) {
        return CopyBottleneck::ServerRateLimit;
    }
    // More than half of the stream time on one activity: the network waits for this activity.
    if part(later.receiver.disk, earlier.receiver.disk) > 0.5 {
        return CopyBottleneck::DestinationDisk;
    }
    if part(later.sender.disk, earlier.sender.disk) > 0.5 {
        return CopyBottleneck::SourceDisk;
    }
    let Some(now) = later.sockets else { return CopyBottleneck::Unknown };
    let hashing = part(later.receiver.hash, earlier.receiver.hash).max(part(later.sender.hash, earlier.sender.hash));
    match network_bottleneck(&earlier.sockets.unwrap_or_default(), &now, thread_time, goodput) {
        Some(limit) => limit,
        // The network was idle, and hashing was busy.
        None if hashing > 0.25 => CopyBottleneck::Cpu,
        None => CopyBottleneck::Unknown,
    }
}

/// Returns the bottleneck that the socket counters show. On a path without RTT only the processors remain.
fn network_bottleneck(
    before: &SocketEvidence,
    now: &SocketEvidence,
    thread_time: f64,
    goodput: BitRate,
) -> Option<CopyBottleneck> {
    // Below 0.1 ms there is no path to fill, only hosts. Windows and buffers then show how far the slower host lags,
    // not a limit of their own.
    if now.min_rtt_seconds > 0.0 && now.min_rtt_seconds < 1e-4 {
        return Some(CopyBottleneck::Cpu);
    }
    let part = |later: f64, earlier: f64| (later - earlier).max(0.0) / thread_time;
    // Measured at 539 ms on Linux 6.18: rwnd_limited was only one third although the receive window was the only limit.
    // Goodput close to window / RTT with a larger congestion window is the more reliable sign.
    let rtt = Duration::try_from_secs_f64(now.min_rtt_seconds).unwrap_or_default();
    let window_rate = now.receive_window.per(rtt).as_f64();
    let fills_window = window_rate > 0.0 && goodput.as_f64() > 0.8 * window_rate;
    if fills_window && now.congestion_window >= now.receive_window {
        return Some(CopyBottleneck::ReceiveWindow);
    }
    if part(now.rwnd_limited_seconds, before.rwnd_limited_seconds) > 0.5 {
        return Some(CopyBottleneck::ReceiveWindow);
    }
    if part(now.sndbuf_limited_seconds, before.sndbuf_limited_seconds) > 0.5 {
        return Some(CopyBottleneck::SendBuffer);
    }
    if now.in_slow_start > 0 && now.retransmits == before.retransmits {
        return Some(CopyBottleneck::StartUp);
    }
    let busy = part(now.busy_seconds, before.busy_seconds);
    (busy > 0.5).then_some(CopyBottleneck::CongestionWindow)
}

impl CopyBottleneck {
    /// Formats the bottleneck for one end: "near disk" is the disk of this host.
    pub fn display_for_end(&self, near_sends: bool) -> String {
        match (self, near_sends) {
            (CopyBottleneck::SourceDisk, true) | (CopyBottleneck::DestinationDisk, false) => "near disk".to_owned(),
            (CopyBottleneck::SourceDisk, false) | (CopyBottleneck::DestinationDisk, true) => "far disk".to_owned(),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for CopyBottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyBottleneck::StartUp => f.write_str("start-up"),
            CopyBottleneck::LinkFull { .. } => f.write_str("link full"),
            CopyBottleneck::SourceDisk => f.write_str("source disk"),
            CopyBottleneck::DestinationDisk => f.write_str("destination disk"),
            CopyBottleneck::ServerRateLimit => f.write_str("server rate limit"),
            CopyBottleneck::Cpu => f.write_str("CPU"),
            CopyBottleneck::ReceiveWindow => f.write_str("receive window"),
            CopyBottleneck::SendBuffer => f.write_str("send buffer"),
            CopyBottleneck::CongestionWindow => f.write_str("congestion window"),
            CopyBottleneck::Outage => f.write_str("lost connection"),
            CopyBottleneck::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(change: impl FnOnce(&mut ProgressSample)) -> ProgressSample {
        let mut look =
            ProgressSample { at: Duration::from_secs(1), bytes: Bytes(1_000_000), ..ProgressSample::default() };
        look.sockets = Some(SocketEvidence {
            receive_window: Bytes(64 << 20),
            congestion_window: Bytes(1 << 20),
            busy_seconds: 1.0,
            min_rtt_seconds: 0.539,
            ..SocketEvidence::default()
        });
        change(&mut look);
        look
    }

    fn limit(change: impl FnOnce(&mut ProgressSample), predicted: Option<BitRate>) -> CopyBottleneck {
        classify(&ProgressSample::default(), &look(change), 1, predicted)
    }

    #[test]
    fn each_bottleneck_is_recognised() {
        let sockets =
            |change: fn(&mut SocketEvidence)| move |look: &mut ProgressSample| change(look.sockets.as_mut().unwrap());
        assert_eq!(limit(|_| {}, None), CopyBottleneck::CongestionWindow);
        assert_eq!(limit(|_| {}, Some(BitRate(8_000_000))), CopyBottleneck::LinkFull { share: 1.0 });
        assert_eq!(limit(|_| {}, Some(BitRate(4_000_000))), CopyBottleneck::CongestionWindow);
        assert_eq!(limit(|look| look.receiver.disk = 0.8, None), CopyBottleneck::DestinationDisk);
        assert_eq!(limit(|look| look.sender.disk = 0.8, None), CopyBottleneck::SourceDisk);
        assert_eq!(limit(sockets(|s| s.in_slow_start = 1), None), CopyBottleneck::StartUp);
        assert_eq!(limit(sockets(|s| s.rwnd_limited_seconds = 0.9), None), CopyBottleneck::ReceiveWindow);
        assert_eq!(limit(sockets(|s| s.sndbuf_limited_seconds = 0.9), None), CopyBottleneck::SendBuffer);
        assert_eq!(limit(sockets(|s| s.min_rtt_seconds = 2e-5), None), CopyBottleneck::Cpu);
        // Nothing in flight most of the time: hashing, or a cause outside these counters.
        let idle = sockets(|s| s.busy_seconds = 0.1);
        assert_eq!(limit(idle, None), CopyBottleneck::Unknown);
        let hashes = |look: &mut ProgressSample| {
            idle(look);
            look.sender.hash = 0.4;
        };
        assert_eq!(limit(hashes, None), CopyBottleneck::Cpu);
        // The rate limiter admits one of four streams at a time.
        let granted = |look: &mut ProgressSample| (look.receiver.network, look.receiver.rate_limited) = (0.4, 0.39);
        assert_eq!(limit(granted, None), CopyBottleneck::ServerRateLimit);
        // 8 Mb/s × 539 ms is 539 kB: a window of this size is the limit, whatever rwnd_limited shows.
        let held = sockets(|s| s.receive_window = Bytes(539_000));
        assert_eq!(limit(held, None), CopyBottleneck::ReceiveWindow);
        assert_eq!(limit(|look| look.bytes = Bytes(0), None), CopyBottleneck::Unknown);
    }
}
