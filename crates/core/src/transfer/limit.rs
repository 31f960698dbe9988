//! What holds a copy back at present, from where both sides' streams spend their time and what the sender's kernel
//! says of its sockets.
//!
//! A classification for a progress line, not a diagnosis: it looks at the last interval alone and names the first
//! thing that the numbers show. `lfn doctor` and the findings look deeper ([`crate::diagnose`]).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{BitRate, Bytes};

/// Seconds that one side's streams spent, summed over the streams, since the copy began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Reading the source or writing the destination.
    #[serde(rename = "disk_seconds")]
    pub disk: f64,
    /// Hashing.
    #[serde(rename = "hash_seconds")]
    pub hash: f64,
    /// Writing to or reading from the network, waiting included.
    #[serde(rename = "network_seconds")]
    pub network: f64,
    /// Of it, waiting because this side is a server and grants no more.
    #[serde(rename = "held_seconds", default)]
    pub held: f64,
}

/// What one side's streams are at just now: how many at each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Doing {
    /// Reading the source or writing the destination.
    pub disk: u32,
    /// Hashing.
    pub hash: u32,
    /// Writing to or reading from the network.
    pub network: u32,
}

/// What a copy waits for in which nothing moves though both sides are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// The sender reads, and does not get it.
    SourceDisk,
    /// The receiver writes, and cannot.
    DestinationDisk,
    /// The sender sends, and nothing arrives.
    Network,
    /// Neither side is at anything: one of them waits for a word that does not come.
    Nobody,
}

/// Names what nothing moves for, by what both sides are at.
pub fn standstill(sender: &Doing, receiver: &Doing) -> Standstill {
    // A receiver whose disk hangs fills the network up, and a sender whose disk hangs leaves it empty.
    match (sender, receiver) {
        (_, Doing { disk: 1.., .. }) => Standstill::DestinationDisk,
        (Doing { disk: 1.., network: 0, .. }, _) => Standstill::SourceDisk,
        (Doing { network: 1.., .. }, _) => Standstill::Network,
        _ => Standstill::Nobody,
    }
}

/// What the kernel says of the sender's data streams, summed over them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketEvidence {
    /// Receive windows the peer offers (`tcpi_snd_wnd`), bytes; 0 where the kernel does not tell.
    #[serde(rename = "receive_window_bytes")]
    pub receive_window: Bytes,
    /// Congestion windows (`tcpi_snd_cwnd` × `tcpi_snd_mss`), bytes.
    #[serde(rename = "congestion_window_bytes")]
    pub congestion_window: Bytes,
    /// Seconds with data in flight (`tcpi_busy_time`).
    pub busy_seconds: f64,
    /// Seconds stopped by the receive window (`tcpi_rwnd_limited`).
    pub rwnd_limited_seconds: f64,
    /// Seconds stopped by the send buffer (`tcpi_sndbuf_limited`).
    pub sndbuf_limited_seconds: f64,
    /// Segments sent again (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Segments sent, those sent again included (`tcpi_segs_out`); 0 where the kernel does not tell.
    #[serde(default)]
    pub segments_sent: u64,
    /// The longest smoothed RTT of the streams at present (`tcpi_rtt`), seconds.
    #[serde(default)]
    pub rtt_seconds: f64,
    /// The sender has changed their congestion control to BBR while the copy ran.
    #[serde(default)]
    pub switched: bool,
    /// The least RTT of the streams (`tcpi_min_rtt`), seconds.
    pub min_rtt_seconds: f64,
    /// Streams still in slow start (`tcpi_snd_cwnd` < `tcpi_snd_ssthresh`).
    pub in_slow_start: u16,
}

/// How much there is to copy, as far as it is listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Length of all files.
    pub bytes: Bytes,
    /// Of it, what need not be moved: there already, kept of an earlier copy, a hole, or of a file that failed.
    #[serde(default)]
    pub passed: Bytes,
    /// Files, directories and links.
    pub entries: u64,
    /// Of those, such as are through: copied, there already, or failed.
    pub settled: u64,
    /// Nothing more is to be listed.
    pub complete: bool,
}

/// One look at a copy, from both sides, cumulative since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// When, since the copy began.
    #[serde(rename = "seconds", with = "crate::units::seconds")]
    pub at: Duration,
    /// Payload moved, as this side counts: what was sent again twice, holes not at all.
    pub bytes: Bytes,
    /// The sender's time.
    pub sender: Shares,
    /// The receiver's time.
    pub receiver: Shares,
    /// The sender's sockets, if known.
    pub sockets: Option<SocketEvidence>,
}

/// What holds a copy back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// TCP is still finding out what the path carries.
    StartUp,
    /// Within a tenth of what was predicted.
    LinkFull {
        /// Of the predicted goodput, from 0.
        share: f64,
    },
    /// Waiting for the source's disk.
    SourceDisk,
    /// Waiting for the destination's disk.
    DestinationDisk,
    /// The rate that a server grants.
    Granted,
    /// Hashing, encrypting and copying.
    Cpu,
    /// The receiver's windows are smaller than the path.
    ReceiveWindow,
    /// The sender's buffers are smaller than the path.
    SendBuffer,
    /// Losses, or a full link where nothing was predicted.
    CongestionWindow,
    /// Nothing moved, or the numbers do not tell.
    Unknown,
}

/// So much within so short a time is over before anything could hold it back but dials, disks and the far end's answer.
const TOO_LITTLE: (Bytes, Duration) = (Bytes(1 << 20), Duration::from_secs(1));

/// Names what held the copy back between two looks.
pub fn classify(earlier: &Look, later: &Look, streams: u16, predicted: Option<BitRate>) -> Limit {
    let elapsed = later.at.saturating_sub(earlier.at);
    let moved = Bytes(later.bytes.0.saturating_sub(earlier.bytes.0));
    if elapsed.is_zero() || moved.0 == 0 || (moved < TOO_LITTLE.0 && elapsed < TOO_LITTLE.1) {
        return Limit::Unknown;
    }
    let goodput = moved.per(elapsed);
    if let Some(predicted) = predicted.filter(|rate| rate.0 > 0) {
        let share = goodput.as_f64() / predicted.as_f64();
        // Far above it the prediction was wrong, and says nothing of the link.
        if (0.9..1.1).contains(&share) {
            return Limit::LinkFull { share };
        }
    }
    let thread_time = elapsed.as_secs_f64() * f64::from(streams.max(1));
    let part = |later: f64, earlier: f64| (later - earlier).max(0.0) / thread_time;
    // Streams wait for what is granted one behind the other: it is their time in the network that tells, if they have been
    // there at all.
    let is_held = |later: &Shares, earlier: &Shares| {
        let (held, network) = (later.held - earlier.held, later.network - earlier.network);
        held > 0.5 * network && network > 0.25 * thread_time
    };
    let held = part(later.receiver.held, earlier.receiver.held) + part(later.sender.held, earlier.sender.held);
    if held > 0.5 || is_held(&later.receiver, &earlier.receiver) || is_held(&later.sender, &earlier.sender) {
        return Limit::Granted;
    }
    // More than half of all stream time on one thing: the network then waits for it, not it for the network.
    if part(later.receiver.disk, earlier.receiver.disk) > 0.5 {
        return Limit::DestinationDisk;
    }
    if part(later.sender.disk, earlier.sender.disk) > 0.5 {
        return Limit::SourceDisk;
    }
    let Some(now) = later.sockets else { return Limit::Unknown };
    let hashing = part(later.receiver.hash, earlier.receiver.hash).max(part(later.sender.hash, earlier.sender.hash));
    match network_limit(&earlier.sockets.unwrap_or_default(), &now, thread_time, goodput) {
        Some(limit) => limit,
        // The network had nothing to do, and something else had.
        None if hashing > 0.25 => Limit::Cpu,
        None => Limit::Unknown,
    }
}

/// What the sockets say; on a path without RTT the processors are what is left.
fn network_limit(before: &SocketEvidence, now: &SocketEvidence, thread_time: f64, goodput: BitRate) -> Option<Limit> {
    // Below a tenth of a millisecond there is no path to fill, only hosts: windows and buffers then show how far the
    // slower host is behind, not a limit of their own.
    if now.min_rtt_seconds > 0.0 && now.min_rtt_seconds < 1e-4 {
        return Some(Limit::Cpu);
    }
    let part = |later: f64, earlier: f64| (later - earlier).max(0.0) / thread_time;
    // Measured at 539 ms on Linux 6.18: rwnd_limited was only a third though the window alone was the limit. Goodput
    // close to window / RTT with the congestion window above it is the surer sign.
    let rtt = Duration::try_from_secs_f64(now.min_rtt_seconds).unwrap_or_default();
    let window_rate = now.receive_window.per(rtt).as_f64();
    let fills_window = window_rate > 0.0 && goodput.as_f64() > 0.8 * window_rate;
    if fills_window && now.congestion_window >= now.receive_window {
        return Some(Limit::ReceiveWindow);
    }
    if part(now.rwnd_limited_seconds, before.rwnd_limited_seconds) > 0.5 {
        return Some(Limit::ReceiveWindow);
    }
    if part(now.sndbuf_limited_seconds, before.sndbuf_limited_seconds) > 0.5 {
        return Some(Limit::SendBuffer);
    }
    if now.in_slow_start > 0 && now.retransmits == before.retransmits {
        return Some(Limit::StartUp);
    }
    let busy = part(now.busy_seconds, before.busy_seconds);
    (busy > 0.5).then_some(Limit::CongestionWindow)
}

impl Limit {
    /// In words, as one end sees it: "near disk" is this host's.
    pub fn seen(&self, near_sends: bool) -> String {
        match (self, near_sends) {
            (Limit::SourceDisk, true) | (Limit::DestinationDisk, false) => "near disk".to_owned(),
            (Limit::SourceDisk, false) | (Limit::DestinationDisk, true) => "far disk".to_owned(),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::StartUp => f.write_str("start-up"),
            Limit::LinkFull { share } => write!(f, "link full: {:.0} % of predicted", share * 100.0),
            Limit::SourceDisk => f.write_str("source disk"),
            Limit::DestinationDisk => f.write_str("destination disk"),
            Limit::Granted => f.write_str("the server's limit"),
            Limit::Cpu => f.write_str("CPU"),
            Limit::ReceiveWindow => f.write_str("receive window"),
            Limit::SendBuffer => f.write_str("send buffer"),
            Limit::CongestionWindow => f.write_str("congestion window"),
            Limit::Unknown => f.write_str("not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(change: impl FnOnce(&mut Look)) -> Look {
        let mut look = Look { at: Duration::from_secs(1), bytes: Bytes(1_000_000), ..Look::default() };
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

    fn limit(change: impl FnOnce(&mut Look), predicted: Option<BitRate>) -> Limit {
        classify(&Look::default(), &look(change), 1, predicted)
    }

    #[test]
    fn each_cause_has_its_sign() {
        let sockets = |change: fn(&mut SocketEvidence)| move |look: &mut Look| change(look.sockets.as_mut().unwrap());
        assert_eq!(limit(|_| {}, None), Limit::CongestionWindow);
        assert_eq!(limit(|_| {}, Some(BitRate(8_000_000))), Limit::LinkFull { share: 1.0 });
        assert_eq!(limit(|_| {}, Some(BitRate(4_000_000))), Limit::CongestionWindow);
        assert_eq!(limit(|look| look.receiver.disk = 0.8, None), Limit::DestinationDisk);
        assert_eq!(limit(|look| look.sender.disk = 0.8, None), Limit::SourceDisk);
        assert_eq!(limit(sockets(|s| s.in_slow_start = 1), None), Limit::StartUp);
        assert_eq!(limit(sockets(|s| s.rwnd_limited_seconds = 0.9), None), Limit::ReceiveWindow);
        assert_eq!(limit(sockets(|s| s.sndbuf_limited_seconds = 0.9), None), Limit::SendBuffer);
        assert_eq!(limit(sockets(|s| s.min_rtt_seconds = 2e-5), None), Limit::Cpu);
        // Nothing in flight most of the time: for the hash, or for a reason that these numbers do not have.
        let idle = sockets(|s| s.busy_seconds = 0.1);
        assert_eq!(limit(idle, None), Limit::Unknown);
        let hashes = |look: &mut Look| {
            idle(look);
            look.sender.hash = 0.4;
        };
        assert_eq!(limit(hashes, None), Limit::Cpu);
        // One of four streams at a time is let through.
        let granted = |look: &mut Look| (look.receiver.network, look.receiver.held) = (0.4, 0.39);
        assert_eq!(limit(granted, None), Limit::Granted);
        // 8 Mb/s × 539 ms is 539 kB: a window of that size is what stops it, whatever rwnd_limited says.
        let held = sockets(|s| s.receive_window = Bytes(539_000));
        assert_eq!(limit(held, None), Limit::ReceiveWindow);
        assert_eq!(limit(|look| look.bytes = Bytes(0), None), Limit::Unknown);
    }
}
