//! Names the bottleneck of a copy, from the time that both sides' streams spend and from the sender's kernel counters.
//!
//! The rules of copies explain the bottleneck of a whole copy. During a copy, the bottleneck of the last interval decides
//! about more streams and about the congestion control, and the progress line shows it. The result is the first
//! bottleneck that the numbers show.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

use crate::evidence::{ProgressSample, SocketEvidence, StreamTime};

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
    LostConnection,
    /// Nothing moved, or the counters show no cause.
    Unknown,
}

/// Minimum share of the time of all streams that an activity takes to be the bottleneck: the network waits for it.
pub(super) const MIN_MAIN_SHARE: f64 = 0.5;
/// Minimum share of the time of all streams in hashing, while the network is idle.
pub(super) const MIN_HASH_SHARE: f64 = 0.25;
/// Minimum goodput as a share of window / RTT.
pub(super) const MIN_SHARE_OF_WINDOW_RATE: f64 = 0.8;

/// Minimum share of the predicted goodput that needs no explanation.
pub(super) const NEAR_PREDICTED: f64 = 0.9;
/// Goodput as a share of the prediction from which the prediction does not describe the link.
const MAX_PREDICTED: f64 = 1.1;
/// Minimum share of the time of all streams in the network, for streams that wait for a rate limiter in turn.
pub(super) const MIN_NETWORK_SHARE: f64 = 0.25;
/// Maximum RTT between hosts without a path to fill. Windows and buffers then show how far the slower host lags.
pub(super) const MAX_HOST_RTT: Duration = Duration::from_micros(100);
/// Minimum number of streams in slow start.
pub(super) const MIN_STREAMS_IN_SLOW_START: u16 = 1;
/// Minimum payload of a shorter time: below both bounds, only dialling, disks and the peer's reply time are visible.
pub(super) const MIN_CLASSIFIED_BYTES: Bytes = Bytes(1 << 20);
/// Minimum time of less payload.
pub(super) const MIN_CLASSIFIED_TIME: Duration = Duration::from_secs(1);

/// Returns the bottleneck of the copy between two samples.
pub fn classify(
    earlier: &ProgressSample,
    later: &ProgressSample,
    streams: u16,
    predicted: Option<BitRate>,
) -> CopyBottleneck {
    let elapsed = later.at.saturating_sub(earlier.at);
    let moved = Bytes(later.bytes.0.saturating_sub(earlier.bytes.0));
    if elapsed.is_zero() || moved.0 == 0 || (moved < MIN_CLASSIFIED_BYTES && elapsed < MIN_CLASSIFIED_TIME) {
        return CopyBottleneck::Unknown;
    }
    let goodput = moved.per(elapsed);
    if let Some(predicted) = predicted.filter(|rate| rate.0 > 0) {
        let share = goodput.as_f64() / predicted.as_f64();
        // Far above the prediction, the prediction was wrong and does not describe the link.
        if (NEAR_PREDICTED..MAX_PREDICTED).contains(&share) {
            return CopyBottleneck::LinkFull { share };
        }
    }
    let thread_time = elapsed.as_secs_f64() * f64::from(streams.max(1));
    let part = |later: f64, earlier: f64| (later - earlier).max(0.0) / thread_time;
    // The rate limiter admits one stream after another. The criterion is therefore the share of the network time, if
    // the streams spent enough time in the network at all.
    let is_held = |later: &StreamTime, earlier: &StreamTime| {
        let (held, network) = (later.rate_limited - earlier.rate_limited, later.network - earlier.network);
        held > MIN_MAIN_SHARE * network && network > MIN_NETWORK_SHARE * thread_time
    };
    let held = part(later.receiver.rate_limited, earlier.receiver.rate_limited)
        + part(later.sender.rate_limited, earlier.sender.rate_limited);
    if held > MIN_MAIN_SHARE || is_held(&later.receiver, &earlier.receiver) || is_held(&later.sender, &earlier.sender) {
        return CopyBottleneck::ServerRateLimit;
    }
    if part(later.receiver.disk, earlier.receiver.disk) > MIN_MAIN_SHARE {
        return CopyBottleneck::DestinationDisk;
    }
    if part(later.sender.disk, earlier.sender.disk) > MIN_MAIN_SHARE {
        return CopyBottleneck::SourceDisk;
    }
    let Some(now) = later.sockets else { return CopyBottleneck::Unknown };
    let hashing = part(later.receiver.hash, earlier.receiver.hash).max(part(later.sender.hash, earlier.sender.hash));
    match network_bottleneck(&earlier.sockets.unwrap_or_default(), &now, thread_time, goodput) {
        Some(limit) => limit,
        // The network was idle, and hashing was busy.
        None if hashing > MIN_HASH_SHARE => CopyBottleneck::Cpu,
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
    if now.min_rtt_seconds > 0.0 && now.min_rtt_seconds < MAX_HOST_RTT.as_secs_f64() {
        return Some(CopyBottleneck::Cpu);
    }
    let part = |later: f64, earlier: f64| (later - earlier).max(0.0) / thread_time;
    // Measured at 539 ms on Linux 6.18: rwnd_limited was only one third although the receive window was the only limit.
    // Goodput close to window / RTT with a larger congestion window is the more reliable sign.
    let rtt = Duration::try_from_secs_f64(now.min_rtt_seconds).unwrap_or_default();
    let window_rate = now.receive_window.per(rtt).as_f64();
    let fills_window = window_rate > 0.0 && goodput.as_f64() > MIN_SHARE_OF_WINDOW_RATE * window_rate;
    if fills_window && now.congestion_window >= now.receive_window {
        return Some(CopyBottleneck::ReceiveWindow);
    }
    if part(now.rwnd_limited_seconds, before.rwnd_limited_seconds) > MIN_MAIN_SHARE {
        return Some(CopyBottleneck::ReceiveWindow);
    }
    if part(now.sndbuf_limited_seconds, before.sndbuf_limited_seconds) > MIN_MAIN_SHARE {
        return Some(CopyBottleneck::SendBuffer);
    }
    if now.in_slow_start >= MIN_STREAMS_IN_SLOW_START && now.retransmits == before.retransmits {
        return Some(CopyBottleneck::StartUp);
    }
    let busy = part(now.busy_seconds, before.busy_seconds);
    (busy > MIN_MAIN_SHARE).then_some(CopyBottleneck::CongestionWindow)
}

/// Time over which the current goodput and the current bottleneck are computed.
const RECENT: Duration = Duration::from_secs(2);

/// Samples of the last seconds of a running copy.
#[derive(Debug, Default)]
pub struct RecentSamples(VecDeque<ProgressSample>);

/// Goodput and bottleneck of the last seconds of a running copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurrentProgress {
    /// Payload divided by time.
    pub goodput: BitRate,
    /// Activity or resource that limits the copy at present.
    pub bottleneck: CopyBottleneck,
}

impl RecentSamples {
    /// Adds a sample. Returns the goodput and the bottleneck since the oldest recent sample.
    pub fn update(&mut self, sample: &ProgressSample, streams: u16, predicted: Option<BitRate>) -> CurrentProgress {
        while self.0.len() > 1 && self.0.front().is_some_and(|first| sample.at.saturating_sub(first.at) > RECENT) {
            self.0.pop_front();
        }
        let earlier = self.0.front().copied().unwrap_or_default();
        self.0.push_back(*sample);
        let moved = Bytes(sample.bytes.0.saturating_sub(earlier.bytes.0));
        CurrentProgress {
            goodput: moved.per(sample.at.saturating_sub(earlier.at)),
            bottleneck: classify(&earlier, sample, streams, predicted),
        }
    }
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
            CopyBottleneck::LostConnection => f.write_str("lost connection"),
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
